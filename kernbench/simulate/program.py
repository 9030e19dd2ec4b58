"""A Program: a Trace laid out for one machine, as flat arrays that both engines read.

The rules of time, which :mod:`kernbench.simulate.blocks` states as processes and
:mod:`kernbench.simulate.core` as one function, are these. All times are integer picoseconds.

*Issue.* A PE's control core issues its commands in order, one every ``issue`` ps, each into the queue of its engine.
It waits

* while that queue is full: the command ``queue_depth`` places before on the same engine has not started;
* to send, for a credit: of the messages sent before on the channel, all but ``depth - 1`` must have been taken by the
  receiver and the news must have travelled back, which takes one latency of the channel's own link;
* after a receive, until the message has been taken, which is when the RECV starts; after ``load_scalar``, until the
  value is there.

*Start.* A command starts once it is issued, its engine is free (each engine works in the order of issue), and all that
it depends on has ended. A LOAD or STORE engine has several queues: its command k starts no earlier than command k-1,
and once command k-queues has ended. A RECV also needs its message to have arrived. A composite occupies the matrix and
the vector engine, and the LOAD engine if it streams, and a place in the queue of each.

*End.*

* Arithmetic: a fixed time later (:mod:`kernbench.simulate.costs`). RECV: ``receive`` later.
* SEND: the message goes onto its link, where it arrives at its start. A link serves messages one after the other in
  the order of (arrival, PE, command) and is occupied for bytes/bandwidth. The SEND ends when the link is released; the
  message arrives one latency later.
* LOAD: the request reaches the memory one route latency later. The memory cuts it into its channels by address
  (``interleave`` consecutive bytes in one, then the next); each channel serves requests in the order of (arrival, PE,
  command). *head* is the moment when the first channel begins, *tail* when the last one ends; both then pass through
  the memory's latency. On the way back each link of the route serves it likewise: it begins at ``s`` = when head has
  arrived and the link is free, is released bytes/bandwidth later, and passes on head = s + latency and
  tail = max(released, tail) + latency. The LOAD ends at max(tail, head + port), ``port`` being bytes over the load
  bandwidth, or over ``outstanding`` bytes per round trip (latencies of route, memory and route back) if that is slower.
* STORE: head leaves at the start, tail ``port`` later; links as above; then the memory's channels from the arrival of
  head; the STORE ends at max(tail, channels' end) + the memory's latency.
* A streaming composite: data as for a LOAD, at d; ends at max(d + tail, start + body).

*Ties.* Arrivals at one moment are handled in the order of (PE, command), all over the machine. Since each service takes
1 ps or more, no command starts or ends because of an arrival at the same moment; only a head may go on to the next
link at once, where latencies are 0, and it keeps its place in the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction

import numpy as np

from kernbench.errors import InputError, ScratchError
from kernbench.machine import Machine
from kernbench.record.stream import N_DIRECTIONS, Engine, Op, Stream
from kernbench.record.trace import Trace
from kernbench.simulate.costs import PS, cost_ps, transfer_ps


class Kind(IntEnum):
    """How a command is timed."""

    WORK = 0
    LOAD = 1
    STORE = 2
    SEND = 3
    """On a link of the PE's own."""
    SEND_SHARED = 4
    """On a link that other PEs use too."""
    RECV = 5
    STREAM = 6
    """A composite that streams an operand from memory."""
    SCALAR = 7
    """A LOAD after which issue waits for the value."""


class Wait(IntEnum):
    """What a command waits for before it starts: the end (or start) of an earlier command of its PE."""

    OPERAND = 0
    REUSE = 1
    ENGINE = 2
    ENGINE_ORDER = 3
    """The start, not the end, of the command before it on an engine with several queues."""


