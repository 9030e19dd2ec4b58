"""Loads and stores of every width, in global memory, buffers and scratch."""

import numpy as np
import pytest

from kernbench.errors import KernelError
from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import BITS, LANES, POINTER, kernel_text, signed, words

OLD = 0xAABBCCDD
LOADS = {
    "ubyte": lambda w: [w[0] & 255],
    "sbyte": lambda w: [signed(w[0], 8)],
    "ushort": lambda w: [w[0] & 0xFFFF],
    "sshort": lambda w: [signed(w[0], 16)],
    "dword": lambda w: w[:1],
    "dwordx2": lambda w: w[:2],
    "dwordx3": lambda w: w[:3],
    "dwordx4": lambda w: w[:4],
    "ubyte_d16": lambda w: [OLD & 0xFFFF0000 | w[0] & 255],
    "ubyte_d16_hi": lambda w: [OLD & 0xFFFF | (w[0] & 255) << 16],
    "sbyte_d16": lambda w: [OLD & 0xFFFF0000 | signed(w[0], 8) & 0xFFFF],
    "sbyte_d16_hi": lambda w: [OLD & 0xFFFF | (signed(w[0], 8) & 0xFFFF) << 16],
    "short_d16": lambda w: [OLD & 0xFFFF0000 | w[0] & 0xFFFF],
    "short_d16_hi": lambda w: [OLD & 0xFFFF | (w[0] & 0xFFFF) << 16],
}
STORES = {
    "byte": (1, lambda w: w[0].to_bytes(4, "little")[:1]),
    "short": (2, lambda w: w[0].to_bytes(4, "little")[:2]),
    "dword": (4, lambda w: w[0].to_bytes(4, "little")),
    "dwordx2": (8, lambda w: b"".join(x.to_bytes(4, "little") for x in w[:2])),
    "dwordx3": (12, lambda w: b"".join(x.to_bytes(4, "little") for x in w[:3])),
    "dwordx4": (16, lambda w: b"".join(x.to_bytes(4, "little") for x in w[:4])),
    "byte_d16_hi": (1, lambda w: w[0].to_bytes(4, "little")[2:3]),
    "short_d16_hi": (2, lambda w: w[0].to_bytes(4, "little")[2:4]),
}
BEFORE = """\
\ts_load_dwordx4 s[20:23], s[0:1], 0x0
\tv_lshlrev_b32_e32 v50, 5, v0
\ts_waitcnt lgkmcnt(0)
\tv_mov_b32_e32 v53, s21
\tv_add_co_u32_e32 v52, vcc, s20, v50
\tv_addc_co_u32_e32 v53, vcc, 0, v53, vcc
\tv_mov_b32_e32 v55, s23
\tv_add_co_u32_e32 v54, vcc, s22, v50
\tv_addc_co_u32_e32 v55, vcc, 0, v55, vcc
\ts_mov_b64 s[24:25], s[20:21]
\ts_mov_b64 s[26:27], 0x800
\ts_mov_b64 s[28:29], s[22:23]
\ts_mov_b64 s[30:31], 0x800
"""
"""32 bytes a lane: v50 is its offset, v[52:53] and v[54:55] its addresses, s[24:27] and s[28:31] are buffers."""
AT = {
    "global": ("{data}v[52:53]{more}, off offset:8", "v[54:55], {data}, off offset:8"),
    "flat": ("{data}v[52:53]{more} offset:8", "v[54:55], {data} offset:8"),
    "buffer": ("{data}v50{more}, s[24:27], 0 offen offset:8", "{data}, v50, s[28:31], 0 offen offset:8"),
    "scratch": ("{data}v51{more}, off offset:8", "v51, {data}, off offset:8"),
}


def launch(body, data, out, scratch=0, lds=0):
    text = kernel_text(BEFORE + body, [POINTER] * 2, scratch=scratch, lds=lds)
    return amdgcn.load(text)["k"].launch(1, LANES, [data, out])


@pytest.mark.parametrize("space", AT)
@pytest.mark.parametrize("name", LOADS)
def test_a_load(space, name):
    data = np.random.default_rng(1).integers(0, 2**32, (LANES, 8)).astype(np.uint32)
    count = len(LOADS[name]([0] * 4))
    row = f"v[10:{9 + count}]" if count > 1 else "v10"
    load = f"\t{space}_load_{name} {AT[space][0].format(data=row + ', ', more='')}"
    if space == "scratch":  # filled from memory first
        fill = "\tglobal_load_dwordx4 v[2:5], v[52:53], off offset:8\n\tv_mov_b32_e32 v51, 16\n\ts_waitcnt vmcnt(0)\n"
        load = f"{fill}\tscratch_store_dwordx4 v51, v[2:5], off offset:8\n{load}"
    body = f"\tv_mov_b32_e32 v10, {hex(OLD)}\n{load}\n\ts_waitcnt vmcnt(0) lgkmcnt(0)\n"
    body += "\n".join(f"\tglobal_store_dword v[54:55], v{10 + j}, off offset:{4 * j}" for j in range(count))
    out = np.zeros((LANES, 8), np.uint32)
    done = launch(body, data, out, scratch=64)
    expected = [[x & BITS for x in LOADS[name]([int(w) for w in lane[2:6]])] for lane in data]
    np.testing.assert_array_equal(out[:, :count], expected)
    assert (done.counters["scratch_bytes"] > 0) == (space == "scratch")
    assert done.counters["SQ_INSTS_VMEM_RD"] == 1 + (space == "scratch")


