"""The critical path: from the end of the last command back to the first picosecond, every picosecond accounted for.

At each moment one thing holds the run back: a command works, a request waits for a memory channel or a link, bytes
travel, the control core issues. Following from the last end what each start and each issue waited for gives one unbroken
chain, so its parts add up to the makespan exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernbench.machine.network import OPPOSITE
from kernbench.simulate.program import Program
from kernbench.simulate.timeline import Timeline


class Cause(IntEnum):
    """What a part of the critical path is spent on."""

    MATRIX = 0
    """The matrix engine works."""
    VECTOR = 1
    """The vector engine works."""
    MEMORY = 2
    """Memory channels move the bytes of the request on the path."""
    MEMORY_WAIT = 3
    """The request waits while its memory channels serve others."""
    PORT = 4
    """The PE's load or store port moves the bytes, slower than memory and links."""
    LINK = 5
    """A link moves the bytes."""
    LINK_WAIT = 6
    """The message or request waits while a link serves others."""
    LATENCY = 7
    """Bytes travel: latency of memory and links."""
    RECEIVE = 8
    """A received message is moved into scratch."""
    ISSUE = 9
    """The control core issues commands."""
    CREDIT = 10
    """News that a channel has room travels back to the sender."""


class Edge(IntEnum):
    """Why one step of the path waited for the one before it in time."""

    OPERAND = 0
    """A value was needed."""
    REUSE = 1
    """A scratch buffer was still in use."""
    ENGINE = 2
    """The engine was busy."""
    MESSAGE = 3
    """A message had not come."""
    CREDIT = 4
    """A channel was full."""
    QUEUE = 5
    """The queue of an engine was full."""
    ISSUE = 6
    """The control core had not come to the command."""


class Stretch(NamedTuple):
    """Segments that follow one another with the same cause, PE and source line."""

    start_ps: int
    end_ps: int
    pe: int
    cause: str
    line: int


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """Segments of the critical path, from time 0 to the end; arrays have one entry a segment."""

    timeline: Timeline
    start_ps: np.ndarray
    """int64: where the segment begins; it ends where the next begins."""
    end_ps: np.ndarray
    """int64"""
    cause: np.ndarray
    """int8: a :class:`Cause`."""
    pe: np.ndarray
    """int64: global index of the PE whose command it is."""
    command: np.ndarray
    """int64: index of the command in its PE."""
    edges: dict[str, int]
    """How many steps of the path waited for each :class:`Edge`."""

    @cached_property
    def line(self) -> np.ndarray:
        """int64: index into the trace's source lines, one entry a segment."""
        program = self.timeline.program
        lines = np.concatenate([c.stream.line for c in program.trace.classes])
        return lines[program.class_start[program.class_of[program.rank[self.pe]]] + self.command]

    def time_by_cause(self) -> dict[str, int]:
        """Picoseconds of the makespan by cause; they add up to it exactly. Largest first."""
        return self._sums(self.cause, {int(c): c.name.lower() for c in Cause})

    def time_by_line(self) -> dict[str, int]:
        """Picoseconds of the makespan by source line of the kernel; they add up to it exactly. Largest first."""
        lines = self.timeline.program.trace.lines
        return self._sums(self.line, {i: str(line) for i, line in enumerate(lines)})

    def stretches(self) -> list[Stretch]:
        """The path in the order of time, with segments of the same cause, PE and source line joined."""
        found: list[Stretch] = []
        for start, end, cause, pe, line in zip(
            self.start_ps.tolist(), self.end_ps.tolist(), self.cause.tolist(), self.pe.tolist(), self.line.tolist(),
            strict=True,
        ):  # fmt: skip
            name = Cause(cause).name.lower()
            if found and found[-1][2:] == (pe, name, line):
                found[-1] = found[-1]._replace(end_ps=end)
            else:
                found.append(Stretch(start, end, pe, name, line))
        return found

    def _sums(self, keys: np.ndarray, names: dict[int, str]) -> dict[str, int]:
        total = np.zeros(len(names), np.int64)
        np.add.at(total, keys, self.end_ps - self.start_ps)
        found = {names[i]: int(t) for i, t in enumerate(total) if t}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def critical_path(timeline: Timeline, pe: int | None = None) -> CriticalPath:
    """Follow the critical path back from the last command of the run, or of one PE.

    Raises
    ------
    KeyError
        If the PE takes no part.
    """
    from kernbench.simulate import walk as compiled

    walk: Callable[..., int] = compiled.walk
    program = timeline.program
    rank, command = _last(timeline, pe)
    room = 1 << 14
    while True:
        segments = np.zeros((room, 5), np.int64)
        edges = np.zeros(len(Edge), np.int64)
        n = walk(*_arrays(program), timeline.issue_ps, timeline.start_ps, timeline.end_ps, timeline.served_ps,
                 rank, command, segments, edges)  # fmt: skip
        if n <= room:
            break
        room = n
    found = segments[:n][::-1]
    found = found[found[:, 1] > found[:, 0]]
    return CriticalPath(
        timeline, found[:, 0].copy(), found[:, 1].copy(), found[:, 2].astype(np.int8), program.pe[found[:, 3]],
        found[:, 4].copy(), {e.name.lower(): int(edges[e]) for e in Edge if edges[e]},
    )  # fmt: skip


def _last(timeline: Timeline, pe: int | None) -> tuple[int, int]:
    """Rank and index of the command that ends last; the first PE and command of several."""
    program = timeline.program
    if pe is None:
        at = int(np.argmax(timeline.end_ps))
        rank = int(np.searchsorted(program.out, at, side="right")) - 1
        return rank, at - int(program.out[rank])
    _, _, end = timeline.of_pe(pe)
    return int(program.rank[pe]), int(np.argmax(end))


def _arrays(program: Program) -> tuple[object, ...]:
    machine, network, figures = program.machine, program.machine.network, program.figures
    return (
        program.class_start, program.kind, program.duration, program.direction, program.message, program.nbytes,
        program.column, program.offset,
        program.wait_start, program.wait_on, program.wait_kind, program.slot_start, program.slot_on,
        program.sends, program.send_start, program.recvs, program.recv_start,
        program.pe, program.rank, program.class_of, program.lane, program.out, program.lane_values, program.lane_start,
        np.bincount(program.class_of, minlength=len(program.class_start) - 1).astype(np.int64),
        _is_vector(program),
        network.peer, network.link_of, OPPOSITE, figures.link_latency, network.node_of_pe, network.memory_of_node,
        figures.route_latency, machine.cubes_per_sip, machine.memory_scope == "sip", figures.memory_latency_ps,
        figures.outstanding, figures.issue_ps, figures.depth,
    )  # fmt: skip


def _is_vector(program: Program) -> np.ndarray:
    """Whether each command works on the vector engine alone."""
    from kernbench.record.stream import Op

    return np.concatenate([c.stream.op == Op.VECTOR for c in program.trace.classes])
