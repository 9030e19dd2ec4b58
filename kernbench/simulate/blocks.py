"""The definition of time: the machine as SimPy processes, one for each block of a block diagram.

::

              ControlCore: issues in order, one command every `issue` ps
                   │
       ┌───────┬───┴────┬────────┬─────────┬──────────┐      bounded queues
     LOAD    STORE   MATRIX   VECTOR   SEND x 12  RECV x 12   Engine: starts in order, `lanes` at a time
       │       │                           │          │
       └── Fabric: links, memories ──┐     └─ Channel ┘       kernbench.simulate.fabric
                                     └── Link ──┘

Each command is a process too: it waits for its turn on its engines and for what it depends on, starts, travels or
works, and ends. :mod:`kernbench.simulate.program` states the same rules in words; :mod:`kernbench.simulate.core`
computes the same picoseconds some hundred times faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import simpy
from simpy.events import Event, ProcessGenerator

from kernbench.machine.network import OPPOSITE
from kernbench.record.stream import N_DIRECTIONS, Op
from kernbench.record.stream import Engine as EngineId
from kernbench.simulate.fabric import Channel, Fabric, Parcel
from kernbench.simulate.program import Program
from kernbench.simulate.timeline import Hops, Timeline, stuck_error

Progress = Callable[[int, int], None]


def run_simpy(program: Program, progress: Progress | None = None) -> Timeline:
    """Time ``program`` with the SimPy model.

    Parameters
    ----------
    program
        From :func:`~kernbench.simulate.program.build_program`.
    progress
        Called now and then with (commands that have ended, all commands).

    Raises
    ------
    DeadlockError
        If PEs wait for one another.
    """
    env = simpy.Environment(initial_time=0)
    log = Log(env, program, progress)
    fabric = Fabric(env, program.machine)
    channels = _channels(env, program, fabric)
    pes = [PE(env, program, rank, fabric, channels, log) for rank in range(program.n_ranks)]
    env.run()  # until nothing can happen any more
    if not all(pe.is_done for pe in pes):
        raise stuck_error(program, np.array([pe.next for pe in pes]), np.array([pe.receiving for pe in pes]))
    memory_busy = [channel.busy_ps for memory in fabric.memories for channel in memory.channels]
    return Timeline(
        program, "simpy", log.issue, log.start, log.end, log.served_at,
        np.array(memory_busy, np.int64),
        np.array([link.busy_ps for link in fabric.links], np.int64),
        np.array([link.nbytes for link in fabric.links], np.int64),
        log.hops(),
    )  # fmt: skip


def _channels(env: simpy.Environment, program: Program, fabric: Fabric) -> dict[tuple[int, int], Channel]:
    """Return the channels by (sender, direction)."""
    depth, link_of = program.machine.channel.depth, program.machine.network.link_of
    senders, directions = np.nonzero(link_of >= 0)
    return {
        (pe, d): Channel(env, fabric.links[link_of[pe, d]], depth)
        for pe, d in zip(senders.tolist(), directions.tolist(), strict=True)
    }


class Log:
    """Writes down when commands are issued, start and end."""

    def __init__(self, env: simpy.Environment, program: Program, progress: Progress | None) -> None:
        total = program.n_commands
        self.issue, self.start, self.end, self.served_at = (np.full(total, -1, np.int64) for _ in range(4))
        self._hops: list[tuple[int, int, int]] = []
        self._env = env
        self._progress = progress
        self._done, self._total, self._step = 0, total, max(total // 100, 1)

    def issued(self, command: Command) -> None:
        """Note that a command is issued now."""
        self.issue[command.place] = self._env.now

    def started(self, command: Command) -> None:
        """Note that a command starts now."""
        self.start[command.place] = self._env.now
        command.started.succeed()

    def served(self, place: int) -> None:
        """Note that a memory or a link begins now with what a command moves."""
        self.served_at[place] = self._env.now

    def carried(self, place: int, link: int) -> None:
        """Note that a link begins now with what a load or store moves."""
        self._hops.append((place, link, int(self._env.now)))

    def hops(self) -> Hops:
        """Return what links began with."""
        place, link, begin = np.array(self._hops, np.int64).reshape(-1, 3).T
        return Hops(place, link.astype(np.int32), begin)

    def ended(self, command: Command) -> None:
        """Note that a command ends now."""
        self.end[command.place] = self._env.now
        command.ended.succeed()
        self._done += 1
        if self._progress is not None and (self._done % self._step == 0 or self._done == self._total):
            self._progress(self._done, self._total)


@dataclass(eq=False, slots=True)
class Command:
    """One command of one PE on its way through the machine."""

    op: Op
    direction: int
    """Of a SEND or RECV, else -1."""
    parcel: Parcel
    """What it moves, if it does."""
    address: int
    """Where it touches memory; -1: nowhere."""
    duration_ps: int
    """At its engine, or at the port for what it moves."""
    body_ps: int
    """Of a streaming composite: from start to end at least."""
    tail_ps: int
    """Of a streaming composite: from the last byte to the end."""
    place: int
    """In the timeline's columns."""
    needs: list[Event]
    """Ends of the commands that it depends on."""
    started: Event
    ended: Event


