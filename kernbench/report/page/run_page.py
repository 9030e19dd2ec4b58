"""The page of one run: everything that its JSON holds, and what simulating it again shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernbench.bounds import bounds_of
from kernbench.machine import Machine
from kernbench.provenance import kernel_file
from kernbench.report.again import Again, machine_of
from kernbench.report.page.listing import Listing, listings
from kernbench.report.page.pictures import Picture, machine_picture, run_pictures
from kernbench.report.page.points import Points, points_of
from kernbench.report.page.render import render
from kernbench.report.shares import parts_of
from kernbench.run import PathResult, RunResult
from kernbench.simulate.explain import Bound

_PICTURES = {
    "timeline": ("Over time", ("gantt", "gantt-cube")),
    "heat": ("Memories and links in use", ("heat-map",)),
    "roofline": ("Roofline", ("roofline-plot",)),
}
"""Sections of pictures: id → title and the pictures in it."""


@dataclass(frozen=True)
class Share:
    """A part of the makespan."""

    name: str
    share: float
    ps: int


@dataclass(frozen=True)
class PictureSection:
    """A section of pictures."""

    id: str
    title: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class TimedRun:
    """What a page shows of a run that has a time."""

    by_cause: list[Share]
    pictures: Mapping[str, Picture]
    picture_sections: list[PictureSection]
    listings: list[Listing]
    by_place: list[Share]
    segments: Points
    bounds: tuple[Bound, ...]
    """Largest first."""


def run_page(result: RunResult, again: Again | None) -> str:
    """Return the page of a run.

    Parameters
    ----------
    result
        As :func:`kernbench.report.again.read_result` returns it.
    again
        The run timed again, of which the pictures of its timeline, the kernel's source and the bounds are made. None:
        for a run that has no timeline.
    """
    machine = again.machine if again else machine_of(result)
    run = timed_run(result, machine, again)
    return render(
        "run.html.j2",
        result=result,
        document=json.loads(result.model_dump_json()),
        machine=machine_picture(machine),
        run=run,
        sections=_sections(result, run),
    )


def timed_run(result: RunResult, machine: Machine, again: Again | None) -> TimedRun | None:
    """Return what a page shows of a run's time; None if it has none."""
    if result.makespan_ps is None:
        return None
    path, pictures = result.critical_path, run_pictures(result, machine, again)
    lines = path.time_by_line if path else {}
    return TimedRun(
        by_cause=_shares(result.time_by_cause or {}, result.makespan_ps),
        pictures=pictures,
        picture_sections=picture_sections(_PICTURES, pictures),
        listings=listings(lines, parts_of(lines, result.makespan_ps), kernel_file(again.bench)) if again else [],
        by_place=_shares(path.time_by_place, result.makespan_ps) if path else [],
        segments=_segments(path),
        bounds=bounds_of(result, again.timeline if again else None),
    )


def picture_sections(
    layout: Mapping[str, tuple[str, Sequence[str]]], pictures: Mapping[str, Picture]
) -> list[PictureSection]:
    """Return the sections that have any of these pictures; ``layout`` is id → title and ids of pictures."""
    found = []
    for section, (title, names) in layout.items():
        inside = tuple(pictures[name] for name in names if name in pictures)
        if inside:
            found.append(PictureSection(section, title, inside))
    return found


def _shares(shares: Mapping[str, float], whole: int) -> list[Share]:
    parts = parts_of(shares, whole)
    return [Share(name, share, parts[name]) for name, share in shares.items()]


def _segments(path: PathResult | None) -> Points:
    names = ("start_ps", "end_ps", "takes_ps", "pe", "cause", "line")
    segments = path.segments if path else []
    return points_of(names, [(s.start_ps, s.end_ps, s.end_ps - s.start_ps, s.pe, s.cause, s.line) for s in segments])


def _sections(result: RunResult, run: TimedRun | None) -> list[tuple[str, str]]:
    """Return id and title of each section that the page has, for its contents."""
    bounds = [] if run is None else [("bounds", "Lower bounds")]
    return [
        ("summary", "Summary"),
        ("machine", "Machine"),
        ("correctness", "Correctness"),
        *time_sections(result, run),
        *bounds,
        ("scratch", "Scratch"),
        ("ledger", "Where the figures come from"),
        ("warnings", "Warnings"),
        ("reproduce", "Make it again"),
    ]


def time_sections(result: RunResult, run: TimedRun | None) -> list[tuple[str, str]]:
    """Return id and title of the sections about a run's time, up to its bounds."""
    if run is None:
        return [("time", "Time")]
    return [
        ("time", "Time by cause"),
        *([("launches", "Launches")] if result.launches else []),
        *([("path", "Critical path")] if result.critical_path else []),
        *((section.id, section.title) for section in run.picture_sections),
        *([("engines", "Engine time")] if result.engine_time else []),
    ]
