"""Scalar instructions against plain Python, and waves that take different branches."""

import numpy as np
import pytest

from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import BITS, kernel_text, run, signed

SWITCH_OFF = "s_mov_b64 exec, 0\n\ts_mov_b32 s30, 1"
SCALAR = {
    "s_add_i32 s30, s4, s5": lambda a, b: a + b,
    "s_add_i32 s30, s4, s5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(
        signed(a) + signed(b) != signed(signed(a) + signed(b))
    ),
    "s_and_b32 s30, s4, s5": lambda a, b: a & b,
    "s_or_b32 s30, s4, s5": lambda a, b: a | b,
    "s_xor_b32 s30, s4, s5": lambda a, b: a ^ b,
    "s_and_b64 s[30:31], s[4:5], s[4:5]\n\ts_and_b64 s[30:31], 0x7fff, s[30:31]": lambda a, b: a & 0x7FFF,
    "s_mov_b64 s[30:31], 0x70000\n\ts_or_b64 s[30:31], s[30:31], s[4:5]": lambda a, b: a | 0x70000,
    "s_xor_b64 s[30:31], s[4:5], -1": lambda a, b: ~a,
    "s_xor_b64 s[30:31], s[4:5], s[4:5]\n\ts_cselect_b32 s30, 1, 0": lambda a, b: 0,
    "s_bitcmp0_b32 s4, 3\n\ts_cselect_b32 s30, 1, 0": lambda a, b: 1 - (a >> 3 & 1),
    "s_cmp_eq_u32 s4, s5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a == b),
    "s_cmp_ge_u32 s4, s5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a >= b),
    "s_cmp_lg_u32 s4, s5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a != b),
    "s_cmp_lt_u32 s4, s5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a < b),
    "s_cmp_gt_i32 s4, s5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(signed(a) > signed(b)),
    "s_cmp_le_i32 s4, s5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(signed(a) <= signed(b)),
    "s_cmpk_lt_u32 s4, 0xfff0\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a < 0xFFF0),
    "s_cmp_eq_u32 s4, s5\n\ts_cselect_b64 s[30:31], s[4:5], 7": lambda a, b: a if a == b else 7,
    "s_lshl1_add_u32 s30, s4, s5": lambda a, b: 2 * a + b,
    "s_lshl_b32 s30, s4, s5": lambda a, b: a << (b & 31),
    "s_min_i32 s30, s4, s5": lambda a, b: min(signed(a), signed(b)),
    "s_movk_i32 s30, 0x8001": lambda a, b: signed(0x8001, 16),
    "s_mul_i32 s30, s4, s5": lambda a, b: a * b,
    "s_mov_b32 s30, s4\n\ts_mulk_i32 s30, 0xfffd": lambda a, b: a * -3,
    "s_mov_b32 s30, 1\n\ts_branch .L1\n\ts_mov_b32 s30, 2\n.L1:": lambda a, b: 1,
    "s_mov_b32 s30, 1\n\ts_cmp_lt_u32 s4, s5\n\ts_cbranch_scc0 .L1\n\ts_mov_b32 s30, 2\n.L1:": (
        lambda a, b: 2 if a < b else 1
    ),
    "s_mov_b64 vcc, s[4:5]\n\ts_mov_b32 s30, 1\n\ts_cbranch_vccnz .L1\n\ts_mov_b32 s30, 2\n.L1:": lambda a, b: 1,
    "s_mov_b64 vcc, 0\n\ts_mov_b32 s30, 1\n\ts_cbranch_vccnz .L1\n\ts_mov_b32 s30, 2\n.L1:": lambda a, b: 2,
    "s_mov_b32 s30, 1\n\ts_cbranch_execz .L1\n\ts_mov_b32 s30, 2\n.L1:": lambda a, b: 2,
    f"{SWITCH_OFF}\n\ts_cbranch_execnz .L1\n\ts_mov_b32 s30, 2\n.L1:\n\ts_mov_b64 exec, -1": lambda a, b: 2,
    f"{SWITCH_OFF}\n\ts_cbranch_execz .L1\n\ts_mov_b32 s30, 2\n.L1:\n\ts_mov_b64 exec, -1": lambda a, b: 1,
    "s_load_dword s30, s[0:1], 0x0\n\ts_load_dwordx2 s[6:7], s[0:1], 0x0\n\ts_waitcnt lgkmcnt(0)\n"
    "\ts_sub_u32 s30, s30, s6": lambda a, b: 0,
    "s_cmpk_eq_u32 s4, 0x5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a == 5),
    "s_cmpk_lg_u32 s4, 0x5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a != 5),
    "s_cmpk_le_u32 s4, 0x5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a <= 5),
    "s_cmpk_ge_i32 s5, 0xffff\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(signed(b) >= -1),
    "s_cmpk_gt_i32 s5, 0xffff\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(signed(b) > -1),
    "s_cmpk_le_i32 s5, 0xffff\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(signed(b) <= -1),
    "s_cmpk_lg_i32 s5, 0xffff\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(signed(b) != -1),
    "s_ashr_i64 s[30:31], s[4:5], 33": lambda a, b: signed(b) >> 1,
    "s_bfe_u64 s[30:31], s[4:5], 0x100018": lambda a, b: (a | b << 32) >> 24 & 0xFFFF,
    "s_bfe_i64 s[30:31], s[4:5], 0x100018": lambda a, b: signed((a | b << 32) >> 24, 16),
    "s_bfm_b32 s30, 7, 3": lambda a, b: 127 << 3,
    "s_bfm_b64 s[30:31], 40, 3": lambda a, b: ((1 << 40) - 1) << 3,
    "s_bcnt0_i32_b32 s30, s4": lambda a, b: 32 - a.bit_count(),
    "s_bcnt0_i32_b64 s30, s[4:5]": lambda a, b: 64 - a.bit_count() - b.bit_count(),
    "s_bcnt1_i32_b32 s30, s4": lambda a, b: a.bit_count(),
    "s_brev_b64 s[30:31], s[4:5]": lambda a, b: int(f"{b:032b}"[::-1], 2),
    "s_ff1_i32_b64 s30, s[4:5]": lambda a, b: ((a | b << 32) & -(a | b << 32)).bit_length() - 1,
    "s_flbit_i32_b64 s30, s[4:5]": lambda a, b: 64 - (a | b << 32).bit_length(),
    "s_absdiff_i32 s30, s4, 7": lambda a, b: abs(signed(signed(a) - 7)),
    "s_sext_i32_i8 s30, s4": lambda a, b: signed(a, 8),
    "s_sext_i32_i16 s30, s4": lambda a, b: signed(a, 16),
    "s_not_b32 s30, s4": lambda a, b: ~a,
    "s_not_b64 s[30:31], s[4:5]": lambda a, b: ~a,
    "s_nand_b32 s30, s4, s5": lambda a, b: ~(a & b),
    "s_nor_b32 s30, s4, s5": lambda a, b: ~(a | b),
    "s_xnor_b64 s[30:31], s[4:5], -1": lambda a, b: a,
    "s_nand_b64 s[30:31], s[4:5], s[4:5]": lambda a, b: ~a,
    "s_nor_b64 s[30:31], s[4:5], 0": lambda a, b: ~a,
    "s_xnor_b32 s30, s4, s5": lambda a, b: ~(a ^ b),
    "s_orn2_b32 s30, s4, s5": lambda a, b: a | ~b,
    "s_orn2_b64 s[30:31], 0, s[4:5]": lambda a, b: ~a,
    "s_andn2_b64 s[30:31], -1, s[4:5]": lambda a, b: ~a,
    "s_max_u32 s30, s4, s5": lambda a, b: max(a, b),
    "s_lshl3_add_u32 s30, s4, s5": lambda a, b: 8 * a + b,
    "s_lshl4_add_u32 s30, s4, s5": lambda a, b: 16 * a + b,
    "s_pack_ll_b32_b16 s30, s4, s5": lambda a, b: a & 0xFFFF | b << 16,
    "s_pack_hh_b32_b16 s30, s4, s5": lambda a, b: a >> 16 | b & 0xFFFF0000,
    "s_mov_b32 s30, s4\n\ts_bitset1_b32 s30, 9": lambda a, b: a | 1 << 9,
    "s_mov_b32 s30, s4\n\ts_bitset0_b32 s30, s5": lambda a, b: a & ~(1 << (b & 31)),
    "s_mov_b64 s[30:31], s[4:5]\n\ts_bitset1_b64 s[30:31], 9\n\ts_bitset0_b64 s[30:31], 4": (
        lambda a, b: (a | 1 << 9) & ~16
    ),
    "s_bitcmp1_b64 s[4:5], 40\n\ts_cselect_b32 s30, 1, 0": lambda a, b: b >> 8 & 1,
    "s_bitcmp0_b64 s[4:5], 40\n\ts_cselect_b32 s30, 1, 0": lambda a, b: 1 - (b >> 8 & 1),
    "s_mov_b32 s30, 3\n\ts_cmp_gt_u32 s4, s5\n\ts_cmov_b32 s30, s4": lambda a, b: a if a > b else 3,
    "s_mov_b64 s[30:31], 3\n\ts_cmp_le_u32 s4, s5\n\ts_cmov_b64 s[30:31], s[4:5]": lambda a, b: a if a <= b else 3,
    "s_cmp_eq_u64 s[4:5], s[4:5]\n\ts_cselect_b32 s30, 1, 0": lambda a, b: 1,
    "s_cmp_lg_u64 s[4:5], 5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: 1,
    "s_cmp_eq_i32 s4, 5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a == 5),
    "s_cmp_lg_i32 s4, 5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a != 5),
    "s_cmpk_eq_i32 s5, 0xffff\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(b == BITS),
    "s_cmpk_lt_i32 s4, 0xfff0\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(signed(a) < -16),
    "s_cmpk_ge_u32 s4, 0x5\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a >= 5),
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
    "s_flbit_i32 s30, s4": lambda a, b: next((n for n in range(1, 32) if (a >> 31 - n ^ a >> 31) & 1), -1),
    "s_flbit_i32_b32 s30, s4": lambda a, b: 32 - a.bit_length() if a else -1,
    "s_bcnt1_i32_b64 s30, s[4:5]": lambda a, b: a.bit_count() + b.bit_count(),
    "s_brev_b32 s30, s4": lambda a, b: int(f"{a:032b}"[::-1], 2),
    "s_cmp_lt_i32 s4, s5\n\ts_cselect_b32 s30, 11, 22": lambda a, b: 11 if signed(a) < signed(b) else 22,
    "s_cmpk_gt_u32 s4, 0xfff0\n\ts_cselect_b32 s30, 1, 0": lambda a, b: int(a > 0xFFF0),
    "s_bitcmp1_b32 s4, 3\n\ts_cselect_b32 s30, 1, 0": lambda a, b: a >> 3 & 1,
    "s_mov_b32 s30, s4\n\ts_addk_i32 s30, 0xff80": lambda a, b: a - 128,
    "s_lshl2_add_u32 s30, s4, s5": lambda a, b: 4 * a + b,
    "s_pack_lh_b32_b16 s30, s4, s5": lambda a, b: a & 0xFFFF | b & 0xFFFF0000,
}


