"""What held each command back, and for how long: read off a Timeline, without running it again.

Until it has ended, a command waits

* *before its issue*: from the moment when the control core is ready for it (``issue`` ps after it issued the one
  before) to its issue. What ended last counts as what it waited for: a queue or a channel was full, or a receive or
  ``load_scalar`` before it held issue;
* *before its start*: from its issue to its start; what ended last counts, as a value that it needs, its message, a
  buffer, its engine;
* *at memory*: of the time from its start to its end, that for which memory channels served others first;
* *at links*: likewise.

If several things ended at the same moment, the first in the order of :class:`Held` counts. The waits at memory and
links are those on the way that decided when the command ended, as :mod:`kernbench.simulate.journey` tells it. On a
private link nothing waits.

The **cause** of a command is that of the longest of its waits; of equally long ones it is the first in the order of
:class:`Held`. A command that never waited has the cause ``ISSUE``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kernbench.machine.network import OPPOSITE
from kernbench.record.stream import N_DIRECTIONS
from kernbench.simulate.arrays import arrays_of
from kernbench.simulate.program import Kind, Program
from kernbench.simulate.timeline import Timeline


class Held(IntEnum):
    """What holds a command back."""

    ISSUE = 0
    """Nothing: it started as soon as the control core came to it, and nobody was before it at memory or links."""
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
    MEMORY = 7
    """Memory channels served others."""
    LINK = 8
    """A link served others."""


class Moments(NamedTuple):
    """When the commands of some PEs of one class were issued, started and ended: int64[PE, command], ps."""

    issue: np.ndarray
    start: np.ndarray
    end: np.ndarray


class Waits(NamedTuple):
    """What held commands back, one entry a command; in each array the PEs come one after the other."""

    issue_ps: np.ndarray
    """int64: wait before the issue."""
    start_ps: np.ndarray
    """int64: wait before the start."""
    memory_ps: np.ndarray
    """int64: wait at memory."""
    link_ps: np.ndarray
    """int64: wait at links."""
    issue_held: np.ndarray
    """int8: what the issue waited for, a :class:`Held`; ISSUE if it did not wait."""
    start_held: np.ndarray
    """int8: what the start waited for, likewise."""
    on: np.ndarray
    """int32: the command of the same PE that the wait before the start was about, or the one before the issue if the
    start did not wait; -1: none, or one of another PE."""
    cause: np.ndarray
    """int8: cause of the command, a :class:`Held`."""

    def held_before_start(self) -> np.ndarray:
        """What a command waited for last before it started: the start if it waited, else the issue."""
        return np.where(self.start_ps > 0, self.start_held, self.issue_held)


def causes(timeline: Timeline) -> np.ndarray:
    """Return the cause of each command as int8 (a :class:`Held`), in the layout of the timeline's columns."""
    program = timeline.program
    found = np.empty(program.n_commands, np.int8)
    _fill(timeline, np.arange(program.n_ranks), *_columns(0), found)
    return found


def waits(timeline: Timeline, ranks: np.ndarray | None = None) -> Waits:
    """Return what held commands back.

    Parameters
    ----------
    timeline
        The times.
    ranks
        PEs, by their ranks in the timeline's program. Default: all, in the layout of the timeline's columns.
    """
    out = timeline.program.out
    which = np.arange(timeline.program.n_ranks) if ranks is None else np.asarray(ranks, np.int64)
    n = int((out[which + 1] - out[which]).sum())
    (ps, held, on), cause = _columns(n), np.empty(n, np.int8)
    _fill(timeline, which, ps, held, on, cause)
    return Waits(ps[:, 0], ps[:, 1], ps[:, 2], ps[:, 3], held[:, 0], held[:, 1], on, cause)


def _columns(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty((n, 4), np.int64), np.empty((n, 2), np.int8), np.empty(n, np.int32)


def _fill(timeline: Timeline, ranks: np.ndarray, *columns: np.ndarray) -> None:
    from kernbench.simulate import held  # compiled: imported when it is needed

    held_back: Callable[..., int] = held.held_back
    held_back(*arrays_of(timeline), ranks, *columns, np.empty((0, 4), np.int64))


def waits_of_class(timeline: Timeline, ranks: np.ndarray) -> Waits:
    """Return what held the commands of some PEs of one class back, as arrays[PE, command]."""
    return Waits(*(column.reshape(len(ranks), -1) for column in waits(timeline, ranks)))


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
