"""Do the two engines agree?"""

from __future__ import annotations

import numpy as np

from kernbench.errors import DeadlockError
from kernbench.machine import Machine
from kernbench.record.trace import Trace
from kernbench.simulate import simulate
from kernbench.simulate.timeline import Hops, Timeline
from kernbench.simulate.waits import Held

_COLUMNS = ("issue_ps", "start_ps", "end_ps", "served_ps", "memory_busy_ps", "link_busy_ps", "link_nbytes")


def compare_engines(trace: Trace, machine: Machine | None = None) -> str:
    """Time a trace with both engines.

    Returns
    -------
    str
        ``"agree"`` if every picosecond, cause, busy time and byte is the same; ``"deadlock"`` if both say that it
        deadlocks, in the same words; else what differs first.
    """
    compiled, defined = (_outcome(trace, machine, engine) for engine in ("compiled", "simpy"))
    if isinstance(compiled, str) or isinstance(defined, str):
        return "deadlock" if compiled == defined else f"compiled: {compiled}\nsimpy: {defined}"
    for column in _COLUMNS:
        ours, right = getattr(compiled, column), getattr(defined, column)
        if ours.dtype != np.int64 or right.dtype != np.int64:
            return f"{column} is {ours.dtype} in compiled and {right.dtype} in simpy, not int64"
        if ours.shape != right.shape:
            return f"{column} has shape {ours.shape} in compiled and {right.shape} in simpy"
    right_moments, our_moments = (np.stack([getattr(t, c) for c in _COLUMNS[:4]]) for t in (defined, compiled))
    wrong = right_moments != our_moments
    if wrong.any():
        first = np.where(wrong, right_moments, np.iinfo(np.int64).max).min(axis=0).argmin()
        return _tell_command(compiled, defined, int(first))
    for column in _COLUMNS[4:]:
        ours, right = getattr(compiled, column), getattr(defined, column)
        if (ours != right).any():
            at = int(np.flatnonzero(ours != right)[0])
            return f"{column}[{at}] is {ours[at]} in compiled and {right[at]} in simpy"
    for name, ours, right in zip(Hops._fields, compiled.hops, defined.hops, strict=True):
        if not np.array_equal(ours, right):
            return f"the hops of loads and stores differ ({name}): {ours} in compiled and {right} in simpy"
    other_cause = np.flatnonzero(compiled.cause != defined.cause)
    return "agree" if not len(other_cause) else _tell_command(compiled, defined, int(other_cause[0]))


def _outcome(trace: Trace, machine: Machine | None, engine: str) -> Timeline | str:
    try:
        return simulate(trace, machine, engine)
    except DeadlockError as stuck:
        return str(stuck)


def _tell_command(compiled: Timeline, defined: Timeline, place: int) -> str:
    program = defined.program
    rank = int(np.searchsorted(program.out, place, side="right")) - 1
    index = place - int(program.out[rank])
    command = program.trace.classes[program.class_of[rank]].commands[index]
    times = [
        f"{t.engine}: issue {t.issue_ps[place]}, start {t.start_ps[place]}, end {t.end_ps[place]}, "
        f"held back by {Held(t.cause[place]).name.lower()}"
        for t in (compiled, defined)
    ]
    pe = program.machine.pe_name(int(program.pe[rank]))
    who = f"command {index} of {pe}, {command.name} of {command.nbytes} bytes"
    return "\n  ".join([f"{who}, at {program.trace.lines[command.line]}", *times])
