"""The bytes that an access touches: runs without gaps, and whether two of them can meet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernbench.dtypes import DTYPES
from kernbench.record.trace import Access


class Stretch(NamedTuple):
    """Bytes ``low`` to ``high - 1``, counted from an address: of each ``period`` bytes only the first ``width``.

    ``period`` is 0 if there are no gaps.
    """

    low: int
    high: int
    width: int
    period: int


@dataclass(frozen=True)
class Runs:
    """The bytes of an access as runs without gaps: ``run`` bytes at ``low``, repeated along ``steps``."""

    low: int
    """From the address of the access to the first byte."""
    run: int
    steps: tuple[tuple[int, int], ...]
    """(count, bytes from one to the next), for the axes along which there are gaps."""

    def starts(self) -> np.ndarray:
        """First byte of each run, from the address of the access."""
        starts = np.array([self.low])
        for count, step in self.steps:
            starts = (starts[:, None] + np.arange(count) * step).reshape(-1)
        return starts

    def stretch(self) -> Stretch:
        """Return the bounds of the runs and what is known of the gaps."""
        reach = sum((count - 1) * step for count, step in self.steps)
        return Stretch(self.low, self.low + reach + self.run, self.run, math.gcd(*(step for _, step in self.steps)))


def runs_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Runs:
    """Return the bytes that an access of ``shape`` (its valid part) touches; strides are in elements."""
    low, run = 0, itemsize
    steps = []
    for n, stride in sorted(zip(shape, strides, strict=True), key=lambda axis: abs(axis[1])):
        step = abs(stride) * itemsize
        if stride < 0:
            low -= (n - 1) * step
        if step <= run:
            run += (n - 1) * step
        elif n > 1:
            steps.append((n, step))
    return Runs(low, run, tuple(steps))


def runs_of_access(access: Access) -> Runs:
    """Return the bytes that an access touches, from its address."""
    return runs_of(access.valid or access.shape, access.strides, DTYPES[access.dtype].nbytes)


def meets(a: Stretch, b: Stretch, shift: Any) -> Any:
    """Whether two stretches may have a byte in common, if ``b`` counts from ``shift`` bytes behind where ``a`` does.

    True also where that is not known. ``shift`` may be an array; so is the answer then.
    """
    low, high = b.low + shift, b.high + shift
    meet = (a.low < high) & (low < a.high)
    period = math.gcd(a.period, b.period)
    if period and a.width <= period and b.width <= period:
        between = (low - a.low) % period
        meet = meet & ((between < a.width) | (between + b.width > period))
    return meet


def covers(a: Stretch, b: Stretch, shift: Any) -> Any:
    """Whether ``a`` holds every byte of ``b``, counted as in :func:`meets`; False also where that is not known."""
    return (not a.period) & (a.low <= b.low + shift) & (b.high + shift <= a.high)
