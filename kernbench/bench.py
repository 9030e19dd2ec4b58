"""What a bench is, and how benches are found.

A file ``benches/<family>.py`` holds kernels and a module-level list ``BENCHES`` of :class:`Bench` (a kernel for a
mesh) and :class:`GridBench` (kernels launched as grids of workgroups, as on a GPU). Files are looked for in
``benches/`` of the working directory first, then in those that come with kernbench.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.errors import InputError, KernbenchError, SpecError, nearest
from kernbench.specs.attention import BenchSpec
from kernbench.specs.implementation import Implementation

if TYPE_CHECKING:
    from kernbench.machine import Machine
    from kernbench.simulate.launch.collective import Operation
    from kernbench.tensors import Tensor

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
    grid: Callable[[Any], tuple[int, ...]] | None = None
    """``spec`` → the grid that the original launches for it, with which a machine whose PEs hold workgroups runs the
    bench; raises InputError for a spec of another form. None: it runs on meshes only, or has a twin, the grid bench
    ``<name>_grid``."""
    implementation: type[Implementation] = Implementation
    """Class of its implementations where it runs as a grid."""


@dataclass(frozen=True, kw_only=True)
class GridLaunch:
    """One launch of a grid of workgroups."""

    kernel: Callable[..., None]
    """The function that is recorded; its program ids are the workgroup's place in the grid."""
    grid: tuple[int, ...]
    """Workgroups along x (the fastest), y and z."""
    args: tuple[Any, ...]
    """Its arguments: tensors placed on the machine, without splits, and plain values."""
    implementation: Implementation
    """What a workgroup occupies, and how its steps are scheduled."""
    reads_results: bool = False
    """Whether what it loads was stored by the launch before, so that it is in the last cache if it fits there."""


@dataclass(frozen=True)
class SideBySide:
    """Launches on several SIPs (GPUs) at once, one on each. What follows waits for the slowest."""

    launches: tuple[GridLaunch, ...]
    alike: int = 1
    """SIPs that do what each of these launches does; their values are computed once."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """What SIPs send one another between two launches."""

    operation: Operation
    nbytes: int
    """As :func:`kernbench.simulate.launch.collective.collective_time` takes it."""
    senders: int
    """SIPs that send: all, or those of a ``send_recv`` whose peer only receives."""
    distance: int = 1
    """Links from a sender to its peer, of a ``send_recv``."""
    moves: tuple[tuple[Tensor, Tensor, int], ...]
    """(source, target, i): ``target[i]`` takes the values of ``source``; what stays on a SIP included."""


GridStep = GridLaunch | SideBySide | Collective


@dataclass(frozen=True, kw_only=True)
class GridBench:
    """Kernels for grids of workgroups, launched one after the other, and what tells whether their result is right."""

    name: str
    summary: str
    """One line for ``kernbench list``."""
    spec: type[BenchSpec]
    """Class of its specs; the class's defaults are the bench's."""
    implementation: type[Implementation]
    """Class of its implementations: tile sizes, waves and what else a kernel chooses for the same spec."""
    launches: Callable[[Any, Any, Machine, Arrays | None], tuple[Sequence[GridStep], Any]]
    """``(spec, implementation, machine, arrays)`` → the launches in order, on one SIP or several, with what SIPs send
    one another between them, and the tensor of results. Without arrays the tensors are
    :func:`kernbench.shape_only`."""
    reference: Callable[[Any, Arrays], np.ndarray]
    """``(spec, arrays)`` → the right result in float64."""
    output: Callable[[Any, Any], np.ndarray]
    """``(spec, results)`` → its values in the layout of the reference."""
    tolerance: Callable[[Any], float]
    """``spec`` → the largest relative L2 error that is right."""
    family: str | None = None
    """Kernel family of the measured runs that its times can be held against (:mod:`kernbench.validated`); None: no
    kernel like it was measured."""
    cases: tuple[Case, ...] = ()
    """What ``kernbench check`` runs; settings may name fields of the spec and of the implementation."""


AnyBench = Bench | GridBench


def apply_settings(bench: AnyBench, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the spec, and for a grid bench the implementation (else None), with these fields set.

    Raises
    ------
    SpecError
        If neither has such a field (the nearest name of both is given), or a value is not right for it.
    """
    if isinstance(bench, Bench):
        return bench.spec(**settings), None
    both = {**bench.spec.model_fields, **bench.implementation.model_fields}
    for name in settings:
        if name not in both:
            raise SpecError(f"unknown field {name!r} of the spec and the implementation{nearest(name, both)}")
    mine = {name: value for name, value in settings.items() if name in bench.implementation.model_fields}
    rest = {name: value for name, value in settings.items() if name not in mine}
    return bench.spec(**rest), bench.implementation(**mine)


@contextmanager
def names_failures(bench: AnyBench) -> Iterator[None]:
    """Turn what a bench's own code raises inside, as its ``arguments``, into an InputError that names its line."""
    try:
        yield
    except KernbenchError:
        raise
    except Exception as error:
        from kernbench.record.lines import line_of_failure

        line = line_of_failure(error.__traceback__)
        if line is None:
            raise
        raise InputError(f"bench {bench.name} failed: {type(error).__name__}: {error}\n  at {line}") from error


def find_bench(name: str) -> AnyBench:
    """Return the bench called ``name``.

    Raises
    ------
    InputError
        If there is none (the nearest name is given), or its file cannot be imported.
    """
    for path in bench_files():
        if name in path.read_text(encoding="utf-8", errors="replace"):  # spares importing files of other benches
            for bench in load_benches(path):
                if bench.name == name:
                    return bench
    raise InputError(f"unknown bench {name!r}{nearest(name, all_benches())}")


def all_benches() -> dict[str, AnyBench]:
    """Return every bench by name; the working directory's own come before the installed ones."""
    found: dict[str, AnyBench] = {}
    for path in bench_files():
        for bench in load_benches(path):
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


def load_benches(path: Path) -> list[AnyBench]:
    """Import a bench file and return its benches.

    Raises
    ------
    InputError
        If it cannot be imported (the line is named), or holds no list of benches.
    """
    benches = getattr(_module(path), "BENCHES", None)
    if not isinstance(benches, list) or not all(isinstance(b, AnyBench) for b in benches):
        raise InputError(f"{path}: BENCHES must be a list of kernbench.bench.Bench and GridBench")
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
