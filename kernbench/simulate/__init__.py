"""Time: a Trace and a Machine in, a Timeline out.

:mod:`~kernbench.simulate.program` states the rules, :mod:`~kernbench.simulate.blocks` is their definition as SimPy
processes, :mod:`~kernbench.simulate.core` computes the same picoseconds fast.

Why a run takes as long as it does is read off its Timeline: :mod:`~kernbench.simulate.waits` for commands,
:mod:`~kernbench.simulate.engine_time` for engines, :mod:`~kernbench.simulate.path` for the run.
:mod:`~kernbench.simulate.explain` says what would change it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernbench.errors import InputError, nearest
from kernbench.machine import Machine
from kernbench.record.trace import Trace

if TYPE_CHECKING:
    from kernbench.simulate.timeline import Timeline

ENGINES = ("compiled", "simpy")


def simulate(
    trace: Trace,
    machine: Machine | None = None,
    engine: str = "compiled",
    progress: Callable[[int, int], None] | None = None,
) -> Timeline:
    """Time a trace on a machine.

    Parameters
    ----------
    trace
        From :func:`~kernbench.record`.
    machine
        Default: the machine that the trace was recorded for. Any machine of the same shape will do.
    engine
        ``"compiled"``, or ``"simpy"`` for the definition: the same picoseconds, some hundred times slower.
    progress
        Called now and then with (done, total).

    Raises
    ------
    DeadlockError
        If PEs wait for one another.
    InputError
        If the machine has another shape than the one recorded for, or the trace is of a grid of workgroups.
    """
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}{nearest(engine, ENGINES)}")
    if trace.machine.holds_workgroups:
        raise InputError(
            f"{trace.kernel} was recorded as a grid of workgroups, whose time depends on what each occupies: use "
            "kernbench.launch(..., grid=, implementation=), or kernbench.simulate.launch.lower and simulate_launch"
        )
    from kernbench.simulate.program import build_program

    program = build_program(trace, machine or trace.machine)
    if engine == "simpy":
        from kernbench.simulate.blocks import run_simpy

        return run_simpy(program, progress)
    from kernbench.simulate.compiled import run_compiled

    return run_compiled(program, progress)
