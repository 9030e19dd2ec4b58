"""Which points a sweep tries: all of them, some at random, or some that a guide (Optuna) proposes.

Every search is deterministic: the same file tries the same points in the same order of proposals, however many workers
time them, so that a sweep that was interrupted goes on where it was: what was timed is in the store.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernbench.errors import InputError
from kernbench.explore.runner import Found, Runner, Tally
from kernbench.explore.space import Dimension, Point, Sweep

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

_BATCH = 8
"""Points that a guide proposes before it learns of their results; not the number of workers, which differs."""
_TRIES = 50
"""Proposals for each point that is wanted, at most: constraints refuse some, and a guide repeats itself."""


def run_sweep(runner: Runner) -> Tally:
    """Time the points of a sweep; what is found is in the runner's store.

    Raises
    ------
    InputError
        If the constraints leave no point.
    """
    search, sweep, tally = runner.sweep.file.search, runner.sweep, runner.tally
    if search.method == "guided":
        _run_guided(runner)
    else:
        tally.total = sweep.size
        points = sweep.points()
        if search.method == "random":
            tally.total = min(sweep.size, search.points or sweep.size)
            points = _random_points(sweep, tally.total, search.seed)
        runner.show()
        for _ in runner.run(_allowed(points, runner)):
            pass
    if not tally.seen:
        raise InputError(_all_excluded(sweep))
    return tally


def _allowed(points: Iterator[Point], runner: Runner) -> Iterator[Point]:
    """Yield the points that no constraint forbids."""
    tally = runner.tally
    for point in points:
        if runner.sweep.excluded_by(point) is None:
            yield point
        else:
            tally.excluded += 1
            tally.total = tally.total - 1 if tally.total else tally.total


def _random_points(sweep: Sweep, wanted: int, seed: int) -> Iterator[Point]:
    """Yield ``wanted`` allowed points drawn without replacement, in the order of the space, which shares traces."""
    chosen: list[int] = []
    for position in itertools.islice(_shuffled(sweep.size, seed), _TRIES * wanted):
        if len(chosen) == wanted:
            break
        if sweep.excluded_by(sweep.numbered(position)) is None:
            chosen.append(position)
    for position in sorted(chosen):
        yield sweep.numbered(position)


def _shuffled(size: int, seed: int) -> Iterator[int]:
    """Yield the numbers below ``size`` in random order, each once; keeps only those that were drawn."""
    draw = random.Random(seed)
    moved: dict[int, int] = {}
    for i in range(size):
        j = draw.randrange(i, size)
        yield moved.get(j, j)
        moved[j] = moved.pop(i, i)


def _run_guided(runner: Runner) -> None:
    """Let Optuna's TPE sampler propose points, a batch at a time, and tell it what they take."""
    import optuna

    search, sweep, tally = runner.sweep.file.search, runner.sweep, runner.tally
    wanted = min(search.points or sweep.size, sweep.size)
    tally.total = wanted
    runner.show()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=search.seed, n_startup_trials=min(max(wanted // 4, 8), 64))
    study = optuna.create_study(directions=["minimize"] * len(sweep.objectives), sampler=sampler)
    known: dict[int, Found] = {}
    asked = 0
    while len(known) < wanted and asked < _TRIES * wanted:
        trials: list[tuple[Trial, Point]] = []
        for _ in range(min(_BATCH, wanted - len(known))):
            trial = study.ask()
            asked += 1
            point = sweep.at([_propose(trial, i, dimension) for i, dimension in enumerate(sweep.dimensions)])
            if sweep.excluded_by(point) is None:
                trials.append((trial, point))
            else:
                tally.excluded += 1
                _tell(study, trial, sweep, None)
        new = {point.position: point for _, point in trials if point.position not in known}
        known |= {found.point.position: found for found in runner.run(iter(new.values()))}
        for trial, point in trials:
            _tell(study, trial, sweep, known[point.position])
    tally.total = tally.seen


def _tell(study: Study, trial: Trial, sweep: Sweep, found: Found | None) -> None:
    """Tell the guide what a proposal came to; None: a constraint forbids it."""
    trial.set_constraint("feasible", 1.0 if found is None or not found.feasible else 0.0)
    nothing = [0.0] * len(sweep.objectives)  # what is broken has no values; the guide does not look at them
    study.tell(trial, list(found.objectives(sweep.objectives)) if found is not None and found.feasible else nothing)


def _propose(trial: Trial, i: int, dimension: Dimension) -> int:
    """Let the guide choose the position of a value: as a number where values are in order."""
    count, name = len(dimension.values), f"{i}"
    if count == 1:
        return 0
    if dimension.is_ordered:
        return trial.suggest_int(name, 0, count - 1)
    return int(trial.suggest_categorical(name, list(range(count))))


def _all_excluded(sweep: Sweep) -> str:
    """Say which constraint excludes how many points."""
    counts = [0] * len(sweep.before)
    looked = 0
    for point in sweep.points():
        looked += 1
        values = sweep.values(point, *sweep.before)
        for i, expression in enumerate(sweep.before):
            counts[i] += not expression.holds(values)
        if looked == 10_000:
            break
    rows = "".join(
        f"\n  {expression.where.split(': ')[-1]}: {expression.text!r} excludes {count:,}"
        for expression, count in zip(sweep.before, counts, strict=True)
    )
    first = "" if looked == sweep.size else "first "
    return f"{sweep.file.name}: the constraints leave no point: of the {first}{looked:,},{rows}"
