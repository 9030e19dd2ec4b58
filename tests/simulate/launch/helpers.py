"""Small launches where a byte takes a picosecond."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernbench.simulate.launch import simulate_launch
from kernbench.simulate.launch.steps import Launch, Level, Places, Step, Workgroup
from kernbench.simulate.launch.timeline import LaunchTimeline
from kernbench.testing.random_launch import compare_launch_engines

BYTE_A_PS = 10**12
MEMORY = Level("memory", per_cube=False, bandwidth=BYTE_A_PS, latency_ps=500)


def cache(capacity: int = 10**9, latency_ps: int = 50, per_cube: bool = False) -> Level:
    return Level("cache", per_cube, BYTE_A_PS, latency_ps, capacity)


def places(
    *caches: Level,
    cubes: int = 1,
    pes: int = 1,
    slots: int = 1,
    dispatch: int = 0,
    start: int = 0,
    memory: Level = MEMORY,
) -> Places:
    return Places(cubes, pes, slots, BYTE_A_PS, (*caches, memory), BYTE_A_PS, dispatch, start)


def group(*before: Step, body: Sequence[Step] = (), iterations: int = 0, after: Sequence[Step] = ()) -> Workgroup:
    return Workgroup(before, tuple(body), tuple(after), iterations)


def launch(
    where: Places,
    *classes: Workgroup,
    each: Sequence[int] = (0,),
    base: Sequence[Sequence[int]] | None = None,
    tiles: int = 100,
    first_level: int = -1,
    dirty_bytes: int = 0,
) -> Launch:
    """A launch whose workgroups are of the classes ``each``, and whose only stream begins at tile 0."""
    starts = np.zeros((len(each), 1), np.int64) if base is None else np.array(base, np.int64)
    return Launch(where, classes, np.array(each, np.int32), starts, tiles, first_level, dirty_bytes)


def timed(what: Launch) -> LaunchTimeline:
    """Time a launch, with both engines."""
    assert compare_launch_engines(what) == "agree"
    return simulate_launch(what)
