"""Quantities with units, read into exact integers of one base unit and written back.

========== =========== ==================
quantity   base unit   as written
========== =========== ==================
time       picosecond  ``40 ns``
size       byte        ``1 MiB``
bandwidth  byte/s      ``1.2 TB/s``, ``100 Gbit/s``
frequency  hertz       ``1 GHz``
rate       flop/s      ``8 Tflop/s``, ``8 TFLOPS``
========== =========== ==================

``k`` and ``K`` both mean 1000; 1024 is ``Ki``. Arithmetic is on fractions, never floats: a quantity that is not a
whole number of base units is an error, not a rounding.

Everyday spellings are looked up in a table. Any other combination (``B/ns``, ``Kibit``) goes to a private pint
registry that knows five units; importing pint takes longer than loading a machine, hence the table.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

from kernbench.errors import TopologyError, nearest

PS_PER_SECOND = 10**12
LARGEST = 2**62 - 1
"""No quantity exceeds this, so that the sum of two still fits an int64."""
LARGEST_NUMERATOR = 2**28
"""Bound on the numerator of a picoseconds-per-byte fraction: n x num stays below 2**63 up to n = 32 GiB."""

_SMALL = {"f": Fraction(1, 10**15), "p": Fraction(1, 10**12), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6),
          "m": Fraction(1, 1000)}  # fmt: skip
_LARGE = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

_TIMES = {f"{p}s": f * PS_PER_SECOND for p, f in _SMALL.items()} | {"s": Fraction(PS_PER_SECOND)}
_SIZES = {f"{p}B": Fraction(f) for p, f in ({"": 1} | _LARGE | _BINARY).items()}
_BITS = {f"{p}bit": Fraction(f, 8) for p, f in ({"": 1} | _LARGE).items()}
_HERTZ = {f"{p}Hz": Fraction(f) for p, f in ({"": 1} | _LARGE).items()}
_FLOPS = {f"{p}flop/s": Fraction(f) for p, f in ({"": 1} | _LARGE).items()}


@dataclass(frozen=True)
class Kind:
    """One kind of quantity."""

    noun: str
    """What a message calls it, with its article: ``a time``."""
    base: str
    """The base unit as written: values are whole numbers of it."""
    example: str
    """One quantity as a user would write it."""
    units: dict[str, Fraction] = field(repr=False, hash=False)
    """Everyday unit -> base units in one of it."""
    pint_base: str
    """The unit, in pint's terms, that ``per_pint_base`` counts base units of."""
    per_pint_base: int = 1


TIME = Kind("a time", "ps", "40 ns", _TIMES, "s", PS_PER_SECOND)
SIZE = Kind("a size", "B", "1 MiB", _SIZES | _BITS, "B")
BANDWIDTH = Kind("a bandwidth", "B/s", "256 GB/s", {f"{u}/s": f for u, f in (_SIZES | _BITS).items()}, "B/s")
FREQUENCY = Kind("a frequency", "Hz", "1 GHz", _HERTZ, "Hz")
RATE = Kind("a rate of arithmetic", "flop/s", "8 Tflop/s", _FLOPS, "flop/s")
KINDS = (TIME, SIZE, BANDWIDTH, FREQUENCY, RATE)

NUMBER = r"\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?"
"""A number as text. Its length is bounded so that no input can make exact arithmetic slow."""
_QUANTITY = re.compile(rf"\s*([+-]?)({NUMBER})\s*(.*?)\s*", re.DOTALL)
_UNIT = re.compile(r"[A-Za-z]{1,16}(?:/[A-Za-z]{1,16})?")
_FLOP_SPELLINGS = re.compile(r"([kKMGTP]?)(?:flop|op)(?:s|/s)", re.IGNORECASE)


