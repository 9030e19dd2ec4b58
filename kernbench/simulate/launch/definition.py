"""The definition of a launch's time: the machine as SimPy processes, one for each block of a block diagram.

::

      Dispatcher: gives places away, hands out one workgroup every `dispatch` ps
           │
          Pe ─── matrix, vector        the workgroups on it share its engines: one RUN at a time, in order
           │
         port                          Server: one turn at a time, first come, first served
           │
      Level, Level, ...                caches: a Server and the tiles that it has
           │
         Level                         the memory: a Server

Each workgroup is a process, and so is each RUN, LOAD and turn. :mod:`kernbench.simulate.launch.steps` states the same
rules in words; :mod:`kernbench.simulate.launch.core` computes the same picoseconds some hundred times faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count

import numpy as np
import simpy
from simpy.events import Event, Process, ProcessGenerator

from kernbench.simulate.fabric import Arrival
from kernbench.simulate.launch import steps
from kernbench.simulate.launch.checks import check
from kernbench.simulate.launch.steps import CAUSES, ENGINE_WAIT, MATRIX, START, VECTOR, Engines, Kind, Launch, Step
from kernbench.simulate.launch.timeline import LaunchTimeline

_turn_ps = cache(steps.turn_ps)


def run_simpy(launch: Launch) -> LaunchTimeline:
    """Simulate a launch with the SimPy model; raises InputError if it is none."""
    check(launch)
    env = simpy.Environment(initial_time=0)
    log = Log(launch)
    Dispatcher(env, launch, Device(env, launch), log)
    env.run()  # until nothing can happen any more
    return LaunchTimeline(
        launch, "simpy", log.begin, log.end, log.pe, log.spent, log.level_busy, log.level_nbytes, log.engine_busy
    )


class Log:
    """Writes down when workgroups ran, where, and what moved and worked."""

    def __init__(self, launch: Launch) -> None:
        n, levels = len(launch.class_of), len(launch.places.levels)
        self.begin, self.end, self.pe = (np.full(n, -1, np.int64) for _ in range(3))
        self.spent = np.zeros((n, len(CAUSES)), np.int64)
        self.level_busy, self.level_nbytes = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
        self.engine_busy = np.zeros(2, np.int64)


# ------------------------------------------------------------------ the machine
class Server:
    """Something that does one thing at a time, first come, first served: a port, a cache, the memory."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._line = simpy.Resource(env, capacity=1)

    def turn(self, ps: int) -> Process:
        """Queue for a turn of so long; return the event of its end."""
        return self._env.process(self._turn(ps))

    def _turn(self, ps: int) -> ProcessGenerator:
        with self._line.request() as mine:
            yield mine
            yield self._env.timeout(ps)


class Tiles:
    """What a cache holds: whole tiles, the one that was used longest ago first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: dict[int, tuple[int, Event]] = {}
        """Bytes and arrival by tile; a dict keeps the order in which tiles were put in."""

    def arrival(self, tile: int) -> Event | None:
        """Return the event of a tile's arrival, which may be long past; None if it was not asked for, or forgotten."""
        return self._held[tile][1] if tile in self._held else None

    def use(self, tile: int, nbytes: int, arrival: Event) -> None:
        """Note that a tile is used, and begin to hold it if it is not there; forget what there is no room for."""
        self._held[tile] = self._held.pop(tile, (nbytes, arrival))
        while len(self._held) > 1 and sum(nbytes for nbytes, _ in self._held.values()) > self._capacity:
            del self._held[next(iter(self._held))]


@dataclass
class Level:
    """A cache, or the memory, of one CUBE or of all of them."""

    index: int
    spec: steps.Level
    servers: list[Server]
    """One, or of the memory one a channel."""
    tiles: Tiles | None
    """None: the memory, which holds everything."""


class Device:
    """What the workgroups share: the PEs, and the levels behind them."""

    def __init__(self, env: simpy.Environment, launch: Launch) -> None:
        places = launch.places
        self.first_level = launch.first_level % len(places.levels)
        self.dirty = launch.dirty_bytes
        """Bytes that the memory has yet to take back."""
        self.asked: set[int] = set()
        """Tiles that anybody has asked for."""

        def level(index: int, spec: steps.Level) -> Level:
            is_memory = index == len(places.levels) - 1
            servers = [Server(env) for _ in range(spec.channels if is_memory else 1)]
            return Level(index, spec, servers, None if is_memory else Tiles(spec.capacity))

        shared = [None if spec.per_cube else level(i, spec) for i, spec in enumerate(places.levels)]
        self.cubes: list[list[Pe]] = []
        for cube in range(places.cubes):
            seen = [shared[i] or level(i, spec) for i, spec in enumerate(places.levels)]
            first = cube * places.pes_per_cube
            self.cubes.append([Pe(env, first + i, places, seen, self) for i in range(places.pes_per_cube)])


