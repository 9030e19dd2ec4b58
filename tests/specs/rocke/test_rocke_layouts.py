"""fp8 bytes, packed i4, scale buffers, strides, bitmaps and lists, against code of the tests' own."""

import numpy as np
import pytest
import rocke_by_facts
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import InputError
from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape, JengaSparseSpec, QkScaleSpec, VsaSparseSpec
from kernbench.specs.rocke.layouts import (
    decode_fp8,
    encode_fp8,
    fp8_dtype,
    make_scales,
    pack_i4,
    read_scales,
    stride_arguments,
    token_major,
    unpack_i4,
)
from kernbench.specs.rocke.sparsity import (
    bitmap_from_lut,
    delta_from_lut,
    density,
    jenga_bitmap,
    kept_by_jenga,
    kept_by_vsa,
    lut_from_bitmap,
    lut_from_delta,
    shared_by_heads,
    vsa_lut,
)

FP8_ARCHES = ["gfx942", "gfx950"]
COMMON = FmhaCommonSpec(FmhaShape(64, 2, 2))


# fp8


@pytest.mark.parametrize("arch", FP8_ARCHES)
def test_every_fp8_byte(arch):
    table = [rocke_by_facts.fp8_value(byte, arch) for byte in range(256)]
    np.testing.assert_array_equal(decode_fp8(np.arange(256, dtype=np.uint8), arch), np.array(table, np.float32))


def test_the_two_encodings_differ_by_a_factor_of_two():
    byte = encode_fp8(np.array([1.0]), "gfx950")
    assert decode_fp8(byte, "gfx942").item() == 0.5
    assert np.isnan(decode_fp8(np.array([0x80], np.uint8), "gfx942")).all()
    assert decode_fp8(np.array([0x80], np.uint8), "gfx950").item() == 0


@pytest.mark.parametrize("arch", FP8_ARCHES)
@given(value=st.floats(-600, 600, width=32))
def test_encoding_picks_the_nearest_even(arch, value):
    table = np.array([rocke_by_facts.fp8_value(byte, arch) for byte in range(256)])
    distance = np.abs(table - value)
    best = np.flatnonzero(distance == np.nanmin(distance))
    byte = int(encode_fp8(np.array([value]), arch)[0])
    assert byte in best or table[byte] == 0 == table[best].min()
    if len({abs(table[b]) for b in best}) > 1:  # a tie
        assert byte % 2 == 0


@pytest.mark.parametrize("arch", FP8_ARCHES)
def test_encoding_saturates_unless_told_not_to(arch):
    largest = {"gfx942": 240, "gfx950": 448}[arch]
    assert decode_fp8(encode_fp8(np.array([1e4, -1e4]), arch), arch).tolist() == [largest, -largest]
    assert np.isnan(decode_fp8(encode_fp8(np.array([1e4]), arch, saturate=False), arch)).all()


def test_fp8_is_an_error_elsewhere():
    with pytest.raises(InputError, match="gfx90a"):
        fp8_dtype("gfx90a")


# i4


def test_the_low_nibble_comes_first():
    assert pack_i4(np.array([3, -2])).tolist() == [0xE3]
    assert unpack_i4(np.array([0xE3], np.uint8)).tolist() == [3, -2]
    assert unpack_i4(np.array([-29], np.int8)).tolist() == [3, -2]


@given(st.lists(st.tuples(st.integers(-8, 7), st.integers(-8, 7)), min_size=1))
def test_i4_round_trips(pairs):
    flat = np.array(pairs).reshape(1, -1)
    packed = pack_i4(flat)
    assert packed.tolist()[0] == [low % 16 + 16 * (high % 16) for low, high in pairs]
    np.testing.assert_array_equal(unpack_i4(packed), flat)


@pytest.mark.parametrize("bad", [np.array([8, 0]), np.array([-9, 0]), np.array([1, 2, 3]), np.array([0.5, 1])])
def test_i4_refuses(bad):
    with pytest.raises(InputError, match="i4"):
        pack_i4(bad)


# tensors and strides


def test_token_major_and_strides():
    x = np.arange(2 * 3 * 4, dtype=np.float16).reshape(2, 3, 4)
    assert token_major(x).shape == (3, 2, 4)
    assert token_major(x)[1, 0].tolist() == x[0, 1].tolist()
    np.testing.assert_array_equal(token_major(x[None]), token_major(x))
    with pytest.raises(InputError, match="one batch"):
        token_major(np.zeros((2, 2, 2, 2)))
    q, kv = np.zeros((16, 4, 64), np.float16), np.zeros((64, 2, 32), np.uint8)
    assert stride_arguments(q, kv, kv, q) == {
        "stride_q_token": 256, "stride_q_head": 64, "stride_k_token": 64, "stride_k_head": 32,
        "stride_v_token": 64, "stride_v_head": 32, "stride_o_token": 256, "stride_o_head": 64,
    }  # fmt: skip
    with pytest.raises(InputError, match="contiguous"):
        stride_arguments(q.swapaxes(0, 2), kv, kv, q)


# scales


