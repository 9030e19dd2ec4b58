"""What would change it: time a trace again with one thing made free at a time, beside lower bounds that nothing can beat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernbench.machine import Machine
from kernbench.record.stream import Engine, Op
from kernbench.record.trace import Trace
from kernbench.simulate.program import Figures, Kind, Program, Wait, build_program
from kernbench.simulate.timeline import Timeline

_FAST = 1 << 40
"""Denominator that makes a transfer of any size take 1 ps, the least that a shared thing may take."""


@dataclass(frozen=True)
class WhatIf:
    """The run with one thing made free."""

    free: str
    """What is free."""
    makespan_ps: int
    saved_ps: int
    """How much sooner the run ends; 0 if that thing does not hold it back."""


@dataclass(frozen=True)
class Bound:
    """A time that no schedule of the same commands on this machine can beat."""

    name: str
    where: str
    """The PE, memory or link that it speaks of."""
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

    Free means: links and memory move any bytes in 1 ps; latencies are 0; matrix or vector commands take no time; a buffer may
    be overwritten at once; commands are issued at once into endless queues; sends and receives take no time and channels never
    fill. Savings do not add up: two things may each hide behind the other.

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


def _no_work(program: Program, op: Op) -> Program:
    ops = np.concatenate([c.stream.op for c in program.trace.classes])
    return replace(program, duration=np.where(ops == op, 0, program.duration))


def _without_waits(program: Program, kind: Wait) -> Program:
    keep = program.wait_kind != kind
    before = np.concatenate([[0], np.cumsum(keep)])
    return replace(
        program, wait_start=before[program.wait_start], wait_on=program.wait_on[keep], wait_kind=program.wait_kind[keep]
    )


def _fast_links(program: Program, which: slice | np.ndarray = np.s_[:]) -> Program:
    num, den = program.figures.link_num.copy(), program.figures.link_den.copy()
    num[which], den[which] = 1, _FAST
    return _figures(program, link_num=num, link_den=den)


def _no_latency(program: Program) -> Program:
    f: Figures = program.figures
    return _figures(
        program, link_latency=np.zeros_like(f.link_latency), route_latency=np.zeros_like(f.route_latency), memory_latency_ps=0
    )


def _no_ports(program: Program) -> Program:
    moves = np.isin(program.kind, (Kind.LOAD, Kind.STORE, Kind.STREAM, Kind.SCALAR))
    return replace(_figures(program, outstanding=0), duration=np.where(moves, 0, program.duration))


def _instant_issue(program: Program) -> Program:
    none = np.zeros(0, np.int32)
    return replace(
        _figures(program, issue_ps=0), slot_start=np.zeros_like(program.slot_start), slot_on=none
    )


def _free_sends(program: Program) -> Program:
    links = program.machine.network.link_of
    faster = _fast_links(program, np.unique(links[links >= 0]))
    latency = np.zeros_like(program.figures.link_latency)
    receives = program.kind == Kind.RECV
    return replace(
        _figures(faster, link_latency=latency, depth=1 << 40), duration=np.where(receives, 0, program.duration)
    )


WHAT_IFS: dict[str, Callable[[Program], Program]] = {
    "links": _fast_links,
    "memory bandwidth": lambda p: _figures(p, channel_num=1, channel_den=_FAST),
    "load and store ports": _no_ports,
    "latency": _no_latency,
    "matrix": lambda p: _no_work(p, Op.DOT),
    "vector": lambda p: _no_work(p, Op.VECTOR),
    "buffer reuse": lambda p: _without_waits(p, Wait.REUSE),
    "issue": _instant_issue,
    "sends": _free_sends,
}
"""What can be made free, by name."""


# ---------------------------------------------------------------- bounds
def lower_bounds(timeline: Timeline) -> list[Bound]:
    """Return, for each kind of resource, the work of the busiest one: it works one thing at a time, so no less will do."""
    program = timeline.program
    machine = program.machine
    found = []
    for name, engine in (("matrix", Engine.MATRIX), ("vector", Engine.VECTOR)):
        ps, pe = _busiest(timeline, int(engine))
        if pe >= 0:
            found.append(Bound(name, machine.pe_name(pe), ps))
    channels = machine.memory.channels
    channel = int(np.argmax(timeline.memory_busy_ps))
    if timeline.memory_busy_ps[channel]:
        busy = int(timeline.memory_busy_ps[channel])
        found.append(Bound("memory", f"memory {channel // channels}, channel {channel % channels}", busy))
    network = machine.network
    levels = {
        "links between SIPs": slice(0, network.n_sip_links),
        "links between CUBEs": slice(network.n_sip_links, network.n_shared),
        "links between PEs": slice(network.n_shared, network.n_links),
    }
    for name, which in levels.items():
        busy_ps = timeline.link_busy_ps[which]
        if len(busy_ps) and busy_ps.max():
            link = which.start + int(np.argmax(busy_ps))
            found.append(Bound(name, network.link_names()[link], int(busy_ps.max())))
    return found


def _busiest(timeline: Timeline, engine: int) -> tuple[int, int]:
    """Return the work of the busiest engine of a kind and its PE (-1: no PE uses it)."""
    best, where = 0, -1
    for i, cls in enumerate(timeline.program.trace.classes):
        mine = cls.stream.by_engine.get(engine)
        if mine is not None:
            first = int(timeline.program.class_start[i])
            is_fixed = timeline.program.kind[first + mine] == Kind.WORK
            work = int(timeline.program.duration[first + mine[is_fixed]].sum())
            if work > best:
                best, where = work, int(cls.pes[0])
    return best, where
