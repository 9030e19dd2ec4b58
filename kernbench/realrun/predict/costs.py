"""What the pieces of an attention kernel cost on a machine whose PEs hold workgroups, in picoseconds.

A tile's arithmetic is counted in elements, as the kernel's source says it, and charged by the machine file:

* a product of ``m x k`` and ``k x n``: ``2 m n k / (rate x achievable x share of the instruction)``, with extents
  padded to the instruction;
* an element of a score: scale, maximum, subtraction, exponential, sum and conversion: five operations at the default
  cost and one ``exp2``; a ``where`` more if the tile is masked;
* an element of the accumulator: a multiplication and an addition to rescale it and take up the product;
* an element that is loaded for an instruction that takes its operands from registers: ``load``; and ``convert`` of
  its format if that is not the one the product is made in.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kernbench.machine import Machine
from kernbench.realrun.prediction import NotModelled
from kernbench.simulate.costs import PS, exactly

_SAME_RATE = {"fp8e4m3fnuz": "fp8e4m3"}
SCORE_OPS = 5
"""Operations on each score beside its exponential: scale, maximum, subtraction, sum, conversion."""


@dataclass(frozen=True)
class Instruction:
    """The matrix instruction that a kernel is compiled to."""

    m: int
    n: int
    k: int
    from_registers: bool
    """Whether its operands come from registers: what is loaded must be copied there."""

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def dot_ps(machine: Machine, dtype: str, instruction: Instruction, m: int, n: int, k: int) -> int:
    """Time of one PE for a product of ``(m, k)`` and ``(k, n)``, padded to the instruction's tile."""
    matrix = machine.pe.matrix
    rate = matrix.rates.get(_SAME_RATE.get(dtype, dtype))
    if rate is None:
        raise NotModelled(f"{machine.name} has no matrix rate for {dtype}")
    share = exactly(matrix.achievable) * exactly(matrix.instructions.get(str(instruction), 1))
    flops = 2
    for extent, tile in ((m, instruction.m), (n, instruction.n), (k, instruction.k)):
        flops *= -(-extent // tile) * tile
    return _whole(Fraction(flops * PS, rate) / share)


def cost_of(machine: Machine, op: str) -> Fraction:
    """Cycles that one lane takes for one element of a vector operation; ``load`` costs nothing where absent."""
    cost = machine.pe.vector.cost
    return Fraction(exactly(cost.get(op, 0 if op == "load" else cost["default"])))


def convert_of(machine: Machine, dtype: str) -> Fraction:
    """Cycles that one lane takes to widen one stored element."""
    found = machine.pe.vector.convert.get(_SAME_RATE.get(dtype, dtype))
    return cost_of(machine, "cast") if found is None else Fraction(exactly(found))


def rescale_cycles(machine: Machine, elements: int) -> Fraction:
    """Lane-cycles to rescale an accumulator of so many elements and add to it."""
    return elements * (cost_of(machine, "multiply") + cost_of(machine, "add"))


def latency_ps(machine: Machine, rows: int, waves: int, instruction: Instruction) -> int:
    """Latency of a tile's two products that nothing of the same workgroup hides.

    A product's result is there one ``startup`` after its last operation. Where a workgroup has several groups of waves
    that work on rows of their own, one group's work hides the other's latency.
    """
    groups = min(waves // 4, rows // instruction.m) if rows >= 64 else 1
    return 2 * machine.pe.matrix.startup if groups <= 1 else 0


def vector_ps(machine: Machine, cycles: Fraction | int) -> int:
    """Time of one PE for so many lane-cycles of vector work."""
    return _whole(Fraction(cycles) * PS / (machine.pe.vector.lanes * machine.pe.clock))


def score_cycles(machine: Machine, scores: int, masked: bool) -> Fraction:
    """Lane-cycles of the softmax over so many scores."""
    each = SCORE_OPS * cost_of(machine, "default") + cost_of(machine, "exp2")
    return scores * (each + (cost_of(machine, "where") if masked else 0))


def load_cycles(machine: Machine, elements: int, stored: str, used: str, from_registers: bool) -> Fraction:
    """Lane-cycles to bring so many loaded elements into the form that a product takes."""
    each = cost_of(machine, "load") if from_registers else Fraction(0)
    if stored != used:
        each += convert_of(machine, stored)
    return elements * each


def _whole(exact: Fraction) -> int:
    return -(-exact.numerator // exact.denominator)
