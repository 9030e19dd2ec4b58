"""Source lines of the kernel: found from the running frame, named in errors, reports and timelines."""

from __future__ import annotations

import linecache
import os
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import numpy as np

from kernbench.record.trace import SourceLine

_PACKAGE = Path(__file__).parent.parent
_PYTHON = sysconfig.get_paths()


def _folders(*paths: str | Path) -> tuple[str, ...]:
    return tuple(os.path.join(path, "") for path in paths)


_LIBRARIES = _folders(_PACKAGE, _PYTHON["stdlib"], Path(np.__file__).parent)
_USERS = _folders(_PACKAGE / "_benches", _PYTHON["purelib"], _PYTHON["platlib"])
"""Folders that may lie inside those, with code that uses kernbench."""


def is_library(file: str) -> bool:
    """Whether a source file is kernbench's own, or a library's that runs between the kernel and kernbench."""
    inside = max((p for p in _LIBRARIES if file.startswith(p)), key=len, default="")
    return bool(inside) and not any(file.startswith(p) and len(p) > len(inside) for p in _USERS)


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
        file = traceback.tb_frame.f_code.co_filename
        if not is_library(file):
            found = (file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return source_line(*found) if found else None


class LineTable:
    """Source lines by number, each file and line once."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, int], int] = {}
        self._is_library: dict[str, bool] = {}
        self._of_instruction: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}
        """Keeps the code objects alive whose ids are in ``_of_instruction``."""
        self._lines: list[SourceLine] = []

    def find(self, frame: FrameType | None) -> int:
        """Return the index of the innermost line of the kernel's own source at or above ``frame``."""
        known = self._is_library
        while frame is not None:
            code = frame.f_code
            is_inside = known.get(code.co_filename)
            if is_inside is None:
                is_inside = known[code.co_filename] = is_library(code.co_filename)
            if not is_inside:
                return self._at(frame, code)
            frame = frame.f_back
        return self._number("?", 0)

    def _at(self, frame: FrameType, code: CodeType) -> int:
        instruction = (id(code), frame.f_lasti)  # asking Python for the line's number takes longer than this
        index = self._of_instruction.get(instruction)
        if index is None:
            self._codes[id(code)] = code
            index = self._of_instruction[instruction] = self._number(code.co_filename, frame.f_lineno)
        return index

    def _number(self, file: str, number: int) -> int:
        index = self._index.get((file, number))
        if index is None:
            index = self._index[file, number] = len(self._lines)
            self._lines.append(source_line(file, number))
        return index

    def __getitem__(self, index: int) -> SourceLine:
        return self._lines[index]

    def all(self) -> tuple[SourceLine, ...]:
        """Every line met so far."""
        return tuple(self._lines)
