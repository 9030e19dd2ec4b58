"""A user's checkout of rocke: where its parts lie, which commit it is, and a process that answers questions about it.

Whatever goes wrong in that process ends in one :class:`~kernbench.errors.InputError` that names the checkout.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from kernbench.errors import InputError

SECONDS = 120.0
"""Time limit of one request; importing the checkout is the first."""
WITHIN_REPOSITORY = Path("dnn-providers/hip-kernel-provider/rocke")
"""Where rocke lies in ``ROCm/rocm-libraries``."""
_PLATFORMS = ("python", "Python")
_WORKER = Path(__file__).with_name("worker.py")
_LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a checkout."""

    root: Path
    platform: Path
    """Directory of the package ``rocke``."""
    library: Path
    """Directory of the package ``kernels``."""
    commit: str | None
    """Git commit of both; None if the directory is not under git."""
    changed: bool
    """Whether files under git differ from that commit."""


def find_layout(path: Path) -> Layout:
    """Find the parts of a checkout, given its root or that of the repository it is part of.

    Raises
    ------
    InputError
        If a part is missing, or the parts are of unlike commits.
    """
    if not path.is_dir():
        raise InputError(f"{path}: no such directory; expected a checkout of rocke")
    root = path / WITHIN_REPOSITORY if (path / WITHIN_REPOSITORY).is_dir() else path
    names = [entry.name for entry in (root / "platform").iterdir()] if (root / "platform").is_dir() else []
    platform = next((root / "platform" / name for name in _PLATFORMS if name in names), None)
    if platform is None or not (platform / "rocke").is_dir():
        raise InputError(f"{root}: not a checkout of rocke: there is no platform/python/rocke")
    library = root / "library"
    if not (library / "kernels").is_dir():
        raise InputError(f"{root}: not a checkout of rocke: there is no library/kernels")
    commits = [_commit(part) for part in (platform, library)]
    if commits[0] != commits[1]:
        named = [commit or "no commit" for commit in commits]
        raise InputError(
            f"{root}: platform is of {named[0]} and library of {named[1]}: the two must be of the same commit"
        )
    changes = [_git(part, "status", "--porcelain", "--untracked-files=no", ".") for part in (platform, library)]
    return Layout(root, platform, library, commits[0], any(changes))


def _commit(directory: Path) -> str | None:
    """Return the commit of a directory; None if it merely lies within another repository."""
    tracked = _git(directory, "ls-files", "--error-unmatch", ".")
    return _git(directory, "rev-parse", "HEAD") if tracked else None


def _git(directory: Path, *command: str) -> str | None:
    """Return what git says of a directory; None if there is no git, or nothing under git."""
    try:
        done = subprocess.run(["git", "-C", directory, *command], capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


class Checkout:
    """A process that has a checkout imported; a context manager, which ends the process.

    Parameters
    ----------
    layout
        The checkout.
    flavour
        Dialect of LLVM IR that it is to write, such as ``llvm22``.
    seconds
        Time limit of one request.
    """

    def __init__(self, layout: Layout, flavour: str, seconds: float = SECONDS) -> None:
        self.layout, self._seconds, self._asked = layout, seconds, 0
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        # -I: neither the user's site packages nor PYTHONPATH mix in; -B: nothing is written into the checkout.
        parts = [str(part.resolve()) for part in (layout.platform, layout.library)]
        command = [sys.executable, "-I", "-B", str(_WORKER), *parts, flavour]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, text=True, encoding="utf-8",
            errors="replace",
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a request that the process did not live to read
                stream.close()

    def ask(self, do: str, about: str, **arguments: Any) -> Any:
        """Put one request and return its answer.

        Parameters
        ----------
        do
            ``load``, ``describe`` or ``lower``; see :mod:`kernbench.realrun.rocke.worker`.
        about
            What is asked about, for messages.
        arguments
            The rest of the request.

        Raises
        ------
        InputError
            If the process ends, is too slow, answers what is no answer, or reports an error.
        """
        self._asked += 1
        request = json.dumps({"id": self._asked, "do": do, **arguments})
        place = f"{self.layout.root}: {about}"
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer will be missing
            print(request, file=self._process.stdin, flush=True)
        try:
            line = self._lines.get(timeout=self._seconds)
        except queue.Empty:
            raise InputError(f"{place}: no answer within {self._seconds:g} s{self._last_words()}") from None
        if not line:
            code = self._process.wait()
            how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
            raise InputError(f"{place}: the process that imports the checkout was {how}{self._last_words()}")
        try:
            reply = json.loads(line)
            number = reply["id"]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{place}: the process answered what is no answer: {line[:80]!r}") from None
        if number != self._asked or not ("answer" in reply or "error" in reply):
            raise InputError(f"{place}: the process answered another question: {line[:80]!r}")
        if "error" in reply:
            raise InputError(f"{place}: {reply['error']}")
        return reply["answer"]

    def _last_words(self) -> str:
        """Return the end of what the process wrote to stderr."""
        self._words.seek(0)
        lines = [line.strip() for line in self._words.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f"; it last wrote: {' | '.join(lines[-_LAST_LINES:])}" if lines else ""
