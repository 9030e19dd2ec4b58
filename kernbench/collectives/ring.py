"""Rings of programs over channels that lead to neighbours only.

A level whose grid has a closed walk through all its programs is a ring as it is: a grid with an even number of rows or
columns, a row or column that wraps round, or two programs. Anything else is walked through end to end and folded: first
the programs at even places, then back those at odd ones, so that each message goes two hops and every link carries one
message a step in each direction. Ring order is not index order: use :attr:`Ring.rank` and :meth:`Ring.ahead`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kernbench.collectives.grids import (
    LEVELS,
    Like,
    Partial,
    forward,
    grid_of,
    inside_out,
    look_up,
    programs_over,
    receive,
)
from kernbench.errors import KernelError
from kernbench.tl import LaneInt, Language, Tile


class Role(NamedTuple):
    """What a program does in one step. Directions are N, E, S or W."""

    to: str
    """Where its own message goes."""
    via: tuple[str, str] | None
    """Where a message for another program comes from and goes on to; None: there is none."""
    source: str
    """Where the message for itself comes from."""


@dataclass(frozen=True, eq=False)
class Route:
    """A ring through all positions of a grid."""

    order: np.ndarray
    """int64[rank]: position of each place in the ring."""
    rank: np.ndarray
    """int64[position]: place in the ring of each position."""
    roles: tuple[Role, ...]
    """What programs do; few differ."""
    role: np.ndarray
    """int64[position]: index into :attr:`roles`."""

    @property
    def messages(self) -> int:
        """Messages of one step: one a program, and one more for each that forwards."""
        return sum(1 if self.roles[r].via is None else 2 for r in self.role)


class Ring:
    """The ring over one level, as this program sees it."""

    def __init__(self, level: str, tl: Language) -> None:
        grid = grid_of(level, tl)
        self._tl = tl
        self._route = route_of(grid.columns, grid.rows, tl.wraps(grid.axis))
        self._index = tl.program_id(grid.axis)
        self._prefix = grid.prefix
        self.count = grid.count
        """Programs in the ring."""

    @property
    def rank(self) -> LaneInt:
        """Place of this program in the ring."""
        return look_up(self._route.rank, self._index)

    def ahead(self, steps: int) -> LaneInt:
        """Index at the level (as of ``tl.program_id``) of the program ``steps`` places further on; may be negative."""
        return look_up(_ahead(self._route, steps % self.count), self._index)

    def shift(self, tiles: Partial) -> Partial:
        """Send tiles to the next program and return those of the one before, tile by tile."""
        return tuple(tile for mine in tiles for tile in self._shift_one(mine))

    def post(self, tiles: Partial) -> None:
        """Send tiles to the next program, which takes them with :meth:`take`, later.

        What is done in between overlaps with the transfer. The channel must hold all the tiles: ``pe.channel.depth``.
        """
        for tile in tiles:
            self._tl.send(dir=self._prefix + self._role().to, src=tile)

    def take(self, like: Sequence[Tile | Like]) -> Partial:
        """Receive what the program before has posted: as many tiles, of the shapes and formats of ``like``."""
        role = self._role()
        taken = []
        for tile in like:
            if role.via is not None:
                forward(self._prefix + role.via[0], self._prefix + role.via[1], (tile,), self._tl)
            taken.append(receive(self._prefix + role.source, tile, self._tl))
        return tuple(taken)

    def _shift_one(self, tile: Tile) -> Partial:
        self.post((tile,))
        return self.take((tile,))

    def _role(self) -> Role:
        """Programs whose directions differ part ways here."""
        return self._route.roles[int(look_up(self._route.role, self._index))]


class Rings:
    """A way past all programs over several levels: round the innermost ring, one step on the next, and so on.

    What every program sends at each of the ``count - 1`` steps comes past every program once.
    """

    def __init__(self, levels: Collection[str], tl: Language) -> None:
        self._tl = tl
        self._levels = inside_out(levels, tl)
        self._rings = {level: Ring(level, tl) for level in self._levels if grid_of(level, tl).count > 1}
        self._shifts = dict.fromkeys(self._rings, 0)
        self._taking: Ring | None = None
        self.count = programs_over(levels, tl=tl)
        """Programs over the levels."""

    @property
    def owner(self) -> Any:
        """Rank, as of :func:`~kernbench.collectives.rank_over`, of the program whose tiles this one holds."""
        places = {level: ring.ahead(-self._shifts[level]) for level, ring in self._rings.items()}
        rank: Any = 0
        for level in reversed(self._levels):
            rank = rank * self._tl.num_programs(LEVELS[level][0]) + places.get(level, 0)
        return rank

    def post(self, tiles: Partial) -> None:
        """Send tiles on, as :meth:`Ring.post`; from now on this program counts as holding the next ones."""
        self._taking = self._go_on()
        self._taking.post(tiles)

    def take(self, like: Sequence[Tile | Like]) -> Partial:
        """Receive the next tiles, as :meth:`Ring.take`."""
        assert self._taking is not None, "post before you take"
        return self._taking.take(like)

    def shift(self, tiles: Partial) -> Partial:
        """Send tiles on and return the next ones, as :meth:`Ring.shift`."""
        return self._go_on().shift(tiles)

    def _go_on(self) -> Ring:
        step = sum(self._shifts.values()) + 1
        stride = 1
        for level, ring in self._rings.items():
            stride *= ring.count
            if step % stride:
                self._shifts[level] += 1
                return ring
        raise self._tl.error(KernelError, f"after {self.count - 1} steps every tile has been at every program")


@lru_cache(maxsize=64)
def route_of(columns: int, rows: int, wraps: tuple[bool, bool] = (False, False)) -> Route:
    """Find a ring through a grid of at least two positions; ``wraps`` says whether rows and columns wrap round.

    >>> route_of(4, 2).order.tolist()
    [0, 1, 2, 3, 7, 6, 5, 4]
    >>> route_of(5, 1).order.tolist()
    [0, 2, 4, 3, 1]
    """
    walk = _closed_walk(columns, rows, wraps)
    if walk is None:
        walk = _snake(columns, rows)
        order, roles = _fold(walk), _folded_roles(walk, columns)
    else:
        order, roles = walk, _closed_roles(walk, columns)
    known = tuple(dict.fromkeys(roles[p] for p in range(len(walk))))
    role = np.array([known.index(roles[p]) for p in range(len(walk))])
    return Route(np.array(order), np.argsort(order), known, role)


@lru_cache(maxsize=4096)
def _ahead(route: Route, steps: int) -> np.ndarray:
    return np.asarray(np.roll(route.order, -steps)[route.rank])


def _snake(columns: int, rows: int) -> list[int]:
    """Walk through the rows, every second one from east to west."""
    return [r * columns + (columns - 1 - c if r % 2 else c) for r in range(rows) for c in range(columns)]


def _closed_walk(columns: int, rows: int, wraps: tuple[bool, bool]) -> list[int] | None:
    """Return positions of which each is a neighbour of the next and the last of the first; None if there are none."""
    straight = list(range(columns * rows))
    if len(straight) <= 2 or (rows == 1 and wraps[0]) or (columns == 1 and wraps[1]):
        return straight
    if min(columns, rows) == 1:
        return None
    if rows % 2 == 0:  # through all columns but the first, and back along it
        inner = [p + p // (columns - 1) + 1 for p in _snake(columns - 1, rows)]
        return [0, *inner, *(r * columns for r in range(rows - 1, 0, -1))]
    if columns % 2 == 0:
        turned = _closed_walk(rows, columns, (False, False))
        assert turned is not None
        return [p % rows * columns + p // rows for p in turned]
    return None


def _closed_roles(walk: list[int], columns: int) -> dict[int, Role]:
    roles = {}
    for i, position in enumerate(walk):
        before, after = walk[i - 1], walk[(i + 1) % len(walk)]
        to, source = (_direction(position, other, columns) for other in (after, before))
        roles[position] = Role(to, None, source)
    return roles


def _direction(start: int, end: int, columns: int) -> str:
    """Direction of a neighbour; a jump over a whole row or column is a step round its wrap."""
    dy, dx = end // columns - start // columns, end % columns - start % columns
    if dx:
        return "E" if dx == 1 or dx < -1 else "W"
    return "S" if dy == 1 or dy < -1 else "N"


def _fold(walk: list[int]) -> list[int]:
    """Order in which a folded walk visits its positions: the even places, then back the odd ones."""
    return walk[::2] + walk[1::2][::-1]


def _folded_roles(walk: list[int], columns: int) -> dict[int, Role]:
    n = len(walk)
    roles = {}
    for i, position in enumerate(walk):
        ahead = _direction(position, walk[i + 1], columns) if i + 1 < n else ""
        back = _direction(position, walk[i - 1], columns) if i else ""
        onward, behind = (ahead, back) if i % 2 == 0 else (back, ahead)  # even places pass messages up, odd ones down
        via = (ahead, back) if i % 2 == 0 else (back, ahead)
        roles[position] = Role(onward or behind, via if ahead and back else None, behind or onward)
    return roles
