"""What the pieces of a kernel cost on a machine whose PEs hold workgroups: the one place for these formulas.

Lowering a recorded grid (:mod:`kernbench.simulate.launch.lower`) and predicting a recorded run
(:mod:`kernbench.realrun.predict`) both charge from here. Arithmetic is counted in elements and kept exact until a step
is written, which rounds up to a picosecond:

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
from kernbench.simulate.costs import PS, exactly, rate_of
from kernbench.simulate.launch.places import workgroup_of

_SAME_CONVERSION = {"fp8e4m3fnuz": "fp8e4m3"}
SCORE_OPS = 5
"""Operations on each score beside its exponential: scale, maximum, subtraction, sum, conversion."""


# ------------------------------------------------------------------ matrix instructions
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


WARP_MMA = Instruction(16, 8, 16, from_registers=True)
"""``mma.sync`` m16n8k16: what Triton emits for products with fewer than 64 rows on Hopper."""
WARPGROUP_MMA = Instruction(64, 8, 16, from_registers=False)
"""``wgmma`` m64nNk16: operands from shared memory."""
MFMA = Instruction(16, 16, 16, from_registers=True)
"""``v_mfma_f32_16x16x16`` (gfx942); gfx950 has 16x16x32 at the full rate."""
MFMA_950 = Instruction(16, 16, 32, from_registers=True)


def instruction_of(machine: Machine, rows: int, waves: int) -> Instruction:
    """Return the instruction that a compiler picks for a product of so many rows."""
    if _has_long_waves(machine):
        return MFMA_950 if machine.name == "mi355x" else MFMA
    return WARPGROUP_MMA if rows >= WARPGROUP_MMA.m and waves % 4 == 0 else WARP_MMA


def instruction_named(machine: Machine, tile: tuple[int, int, int]) -> Instruction:
    """Return the instruction with a tile: only a whole group of waves reads its operands from shared memory."""
    return Instruction(*tile, from_registers=_has_long_waves(machine) or tile[0] < WARPGROUP_MMA.m)


def _has_long_waves(machine: Machine) -> bool:
    return machine.pe.residency is not None and machine.pe.residency.wave_size == 64


# ------------------------------------------------------------------ matrix work
def product_ps(machine: Machine, dtype: str, instruction: Instruction, m: int, n: int, k: int) -> Fraction:
    """Return the exact time of one PE for a product of ``(m, k)`` and ``(k, n)``, padded to the instruction's tile.

    Raises
    ------
    InputError
        If the machine gives no matrix rate for the format.
    """
    matrix = machine.pe.matrix
    share = exactly(matrix.achievable) * exactly(matrix.instructions.get(str(instruction), 1))
    flops = 2
    for extent, tile in ((m, instruction.m), (n, instruction.n), (k, instruction.k)):
        flops *= -(-extent // tile) * tile
    return Fraction(flops * PS, rate_of(matrix, dtype)) / share


def dot_ps(machine: Machine, dtype: str, instruction: Instruction, m: int, n: int, k: int) -> int:
    """Return :func:`product_ps` in whole picoseconds."""
    return whole(product_ps(machine, dtype, instruction, m, n, k))


def latency_ps(machine: Machine, rows: int, waves: int, instruction: Instruction) -> int:
    """Latency of a tile's two products that nothing of the same workgroup hides.

    A product's result is there one ``startup`` after its last operation. Where a workgroup has several groups of waves
    that work on rows of their own, one group's work hides the other's latency.
    """
    groups = min(waves // 4, rows // instruction.m) if rows >= 64 else 1
    return 2 * machine.pe.matrix.startup if groups <= 1 else 0


# ------------------------------------------------------------------ vector work
def cost_of(machine: Machine, op: str) -> Fraction:
    """Cycles that one lane takes for one element of a vector operation; ``load`` costs nothing where absent."""
    cost = machine.pe.vector.cost
    return Fraction(exactly(cost.get(op, 0 if op == "load" else cost["default"])))


def convert_of(machine: Machine, dtype: str) -> Fraction:
    """Cycles that one lane takes to widen one stored element."""
    found = machine.pe.vector.convert.get(_SAME_CONVERSION.get(dtype, dtype))
    return cost_of(machine, "cast") if found is None else Fraction(exactly(found))


def rescale_cycles(machine: Machine, elements: int) -> Fraction:
    """Lane-cycles to rescale an accumulator of so many elements and add to it."""
    return elements * (cost_of(machine, "multiply") + cost_of(machine, "add"))


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


def vector_ps(machine: Machine, cycles: Fraction | int) -> int:
    """Time of one PE for so many lane-cycles of vector work."""
    return whole(Fraction(cycles) * PS / (machine.pe.vector.lanes * machine.pe.clock))


# ------------------------------------------------------------------ waves and buffers
def across_waves_ps(machine: Machine, waves: int) -> int:
    """Latency of a reduction over what is spread over the waves: more waves, more to combine."""
    return workgroup_of(machine).barrier * max(waves // 4, 1)


def buffers_of(stages: int, lds_bytes: int, tile_bytes: int) -> int:
    """Tiles that are asked for ahead of the loop; 0: each load is asked for where the source says.

    A software pipeline of ``stages`` asks for tile ``j`` when it is done with tile ``j - (stages - 1)``: two stages
    hide nothing of a tile's load behind the same workgroup's work, three do (measured: prefill of 128 x 64 tiles by
    one workgroup a PE takes 1.96, 1.57 and 1.16 us a tile with one, two and three stages, h200_live.jsonl). Where the
    shared memory does not hold so many, the compiler did not build such a pipeline (a load under a condition, say).
    """
    return min(stages - 1, (lds_bytes + tile_bytes // 8) // tile_bytes)


def whole(exact: Fraction) -> int:
    """Return exact picoseconds, rounded up."""
    return -(-exact.numerator // exact.denominator)
