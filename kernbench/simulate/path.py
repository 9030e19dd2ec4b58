"""The critical path: from the end of the last command back to the first picosecond, every picosecond accounted for.

At each moment one thing holds the run back: an engine, a memory or a link works, bytes travel, the control core issues.
Following back from the last end what each start, each issue, each memory channel and each link waited for gives one
unbroken chain, so its parts add up to the makespan exactly. A request that waits while a memory or a link serves others
is not followed to its start: the path goes on with the request that was served before it. So no part of it is idle.

Where two things ended at the same picosecond, there are two critical paths. The one that is followed is that of a
value before a message, a buffer, the engine and the issue, and of several values, or buffers, that of the latest
command. What decides when a load or store ends is told in :mod:`kernbench.simulate.journey`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernbench.machine.network import DIRECTIONS
from kernbench.simulate.arrays import arrays_of
from kernbench.simulate.plain import runnable
from kernbench.simulate.servers import services_of
from kernbench.simulate.timeline import Timeline


class Cause(IntEnum):
    """What a part of the critical path is spent on."""

    MATRIX = 0
    """The matrix engine works, or a composite does."""
    VECTOR = 1
    """The vector engine works."""
    MEMORY = 2
    """A memory channel moves bytes: those of the load or store that the run waits for, or of one that came before."""
    PORT = 3
    """The PE's load or store port moves the bytes (or as many of them as may be outstanding), slower than the rest."""
    LINK = 4
    """A link moves bytes, of a message, load or store, that the run waits for, or of one that came before."""
    LATENCY = 5
    """A request or bytes travel: latency of memory and links."""
    RECEIVE = 6
    """A received message is moved into scratch."""
    ISSUE = 7
    """The control core issues commands."""
    CREDIT = 8
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
    MEMORY = 7
    """A memory channel served another request first."""
    LINK = 8
    """A link served others first."""


class Stretch(NamedTuple):
    """Segments that follow one another with the same cause, PE and source line."""

    start_ps: int
    end_ps: int
    pe: int
    cause: str
    line: int
    where: str
    """The PE, or the memory or link, by name."""


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
    place: np.ndarray
    """int32: where the time goes: memories from 0 on, then links; -1: in the PE."""
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
        """The path in the order of time, with segments of the same cause, PE, source line and place joined."""
        found: list[Stretch] = []
        where, names = self._places()
        for start, end, cause, pe, line, at in zip(
            self.start_ps.tolist(), self.end_ps.tolist(), self.cause.tolist(), self.pe.tolist(), self.line.tolist(),
            where.tolist(), strict=True,
        ):  # fmt: skip
            this = Stretch(start, end, pe, Cause(cause).name.lower(), line, names[at])
            if found and found[-1][2:] == this[2:]:
                found[-1] = found[-1]._replace(end_ps=end)
            else:
                found.append(this)
        return found

    def time_by_place(self) -> dict[str, int]:
        """Picoseconds of the makespan by where they go: PEs, memories and links by name, adding up to it exactly.

        The names are as ``sip0.cube0.pe3``, ``memory of sip0.cube3``, ``link sip0.cube0 -> sip0.cube1``. Largest first.
        """
        where, names = self._places()
        return self._sums(where, dict(enumerate(names)))

    def _places(self) -> tuple[np.ndarray, list[str]]:
        """Return where each segment is, as an index into names."""
        machine = self.timeline.program.machine
        network = machine.network
        pes, of_pe = np.unique(self.pe, return_inverse=True)
        names = [machine.pe_name(int(pe)) for pe in pes]
        names += [f"memory of {name}" for name in network.memory_names()]
        names += [f"link {name}" for name in network.link_names()]
        return np.where(self.place < 0, of_pe, self.place + len(pes)), names

    def time_by_part(self) -> dict[str, int]:
        """As :meth:`time_by_place`, all PEs as one part of the machine, and the links of each direction as one.

        The names are ``PEs``, ``memories``, ``intra_W links``, ``E links`` and the like; ``other links`` are those
        that no channel uses.
        """
        network = self.timeline.program.machine.network
        parts = ("PEs", "memories", *(f"{name} links" for name in DIRECTIONS), "other links")
        direction = np.full(network.n_links, len(DIRECTIONS))
        senders, directions = np.nonzero(network.link_of >= 0)
        direction[network.link_of[senders, directions]] = directions
        part = np.concatenate([np.ones(network.n_memories, np.int64), direction + 2, [0]])  # the last is for place -1
        return self._sums(part[self.place], dict(enumerate(parts)))

    def _sums(self, keys: np.ndarray, names: dict[int, str]) -> dict[str, int]:
        total = np.zeros(len(names), np.int64)
        np.add.at(total, keys, self.end_ps - self.start_ps)
        found = {names[i]: int(t) for i, t in enumerate(total) if t}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def critical_path(timeline: Timeline, pe: int | None = None) -> CriticalPath:
    """Follow the critical path back from the last command of the run, or of one PE; it is empty if the PE has none.

    Raises
    ------
    KeyError
        If the PE takes no part.
    """
    from kernbench.simulate import walk as compiled

    program = timeline.program
    walk: Callable[..., int] = runnable(compiled.walk, program.n_commands)
    rank, command = _last(timeline, pe)
    arrays = arrays_of(timeline)
    services = services_of(timeline, arrays)
    room = 1 << 12
    while True:
        segments = np.empty((room, 6), np.int64)
        edges = np.zeros(len(Edge), np.int64)
        n = 0 if command < 0 else walk(*arrays, *services, rank, command, segments, edges)
        if n <= room:
            break
        room = n
    found = segments[:n][np.argsort(segments[:n, 0], kind="stable")]
    start, end, cause, place, ranks, commands = found.T.copy()
    return CriticalPath(
        timeline, start, end, cause.astype(np.int8), program.pe[ranks], commands, place.astype(np.int32),
        {e.name.lower(): int(edges[e]) for e in Edge if edges[e]},
    )  # fmt: skip


def _last(timeline: Timeline, pe: int | None) -> tuple[int, int]:
    """Rank and index of the command that ends last; the first PE and command of several."""
    program = timeline.program
    if pe is None:
        at = int(np.argmax(timeline.end_ps))
        rank = int(np.searchsorted(program.out, at, side="right")) - 1
        return rank, at - int(program.out[rank])
    _, _, end = timeline.of_pe(pe)
    return int(program.rank[pe]), int(np.argmax(end)) if len(end) else -1
