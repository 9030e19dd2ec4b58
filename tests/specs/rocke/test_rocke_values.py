"""What the kernels compute: the float64 references, the faithful ones, and the cases where they surprise."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest
import rocke_by_facts as facts
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.errors import InputError
from kernbench.specs.rocke import (
    FmhaCommonSpec,
    FmhaShape,
    JengaSparseSpec,
    QkScaleSpec,
    RockeSpecError,
    SageAttentionSpec,
    VsaSparseSpec,
    jenga_faithful,
    jenga_reference,
    sage_faithful,
    sage_reference,
    vsa_faithful,
    vsa_reference,
)
from kernbench.specs.rocke.layouts import encode_fp8, make_scales, pack_i4

PER_HEAD = QkScaleSpec("per_head")
ONE = np.ones(1, np.float32)
ULP = {"f16": 2.0**-11, "bf16": 2.0**-8}
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
BF16 = ml_dtypes.bfloat16


def common(d=64, heads=2, kv=2, **options):
    return FmhaCommonSpec(FmhaShape(d, heads, kv), **options)


def log2_scale(spec):
    return math.log2(math.e) / math.sqrt(spec.common.head_size)


def dense(spec, seed=0, spread=1.0):
    """Random q, k and v in the spec's own format."""
    rng, shape = np.random.default_rng(seed), spec.common.shape
    kind = TYPES["bf16" if spec.common.dtype == "bf16" else "f16"]
    sizes = ((spec.seqlen_q, shape.num_query_heads), *[(spec.seqlen_k, shape.num_kv_heads)] * 2)
    return [(spread * rng.standard_normal((*size, shape.head_size))).astype(kind) for size in sizes]


def quantised(spec, seed=0, arch="gfx950"):
    """Random q, k, v for any quant mode, and the codebooks."""
    q, k, v = dense(spec, seed)
    if spec.quant_mode == "fp16_bf16":
        return (q, k, v), {}
    if spec.quant_mode == "fp8_bf16":
        return (q, *(encode_fp8(0.5 * x.astype(np.float32), arch) for x in (k, v))), {}
    rng = np.random.default_rng(seed + 1)
    if spec.quant_mode == "i8_fp8_bf16":
        books = {
            f"codebook_{n}": ((np.arange(256) - 128) / 64 * f).astype(np.float32) for n, f in (("k", 1), ("v", 0.9))
        }
        return (q, *(rng.integers(-128, 128, k.shape).astype(np.int8) for _ in "kv")), books
    books = {f"codebook_{n}": ((np.arange(16) - 8) / 4 * f).astype(np.float32) for n, f in (("k", 1), ("v", 0.9))}
    return (q, *(pack_i4(rng.integers(-8, 8, k.shape)) for _ in "kv")), books


def random_scales(spec, seed=0):
    """Both scale buffers, heads innermost, as the originals' tests lay them out."""
    rng, shape = np.random.default_rng(seed + 7), spec.common.shape
    return [
        make_scales(layout, rng.uniform(0.5, 1.5, (heads, layout.blocks(tokens))), tokens)
        for layout, heads, tokens in (
            (spec.q_scale, shape.num_query_heads, spec.seqlen_q), (spec.k_scale, shape.num_kv_heads, spec.seqlen_k),
        )
    ]  # fmt: skip


def by_block(size, heads):
    return QkScaleSpec("per_block", size, stride_head=1, stride_block=heads)


def close_enough(out, reference, mean_abs, element, keys):
    """The bound that a faithful result keeps: the roundings of weights and of the output, and float32 noise.

    Each output may differ from float64 by one rounding of itself and one of every weight, so by
    ``u * (|o| + mean of |v|)``, ``u`` half an ulp; plus 2**-14 of that mean for sums in float32 and 2**-25 a key for
    weights that are subnormal in f16.
    """
    u = ULP[element]
    bound = 1.01 * u * (np.abs(reference) + mean_abs) + 2.0**-14 * mean_abs + 2.0**-25 * keys * np.max(mean_abs)
    return np.all(np.abs(out.astype(np.float64) - reference) <= bound)


# Cases of the originals' own tests, by shape


