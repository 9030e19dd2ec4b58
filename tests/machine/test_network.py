"""Channels, links and routes."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.machine import DIRECTIONS, OPPOSITE, Machine, Network, load_machine
from kernbench.machine.arrangement import Grid
from kernbench.machine.network import network_of

from .helpers import MEMORY, machine

LINES = st.tuples(st.sampled_from(["row", "ring", "fully_connected"]), st.integers(1, 5), st.just(1))
SHEETS = st.tuples(st.sampled_from(["mesh", "torus"]), st.integers(1, 4), st.integers(1, 4))
MACHINES = st.builds(machine, LINES | SHEETS, LINES | SHEETS, st.tuples(st.integers(1, 3), st.integers(1, 3)))


def axis_distance(a: int, b: int, size: int, wraps: bool) -> int:
    return min((a - b) % size, (b - a) % size) if wraps else abs(a - b)


def distance(grid: Grid, a: int, b: int) -> int:
    """Links between two positions, from first principles."""
    if grid.direct:
        return int(a != b)
    (ay, ax), (by, bx) = divmod(a, grid.columns), divmod(b, grid.columns)
    return axis_distance(ax, bx, grid.columns, grid.wraps[0]) + axis_distance(ay, by, grid.rows, grid.wraps[1])


@settings(deadline=None, max_examples=60)
@given(MACHINES)
def test_each_route_arrives_by_the_shortest_way(m: Machine):
    net, (sips, cubes, _) = m.network, m.grids
    for a, b in itertools.product(range(m.n_cubes), repeat=2):
        route = net.route(a, b)
        (sa, ca), (sb, cb) = divmod(a, m.cubes_per_sip), divmod(b, m.cubes_per_sip)
        assert len(route) == distance(sips, sa, sb) + distance(cubes, ca, cb)
        assert net.route_latency[a, b] == net.link_latency[route].sum()
        assert all(link < net.n_shared for link in route)


@settings(deadline=None, max_examples=60)
@given(MACHINES)
def test_a_route_crosses_sips_first_and_each_link_begins_where_the_last_ended(m: Machine):
    net = m.network
    for a, b in itertools.product(range(m.n_cubes), repeat=2):
        at = a
        kinds = []
        for link in net.route(a, b):
            start, end = net.link_ends[link].tolist()
            kinds.append(link >= net.n_sip_links)
            if kinds[-1]:
                assert start == at
                at = end
            else:
                assert start == at // m.cubes_per_sip
                at = end * m.cubes_per_sip + at % m.cubes_per_sip
        assert at == b
        assert kinds == sorted(kinds)


@settings(deadline=None, max_examples=60)
@given(MACHINES)
def test_each_channel_has_an_opposite_that_leads_back(m: Machine):
    net = m.network
    pes, directions = np.nonzero(net.peer >= 0)
    assert (net.peer[net.peer[pes, directions], OPPOSITE[directions]] == pes).all()
    assert ((net.link_of >= 0) == (net.peer >= 0)).all()


@settings(deadline=None, max_examples=60)
@given(MACHINES)
def test_each_channel_uses_the_link_between_its_two_places(m: Machine):
    net = m.network
    names = net.link_names()
    assert len(set(names)) == len(names) == net.n_links
    for pe, direction in zip(*np.nonzero(net.peer >= 0), strict=True):
        parts = 3 if direction < 4 else 2 if direction < 8 else 1
        ends = [".".join(m.pe_name(int(p)).split(".")[:parts]) for p in (pe, net.peer[pe, direction])]
        assert names[net.link_of[pe, direction]] == " -> ".join(ends)
        assert net.link_shared[net.link_of[pe, direction]] == (parts < 3)


def peers(m: Machine, pe: int) -> dict[str, str]:
    return {d: m.pe_name(p) for d, p in zip(DIRECTIONS, m.network.peer[pe].tolist(), strict=True) if p >= 0}


def test_north_is_a_row_less_and_east_a_column_more():
    m = load_machine("sip4_grid4x4_pe8")
    assert peers(m, 1 * 128 + 5 * 8 + 5) == {
        "intra_N": "sip1.cube5.pe1",
        "intra_E": "sip1.cube5.pe6",
        "intra_W": "sip1.cube5.pe4",
        "N": "sip1.cube1.pe5",
        "E": "sip1.cube6.pe5",
        "S": "sip1.cube9.pe5",
        "W": "sip1.cube4.pe5",
        "sip_E": "sip2.cube5.pe5",
        "sip_W": "sip0.cube5.pe5",
    }


@pytest.mark.parametrize(
    ("arrangement", "columns", "east_of_last", "west_of_first"),
    [
        ("row", 4, None, None),
        ("ring", 4, 0, 3),
        ("ring", 3, 0, 2),
        ("ring", 2, None, None),
        ("fully_connected", 4, 0, 3),
        ("fully_connected", 2, None, None),
        ("torus", 3, 0, 2),
        ("torus", 2, None, None),
        ("mesh", 3, None, None),
        ("ring", 1, None, None),
    ],
)
def test_an_axis_wraps_only_with_three_positions_or_more(arrangement, columns, east_of_last, west_of_first):
    near = Grid(arrangement, columns).neighbours()
    assert near[-1, 1] == (-1 if east_of_last is None else east_of_last)
    assert near[0, 3] == (-1 if west_of_first is None else west_of_first)
    assert (near[:, [0, 2]] == -1).all()
    assert near[:-1, 1].tolist() == list(range(1, columns))


@pytest.mark.parametrize(
    ("arrangement", "columns", "rows", "links"),
    [("row", 4, 1, 6), ("ring", 4, 1, 8), ("ring", 2, 1, 2), ("mesh", 3, 2, 14), ("torus", 3, 3, 36),
     ("torus", 2, 2, 8), ("fully_connected", 5, 1, 20), ("row", 1, 1, 0)],
)  # fmt: skip
def test_each_pair_of_neighbours_has_one_link_a_direction(arrangement, columns, rows, links):
    pairs = Grid(arrangement, columns, rows).pairs().tolist()
    assert len(pairs) == len({tuple(p) for p in pairs}) == links
    assert {(b, a) for a, b in pairs} == {(a, b) for a, b in pairs}


def test_a_tie_goes_east_then_south():
    step = Grid("torus", 4, 4).next_step()
    assert step[0, 2] == 1
    assert step[0, 8] == 4
    assert step[0, 10] == 1


def test_links_of_cubes_and_sips_are_shared_and_those_of_pes_are_not():
    m = load_machine("sip4_grid4x4_pe8")
    net = m.network
    east, sip_east, intra_east = (DIRECTIONS.index(d) for d in ("E", "sip_E", "intra_E"))
    assert len(set(net.link_of[:8, east])) == 1
    assert len(set(net.link_of[:128, sip_east])) == 1
    private = net.link_of[:, :4]
    assert len(set(private[private >= 0])) == (private >= 0).sum()
    assert private[0, 1] == net.link_of[0, intra_east]
    assert net.n_links == 8 + 4 * 48 + 64 * 20


def test_links_carry_their_level_s_figures():
    net = load_machine("sip4_grid4x4_pe8").network
    by_name = dict(zip(net.link_names(), zip(net.link_bandwidth, net.link_latency, strict=True), strict=True))
    assert by_name["sip3 -> sip0"] == (64 * 10**9, 500_000)
    assert by_name["sip0.cube0 -> sip0.cube1"] == (256 * 10**9, 20_000)
    assert by_name["sip0.cube0.pe0 -> sip0.cube0.pe4"] == (128 * 10**9, 5_000)
    assert (net.link_num * net.link_bandwidth == 10**12 * net.link_den).all()
    assert net.route_latency[0, 17] == 520_000


def test_a_link_of_its_own_changes_one_direction_of_one_link():
    links = [
        {"from": "sip0.cube1", "to": "sip0.cube2", "bandwidth": "64 GB/s", "latency": "40 ns"},
        {"from": "sip1.cube2.pe3", "to": "sip1.cube2.pe2", "latency": "7 ns"},
        {"from": "sip2", "to": "sip1", "bandwidth": "8 GB/s"},
    ]
    sips = ("ring", 3, 1)
    base, net = machine(sips=sips).network, machine(sips=sips, links=links).network
    differs = np.nonzero((base.link_bandwidth != net.link_bandwidth) | (base.link_latency != net.link_latency))[0]
    names = net.link_names()
    figures = {names[i]: (int(net.link_bandwidth[i]), int(net.link_latency[i])) for i in differs}
    assert figures == {
        "sip0.cube1 -> sip0.cube2": (64 * 10**9, 40_000),
        "sip1.cube2.pe3 -> sip1.cube2.pe2": (128 * 10**9, 7_000),
        "sip2 -> sip1": (8 * 10**9, 500_000),
    }
    assert net.route_latency[0, 3] == 80_000
    assert net.route_latency[3, 0] == 60_000


def test_fully_connected_cubes_are_one_hop_apart():
    net = machine(cubes=("fully_connected", 6, 1)).network
    assert all(len(net.route(a, b)) == 1 for a, b in itertools.permutations(range(6), 2))


def test_each_cube_has_its_memory():
    net = load_machine("sip4_grid4x4_pe8").network
    assert net.memory_of_node.tolist() == net.node_of_memory.tolist() == list(range(64))
    assert net.entry_node([3, 5], [9, 9]).tolist() == [9, 9]
    assert int(net.entry_node(3, 9)) == 9
    assert net.node_of_pe[[0, 7, 8, 511]].tolist() == [0, 0, 1, 63]


@pytest.fixture
def shared() -> Network:
    return machine(sips=("ring", 4, 1), **{"cube.memory": None, "sip.memory": MEMORY}).network


def test_a_shared_memory_is_local_to_every_cube_of_its_sip(shared):
    assert shared.memory_of_node.tolist() == [node // 4 for node in range(16)]
    assert shared.node_of_memory.tolist() == [0, 4, 8, 12]
    for node in range(16):
        assert shared.route(node, int(shared.entry_node(node, node // 4))) == []


def test_a_remote_shared_memory_is_reached_over_sip_links_only(shared):
    nodes, memories = np.meshgrid(np.arange(16), np.arange(4), indexing="ij")
    entries = shared.entry_node(nodes, memories)
    for node, memory in itertools.product(range(16), range(4)):
        route = shared.route(node, int(entries[node, memory]))
        assert len(route) == axis_distance(node // 4, memory, 4, wraps=True)
        assert all(link < shared.n_sip_links for link in route)


def test_arrays_have_the_promised_types():
    net = load_machine("row4_pe8").network
    for name in ("peer", "link_of", "node_of_pe", "memory_of_node", "node_of_memory", "next_link", "next_node"):
        array = getattr(net, name)
        assert array.dtype == np.int32, name
        assert array.flags.c_contiguous, name
    for name in ("link_bandwidth", "link_latency", "link_num", "link_den", "route_latency"):
        assert getattr(net, name).dtype == np.int64, name
    assert net.peer.shape == net.link_of.shape == (net.n_pes, 12) == (32, 12)
    assert net.next_link.shape == net.next_node.shape == net.route_latency.shape == (net.n_nodes,) * 2
    assert (np.diag(net.next_link) == -1).all()
    assert (np.diag(net.next_node) == -1).all()


def test_a_machine_of_one_pe_has_no_links():
    net = load_machine("pe1").network
    assert (net.n_links, net.n_memories, net.route(0, 0)) == (0, 1, [])
    assert (net.peer == -1).all()


def test_4096_pes_build_quickly_and_once():
    m = load_machine("grid16x32_pe8", {"links": [{"from": "sip0.cube0", "to": "sip0.cube1", "bandwidth": "255 GB/s"}]})
    start = time.perf_counter()
    net = network_of(m)
    taken = time.perf_counter() - start
    assert (net.n_pes, net.n_nodes) == (4096, 512)
    assert net.route_latency.max() == 46 * 20_000
    assert taken < 1.5  # about 0.1 s; the rest is for a busy machine
    assert m.network is net
