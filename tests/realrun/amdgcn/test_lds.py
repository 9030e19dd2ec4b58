"""Reads and writes of LDS, of every width."""

import numpy as np
import pytest

from tests.realrun.amdgcn.written import BITS, LANES, run, signed, words


@pytest.mark.parametrize("bits", [8, 16])
def test_a_transposing_read(bits):
    data = np.random.default_rng(bits).integers(0, 2**32, (2, LANES)).astype(np.uint32)
    body = f"""\
\tv_lshlrev_b32_e32 v20, 3, v0
\tds_write_b64 v20, v[2:3]
\ts_waitcnt lgkmcnt(0)
\tds_read_b64_tr_b{bits} v[10:11], v20"""
    found = run(body, [data[0], *data], 2, "gfx950", lds=512)
    kind = np.uint16 if bits == 16 else np.uint8
    before = np.ascontiguousarray(data.T).view(kind).reshape(4, -1, 16)
    after = np.ascontiguousarray(found.T).view(kind).reshape(4, 16, -1)
    np.testing.assert_array_equal(after, before.transpose(0, 2, 1))


LOCAL = {
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
