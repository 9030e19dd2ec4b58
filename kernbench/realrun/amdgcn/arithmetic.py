"""Arithmetic of vector instructions where NumPy has no single function that does what the hardware does."""

from __future__ import annotations

from typing import Any

import numpy as np

F32 = np.float32
SMALLEST = np.float32(2.0**-126)
"""The smallest normal float32."""
_TIE = np.uint64(0x10000000)
_DROPPED = np.uint64(0x1FFFFFFF)


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in float32 with one rounding (subnormal results may be rounded twice).

    The product is exact in float64. Rounding the float64 sum again is wrong only where that sum stands halfway between
    two float32 numbers and was itself rounded; such sums are moved off the tie, towards the exact value.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.asarray(product + c)
    tie = (total.view(np.uint64) & _DROPPED) == _TIE
    if tie.any():
        c = np.broadcast_to(np.asarray(c, np.float64), total.shape)[tie]
        product = np.broadcast_to(product, total.shape)[tie]
        near = total[tie]
        left = near - product
        error = (product - (near - left)) + (c - left)
        total[tie] = np.where(error == 0, near, np.nextafter(near, np.where(error > 0, np.inf, -np.inf)))
    return total.astype(F32)


def flush(x: Any) -> Any:
    """Replace subnormal numbers by zero of the same sign, as transcendental instructions do."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(F32(0), x), x)


def ieee_maximum(a: Any, b: Any) -> Any:
    """IEEE's ``maximum``: NaN if either is NaN, and +0 is larger than -0."""
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def ieee_minimum(a: Any, b: Any) -> Any:
    """IEEE's ``minimum``: NaN if either is NaN, and -0 is smaller than +0."""
    return -ieee_maximum(-a, -b)


def exp2(x: Any) -> Any:
    """``v_exp_f32``."""
    power = np.exp2(x)
    return np.where(power < SMALLEST, F32(0), power)


def log2(x: Any) -> Any:
    """``v_log_f32``."""
    return np.log2(flush(x))


def reciprocal(x: Any) -> Any:
    """``v_rcp_f32``, here correctly rounded."""
    return flush(F32(1) / flush(x))


def inverse_root(x: Any) -> Any:
    """``v_rsq_f32``, here rounded from float64."""
    return (1.0 / np.sqrt(flush(x).astype(np.float64))).astype(F32)


def exponent(x: Any) -> Any:
    """Biased exponent of float32 numbers."""
    return (x.view(np.uint32) >> np.uint32(23) & np.uint32(255)).astype(np.int32)


def _subnormal(x: Any) -> Any:
    return (x != 0) & (np.abs(x) < SMALLEST)


def scale_for_division(x: Any, below: Any, above: Any) -> tuple[Any, Any]:
    """``v_div_scale_f32``: scale one side of above / below; return it and whether the quotient is to be scaled back."""
    x, below, above = np.broadcast_arrays(x, below, above)
    low, high = exponent(below), exponent(above)
    if ((low > 0) & (low < 253) & (high > 23) & (np.abs(high - low) < 96)).all():
        return x, np.False_
    inverse = 1.0 / below.astype(np.float64)
    quotient = above.astype(np.float64) * inverse
    small_inverse = (inverse != 0) & (np.abs(inverse) < SMALLEST)
    small_quotient = (quotient != 0) & (np.abs(quotient) < SMALLEST)
    is_below, is_above = x.view(np.uint32) == below.view(np.uint32), x.view(np.uint32) == above.view(np.uint32)
    grown, shrunk = x * F32(2.0**64), x * F32(2.0**-64)
    cases = [
        ((below == 0) | (above == 0), np.full_like(x, np.nan), False),
        (high - low >= 96, np.where(is_below, grown, x), True),
        (_subnormal(below), grown, False),
        (small_inverse & small_quotient, np.where(is_below, grown, x), True),
        (small_inverse, shrunk, False),
        (small_quotient, np.where(is_above, grown, x), True),
        (high <= 23, grown, False),
    ]
    conditions = [condition for condition, _, _ in cases]
    value = np.select(conditions, [value for _, value, _ in cases], x)
    flag = np.select(conditions, [np.broadcast_to(flag, x.shape) for _, _, flag in cases], np.False_)
    return value.astype(F32), flag