@given(st.integers(1, 4), st.integers(1, 70), st.integers(1, 40), st.booleans())
def test_scales_are_read_where_they_were_written(heads, tokens, size, block_major):
    blocks = -(-tokens // size)
    strides = (1, heads) if block_major else (blocks, 1)
    spec = QkScaleSpec("per_block", size, stride_head=strides[0], stride_block=strides[1])
    values = np.random.default_rng(0).random((heads, blocks)).astype(np.float32)
    buffer = make_scales(spec, values, tokens)
    assert buffer.size == heads * blocks
    found = read_scales(spec, buffer, heads, tokens)
    for head in range(heads):
        for token in range(tokens):
            assert found[head, token] == values[head, token // size]
            assert found[head, token] == rocke_by_facts.scale_at(spec, buffer, head, token)
            assert spec.offset(head, token) == head * strides[0] + token // size * strides[1]


def test_heads_share_their_scales_by_default():
    spec = QkScaleSpec("per_head")
    assert read_scales(spec, np.array([0.5], np.float32), heads=3, tokens=2).tolist() == [[0.5, 0.5]] * 3
    assert make_scales(spec, np.full((3, 1), 2.0), tokens=5).tolist() == [2.0]
    with pytest.raises(InputError, match="same element"):
        make_scales(spec, np.array([[1.0], [2.0]]), tokens=5)


def test_scale_buffers_are_checked():
    spec = QkScaleSpec("per_block", 16, stride_head=4)
    with pytest.raises(InputError, match="element 7"):
        read_scales(spec, np.ones(7, np.float32), heads=2, tokens=64)
    with pytest.raises(InputError, match="float32"):
        read_scales(spec, np.ones(8), heads=2, tokens=64)
    with pytest.raises(InputError, match="shape"):
        make_scales(spec, np.ones((2, 3)), tokens=64)
    with pytest.raises(InputError, match="before the buffer"):
        read_scales(QkScaleSpec("per_head", stride_head=-1), np.ones(8, np.float32), heads=2, tokens=4)


# bitmaps and lists

blocks_of_rows = st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=5)


@given(blocks_of_rows)
def test_bitmap_and_list_say_the_same(rows):
    jenga = JengaSparseSpec(COMMON, 16 * len(rows), 7 * 16, block_q=16, block_k=16)
    vsa = VsaSparseSpec(COMMON, 16 * len(rows), 7 * 16, block_q=16, block_k=16, max_blocks_per_q=7)
    bitmap = jenga_bitmap(jenga, rows)
    lut, count = vsa_lut(vsa, [sorted(row, reverse=True) for row in rows])
    assert [set(np.flatnonzero(row)) for row in bitmap] == rows
    np.testing.assert_array_equal(bitmap_from_lut(lut, count, 7), bitmap)
    np.testing.assert_array_equal(bitmap_from_lut(*lut_from_bitmap(bitmap), 7), bitmap)
    np.testing.assert_array_equal(kept_by_jenga(jenga, bitmap), kept_by_vsa(vsa, lut, count))
    assert density(bitmap) == pytest.approx(sum(map(len, rows)) / (7 * len(rows)))


@given(blocks_of_rows)
def test_differences_become_ids_and_back(rows):
    vsa = VsaSparseSpec(COMMON, 16 * len(rows), 7 * 16, block_q=16, block_k=16, max_blocks_per_q=7)
    lut, count = vsa_lut(vsa, [sorted(row) for row in rows])
    delta = np.full(lut.shape, 77, np.int32)
    for i, row in enumerate(map(sorted, rows)):
        delta[i, : len(row)] = [block - before for block, before in zip(row, [0, *row], strict=False)]
    np.testing.assert_array_equal(lut_from_delta(delta, count), lut)
    np.testing.assert_array_equal(lut_from_delta(delta_from_lut(lut, count), count), lut)


def test_structures_of_all_heads():
    one = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(shared_by_heads(np.stack([one, one])[None]), one)
    with pytest.raises(InputError, match="unlike"):
        shared_by_heads(np.stack([one, one + 1])[None])
    with pytest.raises(InputError, match="shape"):
        shared_by_heads(np.stack([one, one]))


def test_lists_are_checked():
    jenga, vsa = JengaSparseSpec(COMMON, 16, 64, 16, 16), VsaSparseSpec(COMMON, 16, 64, 16, 16, 2)
    with pytest.raises(InputError, match="block id 4 in row 0"):
        jenga_bitmap(jenga, [[4]])
    with pytest.raises(InputError, match="block id -1"):
        vsa_lut(vsa, [[-1]])
    with pytest.raises(InputError, match="lists 3 blocks"):
        vsa_lut(vsa, [[0, 1, 2]])
    with pytest.raises(InputError, match="lists for 2"):
        vsa_lut(vsa, [[0], [1]])
    with pytest.raises(InputError, match="lists for 2"):
        jenga_bitmap(jenga, [[0], [1]])
    with pytest.raises(InputError, match="keeps 3 blocks"):
        lut_from_bitmap(np.array([[1, 1, 1]]), max_blocks_per_q=2)
    assert lut_from_bitmap(np.zeros((2, 3)))[0].shape == (2, 1)


def test_bitmaps_and_lists_of_the_wrong_kind_are_refused():
    jenga, vsa = JengaSparseSpec(COMMON, 16, 64, 16, 16), VsaSparseSpec(COMMON, 16, 64, 16, 16, 2)
    for bad in (np.ones((1, 3), np.int8), np.ones((1, 4), np.int32)):
        with pytest.raises(InputError, match="mask must be"):
            kept_by_jenga(jenga, bad)
    with pytest.raises(InputError, match="must be int32"):
        kept_by_vsa(vsa, np.zeros((1, 2), np.int64), np.zeros(1, np.int32))
