"""Compiled attention over packed sequences does the work that a profiler recorded on a real GPU.

The recording is public: ``attn_fwd`` in python/perf-kernels/tools/rocm-triton-prof/README.md of ROCm/triton at
46ee4096. Here a kernel of our own does the same work; benchmarks/attn_fwd_recording.py compiles both. What the recorded
kernel's compiler did otherwise is written out as a difference.
"""

import json
from itertools import pairwise

import numpy as np
import pytest

from kernbench.realrun import amdgcn
from kernbench.specs.correctness import compare, tolerance
from tests.realrun.amdgcn.compiled import scale
from tests.realrun.amdgcn.written import FIXTURES, LANES, POINTER, kernel_text

MADE = json.loads((FIXTURES / "flash_varlen.gfx942.json").read_text())
D, BM, BN = (MADE["constants"][name] for name in ("D", "BM", "BN"))
RECORDED_SEQUENCES, RECORDED_HEADS = (3428, 2523), 16
RECORDED = {
    "SQ_INSTS_VALU_MFMA_MOPS_F16": 154140672,
    "SQ_INSTS_VALU_TRANS_F32": 2489728,
    "SQ_INSTS_VALU_ADD_F32": 4898176,
    "SQ_INSTS_VALU_MUL_F32": 2411456,
    "SQ_INSTS_VALU_FMA_F16": 192512,
    "SQ_INSTS_VALU_FMA_F32": 2486720,
}
REFINEMENT = 5
"""Fused multiply-adds that an exact division takes between its estimate and its last step."""


