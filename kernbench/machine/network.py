"""A machine's links, routes and channels as flat arrays.

A *node* is a CUBE, counted through the system. A *channel* leads from a PE in one of twelve directions to its peer and
uses one link; a *route* leads from node to node and uses the links of CUBEs and SIPs. Link ids count the links between
SIPs first, then those between CUBEs, then those between PEs: a route's ids are below ``n_shared``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernbench.machine.arrangement import Grid
from kernbench.machine.model import Machine
from kernbench.machine.places import Place, parse_place
from kernbench.machine.schema import GridSpec, PeGridSpec
from kernbench.machine.units import rational

__all__ = ["DIRECTIONS", "OPPOSITE", "Network", "network_of", "rational"]

DIRECTIONS = (
    "intra_N", "intra_E", "intra_S", "intra_W", "N", "E", "S", "W", "sip_N", "sip_E", "sip_S", "sip_W",
)  # fmt: skip
"""Names of the channels that a PE may have; the position in this tuple is the direction's number."""
OPPOSITE: NDArray[np.int32] = np.array([2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9], np.int32)
"""Direction by which a peer answers."""

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Network:
    """Arrays of a machine's links. Nothing here depends on a kernel."""

    peer: Ints
    """[n_pes, 12]: PE reached by sending in a direction, -1 if there is no such channel."""
    link_of: Ints
    """[n_pes, 12]: link that the channel uses, -1 if there is no such channel."""
    link_bandwidth: Longs
    """[n_links]: bytes/s."""
    link_latency: Longs
    """[n_links]: ps."""
    link_num: Longs
    """[n_links]: n bytes occupy the link for ceil(n x link_num / link_den) ps."""
    link_den: Longs
    """[n_links]: see ``link_num``."""
    link_shared: NDArray[np.bool_]
    """[n_links]: whether the PEs of a CUBE or SIP share the link; a link between PEs belongs to its sender."""
    link_ends: Ints
    """[n_links, 2]: sender and receiver: SIPs below ``n_sip_links``, nodes below ``n_shared``, then PEs."""
    n_sip_links: int
    """Links between SIPs."""
    n_shared: int
    """Links between SIPs or CUBEs."""
    node_of_pe: Ints
    """[n_pes]: node of each PE."""
    memory_of_node: Ints
    """[n_nodes]: memory of each node: its own, or its SIP's."""
    node_of_memory: Ints
    """[n_memories]: a node local to the memory; the first of the SIP if shared. See ``entry_node``."""
    next_node: Ints
    """[n_nodes, n_nodes]: node after the first hop from row to column; -1 on the diagonal."""
    next_link: Ints
    """[n_nodes, n_nodes]: link of the first hop from row to column; -1 on the diagonal."""
    route_latency: Longs
    """[n_nodes, n_nodes]: sum of the latencies of the links from row to column, ps."""
    cubes_per_sip: int
    """Nodes in a SIP."""
    pes_per_cube: int
    """PEs of a node."""

    @property
    def n_pes(self) -> int:
        """Number of PEs."""
        return len(self.peer)

    @property
    def n_nodes(self) -> int:
        """Number of CUBEs in the system."""
        return len(self.next_node)

    @property
    def n_links(self) -> int:
        """Number of directed links."""
        return len(self.link_bandwidth)

    @property
    def n_memories(self) -> int:
        """Number of memories."""
        return len(self.node_of_memory)

    def route(self, a: int, b: int) -> list[int]:
        """Return the links from node ``a`` to node ``b``, in order; empty if they are the same.

        Routes are dimension-ordered: between SIPs along the row, then along the column, keeping the CUBE's index;
        then between CUBEs likewise. Where an axis wraps the shorter way is taken, and a tie goes east or south.
        """
        links = []
        while a != b:
            links.append(int(self.next_link[a, b]))
            a = int(self.next_node[a, b])
        return links

    def entry_node(self, node: ArrayLike, memory: ArrayLike) -> Ints:
        """Node at which a request from ``node`` enters ``memory``; both may be arrays.

        That is the memory's own CUBE. Every CUBE of a SIP is local to the SIP's shared memory, and a request from
        another SIP enters it at the CUBE of the same index as it left.
        """
        node, memory = np.asarray(node), np.asarray(memory)
        if self.n_memories == self.n_nodes:
            entry: Ints = np.broadcast_arrays(self.node_of_memory[memory], node)[0]
        else:
            entry = memory * self.cubes_per_sip + node % self.cubes_per_sip
        return np.array(entry, np.int32)

    def link_names(self) -> list[str]:
        """Return the name of each link, as ``sip0.cube1 -> sip0.cube2``."""
        return [
            f"{self._place(link, a)} -> {self._place(link, b)}" for link, (a, b) in enumerate(self.link_ends.tolist())
        ]

    def memory_names(self) -> list[str]:
        """Return the name of the place that owns each memory, as ``sip0.cube1``, or ``sip0`` if SIPs own them."""
        if self.n_memories == self.n_nodes:
            return [str(Place(*divmod(memory, self.cubes_per_sip))) for memory in range(self.n_memories)]
        return [str(Place(memory)) for memory in range(self.n_memories)]

    def _place(self, link: int, end: int) -> Place:
        if link < self.n_sip_links:
            return Place(end)
        if link < self.n_shared:
            return Place(*divmod(end, self.cubes_per_sip))
        node, pe = divmod(end, self.pes_per_cube)
        return Place(*divmod(node, self.cubes_per_sip), pe)


