"""Dispatches of the same kernel, grid, workgroup, LDS and GPU become one group: its times, or its counters."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from kernbench.realrun.importers.agents import Fleet
from kernbench.realrun.importers.profile import Agent, Dispatch, Profile, same_lds
from kernbench.realrun.records import Quantiles

UNKNOWN = Agent(None, None)

Key: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...], int | None, int | None, Agent]

_PER_XCD = "GRBM_"
_REDUCED = ("_max", "_min", "_avr")
"""Endings of counters that are over instances already, and no sum."""


@dataclass
class Group:
    """Dispatches of one kernel, its warm-up left out."""

    first: Dispatch
    agent: Agent
    counted: bool
    durations: list[float] = field(default_factory=list)
    """Microseconds."""
    counters: dict[str, list[float]] = field(default_factory=dict)
    seen: int = 0
    """Dispatches, warm-up included."""
    kept: int = 0
    sources: set[str] = field(default_factory=set)

    def title(self) -> str:
        """Name the group for messages."""
        grid = "x".join(map(str, self.first.grid))
        return f"{self.first.name[:60]} (grid of {grid} work-items)"


def group(profiles: Iterable[tuple[Profile, Fleet]], skip_first: int) -> list[Group]:
    """Group the dispatches of some profiles, all with counters or all without.

    Parameters
    ----------
    profiles : iterable of (Profile, Fleet)
    skip_first : int
        Dispatches of each group that are warm-up: the first of every file, process and GPU.
    """
    groups: dict[Key, Group] = {}
    for profile, fleet in profiles:
        seen: dict[tuple[Key, str, str, frozenset[str]], int] = {}
        for dispatch in sorted(profile.dispatches, key=lambda d: d.start):
            agent = fleet.find(dispatch.agent) or UNKNOWN
            key = (dispatch.name, dispatch.grid, dispatch.workgroup, dispatch.lds, dispatch.static_lds, agent)
            mine = groups.setdefault(key, Group(dispatch, agent, profile.counted))
            mine.seen += 1
            mine.sources.add(f"{profile.path.name} ({profile.format})")
            # Replayed passes and runs of other counters are runs of their own, each with its warm-up.
            stream = (key, dispatch.process, dispatch.agent, frozenset(dispatch.counters))
            seen[stream] = seen.get(stream, 0) + 1
            if seen[stream] > skip_first:
                _add(mine, dispatch)
    return list(groups.values())


def _add(group: Group, dispatch: Dispatch) -> None:
    group.kept += 1
    if group.counted:
        for name, value in dispatch.counters.items():
            group.counters.setdefault(name, []).append(value)
    else:
        group.durations.append((dispatch.end - dispatch.start) / 1000)


def join(timed: list[Group], counted: list[Group], warnings: list[str]) -> Iterator[tuple[Group, Group | None]]:
    """Give each timed group the counters of the same kernel; counters without a time come alone.

    A file of counters has no axes and rounds LDS, so that it may fit several groups: then it is given to none.
    """
    joined: dict[int, Group] = {}
    alone: list[Group] = []
    for mine in counted:
        fits = [t for t in timed if _fits(t, mine)]
        exact = [t for t in fits if _lds(t) == _lds(mine)] or fits
        free = len(exact) == 1 and id(exact[0]) not in joined
        if free:
            joined[id(exact[0])] = mine
            continue
        if exact:
            warnings.append(f"counters of {mine.title()} fit several kernels of the trace, and were joined with none")
        alone.append(mine)
    for one in timed:
        yield one, joined.get(id(one))
    for mine in alone:
        yield mine, None


def _lds(group: Group) -> tuple[int | None, int | None]:
    return group.first.lds, group.first.static_lds


def _fits(timed: Group, counted: Group) -> bool:
    one, other = timed.first, counted.first
    if one.size != other.size or not same_lds(one, other):
        return False
    if len(one.grid) == len(other.grid) and (one.grid, one.workgroup) != (other.grid, other.workgroup):
        return False
    return UNKNOWN in (timed.agent, counted.agent) or timed.agent == counted.agent


def quantiles(durations: list[float]) -> Quantiles:
    """Return median, 10th and 90th percentile (from two durations on), interpolated.

    >>> quantiles([1.0, 2.0, 3.0, 4.0, 5.0])
    Quantiles(median=3.0, p10=1.4, p90=4.6, n=5)
    """
    median = statistics.median(durations)
    if len(durations) == 1:
        return Quantiles(median=median, n=1)
    tenths = statistics.quantiles(durations, n=10, method="inclusive")
    return Quantiles(median=median, p10=tenths[0], p90=tenths[-1], n=len(durations))


def counter_values(group: Group, xcc: int | None, lacking: set[str]) -> dict[str, float]:
    """Return the median of each counter; those that sum over XCDs, of one XCD.

    Parameters
    ----------
    group : Group
    xcc : int or None
        XCDs, if the user says so; else the GPU's own.
    lacking : set[str]
        Takes the names of counters that are left out, since the number of XCDs is not known.
    """
    count = xcc or group.agent.xcc
    values: dict[str, float] = {}
    for name, found in sorted(group.counters.items()):
        median = statistics.median(found)
        if not name.startswith(_PER_XCD) or name.endswith(_REDUCED):
            values[name] = median
        elif count is None:
            lacking.add(name)
        else:
            values[name] = median / count
    return values
