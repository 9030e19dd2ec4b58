"""Vector arithmetic against plain Python, one lane at a time, as AMD's ISA documents define it."""

from fractions import Fraction

import numpy as np
import pytest

from tests.realrun.amdgcn.written import BITS, LANES, as_float, run, signed, words

INTEGER = {
    "v_or_b32_e32 v10, v1, v2": lambda a, b, c: a | b,
    "v_lshlrev_b16_e32 v10, v1, v2": lambda a, b, c: b << (a & 15) & 0xFFFF,
    "v_lshrrev_b16_e32 v10, v1, v2": lambda a, b, c: (b & 0xFFFF) >> (a & 15),
    "v_lshrrev_b64 v[10:11], v1, v[2:3]": lambda a, b, c: (b | c << 32) >> (a & 63),
    "v_accvgpr_write_b32 a3, v2\n\tv_accvgpr_mov_b32 a4, a3\n\tv_accvgpr_read_b32 v10, a4": lambda a, b, c: b,
    "v_cvt_f32_u32_e32 v10, v1": lambda a, b, c: bits_of(np.float32(a)),
    "v_cvt_f16_i16_e32 v10, v1": lambda a, b, c: int(np.float16(signed(a, 16)).view(np.uint16)),
    "v_add_i32 v10, v1, v2": lambda a, b, c: a + b,
    "v_sub_i32 v10, v1, v2": lambda a, b, c: a - b,
    "v_bfm_b32 v10, v1, v2": lambda a, b, c: ((1 << (a & 31)) - 1) << (b & 31),
    "v_mad_u32_u24 v10, v1, v2, v3": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mul_i32_i24_e32 v10, v1, v2": lambda a, b, c: signed(a, 24) * signed(b, 24),
    "v_mul_hi_u32_u24_e32 v10, v1, v2": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_max_i32_e32 v10, v1, v2": lambda a, b, c: max(signed(a), signed(b)),
    "v_min_u32_e32 v10, v1, v2": lambda a, b, c: min(a, b),
    "v_max3_i32 v10, v1, v2, v3": lambda a, b, c: max(map(signed, (a, b, c))),
    "v_max3_u32 v10, v1, v2, v3": lambda a, b, c: max(a, b, c),
    "v_min3_i32 v10, v1, v2, v3": lambda a, b, c: min(map(signed, (a, b, c))),
    "v_min3_u32 v10, v1, v2, v3": lambda a, b, c: min(a, b, c),
    "v_med3_u32 v10, v1, v2, v3": lambda a, b, c: sorted((a, b, c))[1],
    "v_sad_u32 v10, v1, v2, v3": lambda a, b, c: abs(a - b) + c,
    "v_add_u16_e32 v10, v1, v2": lambda a, b, c: a + b & 0xFFFF,
    "v_sub_u16_e32 v10, v1, v2": lambda a, b, c: a - b & 0xFFFF,
    "v_mul_lo_u16_e32 v10, v1, v2": lambda a, b, c: a * b & 0xFFFF,
    "v_min_u16_e32 v10, v1, v2": lambda a, b, c: min(a & 0xFFFF, b & 0xFFFF),
    "v_max_u16_e32 v10, v1, v2": lambda a, b, c: max(a & 0xFFFF, b & 0xFFFF),
    "v_ashrrev_i16_e32 v10, v1, v2": lambda a, b, c: signed(b, 16) >> (a & 15) & 0xFFFF,
    "v_mov_b32_e32 v10, v2\n\tv_swap_b32 v10, v1": lambda a, b, c: a,
    "v_pk_sub_i16 v10, v1, v2": lambda a, b, c: (a - b & 0xFFFF) | ((a >> 16) - (b >> 16) & 0xFFFF) << 16,
    "v_pk_mul_lo_u16 v10, v1, v2": lambda a, b, c: (a * b & 0xFFFF) | ((a >> 16) * (b >> 16) & 0xFFFF) << 16,
    "v_pk_lshrrev_b16 v10, v1, v2": lambda a, b, c: (b & 0xFFFF) >> (a & 15) | (b >> 16) >> (a >> 16 & 15) << 16,
    "v_add_u32_e32 v10, v1, v2": lambda a, b, c: a + b,
    "v_sub_u32_e32 v10, v1, v2": lambda a, b, c: a - b,
    "v_subrev_u32_e32 v10, v1, v2": lambda a, b, c: b - a,
    "v_add_u32_e64 v10, v1, v2 clamp": lambda a, b, c: min(a + b, BITS),
    "v_sub_u32_e64 v10, v1, v2 clamp": lambda a, b, c: max(a - b, 0),
    "v_subrev_u32_e64 v10, v1, v2 clamp": lambda a, b, c: max(b - a, 0),
    "v_add3_u32 v10, v1, v2, v3": lambda a, b, c: a + b + c,
    "v_mul_lo_u32 v10, v1, v2": lambda a, b, c: a * b,
    "v_mul_hi_u32 v10, v1, v2": lambda a, b, c: a * b >> 32,
    "v_mul_hi_i32 v10, v1, v2": lambda a, b, c: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24_e32 v10, v1, v2": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mad_i32_i24 v10, v1, v2, v3": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "v_min_i32_e32 v10, v1, v2": lambda a, b, c: min(signed(a), signed(b)),
    "v_max_u32_e32 v10, v1, v2": lambda a, b, c: max(a, b),
    "v_med3_i32 v10, v1, v2, v3": lambda a, b, c: sorted(map(signed, (a, b, c)))[1],
    "v_lshlrev_b32_e32 v10, v1, v2": lambda a, b, c: b << (a & 31),
    "v_lshrrev_b32_e32 v10, v1, v2": lambda a, b, c: b >> (a & 31),
    "v_ashrrev_i32_e32 v10, v1, v2": lambda a, b, c: signed(b) >> (a & 31),
    "v_lshl_add_u32 v10, v1, v2, v3": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32 v10, v1, v2, v3": lambda a, b, c: (a + b & BITS) << (c & 31),
    "v_lshl_or_b32 v10, v1, v2, v3": lambda a, b, c: a << (b & 31) | c,
    "v_and_or_b32 v10, v1, v2, v3": lambda a, b, c: a & b | c,
    "v_or3_b32 v10, v1, v2, v3": lambda a, b, c: a | b | c,
    "v_xad_u32 v10, v1, v2, v3": lambda a, b, c: (a ^ b) + c,
    "v_bfi_b32 v10, v1, v2, v3": lambda a, b, c: a & b | ~a & c,
    "v_bfe_u32 v10, v1, v2, v3": lambda a, b, c: a >> (b & 31) & ((1 << (c & 31)) - 1),
    "v_bfe_i32 v10, v1, v2, v3": lambda a, b, c: (
        signed(a >> (b & 31), c & 31) if 0 < (c & 31) < 32 - (b & 31) else signed(a) >> (b & 31) if c & 31 else 0
    ),
    "v_alignbit_b32 v10, v1, v2, v3": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32 v10, v1, v2, v3": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_bfrev_b32_e32 v10, v1": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_i32_e32 v10, v1": lambda a, b, c: next((n for n in range(1, 32) if (a >> 31 - n ^ a >> 31) & 1), -1),
    "v_ffbl_b32_e32 v10, v1": lambda a, b, c: (a & -a).bit_length() - 1,
    "v_ffbh_u32_e32 v10, v1": lambda a, b, c: 32 - a.bit_length() if a else -1,
    "v_bcnt_u32_b32 v10, v1, v2": lambda a, b, c: a.bit_count() + b,
    "v_not_b32_e32 v10, v1": lambda a, b, c: ~a,
    "v_xnor_b32_e32 v10, v1, v2": lambda a, b, c: ~(a ^ b),
    "v_perm_b32 v10, v1, v2, v3": lambda a, b, c: permuted(a, b, c),
    "v_perm_b32 v10, v1, v2, s30": lambda a, b, c: permuted(a, b, 0x07020500),
    "v_pack_b32_f16 v10, v1, v2": lambda a, b, c: a & 0xFFFF | b << 16,
    "v_pack_b32_f16 v10, v1, v2 op_sel:[1,1,0]": lambda a, b, c: a >> 16 | b >> 16 << 16,
    "v_cndmask_b32_e64 v10, v1, v2, s[30:31]": lambda a, b, c: None,
    "v_and_b32_sdwa v10, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD": (
        lambda a, b, c: a >> 16 & b
    ),
    "v_add_u32_sdwa v10, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_0": (
        lambda a, b, c: signed(a >> 8, 8) + (b & 0xFFFF)
    ),
    "v_lshrrev_b32_sdwa v10, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD": (
        lambda a, b, c: (b >> (a & 31) & 255) << 8
    ),
    "v_pk_add_u16 v10, v1, v2": lambda a, b, c: (a + b & 0xFFFF) | ((a >> 16) + (b >> 16) & 0xFFFF) << 16,
    "v_pk_lshlrev_b16 v10, v1, v2": lambda a, b, c: (
        (b << (a & 15) & 0xFFFF) | ((b >> 16) << (a >> 16 & 15) & 0xFFFF) << 16
    ),
}


