"""Fused multiply-adds, divisions, and the edges of float32: exactly what one rounding of the exact result gives."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.realrun.amdgcn.written import LANES, run

TINY, LEAST = 2.0**-126, 2.0**-149


def rounded(exact, bits=24, least_exponent=-149, greatest=3.4028234663852886e38):
    """Round a fraction to a binary format, ties to even."""
    if exact == 0:
        return 0.0
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > abs(exact)
    step = Fraction(2) ** max(exponent - bits + 1, least_exponent)
    value = round(exact / step) * step  # Python rounds a fraction half to even
    return float(value) if abs(value) <= greatest else float("inf") * (1 if exact > 0 else -1)


def bits(x):
    return np.ascontiguousarray(x, np.float32).view(np.uint32)


def operands(rng, count, low, high):
    """Random float32 with exponents from low to high, subnormal ones included."""
    mantissa = rng.choice([0, 1, 2**22, 2**23 - 1, *rng.integers(0, 2**23, 12)], (count, LANES))
    value = (1 + mantissa * 2.0**-23) * 2.0 ** rng.integers(low, high, (count, LANES))
    return (value * rng.choice([-1.0, 1.0], (count, LANES))).astype(np.float32)


@pytest.mark.parametrize("case", ["any", "subnormal sums", "subnormal products", "cancellation", "halfway"])
@pytest.mark.parametrize("text", ["v_fma_f32 v10, v1, v2, v3", "v_mov_b32_e32 v10, v3\n\tv_fmac_f32_e32 v10, v1, v2"])
def test_a_fused_multiply_add_rounds_once(text, case):
    rng = np.random.default_rng(1)
    a, b = operands(rng, 2, -70, 70)
    (c,) = operands(rng, 1, -140, 120)
    if case == "subnormal sums":
        a, b = operands(rng, 2, -70, -63)
        (c,) = operands(rng, 1, -149, -126)
    elif case == "subnormal products":
        a, b, c = *operands(rng, 2, -80, -70), np.zeros(LANES, np.float32)
    elif case == "cancellation":
        c = -(a * b) * (1 + rng.integers(-2, 3, LANES).astype(np.float32) * np.float32(2.0**-23))
    elif case == "halfway":  # half of the last place of c, and a little more or less
        c = operands(rng, 1, -126, -120)[0]
        a = np.spacing(np.abs(c)) * np.float32(2.0**60)
        b = np.float32(2.0**-61) * (1 + rng.integers(-1, 2, LANES).astype(np.float32) * np.float32(2.0**-23))
    (found,) = run(f"\t{text}", [bits(a), bits(b), bits(c)])
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(found.view(np.float32), np.float32([rounded(e) for e in exact]))


def test_a_packed_multiply_add_of_halves_rounds_once():
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2**32, (3, LANES)).astype(np.uint32) & 0xBFFFBFFF  # finite halves
    (found,) = run("\tv_pk_fma_f16 v10, v1, v2, v3", list(x))
    halves = x.view(np.float16).reshape(3, -1).astype(float)
    expected = [rounded(Fraction(a) * Fraction(b) + Fraction(c), 11, -24, 65504.0) for a, b, c in halves.T]
    np.testing.assert_array_equal(found.view(np.float16), np.float16(expected))


DIVISION = """\
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
"""v1 / v2 as LLVM writes it."""
SPECIAL = [0.0, 1.0, 3.0, 0.1, LEAST, 3 * LEAST, TINY - LEAST, TINY, 5 * TINY, 2.0**-100, 2.0**-24, 2.0**24, 2.0**96,
           2.0**126, 1.7 * 2.0**126, 2.0**127, float(np.finfo(np.float32).max), np.inf, np.nan]  # fmt: skip


def check_division(above, below):
    (found,) = run(DIVISION, [bits(above), bits(below)])
    with np.errstate(all="ignore"):  # NumPy divides as IEEE 754 says
        expected = above / below
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found.view(np.float32)), ~number)
    np.testing.assert_array_equal(found[number], bits(expected)[number])


@pytest.mark.parametrize("seed", range(3))
def test_division_of_special_numbers_is_rounded_correctly(seed):
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (2, LANES))
    pairs = [(a, b) for a in SPECIAL for b in SPECIAL]
    for first in range(seed * LANES * 2, min((seed + 1) * LANES * 2, len(pairs)), LANES):
        some = (pairs[first : first + LANES] + pairs[:LANES])[:LANES]
        above, below = (np.array(some).T * signs).astype(np.float32)
        check_division(above, below)


@pytest.mark.parametrize(
    ("above", "below"),
    [((-126, 127), (-126, 127)), ((-149, -120), (-30, 30)), ((-60, -20), (90, 127)), ((-20, 127), (-149, -90)),
     ((100, 127), (-30, 30)), ((-149, -126), (-149, -126)), ((-100, -60), (40, 60))],
)  # fmt: skip
def test_division_of_random_numbers_is_rounded_correctly(above, below):
    rng = np.random.default_rng(3)
    for _ in range(4):
        check_division(operands(rng, 1, *above)[0], operands(rng, 1, *below)[0])


