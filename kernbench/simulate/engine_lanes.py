"""What each engine of a PE does moment by moment: the times whose sums are :mod:`kernbench.simulate.engine_time`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernbench.simulate.arrays import arrays_of
from kernbench.simulate.engine_time import COLUMNS, engine_name
from kernbench.simulate.plain import runnable
from kernbench.simulate.timeline import Timeline
from kernbench.simulate.waits import Held

BUSY, IDLE = COLUMNS.index("busy"), COLUMNS.index("idle")
MEMORY, LINK = COLUMNS.index("memory"), COLUMNS.index("link")
ISSUE = COLUMNS.index("issue")
"""The first of :class:`~kernbench.simulate.waits.Held`; the others follow it in their order."""


@dataclass(frozen=True, eq=False)
class EngineLane:
    """One engine from picosecond 0 to the end of the run. It does one thing from each entry's begin to the next's."""

    name: str
    """As ``load`` or ``send intra_E``."""
    engine: int
    """A :class:`~kernbench.record.stream.Engine`, with its direction."""
    begin_ps: np.ndarray
    """int64, ascending; the first is 0."""
    state: np.ndarray
    """int64: index into :data:`~kernbench.simulate.engine_time.COLUMNS`; neighbours differ."""


def engine_lanes(timeline: Timeline, pe: int) -> list[EngineLane]:
    """Return what the engines of a PE do, one lane for each that has work.

    Parameters
    ----------
    timeline
        The times.
    pe
        Global index of the PE.

    Raises
    ------
    KeyError
        If the PE takes no part.
    """
    _, start, end = timeline.of_pe(pe)
    program = timeline.program
    rank = int(program.rank[pe])
    ps, why, spans = _held_back(timeline, rank)
    lanes = []
    for engine, mine in sorted(program.trace.classes[program.class_of[rank]].stream.by_engine.items()):
        here = spans[np.isin(spans[:, 0], mine)]
        work = _at_work(start[mine], end[mine], here)
        gaps = _gaps(start[mine], end[mine], ps[mine], why[mine])
        last = np.array([[end[mine].max(), IDLE]])
        begin, state = _joined(np.concatenate([work, gaps, last]), timeline.makespan_ps)
        lanes.append(EngineLane(engine_name(engine), engine, begin, state))
    return lanes


def _held_back(timeline: Timeline, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the waits of a PE's commands, what they were for, and the spans of waits at memory and links."""
    from kernbench.simulate import held  # compiled: imported when it is needed

    held_back: Callable[..., int] = runnable(held.held_back, timeline.program.n_commands)
    n = int(np.diff(timeline.program.out)[rank])
    spans = np.empty((n, 4), np.int64)
    while True:
        ps, why = np.empty((n, 4), np.int64), np.empty((n, 2), np.int8)
        on, cause = np.empty(n, np.int32), np.empty(n, np.int8)
        n_spans = held_back(*arrays_of(timeline), np.array([rank]), ps, why, on, cause, spans)
        if n_spans <= len(spans):
            return ps, why, spans[:n_spans]
        spans = np.empty((n_spans, 4), np.int64)


def _at_work(start: np.ndarray, end: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Return (begin, state) while commands are at work: busy, or all of them wait at memory or (else) links."""
    moments = np.unique(np.concatenate([start, end, spans[:, 1], spans[:, 2]]))

    def count(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """How many of these are going on from each moment to the next."""
        return np.searchsorted(np.sort(begins), moments, "right") - np.searchsorted(np.sort(ends), moments, "right")

    at_link = spans[:, 3] == 1
    work = count(start, end)
    memory, link = (count(spans[which, 1], spans[which, 2]) for which in (~at_link, at_link))
    state = np.where(work > memory + link, BUSY, np.where(memory > 0, MEMORY, LINK))
    return np.column_stack([moments, state])[work > 0]


def _gaps(start: np.ndarray, end: np.ndarray, ps: np.ndarray, why: np.ndarray) -> np.ndarray:
    """Return (begin, state) of the gaps before commands: issue, then what the issue and the start waited for."""
    reach = np.concatenate([[0], np.maximum.accumulate(end)[:-1]])
    gap = np.maximum(start - reach, 0)
    by_start = np.minimum(gap, ps[:, 1])
    by_issue = np.minimum(gap - by_start, ps[:, 0])
    parts = (
        (gap - by_start - by_issue, reach, np.full(len(start), Held.ISSUE)),
        (by_issue, start - by_start - by_issue, why[:, 0]),
        (by_start, start - by_start, why[:, 1]),
    )
    return np.concatenate([np.column_stack([at, ISSUE + what])[took > 0] for took, at, what in parts])


def _joined(pieces: np.ndarray, makespan_ps: int) -> tuple[np.ndarray, np.ndarray]:
    """Put pieces that cover the run in order, and join neighbours that say the same."""
    pieces = pieces[pieces[:, 0] < makespan_ps]
    pieces = pieces[np.argsort(pieces[:, 0], kind="stable")]
    changes = np.concatenate([[True], pieces[1:, 1] != pieces[:-1, 1]]) if len(pieces) else np.zeros(0, bool)
    begin, state = pieces[changes].T
    return begin.copy(), state.copy()
