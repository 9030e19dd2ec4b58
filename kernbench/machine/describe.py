"""The figures of a machine as its file writes them, each with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kernbench.machine.explain import is_under, path_text
from kernbench.machine.model import Machine
from kernbench.machine.units import shown


class Figure(NamedTuple):
    """One value of a machine file."""

    key: str
    """Dotted key path, as overrides take it."""
    value: str
    """The value as written."""
    note: str
    """The comment that trails it in the file (``source: ...`` or ``assumed``), ``override``, or nothing."""


def describe(machine: Machine) -> list[Figure]:
    """Return every value in a machine's file but its name and description, in the file's order.

    >>> from kernbench.machine import load_machine
    >>> next(f for f in describe(load_machine("row4_pe8", {"pe.clock": "2 GHz"})) if f.key == "pe.clock")
    Figure(key='pe.clock', value='2 GHz', note='override')
    """
    found = []
    for path, value in _leaves(machine.document, ()):
        key = path_text(path)
        if key not in ("name", "description"):
            changed = is_under(".".join(str(k) for k in path), machine.overridden)
            note = "override" if changed else machine.notes.get(key, "")
            found.append(Figure(key, value if isinstance(value, str) else shown(value), note))
    return found


def _leaves(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _leaves(inner, (*path, i))
    elif value is not None:
        yield path, value
