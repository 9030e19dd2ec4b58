"""Tables that are sorted and filtered in the page: columns and rows as plain data, which the page's script shows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Column:
    """A column of such a table."""

    name: str
    is_number: bool
    on_paper: bool = True
    """Whether it is printed, too: paper has less room than a screen."""


@dataclass(frozen=True)
class Points:
    """A table of points; a cell is a number, text, true, false, or None where there is nothing."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """Return the table as the page's script reads it."""
        return {"columns": [vars(column) for column in self.columns], "rows": [list(row) for row in self.rows]}


def points_of(names: Sequence[str], rows: Sequence[Sequence[Any]], screen_only: Collection[str] = ()) -> Points:
    """Return a table; a column is of numbers if everything in it is one, or nothing.

    ``screen_only`` names the columns that are left out on paper.
    """
    columns = []
    for i, name in enumerate(names):
        cells = [row[i] for row in rows if row[i] is not None]
        is_number = bool(cells) and all(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in cells)
        columns.append(Column(name, is_number, name not in screen_only))
    return Points(tuple(columns), tuple(tuple(row) for row in rows))
