"""Assembly text of small kernels that the tests write themselves."""

from pathlib import Path

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
