"""Counters over time, exact to the picosecond: scratch in use, messages in flight, requests open at a memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernbench.machine.network import DIRECTIONS
from kernbench.placement import ADDRESS_BITS
from kernbench.record.stream import Engine
from kernbench.record.trace import PEClass, Ref
from kernbench.simulate.program import Kind, Program
from kernbench.simulate.timeline import Timeline
from kernbench.simulate.waits import commands_of, moments_of, partner_places

_IN_MEMORY = (Kind.LOAD, Kind.STORE, Kind.STREAM, Kind.SCALAR)


class Counter(NamedTuple):
    """A number that changes over time. It is 0 before the first change, never negative, and ends at 0."""

    name: str
    is_bytes: bool
    """Whether it counts bytes."""
    times: np.ndarray
    """int64: ps of each change, ascending."""
    values: np.ndarray
    """int64: the number from then on."""


class PeCounters:
    """The counters of single PEs."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._tile_users: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def of(self, rank: int) -> list[Counter]:
        """Return the counters of a PE, given by its rank in the timeline's program."""
        return [self.scratch(rank), *self.channels(rank)]

    def scratch(self, rank: int) -> Counter:
        """Bytes of scratch that hold a live tile.

        A tile is live from the first start to the last end of the commands that read or write it. Tiles that follow
        each other in the same bytes are never live at once, since a command waits for the last user of the bytes that
        it takes. So the counter never passes the scratch peak of the recording, which also counts tiles before and
        after their use, and rounds them up.
        """
        cls = int(self._timeline.program.class_of[rank])
        if cls not in self._tile_users:
            self._tile_users[cls] = _tile_users(self._timeline.program.trace.classes[cls])
        starts, commands, nbytes = self._tile_users[cls]
        begin = end = np.zeros(0, np.int64)
        if len(starts):
            times = moments_of(self._timeline, np.array([rank]))
            begin = np.minimum.reduceat(times.start[0][commands], starts)
            end = np.maximum.reduceat(times.end[0][commands], starts)
        return _counter("scratch", True, begin, end, nbytes)

    def channels(self, rank: int) -> list[Counter]:
        """Messages in flight in each channel that the PE sends into.

        A message is in flight from the start of its SEND to the start of its RECV, when the receiver takes it.
        """
        timeline, ranks, found = self._timeline, np.array([rank]), []
        stream = timeline.program.trace.classes[timeline.program.class_of[rank]].stream
        for direction, name in enumerate(DIRECTIONS):
            sends = stream.by_engine.get(int(Engine.SEND) + direction)
            if sends is not None:
                sent = moments_of(timeline, ranks).start[0][sends]
                taken = timeline.start_ps[partner_places(timeline.program, ranks, sends)[0]]
                found.append(_counter(f"messages to {name}", False, sent, taken, np.ones(len(sends), np.int64)))
        return found


def memory_counters(timeline: Timeline, memories: set[int]) -> dict[int, Counter]:
    """Requests open at each of these memories, of all PEs: loads, stores and streaming composites from start to end."""
    program = timeline.program
    places: dict[int, list[np.ndarray]] = {memory: [] for memory in sorted(memories)}
    for cls in range(len(program.trace.classes)):
        ranks = np.flatnonzero(program.class_of == cls)
        commands, addresses = requests_of(program, ranks)
        homes, where = addresses >> ADDRESS_BITS, program.out[ranks][:, None] + commands
        for memory in np.unique(homes).tolist():
            if memory in places:
                places[memory].append(where[homes == memory])
    return {m: _memory_counter(timeline, m, np.concatenate(found)) for m, found in places.items() if found}


def requests_of(program: Program, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the commands that touch memory, of PEs of one class, and their addresses, int64[PE, command]."""
    here = commands_of(program, ranks)
    commands = np.flatnonzero(np.isin(program.kind[here], _IN_MEMORY))
    cls = program.trace.classes[program.class_of[ranks[0]]]
    if not len(commands):
        return commands, np.zeros((len(ranks), 0), np.int64)
    columns = np.stack(cls.columns)[:, program.lane[ranks]]
    at = here.start + commands
    return commands, columns[program.column[at]].T + program.offset[at]


def _memory_counter(timeline: Timeline, memory: int, places: np.ndarray) -> Counter:
    name = f"requests at {timeline.program.machine.network.memory_names()[memory]}"
    return _counter(name, False, timeline.start_ps[places], timeline.end_ps[places], np.ones(len(places), np.int64))


def _tile_users(cls: PEClass) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the commands that use each tile: where each tile's begin, the commands, and the tiles' bytes."""
    pairs: set[tuple[int, int]] = set()
    for i, command in enumerate(cls.commands):
        pairs.update((tile, i) for tile in command.dst)
        pairs.update((source.tile, i) for source in command.srcs if isinstance(source, Ref))
    tiles, commands = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
    used, starts = np.unique(tiles, return_index=True)
    return starts, commands, np.array([cls.tiles[i].nbytes for i in used.tolist()], np.int64)


def _counter(name: str, is_bytes: bool, begin: np.ndarray, end: np.ndarray, amount: np.ndarray) -> Counter:
    """Count amounts that are there from ``begin`` to ``end``."""
    times, which = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, which, np.concatenate([amount, -amount]))
    return Counter(name, is_bytes, times[change != 0], np.cumsum(change[change != 0]))