@dataclass(frozen=True)
class Figures:
    """What a machine's shared parts cost; see :class:`~kernbench.machine.network.Network` for the link arrays."""

    link_num: np.ndarray
    link_den: np.ndarray
    link_latency: np.ndarray
    """int64[link]: ps, for loads and stores."""
    message_latency: np.ndarray
    """int64[link]: ps, for messages and their credits."""
    route_latency: np.ndarray
    channel_num: int
    """One memory channel takes ceil(bytes * channel_num / channel_den) ps."""
    channel_den: int
    memory_latency_ps: int
    outstanding: int
    """Bytes of one load in flight at most; 0: any number."""
    issue_ps: int
    depth: int
    """Messages that a channel holds."""
    queue_depth: int
    """Commands that the queue of an engine holds."""


@dataclass(frozen=True)
class Program:
    """A trace laid out for a machine.

    Commands of all classes stand one class after the other; ``class_start[c]:class_start[c + 1]`` are those of class c
    and are numbered from 0 in it. PEs are counted by *rank*, class after class.
    """

    trace: Trace
    machine: Machine
    figures: Figures
    class_start: np.ndarray
    """int64[classes + 1]"""
    kind: np.ndarray
    """int8[command]: a :class:`Kind`."""
    duration: np.ndarray
    """int64[command]: WORK, RECV: ps; LOAD, STORE, STREAM: time at the port, ps; SEND: 0, see the link."""
    body: np.ndarray
    """int64[command]: of a STREAM, ps from start to end at least."""
    tail: np.ndarray
    """int64[command]: of a STREAM, ps from the last byte to the end."""
    nbytes: np.ndarray
    """int64[command]"""
    direction: np.ndarray
    """int8[command]: of SEND and RECV."""
    message: np.ndarray
    """int64[command]: number of the message in its channel."""
    column: np.ndarray
    """int32[command]: lane column of the address."""
    offset: np.ndarray
    """int64[command]: added to it."""
    engines: np.ndarray
    """int32[command]: bit e is set if it occupies :class:`~kernbench.record.stream.Engine` e."""
    wait_start: np.ndarray
    """int64[command + 1]: waits of command i are ``wait_start[i]:wait_start[i + 1]``."""
    wait_on: np.ndarray
    """int32[wait]: index, in the class, of the earlier command."""
    wait_kind: np.ndarray
    """int8[wait]: a :class:`Wait`."""
    slot_start: np.ndarray
    """int64[command + 1]: queue places that issue of command i waits for."""
    slot_on: np.ndarray
    """int32[slot]: index, in the class, of the command that must have started."""
    sends: np.ndarray
    """int32: indices of SENDs, by class and direction; see ``send_start``."""
    send_start: np.ndarray
    """int64[classes * 12 + 1]"""
    recvs: np.ndarray
    """int32: indices of RECVs, likewise."""
    recv_start: np.ndarray
    """int64[classes * 12 + 1]"""
    pe: np.ndarray
    """int64[rank]: global index of the PE."""
    rank: np.ndarray
    """int64[pe]: its rank, -1 if it takes no part."""
    class_of: np.ndarray
    """int32[rank]"""
    lane: np.ndarray
    """int64[rank]: position in the class."""
    out: np.ndarray
    """int64[rank + 1]: where the PE's commands begin in the timeline's columns."""
    lane_values: np.ndarray
    """int64: lane columns of all classes; column j of class c is at ``lane_start[c] + j * PEs in c``."""
    lane_start: np.ndarray
    """int64[classes]"""

    @property
    def n_ranks(self) -> int:
        """PEs that take part."""
        return len(self.pe)

    @property
    def n_commands(self) -> int:
        """Commands of all PEs."""
        return int(self.out[-1])


