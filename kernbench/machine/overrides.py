"""Changing single values of a machine file by their dotted key, as sweeps and command lines do."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from kernbench.errors import TopologyError
from kernbench.machine.units import shown


def apply(document: Any, changes: Mapping[str, Any], source: str) -> Any:
    """Return a copy of a document with the values at some key paths replaced.

    Whether a key is known is left to the check of the whole document, which names the nearest one.

    Parameters
    ----------
    document : mapping
        A machine file as parsed.
    changes : mapping
        Dotted key path -> value as a file would hold it; None takes the key away.
    source : str
        File name that messages begin with.

    Raises
    ------
    TopologyError
        If a path goes through something that is not a mapping.

    >>> apply({"cube": {"pes": {"columns": 4}}}, {"cube.pes.columns": 2}, "row4_pe8.yaml")
    {'cube': {'pes': {'columns': 2}}}
    """
    changed = copy.deepcopy(document)
    for path, value in changes.items():
        keys = split(path, source)
        holder = changed
        for depth, key in enumerate(keys[:-1]):
            holder = _enter(holder, key, keys[: depth + 1], f"{source}: {path}")
        _set(holder, keys[-1], copy.deepcopy(value), f"{source}: {path}")
    return changed


def split(path: str, source: str) -> list[str]:
    """Split a dotted key path; ``links[0].to`` and ``links.0.to`` are the same."""
    keys = re.sub(r"\[(\d+)\]", r".\1", str(path)).split(".")
    if not all(keys):
        raise TopologyError(f"{source}: {shown(path)} is not a key path; write e.g. 'cube.memory.bandwidth'")
    return keys


def _enter(holder: Any, key: str, path: list[str], where: str) -> Any:
    if isinstance(holder, list):
        inner = holder[_position(holder, key, where)]
    else:
        inner = holder.get(key)
        if inner is None:
            inner = holder[key] = {}
    if not isinstance(inner, (dict, list)):
        raise TopologyError(f"{where}: unknown key; {'.'.join(path)} is a single value, {shown(inner)}")
    return inner


def _set(holder: Any, key: str, value: Any, where: str) -> None:
    if isinstance(holder, list):
        holder[_position(holder, key, where)] = value
    elif value is None:
        holder.pop(key, None)
    else:
        holder[key] = value


def _position(holder: list[Any], key: str, where: str) -> int:
    if not key.isdecimal() or int(key) >= len(holder):
        raise TopologyError(f"{where}: expected a position in the list, from 0 to {len(holder) - 1}, found {key!r}")
    return int(key)
