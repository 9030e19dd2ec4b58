"""From a launch to a time, quickly: launches of many workgroups are simulated in part and carried on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernbench.simulate.launch.compiled import run_compiled
from kernbench.simulate.launch.steps import Launch
from kernbench.simulate.launch.timeline import LaunchTimeline

MOST_ITERATIONS = 60_000
"""Iterations that are simulated of one launch; about 20 ms."""


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

    A launch with more than ``most`` iterations is simulated up to two of its workgroups, ``n1 < n2``, both multiples
    of ``period`` (after which the work of the workgroups repeats itself), and carried on from there at the rate
    between the two: ``T(n2) + (T(n2) - T(n1)) / (I(n2) - I(n1)) * (I - I(n2))``, where I counts iterations. That
    assumes that the launch has settled, which ``n1`` of at least two rounds of all places ensures where the launch is
    long enough.
    """
    iterations = np.array([g.iterations for g in launch.classes], np.int64)[launch.class_of]
    done = np.cumsum(iterations)
    total, n = int(done[-1]), len(done)
    places = launch.places
    resident = places.cubes * places.pes_per_cube * places.slots
    cut = _multiple(int(np.searchsorted(done, most)), period)
    second = max(cut, _multiple(4 * resident, period), 2 * period)
    first = _multiple(second // 2, period)
    if total <= most or second + resident >= n or first >= second:
        timeline = run_compiled(launch)
        return Estimate(timeline.makespan_ps, timeline, 1.0)
    one, two = (run_compiled(_part(launch, k)) for k in (first, second))
    rate = (two.makespan_ps - one.makespan_ps) / float(done[second - 1] - done[first - 1])
    rest = round(rate * float(total - done[second - 1]))
    return Estimate(two.makespan_ps + rest, two, float(done[second - 1]) / total)


def _multiple(n: int, period: int) -> int:
    return max(period, n // period * period)


def _part(launch: Launch, n: int) -> Launch:
    return replace(launch, class_of=launch.class_of[:n], base=launch.base[:n])