def blocks_of(sequences):
    return sum(-(-length // BM) for length in sequences)


def tiles_of(sequences):
    return sum(-(-min(end, length) // BN) for length in sequences for end in range(BM, length + BM, BM))


def attend(sequences, heads):
    """Run the kernel; return q, k, v, the output, the logarithms, where sequences begin, and the counters.

    The kernel's last argument is a pointer of Triton's that it does not use.
    """
    rng = np.random.default_rng(len(sequences) + heads)
    starts = np.concatenate([[0], np.cumsum(sequences)]).astype(np.int32)
    q, k, v = rng.standard_normal((3, starts[-1], heads, D), np.float32).astype(np.float16)
    o = np.full_like(q, np.nan)
    log_sums = np.full((len(sequences), heads, max(sequences)), np.nan, np.float32)
    kernel = amdgcn.load(FIXTURES / "flash_varlen.gfx942.s.gz")[MADE["kernel"]]
    args = [q, k, v, o, log_sums, starts, max(sequences), heads * D, scale(D), None]
    grid = (-(-max(sequences) // BM), heads, len(sequences))
    done = kernel.launch(grid, LANES * MADE["waves"], args, MADE["lds_bytes"])
    return q, k, v, o, log_sums, starts, done.counters


def check_values(q, k, v, o, log_sums, starts, step=1):
    """Compare every ``step``-th row with float64."""
    for at, (first, end) in enumerate(pairwise(starts)):
        rows = np.arange(0, end - first, step)
        for head in range(q.shape[1]):
            mine, keys, values = (x[first:end, head].astype(np.float64) for x in (q, k, v))
            s = mine[rows] @ keys.T * scale(D)
            s[np.arange(end - first) > rows[:, None]] = -np.inf
            top = s.max(1, keepdims=True)
            p = np.exp2(s - top)
            total = p.sum(1, keepdims=True)
            found = compare(o[first:end, head][rows], p @ values / total, tolerance("f16"))
            assert found.passed, found
            np.testing.assert_allclose(log_sums[at, head, rows], (top + np.log2(total))[:, 0], rtol=1e-6, atol=1e-5)
            assert np.isnan(log_sums[at, head, end - first :]).all()


def test_the_counters_equal_the_recorded_ones_or_differ_by_what_the_compilers_did():
    *arrays, counters = attend(RECORDED_SEQUENCES, heads=1)
    check_values(*arrays, step=16)
    found = {name: RECORDED_HEADS * counters.get(name, 0) for name in RECORDED}
    difference = {name.removeprefix("SQ_INSTS_VALU_"): found[name] - count for name, count in RECORDED.items()}
    waves = RECORDED_HEADS * MADE["waves"] * blocks_of(RECORDED_SEQUENCES)
    assert difference["MFMA_MOPS_F16"] == difference["TRANS_F32"] == difference["ADD_F32"] == 0
    # The division of the recorded kernel had no refinement.
    assert difference["FMA_F32"] == REFINEMENT * waves
    # The output is multiplied in pairs and converted; the recorded kernel did both in one, element by element.
    outputs = BM * D // MADE["waves"] // LANES
    assert difference["FMA_F16"] == -outputs * waves == -RECORDED["SQ_INSTS_VALU_FMA_F16"]
    assert difference["MUL_F32"] == outputs // 2 * waves


@pytest.mark.parametrize(("sequences", "heads"), [((129, 64), 1), ((1, 200, 128), 2)])
def test_the_counters_follow_from_tiles_and_blocks(sequences, heads):
    *arrays, counters = attend(sequences, heads)
    check_values(*arrays)
    tiles, blocks, waves = heads * tiles_of(sequences), heads * blocks_of(sequences), MADE["waves"]
    assert counters["SQ_INSTS_VALU_MFMA_MOPS_F16"] == tiles * 4 * BM * BN * D // 512
    scores = BM * BN // waves // LANES
    assert counters["SQ_INSTS_VALU_TRANS_F32"] == waves * ((scores + 1) * tiles + 2 * blocks)
    # Subtracting the maximum, summing a row's scores (two lanes hold it); the logarithm's two.
    assert counters["SQ_INSTS_VALU_ADD_F32"] == waves * ((2 * scores + 1) * tiles + 2 * blocks)
    assert counters["SQ_INSTS_VALU_FMA_F32"] == waves * ((scores + 1) * tiles + (1 + REFINEMENT) * blocks)


def test_recorded_counters_follow_from_tiles_and_blocks_with_one_multiply_add_for_a_division():
    tiles, blocks = tiles_of(RECORDED_SEQUENCES), blocks_of(RECORDED_SEQUENCES)
    waves = RECORDED_HEADS * MADE["waves"]
    assert RECORDED["SQ_INSTS_VALU_FMA_F32"] == waves * (33 * tiles + blocks)
    assert RECORDED["SQ_INSTS_VALU_MUL_F32"] == waves * (32 * tiles + blocks)


def test_a_short_division_counts_one_multiplication_one_fused_multiply_add_and_one_reciprocal():
    body = """\
\ts_load_dwordx4 s[20:23], s[0:1], 0x0
\tv_lshlrev_b32_e32 v9, 2, v0
\ts_waitcnt lgkmcnt(0)
\tglobal_load_dword v1, v9, s[20:21]
\ts_waitcnt vmcnt(0)
\tv_div_scale_f32 v2, s[30:31], v1, v1, 1.0
\tv_rcp_f32_e32 v3, v2
\tv_div_scale_f32 v4, vcc, 1.0, v1, 1.0
\tv_mul_f32_e32 v3, v4, v3
\tv_div_fmas_f32 v3, 0, 0, v3
\tv_div_fixup_f32 v3, v3, v1, 1.0
\tglobal_store_dword v9, v3, s[22:23]"""
    given, found = np.linspace(1, 1e6, LANES, dtype=np.float32), np.zeros(LANES, np.float32)
    done = amdgcn.load(kernel_text(body, [POINTER] * 2))["k"].launch(1, LANES, [given, found])
    np.testing.assert_allclose(found, 1 / given.astype(np.float64), rtol=2**-22)
    counted = {name: done.counters.get(f"SQ_INSTS_VALU_{name}_F32", 0) for name in ("MUL", "FMA", "TRANS", "ADD")}
    assert counted == {"MUL": 1, "FMA": 1, "TRANS": 1, "ADD": 0}
