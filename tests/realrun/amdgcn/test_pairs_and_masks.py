"""Vector instructions on pairs, halves and masks, and conversions, against NumPy."""

import operator

import ml_dtypes
import numpy as np
import pytest

from tests.realrun.amdgcn.written import LANES, run, words

FP8 = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}
BF8 = {"gfx942": ml_dtypes.float8_e5m2fnuz, "gfx950": ml_dtypes.float8_e5m2}


def floats(seed, count=1):
    return np.random.default_rng(seed).standard_normal((count, LANES)).astype(np.float32)


def bits(x):
    return np.ascontiguousarray(x).view(np.uint32)


def halves(x):
    """Low and high halves of words as float16."""
    return (np.ascontiguousarray(x).view(np.float16).reshape(LANES, 2)[:, i] for i in (0, 1))


def wide(low, high):
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("v_fmaak_f32 v10, v2, v3, 0x3f400000", lambda a, b: a * b + np.float64(0.75)),
        ("v_fmamk_f32 v10, v2, 0x3f400000, v3", lambda a, b: a * np.float64(0.75) + b),
        ("v_mov_b32_e32 v10, v3\n\tv_fmac_f32_e32 v10, v2, v2", lambda a, b: a * a + b),
        ("v_fma_f32 v10, v2, -v3, |v2|", lambda a, b: abs(a) - a * b),
        ("v_fract_f32_e32 v10, v2", lambda a, b: a - np.floor(a)),
        ("v_frexp_mant_f32_e32 v10, v2", lambda a, b: np.frexp(a)[0]),
        ("v_min3_f32 v10, v2, v3, 0", lambda a, b: np.minimum(np.minimum(a, b), 0)),
        ("v_trunc_f32_e32 v10, v2", lambda a, b: np.trunc(a)),
        ("v_ceil_f32_e32 v10, v2", lambda a, b: np.ceil(a)),
        ("v_log_f32_e64 v10, |v2|", lambda a, b: np.log2(np.abs(a))),
        ("v_rsq_f32_e64 v10, |v2|", lambda a, b: 1 / np.sqrt(np.abs(a))),
        ("v_mul_legacy_f32 v10, v2, v3", lambda a, b: a * b),
        ("v_min_f32_e32 v10, v2, v3", np.minimum),
        ("v_subrev_f32_e32 v10, v2, v3", lambda a, b: b - a),
    ],
)
def test_float32(text, rule):
    a, b = floats(1, 2)
    (found,) = run(f"\t{text}", [bits(a), bits(a), bits(b)])
    np.testing.assert_allclose(found.view(np.float32), rule(a.astype(np.float64), b.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("v_pk_mul_f32 v[10:11], v[2:3], v[4:5]", lambda a, b, c, d: (a * c, b * d)),
        ("v_pk_add_f32 v[10:11], v[2:3], v[4:5] neg_lo:[0,1] neg_hi:[1,0]", lambda a, b, c, d: (a - c, d - b)),
        ("v_pk_mul_f32 v[10:11], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,0]", lambda a, b, c, d: (b * c, a * c)),
        ("v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[2:3]", lambda a, b, c, d: (a * c + a, b * d + b)),
        ("v_pk_mul_f32 v[10:11], v[2:3], 2.0 op_sel_hi:[1,0]", lambda a, b, c, d: (2 * a, 2 * b)),
        ("v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]", lambda a, b, c, d: (b, c)),
        ("v_mov_b64_e32 v[10:11], v[4:5]", lambda a, b, c, d: (c, d)),
    ],
)
def test_pairs_of_float32(text, rule):
    values = floats(2, 4)
    found = run(f"\t{text}", bits(np.stack([values[0], *values])), 2)
    np.testing.assert_allclose(found.view(np.float32), rule(*values.astype(np.float64)), rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("v_pk_add_f16 v10, v1, v2", lambda a, b, c, d: (a + c, b + d)),
        ("v_pk_mul_f16 v10, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]", lambda a, b, c, d: (b * c, a * d)),
        ("v_pk_max_f16 v10, v1, v2 neg_lo:[1,0]", lambda a, b, c, d: (np.maximum(-a, c), np.maximum(b, d))),
        ("v_pk_fma_f16 v10, v1, v2, v1", lambda a, b, c, d: tuple(
            (x.astype(np.float64) * y + x).astype(np.float16) for x, y in ((a, c), (b, d))
        )),
        ("v_pack_b32_f16 v10, v1, v2 op_sel:[1,0,0]", lambda a, b, c, d: (b, c)),
    ],
)  # fmt: skip
def test_pairs_of_float16(text, rule):
    first, second = np.random.default_rng(3).standard_normal((2, LANES, 2)).astype(np.float16)
    (found,) = run(f"\t{text}", [bits(first)[:, 0], bits(second)[:, 0]])
    low, high = rule(*first.T, *second.T)
    np.testing.assert_array_equal(found.view(np.float16).reshape(LANES, 2), np.stack([low, high], 1))


