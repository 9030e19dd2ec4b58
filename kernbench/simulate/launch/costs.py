"""What a command of a workgroup costs: exact fractions of a picosecond, rounded up once a step.

The formulas are those of :mod:`kernbench.simulate.costs`, with what only a launch knows: the share of the rate that the
matrix products of a kernel reach, the kernel's own matrix instruction, the cost of widening stored formats, and what a
compiler does for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from kernbench.dtypes import DTYPES
from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.record.trace import Command, Ref, TileInfo
from kernbench.simulate.costs import PS, exactly, rate_of
from kernbench.simulate.launch.steps import Engines
from kernbench.specs.implementation import Implementation

FREE = frozenset({"copy", "broadcast", "trans", "arange", "fill"})
"""Vector operations that cost a workgroup nothing: registers are renamed and repeated, tiles in scratch are read along
either axis, constants are operands."""

NOTHING = Fraction(0)


class Costs:
    """Costs of one launch's commands on one machine."""

    def __init__(self, machine: Machine, implementation: Implementation) -> None:
        self.matrix, self.vector, self.clock = machine.pe.matrix, machine.pe.vector, machine.pe.clock
        tile = self.matrix.tile
        self.tile = implementation.instruction_tile or (tile.m, tile.n, tile.k)
        share = exactly(self.matrix.achievable)
        if implementation.instruction is not None:
            share *= exactly(self.matrix.instructions.get(implementation.instruction, 1))
        self.share = Fraction(share)
        self.engines = (Engines.MATRIX, Engines.VECTOR) if implementation.overlap else (Engines.BOTH, Engines.BOTH)
        """Engines that a product and a vector operation hold: both, unless the kernel lets them overlap."""
        self._known: dict[tuple[object, ...], Fraction] = {}
        self._sums: dict[tuple[int, ...], int] = {}

    def ps(self, command: Command, tiles: tuple[TileInfo, ...]) -> Fraction:
        """Return the picoseconds of a product or a vector operation."""
        key: tuple[object, ...]
        if command.op == "dot":
            factors = tuple(_format(source, tiles) for source in command.srcs[:2])
            key = ("dot", command.work, factors)
            if key not in self._known:
                self._known[key] = self._product(command.work, factors)
        elif command.op == "vector":
            source = _format(command.srcs[0], tiles) if command.name == "cast" else ""
            key = (command.name, command.work, source)
            if key not in self._known:
                self._known[key] = self._elementwise(command.name, command.work, source)
        else:
            raise InputError(
                f"{command.op} has no cost in a workgroup: kernels of a grid use dot and vector operations"
            )
        return self._known[key]

    def loaded(self, command: Command) -> Fraction:
        """Return what the vector engine does for each element of a load: addresses and copies."""
        per_element = self.vector.cost.get("load", 0)
        if not per_element or command.access is None:
            return NOTHING
        elements = command.nbytes // DTYPES[command.access.dtype].nbytes
        key = ("load", elements)
        if key not in self._known:
            self._known[key] = self._cycles(elements, exactly(per_element))
        return self._known[key]

    def together(self, costs: Sequence[Fraction]) -> int:
        """Return the sum of costs that this object gave, rounded up to a whole picosecond.

        Loops ask for the same sums again and again, and adding fractions is slow.
        """
        key = tuple(map(id, costs))  # this object keeps them alive, so that their ids stay theirs
        if key not in self._sums:
            self._sums[key] = math.ceil(sum(costs, Fraction(0)))
        return self._sums[key]

    def _product(self, work: tuple[int, ...], factors: tuple[str, ...]) -> Fraction:
        batch, *extents = work[:4]
        padded = math.prod(-(-extent // tile) * tile for extent, tile in zip(extents, self.tile, strict=True))
        rate = min(rate_of(self.matrix, name) for name in factors)
        return self.matrix.startup + 2 * batch * padded * PS / (rate * self.share)

    def _elementwise(self, name: str, work: tuple[int, ...], source: str) -> Fraction:
        if name in FREE:
            return NOTHING
        elements, passes = (*work, 1)[:2]
        cost = self.vector.cost.get(name, self.vector.cost["default"])
        if name == "cast":
            cost = self.vector.convert.get(source, cost)
        return self.vector.startup + passes * self._cycles(elements, exactly(cost))

    def _cycles(self, elements: int, cost: int | Fraction) -> Fraction:
        return Fraction(-(-elements // self.vector.lanes) * cost * PS) / self.clock


def reduction_pause(
    command: Command, tiles: tuple[TileInfo, ...], machine: Machine, implementation: Implementation
) -> int:
    """Return the pause behind a reduction across the waves of a workgroup, in picoseconds; 0 if it needs none.

    The waves of a product lie along its rows while each can have ``wave_rows`` of its own; then every wave reduces its
    rows alone. With fewer rows than that, the waves lie along the keys, and a row's maximum goes through scratch and a
    barrier. One barrier is charged for each maximum; the sum that follows it is charged none.
    """
    workgroup = machine.pe.workgroup
    if command.name != "max" or workgroup is None or implementation.waves == 1:
        return 0
    source = command.srcs[0]
    if not isinstance(source, Ref) or command.attrs.get("axis") not in (-1, len(source.shape) - 1):
        return 0
    wave_rows = 16
    rows = math.prod(source.shape[:-1])
    return 0 if rows >= wave_rows * implementation.waves else workgroup.barrier


def _format(source: object, tiles: tuple[TileInfo, ...]) -> str:
    return (source.dtype or tiles[source.tile].dtype) if isinstance(source, Ref) else ""
