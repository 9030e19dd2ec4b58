"""Times of collectives between SIPs, by hand: figures chosen so that a byte takes a whole number of picoseconds."""

from fractions import Fraction

import pytest

import kernbench as kb
from kernbench.errors import InputError, TopologyError
from kernbench.simulate.launch.collective import OPERATIONS, collective_time

FIGURES = {
    "collective.latency": "8 us", "collective.low_latency": 0.25, "collective.bulk_latency": "16 us",
    "collective.achievable": 0.5, "collective.point_to_point": 0.8,
    "system.sips.link.bandwidth": "100 GB/s", "system.sips.link.latency": "1 us",
}  # fmt: skip
TWO = kb.load_machine("h200x2", FIGURES)
EIGHT = kb.load_machine("mi300x8", FIGURES)
US = 10**6
FULL = 10  # picoseconds of a byte on a full link


def of_arrangement(arrangement, n):
    return kb.load_machine("h200x2", FIGURES | {"system.sips.columns": n, "system.sips.arrangement": arrangement})


@pytest.mark.parametrize(
    ("operation", "sent", "hops"),
    [("all_reduce", 1, 2), ("reduce_scatter", Fraction(1, 2), 1), ("all_gather", 1, 1), ("send_recv", 1, 1)],
)
def test_two_sips_few_bytes(operation, sent, hops):
    found = collective_time(TWO, operation, 1000)
    assert found.ps == 8 * US + hops * US + 1000 * sent * FULL * 4
    assert (found.protocol, found.links, found.sent_nbytes) == ("low-latency", 1, 1000 * sent)


@pytest.mark.parametrize(
    ("operation", "sent", "hops", "share"),
    [
        ("all_reduce", 1, 2, 0.5), ("reduce_scatter", 0.5, 1, 0.5), ("all_gather", 1, 1, 0.5),
        ("send_recv", 1, 1, 0.8),
    ],
)  # fmt: skip
def test_two_sips_many_bytes(operation, sent, hops, share):
    found = collective_time(TWO, operation, 10**9)
    assert found.ps == 16 * US + hops * US + 10**9 * sent * FULL / share
    assert found.protocol == "bulk"
    assert found.wire_ps == 10**9 * sent * FULL


@pytest.mark.parametrize("machine", [TWO, EIGHT, of_arrangement("ring", 4), of_arrangement("row", 3)])
def test_a_copy_has_neither_protocol(machine):
    found = collective_time(machine, "copy", 8 * 10**6)
    assert (found.ps, found.protocol, found.links) == (US + 10**8, "copy", 1)


@pytest.mark.parametrize(
    ("machine", "n", "links", "gather_hops"),
    [(EIGHT, 8, 7, 1), (of_arrangement("ring", 4), 4, 2, 3), (of_arrangement("row", 4), 4, 1, 3)],
)
def test_more_sips_use_the_links_that_they_have(machine, n, links, gather_hops):
    nbytes = 7 * 8 * 10**6
    gather, reduce = (collective_time(machine, name, nbytes) for name in ("all_gather", "all_reduce"))
    assert gather.sent_nbytes == (n - 1) * nbytes
    assert gather.ps == (16 + gather_hops) * US + (n - 1) * nbytes * FULL * 2 // links
    assert reduce.sent_nbytes == 2 * (n - 1) * nbytes // n
    assert reduce.ps == (16 + 2 * gather_hops) * US + 2 * (n - 1) * nbytes // n * FULL * 2 // links


def test_fewer_of_a_fully_connected_machine_use_fewer_links():
    assert collective_time(EIGHT, "all_gather", 100, world=3).links == 2


def test_a_collective_takes_no_longer_for_fewer_bytes_and_never_less_than_the_links_need():
    for operation in OPERATIONS:
        for machine in (TWO, EIGHT):
            times = [collective_time(machine, operation, n) for n in (0, 1, 1000, 10**5, 10**6, 10**7, 10**9)]
            assert [t.ps for t in times] == sorted(t.ps for t in times)
            assert all(t.ps >= t.wire_ps for t in times)


