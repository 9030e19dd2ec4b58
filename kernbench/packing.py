"""Numbers as the bytes that they are in memory, and back: packed formats, and the same bytes read in another format."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from kernbench.dtypes import DType
from kernbench.dtypes import dtype as to_dtype
from kernbench.errors import InputError, nearest

ORDERS = ("low_first", "high_first")
"""Which half of a byte holds the element of the even index."""


def pack(array: Any, order: str = "low_first") -> np.ndarray:
    """Pack an array of a 4-bit format two a byte along its last axis, for :func:`~kernbench.tensor` and ``tl.unpack``.

    Parameters
    ----------
    array
        ``ml_dtypes.float4_e2m1fn`` or ``ml_dtypes.int4``, with an even last axis.
    order
        ``low_first``: elements 0, 2, 4, ... lie in the low halves of their bytes; ``high_first``: in the high ones.

    Returns
    -------
    uint8 array
        Of half the last axis.

    Raises
    ------
    InputError
        If the array is of another format, or its last axis is odd.

    >>> import ml_dtypes
    >>> pack(np.array([1, -1, 2, 3], ml_dtypes.int4)).tolist()
    [241, 50]
    """
    values = np.asarray(array)
    kind = to_dtype(values.dtype)
    if not kind.is_packed:
        raise InputError(f"pack takes ml_dtypes.float4_e2m1fn or int4, not {values.dtype}")
    if order not in ORDERS:
        raise InputError(f"unknown order {order!r}{nearest(order, ORDERS)}")
    if values.ndim == 0 or values.shape[-1] % 2:
        raise InputError(f"an array {values.shape} cannot be packed two a byte: its last axis must be even")
    packed = to_bytes(values.astype(kind.held_as), kind)
    return packed if order == "low_first" else (packed << 4) | (packed >> 4)


def to_bytes(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Return held values as bytes along the last axis; packed ones low half first, padded to a whole byte."""
    if not dtype.is_packed:
        return np.ascontiguousarray(values.astype(dtype.external)).view(np.uint8)
    codes = values.astype(dtype.external).view(np.uint8) & 15
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros_like(codes[..., :1])], axis=-1)
    packed: np.ndarray = codes[..., 0::2] | codes[..., 1::2] << 4
    return packed


def from_bytes(raw: np.ndarray, dtype: DType) -> np.ndarray:
    """Return the held values of bytes along the last axis."""
    if dtype.kind == "bool":
        return np.not_equal(raw, 0)
    if dtype.bits > 8 or dtype.external == dtype.held_as:
        return np.ascontiguousarray(raw).view(dtype.external).astype(dtype.held_as)
    read: np.ndarray = _table(dtype)[raw]
    return read.reshape(*raw.shape[:-1], -1)


@cache
def _table(dtype: DType) -> np.ndarray:
    """For each byte the value, or the two values, that it holds."""
    codes = np.arange(256, dtype=np.uint8)
    if not dtype.is_packed:
        return codes.view(dtype.external).astype(dtype.held_as)
    halves = np.stack([codes & 15, codes >> 4], axis=1)
    return halves.view(dtype.external).astype(dtype.held_as)
