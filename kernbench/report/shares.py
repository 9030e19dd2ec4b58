"""Shares of a whole, as results hold them, turned back into integers that add up to it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from kernbench.errors import InputError


def parts_of(shares: Mapping[str, float], whole: int) -> dict[str, int]:
    """Return ``share * whole`` of each as integers that add up to ``whole`` exactly, by largest remainders.

    Shares that :func:`kernbench.run.exact_shares` made of integers below 2**39 come back as those integers.

    Raises
    ------
    InputError
        If the shares do not add up to 1.

    Examples
    --------
    >>> parts_of({"a": 0.25, "b": 0.75}, 10)
    {'a': 3, 'b': 7}
    """
    exact = {name: Fraction(share) * whole for name, share in shares.items()}
    parts = {name: part.numerator // part.denominator for name, part in exact.items()}
    left = whole - sum(parts.values())
    if not 0 <= left <= len(parts):
        raise InputError(f"the shares {', '.join(shares)} add up to {float(sum(shares.values()))}, not to 1")
    for name in sorted(parts, key=lambda name: parts[name] - exact[name])[:left]:
        parts[name] += 1
    return parts
