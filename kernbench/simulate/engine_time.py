"""What each engine of each PE does with its time: works, waits (and for what), or has nothing left to do.

An engine is *busy* while at least one of its commands is at work. Of that, time in which all of its commands at work
wait at memory or links counts as waiting for *memory* (if one of them waits there) or *link* instead.

Before each command that finds the engine with nothing at work there is a gap, which is told by the waits of that
command (:mod:`kernbench.simulate.waits`): the last part, from its issue on, goes to what its start waited for; the part
before, from when the control core was ready for it, to what its issue waited for; and what is left to *issue*: the
control core had not come to it. Behind the last command the engine is *idle*. So it all adds up to the makespan, for
every engine.

A load or store engine with several queues is one engine here: it is busy while any queue is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.machine.network import DIRECTIONS
from kernbench.record.stream import Engine
from kernbench.simulate.arrays import arrays_of
from kernbench.simulate.plain import runnable
from kernbench.simulate.timeline import Timeline
from kernbench.simulate.waits import Held

COLUMNS = ("busy", *(h.name.lower() for h in Held), "idle")
"""What the time of an engine goes to."""
_AT_ONCE = 1 << 18
"""Commands to look at together."""


@dataclass(frozen=True, eq=False)
class EngineTime:
    """The time of engines, one row for each engine of each PE that has work."""

    makespan_ps: int
    pe: np.ndarray
    """int64[row]: global index of the PE."""
    engine: np.ndarray
    """int64[row]: an :class:`~kernbench.record.stream.Engine`; directions are counted from SEND and RECV on."""
    ps: np.ndarray
    """int64[row, column]: time by :data:`COLUMNS`. Each row adds up to the makespan."""

    @cached_property
    def kind(self) -> np.ndarray:
        """int64[row]: the engine, without its direction."""
        recv, send = int(Engine.RECV), int(Engine.SEND)
        return np.select([self.engine >= recv, self.engine >= send], [recv, send], self.engine)

    def of_pe(self, pe: int) -> dict[str, dict[str, int]]:
        """Return the time of each engine of a PE, as ``{"matrix": {"busy": 120, ...}, "send E": ...}``."""
        rows = np.flatnonzero(self.pe == pe)
        return {engine_name(int(self.engine[row])): _named(self.ps[row]) for row in rows}

    def shares(self) -> dict[str, dict[str, float]]:
        """Return for each kind of engine the share of each column, averaged over the engines that have work.

        The shares of a kind add up to 1 but for rounding. Columns that are 0 are left out.
        """
        found = {}
        for kind in (Engine.LOAD, Engine.STORE, Engine.MATRIX, Engine.VECTOR, Engine.SEND, Engine.RECV):
            mine = self.kind == kind
            if mine.any() and self.makespan_ps:
                whole = int(mine.sum()) * self.makespan_ps
                sums = self.ps[mine].sum(axis=0)
                found[kind.name.lower()] = {name: ps / whole for name, ps in _named(sums).items() if ps}
        return found


def engine_name(engine: int) -> str:
    """Return the name of an engine, as ``load`` or ``send intra_E``."""
    for verb in (Engine.RECV, Engine.SEND):
        if engine >= verb:
            return f"{verb.name.lower()} {DIRECTIONS[engine - verb]}"
    return Engine(engine).name.lower()


def engine_time(timeline: Timeline) -> EngineTime:
    """Find what each engine of each PE does with its time."""
    from kernbench.simulate import held, usage

    program, makespan = timeline.program, timeline.makespan_ps
    held_back: Callable[..., int] = runnable(held.held_back, program.n_commands)
    use: Callable[..., None] = runnable(usage.use_of_engines, program.n_commands)
    lists = _Lists(timeline)
    arrays = arrays_of(timeline)
    rows = np.concatenate([[0], np.cumsum(np.diff(lists.class_start)[program.class_of])])
    ps = np.zeros((int(rows[-1]), len(COLUMNS)), np.int64)
    for ranks in _batches(program.out):
        n = int(program.out[ranks[-1] + 1] - program.out[ranks[0]])
        waits, why = np.empty((n, 4), np.int64), np.empty((n, 2), np.int8)
        on, cause = np.empty(n, np.int32), np.empty(n, np.int8)
        spans = np.empty((n, 4), np.int64)
        n_spans = held_back(*arrays, ranks, waits, why, on, cause, spans)
        if n_spans > n:
            spans = np.empty((n_spans, 4), np.int64)
            held_back(*arrays, ranks, waits, why, on, cause, spans)
        use(
            timeline.start_ps, timeline.end_ps, program.out, program.class_of, ranks, *lists.arrays, rows[ranks],
            waits, why, spans[:n_spans], makespan, ps,
        )  # fmt: skip
    per_rank = [lists.engine[lists.class_start[c] : lists.class_start[c + 1]] for c in program.class_of.tolist()]
    return EngineTime(
        makespan, np.repeat(program.pe, np.diff(rows)), np.concatenate([np.zeros(0, np.int64), *per_rank]), ps
    )


def _batches(out: np.ndarray) -> list[np.ndarray]:
    """Cut the ranks into groups that follow each other, of not too many commands together."""
    which = out[:-1] // _AT_ONCE
    return [ranks for ranks in np.split(np.arange(len(which)), np.flatnonzero(np.diff(which)) + 1) if len(ranks)]


class _Lists:
    """The commands of each engine of each class, flat."""

    def __init__(self, timeline: Timeline) -> None:
        pe = timeline.program.machine.pe
        queues = {int(Engine.LOAD): pe.load.queues, int(Engine.STORE): pe.store.queues}
        engines = [sorted(c.stream.by_engine.items()) for c in timeline.program.trace.classes]
        every = [item for of_class in engines for item in of_class]
        self.class_start = np.concatenate([[0], np.cumsum([len(e) for e in engines])])
        self.engine = np.array([engine for engine, _ in every], np.int64)
        start = np.concatenate([[0], np.cumsum([len(commands) for _, commands in every], dtype=np.int64)])
        commands = np.concatenate([np.zeros(0, np.int64), *(commands for _, commands in every)])
        lanes = np.array([queues.get(engine, 1) for engine, _ in every], np.int64)
        self.arrays = (self.class_start, start, commands, lanes)


def _named(ps: np.ndarray) -> dict[str, int]:
    return dict(zip(COLUMNS, ps.tolist(), strict=True))
