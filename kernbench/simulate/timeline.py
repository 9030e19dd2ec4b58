"""A Timeline: when each command of each PE was issued, began and ended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernbench.errors import ChannelError
from kernbench.record.deadlock import deadlock_error
from kernbench.record.stream import Engine
from kernbench.simulate.costs import PS
from kernbench.simulate.program import Kind, Program


class Hops(NamedTuple):
    """Links that served loads and stores on their way, one entry for each link of each."""

    place: np.ndarray
    """int64: the command's place in the timeline's columns."""
    link: np.ndarray
    """int32"""
    begin_ps: np.ndarray
    """int64: when the link began with the bytes."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Times of all commands, in integer picoseconds.

    Columns hold one entry for each command of each PE, PE after PE in the order of ``program.pe``; use
    :meth:`of_pe` for one PE, :meth:`of_class` for a class as a table.
    """

    program: Program
    engine: str
    """``compiled`` or ``simpy``."""
    issue_ps: np.ndarray
    """int64: issued by the PE's control core."""
    start_ps: np.ndarray
    """int64: began on its engine."""
    end_ps: np.ndarray
    """int64: ended."""
    served_ps: np.ndarray
    """int64: when a memory began with the bytes of a load or store, or a link with a message; -1 for the others."""
    memory_busy_ps: np.ndarray
    """int64[memory * channels + channel]: time in which the channel moved data."""
    link_busy_ps: np.ndarray
    """int64[link]: time in which the link moved data."""
    link_nbytes: np.ndarray
    """int64[link]: bytes that the link moved."""
    hop_log: Hops
    """In the order of service; :attr:`hops` is easier to use."""

    def __repr__(self) -> str:
        return f"<Timeline of {self.program.trace.kernel} on {self.program.machine.name}: {self.makespan_ps:,} ps>"

    @cached_property
    def makespan_ps(self) -> int:
        """End of the last command."""
        return int(self.end_ps.max())

    @cached_property
    def hops(self) -> Hops:
        """The links that served loads and stores, command by command, each command's in the order of its way."""
        order = np.argsort(self.hop_log.place, kind="stable")  # a request is on one link after the other
        return Hops(*(column[order] for column in self.hop_log))

    @cached_property
    def cause(self) -> np.ndarray:
        """int8: what held each command back most, a :class:`~kernbench.simulate.waits.Held`."""
        from kernbench.simulate.waits import causes

        return causes(self)

    @property
    def cycles(self) -> int:
        """The makespan in cycles of the PE's clock, rounded up."""
        return -(-self.makespan_ps * self.program.machine.pe.clock // PS)

    def of_class(self, cls: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (issue, start, end) of a class as int64[PE of the class, command]."""
        ranks = np.flatnonzero(self.program.class_of == cls)
        n = int(self.program.class_start[cls + 1] - self.program.class_start[cls])
        first = int(self.program.out[ranks[0]])
        where = slice(first, first + n * len(ranks))
        shape = (len(ranks), n)
        return tuple(t[where].reshape(shape) for t in (self.issue_ps, self.start_ps, self.end_ps))  # type: ignore[return-value]

    def of_pe(self, pe: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (issue, start, end) of the commands of one PE, by its global index.

        Raises
        ------
        KeyError
            If the PE takes no part.
        """
        rank = int(self.program.rank[pe])
        if rank < 0:
            raise KeyError(f"PE {pe} takes no part in this trace")
        where = slice(int(self.program.out[rank]), int(self.program.out[rank + 1]))
        return self.issue_ps[where], self.start_ps[where], self.end_ps[where]

    def busy_share(self) -> dict[str, float]:
        """Share of the makespan for which each kind of engine works, averaged over the PEs that take part.

        An engine with several queues counts as busy in proportion to those in use. ``memory`` is the average over
        the channels of all memories, ``link`` the busiest shared link, left out where there is none.
        """
        machine, span = self.program.machine, self.makespan_ps
        if span == 0:
            return {}
        queues = {Engine.LOAD: machine.pe.load.queues, Engine.STORE: machine.pe.store.queues}
        named = {"load": Engine.LOAD, "store": Engine.STORE, "matrix": Engine.MATRIX, "vector": Engine.VECTOR}
        whole = span * self.program.n_ranks
        share = {name: self._busy_ps(int(e)) / (whole * queues.get(e, 1)) for name, e in named.items()}
        share["memory"] = float(self.memory_busy_ps.mean()) / span
        shared = machine.network.link_shared
        if shared.any():
            share["link"] = float(self.link_busy_ps[: len(shared)][shared].max()) / span
        return share

    @property
    def hbm_bytes(self) -> int:
        """Bytes that loads, stores and streaming composites move between memories and PEs."""
        p = self.program
        touches = np.isin(p.kind, (Kind.LOAD, Kind.STORE, Kind.STREAM, Kind.SCALAR))
        return self._over_pes(np.where(touches, p.nbytes, 0))

    @property
    def link_bytes(self) -> int:
        """Bytes that links move, counted on every link that they pass."""
        return int(self.link_nbytes.sum())

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix engines, a multiply-add counting as two."""
        trace = self.program.trace
        return sum(len(c.pes) * c.stream.flops for c in trace.classes)

    def _busy_ps(self, engine: int) -> int:
        total = 0
        for i, cls in enumerate(self.program.trace.classes):
            _, start, end = self.of_class(i)
            mine = cls.stream.by_engine.get(engine)
            if mine is not None:
                total += int((end[:, mine] - start[:, mine]).sum())
        return total

    def _over_pes(self, per_command: np.ndarray) -> int:
        sums = np.concatenate([[0], np.cumsum(per_command)])[self.program.class_start]
        return int(np.diff(sums)[self.program.class_of].sum())


def stuck_error(program: Program, pointer: np.ndarray, held: np.ndarray) -> ChannelError:
    """Return the error for PEs that can issue nothing more and have commands left.

    ``pointer[rank]`` is the next command to issue, ``held[rank]`` the receive that issue waits for (-1: none).
    """
    stuck: dict[int, tuple[int, str]] = {}
    for rank, pe in enumerate(program.pe.tolist()):
        base, end = program.class_start[program.class_of[rank] : program.class_of[rank] + 2]
        if held[rank] >= 0:
            stuck[pe] = (int(held[rank]), "recv")
        elif pointer[rank] < end - base:
            stuck[pe] = (int(pointer[rank]), "send")
    return deadlock_error(program.trace, stuck)
