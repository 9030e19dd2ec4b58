"""Time of a collective between the SIPs of a machine, such as GPUs joined by links, from the figures of its file.

All ranks take part with buffers of one size, and begin together. What one sends decides:

============== ==================== =========================================== ==========================
operation      bytes that a rank    hops one after the other: where each SIP    ``nbytes`` is
               of n sends           is joined to each, and else (a ring)
============== ==================== =========================================== ==========================
all_reduce     2 (n - 1) / n nbytes 2, 2 (n - 1)                                the input of each rank
reduce_scatter (n - 1) / n nbytes   1, n - 1                                    the input of each rank
all_gather     (n - 1) nbytes       1, n - 1                                    the input of each rank
send_recv      nbytes               1, 1                                        what each rank sends to one
copy           nbytes               1, 1                                        what is copied to one other
============== ==================== =========================================== ==========================

A library has two protocols, and picks the one that is sooner done: a low-latency one, whose flags travel with the data
and take most of the link's room, and a bulk one, which fills the link but has to fill its buffers and synchronise
first. A copy is made by a copy engine, without either. Times are those of a collective in a replayed graph; what a host
takes to issue one is not part of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from kernbench.errors import InputError, nearest
from kernbench.machine import Machine
from kernbench.machine.places import parse_place
from kernbench.machine.schema import CollectiveSpec, LinkSpec
from kernbench.simulate.costs import PS, exactly

Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "send_recv", "copy"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_ONE_TO_ONE = ("send_recv", "copy")


@dataclass(frozen=True)
class CollectiveTime:
    """How long a collective takes, and why."""

    ps: int
    """From when the last rank has begun until every rank has its result; 0 with one rank."""
    sent_nbytes: int
    """Bytes that each rank sends."""
    links: int
    """Links over which a rank sends at once."""
    wire_ps: int
    """What the bytes alone would take with the links full: a lower bound."""
    protocol: Literal["low-latency", "bulk", "copy", "none"]


def collective_time(
    machine: Machine, operation: str, nbytes: int, world: int | None = None, distance: int = 1
) -> CollectiveTime:
    """Return the time of one collective.

    Parameters
    ----------
    machine
        A machine of several SIPs with a section ``collective``; neither is needed for a world of one.
    operation
        One of :data:`OPERATIONS`.
    nbytes
        As the table of this module says.
    world
        SIPs that take part; default: all.
    distance
        Links from a sender to its receiver, of a send_recv or a copy.

    Raises
    ------
    InputError
        If the operation is unknown, the machine has fewer SIPs or lacks figures of collectives, or a size is negative.

    >>> from kernbench.machine import load_machine
    >>> found = collective_time(load_machine("h200x2"), "all_gather", 33_280)
    >>> found.protocol, found.sent_nbytes, found.links, round(found.ps / 1e6, 1)
    ('low-latency', 33280, 1, 10.0)
    """
    if operation not in OPERATIONS:
        raise InputError(f"unknown collective {operation!r}{nearest(operation, OPERATIONS)}")
    n = machine.n_sips if world is None else world
    if not 1 <= n <= machine.n_sips:
        raise InputError(f"{n} SIPs cannot take part in a collective on {machine.name}, which has {machine.n_sips}")
    if nbytes < 0:
        raise InputError(f"a collective of {nbytes} bytes: the size must be 0 or more")
    if n == 1:
        return CollectiveTime(0, 0, 0, 0, "none")
    has = _figures(machine)
    link = _slowest_link(machine)
    sent = _sent(operation, nbytes, n)
    links = _links(machine, operation, n)
    rate = links * link.bandwidth
    hops = (distance if operation in _ONE_TO_ONE else _hops(machine, operation, n)) * link.latency

    def moved(share: float) -> int:
        return _whole(Fraction(sent * PS, rate) / exactly(share))

    wire = moved(1)
    if operation == "copy":
        return CollectiveTime(hops + moved(has.point_to_point), sent, links, wire, "copy")
    low = has.latency + hops + moved(has.low_latency)
    bulk = has.bulk_latency + hops + moved(has.point_to_point if operation == "send_recv" else has.achievable)
    return CollectiveTime(min(low, bulk), sent, links, wire, "low-latency" if low <= bulk else "bulk")


def _figures(machine: Machine) -> CollectiveSpec:
    if machine.spec.collective is None:
        raise InputError(
            f"{machine.name} says nothing of collectives between its SIPs: add a section such as 'collective: "
            "{latency: 8 us, low_latency: 0.29, bulk_latency: 16 us, achievable: 0.57, point_to_point: 0.86}'"
        )
    return machine.spec.collective


def _slowest_link(machine: Machine) -> LinkSpec:
    """Return the figures of the slowest link between SIPs: the ranks wait for one another, so it holds up all."""
    level = machine.spec.system.sips.link
    assert level is not None  # checks.faults refuses several SIPs without links
    own = [link for link in machine.spec.links if parse_place(link.start).level == 0]
    return LinkSpec.model_construct(
        bandwidth=min([level.bandwidth, *(link.bandwidth for link in own if link.bandwidth is not None)]),
        latency=max([level.latency, *(link.latency for link in own if link.latency is not None)]),
    )


def _sent(operation: str, nbytes: int, n: int) -> int:
    """Return the bytes that each rank sends."""
    shares = {
        "all_reduce": Fraction(2 * (n - 1), n),
        "reduce_scatter": Fraction(n - 1, n),
        "all_gather": Fraction(n - 1),
    }
    return _whole(shares.get(operation, Fraction(1)) * nbytes)


def _links(machine: Machine, operation: str, n: int) -> int:
    """Return over how many links a rank sends at once."""
    arrangement = machine.spec.system.sips.arrangement
    if operation in _ONE_TO_ONE:
        return 1
    if arrangement == "fully_connected":
        return n - 1
    return 2 if arrangement == "ring" and n == machine.n_sips > 2 else 1  # two rings, one each way round


def _hops(machine: Machine, operation: str, n: int) -> int:
    """Return how many hops follow one another before the last rank has its first result."""
    each = 1 if machine.spec.system.sips.arrangement == "fully_connected" else n - 1
    return 2 * each if operation == "all_reduce" else each


def _whole(exact: Fraction) -> int:
    return -(-exact.numerator // exact.denominator)
