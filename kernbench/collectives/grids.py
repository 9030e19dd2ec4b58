"""Where the programs of a level stand: rows and columns of neighbours, which is all that channels know of."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernbench.dtypes import DType
from kernbench.errors import KernelError, nearest
from kernbench.tl import LaneInt, Language, Tile

Partial = tuple[Tile, ...]
"""Tiles that are passed on together."""
Combine = Callable[[Partial, Partial], Partial]
"""Function of two partial results that returns their combination; it must not mind the order."""


class Like(NamedTuple):
    """What a tile that is still to come will be: stands for it where only that is asked for."""

    shape: tuple[int, ...]
    dtype: DType | str


LEVELS = {"pe": (0, "intra_"), "cube": (1, ""), "sip": (2, "sip_")}
"""Levels from the inside out: the axis of ``tl.program_id`` and the prefix of the channel directions."""


@dataclass(frozen=True)
class Line:
    """A row or a column of programs, as the program that asks sees it."""

    index: LaneInt
    """Place of this program on the line, 0 being the western or northern end."""
    count: int
    back: str
    """Direction toward index 0."""
    ahead: str
    """Direction away from it."""


@dataclass(frozen=True)
class Grid:
    """The programs of one level."""

    axis: int
    """Of ``tl.program_id``."""
    prefix: str
    """Of the channel directions."""
    columns: int
    rows: int

    @property
    def count(self) -> int:
        """Number of programs."""
        return self.columns * self.rows

    def lines(self, tl: Language) -> tuple[Line, Line]:
        """Return the row and the column on which this program stands."""
        row, column = divmod(tl.program_id(self.axis), self.columns)
        east_west = Line(column, self.columns, self.prefix + "W", self.prefix + "E")
        return east_west, Line(row, self.rows, self.prefix + "N", self.prefix + "S")


def grid_of(level: str, tl: Language) -> Grid:
    """Return the programs of a level; raise KernelError if they do not fill their last row."""
    axis, prefix = LEVELS[level]
    n = tl.num_programs(axis)
    columns = min(tl.columns(axis), n)
    if n % columns:
        raise tl.error(
            KernelError,
            f"collectives need whole rows, but {n} programs in rows of {columns} take part at level {level!r}: "
            "record with another grid",
        )
    return Grid(axis, prefix, columns, n // columns)


def inside_out(levels: Collection[str], tl: Language) -> list[str]:
    """Return the levels from the innermost to the outermost."""
    for level in levels:
        if level not in LEVELS:
            raise tl.error(KernelError, f"unknown level {level!r}{nearest(str(level), LEVELS)}")
    return [level for level in LEVELS if level in levels]


def programs_over(levels: Collection[str], *, tl: Language) -> int:
    """Number of programs over some levels."""
    return math.prod(tl.num_programs(LEVELS[level][0]) for level in inside_out(levels, tl))


def rank_over(levels: Collection[str], instead: Mapping[str, int] | None = None, *, tl: Language) -> Any:
    """Place of this program among those over some levels, the outermost level the slowest: its part of ``kb.split``.

    ``instead`` gives indices to take at some levels in place of this program's own.
    """
    rank: Any = 0
    for level in reversed(inside_out(levels, tl)):
        axis = LEVELS[level][0]
        own = tl.program_id(axis) if instead is None or level not in instead else instead[level]
        rank = rank * tl.num_programs(axis) + own
    return rank


def is_first(levels: Collection[str], tl: Language) -> bool:
    """Whether this program has index 0 at each of the levels. Programs that differ in this part ways."""
    return all(tl.program_id(LEVELS[level][0]) == 0 for level in levels)


def look_up(table: np.ndarray, index: LaneInt) -> LaneInt:
    """Return ``table[index]`` on each PE."""
    return LaneInt(index.group, index.group.combine(np.take, table, index.values))


def receive(source: str, like: Tile | Like, tl: Language) -> Tile:
    """Receive a tile of the shape and format of ``like``."""
    return tl.recv(dir=source, shape=like.shape, dtype=like.dtype)


def forward(source: str, toward: str, like: Sequence[Tile | Like], tl: Language) -> None:
    """Pass on tiles that are meant for others, holding two at a time."""
    for tile in like:
        with tl.scratch_scope(buffers=2):
            tl.send(dir=toward, src=receive(source, tile, tl))


def exchange(
    sent: Sequence[tuple[str, Sequence[Tile]]], received: Sequence[tuple[str, Sequence[Tile]]], tl: Language
) -> list[list[Tile]]:
    """Send and receive tile by tile in turn, so that no channel has to hold more than one message.

    Parameters
    ----------
    sent
        Direction and tiles, for each neighbour that is sent to.
    received
        Direction and tiles of the same shapes, for each neighbour that is heard from.
    """
    got: list[list[Tile]] = [[] for _ in received]
    longest: Any = max((len(tiles) for _, tiles in (*sent, *received)), default=0)
    for k in range(longest):
        for toward, tiles in sent:
            if k < len(tiles):
                tl.send(dir=toward, src=tiles[k])
        for mine, (source, like) in zip(got, received, strict=True):
            if k < len(like):
                mine.append(receive(source, like[k], tl))
    return got