@dataclass
class Token:
    """What a WAIT waits for."""

    ready: Event
    began_ps: int = 0
    """Of a RUN: when it began."""


class Pe:
    """A processing element: engines and a port."""

    def __init__(
        self, env: simpy.Environment, number: int, places: steps.Places, levels: list[Level], device: Device
    ) -> None:
        self._env, self._places, self._levels, self._device = env, places, levels, device
        self.number = number
        self.residents = 0
        """Workgroups that have a place."""
        self._port = Server(env)
        self._engines = {bit: simpy.Resource(env, capacity=1) for bit in (Engines.MATRIX, Engines.VECTOR)}

    # ------------------------------------------------------------------ RUN
    def run(self, step: Step, log: Log) -> Token:
        """Occupy engines."""
        token = Token(self._env.event())
        self._env.process(self._run(step, token, log))
        return token

    def _run(self, step: Step, token: Token, log: Log) -> ProcessGenerator:
        named = [bit for bit in self._engines if step.engines & bit]
        turns = [self._engines[bit].request() for bit in named]
        yield self._env.all_of(turns)
        token.began_ps = int(self._env.now)
        yield self._env.timeout(step.ps)
        for bit, turn in zip(named, turns, strict=True):
            self._engines[bit].release(turn)
            log.engine_busy[0 if bit == Engines.MATRIX else 1] += step.ps
        token.ready.succeed()

    # ------------------------------------------------------------------ LOAD and STORE
    def load(self, nbytes: int, tile: int | None, request: int, log: Log) -> Token:
        """Ask for bytes, which may be a tile: queue at the port and at each level up to the one that answers.

        ``request`` stands for the address of bytes that are no tile.
        """
        turns = [self._port.turn(_turn_ps(nbytes, self._places.port_bandwidth))]
        is_new = tile is None or tile not in self._device.asked
        passed: list[Level] = []
        earlier = None
        for level in self._levels:
            passed.append(level)
            if level.tiles is None:  # what the caches held of an earlier launch has to go first
                back = min(self._device.dirty, nbytes)
                self._device.dirty -= back
                key = request if tile is None else tile
                turns += self._from_memory(level, nbytes, nbytes + back, key, level.spec.bandwidth, log)
            else:
                turns.append(self._serve(level, nbytes, _turn_ps(nbytes, level.spec.bandwidth), log))
            earlier = level.tiles.arrival(tile) if level.tiles and tile is not None else None
            if earlier is not None or (is_new and level.index == self._device.first_level):
                break
        arrival = self._env.process(self._arrive(turns, passed[-1].spec.latency_ps, earlier))
        if tile is not None:
            self._device.asked.add(tile)
            for level in passed:
                if level.tiles is not None:
                    level.tiles.use(tile, nbytes, arrival)
        return Token(arrival)

    def store(self, nbytes: int, request: int, log: Log) -> None:
        """Ask for bytes to be written."""
        self._from_memory(self._levels[-1], nbytes, nbytes, request, self._places.store_bandwidth, log)

    def _serve(self, level: Level, nbytes: int, ps: int, log: Log) -> Process:
        log.level_busy[level.index] += ps
        log.level_nbytes[level.index] += nbytes
        return level.servers[0].turn(ps)

    def _from_memory(self, level: Level, nbytes: int, moved: int, key: int, bandwidth: int, log: Log) -> list[Process]:
        """Queue for ``moved`` bytes at the channels of the memory, piece by piece."""
        pieces = steps.pieces_of(level.spec, nbytes)
        ps = steps.piece_ps(level.spec, moved, pieces, bandwidth)
        log.level_busy[level.index] += ps * pieces
        log.level_nbytes[level.index] += nbytes
        channels = [steps.channel_of(key, piece, level.spec.channels) for piece in range(pieces)]
        return [level.servers[channel].turn(ps) for channel in channels]

    def _arrive(self, turns: list[Process], latency_ps: int, earlier: Event | None) -> ProcessGenerator:
        """Process: from asking until the data are there."""
        yield self._env.all_of(turns)
        yield self._env.timeout(latency_ps)
        if earlier is not None:
            yield earlier


