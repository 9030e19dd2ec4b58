"""Times of the launches of a grid bench, and of what SIPs send one another between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kernbench.bench import Collective, GridLaunch
from kernbench.machine import Machine
from kernbench.record import Trace
from kernbench.run import CollectivePart, LaunchPart, exact_shares
from kernbench.simulate.launch import simulate_launch
from kernbench.simulate.launch.collective import CollectiveTime, collective_time
from kernbench.simulate.launch.lower import lower
from kernbench.simulate.launch.places import launch_of
from kernbench.simulate.launch.steps import CAUSES

if TYPE_CHECKING:
    from kernbench.simulate.launch.timeline import LaunchTimeline


@dataclass(frozen=True)
class Stage:
    """Recorded launches that go side by side, one on each of some SIPs."""

    launches: tuple[GridLaunch, ...]
    traces: list[Trace]
    alike: int
    """SIPs that do what each of these does."""

    @property
    def sips(self) -> int:
        """SIPs that take part."""
        return len(self.launches) * self.alike


@dataclass(frozen=True)
class TimedStage:
    """A stage with the timeline of each of its launches."""

    stage: Stage
    timelines: list[LaunchTimeline]

    @property
    def slowest(self) -> int:
        """Number of the launch that what follows waits for; the first of several."""
        spans = [timeline.makespan_ps for timeline in self.timelines]
        return spans.index(max(spans))

    @property
    def line(self) -> LaunchTimeline:
        """Timeline of that launch."""
        return self.timelines[self.slowest]


@dataclass(frozen=True)
class Timed:
    """What one call takes: stages and collectives, one after the other."""

    steps: list[TimedStage | tuple[Collective, CollectiveTime]]
    overhead_ps: int
    """Of each launch."""

    @classmethod
    def of(cls, stages: Sequence[Stage | Collective], machine: Machine, engine: str) -> Timed:
        """Time each step.

        Raises
        ------
        InputError
            If a workgroup does not fit into a PE, or the machine says nothing of collectives and there is one.
        """
        steps: list[TimedStage | tuple[Collective, CollectiveTime]] = []
        for step in stages:
            if isinstance(step, Collective):
                steps.append((step, collective_time(machine, step.operation, step.nbytes, distance=step.distance)))
                continue
            lowered = (
                lower(trace, machine, launch.implementation, warm=launch.reads_results)
                for launch, trace in zip(step.launches, step.traces, strict=True)
            )
            steps.append(TimedStage(step, [simulate_launch(one, engine) for one in lowered]))
        return cls(steps, launch_of(machine).graph)

    @property
    def _stages(self) -> list[TimedStage]:
        return [step for step in self.steps if isinstance(step, TimedStage)]

    @property
    def _sent(self) -> list[tuple[Collective, CollectiveTime]]:
        return [step for step in self.steps if not isinstance(step, TimedStage)]

    @property
    def makespan_ps(self) -> int:
        """All stages with their overheads, and all collectives, one after the other."""
        launches = sum(step.line.makespan_ps + self.overhead_ps for step in self._stages)
        return launches + sum(time.ps for _, time in self._sent)

    def parts(self) -> list[LaunchPart]:
        """Return what each stage's slowest launch took."""
        return [self._part(step) for step in self._stages]

    def _part(self, step: TimedStage) -> LaunchPart:
        trace, line = step.stage.traces[step.slowest], step.line
        return LaunchPart(
            kernel=trace.kernel,
            grid=trace.grid,
            makespan_ps=line.makespan_ps,
            overhead_ps=self.overhead_ps,
            workgroups_per_pe=line.launch.places.slots,
            time_by_cause=exact_shares(_by_cause(line)),
            sips=step.stage.sips,
        )

    def collectives(self) -> list[CollectivePart]:
        """Return what each collective took, and after how many stages it came."""
        found, before = [], 0
        for step in self.steps:
            if isinstance(step, TimedStage):
                before += 1
                continue
            what, time = step
            found.append(
                CollectivePart(
                    operation=what.operation, after=before, senders=what.senders, nbytes=what.nbytes,
                    sent_nbytes=time.sent_nbytes, protocol=time.protocol, makespan_ps=time.ps,
                )
            )  # fmt: skip
        return found

    def busy(self) -> dict[str, float]:
        """Return each engine's and each level's share of the makespan, the mean over those of one kind.

        Of each stage it is the slowest launch that counts; ``link`` is what the bytes of collectives take by themselves
        on the links that they use.
        """
        shares: dict[str, float] = {}
        for step in self._stages:
            for name, share in step.line.busy.items():
                shares[name] = shares.get(name, 0.0) + share * step.line.makespan_ps / self.makespan_ps
        if self._sent:
            shares["link"] = float(Fraction(sum(time.wire_ps for _, time in self._sent), self.makespan_ps))
        return {name: min(share, 1.0) for name, share in shares.items()}

    def by_cause(self) -> dict[str, float]:
        """Return each cause's share of the makespan, ``launch``, ``collective`` and ``idle`` included.

        The shares add up to exactly 1. Within a stage a cause's share is its part of the time of all places for
        workgroups of the slowest launch.
        """
        lines = [step.line for step in self._stages]
        places = [_places(line) for line in lines]
        common = math.lcm(*places)
        total = {
            "launch": self.overhead_ps * len(lines) * common,
            "collective": sum(time.ps for _, time in self._sent) * common,
        }
        for line, n in zip(lines, places, strict=True):
            for cause, ps in _by_cause(line).items():
                total[cause] = total.get(cause, 0) + ps * (common // n)
        largest_first = sorted(total.items(), key=lambda item: -item[1])
        return exact_shares({cause: ps for cause, ps in largest_first if ps})

    def memory_nbytes(self) -> int:
        """Return the bytes that the memories of all SIPs moved for launches, stores included."""
        return sum(
            int(line.level_nbytes[-1]) * step.stage.alike for step in self._stages for line in step.timelines
        )  # fmt: skip

    def link_nbytes(self) -> int:
        """Return the bytes that crossed links between SIPs, counted on every link."""
        return sum(what.senders * what.distance * time.sent_nbytes for what, time in self._sent)


def _places(timeline: LaunchTimeline) -> int:
    """Places that workgroups can be in at once, those included that stay empty."""
    places = timeline.launch.places
    return min(places.cubes * places.pes_per_cube * places.slots, len(timeline.pe))


def _by_cause(timeline: LaunchTimeline) -> dict[str, int]:
    """Picoseconds by cause over all places, ``idle`` for those without a workgroup."""
    spent = {cause: int(timeline.spent_ps[:, i].sum()) for i, cause in enumerate(CAUSES)}
    spent["idle"] = max(_places(timeline) * timeline.makespan_ps - sum(spent.values()), 0)
    return spent
