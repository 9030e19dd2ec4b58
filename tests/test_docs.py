"""The documents are true: every `kernbench` command line and every Python block in them runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernbench.cli import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def blocks(path, *languages):
    """Return the fenced blocks in these languages; ``no-run`` after the language leaves one out."""
    found = FENCE.findall(path.read_text(encoding="utf-8"))
    return [text for language, options, text in found if language in languages and "no-run" not in options]


def commands(path):
    """Return the lines that call kernbench, without prompt, comment and continuation."""
    lines = "\n".join(blocks(path, "console", "bash", "sh")).replace("\\\n", " ").splitlines()
    bare = [line.strip().removeprefix("$ ") for line in lines]
    return [shlex.split(line, comments=True) for line in bare if line.startswith("kernbench ")]


def files(path):
    """Return the files that a document shows, by name: blocks with ``file=NAME`` after the language."""
    found = FENCE.findall(path.read_text(encoding="utf-8"))
    return {word[5:]: text for _, options, text in found for word in options.split() if word.startswith("file=")}


BUILT = "tutorial.md"
"""What ``docs/build.py`` runs, and holds against what it says."""


@pytest.mark.slow
def test_the_tutorial_says_what_its_commands_print():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py"), "--check"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in DOCUMENTS if commands(p) and p.name != BUILT], ids=lambda p: p.name)
def test_command_lines_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in files(path).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command in commands(path):
        done = CliRunner().invoke(app, command[1:], catch_exceptions=False)
        assert done.exit_code == 0, f"{path.name}: {shlex.join(command)}\n{done.output}"


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if blocks(p, "python")], ids=lambda p: p.name)
def test_python_blocks_run_one_after_the_other(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "document"}
    for i, block in enumerate(blocks(path, "python")):
        source = tmp_path / f"block{i}.py"  # a file, so that errors and kernels have source lines
        source.write_text(block, encoding="utf-8")
        exec(compile(block, str(source), "exec"), namespace)