def bits_of(x):
    return int(x.view(np.uint32))


def permuted(a, b, choice):
    octets = [*b.to_bytes(4, "little"), *a.to_bytes(4, "little")]
    signs = [255 * (octets[i] >> 7) for i in (1, 3, 5, 7)]
    table = [*octets, *signs, 0]
    picks = choice.to_bytes(4, "little")
    return int.from_bytes(bytes(table[p] if p < 13 else 255 for p in picks), "little")


@pytest.mark.parametrize("text", INTEGER)
def test_an_integer_instruction(text):
    a, b, c = (words("u", seed) for seed in (1, 2, 3))
    mask = 0x0123456789ABCDEF
    low = 0x7020500 if "v_perm" in text else mask & BITS
    body = f"\ts_mov_b32 s30, {hex(low)}\n\ts_mov_b32 s31, {hex(mask >> 32)}\n"
    (found,) = run(f"{body}\t{text}", [a, b, c])
    for lane in range(LANES):
        x, y, z = int(a[lane]), int(b[lane]), int(c[lane])
        expected = (y if mask >> lane & 1 else x) if "cndmask" in text else INTEGER[text](x, y, z)
        assert found[lane] == expected & BITS, (lane, hex(x), hex(y), hex(z))


@pytest.mark.parametrize("opcode", ["v_bitop3_b16", "v_bitop3_b32"])
@pytest.mark.parametrize("table", [0xDE, 0x6C, 0x36, 0xF8, 0x97])
def test_a_truth_table(opcode, table):
    a, b, c = (words("u", seed) for seed in (1, 2, 3))
    (found,) = run(f"\t{opcode} v10, v1, v2, v3 bitop3:{hex(table)}", [a, b, c], arch="gfx950")
    for bit in range(32):
        index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
        right = table >> index & 1 if bit < int(opcode[-2:]) else 0 * index
        np.testing.assert_array_equal(found >> bit & 1, right)


