"""The flat arrays of a Timeline, its program and its machine, in the order in which compiled readers take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernbench.machine.network import OPPOSITE
from kernbench.record.stream import Op
from kernbench.simulate.timeline import Timeline


def arrays_of(timeline: Timeline) -> tuple[Any, ...]:
    """Return what :func:`kernbench.simulate.held.held_back` and :func:`kernbench.simulate.walk.walk` take first."""
    p = timeline.program
    machine, network, figures = p.machine, p.machine.network, p.figures
    return (
        p.class_start, p.kind, p.duration, p.body, p.tail, p.nbytes, p.direction, p.message, p.column, p.offset,
        np.concatenate([c.stream.op == Op.VECTOR for c in p.trace.classes]),
        p.wait_start, p.wait_on, p.wait_kind, p.slot_start, p.slot_on, p.sends, p.send_start, p.recvs, p.recv_start,
        p.pe, p.rank, p.class_of, p.lane, p.out, p.lane_values, p.lane_start,
        np.bincount(p.class_of, minlength=len(p.class_start) - 1).astype(np.int64),
        network.peer, network.link_of, OPPOSITE, figures.link_num, figures.link_den, figures.link_latency,
        figures.message_latency, network.node_of_pe, network.memory_of_node, network.next_node, network.next_link,
        figures.route_latency, machine.cubes_per_sip, machine.memory_scope == "sip", network.n_memories,
        machine.memory.channels, machine.memory.interleave, figures.channel_num, figures.channel_den,
        figures.memory_latency_ps, figures.outstanding, figures.issue_ps, figures.depth,
        timeline.issue_ps, timeline.start_ps, timeline.end_ps, timeline.served_ps, *timeline.hops,
    )  # fmt: skip
