"""The bytes that an access touches: runs without gaps, and whether two of them can meet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

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


def are_apart(a: Stretch, b: Stretch) -> bool:
    """Whether two stretches from the same address have no byte in common; False where that is not known."""
    if a.high <= b.low or b.high <= a.low:
        return True
    period = math.gcd(a.period, b.period)
    if not period or a.width > period or b.width > period:
        return False
    between = (b.low - a.low) % period
    return between >= a.width and between + b.width <= period
