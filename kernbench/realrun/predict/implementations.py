"""What is known of kernels whose records do not state it: tiles, waves, stages, registers, shared memory.

A record's own figures come first. What stands here has its source; what is only plausible says *assumed*, and the
reason of a prediction that rests on it says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernbench.machine import Machine
from kernbench.realrun.predict.given import Kernel
from kernbench.realrun.records import Family
from kernbench.simulate.launch.costs import Instruction, instruction_of
from kernbench.simulate.launch.places import Resources


@dataclass(frozen=True, kw_only=True)
class Known:
    """An implementation by its name."""

    family: Family
    name: str
    """Regular expression for :attr:`Implementation.name`."""
    arch: str
    """Regular expression for the architecture."""
    widths: tuple[int, ...]
    """Head dimensions that it is known for."""
    block_m: int
    block_n: int
    waves: int
    stages: int
    registers: int
    lds_bytes: int
    source: str
    overlaps: bool = False
    heads_first: bool = False
    """Whether heads are the grid's fast axis, so that CUBEs served in turn get even shares."""
    matrix: tuple[int, int, int, bool] | None = None
    """Instruction tile m, n, k and whether operands come from registers; None: the compiler's usual choice."""

    def kernel(self, machine: Machine) -> Kernel:
        """Return the implementation with its figures."""
        needs = Resources(self.waves, self.registers, self.lds_bytes)
        instruction = Instruction(*self.matrix) if self.matrix else instruction_of(machine, self.block_m, self.waves)
        return Kernel(
            self.block_m, self.block_n, self.stages, 1, needs, instruction, self.overlaps, True,
            self.heads_first, self.source
        )  # fmt: skip


_FA2 = "source: block sizes of FlashAttention-2's forward kernels; registers assumed"
_FA3 = "assumed: the block sizes and warp specialisation of FlashAttention-3"
_CDNA4 = "assumed: 8 waves of 32 query rows, tiles of 64 keys, heads fastest, longest first (after arXiv:2511.08083)"
_CDNA3 = "assumed: 4 waves of 32 query rows, tiles of 64 keys, heads fastest, longest first"
_WARP = (16, 8, 16, True)


KNOWN: tuple[Known, ...] = (
    Known(
        family="sdpa_flash", name="torch-sdpa-flash", arch="90", widths=(64,), block_m=128, block_n=128, waves=4,
        stages=2, registers=200, lds_bytes=49152, matrix=_WARP, source=_FA2,
    ),
    Known(
        family="sdpa_flash", name="torch-sdpa-flash", arch="90", widths=(128,), block_m=128, block_n=64, waves=4,
        stages=2, registers=255, lds_bytes=65536, matrix=_WARP, source=_FA2,
    ),
    Known(
        family="sdpa_cudnn", name="torch-sdpa-cudnn", arch="90", widths=(64,), block_m=192, block_n=128, waves=12,
        stages=3, registers=168, lds_bytes=98304, overlaps=True, source=_FA3,
    ),
    Known(
        family="sdpa_cudnn", name="torch-sdpa-cudnn", arch="90", widths=(128,), block_m=128, block_n=128, waves=12,
        stages=3, registers=168, lds_bytes=163840, overlaps=True, source=_FA3,
    ),
    Known(
        family="prefill", name="HipKittens", arch="gfx950", widths=(64, 128), block_m=256, block_n=64, waves=8,
        stages=3, registers=256, lds_bytes=98304, heads_first=True, source=_CDNA4,
    ),
    Known(
        family="prefill", name="aiter", arch="gfx950", widths=(128,), block_m=256, block_n=64, waves=8,
        stages=3, registers=256, lds_bytes=98304, heads_first=True, source=_CDNA4,
    ),
    Known(
        family="prefill", name="moonmath|aiter v3 asm", arch="gfx942", widths=(128,), block_m=128, block_n=64, waves=4,
        stages=2, registers=256, lds_bytes=49152, heads_first=True, source=_CDNA3,
    ),
)  # fmt: skip


def find(family: str, name: str, arch: str, width: int) -> Known | None:
    """Return what is known of an implementation for one head dimension; None if nothing is."""
    for one in KNOWN:
        if family == one.family and width in one.widths and re.search(one.name, name) and re.search(one.arch, arch):
            return one
    return None