def picoseconds(quantity: object) -> int:
    """Read a time; zero is allowed.

    Parameters
    ----------
    quantity : str
        A number and a unit of time, as ``"40 ns"``.

    Returns
    -------
    int
        Picoseconds.

    Raises
    ------
    TopologyError
        If the unit is missing, unknown or not one of time, or the time is negative or finer than 1 ps.

    >>> picoseconds("40 ns"), picoseconds("1.5 us")
    (40000, 1500000)
    """
    return parse(quantity, TIME)


def nbytes(quantity: object) -> int:
    """Read a size in bytes; raises as :func:`picoseconds` does.

    >>> nbytes("1 MiB"), nbytes("1 MB")
    (1048576, 1000000)
    """
    return parse(quantity, SIZE)


def bytes_per_s(quantity: object) -> int:
    """Read a bandwidth in bytes per second; raises as :func:`picoseconds` does.

    >>> bytes_per_s("1.2 TB/s"), bytes_per_s("100 Gbit/s")
    (1200000000000, 12500000000)
    """
    return parse(quantity, BANDWIDTH)


def hertz(quantity: object) -> int:
    """Read a frequency in hertz; raises as :func:`picoseconds` does.

    >>> hertz("1.7 GHz")
    1700000000
    """
    return parse(quantity, FREQUENCY)


def flops_per_s(quantity: object) -> int:
    """Read a rate of arithmetic in operations per second; raises as :func:`picoseconds` does.

    >>> flops_per_s("8 Tflop/s") == flops_per_s("8 TFLOPS") == flops_per_s("8 Tops")
    True
    """
    return parse(quantity, RATE)


def parse(quantity: object, kind: Kind) -> int:
    """Read a quantity of one kind as a whole number of its base units; raises as :func:`picoseconds` does."""
    if isinstance(quantity, (int, float)) and not isinstance(quantity, bool):
        raise TopologyError(_missing_unit(quantity, kind))
    match = _QUANTITY.fullmatch(quantity) if isinstance(quantity, str) else None
    if match is None:
        raise TopologyError(f"expected {kind.noun} such as '{kind.example}', found {shown(quantity)}")
    sign, number, unit = match.groups()
    if not unit:
        raise TopologyError(_missing_unit(f"{sign}{number}", kind))
    value = Fraction(number) * _factor(unit, kind, shown(quantity))
    if sign == "-" and value:
        raise TopologyError(f"{shown(quantity)} is negative; {kind.noun} is zero or more")
    if value.denominator != 1:
        raise TopologyError(f"{shown(quantity)} is not a whole number of {kind.base}: the resolution is 1 {kind.base}")
    if value > LARGEST:
        raise TopologyError(f"{shown(quantity)} is more than 2**62 {kind.base}, the largest that can be held")
    return int(value)


def text(value: int, kind: Kind) -> str:
    """Write a whole number of base units so that :func:`parse` gives it back.

    >>> text(40_000, TIME), text(1_200_000_000_000, BANDWIDTH), text(24 * 2**30, SIZE)
    ('40 ns', '1.2 TB/s', '24 GiB')
    """
    candidates = []
    for unit, factor in kind.units.items():
        if "bit" in unit or (unit[0] == "K" and not unit.startswith("Ki")):
            continue
        scaled = value / factor
        if scaled >= 1 and (scaled * 1000).denominator == 1:
            candidates.append((len(_decimal(scaled)), -factor, f"{_decimal(scaled)} {unit}"))
    return min(candidates)[2] if candidates else f"{value} {kind.base}"


