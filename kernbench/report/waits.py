"""Why each command started when it did: read off a Timeline, command by command, without running it again."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kernbench.machine.network import OPPOSITE
from kernbench.record.stream import N_DIRECTIONS
from kernbench.simulate.program import Kind, Program, Wait
from kernbench.simulate.timeline import Timeline


class Held(IntEnum):
    """What a command waited for last, before it started."""

    NOTHING = 0
    """It started as soon as the control core came to it."""
    OPERAND = 1
    """A value was needed."""
    MESSAGE = 2
    """A message had not come."""
    REUSE = 3
    """A scratch buffer, or bytes of memory, were still in use."""
    ENGINE = 4
    """The engine was busy."""
    QUEUE = 5
    """The queue of an engine was full."""
    CREDIT = 6
    """The channel was full."""


class Moments(NamedTuple):
    """When the commands of some PEs of one class were issued, started and ended: int64[PE, command], ps."""

    issue: np.ndarray
    start: np.ndarray
    end: np.ndarray


class Waits(NamedTuple):
    """What held each command of some PEs of one class back: int64[PE, command]."""

    ps: np.ndarray
    """From the moment when the control core was ready to issue the command to the command's start."""
    held: np.ndarray
    """A :class:`Held`."""
    on: np.ndarray
    """Index of the command, of the same PE, that it waited for; -1: none, or one of another PE."""


_ON_BITS = 40
_NO_REASON = len(Held) << _ON_BITS


def moments_of(timeline: Timeline, ranks: np.ndarray) -> Moments:
    """Return the times of some PEs of one class, given by their ranks in the timeline's program."""
    first = timeline.program.out[ranks]
    places = first[:, None] + np.arange(int(timeline.program.out[ranks[0] + 1] - first[0]))
    return Moments(timeline.issue_ps[places], timeline.start_ps[places], timeline.end_ps[places])


def commands_of(program: Program, ranks: np.ndarray) -> slice:
    """Return where the commands of these PEs' class stand in the program's columns."""
    cls = int(program.class_of[ranks[0]])
    return slice(int(program.class_start[cls]), int(program.class_start[cls + 1]))


def partner_places(program: Program, ranks: np.ndarray, commands: np.ndarray) -> np.ndarray:
    """For SENDs find the RECVs that take their messages, and for RECVs the SENDs.

    Parameters
    ----------
    program
        The program.
    ranks
        PEs of one class, by rank.
    commands
        Indices, in the class, of SENDs only or of RECVs only.

    Returns
    -------
    ndarray
        int64[PE, command]: places in the timeline's columns.
    """
    at = commands_of(program, ranks).start + commands
    direction = program.direction[at]
    other = program.rank[program.machine.network.peer[program.pe[ranks]][:, direction]]
    are_recvs = (program.kind[at] == Kind.RECV).all()
    partners, starts = (program.sends, program.send_start) if are_recvs else (program.recvs, program.recv_start)
    first = starts[program.class_of[other].astype(np.int64) * N_DIRECTIONS + OPPOSITE[direction]]
    found: np.ndarray = program.out[other] + partners[first + program.message[at]]
    return found


def waits_of(timeline: Timeline, ranks: np.ndarray) -> Waits:
    """Find what held the commands of some PEs back.

    What held the start back counts; where that was only the issue, what held the issue back. Of several things that
    ended at the same moment, the first in the order of :class:`Held` counts.

    Parameters
    ----------
    timeline
        The times.
    ranks
        PEs of one class, by their ranks in the timeline's program.
    """
    program = timeline.program
    times = moments_of(timeline, ranks)
    ready = np.zeros_like(times.issue)
    ready[:, 1:] = times.issue[:, :-1] + program.machine.pe.issue
    found = np.full(times.issue.shape, _code(Held.NOTHING), np.int64)
    for late, reason in (
        (times.issue > ready, _issue_reasons(program, ranks, times)),
        (times.start > times.issue, _start_reasons(timeline, ranks, times)),
    ):
        found[late] = reason[late]
    return Waits(times.start - ready, found >> _ON_BITS, (found & ((1 << _ON_BITS) - 1)) - 1)


def _start_reasons(timeline: Timeline, ranks: np.ndarray, times: Moments) -> np.ndarray:
    """What ended at the moment when each command started, as codes."""
    program = timeline.program
    here = commands_of(program, ranks)
    starts, (on, kind) = _groups(here, program.wait_start, program.wait_on, program.wait_kind)
    ended = np.where(kind == Wait.ENGINE_ORDER, times.start[:, on], times.end[:, on])
    codes = np.select(
        [kind == Wait.OPERAND, kind == Wait.REUSE],
        [_code(Held.OPERAND, on), _code(Held.REUSE, on)],
        _code(Held.ENGINE, on),
    )
    found = _first(starts, codes, ended, times.start)
    recvs = np.flatnonzero(program.kind[here] == Kind.RECV)
    if len(recvs):
        sent = timeline.end_ps[partner_places(program, ranks, recvs)]
        network, direction = program.machine.network, program.direction[here][recvs]
        senders = network.peer[program.pe[ranks]][:, direction]
        arrived = sent + network.link_latency[network.link_of[senders, OPPOSITE[direction]]]
        came_late = np.where(arrived == times.start[:, recvs], _code(Held.MESSAGE), _NO_REASON)
        found[:, recvs] = np.minimum(found[:, recvs], came_late)
    return found


def _issue_reasons(program: Program, ranks: np.ndarray, times: Moments) -> np.ndarray:
    """What let each command be issued at its moment, as codes."""
    here = commands_of(program, ranks)
    starts, (on,) = _groups(here, program.slot_start, program.slot_on)
    found = _first(starts, _code(Held.QUEUE, on), times.start[:, on], times.issue)
    kind = program.kind[here]
    for of, until, held in ((Kind.RECV, times.start, Held.MESSAGE), (Kind.SCALAR, times.end, Held.OPERAND)):
        before = np.flatnonzero(kind[:-1] == of)  # issue waits for it before it goes on
        is_held = until[:, before] == times.issue[:, before + 1]
        reason = np.where(is_held, _code(held, before), _NO_REASON)
        found[:, before + 1] = np.minimum(found[:, before + 1], reason)
    sends = np.isin(kind, (Kind.SEND, Kind.SEND_SHARED))
    found[(found == _NO_REASON) & sends] = _code(Held.CREDIT)  # nothing else can hold a SEND
    return found


def _code(held: Held, on: np.ndarray | int = -1) -> np.ndarray:
    """A reason and the command that it is about as one number: the smallest is the first reason."""
    return (int(held) << _ON_BITS) + np.asarray(on, np.int64) + 1


def _groups(here: slice, starts: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Cut the entries of one class out of columns that are grouped by command."""
    mine = starts[here.start : here.stop + 1]
    return mine - mine[0], tuple(column[mine[0] : mine[-1]] for column in columns)


def _first(starts: np.ndarray, codes: np.ndarray, ended: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """For each command the smallest code among its entries that ended just then.

    ``codes`` are int64[entry], ``ended`` int64[PE, entry] and ``moments`` int64[PE, command].
    """
    sizes = np.diff(starts)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    found = np.full(moments.shape, _NO_REASON, np.int64)
    if len(owner):
        matching = np.where(ended == moments[:, owner], codes, _NO_REASON)
        found[:, sizes > 0] = np.minimum.reduceat(matching, starts[:-1][sizes > 0], axis=1)
    return found
