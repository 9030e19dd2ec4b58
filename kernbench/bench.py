"""What a bench is, and how benches are found.

A file ``benches/<family>.py`` holds kernels and a module-level list ``BENCHES`` of :class:`Bench`. Files are looked
for in ``benches/`` of the working directory first, then in those that come with kernbench.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.errors import InputError, KernbenchError, nearest
from kernbench.specs.attention import BenchSpec

if TYPE_CHECKING:
    from kernbench.machine import Machine

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One check of a bench: these settings, on this machine, with these inputs."""

    settings: dict[str, Any]
    """Fields of the spec; the others keep their defaults."""
    topology: str = "row4_pe8"
    inputs: str = "random"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A kernel and everything that is needed to run it and to tell whether it is right."""

    name: str
    summary: str
    """One line for ``kernbench list``."""
    spec: type[BenchSpec]
    """Class of its specs; the class's defaults are the bench's."""
    kernel: Callable[..., None]
    """The function that is recorded."""
    arguments: Callable[[Any, Machine, Arrays | None], tuple[tuple[Any, ...], Any]]
    """``(spec, machine, arrays)`` → the kernel's arguments and, of these, the tensor or tensors of results. Without
    arrays the tensors are :func:`kernbench.shape_only`."""
    reference: Callable[[Any, Arrays], np.ndarray]
    """``(spec, arrays)`` → the right result in float64."""
    output: Callable[[Any, Any], np.ndarray]
    """``(spec, results)`` → its values in the layout of the reference."""
    tolerance: Callable[[Any], float]
    """``spec`` → the largest relative L2 error that is right."""
    cases: tuple[Case, ...] = ()
    """What ``kernbench check`` runs."""


def find_bench(name: str) -> Bench:
    """Return the bench called ``name``.

    Raises
    ------
    InputError
        If there is none (the nearest name is given), or its file cannot be imported.
    """
    for path in bench_files():
        if name in path.read_text(encoding="utf-8", errors="replace"):  # spares importing files of other benches
            for bench in _load(path):
                if bench.name == name:
                    return bench
    raise InputError(f"unknown bench {name!r}{nearest(name, all_benches())}")


def all_benches() -> dict[str, Bench]:
    """Return every bench by name; the working directory's own come before the installed ones."""
    found: dict[str, Bench] = {}
    for path in bench_files():
        for bench in _load(path):
            found.setdefault(bench.name, bench)
    return found


def bench_files() -> Iterator[Path]:
    """Yield the files that may hold benches, in the order in which they are searched."""
    seen = set()
    for folder in (Path("benches"), _installed()):
        for path in sorted(folder.glob("*.py")):
            resolved = path.resolve()
            if resolved not in seen and "BENCHES" in path.read_text(encoding="utf-8", errors="replace"):
                seen.add(resolved)
                yield path


def _installed() -> Path:
    package = Path(__file__).resolve().parent
    in_wheel = package / "_benches"
    return in_wheel if in_wheel.is_dir() else package.parent / "benches"


def _load(path: Path) -> list[Bench]:
    """Import a bench file and return its benches."""
    benches = getattr(_module(path), "BENCHES", None)
    if not isinstance(benches, list) or not all(isinstance(b, Bench) for b in benches):
        raise InputError(f"{path}: BENCHES must be a list of kernbench.bench.Bench")
    return benches


def _module(path: Path) -> ModuleType:
    """Import ``path`` under a name outside the package: its lines are the user's own, and errors point at them."""
    name, resolved = f"kernbench_bench_{path.stem}", str(path.resolve())
    known = sys.modules.get(name)
    if known is not None and known.__file__ == resolved:
        return known
    spec = importlib.util.spec_from_file_location(name, resolved)
    assert spec is not None  # a path that ends in .py always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickling look the module up by name
    try:
        spec.loader.exec_module(module)
    except KernbenchError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        where = _where(error, resolved, path)
        raise InputError(f"{where}: cannot be imported: {type(error).__name__}: {error}") from None
    return module


def _where(error: Exception, resolved: str, path: Path) -> str:
    """Return ``file:line`` of the line in the bench file that failed."""
    if isinstance(error, SyntaxError) and error.filename == resolved:
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == resolved]
    return f"{path}:{lines[-1]}" if lines else str(path)