def network_of(machine: Machine) -> Network:
    """Build the network of a machine; built once for machines whose links are equal, whatever else differs."""
    return _network_of(_Wiring(machine))


class _Wiring:
    """What of a machine its network depends on; the rest may differ between two that are equal."""

    def __init__(self, machine: Machine) -> None:
        spec = machine.spec
        self.machine = machine
        self._key = (spec.system.sips, spec.sip.cubes, spec.cube.pes, spec.links, machine.memory_scope)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Wiring) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=8)
def _network_of(wiring: _Wiring) -> Network:
    machine = wiring.machine
    sips, cubes, pes = machine.grids
    ends = _link_ends(machine)
    counts = [len(pairs) for pairs in ends]
    peer = _peers(machine)
    bandwidth, latency = _figures(machine, ends)
    num, den = _fractions(bandwidth)
    next_node, next_link = _next_hops(sips, cubes, ends)
    nodes = np.arange(machine.n_cubes, dtype=np.int32)
    memory_of_node = nodes if machine.memory_scope == "cube" else (nodes // cubes.count).astype(np.int32)
    return Network(
        peer=peer,
        link_of=_channel_links(machine, peer, ends),
        link_bandwidth=bandwidth,
        link_latency=latency,
        link_num=num,
        link_den=den,
        link_shared=np.arange(sum(counts)) < counts[0] + counts[1],
        link_ends=np.concatenate(ends),
        n_sip_links=counts[0],
        n_shared=counts[0] + counts[1],
        node_of_pe=(np.arange(machine.n_pes) // pes.count).astype(np.int32),
        memory_of_node=memory_of_node,
        node_of_memory=np.unique(memory_of_node, return_index=True)[1].astype(np.int32),
        next_node=next_node,
        next_link=next_link,
        route_latency=_route_latency(next_node, next_link, latency),
        cubes_per_sip=cubes.count,
        pes_per_cube=pes.count,
    )


def _link_ends(machine: Machine) -> tuple[Ints, Ints, Ints]:
    """Sender and receiver of each link between SIPs, between nodes and between PEs, by their indices in the system."""
    sips, cubes, pes = machine.grids
    return sips.pairs(), _repeated(cubes, sips.count), _repeated(pes, machine.n_cubes)


def _repeated(grid: Grid, times: int) -> Ints:
    """Links of a grid that stands ``times`` over, its positions counted through."""
    first = np.arange(times, dtype=np.int32)[:, None, None] * grid.count
    return (first + grid.pairs()[None]).reshape(-1, 2).astype(np.int32)


def _peers(machine: Machine) -> Ints:
    """``Network.peer``: each level's neighbours, the indices at the other levels kept."""
    index = np.arange(machine.n_pes)
    stride = 1
    columns: dict[int, Ints] = {}
    for level in (2, 1, 0):
        grid = machine.grids[level]
        own = index // stride % grid.count
        near = grid.neighbours()[own].astype(np.int64)
        columns[level] = np.where(near < 0, -1, index[:, None] + (near - own[:, None]) * stride).astype(np.int32)
        stride *= grid.count
    return np.ascontiguousarray(np.concatenate([columns[2], columns[1], columns[0]], axis=1))


def _channel_links(machine: Machine, peer: Ints, ends: tuple[Ints, Ints, Ints]) -> Ints:
    """``Network.link_of``: the link between the places, at the channel's level, that the two PEs stand in."""
    pe_strides = (machine.cubes_per_sip * machine.pes_per_cube, machine.pes_per_cube, 1)
    links = np.full_like(peer, -1)
    first = 0
    for level, columns in ((0, slice(8, 12)), (1, slice(4, 8)), (2, slice(0, 4))):
        to, stride = peer[:, columns], pe_strides[level]
        here = np.arange(machine.n_pes)[:, None] // stride
        found = first + _search(ends[level], here, to // stride)
        links[:, columns] = np.where(to < 0, -1, found)
        first += len(ends[level])
    return links


def _search(pairs: Ints, start: NDArray[np.integer], end: NDArray[np.integer]) -> NDArray[np.intp]:
    """Position of each (start, end) in ``pairs``; anything where it is not there."""
    if not len(pairs):
        return np.zeros(np.broadcast(start, end).shape, np.intp)
    keys = pairs.astype(np.int64) @ np.array([2**32, 1])
    order = np.argsort(keys, kind="stable")
    wanted = start.astype(np.int64) * 2**32 + end
    return order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]


def _figures(machine: Machine, ends: tuple[Ints, Ints, Ints]) -> tuple[Longs, Longs]:
    """Bandwidth and latency of each link: its level's, unless the file gives the link its own."""
    spec = machine.spec
    levels: tuple[GridSpec | PeGridSpec, ...] = (spec.system.sips, spec.sip.cubes, spec.cube.pes)
    zipped = list(zip(levels, ends, strict=True))
    bandwidth = [np.full(len(e), g.link.bandwidth if g.link else 0, np.int64) for g, e in zipped]
    latency = [np.full(len(e), g.link.latency if g.link else 0, np.int64) for g, e in zipped]
    for link in spec.links:
        start, end = parse_place(link.start), parse_place(link.to)
        a, b = (np.array(_system_index(machine, place)) for place in (start, end))
        level, position = start.level, int(_search(ends[start.level], a, b))
        if link.bandwidth is not None:
            bandwidth[level][position] = link.bandwidth
        if link.latency is not None:
            latency[level][position] = link.latency
    return np.concatenate(bandwidth), np.concatenate(latency)


def _system_index(machine: Machine, place: Place) -> int:
    """Index of a place among those of its level in the whole system."""
    index = 0
    for level in range(place.level + 1):
        index = index * machine.grids[level].count + place[level]
    return index


def _fractions(bandwidth: Longs) -> tuple[Longs, Longs]:
    """``link_num`` and ``link_den``; few bandwidths differ."""
    figures, which = np.unique(bandwidth, return_inverse=True)
    pairs = np.array([rational(int(figure)) for figure in figures], np.int64).reshape(-1, 2)
    return pairs[which, 0], pairs[which, 1]


def _next_hops(sips: Grid, cubes: Grid, ends: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints]:
    """``Network.next_node`` and ``next_link``: to the right SIP first, then to the right CUBE."""
    sip, cube = np.divmod(np.arange(sips.count * cubes.count), cubes.count)
    sip_step = sips.next_step()[sip[:, None], sip[None, :]].astype(np.int64)
    cube_step = cubes.next_step()[cube[:, None], cube[None, :]].astype(np.int64)
    crossing = sip[:, None] != sip[None, :]
    node = np.where(crossing, sip_step * cubes.count + cube[:, None], sip[:, None] * cubes.count + cube_step)

    # Ids by table over one SIP's CUBEs: searching each of n_nodes**2 hops would take a second.
    sip_id, cube_id = _ids(sips), _ids(cubes)
    per_sip = len(ends[1]) // sips.count
    own = cube_id[cube[:, None], cube_step]
    between_cubes = np.where(own < 0, -1, len(ends[0]) + sip[:, None] * per_sip + own)
    link = np.where(crossing, sip_id[sip[:, None], sip_step], between_cubes)

    np.fill_diagonal(node, -1)
    np.fill_diagonal(link, -1)
    return node.astype(np.int32), link.astype(np.int32)


def _ids(grid: Grid) -> Ints:
    """[from, to] -> position in ``grid.pairs()``, -1 where no link joins the two."""
    pairs = grid.pairs()
    ids = np.full((grid.count, grid.count), -1, np.int32)
    ids[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
    return ids


def _route_latency(next_node: Ints, next_link: Ints, link_latency: Longs) -> Longs:
    """Sum along each route, doubling the hops covered each time round."""
    n = len(next_node)
    target = np.broadcast_to(np.arange(n), (n, n))
    at = np.where(next_node < 0, target, next_node)
    total = np.zeros((n, n), np.int64)
    if len(link_latency):
        total = np.where(next_link < 0, 0, link_latency[next_link])
    while (at != target).any():
        total = total + total[at, target]
        at = at[at, target]
    return total
