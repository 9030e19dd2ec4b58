"""What the commands of a recorded workgroup cost, by the formulas of :mod:`kernbench.simulate.launch.costs`.

A compiler does for nothing, or as part of something else:

* copies, broadcasts and transposes of tiles, constants and counting: registers are renamed, constants are operands;
* a comparison: it is part of the ``where`` that uses it;
* vectors: an operation on one number a row or column, such as the running maximum, fits beside those on whole tiles.

Widening what was loaded counts with the load, where a product takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from kernbench.machine import Machine
from kernbench.record.trace import Access, Command, Ref, TileInfo
from kernbench.simulate.costs import rate_of
from kernbench.simulate.launch.costs import (
    Instruction,
    across_waves_ps,
    convert_of,
    cost_of,
    instruction_named,
    instruction_of,
    latency_ps,
    load_cycles,
    product_ps,
    vector_ps,
    whole,
)
from kernbench.simulate.launch.places import residency_of
from kernbench.simulate.launch.steps import Engines
from kernbench.specs.implementation import Implementation

FREE = frozenset({"copy", "broadcast", "trans", "arange", "fill", "compare"})
"""Vector operations that cost a workgroup nothing of their own."""
VECTOR_ELEMENTS = 4
"""Elements a lane up to which an operation on a row or a column counts as a vector's."""


class Costs:
    """Costs of one launch's commands on one machine. Lane-cycles are exact, and remembered: loops ask again."""

    def __init__(self, machine: Machine, implementation: Implementation) -> None:
        self._machine, self._implementation = machine, implementation
        self.engines = (Engines.MATRIX, Engines.VECTOR) if implementation.overlap else (Engines.BOTH, Engines.BOTH)
        """Engines that a product and a vector operation hold: both, unless the kernel lets them overlap."""
        self._known: dict[tuple[object, ...], Fraction] = {}
        self._sums: dict[tuple[int, ...], int] = {}

    # ------------------------------------------------------------------ vector work
    def cycles(self, command: Command, tiles: tuple[TileInfo, ...], copies: int = 1) -> Fraction:
        """Return the lane-cycles of a vector operation that so many waves do, each for itself."""
        name = command.name
        shapes = [source.shape for source in command.srcs if isinstance(source, Ref)]
        shapes += [tiles[tile].shape for tile in command.dst]
        if name in FREE or all(self._is_vector(shape) for shape in shapes):
            return self._once(("nothing",), lambda: Fraction(0))
        stored = format_of(command.srcs[0], tiles) if name == "cast" else ""
        elements = math.prod(command.work) * copies  # times passes, if it has several
        each = convert_of if stored in self._machine.pe.vector.convert else cost_of
        return self._once(
            (name, elements, stored), lambda: elements * each(self._machine, stored if each is convert_of else name)
        )

    def _is_vector(self, shape: tuple[int, ...]) -> bool:
        if len(shape) < 2 or (shape[-1] > 1 and math.prod(shape[:-1]) > 1):
            return False
        return math.prod(shape) <= VECTOR_ELEMENTS * self._machine.pe.vector.lanes

    def taken_up(self, elements: int) -> Fraction:
        """Return the lane-cycles of adding a product to an accumulator that vector work has rescaled."""
        return self._once(("add", elements, ""), lambda: elements * cost_of(self._machine, "add"))

    def widened(self, ref: Ref, access: Access, tiles: tuple[TileInfo, ...]) -> Fraction:
        """Return the lane-cycles of widening a loaded tile for vector work."""
        elements, used = math.prod(ref.shape), format_of(ref, tiles)
        return self._once(
            ("widened", elements, access.dtype, used),
            lambda: load_cycles(self._machine, elements, access.dtype, used, from_registers=False),
        )

    def fed(self, ref: Ref, access: Access, tiles: tuple[TileInfo, ...], rows: int, copies: int = 1) -> Fraction:
        """Return the lane-cycles of bringing a loaded tile into the form that a product of ``rows`` rows takes.

        So many waves do it, each for itself.
        """
        elements, used = math.prod(ref.shape) * copies, format_of(ref, tiles)
        registers = self._instruction(rows).from_registers
        return self._once(
            ("fed", elements, access.dtype, used, registers),
            lambda: load_cycles(self._machine, elements, access.dtype, used, registers),
        )

    def together(self, cycles: Sequence[Fraction]) -> int:
        """Return the picoseconds of lane-cycles that this object gave; adding fractions is slow, loops ask again."""
        key = tuple(map(id, cycles))  # this object keeps them alive, so that their ids stay theirs
        if key not in self._sums:
            self._sums[key] = vector_ps(self._machine, sum(cycles, Fraction(0)))
        return self._sums[key]

    # ------------------------------------------------------------------ matrix work
    def product(self, command: Command, tiles: tuple[TileInfo, ...], copies: int = 1) -> Fraction:
        """Return the exact picoseconds of a product that so many waves make, each for itself."""
        matrix = self._machine.pe.matrix
        dtype = min((format_of(source, tiles) for source in command.srcs[:2]), key=lambda name: rate_of(matrix, name))
        batch, m, n, k = command.work[:4]
        return self._once(
            ("dot", dtype, copies, *command.work),
            lambda: copies * batch * product_ps(self._machine, dtype, self._instruction(m), m, n, k),
        )

    def whole(self, exact: Fraction) -> int:
        """Return exact picoseconds, rounded up."""
        return whole(exact)

    def latency(self, rows: int) -> int:
        """Return the latency of two products of so many rows that follow each other, in picoseconds."""
        return latency_ps(self._machine, rows, self._implementation.waves, self._instruction(rows))

    def _instruction(self, rows: int) -> Instruction:
        named = self._implementation.instruction_tile
        if named is not None:
            return instruction_named(self._machine, named)
        return instruction_of(self._machine, rows, self._implementation.waves)

    # ------------------------------------------------------------------ waves
    def reduction(self, command: Command) -> int:
        """Return the pause behind a reduction across the waves of a workgroup, in picoseconds; 0 if it needs none.

        Waves lie along the rows of a tile, so that a reduction over these crosses them. One over a row's own elements
        does where the implementation spreads the keys of a tile over its waves; then one is charged for each maximum,
        and the sum that follows it comes along. As many elements as a wave has threads lie in one wave.
        """
        source = command.srcs[0] if command.srcs else None
        if command.name not in ("max", "min", "sum") or not isinstance(source, Ref) or self._implementation.waves == 1:
            return 0
        if is_of_rows(command) and not (self._implementation.keys_across_waves and command.name != "sum"):
            return 0
        if math.prod(source.shape) <= residency_of(self._machine).wave_size:
            return 0
        return across_waves_ps(self._machine, self._implementation.waves)

    def _once(self, key: tuple[object, ...], cost: Callable[[], Fraction]) -> Fraction:
        if key not in self._known:
            self._known[key] = Fraction(cost())
        return self._known[key]


def is_of_rows(command: Command) -> bool:
    """Whether a reduction leaves one number for each row of a tile."""
    source = command.srcs[0]
    return len(source.shape) > 1 and command.attrs.get("axis") in (-1, len(source.shape) - 1)


def format_of(source: object, tiles: tuple[TileInfo, ...]) -> str:
    """Return the format that an operand is read as; of a plain number none."""
    return (source.dtype or tiles[source.tile].dtype) if isinstance(source, Ref) else ""
