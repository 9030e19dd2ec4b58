"""Record a kernel: run it once per class of PEs and return the Trace."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernbench.dtypes import dtype as to_dtype
from kernbench.errors import InputError, KernbenchError, KernelError
from kernbench.machine import Machine
from kernbench.machine.workgroups import WorkgroupGrid
from kernbench.placement import assign_addresses
from kernbench.record.checks import check_channels
from kernbench.record.lines import LineTable, line_of_failure
from kernbench.record.races import check_races
from kernbench.record.recorder import Recorder
from kernbench.record.room import fitted
from kernbench.record.trace import PEClass, Trace
from kernbench.tensors import Tensor
from kernbench.tl import Binding, Group, Pointer


def record(
    kernel: Callable[..., None],
    machine: Machine,
    args: Sequence[Any] = (),
    grid: Sequence[int] | int | None = None,
    dot_dtype: str = "f32",
) -> Trace:
    """Run ``kernel`` once per class of PEs and return what every PE does.

    Parameters
    ----------
    kernel
        ``def kernel(x_ptr, ..., *, tl)``. Tensors among ``args`` arrive as pointers, all else as it is.
    machine
        The machine to record for; see :func:`~kernbench.load_machine`.
    args
        Positional arguments of the kernel.
    grid
        Programs along (PE in CUBE, CUBE in SIP, SIP): the first so many of each take part. Default: all. On a machine
        whose PEs hold workgroups: the launch's workgroups along x, y and z; there is no default.
    dot_dtype
        Format that ``tl.dot`` rounds its results to, ``"f32"`` or ``"f16"``/``"bf16"``.

    Raises
    ------
    KernelError
        If the kernel says something impossible, or does no work; names its source line.
    ChannelError
        If a message has no receiver, a receive no sender, or the two disagree.
    """
    trace = record_members(kernel, machine, args, grid, dot_dtype)
    if not any(c.commands for c in trace.classes):
        raise KernelError(f"{trace.kernel} does no work: no PE issues a command, so there is nothing to run or time")
    check_channels(trace)
    check_races(trace)
    return trace


def record_members(
    kernel: Callable[..., None],
    machine: Machine,
    args: Sequence[Any],
    grid: Sequence[int] | int | None = None,
    dot_dtype: str = "f32",
    members: Sequence[int] | None = None,
) -> Trace:
    """Record some of the PEs (all, if ``members`` is None), without the checks that concern the PEs together."""
    kind = to_dtype(dot_dtype)
    if kind.name not in ("f32", "f16", "bf16"):
        raise InputError(f"dot_dtype is f32, f16 or bf16, not {dot_dtype}")
    if machine.holds_workgroups and not isinstance(machine, WorkgroupGrid):
        machine, grid = _launch_grid(grid, machine), None
    extents = _grid(grid, machine)
    tensors = _tensors(kernel, machine, args)
    addresses = assign_addresses([(t.layout, t.dtype.nbytes) for t, _ in tensors.values()], machine)
    lines = LineTable()
    classes: list[PEClass] = []
    warnings: dict[str, None] = {}
    pes = _members(extents, machine) if members is None else np.array(sorted(members))
    waiting = [Recorder(machine, pes, extents, kind, lines)]
    with _paused_collector():
        while waiting:
            recorder = waiting.pop()
            bindings = {
                key: _binding(i, name, tensor, addresses[i], recorder.group)
                for i, (key, (tensor, name)) in enumerate(tensors.items())
            }
            _run(kernel, [Pointer(bindings[id(a)]) if isinstance(a, Tensor) else a for a in args], recorder)
            cls = recorder.finish()
            classes.append(fitted(cls, machine, lines) if isinstance(machine, WorkgroupGrid) else cls)
            warnings.update(recorder.warnings)
            waiting.extend(recorder.forks)
    classes.sort(key=lambda c: int(c.pes[0]))
    return Trace(
        _name(kernel), machine, extents, kind.name, tuple(t for t, _ in tensors.values()),
        tuple(n for _, n in tensors.values()), lines.all(), tuple(classes), tuple(warnings),
    )  # fmt: skip


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Keep Python from searching the commands for garbage cycles again and again while they grow in number."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _name(kernel: Callable[..., None]) -> str:
    function = getattr(kernel, "func", kernel)  # of a functools.partial
    return str(getattr(function, "__name__", type(kernel).__name__))


def _tensors(kernel: Callable[..., None], machine: Machine, args: Sequence[Any]) -> dict[int, tuple[Tensor, str]]:
    """Return each tensor among the arguments once, by identity, with the first parameter that it is passed for."""
    found: dict[int, tuple[Tensor, str]] = {}
    for name, tensor in zip(_parameter_names(kernel, args), args, strict=True):
        if isinstance(tensor, Tensor) and id(tensor) not in found:
            seen = tensor
            if isinstance(machine, WorkgroupGrid) and tensor.machine_signature == machine.placed:
                seen = tensor.seen_by(machine)
            if seen.machine_signature != machine.signature:
                raise InputError(f"{name} was placed on a machine of another shape than {machine.name}")
            found[id(tensor)] = (seen, name)
    return found


def _launch_grid(grid: Sequence[int] | int | None, machine: Machine) -> WorkgroupGrid:
    if grid is None:
        raise InputError(
            f"PEs of {machine.name} hold workgroups of a grid, so a launch there needs its grid: grid=(x, y, z)"
        )
    return machine.as_grid(grid)


def _grid(grid: Sequence[int] | int | None, machine: Machine) -> tuple[int, int, int]:
    full = machine.shape
    if grid is None:
        return full
    given = (grid,) if isinstance(grid, int) else tuple(grid)
    whole = all(isinstance(n, (int, np.integer)) for n in given)
    if not whole or not 1 <= len(given) <= 3 or any(not 1 <= n <= m for n, m in zip(given, full, strict=False)):
        raise InputError(
            f"grid {given} does not fit {machine.name}: one to three numbers of programs along "
            f"(PE in CUBE, CUBE in SIP, SIP), at most {full}"
        )
    extents = (*given, 1, 1)
    return (int(extents[0]), int(extents[1]), int(extents[2]))


def _members(grid: tuple[int, int, int], machine: Machine) -> np.ndarray:
    pe = np.arange(machine.n_pes)
    cube = pe // machine.pes_per_cube
    inside = (
        (pe % machine.pes_per_cube < grid[0])
        & (cube % machine.cubes_per_sip < grid[1])
        & (cube // machine.cubes_per_sip < grid[2])
    )
    return pe[inside]


def _parameter_names(kernel: Callable[..., None], args: Sequence[Any]) -> list[str]:
    try:
        signature = inspect.signature(kernel)
        bound = signature.bind(*args, tl=None)
    except TypeError as bad:
        raise InputError(f"the arguments do not fit {_name(kernel)}(..., *, tl): {bad}") from None
    names: list[str] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{name}[{i}]" for i in range(len(bound.arguments.get(name, ())))]
        elif name != "tl" and parameter.kind is not parameter.KEYWORD_ONLY and name in bound.arguments:
            names.append(name)
    return names


def _binding(index: int, name: str, tensor: Tensor, address: np.ndarray, group: Group) -> Binding:
    layout = tensor.layout
    part = layout.part_of_pe[group.pes]
    control = (tensor.parts(), part) if tensor.is_held and tensor.dtype.kind == "int" else None
    return Binding(
        index, name, group, tensor.dtype, address[group.pes], layout.extents[part], layout.starts[part], control,
        is_copied=layout.is_copied, is_cut=layout.n_parts > 1,
    )  # fmt: skip


def _run(kernel: Callable[..., None], args: list[Any], recorder: Recorder) -> None:
    try:
        kernel(*args, tl=recorder.tl)
    except KernbenchError as bad:
        if "\n  at " in str(bad):
            raise
        raise type(bad)(f"{bad}{_where(bad, recorder)}") from bad
    except Exception as bad:
        raise KernelError(f"{_name(kernel)} failed: {type(bad).__name__}: {bad}{_where(bad, recorder)}") from bad


def _where(bad: BaseException, recorder: Recorder) -> str:
    line = line_of_failure(bad.__traceback__)
    who = recorder.machine.describe_pes(recorder.group.active_pes)
    return (f"\n  at {line}" if line else "") + f"\n  on {who}"
