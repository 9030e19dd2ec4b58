"""Routes, grids, argument blocks and names."""

import dataclasses

import pytest
import rocke_by_facts
from hypothesis import given
from hypothesis import strategies as st

from kernbench.specs.rocke import (
    FmhaCommonSpec,
    FmhaShape,
    JengaSparseSpec,
    QkScaleSpec,
    SageAttentionSpec,
    VsaSparseSpec,
)

PER_HEAD = QkScaleSpec("per_head")
COMMON = FmhaCommonSpec(FmhaShape(128, 8, 2))
TAIL = ["scale_log2:f32", "seqlen_q:i32", "seqlen_k:i32"] + [
    f"stride_{t}_{axis}:i32" for t in "qkvo" for axis in ("token", "head")
]


def sage(mode="fp16_bf16", rows=64, keys=128, q_scale=PER_HEAD, k_scale=PER_HEAD, **changes):
    return SageAttentionSpec(dataclasses.replace(COMMON, **changes), mode, q_scale, k_scale, rows, keys)


def written(spec):
    return [f"{argument['name']}:{argument['type']}" for argument in spec.signature()]


def block(size):
    return QkScaleSpec("per_block", scale_block=size)


@pytest.mark.parametrize(
    ("spec", "route"),
    [
        (sage(), "mfma"),
        (sage("fp8_bf16"), "mfma"),
        (sage("i8_fp8_bf16"), "warp"),
        (sage("i4_fp8_bf16"), "warp"),
        (sage(rows=8), "warp"),
        (sage(keys=120), "warp"),
        (sage(q_scale=block(16), k_scale=block(48)), "mfma"),
        (sage(q_scale=block(8)), "warp"),
        (sage(k_scale=block(24)), "warp"),
        (JengaSparseSpec(COMMON, 64, 128), "mfma"),
        (VsaSparseSpec(COMMON, 64, 128), "mfma"),
    ],
)
def test_route_and_grid(spec, route):
    assert spec.route() == route
    rows = spec.seqlen_q // 16 if route == "mfma" else spec.seqlen_q
    assert spec.grid() == (rows, 8, 1)
    assert spec.block() == (64, 1, 1)


scales = st.just(PER_HEAD) | st.builds(block, st.integers(1, 128))


@given(st.sampled_from(["fp16_bf16", "fp8_bf16", "i8_fp8_bf16", "i4_fp8_bf16"]), st.integers(1, 200),
       st.integers(1, 200), scales, scales)  # fmt: skip
def test_the_route_is_that_of_the_facts(mode, rows, keys, q_scale, k_scale):
    spec = sage(mode, rows, keys, q_scale, k_scale)
    assert (spec.route() == "mfma") == rocke_by_facts.mfma_route(spec)
    assert spec.grid()[0] == (rows // 16 if spec.route() == "mfma" else rows)


@pytest.mark.parametrize(
    ("mode", "dtype", "kv", "codebooks", "nbytes"),
    [
        ("fp16_bf16", "f16", "f16", [], 92),
        ("fp16_bf16", "fp16", "f16", [], 92),
        ("fp16_bf16", "bf16", "bf16", [], 92),
        ("fp8_bf16", "bf16", "fp8e4m3", [], 92),
        ("i8_fp8_bf16", "f16", "i8", ["codebook_k:ptr<f32, global>", "codebook_v:ptr<f32, global>"], 108),
        ("i4_fp8_bf16", "f16", "i8", ["codebook_k:ptr<f32, global>", "codebook_v:ptr<f32, global>"], 108),
    ],
)
def test_arguments_of_sage(mode, dtype, kv, codebooks, nbytes):
    spec = sage(mode, dtype=dtype)
    io = "bf16" if dtype == "bf16" else "f16"
    assert written(spec) == [
        f"Q:ptr<{io}, global>", f"K:ptr<{kv}, global>", f"V:ptr<{kv}, global>", f"O:ptr<{io}, global>",
        "q_scale:ptr<f32, global>", "k_scale:ptr<f32, global>", *codebooks, *TAIL,
    ]  # fmt: skip
    assert spec.kernarg_bytes() == nbytes


def test_arguments_of_the_sparse_kernels():
    tensors = [f"{t}:ptr<f16, global>" for t in "QKVO"]
    jenga, vsa = JengaSparseSpec(COMMON, 64, 128), VsaSparseSpec(COMMON, 64, 128)
    assert written(jenga) == [*tensors, "mask:ptr<i8, global>", *TAIL]
    assert written(vsa) == [*tensors, "block_lut:ptr<i32, global>", "block_count:ptr<i32, global>", *TAIL]
    assert (jenga.kernarg_bytes(), vsa.kernarg_bytes()) == (84, 92)


def test_names():
    assert sage("fp8_bf16").kernel_name() == "rocke_sage_attention_fp8_bf16_H128_HQ8_HK2_f16_Q64_K128"
    assert sage(dtype="fp16").kernel_name().endswith("_fp16_Q64_K128")
    jenga = JengaSparseSpec(COMMON, 64, 128, 16, 32)
    assert jenga.kernel_name() == "rocke_jenga_sparse_attn_H128_HQ8_HK2_f16_Q64_K128_BQ16_BK32"
    vsa = VsaSparseSpec(COMMON, 64, 128, max_blocks_per_q=4, name="mine")
    assert vsa.kernel_name() == "mine_H128_HQ8_HK2_f16_Q64_K128_BQ1_BK64_MB4"


def test_names_collide_though_specs_differ():
    plain = sage()
    for other in (
        sage(mask_mode="causal"), sage(mask_mode="sliding_window", sliding_window=9), sage(k_scale=block(16)),
        dataclasses.replace(plain, use_outer_scale_loop=True), sage(use_softcap=True),
    ):  # fmt: skip
        assert other != plain
        assert other.kernel_name() == plain.kernel_name()


def test_lds():
    small = FmhaCommonSpec(FmhaShape(64, 2, 2))
    assert JengaSparseSpec(small, 64, 256).lds_bytes() == 516
    assert VsaSparseSpec(small, 64, 512).lds_bytes() == 520
    assert JengaSparseSpec(COMMON, 64, 4096, block_k=128).lds_bytes() == 544
    assert sage().lds_bytes() == sage("fp8_bf16").lds_bytes() == 512
    assert (sage("i8_fp8_bf16").lds_bytes(), sage("i4_fp8_bf16").lds_bytes()) == (2048, 128)
    assert sage(rows=8).lds_bytes() == 0


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 70), st.integers(1, 70))
def test_block_counts_round_up(rows, keys, block_q, block_k):
    for kind in (JengaSparseSpec, VsaSparseSpec):
        spec = kind(COMMON, rows, keys, block_q, block_k)
        assert (spec.num_q_blocks - 1) * block_q < rows <= spec.num_q_blocks * block_q
        assert (spec.num_k_blocks - 1) * block_k < keys <= spec.num_k_blocks * block_k
        assert [spec.q_block_of_tile(t) for t in range(3)] == [0, 16 // block_q, 32 // block_q]
