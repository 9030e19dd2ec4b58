"""Reads and writes of LDS, of every width."""

import numpy as np
import pytest

from kernbench.errors import KernelError
from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import BITS, LANES, POINTER, kernel_text, run, signed, words


def elements(rows, bits):
    """Elements of registers ``[register, lane]``, lane by lane."""
    octets = np.ascontiguousarray(rows.T).view(np.uint8)
    if bits == 4:
        return np.stack([octets & 15, octets >> 4], axis=-1)
    return octets.view(np.uint16) if bits == 16 else octets


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_transposing_read(bits):
    data = np.random.default_rng(bits).integers(0, 2**32, (2, LANES)).astype(np.uint32)
    body = f"""\
\tv_lshlrev_b32_e32 v20, 3, v0
\tds_write_b64 v20, v[2:3]
\ts_waitcnt lgkmcnt(0)
\tds_read_b64_tr_b{bits} v[10:11], v20"""
    found = run(body, [data[0], *data], 2, "gfx950", lds=512)
    before = elements(data, bits).reshape(4, -1, 16)
    after = elements(found, bits).reshape(4, 16, -1)
    np.testing.assert_array_equal(after, before.transpose(0, 2, 1))


LOCAL = {
    "ds_write_b64 v20, v[2:3]\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b64 v[10:11], v20": lambda a, b: b,
    "ds_write_b128 v20, v[2:5]\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v10, v20 offset:4": lambda a, b: a,
    "ds_write_b64 v20, v[2:3]\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b128 v[10:13], v20": lambda a, b: b,
    "ds_write_b16 v20, v1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v10, v20": lambda a, b: a & 0xFFFF,
    "ds_write_b32 v20, v1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_u8 v10, v20 offset:2": lambda a, b: a >> 16 & 255,
    "ds_write2_b64 v20, v[4:5], v[2:3] offset1:1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b64 v[10:11], v20 offset:8": (
        lambda a, b: b
    ),
    "ds_write2_b64 v20, v[4:5], v[2:3] offset1:1\n\ts_waitcnt lgkmcnt(0)\n"
    "\tds_read2_b64 v[10:13], v20 offset0:1": lambda a, b: b,
    "ds_write2st64_b64 v20, v[4:5], v[2:3] offset1:2\n\ts_waitcnt lgkmcnt(0)\n"
    "\tds_read_b64 v[10:11], v20 offset:1024": lambda a, b: b,
    "ds_write2st64_b64 v20, v[4:5], v[2:3] offset1:2\n\ts_waitcnt lgkmcnt(0)\n"
    "\tds_read2st64_b64 v[10:13], v20 offset0:2": lambda a, b: b,
    "ds_write_b96 v20, v[2:4]\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b96 v[10:12], v20 offset:4": lambda a, b: a,
    "ds_write_b16_d16_hi v20, v1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_u16 v10, v20": lambda a, b: a >> 16,
    "ds_write_b32 v20, v1\n\tv_mov_b32_e32 v10, v2\n\ts_waitcnt lgkmcnt(0)\n\tds_read_u8_d16 v10, v20 offset:3": (
        lambda a, b: b & 0xFFFF0000 | a >> 24
    ),
    "ds_write_b32 v20, v1\n\tv_mov_b32_e32 v10, v2\n\ts_waitcnt lgkmcnt(0)\n\tds_read_u16_d16 v10, v20": (
        lambda a, b: b & 0xFFFF0000 | a & 0xFFFF
    ),
    "ds_write_b32 v20, v1\n\tv_mov_b32_e32 v10, v2\n\ts_waitcnt lgkmcnt(0)\n\tds_read_u8_d16_hi v10, v20": (
        lambda a, b: b & 0xFFFF | (a & 255) << 16
    ),
    "ds_write2st64_b32 v20, v1, v2 offset1:8\n\ts_waitcnt lgkmcnt(0)\n\tds_read2st64_b32 v[10:11], v20 offset0:8": (
        lambda a, b: b
    ),
    "ds_write_b8 v20, v1\n\tds_write_b8_d16_hi v20, v1 offset:1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_u16 v10, v20": (
        lambda a, b: a & 255 | (a >> 16 & 255) << 8
    ),
    "ds_write_b32 v20, v1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_i8 v10, v20 offset:1": lambda a, b: signed(a >> 8, 8),
    "ds_write_b32 v20, v1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_i16 v10, v20": lambda a, b: signed(a, 16),
    "ds_write_b32 v20, v1\n\tv_mov_b32_e32 v10, v2\n\ts_waitcnt lgkmcnt(0)\n\tds_read_u16_d16_hi v10, v20": (
        lambda a, b: b & 0xFFFF | a << 16
    ),
    "ds_write2_b32 v20, v1, v2 offset1:1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v10, v20 offset:4": lambda a, b: b,
    "ds_write_b64 v20, v[2:3]\n\ts_waitcnt lgkmcnt(0)\n\tds_read2_b32 v[10:11], v20 offset1:1": lambda a, b: b,
    "ds_write2st64_b32 v20, v1, v2 offset1:4\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v10, v20 offset:1024": (
        lambda a, b: b
    ),
    "ds_write_b32 v20, v1 offset:1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v10, v20 offset:1": lambda a, b: a,
}


@pytest.mark.parametrize("text", LOCAL)
def test_lds(text):
    a, b = words("u", 1), words("u", 2)
    (found,) = run(f"\tv_lshlrev_b32_e32 v20, 4, v0\n\t{text}", [a, b, a], lds=4096)
    assert found.tolist() == [LOCAL[text](int(x), int(y)) & BITS for x, y in zip(a, b, strict=True)]


def test_the_offset_is_added_in_32_bits():
    """A negative index plus its lower bound: compilers put the first into the register, the second into the offset."""
    a = words("u", 1)
    body = """\
\tv_lshlrev_b32_e32 v20, 2, v0
\tv_subrev_u32_e32 v21, 0x80, v20
\tds_write_b32 v20, v1
\tds_write2_b32 v21, v1, v1 offset0:32 offset1:32
\ts_waitcnt lgkmcnt(0)
\tds_read_b32 v12, v21 offset:128
\tds_read2_b32 v[10:11], v21 offset0:32 offset1:32"""
    found = run(body, [a], 3, lds=256)
    np.testing.assert_array_equal(found, [a] * 3)


TO_LDS = """\
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v2, 2, v0
\tv_readfirstlane_b32 s8, v2
\ts_mov_b32 m0, s8
\ts_waitcnt lgkmcnt(0)
\tglobal_load_lds_dword v2, s[4:5]
{wait}
\ts_barrier
\tv_xor_b32_e32 v3, 0x1fc, v2
\tds_read_b32 v1, v3
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v2, v1, s[6:7]"""


def to_lds(wait):
    """Two waves load straight to LDS, and read in the opposite order, so what the other wave loaded."""
    data, out = words("u", 5), np.zeros(128, np.uint32)
    data = np.concatenate([data, ~data])
    kernel = amdgcn.load(kernel_text(TO_LDS.format(wait=wait), [POINTER] * 2, lds=512))["k"]
    kernel.launch(3, 128, [data, out])
    return data, out


def test_loads_go_straight_to_lds():
    data, out = to_lds("\ts_waitcnt vmcnt(0)")
    np.testing.assert_array_equal(out, data[::-1])


def test_another_waves_load_to_lds_is_waited_for():
    with pytest.raises(KernelError, match="lane 0 reads LDS before s_waitcnt vmcnt covers the load to it of wave 1"):
        to_lds("\ts_nop 0")
