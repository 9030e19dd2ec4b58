"""What PEs do over time: the engines of one PE, or several PEs by what works in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.record.stream import Engine
from kernbench.report.plots import style
from kernbench.simulate.engine_lanes import BUSY, IDLE, ISSUE, LINK, MEMORY, EngineLane, engine_lanes
from kernbench.simulate.engine_time import COLUMNS
from kernbench.simulate.timeline import Timeline

MOST_SEGMENTS = 3000
"""Of a picture; where there are more, short neighbours are merged until there are not."""
MOST_LANES = 64
LEAST_SHARE = 1 / 240
"""Of the window: what is shorter could not be told apart in print (0.6 mm), and is merged with its neighbours."""

_KINDS = (
    (Engine.RECV, "receive"), (Engine.SEND, "send"), (Engine.VECTOR, "vector"), (Engine.MATRIX, "matrix"),
    (Engine.STORE, "store"), (Engine.LOAD, "load"),
)  # fmt: skip
"""Kinds of engine by the number of their first, from the last down."""


@dataclass(frozen=True)
class Segment:
    """A stretch of a lane in which one thing happens, or several in stretches too short to be seen."""

    start_ps: int
    end_ps: int
    parts: tuple[tuple[str, int], ...]
    """(what, ps): they add up to the segment's length. More than one: it was merged, and their order is not told."""


@dataclass(frozen=True)
class GanttLane:
    """An engine, or a PE. Its segments follow one another from the window's start to its end."""

    label: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class GanttData:
    """The lanes of the picture, from above."""

    kernel: str
    machine: str
    places: str
    """The PEs, as :meth:`~kernbench.machine.Machine.describe_pes` names them."""
    start_ps: int
    end_ps: int
    lanes: tuple[GanttLane, ...]
    by_engine: bool
    """Lanes are the engines of one PE, in which something is at work or waits by cause; else they are PEs."""
    ranking: tuple[str, ...]
    """Of lanes that are PEs: of several kinds of engine at work at once, the first in this order is shown."""
    merged_below_ps: int
    """Neighbours shorter than this were merged."""
    n_merged: int
    """Stretches that are in merged segments."""

    @property
    def present(self) -> tuple[str, ...]:
        """What happens in any lane, in the order of legends."""
        found = {what for lane in self.lanes for segment in lane.segments for what, _ in segment.parts}
        return tuple(what for what in style.CAUSES if what in found)


@dataclass(frozen=True, eq=False)
class _Pieces:
    """A lane before merging: piece i lasts from ``begin[i]`` to ``begin[i + 1]``."""

    label: str
    begin: np.ndarray
    """int64[pieces + 1]: the last is the window's end."""
    what: np.ndarray
    """int64[piece]: index into :data:`~kernbench.report.plots.style.CAUSES`."""


def gantt_data(timeline: Timeline, pes: Iterable[int], window: tuple[int, int] | None = None) -> GanttData:
    """Find what PEs do over time.

    Of one PE each engine is a lane: at work, or waiting, by cause, as :mod:`kernbench.simulate.engine_time` tells it.
    Of several PEs each is a lane, which shows a kind of engine that is at work; of several that of the kind that works
    most over these PEs. While none works, the lane shows what the engines wait for: memory or links if any waits
    there, else what the first of them in that order waits for; *issue* only if that is all.

    Parameters
    ----------
    timeline
        The times.
    pes
        Global indices, as :func:`kernbench.report.selection.select_pes` gives them; idle PEs are left out.
    window
        From and to in ps; default: the whole run.

    Raises
    ------
    InputError
        If no PE has anything to do, there are more than :data:`MOST_LANES`, or the window holds nothing of the run.
    """
    program, machine = timeline.program, timeline.program.machine
    chosen = [int(pe) for pe in pes if _has_work(timeline, int(pe))]
    if not chosen:
        raise InputError("none of the selected PEs has anything to do in the run")
    if len(chosen) > MOST_LANES:
        raise InputError(f"{len(chosen):,} PEs are too many lanes to read: select at most {MOST_LANES}")
    start, end = _window(window, timeline.makespan_ps)
    found = {pe: engine_lanes(timeline, pe) for pe in chosen}
    ranking: tuple[str, ...] = ()
    if len(chosen) == 1:
        lanes = [_Pieces(lane.name, lane.begin_ps, _LOOK_OF_STATE[lane.state]) for lane in found[chosen[0]]]
    else:
        ranking = _rank(found.values(), timeline.makespan_ps)
        lanes = [_pieces_of_pe(_short_name(machine, pe), found[pe], ranking) for pe in chosen]
    cut = [_cut(lane, start, end) for lane in lanes]
    grain = _grain(cut, start, end)
    merged = [_merged(lane, grain) for lane in cut]
    return GanttData(
        kernel=program.trace.kernel,
        machine=machine.name,
        places=machine.describe_pes(chosen),
        start_ps=start,
        end_ps=end,
        lanes=tuple(merged),
        by_engine=len(chosen) == 1,
        ranking=ranking,
        merged_below_ps=grain,
        n_merged=sum(
            len(lane.what) - sum(len(s.parts) == 1 for s in drawn.segments)
            for lane, drawn in zip(cut, merged, strict=True)
        ),
    )  # fmt: skip