ZEROS = (
    np.float32([0.0, -0.0] * 2 + [np.nan, 1.0, -1.0, np.nan]),
    np.float32([-0.0, 0.0, 0.0, -0.0, 1.0, np.nan, -0.0, 0]),
)


@pytest.mark.parametrize("name", ["v_max_f32_e32", "v_min_f32_e32"])
def test_signs_of_zeros_and_nan_in_the_greater_and_the_lesser(name):
    a, b = (np.tile(x, 8) for x in ZEROS)
    (found,) = run(f"\t{name} v10, v1, v2", [bits(a), bits(b)])

    def key(x):
        return x, not np.signbit(x)

    choose = max if "max" in name else min
    expected = [y if np.isnan(x) else x if np.isnan(y) else choose(x, y, key=key) for x, y in zip(a, b, strict=True)]
    assert found.tolist() == bits(expected).tolist()


def test_the_median_with_a_nan_is_the_least_of_the_others():
    values = np.float32([[np.nan, 2, 3], [3, np.nan, 2], [2, 3, np.nan], [np.nan, np.nan, 5], [1, 2, 3]])
    a, b, c = np.tile(values, (13, 1))[:LANES].T
    (found,) = run("\tv_med3_f32 v10, v1, v2, v3", [bits(x) for x in (a, b, c)])
    assert found.view(np.float32)[:5].tolist() == [2, 2, 2, 5, 2]


def test_scaling_by_a_power_of_two_rounds_once():
    rng = np.random.default_rng(4)
    (a,) = operands(rng, 1, -126, 127)
    n = rng.integers(-300, 300, LANES).astype(np.int32)
    n[:32] = rng.integers(-30, 2, 32) - 126 - np.frexp(a[:32])[1]  # into the subnormal range
    (found,) = run("\tv_ldexp_f32 v10, v1, v2", [bits(a), n.view(np.uint32)])
    exact = [rounded(Fraction(float(x)) * Fraction(2) ** int(k)) for x, k in zip(a, n, strict=True)]
    np.testing.assert_array_equal(found.view(np.float32), np.float32(exact))


def test_float64_is_cut_to_integers():
    rng = np.random.default_rng(6)
    edges = [2.0**31, -(2.0**31) - 1, 2.0**32 - 0.5, -0.5, np.inf, -np.inf, np.nan, 2.0**31 - 0.5, 1e300, 0]
    a = np.concatenate([rng.standard_normal(54) * 10.0 ** rng.integers(-2, 12, 54), edges])
    low, high = a.view(np.uint32).reshape(LANES, 2).T
    found = run("\tv_cvt_i32_f64_e32 v10, v[2:3]\n\tv_cvt_u32_f64_e32 v11, v[2:3]", [low, low, high], 2)
    for i, u, x in zip(*found.tolist(), a.tolist(), strict=True):
        whole = 0 if x != x else int(max(min(x, 2.0**40), -(2.0**40)))
        assert i == min(max(whole, -(2**31)), 2**31 - 1) % 2**32
        assert u == min(max(whole, 0), 2**32 - 1)


def test_every_half_is_widened_and_every_float_near_a_half_is_narrowed():
    codes = np.arange(1 << 16, dtype=np.uint16).reshape(-1, LANES)[::13]
    rng = np.random.default_rng(5)
    for row in codes[:12]:
        half = row.view(np.float16).astype(np.float32)
        near = half * (1 + rng.integers(-3, 4, LANES).astype(np.float32) * np.float32(2.0**-12))
        wide, narrow, brain, both = run(
            "\tv_cvt_f32_f16_e32 v10, v1\n\tv_cvt_f16_f32_e32 v11, v2\n\tv_cvt_pk_bf16_f32 v12, v2, v1\n"
            "\tv_cvt_pk_f16_f32 v13, v10, v2",
            [row.astype(np.uint32), bits(near)], 4, "gfx950",
        )  # fmt: skip
        number = ~np.isnan(half)
        np.testing.assert_array_equal(wide[number], bits(half)[number])
        expected = [rounded(Fraction(float(x)), 11, -24, 65504.0) for x in near[number & np.isfinite(near)]]
        got = narrow.astype(np.uint16).view(np.float16)[number & np.isfinite(near)]
        np.testing.assert_array_equal(got, np.float16(expected))
        assert (both[number] == (row[number] | narrow[number] << np.uint32(16))).all()
        low = brain.view(ml_dtypes.bfloat16)[0::2]
        np.testing.assert_array_equal(low[number], near.astype(ml_dtypes.bfloat16)[number])
