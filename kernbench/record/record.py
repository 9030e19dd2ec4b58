"""Record a kernel: run it once per class of PEs and return the Trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernbench.dtypes import dtype as to_dtype
from kernbench.errors import InputError, KernbenchError, KernelError
from kernbench.machine import Machine
from kernbench.placement import assign_addresses
from kernbench.record.checks import check_channels, check_races
from kernbench.record.lines import LineTable, line_of_failure
from kernbench.record.recorder import Recorder
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
        Programs along (PE in CUBE, CUBE in SIP, SIP): the first so many of each take part. Default: all.
    dot_dtype
        Format that ``tl.dot`` rounds its results to, ``"f32"`` or ``"f16"``/``"bf16"``.

    Raises
    ------
    KernelError
        If the kernel says something impossible, or does no work; names its source line.
    ChannelError
        If a message has no receiver, a receive no sender, or the two disagree.
    """
    kind = to_dtype(dot_dtype)
    if kind.name not in ("f32", "f16", "bf16"):
        raise InputError(f"dot_dtype is f32, f16 or bf16, not {dot_dtype}")
    extents = _grid(grid, machine)
    names = _parameter_names(kernel, args)
    tensors = [(name, a) for name, a in zip(names, args, strict=True) if isinstance(a, Tensor)]
    for name, tensor in tensors:
        if tensor.machine_signature != machine.signature:
            raise InputError(f"{name} was placed on a machine of another shape than {machine.name}")
    addresses = assign_addresses([(t.layout, t.dtype.nbytes) for _, t in tensors], machine)

    lines = LineTable()
    classes: list[PEClass] = []
    warnings: dict[str, None] = {}
    waiting = [_members(extents, machine)]
    while waiting:
        group = Group(waiting.pop())
        recorder = Recorder(machine, group, extents, kind, lines)
        _run(kernel, _bind(args, tensors, addresses, group), recorder)
        classes.append(recorder.finish())
        warnings.update(recorder.warnings)
        waiting.extend(group.put_aside)
    classes.sort(key=lambda c: int(c.pes[0]))
    if not any(c.commands for c in classes):
        raise KernelError(f"{kernel.__name__} does no work: no PE issues a command, so there is nothing to run or time")
    trace = Trace(
        kernel.__name__, machine, extents, kind.name, tuple(t for _, t in tensors), tuple(n for n, _ in tensors),
        lines.all(), tuple(classes), tuple(warnings),
    )  # fmt: skip
    check_channels(trace)
    check_races(trace)
    return trace


def _grid(grid: Sequence[int] | int | None, machine: Machine) -> tuple[int, int, int]:
    given = () if grid is None else (grid,) if isinstance(grid, int) else tuple(grid)
    full = machine.shape
    if len(given) > 3 or any(not 1 <= n <= most for n, most in zip(given, full, strict=False)):
        raise InputError(
            f"grid {given} does not fit {machine.name}: at most {full} programs along (PE in CUBE, CUBE in SIP, SIP)"
        )
    extents = (*given, *full[len(given) :]) if grid is None else (*given, 1, 1)[:3]
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
        raise InputError(f"the arguments do not fit {getattr(kernel, '__name__', kernel)}: {bad}") from None
    names: list[str] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{name}[{i}]" for i in range(len(bound.arguments.get(name, ())))]
        elif name != "tl" and parameter.kind is not parameter.KEYWORD_ONLY and name in bound.arguments:
            names.append(name)
    return names


def _bind(args: Sequence[Any], tensors: list[tuple[str, Tensor]], addresses: list[np.ndarray], group: Group) -> list[Any]:
    pointers = iter(
        Pointer(_binding(i, name, tensor, address, group))
        for i, ((name, tensor), address) in enumerate(zip(tensors, addresses, strict=True))
    )
    return [next(pointers) if isinstance(a, Tensor) else a for a in args]


def _binding(index: int, name: str, tensor: Tensor, address: np.ndarray, group: Group) -> Binding:
    layout = tensor.layout
    part = layout.part_of_pe[group.pes]
    readable = tensor.is_held and tensor.dtype.kind == "int"
    homes = np.unique(np.stack([layout.part_of_pe, layout.memory_of_pe]), axis=1)
    return Binding(
        index, name, group, tensor.dtype, address[group.pes], layout.extents[part], layout.starts[part],
        (tensor.parts(), part) if readable else None, homes.shape[1] > layout.n_parts,
    )  # fmt: skip


def _run(kernel: Callable[..., None], args: list[Any], recorder: Recorder) -> None:
    try:
        kernel(*args, tl=recorder.tl)
    except KernbenchError as bad:
        if "\n  at " in str(bad):
            raise
        raise type(bad)(f"{bad}{_where(bad, recorder)}") from bad
    except Exception as bad:
        raise KernelError(f"{kernel.__name__} failed: {type(bad).__name__}: {bad}{_where(bad, recorder)}") from bad


def _where(bad: BaseException, recorder: Recorder) -> str:
    line = line_of_failure(bad.__traceback__)
    who = recorder.machine.describe_pes(recorder.group.active_pes)
    return (f"\n  at {line}" if line else "") + f"\n  on {who}"
