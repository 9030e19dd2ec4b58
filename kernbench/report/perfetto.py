"""Write a Timeline as a Perfetto trace, for https://ui.perfetto.dev.

Perfetto counts nanoseconds, a Timeline picoseconds. 1 ps is written as 1 ns, so that no time is rounded and no command
vanishes; the trace's title and its first process say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernbench.errors import InputError
from kernbench.placement import ADDRESS_BITS
from kernbench.record.trace import Command
from kernbench.report.counters import Counter, PeCounters, memory_counters, requests_of
from kernbench.report.output import open_whole
from kernbench.report.packets import PacketWriter
from kernbench.report.slices import ClassSlices, ClassTracks, Facts, Slice, class_tracks, common_facts, slice_name
from kernbench.simulate.timeline import Timeline

NOTE = "1 ns shown = 1 ps simulated"
_UUIDS_A_PROCESS = 1 << 20
_BATCH = 1 << 16
"""Commands, over all PEs, whose facts are held at a time."""


@dataclass(frozen=True)
class PerfettoSummary:
    """What a trace holds and what it leaves out. Print it to say so."""

    path: Path
    nbytes: int
    """Size of the trace."""
    pes: int
    """PEs shown."""
    slices: int
    """Slices of commands: one for each engine that a command occupies."""
    counter_values: int
    flows: int
    """Arrows from a send to its receive."""
    pes_not_selected: int
    """PEs that take part in the run but were not asked for."""
    pes_left_out: int
    """PEs that were asked for but come after the event limit."""
    slices_left_out: int
    """Slices of PEs that were asked for that come after the event limit."""
    max_events: int
    """The limit on slices and counter values."""

    @property
    def is_complete(self) -> bool:
        """Whether the trace shows everything that was asked for."""
        return self.pes_left_out == 0 and self.slices_left_out == 0

    def __str__(self) -> str:
        text = (
            f"{self.path}: {self.slices:,} slices, {self.counter_values:,} counter values and {self.flows:,} flows of "
            f"{_pes(self.pes)}, {self.nbytes:,} bytes"
        )
        if self.pes_not_selected:
            text += f"; {_pes(self.pes_not_selected)} not selected"
        if not self.is_complete:
            what = f"{_pes(self.pes_left_out)}, " if self.pes_left_out else "the counters and "
            text += f"; left out by the limit of {self.max_events:,} events: {what}{self.slices_left_out:,} slices"
        return text


def write_perfetto(
    timeline: Timeline, path: Path | str, pes: Iterable[int] | None = None, max_events: int = 1_000_000
) -> PerfettoSummary:
    """Write a Timeline as a Perfetto trace.

    PEs are shown whole, in the order of their indices, while they and the counters of the memories that they use fit in
    ``max_events``. If not even the first fits, its first commands are shown, without counters.

    Parameters
    ----------
    timeline
        From :func:`~kernbench.simulate`.
    path
        File to write; it appears when it is whole. Perfetto's usual suffix is ``.pftrace``.
    pes
        Global indices of the PEs to show; default: all that take part. See
        :func:`~kernbench.report.selection.select_pes`.
    max_events
        Most slices and counter values to write.

    Returns
    -------
    PerfettoSummary
        What was written and what was left out.

    Raises
    ------
    InputError
        If the path cannot be written, no PE selected takes part, or ``max_events`` is below 1.
    """
    if max_events < 1:
        raise InputError(f"max_events is at least 1, not {max_events}")
    ranks = _selected(timeline, pes)
    plan = _plan(timeline, ranks, max_events)
    with open_whole(path) as file:
        writer = PacketWriter(file)
        drawing = _Drawing(timeline, plan, writer)
        drawing.draw()
    n_slices = int(plan.n_slices.sum())
    return PerfettoSummary(
        path=Path(path),
        nbytes=writer.nbytes,
        pes=len(plan.ranks),
        slices=n_slices,
        counter_values=sum(len(c.times) for c in plan.all_counters()),
        flows=drawing.flows,
        pes_not_selected=timeline.program.n_ranks - len(ranks),
        pes_left_out=len(ranks) - len(plan.ranks),
        slices_left_out=plan.n_slices_selected - n_slices,
        max_events=max_events,
    )


def _pes(count: int) -> str:
    return f"{count:,} PE{'s' * (count != 1)}"


# ---------------------------------------------------------------- what to show
@dataclass(frozen=True)
class _Plan:
    """What goes into the trace."""

    tracks: tuple[ClassTracks, ...]
    """By class."""
    ranks: np.ndarray
    """PEs to show, by rank, in the order of their indices."""
    n_commands: np.ndarray
    """int64[rank]: how many commands of each PE of the program are shown."""
    n_slices: np.ndarray
    """int64[rank]"""
    counters: tuple[tuple[Counter, ...], ...]
    """Of each PE shown."""
    memories: tuple[Counter, ...]
    n_slices_selected: int
    """Slices of the PEs selected, shown or not."""

    def all_counters(self) -> Iterator[Counter]:
        """Yield every counter."""
        yield from self.memories
        for counters in self.counters:
            yield from counters


def _selected(timeline: Timeline, pes: Iterable[int] | None) -> np.ndarray:
    """Return the ranks of the PEs selected that take part, in the order of their indices."""
    program = timeline.program
    if pes is None:
        return np.argsort(program.pe, kind="stable")
    asked = sorted({int(pe) for pe in pes})
    machine = program.machine
    if asked and not 0 <= asked[0] <= asked[-1] < machine.n_pes:
        wrong = asked[0] if asked[0] < 0 else asked[-1]
        raise InputError(f"there is no PE {wrong}: {machine.name} has PEs 0-{machine.n_pes - 1}")
    ranks = program.rank[asked]
    if not (ranks >= 0).any():
        part = machine.describe_pes(program.pe)
        raise InputError(f"none of the PEs selected takes part in this run, only {part}")
    return ranks[ranks >= 0]


def _plan(timeline: Timeline, ranks: np.ndarray, max_events: int) -> _Plan:
    program = timeline.program
    tracks = tuple(class_tracks(program, cls) for cls in range(len(program.trace.classes)))
    slices_of = np.array([sum(map(len, t.of_command)) for t in tracks], np.int64)[program.class_of]
    sizes = np.diff(program.out)
    memories_of = _memories(timeline, ranks)
    memories = memory_counters(timeline, {m for found in memories_of for m in found})
    shown: dict[int, Counter] = {}
    counters: list[tuple[Counter, ...]] = []
    maker, left = PeCounters(timeline), max_events
    for rank, used in zip(ranks.tolist(), memories_of, strict=True):
        left -= int(slices_of[rank])
        if left < 0:
            break
        own = tuple(maker.of(rank))
        new = {memory: memories[memory] for memory in used if memory not in shown}
        left -= sum(len(c.times) for c in (*own, *new.values()))
        if left < 0:
            break
        shown |= new
        counters.append(own)
    n_commands, n_slices = np.zeros_like(sizes), np.zeros_like(slices_of)
    fit = ranks[: len(counters)]
    n_commands[fit], n_slices[fit] = sizes[fit], slices_of[fit]
    if not counters:
        fit, counters = ranks[:1], [()]
        until = np.cumsum([len(t) for t in tracks[program.class_of[fit[0]]].of_command])
        count = int(np.searchsorted(until, max_events, side="right"))
        n_commands[fit], n_slices[fit] = count, until[count - 1] if count else 0
    return _Plan(
        tracks, fit, n_commands, n_slices, tuple(counters), tuple(shown[m] for m in sorted(shown)),
        int(slices_of[ranks].sum()),
    )  # fmt: skip


def _memories(timeline: Timeline, ranks: np.ndarray) -> list[set[int]]:
    """Return the memories that each PE uses."""
    program = timeline.program
    found: dict[int, set[int]] = {}
    for cls in np.unique(program.class_of[ranks]).tolist():
        mine = ranks[program.class_of[ranks] == cls]
        _, addresses = requests_of(program, mine)
        found.update(zip(mine.tolist(), map(set, (addresses >> ADDRESS_BITS).tolist()), strict=True))
    return [found[rank] for rank in ranks.tolist()]


# ---------------------------------------------------------------- writing
class _Drawing:
    """Writes what a plan says."""

    def __init__(self, timeline: Timeline, plan: _Plan, writer: PacketWriter) -> None:
        self._timeline, self._plan, self._writer = timeline, plan, writer
        self._program = timeline.program
        self._trace = timeline.program.trace
        self._title = f"{self._trace.kernel} on {self._program.machine.name}"
        self.flows = 0
        """Flows written so far."""

    def draw(self) -> None:
        """Write the whole trace."""
        self._writer.begin(f"{self._title}: {NOTE}")
        self._draw_run()
        for rank, counters in zip(self._plan.ranks.tolist(), self._plan.counters, strict=True):
            self._describe_pe(rank, counters)
        for cls in np.unique(self._program.class_of[self._plan.ranks]).tolist():
            self._draw_class(cls)

    def _draw_run(self) -> None:
        """Write the first process: one slice for the whole run, and the counters of what PEs share."""
        machine, span, uuid = self._program.machine, self._timeline.makespan_ps, _UUIDS_A_PROCESS
        self._writer.process(uuid, machine.n_pes + 1, f"{self._title} ({NOTE})", 0)
        self._writer.track(uuid + 1, uuid, "run", 0)
        facts: Facts = {"note": NOTE, "machine": machine.name, "machine_sha256": machine.sha256}
        facts |= {"makespan_ps": span, "pes_shown": len(self._plan.ranks), "pes_in_run": self._program.n_ranks}
        self._writer.slices(self._trace.kernel, "run", facts).write([uuid + 1], 0, span, {})
        self._draw_counters(self._plan.memories, uuid, 1)

    def _describe_pe(self, rank: int, counters: tuple[Counter, ...]) -> None:
        """Write a PE's process, its tracks and its counters."""
        pe, uuid = int(self._program.pe[rank]), self._uuid(rank)
        tracks = self._plan.tracks[self._program.class_of[rank]].names
        self._writer.process(uuid, pe + 1, self._program.machine.pe_name(pe), pe + 1)
        for k, name in enumerate(tracks, start=1):
            self._writer.track(uuid + k, uuid, name, k)
        self._draw_counters(counters, uuid, len(tracks))

    def _draw_counters(self, counters: Iterable[Counter], parent: int, n_tracks: int) -> None:
        """Write counters as the tracks that follow the first ``n_tracks`` of a process."""
        for k, counter in enumerate((c for c in counters if len(c.times)), start=n_tracks + 1):
            self._writer.counter_track(parent + k, parent, counter.name, k, counter.is_bytes)
            for time, value in zip(counter.times.tolist(), counter.values.tolist(), strict=True):
                self._writer.counter_value(parent + k, time, value)

    def _draw_class(self, cls: int) -> None:
        """Write the slices of a class: those of a command on all PEs, then the next command's, as they share facts."""
        recorded, of_command = self._trace.classes[cls], self._plan.tracks[cls].of_command
        mine = self._plan.ranks[self._program.class_of[self._plan.ranks] == cls]
        step = max(_BATCH // max(len(recorded.commands), 1), 1)
        for first in range(0, len(mine), step):
            batch = mine[first : first + step]
            found = ClassSlices(self._timeline, batch)
            for index in range(int(self._plan.n_commands[batch[0]])):
                command = recorded.commands[index]
                name, facts = slice_name(self._trace, command), common_facts(self._trace, recorded, index)
                slices = self._writer.slices(name, command.op, facts)
                for each in found.of_command(index):
                    first_track = self._uuid(each.rank) + 1
                    flow_out, flow_in = self._flow(each, command)
                    uuids = [first_track + track for track in of_command[index]]
                    slices.write(uuids, each.start, each.end, each.facts, flow_out, flow_in)

    def _flow(self, each: Slice, command: Command) -> tuple[int, int]:
        """Return the ids of the flows out of a slice and into it: the SEND's place plus 1; 0 unless both ends show."""
        if each.partner is None or each.partner[1] >= self._plan.n_commands[each.partner[0]]:
            return 0, 0
        if command.op == "recv":
            return 0, self._place(*each.partner) + 1
        self.flows += 1
        return self._place(each.rank, each.index) + 1, 0

    def _place(self, rank: int, index: int) -> int:
        return int(self._program.out[rank]) + index

    def _uuid(self, rank: int) -> int:
        """Return the uuid of a PE's process; those of its tracks follow."""
        return (int(self._program.pe[rank]) + 2) * _UUIDS_A_PROCESS
