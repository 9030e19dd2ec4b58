"""How a matrix instruction adds, against exact arithmetic in fractions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.specs.rocke.mfma import matmul

FORMATS = {"f16": (np.float16, -14), "bf16": (ml_dtypes.bfloat16, -126)}


def rounded(x):
    """A fraction to the nearest float32, through its own bits."""
    if x == 0:
        return np.float32(0)
    exponent = max(_exponent(x), -126) - 23
    return np.float32(float(round(x / Fraction(2) ** exponent) * Fraction(2) ** exponent))


def _exponent(x):
    e = math.frexp(float(abs(x)))[1] - 1
    return e + 1 if abs(x) >= Fraction(2) ** (e + 1) else e - (abs(x) < Fraction(2) ** e)


def by_cdna3(a, b, c, smallest):
    """Eight products at once: cut toward zero at 24 bits below the largest exponent, then down; one rounding."""
    for k in range(0, len(a), 8):
        products = []
        for x, y in zip(a[k : k + 8], b[k : k + 8], strict=True):
            x, y = Fraction(float(x)), Fraction(float(y))
            if x * y:
                products.append((x * y, max(_exponent(x), smallest) + max(_exponent(y), smallest)))
        top = max([e for _, e in products], default=-126)
        unit = Fraction(2) ** (top - 24)
        total = sum(math.trunc(p / unit) * unit for p, _ in products)
        c = Fraction(float(c))
        high = max(top, max(_exponent(c), -126) if c else -126)
        low, unit = Fraction(2) ** (high - 31), Fraction(2) ** (high - 24)
        c = rounded(math.floor(total / low) * low + math.floor(c / unit) * unit)
    return c


def by_cdna2(a, b, c, smallest):
    def flush(x, least=-126):
        return np.float32(0) if abs(x) < 2.0**least else np.float32(x)

    p = [flush(flush(x, smallest) * flush(y, smallest)) for x, y in zip(a, b, strict=True)]
    c = flush(c)
    for k in range(0, len(a), 4):
        c = flush(c + flush(flush(p[k] + p[k + 1]) + flush(p[k + 2] + p[k + 3])))
    return c


def by_order(a, b, c, smallest):
    for x, y in zip(a, b, strict=True):
        c = rounded(Fraction(float(c)) + Fraction(float(x)) * Fraction(float(y)))
    return c


def numbers(element, seed, spread, size=32):
    rng = np.random.default_rng(seed)
    kind, _ = FORMATS[element]
    wide = rng.standard_normal(size) * 2.0 ** rng.integers(-spread, spread + 1, size)
    return wide.astype(kind).astype(np.float32)


@pytest.mark.parametrize(("accumulate", "alone"), [("k_order", by_order), ("cdna2", by_cdna2), ("cdna3", by_cdna3)])
@pytest.mark.parametrize("element", ["f16", "bf16"])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0, 2, 8]))
def test_sums_are_those_of_exact_arithmetic(accumulate, alone, element, seed, spread):
    a, b = numbers(element, seed, spread), numbers(element, seed + 1, spread)
    c = np.float32(np.random.default_rng(seed + 2).standard_normal() * 2.0**spread)
    found = matmul(a[None], b[:, None], np.array([[c]]), element, accumulate).item()
    assert found == alone(a, b, c, FORMATS[element][1])


def test_tiles_are_elementwise_sums():
    rng = np.random.default_rng(5)
    a = rng.standard_normal((2, 3, 16)).astype(np.float16).astype(np.float32)
    b = rng.standard_normal((2, 16, 4)).astype(np.float16).astype(np.float32)
    c = rng.standard_normal((2, 3, 4)).astype(np.float32)
    before = c.copy()
    for accumulate, alone in (("k_order", by_order), ("cdna2", by_cdna2), ("cdna3", by_cdna3)):
        out = matmul(a, b, c, "f16", accumulate)
        assert out.dtype == np.float32
        for i, j, n in np.ndindex(out.shape):
            assert out[i, j, n] == alone(a[i, j], b[i, :, n], c[i, j, n], -14)
    np.testing.assert_array_equal(c, before)


@pytest.mark.parametrize("accumulate", ["k_order", "cdna2", "cdna3"])
def test_infinities_and_nan_come_through(accumulate):
    one, c = np.ones((1, 16), np.float32), np.zeros((1, 1), np.float32)
    inf = one.copy()
    inf[0, 3] = np.inf
    zero = np.zeros((16, 1), np.float32)
    assert matmul(inf, one.T, c, "f16", accumulate).item() == np.inf
    assert np.isnan(matmul(inf, zero, c, "f16", accumulate).item())


def test_cdna3_keeps_31_bits_of_the_sum_below_a_larger_accumulator():
    a, b = np.zeros((1, 16), np.float32), np.zeros((16, 1), np.float32)
    a[0, :2], b[:2, 0] = [2.0**-12, 2.0**-15], [2.0**-12, 2.0**-16]
    one = np.ones((1, 1), np.float32)
    assert matmul(a, b, one, "bf16", "cdna3").item() == 1 + 2.0**-23  # a tie, but for the last of 31 bits
    b[1] /= 2
    assert matmul(a, b, one, "bf16", "cdna3").item() == 1
