"""The two bodies of the rocke attention kernels, operation by operation in float32.

What both have in common: a masked score is -1e30, never -inf; there is no fused multiply-add; the running maximum,
sum and output are rescaled at each step, also when the maximum stays. ``exp2`` is taken as correctly rounded (the
hardware's may be 1 ulp off) and a reciprocal as a division.

A row with no kept key comes out as the mean of V: each score equals the running maximum -1e30, so each weight is 1.
"""

from __future__ import annotations

import numpy as np

from kernbench.specs.rocke.common import TILE_KEYS, WARP_LANES
from kernbench.specs.rocke.layouts import ELEMENTS
from kernbench.specs.rocke.mfma import Accumulate, matmul

SENTINEL = np.float32(-1e30)
"""The score of a masked key, and the first running maximum."""

_FLOATS_AT_ONCE = 1 << 18


def exp2(x: np.ndarray) -> np.ndarray:
    """Return ``2**x`` rounded to float32."""
    return np.exp2(x.astype(np.float64)).astype(np.float32)


def to_element(x: np.ndarray, element: str) -> np.ndarray:
    """Round float32 numbers to ``f16`` or ``bf16``, ties to even, and return them in that format."""
    return x.astype(ELEMENTS[element])


def butterfly_sum(x: np.ndarray) -> np.ndarray:
    """Add over axis 0 as lanes do that exchange with lane XOR 1, 2, 4, ...: neighbours first.

    Every lane ends with the same number, since an addition does not depend on the order of its two operands; so it is
    enough to follow lane 0.

    Parameters
    ----------
    x : array of float32, shape (lanes, ...)
        ``lanes`` is a power of two.
    """
    while len(x) > 1:
        x = x[0::2] + x[1::2]
    return x[0]


def mfma_body(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: np.ndarray,
    k_scale: np.ndarray | None,
    keep: np.ndarray | None,
    element: str,
    accumulate: Accumulate,
) -> np.ndarray:
    """Follow the MFMA body: tiles of 16 query rows, steps of 16 keys.

    Parameters
    ----------
    q : array of float32, shape (heads, rows, d)
    k, v : array of float32, shape (heads, keys, d)
        One per *query* head; ``keys`` is a multiple of 16.
    scale : array of float32, shape (heads, rows)
        First factor on the scores.
    k_scale : array of float32, shape (heads, keys), or None
        Second factor on the scores.
    keep : array of bool, shape (rows, keys), or None
        Which scores are not replaced by the sentinel.
    element
        Format of the operands of the matrix instructions and of the result.
    accumulate
        How matrix instructions add; see :mod:`kernbench.specs.rocke.mfma`.

    Returns
    -------
    array of ``element``, shape (heads, rows, d)
        A row is 0 if there are no keys at all.
    """
    heads, rows, _ = q.shape
    m = np.full((heads, rows), SENTINEL)
    l = np.zeros((heads, rows), np.float32)
    acc = np.zeros(q.shape, np.float32)
    with np.errstate(all="ignore"):
        for keys in _key_chunks(k.shape[1], heads * rows, TILE_KEYS):
            s = matmul(
                q, k[:, keys].swapaxes(1, 2), np.zeros((heads, rows, keys.stop - keys.start), np.float32),
                element, accumulate,
            )  # fmt: skip
            s = _masked(s * scale[..., None], k_scale, keep, keys)
            for first in range(0, s.shape[-1], TILE_KEYS):
                tile = s[..., first : first + TILE_KEYS]
                v_tile = v[:, keys.start + first : keys.start + first + TILE_KEYS]
                m, l, acc = _mfma_step(tile, v_tile, m, l, acc, element, accumulate)
        inverse = np.where(l == 0, np.float32(0), np.float32(1) / l)
        return to_element(acc * inverse[..., None], element)


def _mfma_step(
    s: np.ndarray, v: np.ndarray, m: np.ndarray, l: np.ndarray, acc: np.ndarray, element: str, accumulate: Accumulate
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take in 16 keys: scores ``(heads, rows, 16)`` and values ``(heads, 16, d)``."""
    m_new = np.fmax(m, np.fmax.reduce(s, axis=-1))
    keep_factor = exp2(m - m_new)
    p = exp2(s - m_new[..., None])
    l_new = l * keep_factor + butterfly_sum(np.moveaxis(p, -1, 0))
    rounded = to_element(p, element).astype(np.float32)
    return m_new, l_new, matmul(rounded, v, acc * keep_factor[..., None], element, accumulate)


def warp_body(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: np.float32,
    qk_scale: np.ndarray,
    keep: np.ndarray | None,
    element: str,
) -> np.ndarray:
    """Follow the warp body: one query row a wave, one key a step, lane ``t`` owns ``d / 64`` neighbouring elements.

    Parameters
    ----------
    q : array of float32, shape (heads, rows, d)
    k, v : array of float32, shape (heads, keys, d)
        One per *query* head.
    scale
        First factor on the scores.
    qk_scale : array of float32, shape (heads, rows, keys) or one that broadcasts to it
        Second factor on the scores.
    keep : array of bool, shape (rows, keys), or None
        Which scores are not replaced by the sentinel.
    element
        Format of the result.

    Returns
    -------
    array of ``element``, shape (heads, rows, d)
        NaN if there are no keys at all: here the reciprocal has no guard.
    """
    heads, rows, d = q.shape
    m = np.full((heads, rows), SENTINEL)
    l = np.zeros((heads, rows), np.float32)
    acc = np.zeros((heads, rows, d), np.float32)
    with np.errstate(all="ignore"):
        for keys in _key_chunks(k.shape[1], heads * rows * WARP_LANES, 1):
            s = _lane_dots(q, k[:, keys]) * scale
            s = _masked(s, qk_scale[..., keys], keep, keys)
            for j in range(s.shape[-1]):
                score = s[..., j]
                m_new = np.fmax(m, score)
                keep_factor, p = exp2(m - m_new), exp2(score - m_new)
                l = l * keep_factor + p
                acc *= keep_factor[..., None]
                acc += p[..., None] * v[:, keys.start + j, None, :]
                m = m_new
        return to_element(acc * (np.float32(1) / l)[..., None], element)


def _lane_dots(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return ``(heads, rows, keys)`` dot products: each lane adds its own elements from 0, then lanes add up."""
    per_lane = q.shape[-1] // WARP_LANES
    q_lanes = np.moveaxis(q.reshape(*q.shape[:2], WARP_LANES, per_lane), (2, 3), (0, 1))[..., None]
    k_lanes = np.moveaxis(k.reshape(*k.shape[:2], WARP_LANES, per_lane), (2, 3), (0, 1))[..., None, :]
    partial = np.float32(0) + q_lanes[:, 0] * k_lanes[:, 0]
    for slot in range(1, per_lane):
        partial += q_lanes[:, slot] * k_lanes[:, slot]
    return butterfly_sum(partial)


def _masked(s: np.ndarray, factor: np.ndarray | None, keep: np.ndarray | None, keys: slice) -> np.ndarray:
    """Multiply scores by their second factor, then put the sentinel where a key is not kept."""
    if factor is not None:
        s = s * (factor[:, None, keys] if factor.ndim == 2 else factor)
    return s if keep is None else np.where(keep[:, keys], s, SENTINEL)


def _key_chunks(keys: int, floats_per_key: int, step: int) -> list[slice]:
    """Cut the keys into runs, multiples of ``step``, small enough to hold."""
    size = max(1, _FLOATS_AT_ONCE // max(1, floats_per_key * step)) * step
    return [slice(first, min(first + size, keys)) for first in range(0, keys, size)]
