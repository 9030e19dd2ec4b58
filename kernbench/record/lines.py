"""Source lines of the kernel: found from the running frame, named in errors, reports and timelines."""

from __future__ import annotations

import linecache
import os
from pathlib import Path
from types import FrameType, TracebackType

from kernbench.record.trace import SourceLine

_OWN_PACKAGE = __name__.partition(".")[0]


def is_own(frame: FrameType) -> bool:
    """Whether the frame runs kernbench's own code (or a library's that kernbench calls), not the user's."""
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] in (_OWN_PACKAGE, "contextlib")


def source_line(file: str, number: int) -> SourceLine:
    """Return the line with a file name short enough to read: relative to the working directory if below it."""
    try:
        shown = os.path.relpath(file)
    except ValueError:
        shown = file
    if shown.startswith(".."):
        shown = Path(file).name
    return SourceLine(shown, number, linecache.getline(file, number).strip())


def line_of_failure(traceback: TracebackType | None) -> SourceLine | None:
    """Return the innermost line of the user's own code in a traceback."""
    found = None
    while traceback is not None:
        if not is_own(traceback.tb_frame):
            found = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return source_line(*found) if found else None


class LineTable:
    """Source lines by number, each file and line once."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, int], int] = {}
        self._own: dict[str, bool] = {}
        self._lines: list[SourceLine] = []

    def find(self, frame: FrameType | None) -> int:
        """Return the index of the innermost line of the kernel's own source at or above ``frame``."""
        own = self._own
        while frame is not None:
            file = frame.f_code.co_filename
            known = own.get(file)
            if known is None:
                known = own[file] = is_own(frame)
            if not known:
                break
            frame = frame.f_back
        key = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("?", 0)
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self._lines)
            self._lines.append(source_line(*key))
        return index

    def __getitem__(self, index: int) -> SourceLine:
        return self._lines[index]

    def all(self) -> tuple[SourceLine, ...]:
        """Every line met so far."""
        return tuple(self._lines)
