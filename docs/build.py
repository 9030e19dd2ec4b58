"""Build what the tutorial shows: run its commands, put what they print below them, and keep their pictures.

    python docs/build.py             # write docs/tutorial.md and docs/pictures/tutorial-*.png anew
    python docs/build.py --check     # change nothing; exit code 1 if the tutorial says anything else than its commands

A ``console`` block is run line by line in an empty folder; files of ``yaml file=NAME`` blocks lie there. A ``text``
block that follows directly holds what the commands print. Times are deterministic, so that this is the same everywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
TUTORIAL = DOCS / "tutorial.md"
_FILE = re.compile(r"^```yaml file=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```console\n(.*?)^```\n(\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"\]\((pictures/tutorial-[^)]*)\)")


def run_line(line: str, folder: Path) -> str:
    """Run one command in a folder; return what it prints. Ends this process if it fails.

    It runs in this process, which spares importing everything for each command.
    """
    from typer.testing import CliRunner

    from kernbench.cli import app

    with contextlib.chdir(folder):
        done = CliRunner(env={"COLUMNS": "160"}).invoke(app, shlex.split(line)[1:], catch_exceptions=False)
    if done.exit_code:
        sys.exit(f"{line}\n{done.stdout}{done.stderr}")
    return "\n".join(text.rstrip() for text in done.stdout.splitlines())


def build(text: str, folder: Path) -> str:
    """Run every command of a document in a folder, in order; return the document with what they print."""
    (folder / "pictures").mkdir()
    for name, content in _FILE.findall(text):
        (folder / name).write_text(content, encoding="utf-8")

    def filled(block: re.Match[str]) -> str:
        printed = [run_line(line, folder) for line in block[1].splitlines() if line.startswith("kernbench ")]
        shown = "\n```text\n" + "\n".join(printed) + "\n```\n" if block[2] else ""
        return f"```console\n{block[1]}```\n{shown}"

    return _BLOCK.sub(filled, text)


def main() -> None:
    """Build or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(DOCS.parent))  # kernbench as it is beside this file
    text = TUTORIAL.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = build(text, folder)
        missing = [path for path in _PICTURE.findall(text) if not (folder / path).is_file()]
        if missing:
            sys.exit(f"no command of the tutorial makes {', '.join(missing)}")
        if options.check:
            if built != text:
                sys.exit("docs/tutorial.md says something else than its commands print: run python docs/build.py")
            return
        TUTORIAL.write_text(built, encoding="utf-8")
        (DOCS / "pictures").mkdir(exist_ok=True)
        from make_pictures import shrink  # here: workers of sweeps import this file

        for path in (folder / "pictures").glob("tutorial-*"):
            shrink(path)
            shutil.move(path, DOCS / "pictures" / path.name)


if __name__ == "__main__":
    main()
