"""Operations on the bits of integers, of 32 or 64 bits as their type says."""

from __future__ import annotations

from typing import Any

import numpy as np


def shift_left(a: Any, n: Any) -> Any:
    """Shift by as many bits as the low bits of ``n`` say."""
    return np.left_shift(a, n & (a.dtype.itemsize * 8 - 1), dtype=a.dtype)


def shift_right(a: Any, n: Any) -> Any:
    """The same to the right, with the sign of signed numbers."""
    return np.right_shift(a, (n & (a.dtype.itemsize * 8 - 1)).astype(a.dtype))


def field(a: Any, where: Any) -> Any:
    """Bits of ``a`` from where[4:0] (or [5:0]), where[22:16] of them, extended as the type says."""
    bits = a.dtype.itemsize * 8
    offset = (where & (bits - 1)).astype(a.dtype)
    width = np.minimum((where >> 16) & 0x7F, bits).astype(a.dtype)
    shift = np.minimum(bits - width, bits - 1).astype(a.dtype)
    moved = np.right_shift(a, offset)
    kept = np.right_shift(np.left_shift(moved, shift), shift)
    return np.where(width == 0, a.dtype.type(0), kept)


def reverse(a: Any) -> Any:
    """Bits in the opposite order."""
    octets = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    bits = np.unpackbits(octets.reshape(-1, a.dtype.itemsize), axis=1, bitorder="little")
    return np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(a.dtype).reshape(np.shape(a))


def count_bits(a: Any) -> Any:
    """Number of set bits of each element."""
    octets = np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, a.dtype.itemsize)
    return np.unpackbits(octets, axis=1).sum(axis=1, dtype=np.uint32).reshape(np.shape(a))


def first_bit(a: Any) -> Any:
    """Position of the lowest set bit, or -1."""
    lowest = a & (~a + a.dtype.type(1))
    return np.where(a == 0, -1, count_bits(lowest - a.dtype.type(1)).astype(np.int32))


def leading_zeros(a: Any) -> Any:
    """Zeros above the highest set bit, or -1 where there is none."""
    wide = a.astype(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        wide = wide | (wide >> np.uint64(shift))
    zeros = a.dtype.itemsize * 8 - count_bits(wide).astype(np.int32)
    return np.where(a == 0, -1, zeros)


def leading_signs(a: Any) -> Any:
    """Bits at the top of signed numbers that equal the sign, or -1 where all do."""
    return leading_zeros((a ^ (a >> a.dtype.type(a.dtype.itemsize * 8 - 1))).view(np.uint32))


def high_product(a: Any, b: Any) -> Any:
    """Upper 32 bits of a product, signed or not as the type says."""
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    return ((a.astype(wide) * b.astype(wide)) >> wide(32)).astype(a.dtype)