@pytest.mark.parametrize("space", AT)
@pytest.mark.parametrize("name", STORES)
def test_a_store(space, name):
    data = np.random.default_rng(2).integers(0, 2**32, (LANES, 8)).astype(np.uint32)
    nbytes, rule = STORES[name]
    row = f"v[2:{1 + nbytes // 4}]" if nbytes > 4 else "v2"
    body = "\tglobal_load_dwordx4 v[2:5], v[52:53], off\n\ts_waitcnt vmcnt(0)\n"
    store = f"\t{space}_store_{name} {AT[space][1].format(data=row)}\n"
    if space == "scratch":  # read back to memory
        body += "\tv_mov_b32_e32 v51, 16\n" + store + "\tscratch_load_dwordx4 v[6:9], v51, off offset:8\n"
        body += "\ts_waitcnt vmcnt(0)\n\tglobal_store_dwordx4 v[54:55], v[6:9], off offset:8"
    else:
        body += store
    out = np.zeros((LANES, 32), np.uint8)
    done = launch(body, data, out, scratch=64)
    for lane in range(LANES):
        assert out[lane, 8 : 8 + nbytes].tobytes() == rule([int(w) for w in data[lane]])
    assert not out[:, :8].any()
    assert not out[:, 8 + nbytes :].any()
    assert done.counters["global_write_bytes"] == LANES * (16 if space == "scratch" else nbytes)


def test_lanes_beyond_a_buffer_read_zeros_and_write_nothing():
    data = np.arange(LANES * 8, dtype=np.uint32) + 1
    out = np.zeros_like(data)
    body = """\
\ts_mov_b32 s26, 0x400
\ts_mov_b32 s30, 0x200
\tbuffer_load_dword v2, v50, s[24:27], 0 offen
\ts_waitcnt vmcnt(0)
\tv_add_u32_e32 v2, 5, v2
\tbuffer_store_dword v2, v50, s[28:31], 0 offen"""
    done = launch(body, data, out)
    assert out[::8].tolist() == [data[8 * lane] + 5 if lane < 16 else 0 for lane in range(LANES)]
    assert done.counters["global_read_bytes"] == 32 * 4
    assert done.counters["global_write_bytes"] == 16 * 4


def test_a_buffer_goes_straight_to_lds():
    data, out = words("u", 3), np.zeros((LANES, 8), np.uint32)
    body = """\
\tv_lshlrev_b32_e32 v2, 2, v0
\ts_mov_b32 m0, 64
\tbuffer_load_dword v2, s[24:27], 0 offen lds
\ts_waitcnt vmcnt(0)
\tds_read_b32 v3, v2 offset:64
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v[54:55], v3, off"""
    launch(body, data, out, lds=64 + 256)
    assert out[:, 0].tolist() == data.tolist()


def test_an_address_that_is_no_multiple_of_the_width_is_read():
    data, out = np.arange(LANES * 32, dtype=np.uint8), np.zeros((LANES, 8), np.uint32)
    body = "\tglobal_load_dwordx2 v[2:3], v[52:53], off offset:3\n\ts_waitcnt vmcnt(0)\n"
    launch(body + "\tglobal_store_dwordx2 v[54:55], v[2:3], off offset:2", data, out)
    rows, given = out.view(np.uint8).reshape(LANES, 32), data.reshape(LANES, 32)
    np.testing.assert_array_equal(rows[:, 2:10], given[:, 3:11])


def test_scratch_is_private_and_bounded():
    data, out = words("u", 4), np.zeros((LANES, 8), np.uint32)
    body = "\tscratch_store_dword off, v0, off offset:4\n\tscratch_load_dword v2, off, off offset:4\n"
    launch(body + "\ts_waitcnt vmcnt(0)\n\tglobal_store_dword v[54:55], v2, off", data, out, scratch=8)
    assert out[:, 0].tolist() == list(range(LANES))
    with pytest.raises(KernelError, match="of scratch at 0x10, out of bounds: there are 16"):
        launch("\tscratch_store_dword off, v0, off offset:16", data, out, scratch=8)


def test_one_line_of_64_bytes_is_counted_once():
    data, out = np.zeros(LANES * 8, np.uint32), np.zeros(LANES * 8, np.uint32)
    body = (
        "\tv_lshlrev_b32_e32 v2, 2, v0\n\tglobal_load_dword v3, v2, s[20:21]\n\tglobal_load_dword v4, v[52:53], off\n"
    )
    done = launch(body + "\tv_mov_b32_e32 v5, 0\n\tglobal_load_dword v6, v5, s[20:21] offset:62", data, out)
    assert done.counters["global_read_lines_64B"] == 256 // 64 + LANES * 32 // 64 + 2
