"""Moves between lanes: each lane's source, written as a function of its number."""

import numpy as np
import pytest

from tests.realrun.amdgcn.written import LANES, run, words

MOVES = {
    "v_mov_b32_dpp v10, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf": lambda i: i ^ 1,
    "v_mov_b32_dpp v10, v1 row_mirror row_mask:0xf bank_mask:0xf": lambda i: i ^ 15,
    "v_mov_b32_dpp v10, v1 row_half_mirror row_mask:0xf bank_mask:0xf": lambda i: i ^ 7,
    "v_mov_b32_dpp v10, v1 row_ror:4 row_mask:0xf bank_mask:0xf": lambda i: i & 48 | (i - 4) % 16,
    "v_mov_b32_dpp v10, v1 row_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:1": lambda i: i + 1 if i % 16 < 15 else None,
    "v_mov_b32_dpp v10, v1 row_shr:2 row_mask:0xf bank_mask:0xf bound_ctrl:1": lambda i: i - 2 if i % 16 > 1 else None,
    "v_mov_b32_dpp v10, v1 row_newbcast:3 row_mask:0xf bank_mask:0xf": lambda i: i & 48 | 3,
    "ds_swizzle_b32 v10, v1 offset:swizzle(SWAP,8)": lambda i: i ^ 8,
    "ds_swizzle_b32 v10, v1 offset:swizzle(REVERSE,16)": lambda i: i ^ 15,
    "ds_swizzle_b32 v10, v1 offset:swizzle(BROADCAST,4,2)": lambda i: i & ~3 | 2,
    'ds_swizzle_b32 v10, v1 offset:swizzle(BITMASK_PERM,"0i1pp")': lambda i: i & 32 | (i & 3) | 4 | (~i & 8),
    "ds_swizzle_b32 v10, v1 offset:0x401F": lambda i: i ^ 16,
    "ds_swizzle_b32 v10, v1 offset:0x80B1": lambda i: i ^ 1,
}


@pytest.mark.parametrize("text", MOVES)
def test_a_move_between_lanes(text):
    a = words("u", 9)
    (found,) = run(f"\tv_mov_b32_e32 v10, 7\n\t{text}", [a])
    sources = [MOVES[text](lane) for lane in range(LANES)]
    assert found.tolist() == [0 if source is None else a[source] for source in sources]


def test_lanes_without_a_source_keep_their_value():
    a = words("u", 9)
    (found,) = run("\tv_mov_b32_e32 v10, 7\n\tv_mov_b32_dpp v10, v1 row_shl:1 row_mask:0xf bank_mask:0xf", [a])
    assert found.tolist() == [7 if lane % 16 == 15 else a[lane + 1] for lane in range(LANES)]


def test_rows_and_banks_that_are_masked_keep_their_value():
    a = words("u", 9)
    (found,) = run(
        "\tv_mov_b32_e32 v10, 7\n\tv_mov_b32_dpp v10, v1 quad_perm:[0,1,2,3] row_mask:0x5 bank_mask:0x3", [a]
    )
    written = [lane // 16 in (0, 2) and lane % 16 < 8 for lane in range(LANES)]
    assert found.tolist() == [a[lane] if written[lane] else 7 for lane in range(LANES)]


@pytest.mark.parametrize("width", [16, 32])
def test_rows_are_swapped(width):
    a, b = words("u", 1), words("u", 2)
    body = f"\tv_mov_b32_e32 v10, v1\n\tv_mov_b32_e32 v11, v2\n\ts_nop 1\n\tv_permlane{width}_swap_b32_e32 v10, v11"
    first, second = run(body, [a, b], 2, "gfx950")
    for lane in range(LANES):
        odd = lane // width % 2
        assert first[lane] == (b[lane - width] if odd else a[lane])
        assert second[lane] == (b[lane] if odd else a[lane + width])


def test_permutes_read_and_send():
    a = words("u", 3)
    order = np.random.default_rng(0).permutation(LANES)
    at = (4 * order).astype(np.uint32)
    found, sent = run("\tds_bpermute_b32 v10, v2, v1\n\tds_permute_b32 v11, v2, v1", [a, at], 2)
    assert found.tolist() == a[order].tolist()
    assert sent[order].tolist() == a.tolist()


def test_one_lane_is_read_and_written():
    a = words("u", 3)
    body = """\
\tv_readlane_b32 s30, v1, 5
\tv_mov_b32_e32 v10, v1
\tv_writelane_b32 v10, s30, 9
\ts_mov_b64 exec, 0xff00
\tv_readfirstlane_b32 s31, v1
\ts_mov_b64 exec, -1
\tv_mov_b32_e32 v11, s31"""
    written, first = run(body, [a], 2)
    assert written.tolist() == [a[5] if lane == 9 else a[lane] for lane in range(LANES)]
    assert (first == a[8]).all()


def test_inactive_lanes_are_not_written():
    (found,) = run("\tv_mov_b32_e32 v10, 1\n\ts_mov_b32 exec_hi, 0\n\tv_mov_b32_e32 v10, 2\n\ts_mov_b64 exec, -1", [])
    assert found.tolist() == [2] * 32 + [1] * 32
