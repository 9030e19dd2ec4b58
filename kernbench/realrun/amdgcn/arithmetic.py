"""Arithmetic of vector instructions where NumPy has no single function that does what the hardware does."""

from __future__ import annotations

from typing import Any

import numpy as np

F32 = np.float32
SMALLEST = np.float32(2.0**-126)
"""The smallest normal float32."""
_TIE = np.uint64(0x10000000)
_DROPPED = np.uint64(0x1FFFFFFF)


def odd_sum(product: Any, c: Any) -> Any:
    """product + c in float64, rounded to odd: a sum that is not exact ends in a set bit, beside the exact value.

    Rounded again to a format of at most 51 bits, subnormal results included, it gives what one rounding would
    (S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums, 2008). The error of the sum is Knuth's.
    """
    total = np.asarray(product + c)
    left = total - product
    error = (product - (total - left)) + (c - left)
    even = (error != 0) & (total.view(np.uint64) & np.uint64(1) == 0) & np.isfinite(total)
    return np.where(even, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in float32 with one rounding.

    The product is exact in float64. Rounding the float64 sum again can be wrong only where that sum stands halfway
    between two float32 numbers, or where the result is subnormal; such sums are rounded to odd first.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.asarray(product + c)
    near = total.astype(F32)
    doubtful = (total.view(np.uint64) & _DROPPED) == _TIE
    if np.abs(near).min(initial=F32(1)) <= SMALLEST:
        doubtful |= (np.abs(near) <= SMALLEST) & (total != 0)
    if doubtful.any():
        c = np.broadcast_to(np.asarray(c, np.float64), total.shape)[doubtful]
        near[doubtful] = odd_sum(np.broadcast_to(product, total.shape)[doubtful], c).astype(F32)
    return near


def fma_f16(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in float16 with one rounding."""
    return odd_sum(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)).astype(np.float16)


def maximum(a: Any, b: Any) -> Any:
    """The greater number; a NaN gives the other, and +0 is greater than -0."""
    return _with_signed_zero(np.fmax(a, b), a, b, np.bitwise_and)


def minimum(a: Any, b: Any) -> Any:
    """The lesser number; a NaN gives the other, and -0 is less than +0."""
    return _with_signed_zero(np.fmin(a, b), a, b, np.bitwise_or)


def _with_signed_zero(found: Any, a: Any, b: Any, sign: np.ufunc) -> Any:
    """Mend the sign of zeros: NumPy gives that of either operand."""
    zero = np.asarray(found == 0)
    if zero.any():
        bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[found.dtype.itemsize]
        found, zero = np.atleast_1d(found, zero)
        zero &= (a == 0) & (b == 0)
        both = sign(np.asarray(a).view(bits), np.asarray(b).view(bits)).view(found.dtype)
        found[zero] = np.broadcast_to(both, found.shape)[zero]
    return found


def median(a: Any, b: Any, c: Any) -> Any:
    """``v_med3_f32``: the middle one; with a NaN among them the least of the others."""
    least = minimum(minimum(a, b), c)
    middle = maximum(minimum(a, b), minimum(maximum(a, b), c))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), least, middle)


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
    quotient = above.astype(np.float64) / below
    small_inverse = (inverse != 0) & (np.abs(inverse) < SMALLEST)
    small_quotient = (quotient != 0) & (np.abs(quotient) < SMALLEST)
    is_below, is_above = x.view(np.uint32) == below.view(np.uint32), x.view(np.uint32) == above.view(np.uint32)
    grown, shrunk = x * F32(2.0**64), x * F32(2.0**-64)
    cases = [
        ((below == 0) | (above == 0), np.full_like(x, np.nan), False),
        (high - low >= 96, np.where(is_below, grown, x), True),
        (_subnormal(below), grown, False),
        # AMD's text grows the divisor, which would overflow: it is above 2^126. Shrunk, the quotient comes out right.
        (small_inverse & small_quotient, np.where(is_below, shrunk, x), True),
        (small_inverse, shrunk, False),
        (small_quotient, np.where(is_above, grown, x), True),
        (high <= 23, grown, False),
    ]
    conditions = [condition for condition, _, _ in cases]
    value = np.select(conditions, [value for _, value, _ in cases], x)
    flag = np.select(conditions, [np.broadcast_to(flag, x.shape) for _, _, flag in cases], np.False_)
    return value.astype(F32), flag


def fma_for_division(a: Any, b: Any, c: Any, scaled: Any) -> Any:
    """``v_div_fmas_f32``: a fused multiply-add, scaled back where :func:`scale_for_division` said so.

    It is scaled before it is rounded: otherwise a subnormal quotient would be rounded twice.
    """
    if not scaled.any():
        return fma(a, b, c)
    total = odd_sum(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64))
    factor = np.where(scaled, np.where(exponent(np.asarray(c)) > 127, 2.0**64, 2.0**-64), 1.0)
    return (total * factor).astype(F32)


def fix_division(quotient: Any, below: Any, above: Any) -> Any:
    """``v_div_fixup_f32``: put the special cases of above / below into a computed quotient.

    A quotient that is not a number, of operands that are, comes of an overflow on the way.
    """
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
    size = np.where(np.isnan(quotient), infinite, np.abs(quotient))
    return np.select(conditions, values, size * sign).astype(F32)


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
    """``v_bitop3_*``: bit 4a + 2b + c of the table, for each bit."""
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
    """Convert floating-point numbers to 32-bit integers towards zero, saturating; NaN gives 0."""
    limits = np.iinfo(dtype)
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
    return np.clip(wide, limits.min, limits.max).astype(np.int64).astype(dtype)
