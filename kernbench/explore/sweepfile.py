"""What a sweep file says: read, checked, its ranges written out. ``docs/sweeps.md`` describes it for users."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from kernbench.errors import InputError, TopologyError, nearest
from kernbench.explore.expressions import quantity
from kernbench.machine import units, yamlfile

Method = Literal["exhaustive", "random", "guided"]
METRICS = {
    "makespan": "makespan_ps",
    "scratch_peak": "scratch_peak_bytes",
    "link_bytes": "link_bytes",
    "hbm_bytes": "hbm_bytes",
    "cost": "cost",
}
"""Objective → column of the results; each is the better the smaller it is."""
_MOST_VALUES = 100_000
_FINEST = 10**30
"""Largest denominator of a plain number in a range."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Search(_Part):
    """Which points of the space are tried."""

    method: Method = "exhaustive"
    points: int | None = Field(None, ge=1, strict=True, description="how many, unless exhaustive")
    seed: int = Field(0, ge=0)


class SweepFile(_Part):
    """A sweep file with its ranges written out: every setting has the list of its values."""

    name: str
    bench: str
    topology: tuple[str, ...] = Field(("row4_pe8",), min_length=1)
    spec: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    splits: Literal["all"] | tuple[dict[str, str], ...] = ()
    machine: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    cost: str | None = None
    objectives: tuple[str, ...] = Field(("makespan",), min_length=1)
    search: Search = Search()

    @field_validator("topology")
    @classmethod
    def _different(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for i, name in enumerate(value):
            if name in value[:i]:
                raise ValueError(f"{name!r} is given twice")
        return value

    @field_validator("topology", "constraints", "objectives", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("spec", "machine", mode="before")
    @classmethod
    def _written_out(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict):
            raise ValueError("expected a mapping of names to values")
        found, faults = {}, []
        for name, given in value.items():
            try:
                found[str(name)] = tuple(values_of(given))
            except ValueError as error:
                faults.append(f"{info.field_name}.{name}: {error}")
        if faults:
            raise ValueError("\n".join(faults))
        return found

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", value):
            raise ValueError(f"expected letters, digits and any of _ . -, found {value!r}")
        return value

    @field_validator("splits", mode="before")
    @classmethod
    def _levels(cls, value: Any) -> Any:
        if isinstance(value, list) and not value:
            raise ValueError("is empty; write all, or assignments such as {heads: pe, S_kv: cube}")
        if isinstance(value, list) and all(isinstance(one, dict) for one in value):
            return tuple({str(k): _levels_text(v) for k, v in one.items()} for one in value)
        if value != "all":
            raise ValueError("expected all, or a list of assignments such as {heads: pe, S_kv: cube}")
        return value

    @field_validator("objectives")
    @classmethod
    def _known_objectives(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for i, name in enumerate(value):
            if name not in METRICS:
                raise ValueError(f"unknown objective {name!r}{nearest(name, METRICS)}")
            if name in value[:i]:
                raise ValueError(f"objective {name!r} is given twice")
        return value

    @field_validator("search", mode="before")
    @classmethod
    def _search(cls, value: Any) -> Any:
        if value == "exhaustive":
            return Search()
        if isinstance(value, dict) and (ways := [way for way in ("random", "guided") if way in value]):
            rest = {key: given for key, given in value.items() if key != ways[0]}
            return {"method": ways[0], "points": value[ways[0]], **rest}
        if isinstance(value, dict) and "method" in value:  # as a store holds it
            return value
        raise ValueError("expected exhaustive, or {random: 200, seed: 1}, or {guided: 200, seed: 1}")

    @classmethod
    def read(cls, path: Path) -> SweepFile:
        """Read a sweep file; its name is that of the file unless it gives one.

        Raises
        ------
        InputError
            With one line for each fault: the file, the key path, and what would be right.
        """
        source = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not a text file in UTF-8"
            raise InputError(f"{source}: cannot be read: {reason}") from None
        return cls.parse(text, source, path.stem)

    @classmethod
    def parse(cls, text: str, source: str, name: str) -> SweepFile:
        """Read the text of a sweep file; as :meth:`read`."""
        if not any(line.split("#")[0].strip() for line in text.splitlines()):
            raise InputError(f"{source}: is empty; a sweep file names at least a bench")
        try:
            document, _ = yamlfile.parse(text, source)
        except TopologyError as error:
            raise InputError(str(error)) from None
        if not isinstance(document, dict):
            raise InputError(f"{source}: expected a mapping with the keys {', '.join(cls.model_fields)}")
        return cls.from_document({"name": name} | document, source)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], source: str) -> SweepFile:
        """Check a sweep file that is parsed; as :meth:`read`."""
        try:
            return cls.model_validate(dict(document))
        except ValidationError as error:
            raise InputError("\n".join(f"{source}: {line}" for line in _faults(error))) from None


def sweep_name(text: str) -> str:
    """Return the name of a sweep that is given by its name or by its file."""
    path = Path(text)
    if path.suffix not in (".yaml", ".yml"):
        return text
    return SweepFile.read(path).name


def _faults(error: ValidationError) -> Iterator[str]:
    """Yield ``key path: what is wrong`` for each fault."""
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        last = str(problem["loc"][-1]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            model = Search if problem["loc"][0] == "search" else SweepFile
            yield f"{where}: unknown key{nearest(last, model.model_fields)}"
        elif problem["type"] == "missing":
            yield f"{where}: is missing"
        elif problem["type"] == "value_error":
            for message in str(problem["ctx"]["error"]).split("\n"):
                yield message if message.startswith(f"{where}.") else f"{where}: {message}"
        else:
            right = problem["msg"].replace("Input should be", "expected").replace("Tuple should", "it should")
            yield f"{where}: {right}, found {problem['input']!r}"


def _levels_text(value: Any) -> str:
    """Write levels given as ``cube``, ``cube,pe`` or a list as the spec takes them."""
    return ",".join(str(level) for level in value) or "none" if isinstance(value, list) else str(value)


def values_of(given: Any) -> Iterator[Any]:
    """Yield the values of one setting: of a list, of a range, or the one that is given.

    A range is ``{from: 1, to: 8, step: 2}`` or ``{from: 1 MiB, to: 8 MiB, factor: 2}``; ``to`` is included if it is
    reached. The step is 1 if neither is given, which quantities do not allow.

    Raises
    ------
    ValueError
        If there are none, or a range is no range.

    >>> list(values_of({"from": "1 KiB", "to": "8 KiB", "factor": 2}))
    ['1 KiB', '2 KiB', '4 KiB', '8 KiB']
    """
    if isinstance(given, list):
        if not given:
            raise ValueError("the list is empty; give at least one value")
        seen: set[str] = set()
        for value in given:
            text = json.dumps(value, sort_keys=True, default=str)
            if text in seen:
                raise ValueError(f"{value!r} is given twice")
            seen.add(text)
        yield from given
    elif isinstance(given, dict) and ("from" in given or "to" in given):
        yield from _range(given)
    else:
        yield given


def _range(given: dict[str, Any]) -> Iterator[Any]:
    for key in given:
        if key not in ("from", "to", "step", "factor"):
            raise ValueError(f"unknown key {key!r} of a range{nearest(key, ('from', 'to', 'step', 'factor'))}")
    if "from" not in given or "to" not in given or ("step" in given and "factor" in given):
        raise ValueError("a range has from, to, and step or factor, as {from: 1, to: 8, step: 2}")
    (first, kind), (last, last_kind) = _number(given["from"]), _number(given["to"])
    if kind != last_kind:
        raise ValueError(f"from {given['from']!r} and to {given['to']!r} are not of one kind")
    if kind is not None and "step" not in given and "factor" not in given:
        raise ValueError("a range of quantities needs a step or a factor")
    if first > last:
        raise ValueError(f"the range is empty: from {given['from']} is larger than to {given['to']}")
    multiplies = "factor" in given
    by, by_kind = _number(given["factor"] if multiplies else given.get("step", 1))
    if (multiplies and (by <= 1 or first <= 0 or by_kind is not None)) or (
        not multiplies and (by <= 0 or by_kind != kind)
    ):
        right = (
            "a factor is a number above 1, and from is above 0"
            if multiplies
            else "a step is above 0, of the kind of from"
        )
        raise ValueError(f"{right}")
    value, found = first, 0
    while value <= last:
        yield _written(value, kind)
        value = value * by if multiplies else value + by
        if kind is None and value.denominator > _FINEST:
            value = Fraction(float(value))  # exact powers of 1.001 grow longer and longer
        found += 1
        if found > _MOST_VALUES:
            raise ValueError(f"the range has more than {_MOST_VALUES:,} values")


def _number(written: Any) -> tuple[Fraction, units.Kind | None]:
    if isinstance(written, (int, float)) and not isinstance(written, bool) and isfinite(written):
        return Fraction(str(written)), None
    found = quantity(written) if isinstance(written, str) else None
    if found is None:
        raise ValueError(f"{written!r} is neither a number nor a quantity such as 40 ns, 1 MiB or 1.2 TB/s")
    return Fraction(found[0]), found[1]


def _written(value: Fraction, kind: units.Kind | None) -> Any:
    if kind is None:
        return int(value) if value.denominator == 1 else float(value)
    if value.denominator != 1:
        raise ValueError(f"the range passes {float(value)} {kind.base}, which is not a whole number of them")
    return units.text(int(value), kind)
