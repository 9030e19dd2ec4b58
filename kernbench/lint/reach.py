"""Directions in which PEs have no channel, and why."""

from __future__ import annotations

import numpy as np

from kernbench.lint.report import MissingDirection
from kernbench.machine import DIRECTIONS, Machine
from kernbench.machine.arrangement import Grid

_LEVELS = ((2, "PEs of a CUBE"), (1, "CUBEs of a SIP"), (0, "SIPs"))
"""Level of directions 0-3, 4-7 and 8-11, and what it places."""


def missing_directions(machine: Machine) -> tuple[MissingDirection, ...]:
    """Return each direction that some PE lacks, in the order of ``DIRECTIONS``; none where PEs hold workgroups."""
    if machine.holds_workgroups:
        return ()
    found = []
    for number, direction in enumerate(DIRECTIONS):
        lacking = np.flatnonzero(machine.network.peer[:, number] < 0)
        if len(lacking):
            level, things = _LEVELS[number // 4]
            nowhere = len(lacking) == machine.n_pes
            found.append(
                MissingDirection(
                    direction=direction,
                    nowhere=nowhere,
                    pes="all PEs" if nowhere else machine.describe_pes(lacking),
                    why=_why(machine.grids[level], things, axis=(number + 1) % 2),
                )
            )
    return tuple(found)


def should_wrap(grid: Grid, axis: int) -> bool:
    """Whether the arrangement promises a wrap on axis 0 (east-west) or 1 (north-south)."""
    return grid.arrangement == "torus" or (axis == 0 and grid.arrangement in ("ring", "fully_connected"))


def _why(grid: Grid, things: str, axis: int) -> str:
    size, lines = (grid.columns, "column") if axis == 0 else (grid.rows, "row")
    if size == 1:
        return f"the {things} have one {lines}"
    if should_wrap(grid, axis) and not grid.wraps[axis]:
        return f"{size} {lines}s do not wrap round: that takes three"
    return f"the {things} end there: a {grid.arrangement} does not wrap round"