def build_program(trace: Trace, machine: Machine, like: Program | None = None) -> Program:
    """Lay ``trace`` out for ``machine``.

    Parameters
    ----------
    like
        A program of the same trace, whose arrays are used again where only figures differ: timing one trace on many
        machines is quicker with it, and gives the same.

    Raises
    ------
    InputError
        If the machine has another shape than the one recorded for, or lacks a matrix rate.
    ScratchError
        If its scratch is too small.
    """
    _check_fit(trace, machine)
    streams = [c.stream for c in trace.classes]
    sizes = np.array([len(s) for s in streams], np.int64)
    lanes = np.array([len(c.pes) for c in trace.classes], np.int64)
    duration, body, tail = costs_of(streams, machine)
    if like is not None and like.trace is trace and _queues(like.machine) == _queues(machine):
        return replace(like, machine=machine, figures=figures_of(machine), duration=duration, body=body, tail=tail)
    waits = [_waits(s, machine) for s in streams]
    slots = [_slots(s, machine.queue_depth) for s in streams]
    sends, send_start = _messages(streams, Engine.SEND)
    recvs, recv_start = _messages(streams, Engine.RECV)
    pe = np.concatenate([c.pes for c in trace.classes]).astype(np.int64)
    rank = np.full(machine.n_pes, -1, np.int64)
    rank[pe] = np.arange(len(pe))
    class_of = np.repeat(np.arange(len(streams)), lanes)
    columns = [column for c in trace.classes for column in c.columns]
    n_columns = np.array([len(c.columns) for c in trace.classes], np.int64)
    return Program(
        trace=trace,
        machine=machine,
        figures=figures_of(machine),
        class_start=_starts(sizes),
        kind=_concat([_kinds(s) for s in streams], np.int8),
        duration=duration,
        body=body,
        tail=tail,
        nbytes=_concat([s.nbytes for s in streams], np.int64),
        direction=_concat([s.direction for s in streams], np.int8),
        message=_concat([s.message for s in streams], np.int64),
        column=_concat([s.column for s in streams], np.int32),
        offset=_concat([s.offset for s in streams], np.int64),
        engines=_concat([_engines(s) for s in streams], np.int32),
        wait_start=_starts(_concat([w[0] for w in waits], np.int64)),
        wait_on=_concat([w[1] for w in waits], np.int32),
        wait_kind=_concat([w[2] for w in waits], np.int8),
        slot_start=_starts(_concat([s[0] for s in slots], np.int64)),
        slot_on=_concat([s[1] for s in slots], np.int32),
        sends=sends,
        send_start=send_start,
        recvs=recvs,
        recv_start=recv_start,
        pe=pe,
        rank=rank,
        class_of=class_of.astype(np.int32),
        lane=_concat([np.arange(n) for n in lanes], np.int64),
        out=_starts(sizes[class_of]),
        lane_values=_concat(columns, np.int64),
        lane_start=_starts(n_columns * lanes)[:-1],
    )


def _queues(machine: Machine) -> tuple[int, ...]:
    """Return what of a machine decides which commands wait for which."""
    return machine.pe.load.queues, machine.pe.store.queues, machine.queue_depth


def figures_of(machine: Machine) -> Figures:
    """Return the figures of a machine's shared parts."""
    network, memory, pe = machine.network, machine.memory, machine.pe
    channel = Fraction(PS * memory.channels, memory.bandwidth)
    return Figures(
        network.link_num, network.link_den, network.link_latency, network.link_latency, network.route_latency,
        channel.numerator, channel.denominator, memory.latency, pe.load.outstanding or 0, pe.issue or 0,
        machine.channel.depth, machine.queue_depth,
    )  # fmt: skip