def test_a_shard_of_all_reduce_is_a_reduce_scatter_and_a_gather():
    """The bytes of the two halves add up to those of the whole."""
    n = 8 * 10**6
    whole, scatter = (collective_time(EIGHT, name, n).sent_nbytes for name in ("all_reduce", "reduce_scatter"))
    assert whole == scatter + collective_time(EIGHT, "all_gather", n // 8).sent_nbytes


def test_one_sip_sends_nothing():
    one = collective_time(kb.load_machine("h200"), "all_reduce", 10**6)
    assert (one.ps, one.sent_nbytes, one.protocol) == (0, 0, "none")
    assert collective_time(EIGHT, "all_gather", 10**6, world=1).ps == 0


def test_the_slowest_link_holds_up_all():
    slow = kb.load_machine(
        "mi300x8", FIGURES | {"links": [{"from": "sip2", "to": "sip5", "bandwidth": "50 GB/s", "latency": "3 us"}]}
    )
    found, usual = (collective_time(m, "all_gather", 7 * 10**8) for m in (slow, EIGHT))
    assert found.ps - 19 * US == 2 * (usual.ps - 17 * US)


def test_the_two_gpus_of_h200x2_are_those_of_h200():
    """Each machine file stands on its own: figures that change in the one are copied to the other."""
    one, two = (kb.load_machine(name).spec.model_dump() for name in ("h200", "h200x2"))
    assert {k: one[k] for k in ("sip", "cube", "pe", "launch")} == {k: two[k] for k in ("sip", "cube", "pe", "launch")}


def test_distance_counts_hops_of_a_send():
    far, near = (collective_time(TWO, "send_recv", 100, distance=d).ps for d in (3, 1))
    assert far - near == 2 * US


@pytest.mark.parametrize(
    ("machine", "arguments", "message"),
    [
        (TWO, ("all_gathr", 1), "unknown collective 'all_gathr' .*did you mean 'all_gather'"),
        (TWO, ("all_gather", -1), "-1 bytes"),
        (TWO, ("all_gather", 1, 3), "3 SIPs cannot take part in a collective on h200x2, which has 2"),
        (TWO, ("all_gather", 1, 0), "0 SIPs"),
        (kb.load_machine("mi250x"), ("all_gather", 1), "mi250x says nothing of collectives .* 'collective: {latency: "),
    ],
)
def test_errors_say_what_would_be_right(machine, arguments, message):
    with pytest.raises(InputError, match=message):
        collective_time(machine, *arguments)


@pytest.mark.parametrize(
    ("machine", "changes", "message"),
    [
        ("h200x2", {"collective.bulk_latency": "1 us"}, "collective.bulk_latency: is below collective.latency"),
        ("h200x2", {"collective.low_latency": 0.9}, "collective.low_latency: is above collective.achievable"),
        ("h200x2", {"collective.low_latency": 0}, "collective.low_latency: expected a share"),
        ("h200x2", {"collective.latancy": "1 us"}, r"collective.latancy: unknown key \(did you mean 'latency'"),
        ("h200x2", {"collective.point_to_point": None}, "collective.point_to_point: missing"),
        ("sip4_grid4x4_pe8", {"collective": {}}, "collective"),
    ],
)
def test_faults_of_a_machine_file(machine, changes, message):
    with pytest.raises(TopologyError, match=message):
        kb.load_machine(machine, changes)


def test_a_mesh_has_no_collectives_of_this_kind():
    section = {"latency": "8 us", "low_latency": 0.2, "bulk_latency": "9 us", "achievable": 0.5, "point_to_point": 0.8}
    with pytest.raises(TopologyError, match="collective: only machines whose PEs hold workgroups"):
        kb.load_machine("row4_pe8", {"collective": section})
