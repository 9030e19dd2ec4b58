"""Compiled attention kernels compute attention, and do the matrix and exponential work that their tiles need."""

import ml_dtypes
import numpy as np
import pytest

from kernbench.specs.correctness import compare, tolerance
from tests.realrun.amdgcn.compiled import LAUNCHES, decode, latent, load, paged, prefill, sparse, ultraquant

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
@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (lambda arch: decode(arch, 128, 193, "_bf16"), "bf16"),
        (lambda arch: decode(arch, 64, 193, "_fp8"), "f16"),
        (lambda arch: decode(arch, 64, 77, "_i8"), "f16"),
        (lambda arch: paged(arch, 193, batch=2), "f16"),
        (lambda arch: latent(arch, 200), "f16"),
        (lambda arch: sparse(arch, 200), "f16"),
        (lambda arch: ultraquant(arch, 101), "bf16"),
        (lambda arch: prefill(arch, 64, 97, False, name="_bf16", kind=ml_dtypes.bfloat16), "bf16"),
    ],
    ids=["bf16", "fp8", "i8", "paged", "latent", "sparse", "4 bits", "bf16 prefill"],
)
def test_every_family(arch, run, kind):
    o, reference, *_ = run(arch)
    found = compare(o, reference, tolerance(kind))
    assert found.passed, found


def test_the_oldest_architecture():
    for o, reference, *_ in (
        decode("gfx90a", 64, 193),
        decode("gfx90a", 64, 77, "_fp8"),
        prefill("gfx90a", 64, 97, True),
    ):
        found = compare(o, reference, tolerance("f16"))
        assert found.passed, found


@pytest.mark.parametrize("arch", ["gfx90a", *ARCHITECTURES])
def test_spilled_registers_come_back(arch):
    o, reference, spilled = prefill(arch, 128, 160, True, name="_spills")
    assert spilled.counters["scratch_bytes"] > 0
    assert compare(o, reference, tolerance("f16")).passed
    _, _, plain = prefill(arch, 128, 160, True)
    assert plain.counters["scratch_bytes"] == 0
    for name in ("SQ_INSTS_VALU_MFMA_MOPS_F16", "SQ_INSTS_VALU_TRANS_F32", "global_write_bytes"):
        assert spilled.counters[name] == plain.counters[name]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_sparse_kernel_multiplies_only_kept_blocks(arch):
    d, tile = 64, 64
    _, _, done, mask = sparse(arch, 256, heads=2)
    assert done.counters["SQ_INSTS_VALU_MFMA_MOPS_F16"] == 2 * int(mask.sum()) * 4 * tile * tile * d // MOPS


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
def test_decode_reads_the_cache_once_and_writes_o_m_and_l(arch):
    d, seqlen, kv_heads, group, splits = 128, 256, 2, 4, 2
    _, _, partial, _ = decode(arch, d, seqlen, kv_heads=kv_heads, group=group, splits=splits)
    cache = 2 * seqlen * kv_heads * d * 2
    queries = splits * kv_heads * group * d * 2
    assert partial.counters["global_read_bytes"] == cache + queries
    assert partial.counters["global_write_bytes"] == splits * kv_heads * group * (d + 2) * 4


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
