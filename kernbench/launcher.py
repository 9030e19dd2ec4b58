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
    from kernbench.simulate.timeline import Timeline

MODES = ("both", "values", "time")


@dataclass(frozen=True)
class LaunchResult:
    """What :func:`launch` did."""

    trace: Trace
    """What every PE did."""
    execution: ExecutionReport | None
    """``None`` in mode ``"time"``."""
    timeline: Timeline | None
    """``None`` in mode ``"values"``."""

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

    Raises
    ------
    KernbenchError
        As :func:`~kernbench.record`, :func:`~kernbench.execute` and :func:`~kernbench.simulate` do.
    """
    if mode not in MODES:
        raise InputError(f"unknown mode {mode!r}{nearest(mode, MODES)}")
    trace = record(kernel, machine, args, grid=grid, dot_dtype=dot_dtype)
    execution = timeline = None
    if mode != "time":
        from kernbench.execute import execute

        execution = execute(trace)
    if mode != "values":
        from kernbench.simulate import simulate

        timeline = simulate(trace, machine, engine=engine)
    return LaunchResult(trace, execution, timeline)
