"""The work of a launch, from the spec's tiles alone: what the machine code is to be counted against.

Every tile or key is visited, whatever the masks and blocks keep: these kernels skip nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from kernbench.realrun.amdgcn.kernel import Kernel, LaunchResult
from kernbench.realrun.rocke.inputs import Launch
from kernbench.realrun.rocke.payloads import Spec
from kernbench.specs.rocke import SageAttentionSpec, VsaSparseSpec
from kernbench.specs.rocke.common import TILE_KEYS, TILE_ROWS
from kernbench.specs.rocke.mfma import ATOM_K
from kernbench.specs.rocke.sage import CODEBOOK_ENTRIES

_LDS_GRAIN = 16
"""Compilers align and pad what lies in LDS, by less than this."""
_EXPS_OF_TILE = 8
"""Of one wave for 16 x 16 scores: a lane has 4 scores, and the 4 rescaling factors of their rows."""
_EXPS_OF_KEY = 2


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of one launch."""

    mfma: int
    """Matrix instructions executed by waves."""
    exp: int
    """Exponentials executed by waves."""
    read_bytes: int
    """Bytes that lanes load from global memory. Values that a whole wave shares, such as scales, are not among them:
    compilers load them once for all lanes."""
    written_bytes: int
    """Bytes that lanes store to global memory."""
    lds_bytes: int
    """LDS of one workgroup, rounded up to 16: compilers pad it."""
    kernarg_bytes: int
    """Bytes of the argument block."""

    def unlike(self, other: Work) -> list[str]:
        """Return the names of the counts in which another differs."""
        return [name for name, count in asdict(self).items() if count != asdict(other)[name]]


def expected_work(launch: Launch) -> Work:
    """Derive the counts from the spec and, for lists of blocks, their lengths."""
    spec = launch.spec
    shape = spec.common.shape
    heads, d = shape.num_query_heads, shape.head_size
    written = spec.seqlen_q * heads * d * 2
    if spec.route() == "mfma":
        groups = spec.seqlen_q // TILE_ROWS * heads
        steps = groups * (spec.seqlen_k // TILE_KEYS)
        mfma, exp = steps * 2 * d // ATOM_K, steps * _EXPS_OF_TILE
        own = TILE_ROWS * d * 2
    else:
        groups = spec.seqlen_q * heads
        mfma, exp = 0, groups * spec.seqlen_k * _EXPS_OF_KEY
        own = d * 2
    read = groups * (own + 2 * spec.seqlen_k * _cache_row(spec)) + _shared_reads(launch, groups)
    return Work(mfma, exp, read, written, _padded(spec.lds_bytes()), spec.kernarg_bytes())


def counted_work(kernel: Kernel, done: LaunchResult) -> Work:
    """Return the same counts of what was executed."""
    last = max(kernel.arguments, key=lambda argument: argument.offset)
    return Work(
        done.counters["SQ_INSTS_MFMA"],
        sum(count for opcode, count in done.opcodes.items() if opcode.startswith("v_exp_f32")),
        done.counters["global_read_bytes"],
        done.counters["global_write_bytes"],
        _padded(kernel.text.descriptor["group_segment_fixed_size"]),
        last.offset + last.size,
    )


def _padded(lds_bytes: int) -> int:
    return -(-lds_bytes // _LDS_GRAIN) * _LDS_GRAIN


def _cache_row(spec: Spec) -> int:
    """Bytes of one key of one head."""
    d = spec.common.shape.head_size
    if not isinstance(spec, SageAttentionSpec) or spec.quant_mode == "fp16_bf16":
        return 2 * d
    return d // 2 if spec.quant_mode == "i4_fp8_bf16" else d


def _shared_reads(launch: Launch, groups: int) -> int:
    """Bytes of what each workgroup puts into LDS before it begins: codebooks, its row of the bitmap, its list."""
    spec = launch.spec
    if isinstance(spec, SageAttentionSpec):
        return groups * 2 * 4 * CODEBOOK_ENTRIES.get(spec.quant_mode, 0)
    if not isinstance(spec, VsaSparseSpec):
        return groups * spec.num_k_blocks
    lengths = np.clip(launch.arguments["block_count"], 0, spec.max_blocks_per_q)
    rows = [spec.q_block_of_tile(tile) for tile in range(spec.seqlen_q // TILE_ROWS)]
    return spec.common.shape.num_query_heads * 4 * int(lengths[rows].sum())