def test_mixed_multiply_adds():
    x = np.random.default_rng(4).standard_normal((LANES, 2)).astype(np.float16)
    (y,) = floats(5)
    body = """\
\tv_fma_mix_f32 v10, v1, v2, v1 op_sel:[1,0,0] op_sel_hi:[1,0,1]
\tv_mov_b32_e32 v11, v1
\tv_fma_mixlo_f16 v11, v1, v2, -v2 op_sel_hi:[1,0,0]
\tv_mov_b32_e32 v12, v1
\tv_fma_mixhi_f16 v12, v2, v2, v1 op_sel_hi:[0,0,1]"""
    mixed, low, high = run(body, [bits(x)[:, 0], bits(y)], 3)
    a, b, y = x[:, 0].astype(np.float64), x[:, 1].astype(np.float64), y.astype(np.float64)
    np.testing.assert_allclose(mixed.view(np.float32), b * y + a, rtol=2e-7, atol=1e-7)
    first, second = halves(low)
    np.testing.assert_allclose(first.astype(np.float64), a * y - y, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(second, x[:, 1])
    first, second = halves(high)
    np.testing.assert_array_equal(first, x[:, 0])
    np.testing.assert_allclose(second.astype(np.float64), y * y + a, rtol=1e-3, atol=1e-3)


def test_64_bits():
    a, b, c, d = (words("u", seed) for seed in (1, 2, 3, 4))
    body = """\
\tv_lshl_add_u64 v[10:11], v[2:3], 3, v[4:5]
\tv_mad_u64_u32 v[12:13], s[30:31], v2, v4, v[4:5]
\tv_lshlrev_b64 v[14:15], v2, v[4:5]
\tv_ashrrev_i64 v[16:17], v2, v[4:5]
\tv_cndmask_b32_e64 v18, 0, 1, s[30:31]"""
    found = run(body, [a, a, b, c, d], 9)
    x, y = wide(a, b), wide(c, d)
    np.testing.assert_array_equal(wide(found[0], found[1]), (x << np.uint64(3)) + y)
    product = a.astype(np.uint64) * c
    np.testing.assert_array_equal(wide(found[2], found[3]), product + y)
    np.testing.assert_array_equal(found[8], [int(p) + int(q) >> 64 for p, q in zip(product, y, strict=True)])
    shift = (a & 63).astype(np.uint64)
    np.testing.assert_array_equal(wide(found[4], found[5]), y << shift)
    np.testing.assert_array_equal(wide(found[6], found[7]), (y.view(np.int64) >> shift.view(np.int64)).view(np.uint64))


def test_carries():
    a, b, c, d = (words("u", seed) for seed in (1, 2, 3, 4))
    body = """\
\tv_add_co_u32_e32 v10, vcc, v1, v3
\tv_addc_co_u32_e32 v11, vcc, v2, v4, vcc
\tv_cndmask_b32_e64 v12, 0, 1, vcc
\tv_sub_co_u32_e32 v13, vcc, v1, v3
\tv_subb_co_u32_e32 v14, vcc, v2, v4, vcc
\tv_subrev_co_u32_e64 v15, s[30:31], v1, v3
\tv_cndmask_b32_e64 v16, 0, 1, s[30:31]"""
    found = run(body, [a, b, c, d], 7)
    for lane in range(LANES):
        x, y = int(wide(a, b)[lane]), int(wide(c, d)[lane])
        assert int(wide(found[0], found[1])[lane]) | int(found[2][lane]) << 64 == x + y
        assert int(wide(found[3], found[4])[lane]) == (x - y) % 2**64
        assert found[5][lane] == (int(c[lane]) - int(a[lane])) % 2**32
        assert found[6][lane] == (c[lane] < a[lane])


COMPARES = {
    "v_cmp_lt_i32_e32 vcc, v1, v2": lambda a, b: a.view(np.int32) < b.view(np.int32),
    "v_cmp_ge_u32_e32 vcc, v1, v2": lambda a, b: a >= b,
    "v_cmp_ne_u32_e64 vcc, v1, 1": lambda a, b: a != 1,
    "v_cmp_nge_f32_e32 vcc, v1, v2": lambda a, b: ~(a.view(np.float32) >= b.view(np.float32)),
    "v_cmp_u_f32_e32 vcc, v1, v2": lambda a, b: np.isnan(a.view(np.float32)) | np.isnan(b.view(np.float32)),
    "v_cmp_lg_f32_e64 vcc, v1, -v2": lambda a, b: (
        (a.view(np.float32) != -b.view(np.float32)) & ~np.isnan(a.view(np.float32)) & ~np.isnan(b.view(np.float32))
    ),
    "v_cmp_class_f32_e64 vcc, v1, 3": lambda a, b: np.isnan(a.view(np.float32)),
    "v_mov_b32_e32 v9, 0x204\n\tv_cmp_class_f32_e64 vcc, v1, v9": lambda a, b: np.isinf(a.view(np.float32)),
    "v_cmp_eq_u16_sdwa vcc, v1, v2 src0_sel:BYTE_0 src1_sel:BYTE_3": lambda a, b: a & 255 == b >> 24,
}


@pytest.mark.parametrize("text", COMPARES)
def test_a_compare_and_a_select(text):
    a, b = (
        np.concatenate([words("u", s)[:32], words("f", s)[:30], bits(np.float32([np.nan, -np.inf]))]) for s in (1, 2)
    )
    b[5:9] = a[5:9]
    b[40] = a[40]
    (found,) = run(f"\t{text}\n\tv_cndmask_b32_e32 v10, v1, v2, vcc", [a, b])
    np.testing.assert_array_equal(found, np.where(COMPARES[text](a, b), b, a))


@pytest.mark.parametrize("kept", ["PAD", "PRESERVE"])
def test_a_select_of_parts(kept):
    a, b, old = (words("u", seed) for seed in (1, 2, 3))
    body = f"""\
\tv_cmp_lt_u32_e32 vcc, v1, v2
\tv_mov_b32_e32 v10, v3
\tv_cndmask_b32_sdwa v10, v1, v2, vcc dst_sel:WORD_1 dst_unused:UNUSED_{kept} src0_sel:BYTE_3 src1_sel:WORD_0"""
    (found,) = run(body, [a, b, old])
    picked = np.where(a < b, b & 0xFFFF, a >> 24) << 16
    np.testing.assert_array_equal(found, picked | (old & 0xFFFF if kept == "PRESERVE" else 0))


KINDS = {
    "i32": np.int32, "u32": np.uint32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
    "i64": np.int64, "u64": np.uint64, "f64": np.float64,
}  # fmt: skip
ORDER = {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
ORDERED = {
    **ORDER,
    **{f"n{name}": (lambda a, b, rule=rule: not rule(a, b)) for name, rule in ORDER.items()},
    "ne": lambda a, b: a != b, "lg": lambda a, b: a < b or a > b, "nlg": lambda a, b: not (a < b or a > b),
    "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_compare(kind):
    rng, dtype = np.random.default_rng(11), KINDS[kind]
    size = np.dtype(dtype).itemsize
    octets = rng.integers(0, 256, (2, LANES, 8)).astype(np.uint8)
    octets[1, :9] = octets[0, :9]
    a, b = (np.ascontiguousarray(x[:, :size]).view(dtype)[:, 0] for x in octets)
    if kind[0] == "f":
        a[20] = b[30] = a[40] = b[40] = np.nan
        octets[:, :, :size] = np.stack([a, b])[..., None].view(np.uint8)
    registers = np.ascontiguousarray(octets).view(np.uint32).transpose(0, 2, 1).reshape(4, LANES)
    integer = kind[0] != "f"
    names = [n for n in ORDERED if (n in (*ORDER, "ne") if integer else n != "ne")]
    left, right = ("v[2:3]", "v[4:5]") if size == 8 else ("v2", "v4")
    body = ""
    for i, name in enumerate(names):
        body += f"\tv_cmp_{name}_{kind}_e64 s[30:31], {left}, {right}\n"
        body += f"\tv_cndmask_b32_e64 v{10 + i}, 0, 1, s[30:31]\n"
    found = run(body, [registers[0], *registers], len(names))
    for name, row in zip(names, found, strict=True):
        assert row.tolist() == [int(ORDERED[name](x, y)) for x, y in zip(a, b, strict=True)], name


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("v_add_f16_e32 v10, v1, v2", lambda a, b: a + b),
        ("v_sub_f16_e64 v10, v1, |v2|", lambda a, b: a - abs(b)),
        ("v_mul_f16_e32 v10, v1, v2", lambda a, b: a * b),
        ("v_max_f16_e32 v10, v1, v2", np.maximum),
        ("v_min_f16_e32 v10, v1, v2", np.minimum),
        ("v_add_f16_e64 v10, v1, v2 clamp", lambda a, b: np.clip(a + b, 0, 1)),
    ],
)
def test_float16(text, rule):
    a, b = np.random.default_rng(12).standard_normal((2, LANES)).astype(np.float16)
    (found,) = run(f"\t{text}", [x.view(np.uint16).astype(np.uint32) for x in (a, b)])
    np.testing.assert_array_equal(found.astype(np.uint16).view(np.float16), rule(a, b))


def test_float64():
    a, b = np.random.default_rng(13).standard_normal((2, LANES)) * 99
    pairs = [half for x in (a, b) for half in x.view(np.uint32).reshape(LANES, 2).T]
    body = """\
\tv_add_f64 v[10:11], v[2:3], v[4:5]
\tv_mul_f64 v[12:13], v[2:3], -v[4:5]
\tv_max_f64 v[14:15], v[2:3], v[4:5]
\tv_min_f64 v[16:17], v[2:3], v[4:5]
\tv_cvt_f32_f64_e32 v18, v[2:3]
\tv_cvt_f64_f32_e32 v[20:21], v18
\tv_cvt_i32_f32_e32 v19, v18
\tv_cvt_f64_i32_e32 v[22:23], v19
\tv_cvt_f64_u32_e32 v[24:25], v19"""
    found = run(body, [pairs[0], *pairs], 16)
    as_f64 = lambda i: np.stack([found[i], found[i + 1]], 1).view(np.float64)[:, 0]  # noqa: E731
    np.testing.assert_array_equal(as_f64(0), a + b)
    np.testing.assert_array_equal(as_f64(2), a * -b)
    np.testing.assert_array_equal(as_f64(4), np.maximum(a, b))
    np.testing.assert_array_equal(as_f64(6), np.minimum(a, b))
    np.testing.assert_array_equal(found[8].view(np.float32), a.astype(np.float32))
    np.testing.assert_array_equal(as_f64(10), a.astype(np.float32))
    np.testing.assert_array_equal(as_f64(12), np.trunc(a))
    np.testing.assert_array_equal(as_f64(14), found[9])


def test_bytes_and_exponents():
    a = words("u", 14)
    (x,) = floats(15)
    body = "".join(f"\tv_cvt_f32_ubyte{n}_e32 v{10 + n}, v1\n" for n in range(4))
    body += "\tv_frexp_exp_i32_f32_e32 v14, v2\n\tv_cvt_f16_u16_e32 v15, v1\n\tv_rcp_iflag_f32_e32 v16, v2"
    found = run(body, [a, bits(x)], 7)
    np.testing.assert_array_equal(found[:4].view(np.float32), a.view(np.uint8).reshape(LANES, 4).T)
    np.testing.assert_array_equal(found[4].view(np.int32), np.frexp(x)[1])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            found[5].astype(np.uint16).view(np.float16), a.astype(np.uint16).astype(np.float16)
        )
    np.testing.assert_array_equal(found[6].view(np.float32), 1 / x)


