"""The decode: the bit-faithful reference against a second one, both against float64, and what must not pass."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.errors import InputError, SpecError
from kernbench.specs import ultraquant as uq
from kernbench.specs.reference import attention_reference

from . import independent as by_hand


class Case:
    """A spec with random inputs; blocks are shuffled and every byte that no token owns is random."""

    def __init__(self, lengths, *, seed=0, heads=1, spread=1.0, **settings):
        rng = np.random.default_rng(seed)
        block = settings.get("kv_block_size", 16)
        blocks = max(1, max(-(-n // block) for n in lengths))
        self.spec = uq.UltraQuantDecodeSpec(
            **({"num_seqs": len(lengths), "num_kv_heads": heads, "num_partitions": 2, "padded_slot": 272,
                "query_group_size": 6, "max_blocks_per_seq": blocks} | settings)
        )  # fmt: skip
        self.lengths = np.array(lengths)
        self.tables = rng.permutation(len(lengths) * blocks + 3)[: len(lengths) * blocks].reshape(len(lengths), blocks)
        self.query = (rng.normal(size=(len(lengths), heads * self.spec.query_group_size, 256)) * spread).astype(
            ml_dtypes.bfloat16
        )
        self.keys, self.values = (
            [rng.normal(size=(n, heads, 256)).astype(ml_dtypes.bfloat16) for n in lengths] for _ in "kv"
        )
        self.cache = uq.empty_cache(self.spec, self.tables.size + 3)
        junk = rng.normal(size=(2, self.cache.size // self.spec.padded_slot // heads, heads, 256))
        uq.store_tokens(self.spec, self.cache, *junk, np.arange(junk.shape[1]))
        for table, k, v in zip(self.tables, self.keys, self.values, strict=True):
            uq.store_tokens(self.spec, self.cache, k, v, uq.slot_mapping(self.spec, table, len(k)))

    @property
    def arguments(self):
        return self.spec, self.query, self.cache, self.tables, self.lengths

    def partials(self, **options):
        return uq.decode_partitions(*self.arguments, **options)


def cosine(a, b):
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return a @ b / np.sqrt((a @ a) * (b @ b))


def assert_partials_agree(found, expected):
    """The tolerances that a real run is held to."""
    out, sums, maxima = expected
    np.testing.assert_array_equal(np.isneginf(found.max_logits), np.isneginf(maxima))
    some = ~np.isneginf(maxima)
    np.testing.assert_allclose(found.max_logits[some], maxima[some], rtol=1e-5)
    np.testing.assert_allclose(found.exp_sums, sums, rtol=1e-3)
    assert (np.abs(found.out.astype(np.float64) - out) <= 2 * by_hand.bf16_ulp(out) + 1e-4).all()


def check(case):
    partials = case.partials()
    expected = by_hand.decode(*case.arguments)
    assert_partials_agree(partials, expected)
    final, truth = uq.reduce_partitions(partials), uq.decode_over_cache(*case.arguments)
    assert final.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(final, uq.decode_faithful(*case.arguments))
    merged = by_hand.reduce(*expected)
    assert (np.abs(final.astype(np.float64) - merged) <= 2 * by_hand.bf16_ulp(merged) + 1e-4).all()
    for b, n in enumerate(case.lengths):
        if n:
            assert cosine(final[b], truth[b]) > 0.9999
        else:
            assert not final[b].astype(float).any()
            assert not truth[b].any()


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 255, 256, 257])
@pytest.mark.parametrize("heads", [1, 2])
def test_sequences_around_tiles_and_tile_groups(length, heads):
    check(Case([length], seed=length, heads=heads))


@pytest.mark.parametrize(("group", "block"), [(6, 16), (8, 64), (16, 256), (6, 128), (16, 32)])
@pytest.mark.parametrize("per_partition", [1, 2])
def test_builds(group, block, per_partition):
    partitions = 3 if per_partition == 1 else 2
    case = Case(
        [600, 31], seed=group + block, query_group_size=group, kv_block_size=block, num_partitions=partitions,
        tile_groups_per_partition=per_partition, padded_slot=288,
    )  # fmt: skip
    check(case)


@given(st.data())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_any_decode(data):
    partitions, per_partition = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    most = min(partitions * per_partition * 256, 700)
    case = Case(
        data.draw(st.lists(st.integers(0, most), min_size=1, max_size=2)),
        seed=data.draw(st.integers(0, 2**32 - 1)),
        heads=data.draw(st.integers(1, 2)),
        spread=data.draw(st.sampled_from([0.1, 1.0, 4.0])),
        query_group_size=data.draw(st.sampled_from([6, 8, 16])),
        kv_block_size=data.draw(st.sampled_from([16, 32, 64, 128, 256])),
        num_partitions=partitions,
        tile_groups_per_partition=per_partition,
        softmax_scale=data.draw(st.sampled_from([None, 0.03])),
    )
    check(case)


def test_empty_partitions_still_store_neutral_results():
    partials = Case([300], num_partitions=8).partials()
    assert np.isneginf(partials.max_logits[:, :, 2:]).all()
    assert (partials.exp_sums[:, :, 2:] == 0).all()
    assert not partials.out[:, :, 2:].astype(float).any()
    assert np.isfinite(partials.max_logits[:, :, :2]).all()
    assert (partials.exp_sums[:, :, :2] >= 1).all()


def test_maxima_are_scaled_natural_logits():
    case = Case([200])
    k, _ = uq.read_tokens(case.spec, case.cache, case.tables[0], 200)
    scores = uq.rotate_queries(case.query[0]) @ k[:, 0].T / 16
    np.testing.assert_allclose(case.partials().max_logits[0, 0, 0], scores.max(axis=1), rtol=1e-5)
    sums = np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(case.partials().exp_sums[0, 0, 0], sums, rtol=1e-3)


def test_sums_and_maxima_come_in_the_order_of_the_arguments():
    assert list(uq.Partials.__dataclass_fields__) == [a.name for a in Case([1]).spec.signature()[:3]]


@pytest.mark.parametrize("token", [0, 16, 240, 256, 496, 592])
def test_a_dropped_tile_fails(token):
    case = Case([600], num_partitions=3)
    with pytest.raises(AssertionError):
        assert_partials_agree(case.partials(), by_hand.decode(*case.arguments, drop=(0, token)))


def test_a_dropped_tile_of_a_long_sequence_fails_in_the_final_cosine():
    case = Case([4096], num_partitions=16)
    truth = uq.decode_over_cache(*case.arguments)
    full = np.concatenate([np.arange(i, i + 16) for i in range(0, 4096, 16) if i != 2048])
    k, v = uq.read_tokens(case.spec, case.cache, case.tables[0], 4096)
    q = uq.rotate_queries(case.query).astype(float)
    dropped = attention_reference(q[:, None], k[None, full], v[None, full], 1 / 16)[:, 0]
    assert cosine(uq.decode_faithful(*case.arguments), truth) > 0.9999
    assert cosine(dropped, truth) < 0.9999


def test_heads_in_the_wrong_order_and_swapped_nibbles_fail():
    case = Case([100], heads=2)
    expected = by_hand.decode(*case.arguments)
    for wrong in (case.cache[:, :, ::-1], case.cache >> 4 | case.cache << 4):
        partials = uq.decode_partitions(case.spec, case.query, wrong, case.tables, case.lengths)
        with pytest.raises(AssertionError):
            assert_partials_agree(partials, expected)


def test_tiles_past_the_end_read_the_first_block_and_are_masked():
    """Table entries past the end may be anything; the first block's other slots are read, so NaN there spoils it."""
    case = Case([40], kv_block_size=64)
    clean = case.partials()
    case.spec = case.spec.replace(max_blocks_per_seq=4)
    case.tables = np.array([[case.tables[0, 0], -7, -7, -7]])
    np.testing.assert_array_equal(case.partials().out, clean.out)
    case.cache[case.tables[0, 0], 50:, :, 264:272] = 255
    assert np.isnan(case.partials().out[0, 0, 0].astype(float)).all()
    assert np.isfinite(clean.out.astype(float)).all()