class Engine:
    """Starts the commands in its queue in order. Up to ``lanes`` are at work at a time, each lane taking its turn."""

    def __init__(self, env: simpy.Environment, queue_depth: int, lanes: int) -> None:
        self.places = simpy.Container(env, capacity=queue_depth, init=queue_depth)
        """Free places of the queue. A command holds one from issue to start."""
        self._env = env
        self._queue = simpy.Store(env)
        env.process(self._work(lanes))

    def enter(self, command: Command) -> Event:
        """Queue a command that has a place; return the event when it is first in the queue and a lane is free."""
        turn = self._env.event()
        self._queue.put((command, turn))
        return turn

    def _work(self, lanes: int) -> ProcessGenerator:
        """Process: give each command its turn."""
        at_work: deque[Event] = deque(maxlen=lanes)
        while True:
            command, turn = yield self._queue.get()
            if len(at_work) == lanes:
                yield at_work[0]  # the end of the command `lanes` before: the lane whose turn it is
            turn.succeed()
            yield command.started
            at_work.append(command.ended)
            yield self.places.put(1)


class PE:
    """A processing element: a control core, its engines, and its ends of the channels."""

    def __init__(
        self,
        env: simpy.Environment,
        program: Program,
        rank: int,
        fabric: Fabric,
        channels: dict[tuple[int, int], Channel],
        log: Log,
    ) -> None:
        self._env, self._program, self._fabric, self._log = env, program, fabric, log
        self._rank, self._class = rank, int(program.class_of[rank])
        self.number = int(program.pe[rank])
        """Global index."""
        self._spec = program.machine.pe
        self._stream = program.trace.classes[self._class].stream
        self._ends: list[Event] = []
        """Ends of the commands issued so far."""
        self._engines_of = self._make_engines()
        peer = program.machine.network.peer[self.number].tolist()
        self._out = {d: channels[self.number, d] for d in range(N_DIRECTIONS) if peer[d] >= 0}
        self._in = {d: channels[peer[d], int(OPPOSITE[d])] for d in range(N_DIRECTIONS) if peer[d] >= 0}
        self.next = 0
        """Command that the control core issues next."""
        self.receiving = -1
        """Receive that the control core waits for, -1 if none."""
        env.process(self._control_core())

    @property
    def is_done(self) -> bool:
        """Whether all commands are issued and all receives done. What else is on its way always ends."""
        return self.next == len(self._stream) and self.receiving < 0

    def _make_engines(self) -> list[list[Engine]]:
        """Return the engines that each command occupies: one, or for a composite all that it streams through."""
        lanes = {int(EngineId.LOAD): self._spec.load.queues, int(EngineId.STORE): self._spec.store.queues}
        engines_of: list[list[Engine]] = [[] for _ in range(len(self._stream))]
        for number, commands in self._stream.by_engine.items():
            engine = Engine(self._env, self._program.machine.queue_depth, lanes.get(number, 1))
            for index in commands.tolist():
                engines_of[index].append(engine)
        return engines_of

    # ------------------------------------------------------------------ issue
    def _control_core(self) -> ProcessGenerator:
        """Process: issue all commands."""
        for index, engines in enumerate(self._engines_of):
            command = self._make(index)
            for engine in engines:
                yield engine.places.get(1)
            if command.op == Op.SEND:
                yield self._out[command.direction].credits.get(1)
            self._log.issued(command)
            self._env.process(self._execute(command, [engine.enter(command) for engine in engines]))
            self.next = index + 1
            self.receiving = index if command.op == Op.RECV else -1
            yield self._env.timeout(self._spec.issue or 0)
            if command.op == Op.RECV:
                yield command.started
                self.receiving = -1
            elif command.op == Op.SCALAR:
                yield command.ended

    def _make(self, index: int) -> Command:
        """Gather what the trace and the program say of a command."""
        stream, program = self._stream, self._program
        row = int(program.class_start[self._class]) + index
        column, address = int(stream.column[index]), -1
        if column >= 0:
            lanes = program.trace.classes[self._class].columns[column]
            address = int(lanes[program.lane[self._rank]] + stream.offset[index])
        needs = stream.dep_command[stream.dep_start[index] : stream.dep_start[index + 1]]
        place = int(program.out[self._rank]) + index
        served, carried = partial(self._log.served, place), partial(self._log.carried, place)
        command = Command(
            op=Op(stream.op[index]),
            direction=int(stream.direction[index]),
            parcel=Parcel((self.number << 32) + index, int(stream.nbytes[index]), served, carried),
            address=address,
            duration_ps=int(program.duration[row]),
            body_ps=int(program.body[row]),
            tail_ps=int(program.tail[row]),
            place=place,
            needs=[self._ends[earlier] for earlier in needs.tolist()],
            started=self._env.event(),
            ended=self._env.event(),
        )
        self._ends.append(command.ended)
        return command

    # ------------------------------------------------------------------ start and end
    def _execute(self, command: Command, turns: list[Event]) -> ProcessGenerator:
        """Process: a command from issue to end."""
        yield self._env.all_of(turns + command.needs)
        if command.op == Op.RECV:
            yield self._in[command.direction].inbox.get()
        self._log.started(command)
        if command.op == Op.SEND:
            yield from self._out[command.direction].send(command.parcel)
        elif command.op == Op.RECV:
            yield from self._receive(command)
        elif command.op == Op.STORE:
            yield from self._store(command)
        elif command.op in (Op.LOAD, Op.SCALAR):
            yield from self._load(command)
        elif command.op == Op.COMPOSITE and command.address >= 0:
            yield from self._stream_composite(command)
        else:
            yield self._env.timeout(command.duration_ps)
        self._log.ended(command)

    def _receive(self, command: Command) -> ProcessGenerator:
        """Move a message into scratch; its place in the channel is free from the beginning."""
        self._env.process(self._in[command.direction].give_credit())
        yield self._env.timeout(command.duration_ps)

    def _store(self, command: Command) -> ProcessGenerator:
        """Move scratch to memory."""
        route = self._fabric.route(self.number, command.address)
        yield from self._fabric.write(command.parcel, command.address, route, command.duration_ps)

    def _load(self, command: Command) -> ProcessGenerator:
        """Move memory to scratch, with at most ``outstanding`` bytes on their way at a time."""
        route = self._fabric.route(self.number, command.address)
        port_ps, outstanding = command.duration_ps, self._spec.load.outstanding
        if outstanding is not None:
            trip = route.round_trip_ps + self._program.machine.memory.latency
            port_ps = max(port_ps, -(-command.parcel.nbytes * trip // outstanding))
        yield from self._fabric.fetch(command.parcel, command.address, route, port_ps)

    def _stream_composite(self, command: Command) -> ProcessGenerator:
        """Load an operand and work on each chunk as it comes: the last one takes its time after the data's end."""
        work = self._env.timeout(command.body_ps)
        yield from self._load(command)
        yield self._env.timeout(command.tail_ps)
        yield work
