"""What can be verified: named specs that come with code, any grid bench, and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kernbench.bench import GridBench, all_benches, apply_settings, find_bench
from kernbench.errors import InputError, TopologyError, nearest
from kernbench.machine import Machine, load_machine, yamlfile
from kernbench.on_grid import form_for
from kernbench.realrun.amdgcn.assembly import ARCHITECTURES

MACHINES = {"gfx90a": "mi250x", "gfx942": "mi300x", "gfx950": "mi355x"}
"""The machine whose time stands beside the counts of each architecture."""


OF_THE_COMPILER = ("registers", "lds_bytes", "instruction", "score_copies", "value_copies", "keys_across_waves")
"""Fields of an implementation that its compiler decides: they are read off the code."""


@dataclass(frozen=True)
class Case:
    """One thing to verify."""

    bench: GridBench
    spec: Any
    implementation: Any
    machine: Machine
    arch: str


@cache
def named_specs() -> dict[str, dict[str, Any]]:
    """Return the specs that come with kernbench: name → ``{"bench": ..., fields ...}``."""
    return yaml.safe_load((Path(__file__).parent / "specs.yaml").read_text(encoding="utf-8"))


def find_case(what: str, arch: str, settings: Mapping[str, Any] | None = None) -> Case:
    """Return the case that a text names.

    Parameters
    ----------
    what
        A name of :func:`named_specs`, a bench, or a file: YAML with ``bench`` and fields of its spec and
        implementation, or a result of ``kernbench run --json``, whose spec and implementation are taken.
    arch
        ``gfx90a``, ``gfx942`` or ``gfx950``.
    settings
        Further fields, which win.

    Raises
    ------
    InputError
        If there is no such spec, the bench has no form that is launched as a grid, it is for another architecture, or
        a field is set that the compiler decides.
    SpecError
        If a field is unknown or out of range.
    """
    if arch not in ARCHITECTURES:
        raise InputError(f"unknown architecture {arch!r}{nearest(arch, ARCHITECTURES)}")
    fields = _fields(what) | dict(settings or {})
    name = fields.pop("bench")
    machine = load_machine(MACHINES[arch])
    found, _ = form_for(find_bench(name), machine)
    if not isinstance(found, GridBench):
        raise InputError(f"bench {name} is written for a mesh; machine code is that of a grid of workgroups")
    decided = [field for field in OF_THE_COMPILER if field in fields and field in found.implementation.model_fields]
    if decided:
        raise InputError(f"{', '.join(decided)} cannot be set here: the compiler decides, and its code says what it is")
    if fields.get("arch", arch) != arch:
        raise InputError(f"{what} is for arch={fields['arch']}, but --arch is {arch}: let the two agree")
    for field, value in (("form", "faithful"), ("arch", arch)):
        if field in found.spec.model_fields:
            fields.setdefault(field, value)
        elif field == "arch":
            fields.pop("arch", None)
    spec, implementation = apply_settings(found, fields)
    return Case(found, spec, implementation or found.implementation(), machine, arch)


def _fields(what: str) -> dict[str, Any]:
    """Return a bench's name and the fields that are set."""
    named = named_specs()
    if what in named:
        return dict(named[what])
    if what in all_benches():
        return {"bench": what}
    path = Path(what)
    if not _is_file(path):
        raise InputError(
            f"{what!r} is no spec, no bench and no file{nearest(what, [*named, *all_benches()])}; "
            "`kernbench realrun verify --list` lists the specs"
        )
    return _read(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long for a file
        return False


def _read(path: Path) -> dict[str, Any]:
    """Read a file of fields, or spec and implementation of a result: what the compiler decided is left out of these."""
    try:
        found, _ = yamlfile.read(path, str(path))
    except TopologyError as error:
        raise InputError(str(error)) from None
    if not isinstance(found, dict) or not isinstance(found.get("bench"), str):
        raise InputError(f"{path}: expected a mapping with `bench` and fields of its spec, or a result of `run --json`")
    fields = dict(found)
    if "spec" in found and "kernbench_version" in found:
        fields = {"bench": found["bench"]} | ({"arch": found["arch"]} if "arch" in found else {})
        for part in ("spec", "implementation"):
            if not isinstance(found.get(part) or {}, dict):
                raise InputError(f"{path}: {part} is {found[part]!r}, expected a mapping of fields")
            fields |= found.get(part) or {}
        fields = {name: value for name, value in fields.items() if name not in OF_THE_COMPILER}
    for name in fields:
        if not isinstance(name, str):
            raise InputError(f"{path}: {name!r} is no name of a field")
    return fields
