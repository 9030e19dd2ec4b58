"""Compiled loops that round float32 to narrower grids by arithmetic on its bits. See :mod:`.rounding`.

Every constant is wrapped in ``uint32``, since numba would widen to 64 bits otherwise, which halves the speed.
Rounding in place has a loop of its own: a loop over two arrays that overlap is not vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

_SIGN = np.uint32(0x80000000)
_ALL_BUT_SIGN = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_QUIET = np.uint32(0x00400000)
_ONE = np.uint32(1)

_F16_SHIFT = np.uint32(13)  # float32 has 13 bits of fraction more than float16
_F16_HALF = np.uint32(0x00000FFF)
_F16_KEPT = np.uint32(0xFFFFE000)
_F16_LARGEST = np.uint32(0x477FE000)  # 65504
_F16_NORMAL = np.uint32(0x38800000)  # 2**-14, the smallest normal number
_F16_MAGIC = np.float32(0.5)  # its unit in the last place is 2**-24, the spacing of float16's subnormals

_BF16_SHIFT = np.uint32(16)
_BF16_HALF = np.uint32(0x00007FFF)
_BF16_KEPT = np.uint32(0xFFFF0000)


@njit(inline="always")
def _nearest(bits: np.uint32, shift: np.uint32, half: np.uint32, kept: np.uint32) -> np.uint32:
    """Round the bits of a magnitude to a shorter fraction; a carry moves on into the exponent, as it should."""
    odd = (bits >> shift) & _ONE
    return np.uint32(bits + half + odd) & kept


@njit(inline="always")
def _to_f16(value: np.float32) -> np.float32:
    bits = np.float32(value).view(np.uint32)
    size = bits & _ALL_BUT_SIGN
    near = _nearest(size, _F16_SHIFT, _F16_HALF, _F16_KEPT)
    near = _INFINITY if near > _F16_LARGEST else near
    near = np.uint32(size | _QUIET) if size > _INFINITY else near
    magnitude = np.uint32(size).view(np.float32)
    subnormal = np.float32(np.float32(magnitude + _F16_MAGIC) - _F16_MAGIC).view(np.uint32)
    near = subnormal if size < _F16_NORMAL else near
    return np.uint32(np.uint32(near) | (bits & _SIGN)).view(np.float32)


@njit(inline="always")
def _to_bf16(value: np.float32) -> np.float32:
    bits = np.float32(value).view(np.uint32)
    near = _nearest(bits, _BF16_SHIFT, _BF16_HALF, _BF16_KEPT)
    near = np.uint32((bits | _QUIET) & _BF16_KEPT) if (bits & _ALL_BUT_SIGN) > _INFINITY else near
    return np.uint32(near).view(np.float32)


@njit(cache=True)
def _f16_between(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = _to_f16(source[i])


@njit(cache=True)
def _f16_in_place(values: Any) -> None:
    for i in range(values.size):
        values[i] = _to_f16(values[i])


@njit(cache=True)
def _bf16_between(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = _to_bf16(source[i])


@njit(cache=True)
def _bf16_in_place(values: Any) -> None:
    for i in range(values.size):
        values[i] = _to_bf16(values[i])


@njit(inline="always")
def _to_saturating(
    value: np.float32, shift: np.uint32, largest: np.uint32, normal: np.uint32, magic: np.float32, signed: np.uint32
) -> np.float32:
    bits = np.float32(value).view(np.uint32)
    size = bits & _ALL_BUT_SIGN
    half = np.uint32(np.uint32(_ONE << np.uint32(shift - _ONE)) - _ONE)
    near = _nearest(size, shift, half, np.uint32(~np.uint32(np.uint32(_ONE << shift) - _ONE)))
    magnitude = np.uint32(size).view(np.float32)
    subnormal = np.float32(np.float32(magnitude + magic) - magic).view(np.uint32)
    near = subnormal if size < normal else near
    near = largest if near > largest else near
    near = np.uint32(size | _QUIET) if size > _INFINITY else near
    sign = bits & _SIGN
    sign = np.uint32(0) if near == np.uint32(0) and signed == np.uint32(0) else sign
    return np.uint32(np.uint32(near) | sign).view(np.float32)


@njit(cache=True)
def _saturating_between(source: Any, target: Any, shift: Any, largest: Any, normal: Any, magic: Any, sign: Any) -> None:
    for i in range(source.size):
        target[i] = _to_saturating(source[i], shift, largest, normal, magic, sign)


@njit(cache=True)
def _saturating_in_place(values: Any, shift: Any, largest: Any, normal: Any, magic: Any, sign: Any) -> None:
    for i in range(values.size):
        values[i] = _to_saturating(values[i], shift, largest, normal, magic, sign)


def _loop(between: Callable[..., None], in_place: Callable[..., None]) -> Callable[..., None]:
    def rounded(source: np.ndarray, target: np.ndarray, *figures: Any) -> None:
        if source.ctypes.data == target.ctypes.data:
            in_place(target, *figures)
        else:
            between(source, target, *figures)

    return rounded


f16 = _loop(_f16_between, _f16_in_place)
bf16 = _loop(_bf16_between, _bf16_in_place)
saturating = _loop(_saturating_between, _saturating_in_place)
