"""Figures written so that people read them at a glance; the exact ones stand beside them or in the JSON."""

from __future__ import annotations


def time_text(ps: int) -> str:
    """Write picoseconds in the unit that fits.

    >>> time_text(2_509_000), time_text(-1_500), time_text(999)
    ('2.509 µs', '-1.500 ns', '999 ps')
    """
    for unit, size in (("s", 10**12), ("ms", 10**9), ("µs", 10**6), ("ns", 10**3)):
        if abs(ps) >= size:
            return f"{ps / size:,.3f} {unit}"
    return f"{ps} ps"


def bytes_text(n: int) -> str:
    """Write bytes in the unit that fits.

    >>> bytes_text(1536), bytes_text(100)
    ('1.50 KiB', '100 B')
    """
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n >= size:
            return f"{n / size:,.2f} {unit}"
    return f"{n} B"


def scaled_text(n: int, unit: str) -> str:
    """Write a count with the prefix that fits.

    >>> scaled_text(2_360_000, "flop")
    '2.36 Mflop'
    """
    for prefix, size in (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:,.2f} {prefix}{unit}"
    return f"{n} {unit}"
