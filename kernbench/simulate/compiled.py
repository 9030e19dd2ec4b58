"""The compiled engine: prepares flat arrays, runs :func:`kernbench.simulate.core.run` in slices, reads the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.machine.network import OPPOSITE
from kernbench.simulate.program import Kind, Program, Wait
from kernbench.simulate.timeline import Hops, Timeline, stuck_error

_SLICE = 200_000
"""Events between two looks at the clock and at Ctrl-C: some tens of milliseconds."""


class Workspace:
    """Memory for the columns of one timeline after the other: fresh pages cost a tenth of a long run.

    A timeline made in a workspace is true until the next one is made there.
    """

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def column(self, name: str, size: int) -> np.ndarray:
        """Return int64[size], with whatever it holds from before."""
        held = self._held.get(name)
        if held is None or len(held) < size:
            held = self._held[name] = np.empty(size, np.int64)
        return held[:size]


def run_compiled(
    program: Program, progress: Callable[[int, int], None] | None = None, workspace: Workspace | None = None
) -> Timeline:
    """Time ``program`` with the compiled core, in fresh memory unless a workspace is given.

    Raises
    ------
    DeadlockError
        If PEs wait for one another.
    """
    from kernbench.simulate import core

    run: Callable[..., int] = core.run
    machine, network = program.machine, program.machine.network
    memory = machine.memory
    figures = program.figures
    state = _State(program, workspace or Workspace())
    lanes = np.bincount(program.class_of, minlength=len(program.class_start) - 1).astype(np.int64)
    wait_on = np.where(program.wait_kind == Wait.ENGINE_ORDER, ~program.wait_on, program.wait_on)
    fixed: tuple[Any, ...] = (
        program.class_start, program.kind, program.duration, program.body, program.tail, program.nbytes,
        program.direction, program.message, program.column, program.offset,
        program.engines, program.wait_start, wait_on, program.slot_start, program.slot_on,
        program.sends, program.send_start, program.recvs, program.recv_start,
        program.pe, program.rank, program.class_of, program.lane, program.out,
        program.lane_values, program.lane_start, lanes,
        network.peer, network.link_of, OPPOSITE, figures.link_num, figures.link_den, figures.link_latency,
        figures.message_latency,
        network.node_of_pe, network.memory_of_node, network.next_node, network.next_link, figures.route_latency,
        machine.cubes_per_sip, machine.memory_scope == "sip",
        memory.channels, memory.interleave, figures.channel_num, figures.channel_den, figures.memory_latency_ps,
        figures.outstanding, figures.issue_ps, figures.depth,
    )  # fmt: skip
    total = expected_events(program)
    while True:
        state.make_room()
        waiting = run(*fixed, *state.arrays(), _SLICE)
        if progress is not None:
            progress(min(int(state.counters[2]), total), total)
        if waiting == 0:
            break
    sizes = np.diff(program.class_start)[program.class_of]
    if (state.pointer < sizes).any() or (state.end < 0).any():
        raise stuck_error(program, state.pointer, state.held)
    return Timeline(
        program, "compiled", state.issue, state.start, state.end, state.served,
        state.memory_busy, state.link_busy, state.link_bytes, state.hops(),
    )  # fmt: skip


def expected_events(program: Program) -> int:
    """Requests of shared things, counting a remote access once: what progress is measured against."""
    shared = ~np.isin(program.kind, (Kind.WORK, Kind.SEND, Kind.RECV))
    per_class = np.add.reduceat(np.append(shared.astype(np.int64), 0), program.class_start[:-1])
    per_class[np.diff(program.class_start) == 0] = 0
    return max(int(per_class[program.class_of].sum()), 1)


class _State:
    """What changes while the core runs."""

    def __init__(self, program: Program, workspace: Workspace) -> None:
        machine, network = program.machine, program.machine.network
        pe = machine.pe
        ranks = program.n_ranks
        self.memory_free = np.zeros(network.n_memories * machine.memory.channels, np.int64)
        self.memory_busy = np.zeros_like(self.memory_free)
        self.link_free = np.zeros(network.n_links, np.int64)
        self.link_busy = np.zeros_like(self.link_free)
        self.link_bytes = np.zeros_like(self.link_free)
        columns = (workspace.column(name, program.n_commands) for name in ("issue", "start", "end", "served"))
        self.issue, self.start, self.end, self.served = columns
        for column in (self.start, self.end, self.served):  # issue is set of each command as it is issued
            column.fill(-1)
        self.pointer = np.zeros(ranks, np.int64)
        self.next_issue = np.zeros(ranks, np.int64)
        self.held = np.full(ranks, -1, np.int64)
        engines = max((len(c.stream.by_engine) for c in program.trace.classes), default=1)
        longest = int(np.diff(program.class_start).max(initial=1))
        # A queue holds at most `queue_depth` commands that are issued and not started; one more is being tried.
        self.window = np.zeros((ranks, min(engines * program.figures.queue_depth + 1, longest)), np.int32)
        self.window_size = np.zeros(ranks, np.int64)
        self.window_engines = np.zeros(ranks, np.int64)
        events = ranks * (pe.load.queues + pe.store.queues + 9)
        self.heap_time = np.zeros(events, np.int64)
        self.heap_key = np.zeros(events, np.int64)
        self.heap_slot = np.zeros(events, np.int32)
        self.event_node = np.zeros(events, np.int32)
        self.event_tail = np.zeros(events, np.int64)
        self.free_slots = np.arange(events, dtype=np.int32)
        self.counters = np.array([0, events, 0, 0], np.int64)
        self.stack = np.zeros(ranks, np.int64)
        self.on_stack = np.zeros(ranks, np.bool_)
        self.hop_place, self.hop_begin = np.empty(0, np.int64), np.empty(0, np.int64)
        self.hop_link = np.empty(0, np.int32)

    def make_room(self) -> None:
        """See to it that hops can be noted: loads and stores on links are found only as they come."""
        room = len(self.hop_place)
        if self.counters[3] == room:
            more = max(room, 1 << 10)
            self.hop_place, self.hop_link, self.hop_begin = (
                np.concatenate([column, np.empty(more, column.dtype)])
                for column in (self.hop_place, self.hop_link, self.hop_begin)
            )

    def hops(self) -> Hops:
        """Return the hops noted."""
        n = self.counters[3]
        return Hops(self.hop_place[:n].copy(), self.hop_link[:n].copy(), self.hop_begin[:n].copy())

    def arrays(self) -> tuple[np.ndarray, ...]:
        """In the order of the core's parameters."""
        return (
            self.memory_free, self.memory_busy, self.link_free, self.link_busy, self.link_bytes,
            self.issue, self.start, self.end, self.served,
            self.pointer, self.next_issue, self.held, self.window, self.window_size, self.window_engines,
            self.heap_time, self.heap_key, self.heap_slot, self.event_node, self.event_tail,
            self.free_slots, self.counters, self.stack, self.on_stack,
            self.hop_place, self.hop_link, self.hop_begin,
        )  # fmt: skip
