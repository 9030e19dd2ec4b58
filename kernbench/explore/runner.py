"""Running a sweep: what the store has is taken from there, the rest is timed by workers and stored as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from kernbench.bench import apply_settings
from kernbench.errors import InputError, KernbenchError
from kernbench.explore.evaluate import DONE, Context, Job, Outcome, evaluate_chunk
from kernbench.explore.space import RESULTS, Point, Sweep, sharding_text, work_of
from kernbench.explore.store import Member, Origin, Store, point_key, version_text
from kernbench.explore.workers import Workers
from kernbench.provenance import machine_argument

_CHUNK_S = 0.5
"""Seconds that a chunk should take: what a kill loses, and how often the progress moves."""
_LARGEST_CHUNK = 256
_KEPT = "the points that were stored are kept: run the same command again"
_WORKER_ENDED = f"a worker process ended (out of memory?); {_KEPT}, with fewer --workers if memory is short"
_LOOKUP = 256
"""Points that are looked up in the store at once."""


@dataclass(frozen=True)
class Prepared:
    """A point with all that identifies its result."""

    point: Point
    job: Job
    origin: Origin
    work: tuple[int, str]


@dataclass(frozen=True)
class Found:
    """A point with its result."""

    point: Point
    origin: Origin
    outcome: Outcome
    feasible: bool
    """Whether it is done and breaks no constraint on results."""
    cost: float | None
    work: tuple[int, str]
    """How much it asks for, see :func:`~kernbench.explore.space.work_of`; nothing if there is no such spec."""
    is_new: bool
    """Whether it was timed now, and not taken from the store."""

    @property
    def written(self) -> tuple[str, str, str]:
        """How its sweep writes it: the machine's file, the overrides, the settings."""
        return self.origin.topology, self.origin.overrides, self.origin.settings

    def objectives(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """Return the values that are minimised."""
        return tuple(self.cost if name == "cost" else getattr(self.outcome, name) for name in names)  # type: ignore[misc]


@dataclass
class Tally:
    """How far a sweep is."""

    total: int | None = None
    """Points to come to, as far as it is known; constraints may still take some away."""
    seen: int = 0
    timed: int = 0
    failed: int = 0
    infeasible: int = 0
    excluded: int = 0
    """Points that constraints forbid, which are not timed."""
    best: Found | None = field(default=None)


Progress = Callable[[Tally], None]


class Runner:
    """Times points of one sweep."""

    def __init__(self, sweep: Sweep, store: Store, workers: Workers, progress: Progress | None = None) -> None:
        self.sweep, self.store, self.workers = sweep, store, workers
        self.tally = Tally()
        self._progress = progress or (lambda tally: None)
        self._context = Context.of(sweep.bench, sweep.machines)
        self._version = version_text(self._context.code_sha256)
        self._chunk = 4
        store.begin(sweep.file.name, sweep.file.model_dump_json(exclude_defaults=True), self._basis())

    def _basis(self) -> str:
        """Return what the points depend on beside the sweep's file, for the store to notice a change."""
        machines = [machine.sha256 for machine in self.sweep.machines]
        return json.dumps([self._context.sources_sha256, self._version, *machines])

    def run(self, points: Iterable[Point]) -> Iterator[Found]:
        """Yield the result of each point, in whatever order they come; all that is yielded is in the store."""
        waiting: dict[Future[tuple[list[Outcome], float]], list[Prepared]] = {}
        twins: dict[str, list[Prepared]] = {}  # by key: points whose result is on its way, as that of another point
        ready: list[Prepared] = []
        source = self._looked_up(points, twins)
        exhausted = False
        while True:
            while not exhausted and len(waiting) < 2 * self.workers.slots:
                item = next(source, None)
                if item is None:
                    exhausted = True
                elif isinstance(item, Found):
                    yield self._counted(item)
                else:
                    ready.append(item)
                if len(ready) >= self._chunk or (exhausted and ready):
                    jobs = [prepared.job for prepared in ready]
                    waiting[self._submit(jobs)] = ready
                    ready = []
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield from self._finished(waiting.pop(future), future, twins)

    def _submit(self, jobs: list[Job]) -> Future[tuple[list[Outcome], float]]:
        try:
            return self.workers.executor.submit(evaluate_chunk, self._context, jobs)
        except BrokenProcessPool:
            raise InputError(_WORKER_ENDED) from None

    def _finished(
        self, chunk: list[Prepared], future: Future[tuple[list[Outcome], float]], twins: dict[str, list[Prepared]]
    ) -> Iterator[Found]:
        try:
            outcomes, seconds = future.result()
        except BrokenProcessPool:
            raise InputError(_WORKER_ENDED) from None
        except Exception as error:
            if not type(error).__module__.startswith(("distributed", "concurrent")):
                raise
            # the scheduler is gone, or a chunk has killed several workers
            raise InputError(f"the cluster failed ({type(error).__name__}: {error}); {_KEPT}") from None
        self._chunk = min(max(int(len(chunk) * _CHUNK_S / max(seconds, 1e-3)), 1), 2 * len(chunk), _LARGEST_CHUNK)
        found = []
        for outcome, prepared in zip(outcomes, chunk, strict=True):
            mine = twins.pop(outcome.key)
            found += [self._judged(twin, outcome, is_new=twin is prepared) for twin in mine]
        self._store(found, {prepared.job.key: prepared for prepared in chunk})
        for one in found:
            yield self._counted(one)

    def _looked_up(self, points: Iterable[Point], twins: dict[str, list[Prepared]]) -> Iterator[Prepared | Found]:
        """Yield points that must be timed, and those that the store has."""
        batch: list[Prepared] = []
        for point in points:
            batch.append(self._prepare(point))
            if len(batch) == _LOOKUP:
                yield from self._split(batch, twins)
                batch = []
        yield from self._split(batch, twins)

    def _split(self, batch: list[Prepared], twins: dict[str, list[Prepared]]) -> Iterator[Prepared | Found]:
        known = self.store.outcomes([prepared.job.key for prepared in batch])
        found = [self._judged(p, known[p.job.key], is_new=False) for p in batch if p.job.key in known]
        if found:
            self._store(found, {})
        yield from found
        for prepared in batch:
            key = prepared.job.key
            if key in known:
                continue
            if key in twins:
                twins[key].append(prepared)
            else:
                twins[key] = [prepared]
                yield prepared

    def _prepare(self, point: Point) -> Prepared:
        overrides = json.dumps(point.overrides, sort_keys=True)
        settings = json.dumps(point.settings, sort_keys=True)
        base = self.sweep.machines[point.topology]
        canonical, sharding, sha, work = settings, "", f"{base.sha256} {overrides}", (0, "")
        try:
            machine = self.sweep.machine(point)
            sha = machine.sha256
            spec, implementation = apply_settings(self.sweep.bench, point.settings)
            fields = spec.model_dump(mode="json")
            canonical = json.dumps([fields, implementation and implementation.model_dump(mode="json")], sort_keys=True)
            sharding, work = sharding_text(fields, machine), work_of(spec)
        except KernbenchError:
            pass  # no such spec or machine: timing it says why
        kernel = self._context.sources_sha256
        key = point_key(kernel, f"{self.sweep.bench.name} {canonical}", sha, self._version)
        origin = Origin(
            self.sweep.bench.name, machine_argument(base), overrides, settings, sharding, sha, kernel, self._version
        )
        return Prepared(point, Job(key, point.topology, settings, overrides), origin, work)

    def _judged(self, prepared: Prepared, outcome: Outcome, is_new: bool) -> Found:
        """Hold a result against the constraints on results, and find its cost."""
        sweep, feasible, cost = self.sweep, outcome.status == DONE, None
        if feasible and (sweep.after or sweep.cost):
            expressions = [*sweep.after, *([sweep.cost] if sweep.cost else [])]
            values = sweep.values(prepared.point, *expressions) | {name: getattr(outcome, name) for name in RESULTS}
            feasible = all(expression.holds(values) for expression in sweep.after)
            cost = sweep.cost.number(values) if sweep.cost else None
        return Found(prepared.point, prepared.origin, outcome, feasible, cost, prepared.work, is_new)

    def _store(self, found: list[Found], new: dict[str, Prepared]) -> None:
        keys = {one.outcome.key: one.outcome for one in found}
        self.store.add(
            self.sweep.file.name,
            [(prepared.origin, keys[key]) for key, prepared in new.items()],
            [Member(one.point.position, one.outcome.key, one.feasible, one.cost, *one.written) for one in found],
        )

    def _counted(self, found: Found) -> Found:
        tally = self.tally
        tally.seen += 1
        tally.timed += found.is_new
        tally.failed += found.outcome.status != DONE
        tally.infeasible += found.outcome.status == DONE and not found.feasible
        if found.feasible and (tally.best is None or self._rank(found) < self._rank(tally.best)):
            tally.best = found
        self.show()
        return found

    def show(self) -> None:
        """Show how far the sweep is."""
        self._progress(self.tally)

    def _rank(self, found: Found) -> tuple[Any, ...]:
        """Rank points with the most work first: less work is not a better choice."""
        return (-found.work[0], found.work[1], *found.objectives(self.sweep.objectives), found.point.position)