def fma_for_division(a: Any, b: Any, c: Any, scaled: Any) -> Any:
    """``v_div_fmas_f32``: a fused multiply-add, scaled back where :func:`scale_for_division` said so."""
    plain = fma(a, b, c)
    factor = np.where(exponent(np.asarray(c)) > 127, F32(2.0**64), F32(2.0**-64))
    return np.where(scaled, plain * factor, plain)


def fix_division(quotient: Any, below: Any, above: Any) -> Any:
    """``v_div_fixup_f32``: put the special cases of above / below into a computed quotient."""
    quotient, below, above = np.broadcast_arrays(quotient, below, above)
    sign = np.where(np.signbit(below) ^ np.signbit(above), F32(-1), F32(1))
    infinite = F32(np.inf)
    conditions = [
        np.isnan(above),
        np.isnan(below),
        ((below == 0) & (above == 0)) | (np.isinf(below) & np.isinf(above)),
        (below == 0) | np.isinf(above),
        np.isinf(below) | (above == 0),
        exponent(above) - exponent(below) < -150,
    ]
    values = [above, below, np.full_like(above, np.nan), sign * infinite, sign * F32(0), sign * F32(0)]
    return np.select(conditions, values, np.abs(quotient) * sign).astype(F32)


def permute_bytes(high: Any, low: Any, choice: Any) -> Any:
    """``v_perm_b32``: each byte of ``choice`` picks a byte of low (0-3) and high (4-7), a sign (8-11), 0 or 255."""
    if np.size(choice) == 1 or (choice == choice.flat[0]).all():
        chosen = int(np.asarray(choice).flat[0])
        if all(chosen >> 8 * i & 255 < 8 for i in range(4)):
            return _permute_alike(high, low, chosen)
    high, low, choice = np.broadcast_arrays(high, low, choice)
    octets = [low >> np.uint32(8 * i) & np.uint32(255) for i in range(4)]
    octets += [high >> np.uint32(8 * i) & np.uint32(255) for i in range(4)]
    signs = [np.where(octets[i] & 0x80, np.uint32(255), np.uint32(0)) for i in (1, 3, 5, 7)]
    table = np.stack([*octets, *signs, np.zeros_like(low), np.full_like(low, 255)])
    out = np.zeros_like(low)
    for i in range(4):
        picked = np.minimum(choice >> np.uint32(8 * i) & np.uint32(255), 13).astype(np.int64)
        out |= np.take_along_axis(table, picked[None], 0)[0] << np.uint32(8 * i)
    return out


def _permute_alike(high: Any, low: Any, choice: int) -> Any:
    """Pick the same bytes in every lane."""
    out = np.uint32(0)
    for i in range(4):
        picked = choice >> 8 * i & 255
        word = high if picked > 3 else low
        shift = 8 * (i - picked % 4)
        moved = np.left_shift(word, np.uint32(shift)) if shift >= 0 else np.right_shift(word, np.uint32(-shift))
        out = out | moved & np.uint32(255 << 8 * i)
    return out


def truth_table(a: Any, b: Any, c: Any, table: int) -> Any:
    """``v_bitop3_b32``: bit 4a + 2b + c of the table, for each bit."""
    out = np.uint32(0)
    for i in range(8):
        if table >> i & 1:
            term = (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
            out = out | term
    return out


def round_to_zero_f16(x: Any) -> Any:
    """Convert float32 to float16 towards zero."""
    near = x.astype(np.float16)
    beyond = np.abs(near.astype(F32)) > np.abs(x)
    return np.where(beyond, np.nextafter(near, np.float16(0)), near)


def to_integer(x: Any, dtype: type) -> Any:
    """Convert float32 to a 32-bit integer towards zero, saturating; NaN gives 0."""
    limits = np.iinfo(dtype)
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
    return np.clip(wide, limits.min, limits.max).astype(np.int64).astype(dtype)