_LOOK_OF_STATE = np.array([style.CAUSES.index(name) for name in COLUMNS])


def _has_work(timeline: Timeline, pe: int) -> bool:
    rank = timeline.program.rank[pe]
    return bool(rank >= 0 and timeline.program.out[rank + 1] > timeline.program.out[rank])


def _window(window: tuple[int, int] | None, makespan_ps: int) -> tuple[int, int]:
    start, end = window or (0, makespan_ps)
    start, end = max(start, 0), min(end, makespan_ps)
    if start >= end:
        raise InputError(f"the window {window} holds nothing of the run, which lasts from 0 to {makespan_ps:,} ps")
    return start, end


# ---------------------------------------------------------------- lanes of PEs
def _rank(every: Iterable[Sequence[EngineLane]], makespan_ps: int) -> tuple[str, ...]:
    """Order the kinds of engine by the time for which they work over all PEs, the most first."""
    busy = {name: 0 for _, name in _KINDS}
    for lanes in every:
        for lane in lanes:
            length = np.diff(np.append(lane.begin_ps, makespan_ps))
            busy[kind_of(lane.engine)] += int(length[lane.state == BUSY].sum())
    return tuple(sorted((k for k in busy if busy[k]), key=lambda k: (-busy[k], style.CAUSES.index(k))))


def kind_of(engine: int) -> str:
    """Return what an engine is called without its direction, as pictures write it."""
    return next(name for first, name in _KINDS if engine >= first)


def _pieces_of_pe(label: str, lanes: Sequence[EngineLane], ranking: Sequence[str]) -> _Pieces:
    """Lay the engines of a PE over one another."""
    moments = np.unique(np.concatenate([[0], *(lane.begin_ps for lane in lanes)]))
    shown = np.full(len(moments), style.CAUSES.index("idle"))
    order = {kind: i for i, kind in enumerate(ranking)}
    ranked = sorted(lanes, key=lambda lane: order.get(kind_of(lane.engine), len(order)))
    states = [lane.state[np.searchsorted(lane.begin_ps, moments, "right") - 1] for lane in ranked]
    # The last that is written wins, so from the least to the most telling: ISSUE says only that something else held
    # the control core up; then other gaps, waits at links and memory, and work.
    for state in states:
        shown = np.where(state == ISSUE, _LOOK_OF_STATE[ISSUE], shown)
    for state in reversed(states):
        shown = np.where((state == IDLE) | (state == ISSUE), shown, _LOOK_OF_STATE[state])
    for wanted in (LINK, MEMORY):
        for state in states:
            shown = np.where(state == wanted, _LOOK_OF_STATE[wanted], shown)
    for lane, state in reversed(list(zip(ranked, states, strict=True))):
        shown = np.where(state == BUSY, style.CAUSES.index(kind_of(lane.engine)), shown)
    return _Pieces(label, moments, shown)


def _short_name(machine: Machine, pe: int) -> str:
    name = machine.pe_name(pe)
    return name.removeprefix("sip0.") if machine.n_sips == 1 else name


# ---------------------------------------------------------------- windows and merging
def _cut(lane: _Pieces, start: int, end: int) -> _Pieces:
    """Cut a lane to a window, closing it with the window's end, and join neighbours that say the same."""
    first = int(np.searchsorted(lane.begin, start, "right")) - 1
    last = int(np.searchsorted(lane.begin, end, "left"))
    begin, what = lane.begin[first:last].copy(), lane.what[first:last]
    begin[0] = start
    changes = np.concatenate([[True], what[1:] != what[:-1]])
    return _Pieces(lane.label, np.append(begin[changes], end), what[changes])


