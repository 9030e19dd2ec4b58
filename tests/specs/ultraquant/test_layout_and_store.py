"""Slots, codes, scales and the store: bit for bit what the description says."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernbench.errors import InputError
from kernbench.specs import ultraquant as uq
from kernbench.specs.ultraquant import layout

from . import independent as by_hand

FINITE = st.floats(-(2.0**100), 2.0**100, width=32)
GROUPS = arrays(np.float32, st.tuples(st.integers(1, 3), st.just(64)), elements=FINITE)


def spec_of(**changes):
    return uq.UltraQuantDecodeSpec(
        **({"num_seqs": 1, "num_kv_heads": 2, "num_partitions": 2, "padded_slot": 272, "query_group_size": 6} | changes)
    )


def random_bf16(rng, *shape):
    return rng.normal(size=shape).astype(ml_dtypes.bfloat16)


def test_the_code_table_is_e2m1():
    assert uq.E2M1.tolist() == [by_hand.fp4_value(n) for n in range(16)]
    assert np.signbit(uq.E2M1[8])
    theirs = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(uq.E2M1, theirs.astype(np.float32))


def test_scale_bytes_are_powers_of_two_with_a_sentinel_for_zero():
    values = layout.scale_values(np.arange(256, dtype=np.uint8))
    assert values[0] == 0
    assert np.isnan(values[255])
    assert values[1:255].tolist() == [by_hand.scale_value(b) for b in range(1, 255)]


def test_a_slot_is_272_bytes_without_gaps():
    parts = (layout.K_CODES, layout.K_SCALES, layout.V_CODES, layout.V_SCALES)
    assert [(p.start, p.stop) for p in parts] == [(0, 128), (128, 136), (136, 264), (264, 272)]


@given(st.binary(min_size=272, max_size=272), st.sampled_from([272, 276, 288, 512]))
def test_any_slot_round_trips_bit_for_bit(raw, padded):
    slot = np.frombuffer(raw, np.uint8)
    packed = uq.pack_slots(*uq.unpack_slots(slot), padded)
    assert packed[:272].tobytes() == raw
    assert not packed[272:].any()


@given(st.binary(min_size=272, max_size=272))
@settings(max_examples=20, deadline=None)
def test_dequantised_slots_are_what_a_scalar_reader_reads(raw):
    slot = np.minimum(np.frombuffer(raw, np.uint8), 250)  # below, so that everything is finite in float32
    k, v = uq.dequantise_slots(slot)
    assert [k.tolist(), v.tolist()] == by_hand.read_slot(slot.tobytes(), spec_of(num_kv_heads=1), 0, 0, 0)


@given(GROUPS)
@settings(deadline=None, max_examples=60)
def test_quantised_groups_are_those_of_a_scalar_quantiser(x):
    codes, scales = uq.quantise(x)
    for group, found, scale in zip(x.reshape(-1, 32), codes.reshape(-1, 32), scales.ravel(), strict=True):
        assert (found.tolist(), int(scale)) == by_hand.quantise_group(group)


@given(GROUPS)
def test_the_code_of_minus_zero_is_never_written_and_the_top_is_clipped(x):
    codes, scales = uq.quantise(x)
    assert not (codes == 8).any()
    back = uq.dequantise(codes, scales).reshape(-1, 32)
    amax = np.abs(x).reshape(-1, 32).max(axis=1)
    ordinary = amax > 2.0**-120
    assert (np.abs(back).max(axis=1)[ordinary] >= 0.66 * amax[ordinary]).all()  # 6 / 9.07
    assert (np.abs(back).max(axis=1)[ordinary] <= 1.34 * amax[ordinary]).all()


@given(st.integers(0, 2**32 - 1))
def test_groups_that_the_format_holds_come_back_unchanged(seed):
    rng = np.random.default_rng(seed)
    x = rng.choice(by_hand.LEVELS, size=(4, 32)) * 2.0 ** rng.integers(-60, 60, size=(4, 1))
    x[:, 0] = 6 * x[:, 0] / np.where(x[:, 0] == 0, 1, np.abs(x[:, 0]))  # some group may lose its 6: then it is finer
    x = uq.dequantise(*uq.quantise(x))
    np.testing.assert_array_equal(uq.dequantise(*uq.quantise(x)), x)


@pytest.mark.parametrize(
    ("y", "level"),
    [(-5, -6), (-3.5, -4), (-2.5, -3), (-1.75, -2), (-1.25, -1.5), (-0.75, -1), (-0.25, -0.5),
     (0.25, 0), (0.75, 0.5), (1.25, 1), (1.75, 1.5), (2.5, 2), (3.5, 3), (5, 4)],
)  # fmt: skip
def test_ties_go_to_the_lower_level(y, level):
    group = np.zeros(32)
    group[:2] = y, 6  # amax 6 gives a scale of 1
    codes, scales = uq.quantise(group)
    assert uq.dequantise(codes, scales)[:2].tolist() == [level, 6]


def test_the_scale_turns_over_at_half_a_power():
    """``e`` is log2(0.156 amax) rounded half up: 1 for amax up to sqrt(2) / 0.156 = 9.07, then 2."""
    for amax, scale in ((4.54, 127), (4.53, 126), (9.06, 127), (9.07, 128)):
        assert uq.quantise(np.full(32, amax)).scales.tolist() == [scale]


def test_a_group_of_zeros_is_all_zero_bytes():
    codes, scales = uq.quantise(np.zeros((2, 64)))
    assert not codes.any()
    assert not scales.any()


@pytest.mark.parametrize("amax", [1e-45, 1e-41, 1e-38, 5.2e-38, 5.4e-38, 1e-37, 1e38, 3.4e38])
def test_the_two_variants_differ_at_the_small_end_only(amax):
    """``e + 127`` falls to 0 and below where 0.156 amax < 2**-126.5, that is amax < 5.31e-38."""
    group = np.full(32, amax, np.float32)
    reference, triton = uq.quantise(group), uq.quantise(group, variant="triton")
    assert reference.scales[0] >= 1
    assert triton.scales[0] == (reference.scales[0] if amax > 5.31e-38 else 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_values_without_a_scale_are_refused(bad):
    with pytest.raises(InputError, match="finite"):
        uq.quantise(np.array([bad] + [1.0] * 31))


def test_rows_must_be_whole_groups_but_there_may_be_none():
    with pytest.raises(InputError, match="33 elements"):
        uq.quantise(np.ones(33))
    assert uq.quantise(np.ones((0, 64))).scales.shape == (0, 2)


def test_unknown_variants_are_refused():
    with pytest.raises(InputError, match="'reference' or 'triton'"):
        uq.quantise(np.ones(32), variant="torch")


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("padded", [272, 288])
def test_the_store_writes_the_slots_of_a_scalar_store(block, padded):
    rng = np.random.default_rng(block + padded)
    spec = spec_of(kv_block_size=block, padded_slot=padded, max_blocks_per_seq=3)
    cache = rng.integers(0, 256, size=spec.cache_shape(3), dtype=np.uint8)
    before = cache.copy()
    keys, values = random_bf16(rng, 5, 2, 256), random_bf16(rng, 5, 2, 256)
    mapping = np.array([3 * block - 1, 0, -1, block, 2 * block - 1])
    uq.store_tokens(spec, cache, keys, values, mapping)
    flat, expected = cache.tobytes(), bytearray(before.tobytes())
    for token, slot in enumerate(mapping):
        for head in range(2):
            at = spec.slot_address(*divmod(int(slot), block), head)
            if slot >= 0:
                expected[at : at + 272] = by_hand.make_slot(keys[token, head], values[token, head])
    assert flat == bytes(expected)


def test_both_store_variants_agree_but_for_rounding_at_boundaries():
    rng = np.random.default_rng(0)
    keys, values = random_bf16(rng, 500, 256), random_bf16(rng, 500, 256)
    a, b = uq.quantise_slots(keys, values), uq.quantise_slots(keys, values, variant="triton")
    np.testing.assert_array_equal(a[:, 136:], b[:, 136:])
    assert (a != b).mean() < 1e-3
    np.testing.assert_allclose(uq.rotate_keys(keys), uq.rotate_keys(keys, "triton"), atol=2e-6)


def test_what_is_stored_is_read_back_through_the_block_table():
    rng = np.random.default_rng(1)
    spec = spec_of(kv_block_size=32, max_blocks_per_seq=4)
    cache, table = uq.empty_cache(spec, 9), np.array([7, 2, 8, 0])
    keys, values = random_bf16(rng, 100, 2, 256), random_bf16(rng, 100, 2, 256)
    uq.store_tokens(spec, cache, keys, values, uq.slot_mapping(spec, table, 100))
    k_rot, v = uq.read_tokens(spec, cache, table, 100)
    np.testing.assert_array_equal(v, uq.dequantise(*uq.quantise(values)))
    k = k_rot @ uq.hadamard()
    for found, wanted in ((k, keys), (v, values)):
        error = np.linalg.norm(found - wanted.astype(float)) / np.linalg.norm(wanted.astype(float))
        assert 0.05 < error < 0.15  # 4 bits
    unused = np.setdiff1d(np.arange(9), table[:4])
    assert not cache[unused].any()


def test_misuse_of_the_store_is_refused():
    spec = spec_of()
    cache, kv = uq.empty_cache(spec, 2), np.ones((2, 2, 256))
    with pytest.raises(InputError, match="names a slot twice"):
        uq.store_tokens(spec, cache, kv, kv, np.array([3, 3]))
    with pytest.raises(InputError, match="the cache has 32"):
        uq.store_tokens(spec, cache, kv, kv, np.array([3, 32]))
    with pytest.raises(InputError, match="must have shape"):
        uq.store_tokens(spec, cache, kv[:1], kv, np.array([3, 4]))
    with pytest.raises(InputError, match="asks for uint8"):
        uq.store_tokens(spec, cache.astype(np.int8), kv, kv, np.array([3, 4]))
    with pytest.raises(InputError, match="names block 2"):
        uq.read_tokens(spec, cache, np.array([0, 2]), 17)