def test_every_partitions_spare_tiles_read_the_first_block():
    case = Case([257], kv_block_size=16)
    case.cache[case.tables[0, 0], :, :, 264:272] = 255  # all of block 0: partition 0 owns it, partition 1 only peeks
    assert np.isnan(case.partials().out.astype(float)).all()


def test_a_block_that_does_not_exist_is_an_error():
    case = Case([40])
    case.tables[0, 2] = len(case.cache)
    with pytest.raises(InputError, match="the block table names block"):
        case.partials()


def test_compat_drops_what_the_partitions_do_not_cover():
    case = Case([700], num_partitions=2)
    with pytest.raises(SpecError, match="silently drop 188"):
        case.partials()
    with pytest.warns(uq.UpstreamDefectWarning, match="last 188 tokens"):
        dropped = case.partials(compat=True)
    case.lengths = np.array([512])
    np.testing.assert_array_equal(dropped.out, case.partials().out)
    case.lengths = np.array([700])
    assert cosine(uq.reduce_partitions(dropped), uq.decode_over_cache(*case.arguments)) < 0.95


def test_queries_that_come_rotated_give_the_same():
    case = Case([100], heads=2)
    spec = case.spec.replace(fuse_qrot=False)
    rotated = uq.rotate_queries(case.query).astype(ml_dtypes.bfloat16)
    found = uq.decode_partitions(spec, rotated, case.cache, case.tables, case.lengths)
    for name in ("out", "exp_sums", "max_logits"):
        np.testing.assert_array_equal(getattr(found, name), getattr(case.partials(), name))
    truth = uq.decode_over_cache(spec, rotated, case.cache, case.tables, case.lengths)
    np.testing.assert_array_equal(truth, uq.decode_over_cache(*case.arguments))