@pytest.mark.parametrize("to", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("of", ["f32", "f16", "bf16"])
def test_conversions_to_narrow_formats_with_a_scale(to, of):
    kind = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[of]
    narrow = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn}[to]
    values = np.random.default_rng(16).standard_normal((LANES, 2)).astype(kind)
    inputs = [bits(values[:, i]) for i in (0, 1)] if of == "f32" else [bits(values)[:, 0]]
    sources = "v1, v2" if of == "f32" else "v1"
    place = "op_sel:[0,0,1,0]" if to == "fp4" else "op_sel:[0,0,0,1]" if of == "f32" else "op_sel:[0,0,1]"
    body = (
        f"\tv_mov_b32_e32 v30, 2.0\n\tv_mov_b32_e32 v10, -1\n\tv_cvt_scalef32_pk_{to}_{of} v10, {sources}, v30 {place}"
    )
    (found,) = run(body, inputs, 1, "gfx950")
    codes = (values.astype(np.float32) / 2).astype(narrow).view(np.uint8).astype(np.uint32)
    if to == "fp4":
        expected = 0xFFFF00FF | (codes[:, 0] | codes[:, 1] << np.uint32(4)) << np.uint32(8)
    else:
        expected = 0xFFFF | codes[:, 0] << np.uint32(16) | codes[:, 1] << np.uint32(24)
    np.testing.assert_array_equal(found, expected.astype(np.uint32))


