"""Stand-ins that the tests write: a FlyDSL, a PyTorch and a vLLM that emit a kernel written by hand.

The kernel does the work of an empty partition for 8 query heads, one key/value head and any number of partitions of one
sequence: it reads queries, centroids and the length, and stores zeros and minus infinity.
"""

RANKS = (5, 4, 4, 3, 4, 1, 2, 1)
"""Of the eight tensors. FlyDSL passes of each its address, its extents, and its strides but for the last axis."""
EMPTY_PARTITION = """\
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_load_dwordx2 s[6:7], s[0:1], 0x40
    s_load_dwordx2 s[8:9], s[0:1], 0x70
    s_load_dwordx2 s[10:11], s[0:1], 0xa0
    s_load_dwordx2 s[12:13], s[0:1], 0xf8
    s_load_dwordx2 s[14:15], s[0:1], 0x120
    v_lshlrev_b32_e32 v1, 4, v0
    v_and_b32_e32 v2, 15, v0
    v_lshlrev_b32_e32 v2, 2, v2
    v_mov_b32_e32 v3, 0
    s_waitcnt lgkmcnt(0)
    global_load_dword v20, v2, s[12:13]
    global_load_dword v21, v3, s[14:15]
    global_load_dwordx4 v[4:7], v1, s[10:11]
    global_load_dwordx4 v[8:11], v1, s[10:11] offset:1024
    global_load_dwordx4 v[12:15], v1, s[10:11] offset:2048
    global_load_dwordx4 v[16:19], v1, s[10:11] offset:3072
    s_waitcnt vmcnt(0)
    ds_write_b32 v2, v20 offset:13056
    ds_write_b128 v1, v[4:7]
    ds_write_b128 v1, v[8:11] offset:1024
    ds_write_b128 v1, v[12:15] offset:2048
    ds_write_b128 v1, v[16:19] offset:3072
    v_mov_b32_e32 v4, 0
    v_mov_b32_e32 v5, 0
    v_mov_b32_e32 v6, 0
    v_mov_b32_e32 v7, 0
    v_mov_b32_e32 v8, 0xff800000
    s_lshl_b32 s16, s3, 12
    v_add_u32_e32 v1, s16, v1
    global_store_dwordx4 v1, v[4:7], s[4:5]
    global_store_dwordx4 v1, v[4:7], s[4:5] offset:1024
    global_store_dwordx4 v1, v[4:7], s[4:5] offset:2048
    global_store_dwordx4 v1, v[4:7], s[4:5] offset:3072
    s_lshl_b32 s16, s3, 5
    v_add_u32_e32 v2, s16, v2
    s_mov_b32 exec_lo, 0x00ff00ff
    s_mov_b32 exec_hi, 0x00ff00ff
    global_store_dword v2, v4, s[6:7]
    global_store_dword v2, v8, s[8:9]
    s_endpgm
"""


def kernel_text(ranks=RANKS, lds=13120):
    """Return the kernel as FlyDSL would emit it for tensors of these ranks."""
    entries, at = "", 0
    for rank in ranks:
        at = -(-at // 8) * 8
        entries += f"      - {{.offset: {at}, .size: 8, .value_kind: global_buffer}}\n"
        size = 4 * rank + 8 * (rank - 1)
        entries += f"      - {{.offset: {at + 8}, .size: {size}, .value_kind: by_value}}\n"
        at += 8 + size
    return f"""\
    .amdgcn_target "amdgcn-amd-amdhsa--gfx950"
    .text
empty_partition:
{EMPTY_PARTITION}\
    .amdhsa_kernel empty_partition
        .amdhsa_group_segment_fixed_size {lds}
        .amdhsa_user_sgpr_count 2
        .amdhsa_user_sgpr_kernarg_segment_ptr 1
        .amdhsa_system_sgpr_workgroup_id_x 1
        .amdhsa_system_sgpr_workgroup_id_z 1
        .amdhsa_next_free_vgpr 24
        .amdhsa_accum_offset 24
    .end_amdhsa_kernel
    .amdgpu_metadata
amdhsa.kernels:
  - .name: empty_partition
    .kernarg_segment_size: {at}
    .args:
{entries}\
    .end_amdgpu_metadata
"""


FLYDSL = {
    "flydsl/__init__.py": "",
    "flydsl/compiler.py": "def jit(function):\n    return function\n",
    "flydsl/expr.py": "class Int32: ...\nclass Stream: ...\n",
    "torch.py": """\
bfloat16, float32, uint8, int32 = "bf16", "f32", "u8", "i32"
def empty(shape, dtype):
    return dtype, list(shape), None
def empty_strided(shape, strides, dtype):
    return dtype, list(shape), list(strides)
""",
    "flydsl-0.5.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: flydsl\nVersion: 0.5.0\n",
    "torch-2.13.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n",
}
OPS = "vllm/v1/attention/ops/flydsl_kernels"
VLLM = {
    "vllm/__init__.py": "raise ImportError('vLLM itself must not be imported')\n",
    "vllm/_version.py": "__version__ = version = '0.33.0'\n",
    f"{OPS}/__init__.py": "",
    f"{OPS}/buffer_utils.py": "NAME = 'kernel.s'\n",
    f"{OPS}/mma_utils.py": "",
    f"{OPS}/ultraquant_decode_hd256.py": f"""\
import json, os, pathlib
from vllm.v1.attention.ops.flydsl_kernels.buffer_utils import NAME
class Launch:
    def __init__(self, build, tensors):
        self.seen = {{"build": build, "tensors": tensors}}
    def launch(self, grid, block, stream):
        where = pathlib.Path(os.environ["FLYDSL_DUMP_DIR"], "a_kernel")
        where.mkdir()
        (where / NAME).write_text({kernel_text()!r})
        asked = {{k: os.environ[k] for k in ("COMPILE_ONLY", "ARCH", "FLYDSL_GPU_ARCH", "ROCM_PATH")}}
        (where / "seen.json").write_text(json.dumps(self.seen | {{"grid": grid, "block": block, "asked": asked}}))
def build_ultraquant_decode_hd256_module(**build):
    return lambda *tensors: Launch(build, tensors)
""",
}


def write(files, root):
    """Write files below a directory; return it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