@pytest.mark.parametrize(
    ("mode", "seed", "d", "q_s", "k_s", "tolerance"),
    [
        ("fp16_bf16", 70, 64, 1.0, 1.0, 5e-3),
        ("fp8_bf16", 80, 64, 1.5, 0.7, 5e-3),
        ("i8_fp8_bf16", 110, 64, 0.6, 1.3, 5e-2),
        ("i4_fp8_bf16", 120, 128, 0.6, 1.3, 5e-2),
    ],
)
def test_parity_cases_of_sage(mode, seed, d, q_s, k_s, tolerance):
    spec = SageAttentionSpec(common(d), mode, by_block(8, 2), by_block(32, 2), 8, 32)
    assert spec.route() == "warp"
    (q, k, v), books = quantised(spec, seed)
    scales = [np.full(2, q_s, np.float32), np.full(2, k_s, np.float32)]
    out = sage_faithful(spec, q, k, v, *scales, log2_scale(spec), **books)
    # The originals' reference rounds codebooks through fp8, their kernels do not: hence the wide tolerance.
    fp8 = {name: book.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) for name, book in books.items()}
    k32, v32 = (facts.widen_kv(spec, x, fp8.get(n), "gfx950") for n, x in (("codebook_k", k), ("codebook_v", v)))
    factor = np.full((8, 2, 32), log2_scale(spec) * q_s * k_s)
    expected = facts.softmax_attention(q, k32, v32, factor, np.ones((8, 32), bool))
    assert np.abs(out.astype(float) - expected).max() <= tolerance
    assert np.abs(out.astype(float)).max() > 1e-3
    reference = sage_reference(spec, q, k, v, *scales, log2_scale(spec), **books)
    assert np.abs(out.astype(float) - reference).max() <= 5e-3


def test_parity_case_of_jenga():
    spec = JengaSparseSpec(common(), 16, 64, block_q=1, block_k=32)
    q, k, v = dense(spec, 90)
    mask = np.tile(np.array([[0, 1]], np.int8), (16, 1))
    factor = np.full((16, 2, 64), log2_scale(spec))
    expected = facts.softmax_attention(q, k, v, factor, np.tile(np.arange(64) >= 32, (16, 1)))
    assert np.abs(jenga_faithful(spec, q, k, v, mask, log2_scale(spec)).astype(float) - expected).max() <= 5e-3
    np.testing.assert_allclose(jenga_reference(spec, q, k, v, mask, log2_scale(spec)), expected, atol=1e-7)