# ------------------------------------------------------------------ the workgroups
class Dispatcher:
    """Gives the places of PEs to workgroups, and hands these out at its pace."""

    def __init__(self, env: simpy.Environment, launch: Launch, device: Device, log: Log) -> None:
        self._env, self._launch, self._device, self._log = env, launch, device, log
        self._placed = simpy.Store(env)
        """Workgroups with a place, first come, first served."""
        n, cubes = len(launch.class_of), launch.places.cubes
        self._waiting = [deque(range(cube, n, cubes)) for cube in range(cubes)]
        for number in range(n):
            if self._waiting[number % cubes] and self._waiting[number % cubes][0] == number:
                self._place_next(number % cubes)
        env.process(self._hand_out())

    def free(self, pe: Pe) -> None:
        """Note that a place is free."""
        pe.residents -= 1
        self._place_next(pe.number // self._launch.places.pes_per_cube)

    def _place_next(self, cube: int) -> None:
        """Give a place to the next workgroup of a CUBE, if there are both."""
        pe = min(self._device.cubes[cube], key=lambda pe: pe.residents)  # the first of several
        if self._waiting[cube] and pe.residents < self._launch.places.slots:
            pe.residents += 1
            self._placed.put((self._waiting[cube].popleft(), pe))

    def _hand_out(self) -> ProcessGenerator:
        """Process: begin one workgroup after the other."""
        while True:
            number, pe = yield self._placed.get()
            self._env.process(self._live(number, pe))
            yield self._env.timeout(self._launch.places.dispatch_ps)

    def _turnstile(self, number: int, delay: int = 0) -> Event:
        """Return the event of a workgroup's turn to act, ``delay`` ps from now.

        They act one after the other when all else of that picosecond has happened, the lowest number first.
        """
        return Arrival(self._env, delay, key=number)

    def _live(self, number: int, pe: Pe) -> ProcessGenerator:
        """Process: one workgroup from being handed out to its end."""
        launch, log, spent = self._launch, self._log, self._log.spent[number]
        log.begin[number], log.pe[number] = self._env.now, pe.number
        yield self._turnstile(number, launch.places.start_ps)
        spent[START] += launch.places.start_ps
        tokens: dict[int, Token] = {}
        requests = count()
        for step, at, nbytes in _steps_in_order(launch.classes[launch.class_of[number]]):
            copy = step.token + at % step.depth
            if step.kind == Kind.LOAD:
                tile = int(launch.base[number, step.stream]) + step.offset + at if step.stream >= 0 else None
                tokens[copy] = pe.load(nbytes, tile, steps.request_key(number, next(requests)), log)
            elif step.kind == Kind.RUN:
                tokens[copy] = pe.run(step, log)
            elif step.kind == Kind.STORE:
                pe.store(nbytes, steps.request_key(number, next(requests)), log)
            elif step.kind == Kind.PAUSE:
                yield self._turnstile(number, step.ps)
                spent[step.cause] += step.ps
            elif copy in tokens:
                since = int(self._env.now)
                yield tokens[copy].ready
                waited = int(self._env.now) - since
                if waited:
                    began = tokens[copy].began_ps if step.cause in (MATRIX, VECTOR) else since
                    held_up = max(began - since, 0)  # what passed before a RUN began was not its own work
                    spent[ENGINE_WAIT] += held_up
                    spent[step.cause] += waited - held_up
                    yield self._turnstile(number)
        log.end[number] = self._env.now
        self.free(pe)


def _steps_in_order(group: steps.Workgroup) -> Iterator[tuple[Step, int, int]]:
    """Yield each step that a workgroup does, the iteration that it works for, and its bytes."""
    bodies = ((step, i + step.ahead) for i in range(group.iterations) for step in group.body)
    body = ((step, at) for step, at in bodies if at < group.iterations)
    before, after = ([(step, step.ahead) for step in part] for part in (group.prologue, group.epilogue))
    for step, at in (*before, *body, *after):
        is_ragged = step.kind == Kind.LOAD and step.last_nbytes >= 0 and at == group.iterations - 1
        yield step, at, step.last_nbytes if is_ragged else step.nbytes
