"""Positions in a grid: who is whose neighbour, and the next step from one to another.

The same rules serve PEs in a CUBE, CUBEs in a SIP and SIPs in a system. Position i is at row i // columns, column
i % columns. North is one row less, east one column more.

An axis wraps round only where it has at least three positions: with two, the wrap would be a second link between the
same pair, and east and west of a position would be one neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NORTH, EAST, SOUTH, WEST = range(4)
_STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""(columns, rows) moved by one step north, east, south and west."""


@dataclass(frozen=True)
class Grid:
    """Positions and the links between them."""

    arrangement: str
    """row, ring, mesh, torus or fully_connected; or apart, where no links join the positions (in a GPU)."""
    columns: int
    """Positions from west to east."""
    rows: int = 1
    """Positions from north to south."""

    @property
    def count(self) -> int:
        """Number of positions."""
        return self.columns * self.rows

    @property
    def wraps(self) -> tuple[bool, bool]:
        """Whether (east-west, north-south) wraps round for channels."""
        return (
            self.columns >= 3 and self.arrangement in ("ring", "torus", "fully_connected"),
            self.rows >= 3 and self.arrangement == "torus",
        )

    @property
    def direct(self) -> bool:
        """Whether every position has a link to every other."""
        return self.arrangement == "fully_connected"

    def neighbours(self) -> NDArray[np.int32]:
        """Neighbour of each position to the north, east, south and west; -1 where there is none.

        Returns
        -------
        int32[count, 4]

        >>> Grid("ring", 4).neighbours()[3].tolist()
        [-1, 0, -1, 2]
        """
        row, column = np.divmod(np.arange(self.count), self.columns)
        found = np.full((self.count, 4), -1, np.int32)
        if self.arrangement == "apart":
            return found
        for side, (dx, dy) in enumerate(_STEPS):
            x, y = column + dx, row + dy
            if self.wraps[0]:
                x %= self.columns
            if self.wraps[1]:
                y %= self.rows
            inside = (x >= 0) & (x < self.columns) & (y >= 0) & (y < self.rows)
            found[inside, side] = (y * self.columns + x)[inside]
        return found

    def pairs(self) -> NDArray[np.int32]:
        """Ordered pairs of positions that a link joins, in order of sender, then north, east, south, west.

        Returns
        -------
        int32[n_links, 2]
        """
        if self.direct:
            a, b = np.nonzero(~np.eye(self.count, dtype=bool))
            return np.column_stack([a, b]).astype(np.int32)
        near = self.neighbours()
        sender, side = np.nonzero(near >= 0)
        return np.column_stack([sender, near[sender, side]]).astype(np.int32)

    def next_step(self) -> NDArray[np.int32]:
        """Position that follows on the way from a to b: along the row first, then along the column.

        Where an axis wraps the shorter way round is taken; a tie goes east or south. A position's own next step
        is itself.

        Returns
        -------
        int32[count, count]
            Indexed [from, to].

        >>> Grid("mesh", 2, 2).next_step()[0].tolist()
        [0, 1, 2, 1]
        """
        here = np.arange(self.count)
        if self.direct or self.arrangement == "apart":
            return np.broadcast_to(here, (self.count, self.count)).astype(np.int32)
        row, column = np.divmod(here, self.columns)
        x = _step(column[:, None], column[None, :], self.columns, self.wraps[0])
        y = _step(row[:, None], row[None, :], self.rows, self.wraps[1])
        turn = column[:, None] == column[None, :]
        following = np.where(turn, y * self.columns + column[:, None], row[:, None] * self.columns + x)
        return following.astype(np.int32)


def _step(start: NDArray[np.int64], end: NDArray[np.int64], size: int, wraps: bool) -> NDArray[np.int64]:
    """Coordinate after one step from ``start`` toward ``end`` on one axis."""
    if not wraps:
        return np.asarray(start + np.sign(end - start))
    ahead = (end - start) % size
    move = np.where(ahead == 0, 0, np.where(2 * ahead <= size, 1, -1))
    return np.asarray((start + move) % size)
