"""From a launch to a time, quickly: long launches are simulated in part and carried on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernbench.simulate.launch.compiled import run_compiled
from kernbench.simulate.launch.steps import Launch, Places, Workgroup
from kernbench.simulate.launch.timeline import LaunchTimeline

MOST_ITERATIONS = 40_000
"""Iterations that are simulated of one launch, about 20 ms on one core."""
LEAST_TILES = 12
"""Iterations that a workgroup keeps on average when loops are shortened: fewer would be all beginning and end."""


@dataclass(frozen=True)
class Estimate:
    """How long a launch takes, and what bounds it."""

    ps: int
    timeline: LaunchTimeline
    """Of the part that was simulated."""
    simulated: float
    """Share of the launch's iterations that was simulated; 1: all of it."""


@dataclass(frozen=True)
class Repeats:
    """After what the work of a launch's workgroups repeats itself."""

    period: int = 1
    """Workgroups in launch order."""
    columns: int = 0
    """If not 0: the workgroups are rows of so many, and what repeats itself are the columns."""

    def multiple(self, n: int, launch: Launch) -> int:
        """Return the number of workgroups nearest below ``n`` that are whole repetitions; at least one."""
        each = len(launch.class_of) // self.columns if self.columns else self.period
        return max(each, n // each * each)

    def part(self, n: int, launch: Launch) -> Launch:
        """Return the first ``n`` workgroups, or so many whole columns."""
        if not self.columns:
            return replace(launch, class_of=launch.class_of[:n], base=launch.base[:n])
        rows = len(launch.class_of) // self.columns
        keep = n // rows
        class_of = launch.class_of.reshape(rows, self.columns)[:, :keep].reshape(-1)
        base = launch.base.reshape(rows, self.columns, -1)[:, :keep].reshape(n, -1)
        share = min(1.0, keep / min(self.columns, _resident(launch)))  # fewer columns at once have caches for fewer
        return replace(launch, class_of=class_of, base=base, places=_with_caches(launch, share))


ONCE = Repeats()
"""Workgroups that are nearly alike one by one."""


def estimate(launch: Launch, repeats: Repeats = ONCE, most: int = MOST_ITERATIONS) -> Estimate:
    """Return the time of a launch.

    A launch with more than ``most`` iterations is carried on along two lines, on each of which its time is nearly
    straight once it has settled:

    * *shorter loops*: all loops shortened in proportion, to two lengths, and caches with them:
      ``T = T2 + (T2 - T1) / (I2 - I1) * (I - I2)``, where I counts iterations;
    * *fewer workgroups*: some of them, and the rest at the rate at which those end between the end of the first round
      and the beginning of the last one.
    """
    total = _iterations(launch)
    if total <= most:
        return _simulated(launch)
    mean = total / len(launch.class_of)
    least = LEAST_TILES // 2 if repeats.columns else LEAST_TILES  # columns keep all rows: many workgroups as it is
    long = max(least * 2 / mean, 0.75 * most / total)
    if long > 0.6:
        return _fewer(launch, repeats, most)
    one, two = (_fewer(_shortened(launch, s), repeats, most) for s in (long / 2, long))
    few, many = (_iterations(_shortened(launch, s)) for s in (long / 2, long))
    return _carried_on(one, two, few, many, total)


def _simulated(launch: Launch) -> Estimate:
    timeline = run_compiled(launch, trusted=True)
    return Estimate(timeline.makespan_ps, timeline, 1.0)


def _fewer(launch: Launch, repeats: Repeats, most: int) -> Estimate:
    """Carry on from the first workgroups, if there are many."""
    n, resident, total = len(launch.class_of), _resident(launch), _iterations(launch)
    target = total
    if len(launch.classes) == 1:  # they are all alike: whole rounds of them; and the last ones take as long as others
        repeats = Repeats(resident)
        pes = launch.places.cubes * launch.places.pes_per_cube
        target = total * -(-n // pes) * pes // n
    if repeats.columns > resident:  # enough to fill all places at once: from then on time grows with their number
        part = repeats.part(resident * (n // repeats.columns), launch)
        one = _simulated(part)
        return replace(one, ps=round(one.ps * total / _iterations(part)), simulated=_iterations(part) / total)
    second = max(repeats.multiple(round(most * n / max(total, 1)), launch), repeats.multiple(4 * resident, launch))
    if total <= most or second + resident >= n or second <= 2 * resident:
        return _simulated(launch)
    part = repeats.part(second, launch)
    one = _simulated(part)
    order = np.argsort(one.timeline.end_ps, kind="stable")
    ends = one.timeline.end_ps[order]
    done = np.cumsum(_each(launch)[part.class_of[order]])
    a = resident - 1  # between the first round's end and the last one's begin, in whole repetitions if there are any
    b = a + max(repeats.multiple(second - 2 * resident, launch), 1)
    b = min(b, second - 1) if b < second else second - resident - 1
    rate = float(ends[b] - ends[a]) / max(float(done[b] - done[a]), 1.0)
    return replace(one, ps=one.ps + round(rate * (target - int(done[-1]))), simulated=float(done[-1]) / total)


def _carried_on(one: Estimate, two: Estimate, few: int, many: int, total: int) -> Estimate:
    rate = (two.ps - one.ps) / max(many - few, 1)
    return Estimate(two.ps + round(rate * (total - many)), two.timeline, two.simulated * many / total)


def _each(launch: Launch) -> np.ndarray:
    return np.array([g.iterations for g in launch.classes], np.int64)


def _iterations(launch: Launch) -> int:
    return int(np.bincount(launch.class_of, minlength=len(launch.classes)) @ _each(launch))


def _resident(launch: Launch) -> int:
    places = launch.places
    return places.cubes * places.pes_per_cube * places.slots


def _with_caches(launch: Launch, share: float) -> Places:
    levels = tuple(replace(x, capacity=round(x.capacity * share)) for x in launch.places.levels)
    return replace(launch.places, levels=levels)


def _shortened(launch: Launch, share: float) -> Launch:
    """Return the launch with loops, caches and what is dirty in them reduced to a share."""

    def shorter(group: Workgroup) -> Workgroup:
        return replace(group, iterations=max(1, round(group.iterations * share)) if group.iterations else 0)

    return replace(
        launch,
        places=_with_caches(launch, share),
        classes=tuple(shorter(g) for g in launch.classes),
        dirty_bytes=round(launch.dirty_bytes * share),
    )
