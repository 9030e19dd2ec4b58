"""The narrowest cut of each level of a machine into two halves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kernbench.errors import compress
from kernbench.lint.report import Bisection, Level
from kernbench.machine import Machine
from kernbench.machine.arrangement import Grid
from kernbench.machine.places import Place
from kernbench.simulate.costs import transfer_ps

Half = NDArray[np.bool_]
LEVELS: tuple[Level, ...] = ("SIP", "CUBE", "PE")
KEYS = ("system.sips", "sip.cubes", "cube.pes")
"""Where the levels stand in a machine file, outermost first."""
MOST_FOR_ALL_HALVES = 14
"""Positions of a fully connected level of which every cut into halves is tried: 1,716 of them."""


def bisections(machine: Machine) -> tuple[Bisection, ...]:
    """Return the narrowest cut of each level that links join, innermost first."""
    return tuple(_bisection(machine, level) for level in (2, 1, 0) if len(machine.grids[level].pairs()))


def halves(grid: Grid, uneven: bool) -> list[Half]:
    """Return the cuts of a grid into two parts that are tried, one array of positions each.

    A cut runs between columns, or between rows. Where that axis wraps the part is an arc, of which each place is
    tried if the links are ``uneven``. Only the cuts whose parts differ least in size are kept: those into halves, if
    there are any. Of a fully connected grid with uneven links every cut into halves is tried up to
    ``MOST_FOR_ALL_HALVES`` positions, and arcs of neighbouring numbers beyond.
    """
    if grid.direct and uneven and grid.count <= MOST_FOR_ALL_HALVES:
        return [np.isin(np.arange(grid.count), chosen) for chosen in combinations(range(grid.count), grid.count // 2)]
    found = [*_arcs(grid, uneven)]
    odd = [abs(2 * int(half.sum()) - grid.count) for half in found]
    return [half for half, difference in zip(found, odd, strict=True) if difference == min(odd)]


def _arcs(grid: Grid, uneven: bool) -> Iterator[Half]:
    row, column = np.divmod(np.arange(grid.count), grid.columns)
    for place, size, wraps in ((column, grid.columns, grid.wraps[0]), (row, grid.rows, grid.wraps[1])):
        if size < 2:
            continue
        for length in sorted({size // 2, size - size // 2}):
            for start in range(size if wraps and uneven else 1):
                yield (place - start) % size < length


def _bisection(machine: Machine, level: int) -> Bisection:
    grid, network = machine.grids[level], machine.network
    first, end = ((0, network.n_sip_links), (network.n_sip_links, network.n_shared), (network.n_shared, None))[level]
    pairs = grid.pairs()
    bandwidth = network.link_bandwidth[first:end].reshape(-1, len(pairs))
    narrowest: tuple[int, int, int, Half] | None = None
    for half in halves(grid, uneven=bool((bandwidth != bandwidth[0, 0]).any())):
        a, b = half[pairs[:, 0]], half[pairs[:, 1]]
        for inside, leaving in ((half, a & ~b), (~half, b & ~a)):
            sums = bandwidth[:, leaving].sum(axis=1)
            owner = int(sums.argmin())
            if narrowest is None or sums[owner] < narrowest[0]:
                narrowest = int(sums[owner]), owner, int(leaving.sum()), inside
    assert narrowest is not None  # a level with links has two positions
    least, owner, links, inside = narrowest
    behind = _memory_behind(machine, level, min(int(inside.sum()), int((~inside).sum())))
    return Bisection(
        level=LEVELS[level],
        key=KEYS[level],
        arrangement=grid.arrangement,
        positions=grid.count,
        where=_owner_name(machine, level, owner),
        cut=f"{compress(np.flatnonzero(inside).tolist())} | {compress(np.flatnonzero(~inside).tolist())}",
        links=links,
        bandwidth=least,
        scratch_ps=transfer_ps(machine.pe.scratch, least),
        memory_behind=behind,
        memory_ratio=None if behind is None else behind / least,
    )


def _owner_name(machine: Machine, level: int, owner: int) -> str:
    if level == 0:
        return "the system"
    return str(Place(owner) if level == 1 else Place(*divmod(owner, machine.cubes_per_sip)))


def _memory_behind(machine: Machine, level: int, positions: int) -> int | None:
    """Bytes/s of the memories in a part of so many positions; None where the positions of the level share one."""
    if level == 2 or (level == 1 and machine.memory_scope == "sip"):
        return None
    each = machine.memory.bandwidth * (machine.cubes_per_sip if machine.memory_scope == "cube" and level == 0 else 1)
    return each * positions