def test_a_compare_that_switches_lanes_off():
    a = words("u", 17)
    body = """\
\tv_mov_b32_e32 v10, 1
\tv_cmpx_gt_u32_e32 vcc, 32, v0
\tv_mov_b32_e32 v10, 2
\tv_cmpx_lt_i32_e64 s[30:31], v1, 0
\tv_mov_b32_e32 v10, 3
\ts_mov_b64 exec, -1
\tv_cndmask_b32_e64 v11, 0, 1, s[30:31]"""
    found, kept = run(body, [a], 2)
    both = (np.arange(LANES) < 32) & (a >= 2**31)
    np.testing.assert_array_equal(found, np.where(np.arange(LANES) < 32, np.where(both, 3, 2), 1))
    np.testing.assert_array_equal(kept, both)


def test_lanes_below_are_counted():
    body = "\ts_mov_b32 s30, 0xf0f0f0f0\n\tv_mbcnt_lo_u32_b32 v10, s30, 0\n\tv_mbcnt_hi_u32_b32 v10, s30, v10"
    (found,) = run(body, [])
    mask = 0xF0F0F0F0F0F0F0F0
    assert found.tolist() == [(mask & (1 << lane) - 1).bit_count() for lane in range(LANES)]


def test_plain_conversions():
    a = np.concatenate([floats(6)[0][:56] * 1e3, np.float32([3e9, -3e9, 1e20, -1e20, np.nan, np.inf, -np.inf, 0.5])])
    body = """\
\tv_cvt_i32_f32_e32 v10, v1
\tv_cvt_u32_f32_e32 v11, v1
\tv_cvt_f16_f32_e32 v12, v1
\tv_cvt_f32_f16_e32 v13, v12
\tv_cvt_pkrtz_f16_f32 v14, v1, v1
\tv_cvt_f32_i32_e32 v15, v10"""
    i, u, h, back, toward_zero, again = run(body, [bits(a)], 6)
    clipped = np.nan_to_num(a.astype(np.float64), nan=0)
    np.testing.assert_array_equal(i.view(np.int32), np.trunc(np.clip(clipped, -(2**31), 2**31 - 1)))
    np.testing.assert_array_equal(u, np.trunc(np.clip(clipped, 0, 2**32 - 1)))
    with np.errstate(over="ignore"):
        rounded = a.astype(np.float16)
    np.testing.assert_array_equal(h.astype(np.uint16).view(np.float16), rounded)
    np.testing.assert_array_equal(back.view(np.float32), rounded.astype(np.float32))
    low, high = halves(toward_zero)
    np.testing.assert_array_equal(low, high)
    finite = np.abs(a) < 60000
    assert (np.abs(low.astype(np.float32)) <= np.abs(a))[finite].all()
    low, a = low[finite], a[finite]
    assert (np.abs(low.astype(np.float32) - a) <= np.abs(a) * 2.0**-10).all()
    np.testing.assert_array_equal(again.view(np.float32), i.view(np.int32).astype(np.float32))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("name", "types"), [("fp8", FP8), ("bf8", BF8)])
