"""What a memory gives, against what load ports, links and loads in flight can take."""

from __future__ import annotations

import numpy as np

from kernbench.lint.report import MemoryBalance
from kernbench.machine import Machine
from kernbench.simulate.costs import PS


def memory_balance(machine: Machine) -> MemoryBalance:
    """Hold one memory's bandwidth against the ports, links and trips of the PEs that share it.

    A load keeps at most ``outstanding`` bytes on their way, so that it gets no more than ``outstanding / trip``, with
    the trip of the route there, the memory and the route back (``docs/timing-model.md``). Bytes in flight are
    bandwidth times the trip to the nearest memory.
    """
    memory, load = machine.memory, machine.pe.load
    in_sip = machine.memory_scope == "sip"
    pes = machine.pes_per_cube * (machine.cubes_per_sip if in_sip else 1)
    bandwidth = memory.bandwidth * (memory.achievable if machine.holds_workgroups else 1)
    queues = 1 if machine.holds_workgroups else load.queues  # workgroups share the port and are not held to queues
    local = memory.latency + (load.latency if machine.holds_workgroups else 0)
    farthest = local + (0 if machine.holds_workgroups else _longest_route_ps(machine))
    caches = {}
    if machine.spec.cube.cache is not None:
        caches["cube"] = machine.spec.cube.cache.bandwidth * (machine.cubes_per_sip if in_sip else 1)
    if machine.spec.sip.cache is not None and in_sip:
        caches["sip"] = machine.spec.sip.cache.bandwidth
    return MemoryBalance(
        owner="SIP" if in_sip else "CUBE",
        bandwidth=bandwidth,
        pes=pes,
        ports=pes * queues * load.bandwidth,
        links_out=_links_out(machine, in_sip),
        local_trip_ps=local,
        farthest_trip_ps=farthest,
        local_load=load_bandwidth(machine, local),
        farthest_load=load_bandwidth(machine, farthest),
        all_loads=pes * queues * load_bandwidth(machine, local),
        in_flight=bandwidth * local / PS,
        in_flight_pe=bandwidth * local / PS / pes,
        cache_bandwidth=caches,
    )


def load_bandwidth(machine: Machine, trip_ps: int) -> float:
    """Bytes/s of one load whose round trip takes so long: the port's, or as many as may be outstanding in a trip."""
    load = machine.pe.load
    if load.outstanding is None or trip_ps == 0:
        return load.bandwidth
    return min(load.bandwidth, load.outstanding * PS / trip_ps)


def _longest_route_ps(machine: Machine) -> int:
    """Latency of the longest route from a node to where it enters a memory, and back."""
    network = machine.network
    nodes, memories = np.arange(network.n_nodes), np.arange(network.n_memories)
    entry = network.entry_node(nodes[:, None], memories[None, :])
    there = network.route_latency[nodes[:, None], entry]
    back = network.route_latency[entry, nodes[:, None]]
    return int((there + back).max())


def _links_out(machine: Machine, in_sip: bool) -> tuple[int, int] | None:
    """Least and most bytes/s over the links that lead out of a CUBE, or of a SIP."""
    network = machine.network
    count, links = (
        (machine.n_sips, slice(0, network.n_sip_links))
        if in_sip
        else (machine.n_cubes, slice(network.n_sip_links, network.n_shared))
    )
    if links.start == links.stop:
        return None
    out = np.zeros(count, np.int64)
    np.add.at(out, network.link_ends[links, 0], network.link_bandwidth[links])
    return int(out.min()), int(out.max())
