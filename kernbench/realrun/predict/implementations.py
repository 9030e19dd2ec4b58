"""What is known of kernels whose records do not state it: tiles, waves, stages, registers, shared memory.

A record's own figures come first. What stands here has its source; what is only plausible says *assumed*, and the
reason of a prediction that rests on it says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernbench.machine import Machine
from kernbench.realrun.predict.costs import Instruction
from kernbench.realrun.predict.given import Kernel, instruction_of
from kernbench.realrun.records import Family
from kernbench.simulate.launch.places import Resources


@dataclass(frozen=True)
class Known:
    """An implementation by its name."""

    families: tuple[Family, ...]
    name: str
    """Regular expression for :attr:`Implementation.name`."""
    arch: str
    """Regular expression for the architecture."""
    d_qk: int
    """Head dimensions up to this."""
    block_m: int
    block_n: int
    waves: int
    stages: int
    registers: int
    lds_bytes: int
    overlaps: bool
    source: str
    matrix: tuple[int, int, int, bool] | None = None
    """Instruction tile m, n, k and whether operands come from registers; None: the compiler's usual choice."""

    def kernel(self, machine: Machine) -> Kernel:
        """Return the implementation with its figures."""
        needs = Resources(self.waves, self.registers, self.lds_bytes)
        instruction = Instruction(*self.matrix) if self.matrix else instruction_of(machine, self.block_m, self.waves)
        return Kernel(
            self.block_m, self.block_n, self.stages, 1, needs, instruction, self.overlaps, True, self.source
        )  # fmt: skip


_FA2 = "source: block sizes of FlashAttention-2's forward kernels; registers assumed"
_FA3 = "assumed: the block sizes and warp specialisation of FlashAttention-3"
_CDNA4 = "assumed: 8 waves of 32 query rows, tiles of 64 keys, as the facts of arXiv:2511.08083 suggest"
_CDNA3 = "assumed: 4 waves of 32 query rows, tiles of 64 keys"

KNOWN: tuple[Known, ...] = (
    Known(("sdpa_flash",), "torch-sdpa-flash", "90", 64, 128, 128, 4, 2, 200, 49152, False, _FA2, (16, 8, 16, True)),
    Known(("sdpa_flash",), "torch-sdpa-flash", "90", 128, 128, 64, 4, 2, 255, 65536, False, _FA2, (16, 8, 16, True)),
    Known(("sdpa_cudnn",), "torch-sdpa-cudnn", "90", 64, 192, 128, 12, 3, 168, 98304, True, _FA3),
    Known(("sdpa_cudnn",), "torch-sdpa-cudnn", "90", 128, 128, 128, 12, 3, 168, 163840, True, _FA3),
    Known(("prefill",), "HipKittens|aiter|FlyDSL|CK", "gfx950", 128, 256, 64, 8, 3, 256, 98304, False, _CDNA4),
    Known(("prefill",), ".*", "gfx942", 128, 128, 64, 4, 2, 256, 49152, False, _CDNA3),
)  # fmt: skip


def find(family: str, name: str, arch: str, d_qk: int) -> Known | None:
    """Return what is known of an implementation; None if nothing is."""
    for one in KNOWN:
        if family in one.families and re.search(one.name, name) and re.search(one.arch, arch) and d_qk <= one.d_qk:
            return one
    return None
