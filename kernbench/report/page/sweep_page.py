"""The page of a sweep: its points, the winner and why it is no faster, what failed."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.explore.frame import is_missing
from kernbench.ledger import Ledger
from kernbench.report.again import Again, machine_of
from kernbench.report.page.pictures import machine_picture
from kernbench.report.page.points import Points, points_of
from kernbench.report.page.render import render
from kernbench.report.page.run_page import PictureSection, TimedRun, picture_sections, time_sections, timed_run
from kernbench.report.page.sweep_pictures import sweep_pictures
from kernbench.run import RunResult

if TYPE_CHECKING:
    from pandas import DataFrame

_FIRST = ("status", "feasible")
_LAST = (
    "makespan_ps", "cost", "scratch_peak_bytes", "hbm_bytes", "link_bytes", "flops", "commands", "error", "position",
    "key",
)  # fmt: skip
"""Columns that stand before and behind the settings, as far as a sweep has them."""
_SCREEN_ONLY = ("hbm_bytes", "link_bytes", "flops", "commands", "error", "position", "key")
_PICTURES = {
    "trade-offs": ("Trade-offs", ("pareto",)),
    "latency": ("Time by setting", ("latency-plot",)),
    "scaling": ("Scaling over the machine", ("scaling-strong", "scaling-weak")),
}


@dataclass(frozen=True)
class Failure:
    """Points that failed with the same message."""

    message: str
    count: int
    first: str
    """Position, or else key, of the first of them."""


@dataclass(frozen=True)
class Count:
    """How many points a sweep has, by how they ended."""

    points: int
    done: int
    failed: int
    infeasible: int
    """Done, but against a constraint."""


def sweep_page(
    frame: DataFrame,
    *,
    name: str,
    command: str,
    definition: str = "",
    objectives: Sequence[str] = ("makespan_ps",),
    winner: RunResult | None,
    overrides: Mapping[str, Any] | None = None,
    works: int = 1,
    again: Again | None,
    ledgers: Mapping[str, Ledger] | None = None,
) -> str:
    """Return the page of a sweep.

    Parameters
    ----------
    frame
        One row a point, with the columns that ``docs/sweeps.md`` lists.
    name
        Of the sweep.
    command
        The command line that makes it again.
    definition
        Text of the sweep file.
    objectives
        Columns that the sweep makes small, the first one first.
    winner
        The result of the best point; None if no point is both done and feasible.
    overrides
        Values of the machine's file that the winner changes, by dotted key.
    works
        How many kinds of inputs points have; the winner is then the best of those with the most.
    again
        The winner timed again, if it has a timeline: its bounds and pictures are made of it.
    ledgers
        Name of each machine of the sweep, as its file says it is → its ledger.
    """
    machine = None if winner is None else again.machine if again else machine_of(winner)
    run = timed_run(winner, machine, again) if winner and machine else None
    sections = picture_sections(_PICTURES, sweep_pictures(frame, objectives))
    failures = _failures(frame)
    return render(
        "sweep.html.j2",
        name=name,
        command=command,
        definition=definition,
        count=_count(frame),
        same=_same(frame),
        points=frame_points(frame),
        failures=failures,
        picture_sections=sections,
        result=winner,
        overrides=overrides or {},
        works=works,
        values_command=_with_values(winner.command) if winner else "",
        ledgers=ledgers or {},
        run=run,
        machine=machine_picture(machine) if machine else None,
        # without the seconds on the host, in which alone one page would differ from the next
        document=json.loads(winner.model_dump_json(exclude={"wall"})) if winner else None,
        sections=_sections(winner, run, sections, failures, bool(winner or ledgers)),
    )


def _with_values(command: str) -> str:
    """Return the command of a run that computes values, too."""
    words = shlex.split(command)
    if "--mode" in words:
        at = words.index("--mode")
        del words[at : at + 2]
    return shlex.join(words)


def frame_points(frame: DataFrame) -> Points:
    """Return the points as a table: how they ended, the settings that differ among them, what they came to."""
    empty = {name for name in map(str, frame.columns) if all(plain(value) is None for value in frame[name].tolist())}
    names = [name for name in map(str, frame.columns) if name not in empty]
    same = _same(frame)
    if "position" in names:  # tells the points apart in fewer letters than the key
        names.remove("key")
    told = {name for name in names if name.startswith("split_") and "sharding" in names}  # the sharding says them
    settings = [name for name in names if name not in {*_FIRST, *_LAST, *same, *told}]
    chosen = [n for n in _FIRST if n in names] + settings + [n for n in _LAST if n in names]
    cells = [[plain(value) for value in frame[name].tolist()] for name in chosen]
    return points_of(chosen, list(zip(*cells, strict=True)), screen_only=_SCREEN_ONLY)


def plain(value: Any) -> Any:
    """Return a cell as JSON holds it: a number that is none, or not finite, becomes None.

    >>> plain(float("nan")), plain(3.0), plain(("cube", "pe"))
    (None, 3, 'cube,pe')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, float):  # a column of integers with gaps comes as floats
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, (bool, int, str)):
        return value
    return None if is_missing(value) else str(value)


def _same(frame: DataFrame) -> dict[str, Any]:
    """Return the settings that all points have in common."""
    found = {}
    for name in map(str, frame.columns):
        cells = {plain(value) for value in frame[name].tolist()}
        if len(cells) == 1 and len(frame) > 1 and name not in (*_FIRST, *_LAST):
            found[name] = cells.pop()
    return found


def _count(frame: DataFrame) -> Count:
    status = frame["status"].tolist()
    feasible = [plain(value) for value in frame["feasible"].tolist()]
    infeasible = sum(s == "done" and f is False for s, f in zip(status, feasible, strict=True))
    return Count(len(frame), status.count("done"), status.count("failed"), infeasible)


def _failures(frame: DataFrame) -> list[Failure]:
    """Return the failures by message, the most frequent first."""
    groups: dict[str, list[str]] = {}
    names = frame["position" if "position" in frame else "key"].tolist()
    for status, message, name in zip(frame["status"].tolist(), frame["error"].tolist(), names, strict=True):
        if status == "failed":
            groups.setdefault(str(message), []).append(str(name))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [Failure(message, len(points), points[0]) for message, points in ordered]


def _sections(
    winner: RunResult | None,
    run: TimedRun | None,
    pictures: Sequence[PictureSection],
    failures: Sequence[Failure],
    has_ledger: bool,
) -> list[tuple[str, str]]:
    machine, correctness = ("machine", "Machine of the winner"), ("correctness", "Correctness")
    of_winner = [machine, correctness, *time_sections(winner, run)] if winner else []
    return [
        ("summary", "Summary"),
        *([("why", "Winner, and why")] if winner else []),
        *((section.id, section.title) for section in pictures),
        ("points", "Points"),
        *of_winner,
        *([("ledger", "Where the figures come from")] if has_ledger else []),
        *([("failures", "Failures")] if failures else []),
        ("reproduce", "Make it again"),
    ]
