"""Where a result comes from: fingerprints of the code behind it, and the command that makes it again."""

from __future__ import annotations

import hashlib
import inspect
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml

from kernbench.errors import InputError

if TYPE_CHECKING:
    from kernbench.bench import AnyBench
    from kernbench.machine import Machine
    from kernbench.specs.attention import BenchSpec
    from kernbench.specs.implementation import Implementation

_PACKAGE = Path(__file__).resolve().parent
_OTHERS = (f"{_PACKAGE}/", *(f"{path}/" for name, path in sysconfig.get_paths().items() if name.endswith("lib")))
"""Folders of kernbench and of libraries."""


def kernel_sha256(bench: AnyBench) -> str:
    """Return the fingerprint of the file that a bench's kernels stand in; empty if they were typed, not read."""
    path = kernel_file(bench)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""


def sources_sha256(bench: AnyBench) -> str:
    """Return the fingerprint of all files that a bench's code stands in, but for kernbench's own and libraries.

    They are those of its functions and classes, and of what these import.
    """
    parts = (
        bench.spec,
        bench.implementation,
        *(getattr(bench, name, None) for name in ("kernel", "arguments", "grid")),
    )
    modules = [module_of(part) for part in (*parts, getattr(bench, "launches", None))]
    files: set[Path] = set()
    while modules:
        module = modules.pop()
        file = getattr(module, "__file__", None)
        if file is None or Path(file) in files or file.startswith(_OTHERS):
            continue
        files.add(Path(file))
        modules += [module_of(value) for value in vars(module).values()]
    digests = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def module_of(value: Any) -> ModuleType | None:
    """Return a module itself, and the module that a function or class stands in; None of what has none."""
    value = _unwrapped(value)
    name = getattr(value, "__module__", None)
    return value if isinstance(value, ModuleType) else sys.modules.get(name) if isinstance(name, str) else None


def kernel_file(bench: AnyBench) -> Path | None:
    """Return the file that a bench's kernels stand in; None if they were typed, not read."""
    function = _unwrapped(bench.kernel if hasattr(bench, "kernel") else bench.launches)
    try:
        path = Path(inspect.getsourcefile(function) or "")
    except TypeError:
        return None
    return path if path.is_file() else None


def _unwrapped(function: Any) -> Any:
    """Return what is behind a functools.partial; that of a mesh bench as a grid holds the bench, whose kernel it is."""
    while hasattr(function, "func"):
        function = next((a.kernel for a in function.args if hasattr(a, "kernel")), function.func)
    return function


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """Return the fingerprint of kernbench's own code: another after any change of it, whatever the version says."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Read the values of ``--override key=value`` as a machine file holds them.

    Raises
    ------
    InputError
        If a value is no YAML.

    >>> parse_overrides({"pe.load.queues": "4", "cube.memory.bandwidth": "0.8 TB/s"})
    {'pe.load.queues': 4, 'cube.memory.bandwidth': '0.8 TB/s'}
    """
    parsed = {}
    for key, text in overrides.items():
        try:
            parsed[key] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):  # a date of month 13, an endless nesting
            raise InputError(
                f"--override {key}: cannot read {text[:80]!r}; write a value as a machine file holds it"
            ) from None
    return parsed


def setting_text(value: Any) -> str:
    """Write the value of a spec field as ``--set`` takes it.

    >>> setting_text(("cube", "pe")), setting_text(()), setting_text(True), setting_text(None)
    ('cube,pe', 'none', 'true', 'none')
    """
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def repeat_command(
    bench: AnyBench,
    machine: Machine,
    spec: BenchSpec | None = None,
    implementation: Implementation | None = None,
    **options: Any,
) -> str:
    """Return the command line that makes a result again.

    Parameters
    ----------
    options
        Of ``kernbench run``, by name; those that are None are left out.
    """
    words = ["kernbench", "run", bench.name, "--topology", machine_argument(machine)]
    for key, value in overrides_of(machine).items():
        words += ["--override", f"{key}={_yaml_text(value)}"]
    for chosen in (spec, implementation):
        fields = chosen.model_dump(exclude_unset=True) if chosen is not None else {}
        for name, value in sorted(fields.items()):
            words += ["--set", f"{name}={setting_text(value)}"]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def machine_argument(machine: Machine) -> str:
    """Return how ``--topology`` names a machine: the file, or the name of one that is found by name."""
    source = machine.source
    return source if "/" in source else source.removesuffix(".yaml").removesuffix(".yml")


def overrides_of(machine: Machine) -> dict[str, Any]:
    """Return the values that were changed after a machine's file was read, by key path."""
    return {path: _at(machine.document, path.split(".")) for path in machine.overridden}


def _at(holder: Any, keys: list[str]) -> Any:
    for key in keys:
        holder = holder[int(key)] if isinstance(holder, list) else (holder or {}).get(key)
    return holder


def _yaml_text(value: Any) -> str:
    if isinstance(value, str):
        try:
            if yaml.safe_load(value) == value:
                return value
        except (yaml.YAMLError, ValueError):  # it needs quotes, as a text that begins with one does
            pass
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("...\n").strip()
