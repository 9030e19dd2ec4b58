"""The spec: which builds exist, how they are launched, where bytes lie, and who works on what."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import SpecError
from kernbench.specs import ultraquant as uq

SPECS = st.builds(
    uq.UltraQuantDecodeSpec,
    num_seqs=st.integers(1, 9),
    num_kv_heads=st.integers(1, 4),
    num_partitions=st.integers(1, 40),
    padded_slot=st.sampled_from([272, 276, 288, 512]),
    max_blocks_per_seq=st.integers(1, 64),
    softmax_scale=st.none() | st.floats(0.01, 1),
    query_group_size=st.sampled_from([6, 8, 16]),
    kv_block_size=st.sampled_from([16, 32, 64, 128, 256]),
    tile_groups_per_partition=st.integers(1, 5),
    fuse_qrot=st.booleans(),
)


def spec_of(**changes):
    return uq.UltraQuantDecodeSpec(
        **({"num_seqs": 1, "num_kv_heads": 1, "num_partitions": 2, "padded_slot": 272} | changes)
    )


@given(SPECS)
def test_every_build_in_the_legal_range_is_valid_on_gfx950_only(spec):
    assert spec.is_valid("gfx950") == (True, "ok")
    assert spec.check() is spec
    for arch in ("gfx90a", "gfx942", "gfx1151", "gfx1201", "gfx1250", "gfx11-generic"):
        ok, reason = spec.is_valid(arch)
        assert not ok
        assert arch in reason


@pytest.mark.parametrize(
    ("field", "bad"),
    [("query_group_size", q) for q in (1, 4, 7, 12, 32)]
    + [("kv_block_size", b) for b in (0, 1, 8, 48, 512)]
    + [("tile_groups_per_partition", t) for t in (0, -1)]
    + [("padded_slot", s) for s in (0, 268, 271, 273, 274)]
    + [(name, 0) for name in ("num_seqs", "num_kv_heads", "num_partitions", "max_blocks_per_seq")]
    + [("softmax_scale", x) for x in (np.inf, np.nan)],
)
def test_a_refusal_names_the_field_and_its_value(field, bad):
    spec = spec_of(**{field: bad})
    ok, reason = spec.is_valid("gfx950")
    assert not ok
    assert f"{field}={bad}" in reason
    with pytest.raises(SpecError, match=field):
        spec.check()


def test_an_unknown_arch_is_refused_with_the_nearest_name():
    assert spec_of().is_valid("gfx951") == (False, "unknown arch 'gfx951' (did you mean 'gfx950'?)")


def test_defaults_are_the_builders():
    spec = spec_of()
    assert (spec.max_blocks_per_seq, spec.query_group_size, spec.kv_block_size) == (512, 16, 16)
    assert (spec.tile_groups_per_partition, spec.fuse_qrot, spec.scale) == (1, True, 0.0625)
    assert spec_of(softmax_scale=0.5).scale == 0.5


def test_arguments_have_the_sum_before_the_maximum():
    arguments = spec_of(num_seqs=3, num_kv_heads=2, query_group_size=6, num_partitions=4).signature()
    assert [(a.name, a.dtype) for a in arguments] == [
        ("out", "bf16"), ("exp_sums", "f32"), ("max_logits", "f32"), ("query", "bf16"), ("kv_cache", "u8"),
        ("centroids", "f32"), ("block_tables", "i32"), ("seq_lens", "i32"),
    ]  # fmt: skip
    assert [a.shape for a in arguments] == [
        (3, 2, 4, 6, 256), (3, 2, 4, 6), (3, 2, 4, 6), (3, 12, 256), ("num_blocks", 16, 2, 272), (16,), (3, 512), (3,)
    ]  # fmt: skip


@pytest.mark.parametrize(("group", "nbytes"), [(6, 12096), (8, 13120), (16, 17216)])
def test_lds_bytes_are_those_of_the_compiled_kernel(group, nbytes):
    spec = spec_of(query_group_size=group)
    regions = spec.lds_regions()
    assert spec.lds_bytes == nbytes
    assert regions["q"] == (0, group * 512)
    assert regions["kv"] == (group * 512, 16 * 528)
    assert regions["centroids"] == (nbytes - 64, 64)
    assert spec.grid() == (1, 1, 2)
    assert spec.block() == (64, 1, 1)


@pytest.mark.parametrize(
    ("batch", "tokens", "sizes"),
    [(4, 2048, (16, 1)), (4, 16384, (64, 1)), (4, 75008, (512, 1)), (4, 262144, (512, 2)),
     (16, 16384, (64, 1)), (16, 65536, (256, 1)), (16, 131072, (256, 2)), (16, 262144, (256, 4)),
     (1, 1, (2, 1)), (8, 131072, (512, 1)), (9, 131072, (256, 2))],
)  # fmt: skip
def test_the_launcher_chooses_these_sizes(batch, tokens, sizes):
    assert uq.launch_sizes(batch, tokens) == sizes


@given(st.integers(1, 40), st.integers(1, 64), st.sampled_from([16, 32, 64, 128, 256]), st.integers(0, 600))
def test_what_the_launcher_chooses_covers_the_block_table(batch, blocks, block_size, splits):
    spec = uq.UltraQuantDecodeSpec.launched(
        num_seqs=batch, num_kv_heads=1, query_group_size=8, kv_block_size=block_size,
        max_blocks_per_seq=blocks, splits=splits,
    )  # fmt: skip
    assert spec.is_valid() == (True, "ok")
    assert spec.max_tokens >= blocks * block_size
    assert spec.num_partitions >= 2
    for size in (spec.num_partitions, spec.tile_groups_per_partition):
        assert size & (size - 1) == 0


def test_nonsense_is_not_sized():
    with pytest.raises(SpecError, match="at least 1"):
        uq.launch_sizes(0, 256)


def test_the_kernel_rotates_when_heads_lie_side_by_side():
    assert uq.rotates_in_kernel(256, 256)
    assert not uq.rotates_in_kernel(256, 256, 2)
    assert not uq.rotates_in_kernel(256, 320)
    assert not uq.rotates_in_kernel(128, 256)


@given(SPECS, st.data())
def test_slot_addresses_are_those_of_the_array(spec, data):
    block = data.draw(st.integers(0, 5))
    position = data.draw(st.integers(0, spec.kv_block_size - 1))
    head = data.draw(st.integers(0, spec.num_kv_heads - 1))
    shape = spec.cache_shape(6)
    assert spec.slot_address(block, position, head) == np.ravel_multi_index((block, position, head, 0), shape)


def test_queries_are_found_in_a_slice_of_qkv():
    spec = spec_of(num_seqs=3, num_kv_heads=2, query_group_size=6, stride_q_seq=(12 + 4) * 256)
    qkv = np.random.default_rng(0).normal(size=(3, 16, 256))
    np.testing.assert_array_equal(spec.gather_queries(qkv.ravel()), qkv[:, :12])
    assert spec.replace(stride_q_seq=None).query_offset(2, 5) == (2 * 12 + 5) * 256
    assert spec.replace(stride_q_head=512).query_offset(0, 5) == 5 * 512


@given(SPECS, st.integers(0, 20000))
def test_tile_groups_are_dealt_round_without_loss(spec, length):
    length = min(length, spec.max_tokens)
    groups = [list(spec.tile_groups(length, p)) for p in range(spec.num_partitions)]
    assert sorted(group for owned in groups for group in owned) == list(range(-(-length // 256)))
    for part, owned in enumerate(groups):
        assert all(group % spec.num_partitions == part for group in owned)
        assert len(owned) == spec.trips(length, part) <= spec.tile_groups_per_partition


@given(SPECS, st.integers(1, 20000))
def test_tiles_are_always_sixteen_and_hold_every_token_once(spec, length):
    length = min(length, spec.max_tokens)
    seen = []
    for part in range(spec.num_partitions):
        tiles = list(spec.tiles(length, part))
        assert len(tiles) == 16 * spec.trips(length, part)
        for tile in tiles:
            assert tile.position + 16 <= spec.kv_block_size
            assert tile.position == tile.start % spec.kv_block_size
            if tile.start >= length:
                assert (tile.valid, tile.block_index) == (0, 0)
            else:
                assert tile.block_index == tile.start // spec.kv_block_size
            seen += range(tile.start, tile.start + tile.valid)
    assert sorted(seen) == list(range(length))


def test_lengths_beyond_the_partitions_are_an_error_and_dropped_only_in_compat():
    spec = spec_of(num_seqs=2, tile_groups_per_partition=2)
    assert spec.max_tokens == 1024
    assert spec.attended_lengths([1024, 0]).tolist() == [1024, 0]
    with pytest.raises(SpecError, match=r"sequence 1 has 1025 tokens.*= 1024 are covered.*silently drop 1"):
        spec.attended_lengths([1024, 1025])
    with pytest.warns(uq.UpstreamDefectWarning, match="last 76 tokens of sequence 0 are dropped"):
        assert spec.attended_lengths([1100, 3], compat=True).tolist() == [1024, 3]


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize(("lengths", "message"), [([1], "shape"), ([1, -1], "sequence 1"), ([8193, 1], "sequence 0")])
def test_impossible_lengths_are_errors_even_in_compat(lengths, message, compat):
    with pytest.raises(SpecError, match=message):
        spec_of(num_seqs=2, num_partitions=64).attended_lengths(lengths, compat)


def test_bytes_are_those_of_the_kernel():
    assert (uq.SLOT_BYTES, uq.TILE_BYTES, uq.TILE_GROUP_BYTES) == (272, 4352, 69632)
    spec = spec_of(num_seqs=4, num_partitions=512, query_group_size=8, kv_block_size=64, max_blocks_per_seq=1172)
    work = uq.decode_work(spec, [75000] * 4)
    assert work.cache_bytes == 81_600_000
    assert work.tiles == 4 * 293 * 16
    assert work.loaded_bytes == 4 * 293 * 69632
    assert work.partial_bytes == 8_519_680
    assert work.query_bytes == 4 * 512 * 8 * 512
    assert work.empty_workgroups == 4 * (512 - 293)
    assert (work.score_dots, work.value_dots) == (work.tiles * 2, work.tiles * 16)
    assert work.reducer_bytes == 4 * 512 * 8 * (512 + 4 * 8)


@given(SPECS, st.data())
def test_work_adds_up(spec, data):
    most = min(spec.max_tokens, spec.max_blocks_per_seq * spec.kv_block_size)
    lengths = data.draw(st.lists(st.integers(0, most), min_size=spec.num_seqs, max_size=spec.num_seqs))
    work = uq.decode_work(spec, lengths)
    tiles = [t for n in lengths for p in range(spec.num_partitions) for t in spec.tiles(n, p)]
    assert work.tiles == len(tiles) * spec.num_kv_heads
    assert work.cache_bytes == sum(t.valid for t in tiles) * spec.num_kv_heads * 272 <= work.loaded_bytes