def test_formats_of_8_bits(arch, name, types):
    octets = np.random.default_rng(8).integers(0, 256, (LANES, 4)).astype(np.uint8)
    x, y = floats(9, 2)
    body = f"""\
\tv_cvt_pk_f32_{name}_e32 v[10:11], v1
\tv_cvt_pk_f32_{name}_sdwa v[12:13], v1 src0_sel:WORD_1
\tv_cvt_f32_{name}_sdwa v14, v1 src0_sel:BYTE_2
\tv_mov_b32_e32 v15, v1
\tv_cvt_pk_{name}_f32 v15, v2, v3 op_sel:[0,0,1]"""
    found = run(body, [bits(octets)[:, 0], bits(x), bits(y)], 6, arch)
    values = octets.view(types[arch]).astype(np.float32)
    np.testing.assert_array_equal(found[:4].view(np.float32), values.T)
    np.testing.assert_array_equal(found[4].view(np.float32), values[:, 2])
    packed = np.ascontiguousarray(found[5]).view(np.uint8).reshape(LANES, 4)
    np.testing.assert_array_equal(packed[:, :2], octets[:, :2])
    np.testing.assert_array_equal(packed[:, 2], x.astype(types[arch]).view(np.uint8))
    np.testing.assert_array_equal(packed[:, 3], y.astype(types[arch]).view(np.uint8))


