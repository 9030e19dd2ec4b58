"""Standard traffic patterns on a machine's own routes: which link each of them fills first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kernbench.lint.report import HotLink
from kernbench.machine import Machine, Network
from kernbench.machine.arrangement import EAST, SOUTH, Grid

Ints = NDArray[np.int64]
Flows = tuple[Ints, Ints]
"""Nodes that send, and the node to which each does."""


def hot_links(machine: Machine) -> tuple[HotLink, ...]:
    """Return each pattern that sends anything over links between CUBEs or SIPs, with its busiest link."""
    if not machine.network.n_shared:
        return ()
    names = machine.network.link_names()
    return tuple(_hot_link(machine.network, names, name, flows) for name, flows in patterns(machine) if len(flows[0]))


def patterns(machine: Machine) -> Iterator[tuple[str, Flows]]:
    """Yield the name and the flows of each pattern between CUBEs, or between the SIPs of a GPU-like machine.

    Flows of a node to itself are left out.
    """
    sips, cubes, _ = machine.grids
    nodes = np.arange(machine.n_cubes)
    if machine.holds_workgroups:  # what SIPs send one another enters and leaves them at one place
        nodes = nodes[:: machine.cubes_per_sip]
    else:
        yield "east neighbour", _within(machine, cubes.neighbours()[:, EAST])
        yield "south neighbour", _within(machine, cubes.neighbours()[:, SOUTH])
        yield "transpose", _within(machine, _transposed(cubes))
    sip, cube = np.divmod(nodes, machine.cubes_per_sip)
    near = sips.neighbours()[:, EAST].astype(np.int64)[sip]
    yield "next SIP", _flows(nodes, np.where(near < 0, nodes, near * machine.cubes_per_sip + cube))
    yield "opposite", _flows(nodes, nodes[::-1])
    n = len(nodes)
    yield "all to all", _flows(np.repeat(nodes, n), np.tile(nodes, n))
    yield "all to one", _flows(nodes, np.zeros(n, np.int64))
    yield "one to all", _flows(np.zeros(n, np.int64), nodes)


def link_flows(network: Network, flows: Flows) -> Ints:
    """Return how many flows pass each link between SIPs or CUBEs, by its id: int64[n_shared]."""
    at, goal = flows
    passed = np.zeros(network.n_shared, np.int64)
    while len(at):
        passed += np.bincount(network.next_link[at, goal], minlength=network.n_shared)
        at = network.next_node[at, goal].astype(np.int64)
        going = at != goal
        at, goal = at[going], goal[going]
    return passed


def _flows(start: Ints, goal: Ints) -> Flows:
    going = start != goal
    return start[going], goal[going]


def _within(machine: Machine, target: NDArray[np.integer]) -> Flows:
    """Flows from each CUBE to another of its SIP, by the target's number there; -1 sends nothing."""
    nodes = np.arange(machine.n_cubes)
    to = np.tile(target.astype(np.int64), machine.n_sips)
    return _flows(nodes, np.where(to < 0, nodes, nodes // machine.cubes_per_sip * machine.cubes_per_sip + to))


def _transposed(grid: Grid) -> Ints:
    """Position whose number is that of a position in the transposed grid: (r, c) to c x rows + r."""
    row, column = np.divmod(np.arange(grid.count), grid.columns)
    return column * grid.rows + row


def _hot_link(network: Network, names: list[str], pattern: str, flows: Flows) -> HotLink:
    passed = link_flows(network, flows)
    bandwidth = network.link_bandwidth[: network.n_shared]
    load = passed / bandwidth
    busiest = int(load.argmax())
    each = bandwidth[busiest] / passed[busiest]
    senders = len(np.unique(flows[0]))
    return HotLink(
        pattern=pattern,
        flows=len(flows[0]),
        senders=senders,
        hops=int(passed.sum()),
        link=names[busiest],
        link_flows=int(passed[busiest]),
        link_bandwidth=int(bandwidth[busiest]),
        over_mean=float(load[busiest] / load.mean()),
        flow_bandwidth=float(each),
        sender_bandwidth=float(each * len(flows[0]) / senders),
    )
