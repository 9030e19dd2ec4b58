"""Rotation of K and Q by a Hadamard matrix, the rounding of the rotated Q to E4M3, and the order of Q in registers.

With ``H`` the 256 x 256 Sylvester Hadamard matrix / 16 (symmetric, its own inverse), ``q . k = (q H) . (k H)``. The
cache holds ``k H``; the kernel makes ``q H``. V is not rotated and the output needs no rotation back.
"""

from __future__ import annotations

from typing import Literal

import ml_dtypes
import numpy as np
from threadpoolctl import threadpool_limits

from kernbench.errors import InputError
from kernbench.specs.ultraquant.layout import HEAD_SIZE

Overflow = Literal["saturate", "nan"]
Variant = Literal["reference", "triton"]

E4M3_MAX = 448.0
"""Largest finite value of E4M3 (OCP, ``fn``: no infinities)."""
_HALF = HEAD_SIZE // 2
_LANE_GROUPS = 4
_PER_LANE_GROUP = 32


def hadamard(n: int = HEAD_SIZE) -> np.ndarray:
    """Return the Sylvester Hadamard matrix of order ``n`` (a power of two) over ``sqrt(n)``; float64, shape (n, n).

    >>> (hadamard(4) * 2).astype(int).tolist()
    [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    """
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(n)


def butterfly(x: np.ndarray, factor: float = 1.0) -> np.ndarray:
    """Multiply by the Hadamard matrix of +1 and -1 in float32, as ``log2(n)`` stages of ``a + b`` and ``a - b``.

    Parameters
    ----------
    x : array, shape (..., n), n a power of two
    factor
        Every stage's sums and differences are multiplied by this, and rounded again.

    Returns
    -------
    array of float32, shape (..., n)
        In natural order. Stages go over strides 1, 2, 4 ...

    >>> butterfly(np.array([1.0, 2.0])).tolist()
    [3.0, -1.0]
    """
    y = np.array(x, dtype=np.float32)
    stride, n = 1, y.shape[-1]
    while stride < n:
        pairs = y.reshape(*y.shape[:-1], n // (2 * stride), 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        pairs = np.stack([a + b, a - b], axis=-2)
        if factor != 1:
            pairs = pairs * np.float32(factor)
        y = pairs.reshape(y.shape)
        stride *= 2
    return y


def rotate_keys(keys: np.ndarray, variant: Variant = "reference") -> np.ndarray:
    """Return ``keys @ H`` in float32, as the store quantises it.

    Parameters
    ----------
    keys : array, shape (..., 256)
    variant
        ``reference`` multiplies by the matrix in float32. The order of an fp32 product is nobody's promise, so here the
        sum is made in float64 and rounded once. ``triton`` follows the store kernel: a butterfly with a factor of
        ``1 / sqrt(2)`` at each stage (stages over rising strides; the real order was not seen). The two differ by
        a few float32 ulp.
    """
    if variant == "triton":
        return butterfly(keys, factor=1 / np.sqrt(2))
    with threadpool_limits(1, user_api="blas"):
        return (keys.astype(np.float64) @ hadamard(HEAD_SIZE)).astype(np.float32)


def to_e4m3(x: np.ndarray, overflow: Overflow = "saturate") -> np.ndarray:
    """Round to the grid of E4M3, to nearest and ties to even; float32 in the shape of ``x``.

    Parameters
    ----------
    overflow
        What becomes of ``|x|`` that rounds beyond 448: ``saturate`` gives 448, as PyTorch 2.13 does; ``nan`` is
        what the hardware's conversion is believed to give in its default mode (not verified on hardware).

    >>> to_e4m3(np.array([1.06, 464.0, 465.0])).tolist()
    [1.0, 448.0, 448.0]
    >>> to_e4m3(np.array([464.0, 465.0]), overflow="nan").tolist()
    [448.0, nan]
    """
    if overflow not in ("saturate", "nan"):
        raise InputError(f"overflow={overflow!r}: it must be 'saturate' or 'nan'")
    values = np.asarray(x, dtype=np.float32)
    if overflow == "saturate":
        values = np.clip(values, -E4M3_MAX, E4M3_MAX)
    return values.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def rotate_queries(queries: np.ndarray, overflow: Overflow = "saturate") -> np.ndarray:
    """Rotate Q as the kernel does: butterfly in float32, times 1/16 (exact), rounded to E4M3.

    Parameters
    ----------
    queries : array, shape (..., 256)
        Rounded to bfloat16 first if it is wider.
    overflow
        See :func:`to_e4m3`.

    Returns
    -------
    array of float32, shape (..., 256)
        Values on the grid of E4M3, in natural order.
    """
    return to_e4m3(butterfly(queries.astype(ml_dtypes.bfloat16)) * np.float32(1 / 16), overflow)


def query_permutation() -> np.ndarray:
    """Return ``qperm``: place ``i`` of the shared memory holds element ``qperm[i]`` of the rotated Q; shape (256,).

    The scaled matrix instruction takes 128 elements of the dot product at once. Lane group ``g`` supplies bytes
    ``j = 0 ... 31`` of its FP8 operand and nibbles ``j`` of its FP4 operand, but ``j`` does not mean the same
    element in both (:func:`fp8_elements`, :func:`fp4_elements`). Permuting Q mends that; the score remains the plain
    dot product in natural order. The inverse is a permutation of the index's bits (:func:`inverse_permutation`).
    """
    perm = np.empty(HEAD_SIZE, dtype=np.int64)
    group, step = np.meshgrid(np.arange(_LANE_GROUPS), np.arange(_PER_LANE_GROUP), indexing="ij")
    place = 32 * (step >> 4) + 64 * (group % 2) + 16 * (group // 2) + (step & 15)
    for first in (0, _HALF):
        perm[first + place] = first + _PER_LANE_GROUP * group + step
    return perm


def inverse_permutation(dim: np.ndarray) -> np.ndarray:
    """Return the places in shared memory of elements ``dim`` (0 ... 255) of the rotated Q."""
    return (dim & 0x8F) | ((dim >> 2) & 0x10) | ((dim << 1) & 0x60)


def fp8_elements() -> np.ndarray:
    """Element of the half, 0 ... 127, that byte ``j`` of lane group ``g`` stands for in FP8; shape (4, 32)."""
    group, j = np.meshgrid(np.arange(_LANE_GROUPS), np.arange(_PER_LANE_GROUP), indexing="ij")
    return 64 * (j >> 4) + 16 * group + (j & 15)


def fp4_elements() -> np.ndarray:
    """Element of the half, 0 ... 127, that nibble ``j`` of lane group ``g`` stands for in FP4; shape (4, 32)."""
    return np.arange(_HALF).reshape(_LANE_GROUPS, _PER_LANE_GROUP)