def test_partitions_do_not_change_the_answer():
    finals = []
    for partitions, per_partition in ((4, 1), (2, 2), (1, 4), (16, 1)):
        case = Case([1000, 5], num_partitions=partitions, tile_groups_per_partition=per_partition)
        finals.append(uq.decode_faithful(*case.arguments))
    for other in finals[1:]:
        assert cosine(finals[0], other) > 0.99999


def test_queries_that_overflow_saturate_or_spoil_their_row_as_asked():
    case = Case([20])
    case.query[0, 3] = 100  # the rotation gathers 256 * 100 / 16 = 1600 in element 0
    assert np.isfinite(case.partials().out.astype(float)).all()
    spoiled = np.isnan(case.partials(overflow="nan").out[0, 0, 0].astype(float)).any(axis=1)
    assert spoiled.tolist() == [False, False, False, True, False, False]


def test_the_float64_references_are_ordinary_attention():
    case = Case([70, 9, 0], heads=2, softmax_scale=0.1)
    exact = uq.decode_unquantised(case.spec, case.query, case.keys, case.values)
    unrounded = uq.decode_over_cache(*case.arguments, round_query=False)
    for b, n in enumerate(case.lengths[:2]):
        q = case.query[b, None, None]
        expected = attention_reference(q, case.keys[b][None], case.values[b][None], 0.1)
        np.testing.assert_array_equal(exact[b], expected[0, 0])
        k, v = uq.read_tokens(case.spec, case.cache, case.tables[b], n)
        expected = attention_reference(q, (k @ by_hand.HADAMARD)[None], v[None], 0.1)
        np.testing.assert_allclose(unrounded[b], expected[0, 0], atol=1e-12)
    assert not exact[2].any()
    rounded = uq.decode_over_cache(*case.arguments)
    assert 0.99 < cosine(rounded, unrounded) < 1
    assert 0.95 < cosine(unrounded, exact) < 0.9999


def test_mismatched_arrays_are_refused():
    case = Case([20], heads=2)
    spec, query, cache, tables, lengths = case.arguments
    for wrong in (
        (spec, query[:, :6], cache, tables, lengths),
        (spec, query, cache[:, :8], tables, lengths),
        (spec, query, cache, tables[:, :1], lengths),
        (spec, query, cache.view(np.int8), tables, lengths),
    ):
        with pytest.raises(InputError):
            uq.decode_partitions(*wrong)
    with pytest.raises(SpecError, match="shape"):
        uq.decode_partitions(spec, query, cache, tables, np.array([20, 20]))
    with pytest.raises(InputError, match="2 keys"):
        uq.decode_unquantised(spec, query, case.keys * 2, case.values)
