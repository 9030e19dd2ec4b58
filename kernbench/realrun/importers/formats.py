"""Telling a profile's format from its content (never from its name), and reading it as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernbench.errors import InputError

SQLITE_MAGIC = b"SQLite format 3\0"

Kind = Literal["trace", "counters", "agents", "v1"]

_AXES = tuple(f"{what}_Size_{axis}" for what in ("Workgroup", "Grid") for axis in "XYZ")
_TRACE = ("Agent_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp", *_AXES)


@dataclass(frozen=True)
class Format:
    """A kind of CSV file: the columns that it must have. Case does not matter; generations differ in it."""

    name: str
    kind: Kind
    columns: tuple[str, ...]


FORMATS = (
    # The most particular first: the first of which all columns are there is taken.
    Format("rocprofv3 kernel trace, converted from rocpd", "trace", ("Guid", *_TRACE, "Lds_Block_Size")),
    Format("rocprofv3 kernel trace", "trace", (*_TRACE, "LDS_Block_Size", "VGPR_Count")),
    Format("rocprofv3 kernel trace of ROCm 6.2 to 6.4", "trace", (*_TRACE, "Group_Segment_Size")),
    Format(
        "rocprofv3 counter collection",
        "counters",
        ("Dispatch_Id", "Agent_Id", "Grid_Size", "Kernel_Name", "Workgroup_Size", "Counter_Name", "Counter_Value"),
    ),
    Format("rocprofv3 agent info", "agents", ("Node_Id", "Agent_Type", "Num_Xcc", "Wave_Front_Size", "Name")),
    Format("rocprof v1", "v1", ("Index", "KernelName", "gpu-id", "grd", "wgr", "lds", "scr")),
)


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    where: str
    """File and line, for messages."""
    index: dict[str, int]
    """Column in lower case -> place."""
    fields: list[str]

    def __getitem__(self, column: str) -> str:
        return self.fields[self.index[column.lower()]]

    def get(self, column: str) -> str:
        """Return a field, or an empty string if there is no such column."""
        place = self.index.get(column.lower())
        return "" if place is None else self.fields[place]


@dataclass(frozen=True)
class Table:
    """A CSV file of a known format."""

    path: Path
    format: Format
    header: tuple[str, ...]
    rows: Iterator[Row]
    """Read as they are asked for, once: traces have millions of lines. Damage is found on the way."""
    warnings: tuple[str, ...] = ()

    def has(self, column: str) -> bool:
        """Whether there is such a column, in whatever case."""
        return column.lower() in (name.lower() for name in self.header)


def read_bytes(path: Path) -> bytes:
    """Read a file.

    Raises
    ------
    InputError
        If it cannot be read, or is empty.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    if not content.strip():
        raise InputError(f"{path}: is empty; the profiler wrote nothing")
    return content


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as SQLite databases do.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None


def read_table(path: Path) -> Table:
    """Read a CSV file of a known format; the rows raise as this does.

    Raises
    ------
    InputError
        If the file is empty, cut off, no text, no CSV or of no known format; names the line, and the columns that
        the nearest format has and the file lacks.
    """
    text = _text(path, read_bytes(path))
    _check_delimiter(path, text.lstrip().split("\n", 1)[0].strip())
    lines = _lines(path, text)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: is empty; the profiler wrote nothing")
    header = tuple(field.strip() for field in first[1])
    kind = recognise(path, header)
    rows = _rows(path, header, kind, lines)
    cut = not text.endswith(("\n", "\r"))
    warnings = (f"{path}: does not end with a newline; its last line may be cut off",) if cut else ()
    return Table(path, kind, header, rows, warnings)


def recognise(path: Path, header: tuple[str, ...]) -> Format:
    """Tell the format from a header.

    Raises
    ------
    InputError
        If it is of no known format, or names a column twice.
    """
    folded = [column.lower() for column in header]
    for i, column in enumerate(folded):
        if column in folded[:i]:
            raise InputError(f"{path}, line 1: the column {header[i]!r} is there twice")
    found = set(folded)
    for known in FORMATS:
        if all(column.lower() in found for column in known.columns):
            return known
    raise InputError(_unknown(path, header, found))


def _unknown(path: Path, header: tuple[str, ...], found: set[str]) -> str:
    def lacks(known: Format) -> list[str]:
        return [column for column in known.columns if column.lower() not in found]

    near = min(FORMATS, key=lambda known: len(lacks(known)) / len(known.columns))
    shown = ", ".join(column[:40] for column in header[:40]) + (", ..." if len(header) > 40 else "")
    if len(lacks(near)) == len(near.columns):
        names = "; ".join(known.name for known in FORMATS)
        return f"{path}: is of no known format. Its columns: {shown}. Known: {names}; rocpd"
    return (
        f"{path}: is of no known format. Its columns: {shown}. The nearest is {near.name}, "
        f"of which it lacks {', '.join(lacks(near))}"
    )


def _check_delimiter(path: Path, line: str) -> None:
    # Before the CSV reader, which would complain of the quotes.
    if line.startswith(("{", "[")):
        raise InputError(f"{path}: is JSON; kernbench reads CSV (--output-format csv) and rocpd")
    for delimiter, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if delimiter in line and "," not in line:
            raise InputError(f"{path}, line 1: its columns are separated by {name}; a profiler's CSV has commas")


def _text(path: Path, content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: is UTF-16, as a spreadsheet saves it; take the profiler's own file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: is not text in UTF-8") from None


def _lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            if fields:  # rocprofv2 leaves a line empty below its header
                yield reader.line_num, fields
    except csv.Error as error:
        problem = "a quoted field does not end; the file is cut off" if "unexpected end" in str(error) else str(error)
        raise InputError(f"{path}, line {reader.line_num}: is not CSV: {problem}") from None


def _rows(path: Path, header: tuple[str, ...], kind: Format, lines: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    folded = [column.lower() for column in header]
    index = {column: place for place, column in enumerate(folded)}
    number = 0
    for number, raw in lines:
        where = f"{path}, line {number}"
        fields = [field.strip() for field in raw]
        if [field.lower() for field in fields] == folded:
            raise InputError(f"{where}: the header is there again; give the files that were joined one by one")
        if len(fields) < len(header):
            raise InputError(f"{where}: has {len(fields)} of {len(header)} columns; the file is cut off")
        if len(fields) > len(header):
            raise InputError(
                f"{where}: has {len(fields)} columns and the header has {len(header)}; "
                "a kernel's name that holds commas needs quotes"
            )
        yield Row(where, index, fields)
    if not number:
        raise InputError(f"{path}: has a header ({kind.name}) and no lines below it; nothing was profiled")
