"""A lower bound on a launch's time, from the instructions that were counted and published issue rates.

Each unit works off its instructions back to back, spread evenly over the waves and the GPU; units overlap, and nothing
is waited for. So no run can be shorter than the busiest unit, and real runs are longer.

* Matrix instructions: their operations divided by the peak of a SIMD (a CU has four), :data:`MATRIX_RATES`; shapes of
  older architectures keep their cycles on gfx950. For the dense shapes that compilers emit for attention this is what
  AMD's matrix instruction calculator (@2ef91896) lists for gfx90a and gfx942, and LLVM's schedule for gfx950; for those
  of several blocks it is less than the calculator has.
* Other vector instructions: 4 cycles a wave on a SIMD of 16 lanes; transcendental ones 16, of float64 32. Thread trace
  of a gfx942 kernel in ROCm/triton's study_pingpong (@55258a63). Transcendental ones half of it on gfx950, which has
  twice the rate: AMD's CDNA 4 white paper, as public notes quote it. They share the vector unit, so that they add up.
* LDS: bytes of 64 lanes by what a CU's LDS moves in a cycle: 128 on gfx90a and gfx942, 256 on gfx950 but for what was
  measured to be slower there (HipKittens, phases/ @f09e9685).

An instruction is taken to occupy its unit whatever lanes are active.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernbench.realrun.amdgcn.counters import classify, mfma_shape
from kernbench.realrun.amdgcn.vector import base_name

SIMDS = 4
"""Of a CU."""
VECTOR_CYCLES = 4
TRANSCENDENTAL_CYCLES = {"gfx90a": 16, "gfx942": 16, "gfx950": 8}
"""Of float32 and float16; those of float64 take twice as long."""
_OLD = {"F16": 1024, "BF16": 1024, "F32": 256, "F64": 256, "I8": 1024, "XF32": 256}
_CDNA3 = {"F16": 2048, "BF16": 2048, "F32": 256, "F64": 256, "I8": 4096, "F8": 4096, "XF32": 1024}
MATRIX_RATES = {
    "gfx90a": _OLD,
    "gfx942": _CDNA3,
    "gfx950": _CDNA3 | {"F16": 4096, "BF16": 4096, "I8": 8192, "F8": 8192, "F6F4": 16384, "F64": 128},
}
"""Operations of a CU in a cycle, by architecture and format. Instructions of mixed 8 and 4 bits count as the fast
ones, since their names do not say which they are: the bound is low for them."""
_LDS_BYTES = {"gfx90a": 128, "gfx942": 128, "gfx950": 256}
_MEASURED_950 = {"ds_write_b64": 4.0, "ds_read_b96": 8.0}
"""Phases of gfx950 that are more than its bandwidth says."""
_LDS_WIDTH = re.compile(r"_(?:b|u|i|f)(\d+)")


@dataclass(frozen=True)
class Bound:
    """Cycles that each unit needs for a launch, and the largest of them."""

    matrix: int
    vector: int
    """Transcendental instructions included."""
    transcendental: int
    lds: int

    @property
    def cycles(self) -> int:
        """The bound."""
        return max(self.matrix, self.vector, self.lds)

    @property
    def unit(self) -> str:
        """The unit that sets it."""
        found = {"matrix": self.matrix, "vector": self.vector, "LDS": self.lds}
        return max(found, key=lambda name: found[name])


def bound_of(opcodes: dict[str, int], arch: str, *, compute_units: int, groups: int, waves: int) -> Bound:
    """Return the bound of a launch.

    Parameters
    ----------
    opcodes
        How often each opcode was executed by a wave, over the launch.
    arch
        ``gfx90a``, ``gfx942`` or ``gfx950``.
    compute_units
        Of the GPU.
    groups, waves
        Workgroups of the launch, and waves of one.
    """
    matrix = vector = transcendental = lds = 0.0
    for opcode, count in opcodes.items():
        names = [name for name, _ in classify(opcode)]
        if opcode.startswith("ds_"):
            lds += count * lds_cycles(opcode, arch)
        elif "SQ_INSTS_MFMA" in names:
            matrix += count * matrix_cycles(opcode, arch)
        elif "SQ_INSTS_VALU" in names:
            special = [name for name in names if "_TRANS_" in name]
            if special:
                transcendental += count * TRANSCENDENTAL_CYCLES[arch] * (2 if special[0].endswith("F64") else 1)
            else:
                vector += count * VECTOR_CYCLES
    simds = min(compute_units * SIMDS, groups * waves)
    units = min(compute_units, groups)
    return Bound(
        matrix=_up(matrix / simds),
        vector=_up((vector + transcendental) / simds),
        transcendental=_up(transcendental / simds),
        lds=_up(lds / units),
    )


def matrix_cycles(opcode: str, arch: str) -> float:
    """Return the cycles that a SIMD's matrix unit takes for one instruction of a wave.

    >>> matrix_cycles("v_mfma_f32_32x32x8_f16", "gfx942"), matrix_cycles("v_mfma_f32_16x16x16_f16", "gfx950")
    (32.0, 16.0)
    >>> matrix_cycles("v_mfma_f32_16x16x32_f16", "gfx950")
    16.0
    """
    m, n, k, blocks, kind = mfma_shape(base_name(opcode))
    rate = MATRIX_RATES[arch][kind]
    if arch == "gfx950" and m * k <= _LONGEST_OLD.get(kind, 0):
        rate = MATRIX_RATES["gfx942"][kind]
    if arch == "gfx90a" and kind == "BF16" and not base_name(opcode).endswith("1k"):
        rate //= 2
    return 8.0 if m == 4 else 2 * m * n * k * blocks * SIMDS / rate


_LONGEST_OLD = {"F16": 256, "BF16": 256, "I8": 512, "F8": 512}
"""m k of the shapes that gfx942 has; gfx950 runs these in as many cycles."""


def lds_cycles(opcode: str, arch: str) -> float:
    """Return the cycles that a CU's LDS takes for one instruction of a wave with all lanes.

    >>> lds_cycles("ds_read_b128", "gfx950"), lds_cycles("ds_write_b64", "gfx950"), lds_cycles("ds_read_b128", "gfx942")
    (4.0, 4.0, 8.0)
    """
    width = _LDS_WIDTH.search(opcode)
    nbytes = max(int(width[1]) // 8, 1) if width else 4
    pair = 2 if re.match(r"ds_(read|write)2", opcode) else 1
    if arch == "gfx950" and opcode in _MEASURED_950:
        return _MEASURED_950[opcode]
    return max(1.0, 64 * nbytes * pair / _LDS_BYTES[arch])


def _up(x: float) -> int:
    return int(-(-x // 1))
