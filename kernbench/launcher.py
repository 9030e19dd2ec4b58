"""Record a kernel, then ask for values, for time, or for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernbench.errors import InputError, nearest
from kernbench.machine import Machine
from kernbench.record import Trace, record

if TYPE_CHECKING:
    from kernbench.execute import ExecutionReport
    from kernbench.simulate.launch.timeline import LaunchTimeline
    from kernbench.simulate.timeline import Timeline
    from kernbench.specs.implementation import Implementation

MODES = ("both", "values", "time")


@dataclass(frozen=True)
class LaunchResult:
    """What :func:`launch` did."""

    trace: Trace
    """What every PE did."""
    execution: ExecutionReport | None
    """``None`` in mode ``"time"``."""
    timeline: Timeline | LaunchTimeline | None
    """``None`` in mode ``"values"``; a ``LaunchTimeline`` on a machine whose PEs hold workgroups."""

    @property
    def makespan_ps(self) -> int:
        """End of the last command, in simulated picoseconds. Raises InputError in mode ``"values"``."""
        if self.timeline is None:
            raise InputError('a launch in mode "values" has no time: use mode="both" or mode="time"')
        return self.timeline.makespan_ps


def launch(
    kernel: Callable[..., None],
    machine: Machine,
    args: Sequence[Any] = (),
    mode: str = "both",
    engine: str = "compiled",
    grid: Sequence[int] | int | None = None,
    dot_dtype: str = "f32",
    implementation: Implementation | None = None,
) -> LaunchResult:
    """Record ``kernel``, then execute and simulate it.

    Parameters
    ----------
    kernel, machine, args, grid, dot_dtype
        As for :func:`~kernbench.record`.
    mode
        ``"both"``, ``"values"`` (tensors hold the results) or ``"time"`` (tensors need not have values).
    engine
        As for :func:`~kernbench.simulate`.
    implementation
        On a machine whose PEs hold workgroups: what one occupies, and how its steps are scheduled. Default: four waves
        that take little.

    Raises
    ------
    KernbenchError
        As :func:`~kernbench.record`, :func:`~kernbench.execute` and :func:`~kernbench.simulate` do.
    """
    if mode not in MODES:
        raise InputError(f"unknown mode {mode!r}{nearest(mode, MODES)}")
    trace = record(kernel, machine, args, grid=grid, dot_dtype=dot_dtype)
    execution = None
    timeline: Timeline | LaunchTimeline | None = None
    if mode != "time":
        from kernbench.execute import execute

        execution = execute(trace)
    if mode != "values" and machine.holds_workgroups:
        from kernbench.simulate.launch import simulate_launch
        from kernbench.simulate.launch.lower import lower
        from kernbench.specs.implementation import Implementation

        timeline = simulate_launch(lower(trace, machine, implementation or Implementation()), engine)
    elif mode != "values":
        from kernbench.simulate import simulate

        timeline = simulate(trace, machine, engine=engine)
    return LaunchResult(trace, execution, timeline)
