"""Time of a grid of workgroups that waits for places on PEs, as a GPU runs it.

:mod:`~kernbench.simulate.launch.steps` states what a workgroup does and the rules of time,
:mod:`~kernbench.simulate.launch.definition` is their definition as SimPy processes,
:mod:`~kernbench.simulate.launch.core` computes the same picoseconds fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernbench.errors import InputError, nearest

if TYPE_CHECKING:
    from kernbench.simulate.launch.steps import Launch
    from kernbench.simulate.launch.timeline import LaunchTimeline

ENGINES = ("compiled", "simpy")


def simulate_launch(launch: Launch, engine: str = "compiled") -> LaunchTimeline:
    """Time a grid of workgroups.

    Parameters
    ----------
    launch
        What the workgroups do, and the places that they wait for.
    engine
        ``"compiled"``, or ``"simpy"`` for the definition: the same picoseconds, some hundred times slower.

    Raises
    ------
    InputError
        If the engine is unknown, or the launch names tokens, tiles or classes that do not exist.
    """
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}{nearest(engine, ENGINES)}")
    if engine == "simpy":
        from kernbench.simulate.launch.definition import run_simpy

        return run_simpy(launch)
    from kernbench.simulate.launch.compiled import run_compiled

    return run_compiled(launch)
