"""Names of places in a machine: ``sip0``, ``sip0.cube1``, ``sip0.cube1.pe3``, and sets of PEs as short text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kernbench.errors import compress

LEVELS = ("SIP", "CUBE", "PE")


class Place(NamedTuple):
    """A SIP, a CUBE or a PE by its indices; ``cube`` and ``pe`` are -1 above their level."""

    sip: int
    cube: int = -1
    pe: int = -1

    @property
    def level(self) -> int:
        """0 for a SIP, 1 for a CUBE, 2 for a PE."""
        return 0 if self.cube < 0 else 1 if self.pe < 0 else 2

    @property
    def own(self) -> int:
        """Index within the next level up."""
        return self[self.level]

    @property
    def parent(self) -> tuple[int, ...]:
        """Indices of the levels above."""
        return self[: self.level]

    def sibling(self, index: int) -> Place:
        """Return the place with another index within the same next level up."""
        return self._replace(**{self._fields[self.level]: index})

    def __str__(self) -> str:
        names = zip(("sip", "cube", "pe"), self[: self.level + 1], strict=False)
        return ".".join(f"{name}{index}" for name, index in names)


def parse_place(text: str) -> Place:
    """Read a name that has the form ``sip0``, ``sip0.cube1`` or ``sip0.cube1.pe3``.

    >>> parse_place("sip0.cube1")
    Place(sip=0, cube=1, pe=-1)
    """
    return Place(*(int(number) for number in re.findall(r"\d+", text)))


def describe_pes(places: Iterable[tuple[int, int, int]], one_sip: bool) -> str:
    """Write a set of PEs as ranges, together where CUBEs or SIPs have the same part of it.

    Parameters
    ----------
    places : iterable of (sip, cube, pe)
    one_sip : bool
        The machine has one SIP, which then goes without saying.

    >>> describe_pes([(0, c, p) for c in range(4) for p in (0, 2, 3)], one_sip=True)
    'cube 0-3 pe 0,2-3'
    """
    pes_of: dict[tuple[int, int], list[int]] = {}
    for sip, cube, pe in sorted(set(places)):
        pes_of.setdefault((sip, cube), []).append(pe)
    cubes_of: dict[int, dict[str, list[int]]] = {}
    for (sip, cube), pes in pes_of.items():
        cubes_of.setdefault(sip, {}).setdefault(compress(pes), []).append(cube)
    sips_of: dict[tuple[str, ...], list[int]] = {}
    for sip, groups in cubes_of.items():
        inside = tuple(f"cube {compress(cubes)} pe {pes}" for pes, cubes in groups.items())
        sips_of.setdefault(inside, []).append(sip)
    parts: list[str] = []
    for inside, sips in sips_of.items():
        where = "" if one_sip else f"sip {compress(sips)} "
        parts.extend(where + part for part in inside)
    return "; ".join(parts) or "no PE"