def _grain(lanes: Sequence[_Pieces], start: int, end: int) -> int:
    """Return the length below which pieces are merged: a least one, or more if there would be too many segments."""
    grain = math.ceil((end - start) * LEAST_SHARE)
    while sum(_count(lane, grain) for lane in lanes) > MOST_SEGMENTS and grain < end - start:
        grain *= 2
    return grain


def _count(lane: _Pieces, grain: int) -> int:
    group = _groups(lane, grain)
    return len(np.unique(group * len(style.CAUSES) + lane.what))


def _groups(lane: _Pieces, grain: int) -> np.ndarray:
    """Number the segment that each piece goes to: short neighbours share one of about a grain's length."""
    length = np.diff(lane.begin)
    group, current, filled = np.zeros(len(length), np.int64), -1, grain
    for i, ps in enumerate(length.tolist()):
        if ps >= grain or filled >= grain:
            current, filled = current + 1, 0
        filled = grain if ps >= grain else filled + ps
        group[i] = current
    return group


def _merged(lane: _Pieces, grain: int) -> GanttLane:
    group = _groups(lane, grain)
    length = np.diff(lane.begin)
    sums = np.zeros((int(group[-1]) + 1, len(style.CAUSES)), np.int64)
    np.add.at(sums, (group, lane.what), length)
    firsts = np.searchsorted(group, np.arange(len(sums)))
    begins = [*lane.begin[firsts].tolist(), int(lane.begin[-1])]
    segments = []
    for i, row in enumerate(sums):
        parts = tuple((style.CAUSES[j], int(row[j])) for j in np.flatnonzero(row).tolist())
        segments.append(Segment(begins[i], begins[i + 1], parts))
    return GanttLane(lane.label, tuple(segments))


# ---------------------------------------------------------------- drawing
@style.settings()
def gantt_figure(data: GanttData, title: str = "") -> Figure:
    """Draw the lanes. What was merged stands as a stack, each part as high as its share of that time."""
    present = [what for what in data.present if what != "idle"]
    columns, step = 6, 0.34 if data.by_engine else 0.19
    figure = style.new_figure(1.25 + step * len(data.lanes) + 0.18 * -(-len(present) // columns))
    axes = figure.subplots()
    shapes: dict[tuple[str, bool], list[Any]] = {}
    for y, lane in enumerate(data.lanes):
        for segment in lane.segments:
            for key, shape in _shapes(y, segment):
                shapes.setdefault(key, []).append(shape)
    for (what, merged), found in sorted(shapes.items()):
        look = style.look_of(what)
        outline = Path.make_compound_path_from_polys(np.array(found, float))  # one shape: files stay small
        axes.add_patch(
            PathPatch(
                outline, facecolor=look.fill, hatch=look.hatch or None, edgecolor=style.INK,
                linewidth=0 if merged else 0.3, antialiased=not merged,
            )
        )  # fmt: skip
    axes.set_xlim(data.start_ps, data.end_ps)
    axes.set_ylim(len(data.lanes) - 0.4, -0.6)
    axes.set_yticks(range(len(data.lanes)), [lane.label for lane in data.lanes])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(style.time_axis())
    axes.grid(axis="x")
    axes.set_xlabel(_note(data))
    axes.set_title(title or f"{data.kernel} on {data.machine}: {data.places}")
    handles = [style.patch(what) for what in present]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=1.8, handleheight=1.1)
    return figure


def _shapes(y: int, segment: Segment) -> Iterable[tuple[tuple[str, bool], Any]]:
    """Yield ((what, whether it is merged), corners) of a segment: its parts from below, leaving idle time blank."""
    whole = segment.end_ps - segment.start_ps
    merged, low = len(segment.parts) > 1, y + 0.4
    for what, ps in segment.parts:
        high = low - 0.8 * ps / whole
        if what != "idle":
            a, b = segment.start_ps, segment.end_ps
            yield (what, merged), [(a, low), (b, low), (b, high), (a, high)]
        low = high


def _note(data: GanttData) -> str:
    ranking = ", ".join(style.look_of(kind).name for kind in data.ranking)
    what = "waits by cause, blank: nothing left to do"
    if not data.by_engine:
        what = f"of engines that work at once the first of {ranking};\nwhile none works, what is waited for"
    lines = [f"simulated time; {what}"]
    if data.n_merged:
        lines.append(
            f"{data.n_merged:,} stretches shorter than {style.time_text(data.merged_below_ps)} are merged with their "
            "neighbours, and stacked by share of time"
        )
    return "\n".join(lines)
