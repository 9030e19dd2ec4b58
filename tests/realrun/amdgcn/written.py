"""Assembly text of small kernels that the tests write themselves."""

import struct
from pathlib import Path

import numpy as np

from kernbench.realrun import amdgcn

FIXTURES = Path(__file__).parent / "fixtures"
POINTER, WORD = "global_buffer", "by_value"


def kernel_text(body, arguments=(POINTER,), arch="gfx942", vgprs=64, agprs=0, lds=0, scratch=0):
    """Wrap instructions into a kernel ``k``: s[0:1] is its argument block, s2 the workgroup, v0 the work-item."""
    offsets, at = [], 0
    for kind in arguments:
        size = 8 if kind == POINTER else 4
        at = -(-at // size) * size
        offsets.append((at, size, kind))
        at += size
    entries = "".join(
        f"      - .offset: {offset}\n        .size: {size}\n        .value_kind: {kind}\n"
        for offset, size, kind in offsets
    )
    return f"""\
\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
\t.text
k:
{body}
\ts_endpgm
\t.section .rodata,"a",@progbits
\t.amdhsa_kernel k
\t\t.amdhsa_group_segment_fixed_size {lds}
\t\t.amdhsa_private_segment_fixed_size {scratch}
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_next_free_vgpr {vgprs + agprs}
\t\t.amdhsa_accum_offset {vgprs}
\t.end_amdhsa_kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
{entries}    .kernarg_segment_size: {at}
    .name: k
...
\t.end_amdgpu_metadata
"""


STORE = """\
\ts_load_dwordx2 s[20:21], s[0:1], 0x0
\tv_lshlrev_b32_e32 v60, 2, v0
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v60, v1, s[20:21]
"""
"""Stores v1 of each work-item to the first argument."""


LANES = 64
BITS = 0xFFFFFFFF
SPECIAL = [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, BITS, 0x00FF00FF, 0xFFFF0000, 0x12345678]
FLOATS = [0.0, -0.0, 1.0, -1.5, 3.25, 1e30, -1e30, 1e-30, np.inf, -np.inf, 65504.0, 0.1, 2.0**-126]


def words(kind, seed):
    """64 words: special ones first, then random ones."""
    rng = np.random.default_rng(seed)
    if kind == "f":
        values = np.concatenate([rng.permutation(FLOATS), rng.standard_normal(LANES - len(FLOATS)) * 9])
        return values.astype(np.float32).view(np.uint32)
    values = np.concatenate([rng.permutation(SPECIAL), rng.integers(0, 2**32, LANES - len(SPECIAL))])
    return values.astype(np.uint32)


def run(body, inputs, outputs=1, arch="gfx942", lds=0):
    """Execute a body on inputs in v1, v2, ...; return registers v10, v11, ... as rows. v0 is the lane."""
    lines = ["\ts_load_dwordx4 s[20:23], s[0:1], 0x0", "\tv_lshlrev_b32_e32 v50, 2, v0", "\ts_waitcnt lgkmcnt(0)"]
    lines += [f"\tglobal_load_dword v{1 + i}, v50, s[20:21] offset:{256 * i}" for i in range(len(inputs))]
    lines += ["\ts_waitcnt vmcnt(0)", body, "\ts_waitcnt lgkmcnt(0)"]
    lines += [f"\tglobal_store_dword v50, v{10 + i}, s[22:23] offset:{256 * i}" for i in range(outputs)]
    given = np.ascontiguousarray(np.array(inputs, np.uint32)) if len(inputs) else None
    out = np.zeros((outputs, LANES), np.uint32)
    amdgcn.load(kernel_text("\n".join(lines), [POINTER] * 2, arch, agprs=8, lds=lds))["k"].launch(
        1, LANES, [given, out]
    )
    return out


def signed(x, bits=32):
    x &= (1 << bits) - 1
    return x - (x >> (bits - 1) << bits)


def as_float(x):
    return struct.unpack("<f", struct.pack("<I", x & BITS))[0]
