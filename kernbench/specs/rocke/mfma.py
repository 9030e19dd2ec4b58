"""The 16x16x16 matrix instruction in float32, with the order and the roundings of its additions.

No vendor document gives them. Three ways are offered:

``k_order``
    The one assumed unless another is asked for: the 16 products of an atom are added to the accumulator one after
    the other in ascending k, each addition rounded to float32. A product of two f16 numbers is exact in float32.
``cdna2``, ``cdna3``
    What ``microsoft/MMA-Sim`` (arXiv 2511.10909) found by tests on hardware. CDNA2 (gfx90a) adds four products
    pairwise and their sum to the accumulator, flushing subnormals. CDNA3 (gfx942) adds eight products at once, cut to
    24 bits below the largest exponent, and rounds once. No such finding is known for gfx950.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Accumulate = Literal["k_order", "cdna2", "cdna3"]
ACCUMULATE: tuple[Accumulate, ...] = ("k_order", "cdna2", "cdna3")
ATOM_K = 16
"""Products that one instruction adds to each element of the accumulator."""

_SMALLEST_EXPONENT = {"f16": -14, "bf16": -126}
_SMALLEST_F32 = np.float32(2.0**-126)
_CUT, _CUT_SUM = 24, 31


def matmul(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, element: str = "f16", accumulate: Accumulate = "k_order"
) -> np.ndarray:
    """Return ``c + a @ b`` as a chain of matrix instructions gives it.

    Parameters
    ----------
    a : array of float32, shape (..., m, k)
        Numbers of the element format; ``k`` is a multiple of 16.
    b : array of float32, shape (..., k, n)
        The same.
    c : array of float32, shape (..., m, n)
        The accumulator. It is not changed.
    element
        ``f16`` or ``bf16``: which numbers are subnormal.
    accumulate
        How sums are formed; see the module.

    Returns
    -------
    array of float32, shape (..., m, n)

    >>> ones = np.ones((1, 16), np.float32)
    >>> matmul(ones, ones.T, np.full((1, 1), 2.0**24, np.float32)).item() - 2**24
    0.0
    >>> matmul(ones, ones.T, np.full((1, 1), 2.0**24, np.float32), accumulate="cdna3").item() - 2**24
    16.0
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if accumulate == "k_order":
            return _in_order(a, b, c)
        if accumulate == "cdna2":
            return _pairwise(a, b, c, np.float32(2.0 ** _SMALLEST_EXPONENT[element]))
        return _fused(a, b, c, _SMALLEST_EXPONENT[element])


def _in_order(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    total = c.copy()
    product = np.empty_like(total)
    for k in range(a.shape[-1]):
        np.multiply(a[..., :, k, None], b[..., k, None, :], out=product)
        total += product
    return total


def _flush(x: np.ndarray, smallest: np.float32 = _SMALLEST_F32) -> np.ndarray:
    return np.where(np.abs(x) < smallest, np.float32(0), x)


def _pairwise(a: np.ndarray, b: np.ndarray, c: np.ndarray, smallest: np.float32) -> np.ndarray:
    a, b, total = _flush(a, smallest), _flush(b, smallest), _flush(c)
    for k in range(0, a.shape[-1], 4):
        p = [_flush(a[..., :, i, None] * b[..., i, None, :]) for i in range(k, k + 4)]
        total = _flush(total + _flush(_flush(p[0] + p[1]) + _flush(p[2] + p[3])))
    return total


def _split(x: np.ndarray, smallest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 significands, 1 to 2 (less for subnormals), and exponents."""
    _, exponent = np.frexp(np.asarray(x, np.float64))
    exponent = np.maximum(exponent - 1, smallest)
    return np.ldexp(np.asarray(x, np.float64), -exponent), exponent


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray, smallest: int) -> np.ndarray:
    (a_part, a_exp), (b_part, b_exp) = _split(a, smallest), _split(b, smallest)
    total = c
    for k in range(0, a.shape[-1], 8):
        ks = range(k, k + 8)
        parts = np.stack([a_part[..., :, i, None] * b_part[..., i, None, :] for i in ks])
        exps = np.stack([a_exp[..., :, i, None] + b_exp[..., i, None, :] for i in ks])
        plain = sum((a[..., :, i, None] * b[..., i, None, :] for i in ks), start=total)
        total = np.where(np.isfinite(plain), _fused_sum(parts, exps, total), plain).astype(np.float32)
    return total


def _fused_sum(parts: np.ndarray, exps: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Add products, each ``parts * 2**exps`` along axis 0, and the accumulator, and round once to float32."""
    exps = np.where(parts == 0, -126, exps)
    top = exps.max(axis=0)
    products = np.ldexp(np.trunc(np.ldexp(parts, exps - top + _CUT)), -_CUT).sum(axis=0)
    c_part, c_exp = _split(c, -126)
    high = np.maximum(top, c_exp)
    cut = np.ldexp(np.floor(np.ldexp(products, top - high + _CUT_SUM)), -_CUT_SUM)
    cut += np.ldexp(np.floor(np.ldexp(c_part, c_exp - high + _CUT)), -_CUT)
    return np.ldexp(cut, high).astype(np.float32)
