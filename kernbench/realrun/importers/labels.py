"""What a profile cannot say and the user does: family, spec and implementation of a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from kernbench.errors import InputError, TopologyError, nearest
from kernbench.machine import yamlfile
from kernbench.realrun.records import Family, Implementation, RunSpec

_MEASURED = {"grid", "lds_bytes", "notes"}
_SPEC = frozenset(RunSpec.model_fields)
_IMPLEMENTATION = frozenset(Implementation.model_fields) - _MEASURED
_DEVICE = frozenset({"gpu", "arch"})
_TIMES = ("published", "cold", "warm", "partial", "reduce")
_ENTRY = ("family", "spec", "implementation", "device", "time")


@dataclass(frozen=True)
class Label:
    """What is said of a kernel; every value is checked."""

    family: Family = "other"
    spec: RunSpec = field(default_factory=RunSpec)
    implementation: Mapping[str, Any] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)
    time: str = "published"
    """Field of Times that durations are put in."""


class Labels:
    """Labels by kernel name."""

    def __init__(self, base: Mapping[str, Any], entries: list[tuple[str, re.Pattern[str], Label]], file: str) -> None:
        self._base = base
        self._entries = entries
        self._used: set[str] = set()
        self._based: set[str] = set()
        self._file = file

    def find(self, kernel: str) -> Label:
        """Return the label of the first pattern that is found in the name; without one, what holds of all."""
        for text, pattern, label in self._entries:
            if pattern.search(kernel):
                self._used.add(text)
                return label
        self._based.add(kernel)
        return make_label(self._base, "spec")

    def warnings(self) -> list[str]:
        """Patterns that fit no kernel; and a spec that was put on kernels that it may not describe."""
        found = [f"{self._file}: no kernel fits {text!r}" for text, _, _ in self._entries if text not in self._used]
        if self._base.keys() - _DEVICE and len(self._based) > 1:
            found.append(
                f"the spec was put on {len(self._based)} kernels of different names; choose one with --kernel, or name "
                "the kernel of each spec in a sidecar file"
            )
        return found


def parse_spec(items: Iterable[str]) -> dict[str, str]:
    """Read ``key=value`` items.

    Raises
    ------
    InputError
        If one has no ``=``, or a key is there twice.

    >>> parse_spec(["family=prefill", "batch=16"])
    {'family': 'prefill', 'batch': '16'}
    """
    values: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise InputError(f"spec {item!r}: give key=value, such as batch=16")
        if key.strip() in values:
            raise InputError(f"spec {item!r}: {key.strip()} is given twice")
        values[key.strip()] = value.strip()
    return values


def read_labels(spec: Mapping[str, Any] | None, sidecar: Path | None) -> Labels:
    """Read what the user says.

    Parameters
    ----------
    spec : Mapping[str, Any] or None
        ``family``, fields of RunSpec and Implementation, ``gpu``, ``arch``: of every kernel, unless the sidecar says
        otherwise.
    sidecar : Path or None
        YAML: a regular expression of kernel names -> ``family``, ``spec``, ``implementation``, ``device``, ``time``.

    Raises
    ------
    InputError
        If the file cannot be read, or a key or value is not legal; names it.
    """
    base = dict(spec or {})
    make_label(base, "spec")
    if sidecar is None:
        return Labels(base, [], "")
    try:
        document, _ = yamlfile.read(sidecar, str(sidecar))
    except TopologyError as error:
        raise InputError(str(error).replace("; a machine file has the keys name, sip, cube and pe", "")) from None
    if not isinstance(document, dict) or not document:
        raise InputError(f"{sidecar}: must map regular expressions of kernel names to family and spec")
    return Labels(base, [_entry(base, key, value, sidecar) for key, value in document.items()], str(sidecar))


def _entry(base: Mapping[str, Any], key: Any, value: Any, file: Path) -> tuple[str, re.Pattern[str], Label]:
    where = f"{file}: {key!r}"
    try:
        pattern = re.compile(str(key))
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where}: is not a regular expression: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a mapping of {', '.join(_ENTRY)}")
    flat = dict(base)
    for name, part in value.items():
        if name not in _ENTRY:
            raise InputError(f"{where}: there is no key {str(name)!r}{nearest(str(name), _ENTRY)}")
        if name in ("family", "time"):
            flat[name] = part
            continue
        if not isinstance(part, dict):
            raise InputError(f"{where}: {name} must be a mapping")
        known = {"spec": _SPEC, "implementation": _IMPLEMENTATION, "device": _DEVICE}[name]
        for inner in part:
            if inner not in known:
                raise InputError(f"{where}: {name} has no field {str(inner)!r}{nearest(str(inner), known)}")
        flat.update(part)
    return str(key), pattern, make_label(flat, where)


def make_label(values: Mapping[str, Any], where: str) -> Label:
    """Check a flat mapping.

    Raises
    ------
    InputError
        If a key is unknown or a value is not legal; names it.
    """
    known = {"family", "time", *_SPEC, *_IMPLEMENTATION, *_DEVICE}
    for key in values:
        if key not in known:
            raise InputError(f"{where}: there is no field {str(key)!r}{nearest(str(key), known)}")
    family, time = values.get("family", "other"), values.get("time", "published")
    if family not in get_args(Family):
        raise InputError(f"{where}: there is no family {family!r}{nearest(str(family), get_args(Family))}")
    if time not in _TIMES:
        raise InputError(f"{where}: time is {time!r}{nearest(str(time), _TIMES)}")
    device = {key: values[key] for key in _DEVICE if key in values}
    for key, value in device.items():
        if not isinstance(value, str) or not value:
            raise InputError(f"{where}: {key} must be text")
    try:
        spec = RunSpec.model_validate({k: v for k, v in values.items() if k in _SPEC})
        said = {k: v for k, v in values.items() if k in _IMPLEMENTATION}
        checked = Implementation.model_validate({"name": "kernel", **said})
    except ValidationError as bad:
        first = bad.errors(include_url=False)[0]
        raise InputError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return Label(family, spec, {key: getattr(checked, key) for key in said}, device, time)
