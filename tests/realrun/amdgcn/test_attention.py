"""Compiled attention kernels compute attention, and do the matrix and exponential work that their tiles need."""

import numpy as np
import pytest

from kernbench.specs.correctness import compare, tolerance
from tests.realrun.amdgcn.compiled import LAUNCHES, decode, load, prefill

ARCHITECTURES = ["gfx942", "gfx950"]
MOPS = 512
LANES = 64


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("d", "seqlen"), [(64, 300), (64, 512), (128, 193), (128, 65)])
def test_split_decode_and_its_reduction(arch, d, seqlen):
    o, reference, _, _ = decode(arch, d, seqlen)
    found = compare(o, reference, tolerance("f16"))
    assert found.passed, found


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d", "seqlen"), [(64, 1), (64, 97), (64, 128), (128, 200)])
def test_prefill(arch, d, seqlen, causal):
    o, reference, _ = prefill(arch, d, seqlen, causal)
    found = compare(o, reference, tolerance("f16"))
    assert found.passed, found


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("causal", [False, True])
def test_prefill_multiplies_and_exponentiates_what_its_tiles_hold(arch, causal):
    d, seqlen, heads = 64, 160, 2
    _, _, done = prefill(arch, d, seqlen, causal, heads)
    name = "prefill_d64" + "_causal" * causal
    rows, keys = (LAUNCHES[f"{name}.{arch}"]["constants"][n] for n in ("BM", "BN"))
    blocks = -(-seqlen // rows)
    ends = [min((b + 1) * rows, seqlen) if causal else seqlen for b in range(blocks)]
    tiles = heads * sum(-(-end // keys) for end in ends)
    assert done.counters["SQ_INSTS_VALU_MFMA_MOPS_F16"] == tiles * 4 * rows * keys * d // MOPS
    # One exponential for each score, and one for each row's maximum, which every lane pair holds twice.
    exponentials = tiles * (rows * keys + 2 * rows) // LANES
    assert done.opcodes["v_exp_f32_e32"] == exponentials


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_decode_reads_every_key_and_value_once(arch):
    d, seqlen, kv_heads, group, splits = 128, 256, 2, 4, 2
    _, _, partial, _ = decode(arch, d, seqlen, 1, kv_heads, group, splits)
    cache = 2 * seqlen * kv_heads * d * 2
    queries = splits * kv_heads * group * d * 2
    assert partial.counters["global_read_bytes"] == cache + queries
    assert partial.counters["global_write_bytes"] % (splits * kv_heads * group * 4) == 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_same_launch_gives_the_same_bytes_and_counts(arch):
    first, second = prefill(arch, 64, 97, True), prefill(arch, 64, 97, True)
    assert first[0].tobytes() == second[0].tobytes()
    assert first[2] == second[2]


def test_strict_costs_no_difference():
    kernel, made = load("reduce_d64", "gfx950")
    rng = np.random.default_rng(0)
    parts, m, l = (
        rng.random((2, 8, 4, 64), np.float32),
        rng.random((2, 8, 4), np.float32),
        np.ones((2, 8, 4), np.float32),
    )
    outputs = []
    for strict in (True, False):
        o = np.zeros((2, 4, 64), np.float16)
        kernel.launch((2, 4), 64 * made["waves"], [parts, m, l, o, 4, 8, None, None], made["lds_bytes"], strict)
        outputs.append(o)
    np.testing.assert_array_equal(*outputs)
    weights = np.exp2(m - m.max(1, keepdims=True))
    np.testing.assert_allclose(outputs[0], (parts * weights[..., None]).sum(1) / weights.sum(1)[..., None], rtol=2e-3)