FLOAT = {
    "v_add_f32_e32 v10, v1, v2": lambda a, b, c: a + b,
    "v_sub_f32_e64 v10, -v1, |v2|": lambda a, b, c: -a - abs(b),
    "v_mul_f32_e64 v10, v1, v2 mul:2": lambda a, b, c: a * b * 2,
    "v_add_f32_e64 v10, v1, v2 clamp": lambda a, b, c: min(max(a + b, 0), 1),
    "v_max3_f32 v10, v1, v2, v3": lambda a, b, c: max(a, b, c),
    "v_med3_f32 v10, v1, v2, v3": lambda a, b, c: sorted((a, b, c))[1],
    "v_rndne_f32_e32 v10, v1": lambda a, b, c: np.rint(a),
    "v_floor_f32_e32 v10, v1": lambda a, b, c: np.floor(a),
    "v_ldexp_f32 v10, v1, 3": lambda a, b, c: a * 8,
    "v_exp_f32_e32 v10, v1": lambda a, b, c: np.exp2(a),
    "v_sqrt_f32_e64 v10, |v1|": lambda a, b, c: np.sqrt(abs(a)),
    "v_rcp_f32_e32 v10, v1": lambda a, b, c: np.divide(1, a),
    "v_cvt_f32_i32_e32 v10, v1": None,
}


