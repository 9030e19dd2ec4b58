"""Workgroups as steps: what a launch asks of a machine, and the rules of time.

A workgroup is a short program in three parts, a *prologue*, a *body* that is repeated, and an *epilogue*. It is
executed by one control flow, in order; what takes long is started and waited for:

``LOAD``   ask for a tile; its token is ready once the data are there
``RUN``    occupy engines (matrix, vector or both) for a while; its token is ready at the end
``WAIT``   until a token is ready
``PAUSE``  let time pass that occupies nothing: a barrier, a reduction across waves, a pipeline that drains
``STORE``  ask for bytes to be written; nothing waits for it

A token of the body has ``depth`` copies that are used in turn, as buffers are: iteration ``i`` uses copy
``(i + ahead) % depth``, and a step with ``ahead`` is left out where ``i + ahead`` reaches the number of iterations.

The rules of time, in integer picoseconds:

*Dispatch.* Workgroup ``i`` goes to CUBE ``i % cubes``, as the CUBEs are served in turn, and there takes a place of the
PE with the fewest workgroups, the lowest index first. A PE has ``slots`` places. If its CUBE is full a workgroup waits
until another one ends there, and the others of its CUBE wait behind it. Workgroups are handed out in the order in which
they get their places, at first that is the launch order, one every ``dispatch`` ps at the soonest. The first step is
``start`` ps later; the end of the last one frees the place.

*Engines.* A RUN begins when the engines that it names are free, in the order in which RUNs were asked for.

*Loads.* A LOAD takes a turn on the PE's port and a turn on the server of each level that it passes: the caches of its
CUBE and of its SIP in turn, then the memory. The first cache that has the tile (or has already asked for it) answers.
Each turn is first come, first served, and lasts bytes / bandwidth. The data are there one latency of the level that
answered after the last of the turns; a tile that was asked for before is there no sooner than it comes for the other.

*Memory.* The memory cuts what it is asked for into pieces, as equal as can be and at most as many as it has channels.
Each piece takes a turn at a channel of its own: addresses are hashed, so that channels fill unevenly, and a load waits
for its slowest piece.

*Caches.* They hold whole tiles and forget the one that was used longest ago; only a load that passes a cache uses a
tile of it.

*Ties.* At one picosecond workgroups act in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from functools import lru_cache

import numpy as np

from kernbench.errors import InputError
from kernbench.simulate.costs import PS


class Kind(IntEnum):
    """What a step does."""

    LOAD = 0
    RUN = 1
    WAIT = 2
    PAUSE = 3
    STORE = 4


class Engines(IntEnum):
    """Engines that a RUN occupies, as bits."""

    MATRIX = 1
    VECTOR = 2
    BOTH = 3


@dataclass(frozen=True)
class Step:
    """One step of a workgroup."""

    kind: Kind
    token: int = -1
    """LOAD, RUN, WAIT: index of the token's first copy."""
    depth: int = 1
    """Copies of the token."""
    ahead: int = 0
    """In a body: how many iterations ahead of the current one it works."""
    ps: int = 0
    """RUN, PAUSE: how long."""
    engines: int = 0
    """RUN: an :class:`Engines`."""
    nbytes: int = 0
    """LOAD, STORE: how much; of a LOAD with a tile in the last iteration, ``last_nbytes`` instead."""
    last_nbytes: int = -1
    """LOAD: bytes in the last iteration, if another number (a ragged tail)."""
    stream: int = -1
    """LOAD: which of the workgroup's streams of tiles; -1: bytes that nobody shares."""
    offset: int = 0
    """LOAD: the tile is number ``base of the stream + offset + iteration + ahead``."""
    cause: int = 0
    """What the time of a RUN or PAUSE counts as; an index into :data:`CAUSES`."""


CAUSES = ("matrix", "vector", "sync", "load", "engine", "start")
"""What a workgroup's time goes to: work of the matrix and of the vector engine that it waits for, pauses, waiting for
loads, waiting for engines that other workgroups occupy, and start and end."""
MATRIX, VECTOR, SYNC, LOAD_WAIT, ENGINE_WAIT, START = range(6)


@dataclass(frozen=True)
class Workgroup:
    """What all workgroups of one class do."""

    prologue: tuple[Step, ...]
    body: tuple[Step, ...]
    epilogue: tuple[Step, ...]
    iterations: int
    """How often the body is done."""

    @property
    def tokens(self) -> int:
        """Copies of tokens that it needs."""
        steps = (*self.prologue, *self.body, *self.epilogue)
        return max((s.token + s.depth for s in steps), default=0)


@dataclass(frozen=True)
class Level:
    """A cache, or the memory, as loads see it."""

    name: str
    per_cube: bool
    """Each CUBE has its own."""
    bandwidth: int
    """Bytes a second."""
    latency_ps: int
    """From the end of the turn until the data are there, all levels before it included."""
    capacity: int = 0
    """Bytes; 0: it holds everything (the memory)."""
    channels: int = 1
    """Of the memory: independent channels, each with its share of the bandwidth."""
    interleave: int = 1 << 40
    """Of the memory: bytes in one channel before another follows; what is asked for is cut into so large pieces."""