def rational(per_second: int, kind: Kind = BANDWIDTH) -> tuple[int, int]:
    """Return (num, den) such that n units take ceil(n x num / den) picoseconds.

    Parameters
    ----------
    per_second : int
        Bytes per second (then n counts bytes), or flop/s or Hz.
    kind : Kind
        What ``per_second`` is, for the message.

    Raises
    ------
    TopologyError
        If num exceeds 2**28, beyond which n x num could overflow an int64.

    >>> rational(1_200_000_000_000), rational(64_000_000_000)
    ((5, 6), (125, 8))
    """
    if per_second <= 0:
        raise TopologyError(f"{kind.noun} must be more than zero, found {per_second} {kind.base}")
    common = math.gcd(PS_PER_SECOND, per_second)
    num, den = PS_PER_SECOND // common, per_second // common
    if num > LARGEST_NUMERATOR:
        # A multiple of 10**4 always passes; four significant digits where that is coarser still.
        rounder = max(round(per_second, min(4 - len(str(per_second)), -4)), 10**4)
        raise TopologyError(
            f"{per_second} {kind.base} is too odd a figure to time in exact picoseconds; "
            f"write a rounder one, e.g. '{text(rounder, kind)}'"
        )
    return num, den


def shown(value: object) -> str:
    """Write a value from a YAML file as a message shows it.

    >>> shown("fast"), shown(True), shown(None)
    ("'fast'", 'true', 'nothing')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    whole = repr(value) if isinstance(value, str) else str(value)
    return whole if len(whole) <= 60 else f"{whole[:57]}..."


def _missing_unit(number: object, kind: Kind) -> str:
    unit = kind.example.split()[1]
    written = number if float(str(number)) > 0 else kind.example.split()[0]
    return f"missing unit: {number}; write e.g. '{written} {unit}'"


def _factor(unit: str, kind: Kind, quantity: str) -> Fraction:
    """Base units of ``kind`` in one ``unit``."""
    unit = re.sub(r"\s*/\s*", "/", unit).replace("\u00b5", "u").replace("\u03bc", "u")
    if unit in kind.units:
        return kind.units[unit]
    flops = _FLOP_SPELLINGS.fullmatch(unit)
    if flops:
        unit = f"{flops[1]}flop/s"
    for other in KINDS:
        if unit in other.units:
            if other is kind:
                return other.units[unit]
            raise TopologyError(f"expected {kind.noun} such as '{kind.example}', found {quantity}, {other.noun}")
    factor = _pint_factor(unit, kind) if _UNIT.fullmatch(unit) else None
    if factor is None:
        known = [u for u in kind.units if u[0] not in "fKP" or u.startswith(("Ki", "flop"))]
        miscased = [f" (did you mean {u!r}?)" for u in known if u.lower() == unit.lower()]
        hint = miscased[0] if miscased else nearest(unit, known)
        raise TopologyError(f"unknown unit {unit!r} in {quantity}{hint}")
    if not factor:
        raise TopologyError(f"expected {kind.noun} such as '{kind.example}', found {quantity}")
    return factor


def _pint_factor(unit: str, kind: Kind) -> Fraction | None:
    """Base units in one ``unit`` by pint; None if pint does not know it, 0 if it is of another kind."""
    import pint

    registry = _registry()
    try:
        parsed = registry.parse_units(unit)
    except (pint.PintError, AttributeError, TypeError, ValueError):
        return None
    try:
        one = registry.convert(Fraction(1), parsed, registry.parse_units(kind.pint_base))
    except pint.DimensionalityError:
        return Fraction(0)
    return Fraction(one) * kind.per_pint_base


@lru_cache(maxsize=1)
def _registry() -> Any:
    """A registry of five units; pint's own thousand would take most of a second to read."""
    import pint

    registry: Any = pint.UnitRegistry(None, non_int_type=Fraction)
    for name, prefix in (_SMALL | _LARGE | _BINARY).items():
        registry.define(f"{name}- = {prefix}")
    for line in ("second = [time] = s", "bit = [size]", "byte = 8 bit = B", "flop = [work]", "hertz = 1/second = Hz"):
        registry.define(line)
    return registry


def _decimal(value: Fraction) -> str:
    """Write a fraction that has at most three decimals."""
    whole, thousandths = divmod(int(value * 1000), 1000)
    return f"{whole}.{thousandths:03d}".rstrip("0").rstrip(".")
