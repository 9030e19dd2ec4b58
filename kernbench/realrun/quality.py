"""Which measured times say nothing about a kernel: those of single launches that the host's pace shows in."""

from __future__ import annotations

from kernbench.realrun.records import RunRecord

MOST_SPREAD = 1.15
"""p90 / p10 of a single launch's repetitions above which the host is thought to show in it."""
MOST_BEYOND_GRAPH_US = 8.0
"""A single launch that takes so much longer than the same launch in a graph was waited for by the GPU."""
_SINGLE = ("cold", "partial", "reduce")


def unreliable(record: RunRecord) -> dict[str, str]:
    """Return the times of a record that no model of a GPU can predict, each with the reason.

    Launches that are shorter than the host needs to issue them measure the host. That shows in a wide spread, or
    against the same launch replayed from a graph, flush and all, where the host has no part.
    """
    found = {}
    graph = record.times.cold_graph
    for field in _SINGLE:
        time = getattr(record.times, field)
        if time is None:
            continue
        if time.p10 is not None and time.p90 is not None and time.p90 > MOST_SPREAD * time.p10:
            found[field] = f"host-bound: p90/p10 of its repetitions is above {MOST_SPREAD}"
        elif field != "reduce" and graph is not None and time.median > graph.median + MOST_BEYOND_GRAPH_US:
            found[field] = f"host-bound: more than {MOST_BEYOND_GRAPH_US:g} us above the same launch in a graph"
    return found