def _check_fit(trace: Trace, machine: Machine) -> None:
    if machine.signature != trace.machine.signature:
        raise InputError(
            f"the trace was recorded for {trace.machine.name}; {machine.name} has another shape: record it again"
        )
    if trace.scratch_peak_bytes > machine.pe.scratch:
        raise ScratchError(
            f"the trace needs {trace.scratch_peak_bytes:,} bytes of scratch in a PE, {machine.name} has "
            f"{machine.pe.scratch:,} (pe.scratch)"
        )


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def _concat(parts: Sequence[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate([np.asarray(p, kind) for p in parts]) if parts else np.zeros(0, kind)


_KIND = np.zeros(8, np.int8)
for _op, _kind in (
    (Op.LOAD, Kind.LOAD), (Op.STORE, Kind.STORE), (Op.SEND, Kind.SEND), (Op.RECV, Kind.RECV), (Op.SCALAR, Kind.SCALAR),
):  # fmt: skip
    _KIND[_op] = _kind


def _kinds(stream: Stream) -> np.ndarray:
    kind = _KIND[stream.op]
    kind[(stream.op == Op.COMPOSITE) & (stream.column >= 0)] = Kind.STREAM
    kind[(stream.op == Op.SEND) & (stream.direction >= 4)] = Kind.SEND_SHARED
    return kind


def _engines(stream: Stream) -> np.ndarray:
    mask = np.zeros(len(stream), np.int32)
    for engine, mine in stream.by_engine.items():
        mask[mine] |= 1 << engine
    return mask


def costs_of(
    streams: Sequence[Stream], machine: Machine, free: Op | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return duration, body and tail of each command; ``free`` is as in :func:`~kernbench.simulate.costs.cost_ps`."""
    costs = [_costs(s, machine, free) for s in streams]
    duration, body, tail = (_concat([c[i] for c in costs], np.int64) for i in range(3))
    return duration, body, tail


def _costs(stream: Stream, machine: Machine, free: Op | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = len(stream)
    table = np.array([cost_ps(machine, key, free) for key in stream.cost_keys] or [(0, 0)], np.int64)
    has_cost = stream.cost >= 0
    duration = np.where(has_cost, table[stream.cost, 0], 0)
    body, tail = np.zeros(n, np.int64), np.zeros(n, np.int64)
    duration[stream.op == Op.RECV] = machine.channel.receive
    streams = (stream.op == Op.COMPOSITE) & (stream.column >= 0)
    body[streams], tail[streams] = table[stream.cost[streams], 0], table[stream.cost[streams], 1]
    loads = (stream.op == Op.LOAD) | (stream.op == Op.SCALAR) | streams
    for mask, bandwidth in ((loads, machine.pe.load.bandwidth), (stream.op == Op.STORE, machine.pe.store.bandwidth)):
        sizes, which = np.unique(stream.nbytes[mask], return_inverse=True)
        duration[mask] = np.array([transfer_ps(int(b), bandwidth) for b in sizes], np.int64)[which]
    return duration, body, tail


def _waits(stream: Stream, machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of waits of each command, and what and how each wait is."""
    queues = {int(Engine.LOAD): machine.pe.load.queues, int(Engine.STORE): machine.pe.store.queues}
    n = len(stream)
    command = [np.repeat(np.arange(n), np.diff(stream.dep_start))]
    on, kind = [stream.dep_command.astype(np.int64)], [stream.dep_kind]
    for engine, mine in stream.by_engine.items():
        q = queues.get(engine, 1)
        command.append(mine[q:])
        on.append(mine[: len(mine) - q] if len(mine) > q else mine[:0])
        kind.append(np.full(len(on[-1]), Wait.ENGINE, np.int8))
        if q > 1:
            command.append(mine[1:])
            on.append(mine[:-1])
            kind.append(np.full(len(mine) - 1, Wait.ENGINE_ORDER, np.int8))
    return _grouped(n, np.concatenate(command), np.concatenate(on), np.concatenate(kind))


def _slots(stream: Stream, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of queue places that each command waits for, and which."""
    none = np.zeros(0, np.int64)  # PEs may do nothing at all
    command = [none, *(mine[depth:] for mine in stream.by_engine.values())]
    on = [none, *(mine[: max(len(mine) - depth, 0)] for mine in stream.by_engine.values())]
    counts, waits, _ = _grouped(len(stream), np.concatenate(command), np.concatenate(on), None)
    return counts, waits


def _grouped(
    n: int, command: np.ndarray, on: np.ndarray, kind: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # The latest first: it is the likeliest to be unknown when the core looks.
    order = np.argsort(command * np.int64(n + 1) + (n - on), kind="stable")
    kinds = np.zeros(len(on), np.int8) if kind is None else kind
    return np.bincount(command, minlength=n), on[order], kinds[order]


def _messages(streams: Sequence[Stream], first: Engine) -> tuple[np.ndarray, np.ndarray]:
    empty = np.zeros(0, np.int64)
    lists = [s.by_engine.get(int(first) + d, empty) for s in streams for d in range(N_DIRECTIONS)]
    return _concat(lists, np.int32), _starts(np.array([len(x) for x in lists], np.int64))
