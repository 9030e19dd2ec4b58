"""What would change it: a trace timed again with one thing made free at a time, beside bounds that nothing can beat.

A what-if is exact: the same commands in the same order, timed by the same rules. With one thing free a run is no
slower, unless requests contend for a memory or a link: those serve whoever comes first, so when one request comes
sooner, one that matters more may come to stand behind it (Graham's anomaly). Then a saving may be negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernbench.machine import Machine
from kernbench.record.stream import Engine, Op
from kernbench.record.trace import Trace
from kernbench.simulate.program import Kind, Program, Wait, build_program, costs_of
from kernbench.simulate.timeline import Timeline

_FAST = 1 << 40
"""Denominator that makes a transfer of any size take 1 ps, the least that a shared thing may take."""
_ENDLESS = 1 << 40
"""Room in queues and channels that never fill."""


@dataclass(frozen=True)
class WhatIf:
    """The run with one thing made free."""

    free: str
    """What is free: a key of :data:`WHAT_IFS`."""
    makespan_ps: int
    saved_ps: int
    """How much sooner the run ends: 0 if that thing does not hold it back, negative if it ends later."""


@dataclass(frozen=True)
class Bound:
    """A time that no schedule of the same commands on this machine can beat."""

    name: str
    """The resource."""
    where: str
    """The PE, memory channel or link that has most to do."""
    ps: int


@dataclass(frozen=True)
class Explanation:
    """What holds a run back."""

    timeline: Timeline
    what_ifs: tuple[WhatIf, ...]
    """Largest saving first."""
    bounds: tuple[Bound, ...]
    """Largest first."""

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {
            "kernel": self.timeline.program.trace.kernel,
            "topology": self.timeline.program.machine.name,
            "makespan_ps": self.timeline.makespan_ps,
            "what_ifs": [vars(w) for w in self.what_ifs],
            "bounds": [vars(b) for b in self.bounds],
        }


def explain(trace: Trace, machine: Machine | None = None) -> Explanation:
    """Time ``trace`` as it is and with one thing made free at a time; find its lower bounds.

    Free means, by name:

    * *links*: any link moves any bytes in 1 ps; *memory bandwidth*: so does any memory channel;
    * *latency*: of memories, links, and so of credits, is 0;
    * *load and store ports*: a PE takes in and gives out bytes as fast as they come, any number outstanding;
    * *matrix*, *vector*: what that engine does takes no time, in composites too;
    * *buffer reuse*: scratch, and bytes of memory, may be overwritten at once;
    * *issue*: commands are issued as soon as those before them, into queues that never fill (after a receive or
      ``load_scalar`` issue still waits);
    * *sends*: messages and their credits take no time, and channels never fill.

    Savings do not add up: two things may each hide behind the other.

    Parameters
    ----------
    trace
        From :func:`~kernbench.record`.
    machine
        Default: the machine that the trace was recorded for.

    Raises
    ------
    KernbenchError
        As :func:`~kernbench.simulate` does.
    """
    from kernbench.simulate.compiled import run_compiled

    program = build_program(trace, machine or trace.machine)
    timeline = run_compiled(program)
    makespan = timeline.makespan_ps
    tried = []
    for name, change in WHAT_IFS.items():
        ends = run_compiled(change(program)).makespan_ps
        tried.append(WhatIf(name, ends, makespan - ends))
    tried.sort(key=lambda w: -w.saved_ps)
    return Explanation(timeline, tuple(tried), tuple(sorted(lower_bounds(timeline), key=lambda b: -b.ps)))


# ---------------------------------------------------------------- one thing free
def _figures(program: Program, **changes: object) -> Program:
    return replace(program, figures=replace(program.figures, **changes))  # type: ignore[arg-type]


def _fast_links(program: Program) -> Program:
    ones = np.ones_like(program.figures.link_num)
    return _figures(program, link_num=ones, link_den=ones * _FAST)


def _fast_memory(program: Program) -> Program:
    return _figures(program, channel_num=1, channel_den=_FAST)


def _no_latency(program: Program) -> Program:
    figures = program.figures
    none = np.zeros_like(figures.link_latency)
    routes = np.zeros_like(figures.route_latency)
    return _figures(program, link_latency=none, message_latency=none, route_latency=routes, memory_latency_ps=0)


def _no_ports(program: Program) -> Program:
    moves = np.isin(program.kind, (Kind.LOAD, Kind.STORE, Kind.STREAM, Kind.SCALAR))
    return replace(_figures(program, outstanding=0), duration=np.where(moves, 0, program.duration))


def _no_work(program: Program, op: Op) -> Program:
    duration, body, tail = costs_of([c.stream for c in program.trace.classes], program.machine, free=op)
    return replace(program, duration=duration, body=body, tail=tail)


def _without_waits(program: Program, kind: Wait) -> Program:
    keep = program.wait_kind != kind
    before = np.concatenate([[0], np.cumsum(keep)])
    return replace(
        program, wait_start=before[program.wait_start], wait_on=program.wait_on[keep], wait_kind=program.wait_kind[keep]
    )


def _instant_issue(program: Program) -> Program:
    changed = _figures(program, issue_ps=0, queue_depth=_ENDLESS)
    return replace(changed, slot_start=np.zeros_like(program.slot_start), slot_on=np.zeros(0, np.int32))


def _free_messages(program: Program) -> Program:
    sends = np.isin(program.kind, (Kind.SEND, Kind.SEND_SHARED))
    none = np.zeros_like(program.figures.message_latency)
    return replace(
        _figures(program, message_latency=none, depth=_ENDLESS),
        kind=np.where(sends, Kind.SEND, program.kind).astype(np.int8),  # a message of no bytes needs no turn on a link
        nbytes=np.where(sends, 0, program.nbytes),
        duration=np.where(program.kind == Kind.RECV, 0, program.duration),
    )


WHAT_IFS: dict[str, Callable[[Program], Program]] = {
    "links": _fast_links,
    "memory bandwidth": _fast_memory,
    "load and store ports": _no_ports,
    "latency": _no_latency,
    "matrix": lambda program: _no_work(program, Op.DOT),
    "vector": lambda program: _no_work(program, Op.VECTOR),
    "buffer reuse": lambda program: _without_waits(program, Wait.REUSE),
    "issue": _instant_issue,
    "sends": _free_messages,
}
"""What can be made free, by name."""


# ---------------------------------------------------------------- bounds
def lower_bounds(timeline: Timeline) -> list[Bound]:
    """Return, for each kind of resource, the work of the busiest one: it works one thing at a time, so no less will do.

    For the load and store engines this is the time at their ports, by queue. A link is a cut: routes are fixed, so what
    must pass it can go no other way. Resources that have nothing to do are left out.
    """
    program = timeline.program
    machine, network = program.machine, program.machine.network
    queues = {Engine.LOAD: machine.pe.load.queues, Engine.STORE: machine.pe.store.queues}
    found = []
    names = {"matrix": Engine.MATRIX, "vector": Engine.VECTOR, "load ports": Engine.LOAD, "store ports": Engine.STORE}
    for name, engine in names.items():
        ps, pe = _busiest(program, int(engine))
        if ps:
            found.append(Bound(name, machine.pe_name(pe), -(-ps // queues.get(engine, 1))))
    longest = int(np.argmax(np.diff(program.out)))
    issue = (int(program.out[longest + 1] - program.out[longest]) - 1) * program.figures.issue_ps
    found.append(Bound("issue", machine.pe_name(int(program.pe[longest])), issue))
    memory, channel = divmod(int(np.argmax(timeline.memory_busy_ps)), machine.memory.channels)
    where = f"memory of {network.memory_names()[memory]}, channel {channel}"
    found.append(Bound("memory", where, int(timeline.memory_busy_ps.max())))
    levels = {
        "links between SIPs": slice(0, network.n_sip_links),
        "links between CUBEs": slice(network.n_sip_links, network.n_shared),
        "links between PEs": slice(network.n_shared, network.n_links),
    }
    for name, which in levels.items():
        busy = timeline.link_busy_ps[which]
        if len(busy):
            link = which.start + int(np.argmax(busy))
            found.append(Bound(name, network.link_names()[link], int(busy.max())))
    return [bound for bound in found if bound.ps > 0]


def _busiest(program: Program, engine: int) -> tuple[int, int]:
    """Return the least time for which the busiest engine of a kind is occupied, and its PE (-1: no PE uses it)."""
    best, where = 0, -1
    least = np.maximum(program.duration, program.body)
    if engine in (Engine.MATRIX, Engine.VECTOR):
        least = np.where(program.kind == Kind.STREAM, program.body, least)
    for first, cls in zip(program.class_start.tolist(), program.trace.classes, strict=False):
        mine = cls.stream.by_engine.get(engine)
        if mine is not None:
            work = int(least[first + mine].sum())
            if work > best:
                best, where = work, int(cls.pes[0])
    return best, where
