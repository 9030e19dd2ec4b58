"""Rounding of float32 numbers to the grids of narrower formats.

A value of ``f16`` or ``bf16`` is held as a float32 number that the narrower format could represent too.
Arithmetic is done in float32, and its result is moved to the nearest such number, ties to even, with the
narrow format's own overflow, subnormals and NaN. To add a format, add a row to ``ROUNDERS``.

Formats of 8 and 4 bits *saturate*: what is larger than the largest number, infinity too, becomes that number (the
saturating mode of OCP's OFP8, of conversion instructions with ``satfinite`` or a clamp bit, and of PyTorch's
casts). NaN stays NaN, also for ``fp4e2m1``, which has none: machines differ in what they make of it, so it stays
visible.
``e8m0`` holds powers of two only: the nearest one, halves up; numbers that it cannot scale by (zero, negatives,
infinity, 1.5 * 2**127 and more) are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from kernbench.dtypes import DType
from kernbench.dtypes import dtype as to_dtype
from kernbench.errors import InputError

Rounder = Callable[[np.ndarray, np.ndarray], None]
"""Rounds a flat float32 array into another one, which may be the same array."""


def _f16(source: np.ndarray, target: np.ndarray) -> None:
    from kernbench.execute import rounding_kernels  # numba is slow to import: only when something is rounded

    rounding_kernels.f16(source, target)


def _bf16(source: np.ndarray, target: np.ndarray) -> None:
    from kernbench.execute import rounding_kernels

    rounding_kernels.bf16(source, target)


def _narrow(name: str) -> Rounder:
    """Make the rounder of a small float out of its own figures."""

    @cache
    def figures() -> tuple[Any, ...]:
        import ml_dtypes

        external = to_dtype(name).external
        info: Any = ml_dtypes.finfo(external)  # type: ignore[no-untyped-call]
        shift = 23 - info.nmant
        largest, normal = (np.float32(x).view(np.uint32) for x in (info.max, info.smallest_normal))
        magic = np.float32(info.smallest_subnormal) * np.float32(2**23)  # its last place is the subnormals' spacing
        signed_zero = bool(np.signbit(np.float32(-0.0).astype(external).astype(np.float32)))
        return np.uint32(shift), largest, normal, magic, np.uint32(signed_zero)

    def rounder(source: np.ndarray, target: np.ndarray) -> None:
        from kernbench.execute import rounding_kernels

        rounding_kernels.saturating(source, target, *figures())

    return rounder


def _e8m0(source: np.ndarray, target: np.ndarray) -> None:
    external = to_dtype("e8m0").external
    np.copyto(target, source.astype(external).astype(np.float32))


ROUNDERS: dict[str, Rounder | None] = {
    "f32": None,
    "f16": _f16,
    "bf16": _bf16,
    **{name: _narrow(name) for name in ("fp8e4m3", "fp8e4m3fnuz", "fp8e5m2", "fp4e2m1")},
    "e8m0": _e8m0,
}
"""The rounding function of each float format; None where float32 itself is the grid."""


def round_to(array: np.ndarray, dtype: DType | str, out: np.ndarray | None = None) -> np.ndarray:
    """Round float32 numbers to the nearest number of a float format, ties to even.

    Parameters
    ----------
    array
        float32, of any shape.
    dtype
        A float format.
    out
        float32 array of the same shape for the result; may be ``array`` itself. A new one by default.

    Returns
    -------
    float32 array
        ``out``: numbers on the grid of ``dtype``.

    Raises
    ------
    InputError
        If ``dtype`` is not a float format that can be rounded to.

    >>> round_to(np.array([1.0003, 65519, 65520, 2e-8], np.float32), "f16").tolist()
    [1.0, 65504.0, inf, 0.0]
    """
    name = to_dtype(dtype).name
    if name not in ROUNDERS:
        raise InputError(f"float32 numbers cannot be rounded to {name}: only to {', '.join(ROUNDERS)}")
    if out is None:
        out = np.empty(array.shape, np.float32)
    rounder = ROUNDERS[name]
    if rounder is None:
        np.copyto(out, array)
    elif out.flags.c_contiguous:
        rounder(np.ascontiguousarray(array).reshape(-1), out.reshape(-1))
    else:
        np.copyto(out, round_to(array, dtype))
    return out
