"""The store-side quantiser: float values to 4-bit codes and power-of-two scales.

Source: vLLM 0.33.0, ``ultraquant/reference.py`` and ``triton_store.py``. (The scalar ``ue8m0_encode`` of its
``format.py`` rounds otherwise; it is not what the store does.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.errors import InputError
from kernbench.specs.ultraquant.layout import SCALE_BIAS, SCALE_GROUP, SLOT_BYTES, pack_slots
from kernbench.specs.ultraquant.rotation import Variant, rotate_keys

SCALE_FACTOR = np.float32(0.156)
"""The scale aims at ``0.156 * amax``, so that ``amax`` over the scale lies in [4.53, 9.07]: the top is clipped to 6."""
_LEVEL_BOUNDS = np.array([-5, -3.5, -2.5, -1.75, -1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
"""Midpoints between neighbouring levels. A value on a midpoint goes to the lower level, towards minus infinity."""
_CODE_OF_LEVEL = np.array([15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7], dtype=np.uint8)
"""Codes of the levels -6 ... 6 in rising order; zero is 0, never the code 8 of -0."""


class Quantised(NamedTuple):
    """Codes and scales of an array (..., n)."""

    codes: np.ndarray
    """uint8 0 ... 15, shape (..., n)."""
    scales: np.ndarray
    """uint8 UE8M0, shape (..., n / 32)."""


def quantise(x: np.ndarray, variant: Variant = "reference") -> Quantised:
    """Quantise groups of 32 neighbouring elements.

    For each group, with ``amax`` its largest magnitude: ``e = floor(log2(0.156 * amax) + 0.5)`` in float32, the scale
    byte is ``e + 127``, and each element takes the level nearest to ``x / 2**e``, ties to the lower level. A group of
    zeros gets byte 0 and codes 0.

    Parameters
    ----------
    x : array, shape (..., n), n a multiple of 32
        Finite values; rounded to float32 first if they are wider.
    variant
        The two differ at the far end only. ``reference`` clamps ``e`` to [-126, 127]. ``triton`` writes byte 0
        where ``e + 127`` leaves [0, 255], so that such a group reads back as 0; its codes are as computed
        (what upstream writes there was not checked).

    Raises
    ------
    InputError
        If a value is NaN or infinite, for which no scale is defined, or ``n`` is not a multiple of 32.

    >>> codes, scales = quantise(np.linspace(-4, 4, 32))
    >>> scales.tolist(), codes[:4].tolist(), codes[-4:].tolist()
    ([126], [15, 15, 15, 15], [7, 7, 7, 7])
    """
    if x.shape[-1] % SCALE_GROUP:
        raise InputError(f"{x.shape[-1]} elements cannot be quantised: groups of {SCALE_GROUP} share a scale")
    with np.errstate(over="ignore"):
        groups = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // SCALE_GROUP, SCALE_GROUP)
    if not np.isfinite(groups).all():
        raise InputError("values to quantise must be finite: NaN and infinities have no scale")
    amax = np.abs(groups).max(axis=-1)
    exponent = _scale_exponents(amax, variant)
    scaled = groups / np.exp2(exponent.astype(np.float64))[..., None]
    codes = _CODE_OF_LEVEL[np.searchsorted(_LEVEL_BOUNDS, scaled, side="left")]
    scales = exponent + SCALE_BIAS
    scales = np.where((scales < 0) | (scales > 255) | (amax == 0), 0, scales).astype(np.uint8)
    return Quantised(codes.reshape(x.shape), scales)


def quantise_slots(
    keys: np.ndarray, values: np.ndarray, padded_slot: int = SLOT_BYTES, variant: Variant = "reference"
) -> np.ndarray:
    """Rotate K, quantise K and V, and lay them out as cache slots.

    Parameters
    ----------
    keys, values : arrays, shape (..., 256)
        In natural order, not rotated.
    padded_slot
        Bytes of a slot.
    variant
        See :func:`quantise` and :func:`~kernbench.specs.ultraquant.rotation.rotate_keys`.

    Returns
    -------
    array of uint8, shape (..., padded_slot)
    """
    k, v = quantise(rotate_keys(keys, variant), variant), quantise(values, variant)
    return pack_slots(k.codes, k.scales, v.codes, v.scales, padded_slot)


def _scale_exponents(amax: np.ndarray, variant: Variant) -> np.ndarray:
    """Return ``e`` of groups with magnitude ``amax`` (float32), as int64; 0 for a group of zeros."""
    if variant not in ("reference", "triton"):
        raise InputError(f"variant={variant!r}: it must be 'reference' or 'triton'")
    target = amax * SCALE_FACTOR
    with np.errstate(divide="ignore"):  # subnormal amax may vanish here
        log = np.log2(target.astype(np.float64)).astype(np.float32)  # a correctly rounded float32 log2
    exponent = np.floor(log + np.float32(0.5))
    exponent = np.clip(exponent, -126, 127) if variant == "reference" else np.clip(exponent, -160, 160)
    return np.where(amax == 0, 0, exponent).astype(np.int64)
