"""How close a kernel's values are to the reference, and how close is close enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TOLERANCE = {"f16": 5e-4, "bf16": 3.2e-3, "f32": 1e-5}
"""Largest relative L2 error that passes, by format. See :func:`tolerance`."""
WORST_ROW_FACTOR = 2
"""The worst single output row may err by this many times the tolerance."""


def tolerance(dtype: str) -> float:
    """Return the tolerance on the relative L2 error of an attention output in format ``dtype``.

    An output element carries two roundings to the format, that of the probabilities before they meet the values and
    its own, and the errors of many elements are independent. Over 450 random specs (1 to 5,000 keys, heads of 16 to
    128 elements), 131,072 keys, and the captured inputs the kernel ``gqa_decode`` was measured to err by at most

    ====== ============= ============= =================================
    format relative L2   worst row     unit roundoff of the format
    ====== ============= ============= =================================
    f16    3.2e-4        5.2e-4        2**-11 = 4.9e-4
    bf16   2.4e-3        3.5e-3        2**-8 = 3.9e-3
    f32    6.3e-7        1.1e-6        2**-24 = 6.0e-8 (sums of products)
    ====== ============= ============= =================================

    The tolerance is above that by at least a third (for f32 by more: its error grows with the size of the scores). It
    is below what one dropped tile costs: in the default bench (captured inputs, 32 tiles of 32 keys) at least 3.6e-3.
    """
    return TOLERANCE[dtype]


@dataclass(frozen=True)
class Correctness:
    """How close computed values are to the reference. Errors are NaN where a value is NaN or infinite."""

    max_abs: float
    """Largest absolute difference."""
    rel_l2: float
    """``|actual - reference| / |reference|`` over the whole output."""
    worst_row_rel_l2: float
    """The same for the output row (last axis) that is furthest off: an error in one head of many shows here."""
    cosine: float
    """Cosine of the angle between the two, each taken as one vector."""
    tolerance: float
    """Limit on :attr:`rel_l2`; :attr:`worst_row_rel_l2` may be ``WORST_ROW_FACTOR`` times as large."""
    nan_count: int
    """Computed values that are NaN or infinite."""
    passed: bool
    """Whether both errors are within their limits and every value is finite."""


def compare(actual: np.ndarray, reference: np.ndarray, tolerance: float) -> Correctness:
    """Hold ``actual`` against ``reference``.

    Parameters
    ----------
    actual
        Computed values, of any float format.
    reference
        Values in float64, of the same shape.
    tolerance
        Limit on the relative L2 error.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> result = compare(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]), tolerance=1e-3)
    >>> result.passed, result.rel_l2, round(result.cosine, 9)
    (True, 0.0, 1.0)
    """
    if actual.shape != reference.shape:
        raise ValueError(f"the kernel's output has shape {actual.shape}, the reference {reference.shape}")
    values = actual.astype(np.float64)
    nan_count = int(np.count_nonzero(~np.isfinite(values)))
    if nan_count:
        return Correctness(math.nan, math.nan, math.nan, math.nan, tolerance, nan_count, passed=False)
    difference = values - reference
    rel_l2 = float(_ratio(np.linalg.norm(difference), np.linalg.norm(reference)))
    worst = float(np.max(_ratio(np.linalg.norm(difference, axis=-1), np.linalg.norm(reference, axis=-1)), initial=0))
    return Correctness(
        max_abs=float(np.max(np.abs(difference), initial=0)),
        rel_l2=rel_l2,
        worst_row_rel_l2=worst,
        cosine=_cosine(values, reference),
        tolerance=tolerance,
        nan_count=0,
        passed=rel_l2 <= tolerance and worst <= tolerance * WORST_ROW_FACTOR,
    )


def _ratio(error: np.ndarray | np.floating, size: np.ndarray | np.floating) -> np.ndarray:
    """Return ``error / size``; where ``size`` is 0 only an error of 0 is right."""
    error, size = np.asarray(error), np.asarray(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / size)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    sizes = np.linalg.norm(a) * np.linalg.norm(b)
    if sizes == 0:
        return 1.0 if np.array_equal(a, b) else 0.0
    return float(np.vdot(a, b) / sizes)