@pytest.mark.parametrize("text", SCALAR)
@pytest.mark.parametrize("pair", [(0x80000000, 0x7FFFFFFF), (5, BITS), (0x12345678, 0x9ABCDEF0), (BITS, BITS)])
def test_a_scalar_instruction(text, pair):
    low, high = pair
    body = f"\ts_mov_b32 s4, {hex(low)}\n\ts_mov_b32 s5, {hex(high)}\n\t{text}\n\tv_mov_b32_e32 v10, s30"
    (found,) = run(body, [])
    assert (found == SCALAR[text](low, high) & BITS).all()


SAVE_EXEC = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b), "andn1": lambda a, b: ~a & b, "orn1": lambda a, b: ~a | b,
}  # fmt: skip


@pytest.mark.parametrize("name", SAVE_EXEC)
@pytest.mark.parametrize("source", [0, 0x0F0F])
def test_exec_is_saved_and_changed(name, source):
    before = 0x00FF
    body = f"""\
\ts_mov_b64 s[4:5], {hex(source)}
\ts_mov_b64 exec, {hex(before)}
\ts_{name}_saveexec_b64 s[36:37], s[4:5]
\ts_cselect_b32 s30, 1, 0
\ts_mov_b64 s[38:39], exec
\ts_mov_b64 exec, -1
\tv_mov_b32_e32 v10, s36
\tv_mov_b32_e32 v11, s38
\tv_mov_b32_e32 v12, s39
\tv_mov_b32_e32 v13, s30"""
    saved, low, high, nonzero = (int(row[0]) for row in run(body, [], 4))
    expected = SAVE_EXEC[name](source, before) % 2**64
    assert (saved, low | high << 32, nonzero) == (before, expected, int(expected != 0))


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
