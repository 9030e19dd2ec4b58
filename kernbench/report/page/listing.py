"""Kernel sources with the share of the makespan that the critical path spends on each line."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernbench.report.compare import split_line


@dataclass(frozen=True)
class Line:
    """A line of a listing."""

    number: int
    text: str
    share: float
    """Of the makespan; 0 if the path does not touch it."""
    ps: int


@dataclass(frozen=True)
class Listing:
    """The functions of one file that the critical path goes through."""

    file: str
    blocks: tuple[tuple[Line, ...], ...]
    """Functions in the order of the file."""
    note: str
    """Why there are only the lines on the path, if so; else empty."""


def listings(shares: Mapping[str, float], times: Mapping[str, int], kernel_file: Path | None) -> list[Listing]:
    """Return the source that the critical path goes through, the file with the largest share first.

    Parameters
    ----------
    shares
        Source line (``file:number: text``) → share of the makespan.
    times
        The same in picoseconds.
    kernel_file
        Where the bench's kernels stand: results name files relative to the folder they were made in.
    """
    files: dict[str, list[Line]] = {}
    for name, share in shares.items():
        file, number, text = split_line(name)
        files.setdefault(file, []).append(Line(number, text, share, times[name]))
    ordered = sorted(files.items(), key=lambda item: (-sum(line.share for line in item[1]), item[0]))
    return [_listing(file, sorted(lines, key=lambda line: line.number), kernel_file) for file, lines in ordered]


def _listing(file: str, lines: Sequence[Line], kernel_file: Path | None) -> Listing:
    source = _source(file, lines, kernel_file)
    if source is None:
        return Listing(file, (tuple(lines),), "The file is not here as it was; these are its lines on the path.")
    text = source.splitlines()
    on_path = {line.number: line for line in lines}
    blocks = tuple(
        tuple((on_path.get(n) and _with_text(on_path[n], text[n - 1])) or Line(n, text[n - 1], 0.0, 0) for n in block)
        for block in _blocks(source, sorted(on_path))
    )
    return Listing(file, blocks, "")


def _with_text(line: Line, text: str) -> Line:
    return Line(line.number, text, line.share, line.ps)


def _source(file: str, lines: Sequence[Line], kernel_file: Path | None) -> str | None:
    """Return the text of a file if its lines are still those of the result."""
    places = [Path(file)]
    if kernel_file is not None:
        places.append(kernel_file.with_name(Path(file).name))
    for place in places:
        try:
            source = place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        text = source.splitlines()
        if all(0 < line.number <= len(text) and text[line.number - 1].strip() == line.text for line in lines):
            return source
    return None


def _blocks(source: str, numbers: Sequence[int]) -> list[range]:
    """Return the line numbers of each top-level statement that has one of these lines; decorators belong to it."""
    blocks = []
    for node in ast.parse(source).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        block = range(first, (node.end_lineno or node.lineno) + 1)
        if any(n in block for n in numbers):
            blocks.append(block)
    return blocks