@dataclass(frozen=True)
class Places:
    """The part of a machine that a launch runs on."""

    cubes: int
    pes_per_cube: int
    slots: int
    """Workgroups that a PE holds."""
    port_bandwidth: int
    """Bytes a second into one PE."""
    levels: tuple[Level, ...]
    """Caches from the PEs outward, the memory last."""
    store_bandwidth: int
    """Bytes a second of stores; they share the last level's server."""
    dispatch_ps: int
    """Between two workgroups that are handed out."""
    start_ps: int
    """From being handed out to the first step."""


@dataclass(frozen=True)
class Launch:
    """A grid of workgroups on a machine."""

    places: Places
    classes: tuple[Workgroup, ...]
    class_of: np.ndarray
    """int32[workgroup]: in launch order."""
    base: np.ndarray
    """int64[workgroup, stream]: number of the first tile of each stream."""
    tiles: int
    """Tiles that streams name: numbers 0 .. tiles - 1."""
    first_level: int = field(default=-1)
    """Level that answers for a tile that nobody has asked for yet: the memory (-1), or a cache that is warm."""
    dirty_bytes: int = 0
    """Bytes in the last cache that must be written back before others take their place: 0 unless it was flushed by
    writing."""

    def __post_init__(self) -> None:
        if not len(self.class_of):
            raise InputError("a launch needs at least one workgroup")


def pieces_of(level: Level, nbytes: int) -> int:
    """Return into how many pieces a memory cuts what it is asked for."""
    return max(1, min(level.channels, -(-nbytes // level.interleave)))


def piece_ps(level: Level, nbytes: int, pieces: int, bandwidth: int) -> int:
    """Time that one of so many pieces of ``nbytes`` takes at its channel, at least one picosecond."""
    num, den = byte_time(bandwidth)
    return max(1, -(-nbytes * num * level.channels // (den * pieces)))


def channel_of(key: int, piece: int, channels: int) -> int:
    """Return the channel of a piece: a hash of what is asked for (see :func:`request_key`) and the piece.

    The compiled core has the same arithmetic on 64-bit integers.
    """
    h = ((key & _MASK) * 1103515245 + piece * 12345 + 1540483477) & _MASK
    h ^= h >> 13
    h = (h * 1664525) & _MASK
    return (h ^ h >> 15) % channels


def request_key(workgroup: int, request: int) -> int:
    """Return what stands for the address of bytes that have no tile number: the workgroup's request by its count."""
    return workgroup * 8191 + request


_MASK = (1 << 31) - 1


@lru_cache(maxsize=256)
def byte_time(bandwidth: int) -> tuple[int, int]:
    """Return picoseconds per byte as a fraction of small integers.

    >>> byte_time(4 * 10**12)
    (1, 4)
    """
    exact = Fraction(PS, bandwidth).limit_denominator(1 << 20)
    return exact.numerator, exact.denominator


def turn_ps(nbytes: int, bandwidth: int) -> int:
    """Time that ``nbytes`` take at ``bandwidth`` bytes/s, at least one picosecond."""
    num, den = byte_time(bandwidth)
    return max(1, -(-nbytes * num // den))


def load(
    token: int, nbytes: int, *, stream: int = -1, offset: int = 0, depth: int = 1, ahead: int = 0, last: int = -1
) -> Step:
    """Return a LOAD."""
    return Step(
        Kind.LOAD, token, depth, ahead, nbytes=nbytes, last_nbytes=last, stream=stream, offset=offset, cause=LOAD_WAIT
    )


def wait(token: int, *, depth: int = 1, ahead: int = 0, cause: int = LOAD_WAIT) -> Step:
    """Return a WAIT."""
    return Step(Kind.WAIT, token, depth, ahead, cause=cause)


def run(token: int, ps: int, engines: Engines, *, depth: int = 1, ahead: int = 0) -> Step:
    """Return a RUN."""
    return Step(Kind.RUN, token, depth, ahead, ps=ps, engines=int(engines))


def work(token: int, ps: int, engines: Engines, cause: int) -> tuple[Step, ...]:
    """Return a RUN and the WAIT for it; nothing if it takes no time."""
    return (run(token, ps, engines), wait(token, cause=cause)) if ps else ()


def pause(ps: int, cause: int = SYNC) -> tuple[Step, ...]:
    """Return a PAUSE; nothing if it takes no time."""
    return (Step(Kind.PAUSE, ps=ps, cause=cause),) if ps else ()


def store(nbytes: int) -> Step:
    """Return a STORE."""
    return Step(Kind.STORE, nbytes=nbytes)


def parts(group: Workgroup) -> Sequence[tuple[Step, ...]]:
    """Return the three parts in order."""
    return group.prologue, group.body, group.epilogue