def test_scaled_conversions():
    octets = np.random.default_rng(10).integers(0, 120, (LANES, 4)).astype(np.uint8)
    body = """\
\tv_mov_b32_e32 v30, 0.5
\tv_cvt_scalef32_pk_f32_fp8 v[10:11], v1, v30 op_sel:[1,0,0]
\tv_cvt_scalef32_pk_f16_fp8 v12, v1, v30
\tv_cvt_scalef32_pk_bf16_fp4 v13, v1, v30 op_sel:[1,1,0]
\tv_cvt_pk_bf16_f32 v14, v10, v11"""
    found = run(body, [bits(octets)[:, 0]], 5, "gfx950")
    values = octets.view(ml_dtypes.float8_e4m3fn).astype(np.float32) / 2
    np.testing.assert_array_equal(found[:2].view(np.float32), values[:, 2:].T)
    np.testing.assert_array_equal(np.stack(list(halves(found[2])), 1), values[:, :2].astype(np.float16))
    codes = np.stack([octets[:, 3] & 15, octets[:, 3] >> 4], 1)
    small = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32) / 2
    np.testing.assert_array_equal(found[3].view(ml_dtypes.bfloat16).reshape(LANES, 2).astype(np.float32), small)
    rounded = values[:, 2:].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found[4].view(ml_dtypes.bfloat16).reshape(LANES, 2), rounded)