def test_parity_case_of_vsa():
    spec = VsaSparseSpec(common(), 16, 128, block_q=1, block_k=32, max_blocks_per_q=2)
    q, k, v = dense(spec, 100)
    lut, count = np.tile(np.array([[0, 3]], np.int32), (16, 1)), np.full(16, 2, np.int32)
    factor = np.full((16, 2, 128), log2_scale(spec))
    keep = np.tile(np.isin(np.arange(128) // 32, [0, 3]), (16, 1))
    expected = facts.softmax_attention(q, k, v, factor, keep)
    assert np.abs(vsa_faithful(spec, q, k, v, lut, count, log2_scale(spec)).astype(float) - expected).max() <= 5e-3
    np.testing.assert_allclose(vsa_reference(spec, q, k, v, lut, count, log2_scale(spec)), expected, atol=1e-7)


# Faithful results, bit for bit against the second model, and close to float64

sage_specs = st.builds(
    lambda mode, d, kv, group, element, mask, window, rows, keys, q_block, k_block: SageAttentionSpec(
        common(
            128 if mode == "i4_fp8_bf16" else d, kv * group, kv, dtype=element, mask_mode=mask, sliding_window=window
        ), mode, by_block(q_block, kv * group) if q_block else QkScaleSpec("per_head", stride_head=1),
        by_block(k_block, kv) if k_block else QkScaleSpec("per_head", stride_head=1), rows, keys,
    ),
    mode=st.sampled_from(["fp16_bf16", "fp8_bf16", "i8_fp8_bf16", "i4_fp8_bf16"]), d=st.sampled_from([64, 128, 192]),
    kv=st.integers(1, 2), group=st.sampled_from([1, 2, 6]), element=st.sampled_from(["f16", "bf16"]),
    mask=st.sampled_from(["none", "causal", "sliding_window"]), window=st.integers(1, 20),
    rows=st.sampled_from([1, 3, 16]), keys=st.sampled_from([1, 17, 32, 48]), q_block=st.sampled_from([0, 2, 16]),
    k_block=st.sampled_from([0, 5, 16, 32]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(sage_specs, st.sampled_from(["gfx942", "gfx950"]), st.integers(0, 99))
def test_sage_bit_for_bit(spec, arch, seed):
    check_sage(spec, arch, seed)


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["fp16_bf16", "fp8_bf16"])
@pytest.mark.parametrize("mask", ["none", "causal", "sliding_window"])
@pytest.mark.parametrize("k_scale", [QkScaleSpec("per_head", stride_head=1), by_block(32, 1), by_block(16, 1)])
def test_sage_on_the_mfma_route(element, mode, mask, k_scale):
    options = {"dtype": element, "mask_mode": mask, "sliding_window": 6}
    spec = SageAttentionSpec(common(64, 2, 1, **options), mode, by_block(16, 2), k_scale, 32, 64)
    assert spec.route() == "mfma"
    for arch in ("gfx942", "gfx950"):
        check_sage(spec, arch, 3)


def check_sage(spec, arch, seed):
    (q, k, v), books = quantised(spec, seed, arch)
    scales = random_scales(spec, seed)
    out = sage_faithful(spec, q, k, v, *scales, log2_scale(spec), arch=arch, **books)
    assert out.dtype == TYPES[spec.common.dtype]
    np.testing.assert_array_equal(out, facts.sage(spec, q, k, v, *scales, log2_scale(spec), arch, **books))
    reference = sage_reference(spec, q, k, v, *scales, log2_scale(spec), arch=arch, **books)
    mean_abs = sage_reference_of_abs(spec, q, k, v, scales, arch, books)
    assert close_enough(out, reference, mean_abs, spec.common.dtype, spec.seqlen_k)


def sage_reference_of_abs(spec, q, k, v, scales, arch, books):
    """The same attention over |V|."""
    shape, rows, keys = spec.common.shape, spec.seqlen_q, spec.seqlen_k
    k32, v32 = (facts.widen_kv(spec, x, books.get(f"codebook_{n}"), arch) for n, x in (("k", k), ("v", v)))
    factor = np.zeros((rows, shape.num_query_heads, keys))
    for row, head, key in np.ndindex(factor.shape):
        q_s = facts.scale_at(spec.q_scale, scales[0], head, row)
        k_s = facts.scale_at(spec.k_scale, scales[1], head // shape.num_queries_per_kv, key)
        factor[row, head, key] = log2_scale(spec) * float(q_s) * float(k_s)
    keep = facts.keep_by_position(spec.common.mask_mode, spec.common.sliding_window, rows, keys)
    np.testing.assert_allclose(
        sage_reference(spec, q, k, v, *scales, log2_scale(spec), arch=arch, **books),
        facts.softmax_attention(q, k32, v32, factor, keep), rtol=1e-6, atol=1e-6,
    )  # fmt: skip
    return facts.softmax_attention(q, k32, np.abs(v32), factor, keep)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([32, 64, 128]), st.sampled_from([(1, 1), (2, 1), (6, 1), (4, 2)]), st.sampled_from(["f16", "bf16"]),
    st.sampled_from([1, 5, 16, 24, 32, 100]), st.sampled_from([16, 32, 48]), st.integers(1, 3), st.integers(0, 99),
)  # fmt: skip
def test_sparse_bit_for_bit(d, heads, element, block_q, block_k, blocks, seed):
    c = common(d, *heads, dtype=element)
    jenga = JengaSparseSpec(c, 48, block_k * blocks, block_q, block_k)
    vsa = VsaSparseSpec(c, 48, block_k * blocks, block_q, block_k, max_blocks_per_q=4)
    rng = np.random.default_rng(seed)
    q, k, v = dense(jenga, seed)
    mask = rng.choice(np.array([0, 0, 1, -1, 2, 127], np.int8), (jenga.num_q_blocks, blocks))
    out = jenga_faithful(jenga, q, k, v, mask, log2_scale(jenga))
    assert out.dtype == TYPES[element]
    np.testing.assert_array_equal(out, facts.sparse(jenga, q, k, v, lambda i, j: mask[i, j] != 0, log2_scale(jenga)))
    reference = jenga_reference(jenga, q, k, v, mask, log2_scale(jenga))
    mean_abs = jenga_reference(jenga, q, k, np.abs(v), mask, log2_scale(jenga))
    assert close_enough(out, reference, mean_abs, element, jenga.seqlen_k)

    lut = rng.integers(0, blocks, (vsa.num_q_blocks, 4)).astype(np.int32)
    count = rng.integers(-2, 9, vsa.num_q_blocks).astype(np.int32)
    out = vsa_faithful(vsa, q, k, v, lut, count, log2_scale(vsa))
    listed = [set(row[: min(n, 4)] if n > 0 else ()) for row, n in zip(lut.tolist(), count.tolist(), strict=True)]
    np.testing.assert_array_equal(out, facts.sparse(vsa, q, k, v, lambda i, j: j in listed[i], log2_scale(vsa)))
    reference = vsa_reference(vsa, q, k, v, lut, count, log2_scale(vsa))
    mean_abs = vsa_reference(vsa, q, k, np.abs(v), lut, count, log2_scale(vsa))
    assert close_enough(out, reference, mean_abs, element, vsa.seqlen_k)


def test_results_do_not_depend_on_how_much_is_held_at_once(monkeypatch):
    spec = SageAttentionSpec(common(), "fp16_bf16", PER_HEAD, PER_HEAD, 16, 160)
    slow = dataclasses.replace(spec, seqlen_q=7)
    found = []
    for size in (1, 1 << 14, 1 << 20):
        monkeypatch.setattr("kernbench.specs.rocke.bodies._FLOATS_AT_ONCE", size)
        monkeypatch.setattr("kernbench.specs.rocke.reference._SCORES_AT_ONCE", size)
        for s in (spec, slow):
            found.append(sage_faithful(s, *dense(s), ONE, ONE, 0.2).tolist())
            found.append(np.round(sage_reference(s, *dense(s), ONE, ONE, 0.2), 12).tolist())
    assert found[0:4] == found[4:8] == found[8:12]


@pytest.mark.parametrize("accumulate", ["cdna2", "cdna3"])
def test_other_ways_to_add_stay_close(accumulate):
    spec = JengaSparseSpec(common(), 32, 64, 16, 16)
    q, k, v = dense(spec)
    mask = np.array([[1, 0, 1, 0], [0, 0, 1, 1]], np.int8)
    out = jenga_faithful(spec, q, k, v, mask, 0.2, accumulate=accumulate)
    mean_abs = jenga_reference(spec, q, k, np.abs(v), mask, 0.2)
    assert close_enough(out, jenga_reference(spec, q, k, v, mask, 0.2), mean_abs, "f16", 64)
    with pytest.raises(InputError, match="k_order"):
        jenga_faithful(spec, q, k, v, mask, 0.2, accumulate="fast")


# Rows without a kept key


@pytest.mark.parametrize("rows", [32, 31])
def test_an_empty_row_of_sage_is_the_mean_of_v(rows):
    spec = SageAttentionSpec(
        common(mask_mode="sliding_window", sliding_window=4), "fp16_bf16", PER_HEAD, PER_HEAD, rows, 16
    )
    q, k, v = dense(spec)
    empty = np.arange(rows) - 15 >= 4  # even the last key is too far behind
    mean = v.astype(float).mean(axis=0)
    for out in (sage_reference(spec, q, k, v, ONE, ONE, 0.2), sage_faithful(spec, q, k, v, ONE, ONE, 0.2)):
        np.testing.assert_allclose(out[empty].astype(float), np.broadcast_to(mean, out[empty].shape), atol=5e-4)
        assert np.abs(out[~empty].astype(float) - mean).max() > 0.1
    zero = sage_reference(spec, q, k, v, ONE, ONE, 0.2, empty_rows="zero")
    assert not zero[empty].any()
    np.testing.assert_array_equal(zero[~empty], sage_reference(spec, q, k, v, ONE, ONE, 0.2)[~empty])


def test_an_empty_tile_of_the_sparse_kernels_is_the_mean_of_v():
    jenga, vsa = JengaSparseSpec(common(), 48, 64, 16, 32), VsaSparseSpec(common(), 48, 64, 16, 32, 2)
    q, k, v = dense(jenga)
    mean = np.broadcast_to(v.astype(float).mean(axis=0), (16, 2, 64))
    mask = np.array([[1, 1], [0, 0], [1, 0]], np.int8)
    lut, zero, negative = np.zeros((3, 2), np.int32), np.array([1, 0, 1], np.int32), np.array([1, -5, 1], np.int32)
    for out in (
        jenga_faithful(jenga, q, k, v, mask, 0.2), jenga_reference(jenga, q, k, v, mask, 0.2),
        vsa_faithful(vsa, q, k, v, lut, zero, 0.2), vsa_reference(vsa, q, k, v, lut, negative, 0.2),
    ):  # fmt: skip
        np.testing.assert_allclose(out[16:32].astype(float), mean, atol=5e-4)
    assert not jenga_reference(jenga, q, k, v, mask, 0.2, empty_rows="zero")[16:32].any()


def test_masked_tiles_before_the_first_kept_one_leave_no_trace():
    spec = JengaSparseSpec(common(), 16, 64, 16, 16)
    q, k, v = dense(spec)
    alone = JengaSparseSpec(common(), 16, 16, 16, 16)
    late = jenga_faithful(spec, q, k, v, np.array([[0, 0, 0, 1]], np.int8), 0.2)
    np.testing.assert_array_equal(late, jenga_faithful(alone, q, k[48:], v[48:], np.ones((1, 1), np.int8), 0.2))


def test_an_infinite_value_poisons_even_where_it_is_masked():
    spec = JengaSparseSpec(common(), 16, 32, 16, 16)
    q, k, v = dense(spec)
    v[20, 1, 5] = np.inf
    mask = np.array([[1, 0]], np.int8)
    for out in (jenga_faithful(spec, q, k, v, mask, 0.2), jenga_reference(spec, q, k, v, mask, 0.2)):
        assert np.isnan(out[:, 1, 5].astype(float)).all()
        assert np.isfinite(np.delete(out[:, 1].astype(float), 5, axis=1)).all()


@pytest.mark.parametrize("rows", [16, 5])
def test_scores_around_the_sentinel(rows):
    """Scores above -1e30 count, those far below it do not: then the sum is 0, and only the MFMA body has a guard."""
    spec = SageAttentionSpec(common(), "fp16_bf16", PER_HEAD, PER_HEAD, rows, 16)
    q, k, v = dense(spec)
    q[:], k[:] = 1, 1
    mean = np.broadcast_to(v.astype(float).mean(axis=0), q.shape)
    above = sage_faithful(spec, q, k, v, ONE, ONE, -5e29 / 64)
    np.testing.assert_allclose(above.astype(float), mean, atol=1e-3)
    below = sage_faithful(spec, q, k, v, ONE, ONE, -2e30 / 64).astype(float)
    assert not below.any() if rows == 16 else np.isnan(below).all()


# Which keys a row sees


def seen(out, keys):
    """Which keys contribute when V is the identity."""
    return [np.flatnonzero(row[0, :keys].astype(float)).tolist() for row in out]


def identity_values(spec):
    q, k, v = dense(spec)
    v[:] = 0
    for key in range(spec.seqlen_k):
        v[key, :, key] = 1
    return np.zeros_like(q), k, v


@pytest.mark.parametrize(("rows", "keys"), [(16, 32), (32, 16), (5, 9), (9, 5)])
def test_causal_is_aligned_top_left(rows, keys):
    spec = SageAttentionSpec(common(mask_mode="causal"), "fp16_bf16", PER_HEAD, PER_HEAD, rows, keys)
    q, k, v = identity_values(spec)
    expected = [list(range(min(row + 1, keys))) for row in range(rows)]
    assert seen(sage_faithful(spec, q, k, v, ONE, ONE, 0.2), keys) == expected
    assert seen(sage_reference(spec, q, k, v, ONE, ONE, 0.2), keys) == expected


@pytest.mark.parametrize(("rows", "keys"), [(16, 32), (5, 9)])
def test_the_window_keeps_the_future(rows, keys):
    spec = SageAttentionSpec(
        common(mask_mode="sliding_window", sliding_window=3), "fp16_bf16", PER_HEAD, PER_HEAD, rows, keys
    )
    q, k, v = identity_values(spec)
    expected = [list(range(max(0, row - 2), keys)) for row in range(rows)]
    assert seen(sage_faithful(spec, q, k, v, ONE, ONE, 0.2), keys) == expected
    assert seen(sage_reference(spec, q, k, v, ONE, ONE, 0.2), keys) == expected


def test_the_first_row_decides_for_its_tile():
    spec = JengaSparseSpec(common(), 32, 64, block_q=1, block_k=16)
    q, k, v = identity_values(spec)
    mask = np.ones((32, 4), np.int8)
    mask[0], mask[16] = [0, 1, 0, 0], [0, 0, -1, 0]
    expected = [list(range(16, 32))] * 16 + [list(range(32, 48))] * 16
    assert seen(jenga_faithful(spec, q, k, v, mask, 0.2), 64) == expected
    assert seen(jenga_reference(spec, q, k, v, mask, 0.2), 64) == expected


def test_blocks_of_24_rows():
    spec = JengaSparseSpec(common(), 48, 32, block_q=24, block_k=16)
    q, k, v = identity_values(spec)
    mask = np.array([[1, 0], [0, 1]], np.int8)
    out = seen(jenga_reference(spec, q, k, v, mask, 0.2), 32)
    assert out == [list(range(16))] * 32 + [list(range(16, 32))] * 16  # tile 1 starts in block 0, at row 16


def test_lists_may_repeat_and_come_in_any_order():
    spec = VsaSparseSpec(common(), 16, 64, 16, 16, 4)
    q, k, v = identity_values(spec)
    for lut, count in (([0, 3, 1, 2], 2), ([3, 0, 3, 0], 4), ([3, 0, 9, -7], 2)):
        out = vsa_faithful(spec, q, k, v, np.array([lut], np.int32), np.array([count], np.int32), 0.2)
        assert seen(out, 64)[0] == [*range(16), *range(48, 64)]
    out = vsa_reference(spec, q, k, v, np.array([[3, 0, 3, 0]], np.int32), np.array([99], np.int32), 0.2)
    assert seen(out, 64)[0] == [*range(16), *range(48, 64)]


@pytest.mark.parametrize("bad", [4, -1, 10**6])
def test_ids_out_of_range_are_errors_unless_compat(bad):
    spec = VsaSparseSpec(common(), 16, 64, 16, 16, 2)
    q, k, v = identity_values(spec)
    lut, count = np.array([[1, bad]], np.int32), np.array([2], np.int32)
    for compute in (vsa_reference, vsa_faithful):
        with pytest.raises(InputError, match=f"block id {bad} in row 0"):
            compute(spec, q, k, v, lut, count, 0.2)
        with pytest.warns(UserWarning, match="dropped"):
            out = compute(spec, q, k, v, lut, count, 0.2, compat=True)
        assert seen(out, 64)[0] == list(range(16, 32))


def test_rows_that_no_tile_reads_may_hold_anything():
    spec = VsaSparseSpec(common(), 16, 64, block_q=1, block_k=16, max_blocks_per_q=1)
    q, k, v = identity_values(spec)
    lut = np.full((16, 1), 999, np.int32)
    lut[0] = 2
    out = vsa_faithful(spec, q, k, v, lut, np.ones(16, np.int32), 0.2)
    assert seen(out, 64) == [list(range(32, 48))] * 16


def test_sparse_kernels_ignore_the_mask_mode_and_dead_flags_change_nothing():
    spec = JengaSparseSpec(common(), 32, 32, 16, 16)
    q, k, v = dense(spec)
    mask = np.ones((2, 2), np.int8)
    plain = jenga_faithful(spec, q, k, v, mask, 0.2)
    for options in ({"mask_mode": "causal"}, {"mask_mode": "alibi"}, {"use_softcap": True}, {"scale_log2": 3.0}):
        other = dataclasses.replace(spec, common=common(**options))
        np.testing.assert_array_equal(jenga_faithful(other, q, k, v, mask, 0.2), plain)
    sage = SageAttentionSpec(common(), "fp16_bf16", PER_HEAD, PER_HEAD, 32, 32)
    other = dataclasses.replace(sage, use_outer_scale_loop=True, common=common(use_rotary=True, use_dropout=True))
    np.testing.assert_array_equal(
        sage_faithful(sage, q, k, v, ONE, ONE, 0.2), sage_faithful(other, q, k, v, ONE, ONE, 0.2)
    )


# The run-time length


def test_the_mfma_body_drops_the_tail_and_the_warp_body_does_not():
    tiled = SageAttentionSpec(common(), "fp16_bf16", PER_HEAD, PER_HEAD, 16, 64)
    warp = dataclasses.replace(tiled, seqlen_q=5)
    for spec, used in ((tiled, 32), (warp, 39)):
        q, k, v = dense(spec)
        short = dataclasses.replace(spec, seqlen_k=used)
        for compute in (sage_faithful, sage_reference):
            out = compute(spec, q, k, v, ONE, ONE, 0.2, seqlen_k=39)
            np.testing.assert_allclose(
                out.astype(float), compute(short, q, k[:used], v[:used], ONE, ONE, 0.2).astype(float), atol=1e-12
            )


def test_no_keys_at_all():
    tiled = SageAttentionSpec(common(), "fp16_bf16", PER_HEAD, PER_HEAD, 16, 64)
    warp = dataclasses.replace(tiled, seqlen_q=5)
    for compute in (sage_faithful, sage_reference):
        assert not compute(tiled, *dense(tiled), ONE, ONE, 0.2, seqlen_k=15).astype(float).any()
        assert np.isnan(compute(warp, *dense(warp), ONE, ONE, 0.2, seqlen_k=0).astype(float)).all()
    sparse = JengaSparseSpec(common(), 16, 64)
    mask = np.ones((16, 1), np.int8)
    assert not jenga_faithful(sparse, *dense(sparse), mask, 0.2, seqlen_k=0).astype(float).any()


@pytest.mark.parametrize("length", [-1, 65])
def test_the_length_may_not_exceed_the_spec(length):
    spec = JengaSparseSpec(common(), 16, 64)
    with pytest.raises(InputError, match=r"0 \.\.\. 64"):
        jenga_faithful(spec, *dense(spec), np.ones((16, 1), np.int8), 0.2, seqlen_k=length)


# Quantised inputs


def test_the_same_bytes_mean_half_as_much_on_gfx942():
    spec = SageAttentionSpec(common(), "fp8_bf16", PER_HEAD, PER_HEAD, 16, 16)
    (q, k, v), _ = quantised(spec)
    k[k == 0x80] = v[v == 0x80] = 0  # -0 on gfx950, NaN on gfx942
    on_950 = sage_faithful(spec, np.zeros_like(q), k, v, ONE, ONE, 0.2, arch="gfx950").astype(float)
    on_942 = sage_faithful(spec, np.zeros_like(q), k, v, ONE, ONE, 0.2, arch="gfx942").astype(float)
    np.testing.assert_allclose(on_950, 2 * on_942, atol=1e-3)
    v[3, 1, 5] = 0x80
    assert np.isfinite(sage_faithful(spec, q, k, v, ONE, ONE, 0.2, arch="gfx950").astype(float)).all()
    assert np.isnan(sage_faithful(spec, q, k, v, ONE, ONE, 0.2, arch="gfx942")[:, 1, 5].astype(float)).all()


def test_i4_keeps_its_nibbles_in_order():
    spec = SageAttentionSpec(common(128), "i4_fp8_bf16", PER_HEAD, PER_HEAD, 1, 1)
    q, _, _ = dense(spec)
    codes = np.random.default_rng(0).integers(-8, 8, (1, 2, 128))
    book = np.arange(16, dtype=np.float32)
    for compute in (sage_faithful, sage_reference):
        out = compute(spec, q, pack_i4(codes), pack_i4(codes), ONE, ONE, 0.2, codebook_k=book, codebook_v=book)
        np.testing.assert_array_equal(out.astype(float), codes + 8.0)


def test_fp8_with_bf16_on_the_mfma_route():
    spec = SageAttentionSpec(common(dtype="bf16"), "fp8_bf16", PER_HEAD, PER_HEAD, 16, 32)
    (q, k, v), _ = quantised(spec)
    reference = sage_reference(spec, q, k, v, ONE, ONE, 0.2)
    assert np.abs(sage_faithful(spec, q, k, v, ONE, ONE, 0.2).astype(float) - reference).max() < 1e-2
    broken = sage_faithful(spec, q, k, v, ONE, ONE, 0.2, compat=True)
    assert broken.dtype == BF16
    half = dataclasses.replace(spec, common=common(dtype="f16"))
    as_half = sage_faithful(half, q.view(np.float16), k, v, ONE, ONE, 0.2)
    np.testing.assert_array_equal(broken.view(np.uint16), as_half.view(np.uint16))
    assert np.abs(broken.astype(float) - reference).max() > 0.5 * np.abs(reference).max()
    warp = dataclasses.replace(spec, seqlen_q=3)
    np.testing.assert_array_equal(
        sage_faithful(warp, q[:3], k, v, ONE, ONE, 0.2, compat=True), sage_faithful(warp, q[:3], k, v, ONE, ONE, 0.2)
    )


@pytest.mark.parametrize("mode", ["alibi", "custom"])
def test_masks_without_a_body(mode):
    warp = SageAttentionSpec(common(mask_mode=mode), "fp16_bf16", PER_HEAD, PER_HEAD, 5, 16)
    q, k, v = dense(warp)
    plain = dataclasses.replace(warp, common=common())
    for compute in (sage_faithful, sage_reference):
        with pytest.raises(RockeSpecError, match="nothing would be masked"):
            compute(warp, q, k, v, ONE, ONE, 0.2)
        unmasked = compute(warp, q, k, v, ONE, ONE, 0.2, compat=True)
        np.testing.assert_array_equal(unmasked, compute(plain, q, k, v, ONE, ONE, 0.2))
    tiled = dataclasses.replace(warp, seqlen_q=16)
    with pytest.raises(RockeSpecError, match="cannot be built"):
        sage_faithful(tiled, *dense(tiled), ONE, ONE, 0.2, compat=True)


def test_specs_that_cannot_be_had_are_refused():
    i4 = SageAttentionSpec(common(64), "i4_fp8_bf16", PER_HEAD, PER_HEAD, 1, 16)
    for compat in (False, True):
        with pytest.raises(RockeSpecError, match="128"):
            sage_reference(i4, *[np.zeros(1)] * 5, 0.2, compat=compat)
    vsa = VsaSparseSpec(common(), 16, 64, block_k=0)
    with pytest.raises(RockeSpecError, match="above 0"):
        vsa_reference(vsa, *[np.zeros(1)] * 5, 0.2)
    with pytest.raises(ZeroDivisionError):
        vsa_reference(vsa, *[np.zeros(1)] * 5, 0.2, compat=True)
    jenga = JengaSparseSpec(common(), 16, 64)
    mask = np.ones((16, 1), np.int8)
    with pytest.raises(InputError, match="32 lanes"):
        jenga_faithful(jenga, *dense(jenga), mask, 0.2, arch="gfx1151")
    assert jenga_reference(jenga, *dense(jenga), mask, 0.2, arch="gfx1151").shape == (16, 2, 64)


def test_tensors_that_do_not_fit_are_refused():
    spec = SageAttentionSpec(common(), "fp8_bf16", PER_HEAD, PER_HEAD, 16, 32)
    (q, k, v), _ = quantised(spec)
    with pytest.raises(InputError, match="q must be float16"):
        sage_reference(spec, q.astype(np.float32), k, v, ONE, ONE, 0.2)
    with pytest.raises(InputError, match="k must be uint8 or float8_e4m3fn of shape"):
        sage_reference(spec, q, k[:16], v, ONE, ONE, 0.2)
    with pytest.raises(InputError, match="v must be"):
        sage_reference(spec, q, k, v.view(ml_dtypes.float8_e4m3fnuz), ONE, ONE, 0.2)
    with pytest.raises(InputError, match="scale buffer"):
        sage_reference(dataclasses.replace(spec, k_scale=by_block(16, 2)), q, k, v, ONE, ONE, 0.2)
    i8 = dataclasses.replace(spec, quant_mode="i8_fp8_bf16")
    with pytest.raises(InputError, match="codebook_k"):
        sage_reference(i8, q, k.view(np.int8), v.view(np.int8), ONE, ONE, 0.2)


def test_fp8_tensors_may_carry_their_own_type():
    spec = SageAttentionSpec(common(), "fp8_bf16", PER_HEAD, PER_HEAD, 16, 32)
    (q, k, v), _ = quantised(spec)
    typed = [x.view(ml_dtypes.float8_e4m3fn) for x in (k, v)]
    np.testing.assert_array_equal(
        sage_faithful(spec, q, k, v, ONE, ONE, 0.2), sage_faithful(spec, q, *typed, ONE, ONE, 0.2)
    )