@pytest.mark.parametrize("text", [t for t, rule in FLOAT.items() if rule])
def test_a_float_instruction(text):
    a, b, c = (words("f", seed) for seed in (4, 5, 6))
    (found,) = run(f"\t{text}", [a, b, c])
    with np.errstate(all="ignore"):
        for lane in range(LANES):
            x, y, z = (np.float32(as_float(int(v[lane]))) for v in (a, b, c))
            expected = np.float32(FLOAT[text](x, y, z))
            got = np.float32(as_float(int(found[lane])))
            assert np.isnan(got) == np.isnan(expected), (lane, x, y, z)
            if not np.isnan(expected):
                tiny = abs(expected) < 2.0**-126 and text.startswith(("v_exp", "v_rcp"))
                assert got == (0 if tiny else expected), (lane, x, y, z)


@pytest.mark.parametrize(("name", "rule"), [("v_maximum3_f32", np.maximum), ("v_minimum3_f32", np.minimum)])
def test_the_maximum_of_ieee_keeps_nan_and_orders_zeros(name, rule):
    a, b, c = (words("f", seed) for seed in (4, 5, 6))
    for lane, zeros in enumerate([(0, 1, 1), (1, 0, 1), (1, 1, 1), (0, 0, 0)]):
        a[lane], b[lane], c[lane] = np.array(zeros, np.uint32) << 31
    (found,) = run(f"\t{name} v10, v1, v2, v3", [a, b, c], arch="gfx950")
    expected = rule(rule(a.view(np.float32), b.view(np.float32)), c.view(np.float32))
    np.testing.assert_array_equal(found.view(np.float32), expected)
    is_negative = [False, False, True, False] if rule is np.maximum else [True, True, True, False]
    np.testing.assert_array_equal(np.signbit(found[:4].view(np.float32)), is_negative)


def exact_fma(a, b, c):
    """Round a * b + c once, through integers."""
    total = Fraction(a) * Fraction(b) + Fraction(c)
    near = np.float32(float(total))
    around = [np.nextafter(near, np.float32(d)) for d in (-np.inf, np.inf)]
    return min([near, *around], key=lambda x: (abs(Fraction(float(x)) - total), int(np.float32(x).view(np.uint32)) & 1))


def test_a_fused_multiply_add_rounds_once():
    rng = np.random.default_rng(0)
    a = (1 + rng.integers(0, 2**23, LANES) * 2.0**-23).astype(np.float32)
    b = (1 + 2.0 ** -rng.integers(1, 24, LANES)).astype(np.float32)
    c = (rng.choice([-1, 1], LANES) * 2.0 ** rng.integers(-60, 30, LANES)).astype(np.float32)
    # Halfway between two float32 numbers but for a bit that float64 loses.
    a[0], b[0], c[0] = 1 + 2.0**-23, 1 + 2.0**-23, 2.0**23
    a[1], b[1], c[1] = 2.0**-60, 1.0, 1 + 2.0**-23
    a[2], b[2], c[2] = -(2.0**-12), 2.0**-12 + 2.0**-35, 1.0
    (found,) = run("\tv_fma_f32 v10, v1, v2, v3", [x.view(np.uint32) for x in (a, b, c)])
    expected = [exact_fma(*(float(v[i]) for v in (a, b, c))) for i in range(LANES)]
    np.testing.assert_array_equal(found.view(np.float32), expected)


def test_division_as_compilers_write_it():
    above, below = (words("f", seed) for seed in (7, 8))
    body = """\
\tv_div_scale_f32 v20, s[30:31], v2, v2, v1
\tv_div_scale_f32 v21, vcc, v1, v2, v1
\tv_rcp_f32_e32 v22, v20
\tv_fma_f32 v23, -v20, v22, 1.0
\tv_fmac_f32_e32 v22, v23, v22
\tv_mul_f32_e32 v23, v21, v22
\tv_fma_f32 v24, -v20, v23, v21
\tv_fmac_f32_e32 v23, v24, v22
\tv_fma_f32 v20, -v20, v23, v21
\tv_div_fmas_f32 v20, v20, v22, v23
\tv_div_fixup_f32 v10, v20, v2, v1"""
    (found,) = run(body, [above, below])
    with np.errstate(all="ignore"):
        expected = above.view(np.float32) / below.view(np.float32)
    normal = (np.abs(expected) >= 2.0**-126) | (expected == 0) | np.isnan(expected)
    np.testing.assert_array_equal(found.view(np.float32)[normal], expected[normal])
