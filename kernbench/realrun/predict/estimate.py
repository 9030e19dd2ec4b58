"""From a launch to a time, quickly: long launches are simulated in part and carried on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernbench.simulate.launch.compiled import run_compiled
from kernbench.simulate.launch.steps import Launch, Workgroup
from kernbench.simulate.launch.timeline import LaunchTimeline

MOST_ITERATIONS = 24_000
"""Iterations of one simulation, about 10 ms."""
LEAST_TILES = 10
"""Iterations that a workgroup keeps on average when loops are shortened: fewer would be all beginning and end."""


@dataclass(frozen=True)
class Estimate:
    """How long a launch takes, and what bounds it."""

    ps: int
    timeline: LaunchTimeline
    """Of the part that was simulated."""
    simulated: float
    """Share of the launch's iterations that was simulated; 1: all of it."""


def estimate(launch: Launch, period: int = 1, most: int = MOST_ITERATIONS) -> Estimate:
    """Return the time of a launch.

    A launch with more than ``most`` iterations is carried on along two lines, on each of which its time is nearly
    straight once it has settled:

    * *shorter loops*: all loops shortened in proportion, to two lengths, and caches with them;
    * *fewer workgroups*: the first ``n1`` and the first ``n2`` of them, whole rounds of all places, or multiples of
      ``period`` after which the work of the workgroups repeats itself.

    Along each, ``T = T2 + (T2 - T1) / (I2 - I1) * (I - I2)``, where I counts iterations.
    """
    total = _iterations(launch)
    if total <= most:
        return _simulated(launch)
    mean = total / len(launch.class_of)
    long = max(LEAST_TILES * 2 / mean, 0.75 * most / total)
    if long > 0.6:
        return _fewer(launch, period, most)
    one, two = (_fewer(_shortened(launch, s), period, most) for s in (long / 2, long))
    few, many = (_iterations(_shortened(launch, s)) for s in (long / 2, long))
    return _carried_on(one, two, few, many, total)


def _simulated(launch: Launch) -> Estimate:
    timeline = run_compiled(launch, trusted=True)
    return Estimate(timeline.makespan_ps, timeline, 1.0)


def _fewer(launch: Launch, period: int, most: int) -> Estimate:
    """Carry on from the first workgroups, if there are many."""
    places, n = launch.places, len(launch.class_of)
    done = np.cumsum(_each(launch)[launch.class_of])
    resident = places.cubes * places.pes_per_cube * places.slots
    if len(launch.classes) == 1:
        period = resident  # they are all alike: whole rounds of them
    second = max(_multiple(int(np.searchsorted(done, most)), period), _multiple(4 * resident, period), 2 * period)
    first = _multiple(second // 2, period)
    if done[-1] <= most or second + resident >= n or first >= second:
        return _simulated(launch)
    one, two = (_simulated(_part(launch, k)) for k in (first, second))
    return _carried_on(one, two, int(done[first - 1]), int(done[second - 1]), int(done[-1]))


def _carried_on(one: Estimate, two: Estimate, few: int, many: int, total: int) -> Estimate:
    rate = (two.ps - one.ps) / max(many - few, 1)
    return Estimate(two.ps + round(rate * (total - many)), two.timeline, two.simulated * many / total)


def _each(launch: Launch) -> np.ndarray:
    return np.array([g.iterations for g in launch.classes], np.int64)


def _iterations(launch: Launch) -> int:
    return int(np.bincount(launch.class_of, minlength=len(launch.classes)) @ _each(launch))


def _multiple(n: int, period: int) -> int:
    return max(period, n // period * period)


def _part(launch: Launch, n: int) -> Launch:
    return replace(launch, class_of=launch.class_of[:n], base=launch.base[:n])


def _shortened(launch: Launch, share: float) -> Launch:
    """Return the launch with loops, caches and what is dirty in them reduced to a share."""

    def shorter(group: Workgroup) -> Workgroup:
        return replace(group, iterations=max(1, round(group.iterations * share)) if group.iterations else 0)

    levels = tuple(replace(x, capacity=round(x.capacity * share)) for x in launch.places.levels)
    return replace(
        launch,
        places=replace(launch.places, levels=levels),
        classes=tuple(shorter(g) for g in launch.classes),
        dirty_bytes=round(launch.dirty_bytes * share),
    )
