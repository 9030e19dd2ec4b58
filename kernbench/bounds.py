"""Lower bounds of a run, on a mesh or of grids of workgroups: what no schedule of the same commands can beat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernbench.simulate.explain import Bound, lower_bounds

if TYPE_CHECKING:
    from kernbench.run import RunResult
    from kernbench.simulate.timeline import Timeline


def bounds_of(result: RunResult, timeline: Timeline | None) -> tuple[Bound, ...]:
    """Return the lower bounds of a run, largest first; none of a run without a time.

    On a mesh they are the work of the busiest resource of each kind. Workgroups may run anywhere, so of grid benches
    they are what each kind of engine, cache, memory or link has to do, spread evenly over all of its kind (that of the
    slowest of launches that go side by side, with the cache hits of this run), and what it costs to start the launches,
    which follow one another.

    Parameters
    ----------
    result
        Of the run.
    timeline
        Of a run on a mesh; None for one of a grid bench, or if there is none.
    """
    found = lower_bounds(timeline) if timeline is not None else list(_bounds_of_grids(result))
    return tuple(sorted(found, key=lambda bound: -bound.ps))


def _bounds_of_grids(result: RunResult) -> Iterator[Bound]:
    if result.makespan_ps is None or not result.launches:
        return
    for name, share in (result.engines or {}).items():
        ps = int(share * result.makespan_ps)
        if ps:
            yield Bound(name, "spread evenly over all", ps)
    overhead = sum(launch.overhead_ps for launch in result.launches)
    if overhead:
        yield Bound("starting launches", "one after the other", overhead)
