"""Scalar instructions against plain Python, and waves that take different branches."""

import numpy as np
import pytest

from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import BITS, kernel_text, run, signed

SCALAR = {
    "s_add_u32 s30, s4, s5\n\ts_addc_u32 s30, 0, 0": lambda a, b: a + b >> 32,
    "s_sub_u32 s30, s4, s5\n\ts_subb_u32 s30, 0, 0": lambda a, b: -1 if a < b else 0,
    "s_mul_hi_u32 s30, s4, s5": lambda a, b: a * b >> 32,
    "s_mul_hi_i32 s30, s4, s5": lambda a, b: signed(a) * signed(b) >> 32,
    "s_ashr_i32 s30, s4, 7": lambda a, b: signed(a) >> 7,
    "s_lshl_b64 s[30:31], s[4:5], 9": lambda a, b: a << 9,
    "s_lshr_b64 s[30:31], s[4:5], 40": lambda a, b: b >> 8,
    "s_bfe_u32 s30, s4, 0x80005": lambda a, b: a >> 5 & 255,
    "s_bfe_i32 s30, s4, 0x80005": lambda a, b: signed(a >> 5, 8),
    "s_abs_i32 s30, s4": lambda a, b: abs(signed(a)),
    "s_max_i32 s30, s4, s5": lambda a, b: max(signed(a), signed(b)),
    "s_min_u32 s30, s4, s5": lambda a, b: min(a, b),
    "s_andn2_b32 s30, s4, s5": lambda a, b: a & ~b,
    "s_ff1_i32_b32 s30, s4": lambda a, b: (a & -a).bit_length() - 1,
    "s_flbit_i32_b32 s30, s4": lambda a, b: 32 - a.bit_length() if a else -1,
    "s_bcnt1_i32_b64 s30, s[4:5]": lambda a, b: a.bit_count() + b.bit_count(),
    "s_brev_b32 s30, s4": lambda a, b: int(f"{a:032b}"[::-1], 2),
    "s_cmp_lt_i32 s4, s5\n\ts_cselect_b32 s30, 11, 22": lambda a, b: 11 if signed(a) < signed(b) else 22,
    "s_cmpk_gt_u32 s4, 0xfff0\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a > 0xFFF0),
    "s_bitcmp1_b32 s4, 3\n\ts_cselect_b32 s30, 1, 0": lambda a, b: a >> 3 & 1,
    "s_mov_b32 s30, s4\n\ts_addk_i32 s30, 0xff80": lambda a, b: a - 128,
    "s_lshl2_add_u32 s30, s4, s5": lambda a, b: 4 * a + b,
    "s_pack_lh_b32_b16 s30, s4, s5": lambda a, b: a & 0xFFFF | b & 0xFFFF0000,
    "s_cmp_eq_u32 s4, s4\n\ts_and_saveexec_b64 s[34:35], 0\n\ts_cselect_b32 s30, 1, 0\n\ts_mov_b64 exec, s[34:35]": (
        lambda a, b: 0
    ),
}


@pytest.mark.parametrize("text", SCALAR)
@pytest.mark.parametrize("pair", [(0x80000000, 0x7FFFFFFF), (5, BITS), (0x12345678, 0x9ABCDEF0), (BITS, BITS)])
def test_a_scalar_instruction(text, pair):
    low, high = pair
    body = f"\ts_mov_b32 s4, {hex(low)}\n\ts_mov_b32 s5, {hex(high)}\n\t{text}\n\tv_mov_b32_e32 v10, s30"
    (found,) = run(body, [])
    assert (found == SCALAR[text](low, high) & BITS).all()


def test_waves_that_part_meet_again():
    body = """\
\tv_mov_b32_e32 v10, 0
\tv_readfirstlane_b32 s30, v0
\ts_lshr_b32 s30, s30, 6
.LOOP:
\tv_add_u32_e32 v10, 10, v10
\ts_sub_i32 s30, s30, 1
\ts_cmp_ge_i32 s30, 0
\ts_cbranch_scc1 .LOOP
\ts_barrier
\ts_load_dwordx2 s[22:23], s[0:1], 0x0
\tv_lshlrev_b32_e32 v50, 2, v0
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v50, v10, s[22:23]"""
    out = np.zeros(320, np.uint32)
    done = amdgcn.load(kernel_text(body))["k"].launch(7, 320, [out])
    assert out.tolist() == [10 * (1 + item // 64) for item in range(320)]
    assert done.opcodes["s_cbranch_scc1"] == 7 * (1 + 2 + 3 + 4 + 5)
    assert done.opcodes["s_barrier"] == done.counters["SQ_WAVES"] == 35
