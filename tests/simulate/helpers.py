"""A machine with figures that are easy to reckon with, and how tests time a kernel on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import pytest

import kernbench as kb
from kernbench.errors import DeadlockError
from kernbench.placement import ADDRESS_BITS
from kernbench.record.trace import Trace
from kernbench.simulate.timeline import Timeline
from kernbench.testing import random_program

both_engines = pytest.mark.parametrize("engine", ["compiled", "simpy"])

DOCUMENT: dict[str, Any] = {
    "name": "reckoning",
    "system": {"sips": {"columns": 1, "link": {"bandwidth": "64 GB/s", "latency": "500 ns"}}},
    "sip": {"cubes": {"columns": 1, "link": {"bandwidth": "256 GB/s", "latency": "20 ns"}}},
    "cube": {
        "pes": {"columns": 1, "rows": 1, "link": {"bandwidth": "128 GB/s", "latency": "5 ns"}},
        "memory": {
            "channels": 1, "interleave": "64 B", "bandwidth": "1 TB/s", "latency": "100 ns", "capacity": "24 GiB",
        },
    },
    "pe": {
        "clock": "1 GHz", "scratch": "4 MiB", "issue": "1 ns", "queue_depth": 8,
        "load": {"queues": 2, "bandwidth": "256 GB/s"},
        "store": {"queues": 1, "bandwidth": "128 GB/s"},
        "matrix": {"startup": "10 ns", "tile": {"m": 8, "n": 16, "k": 16}, "rates": {"f16": "8 Tflop/s"}},
        "vector": {"lanes": 128, "startup": "8 ns", "cost": {"default": 1, "exp": 4}},
        "channel": {"depth": 2, "receive": "4 ns"},
    },
}  # fmt: skip
"""One byte takes 1 ps in memory; one PE unless a test says otherwise."""


def machine(**changes: Any) -> kb.Machine:
    """The machine with some figures replaced: ``machine(pe__issue="2 ns")`` sets ``pe.issue``."""
    return kb.load_machine(DOCUMENT, {path.replace("__", "."): value for path, value in changes.items()})


def row(cubes: int = 1, pes: int = 1, **changes: Any) -> kb.Machine:
    """The machine with CUBEs in a row, and PEs in a row in each."""
    return machine(sip__cubes__columns=cubes, cube__pes__columns=pes, **changes)


def timed(
    kernel: Callable[..., None], machine: kb.Machine, args: Sequence[Any], engine: str
) -> Callable[[int], list[tuple[int, int, int]]]:
    """Time a kernel; return what gives a PE's commands as (issue, start, end)."""
    timeline = kb.simulate(kb.record(kernel, machine, args), engine=engine)
    return lambda pe=0: list(zip(*(column.tolist() for column in timeline.of_pe(pe)), strict=True))


@lru_cache
def random_timelines(n: int = 100) -> list[Timeline]:
    """Timelines of ``n`` random programs, without those that deadlock."""
    found = []
    for seed in range(n):
        with suppress(DeadlockError):
            found.append(kb.simulate(random_program(seed).record()))
    assert len(found) > n // 2
    return found


@lru_cache
def uncontended_timelines(n: int = 1000) -> list[Timeline]:
    """Of ``n`` random programs, timed with one queue an engine, those in which nothing shared is ever contended for."""
    found = []
    for seed in range(n):
        program = random_program(seed, length=6)
        cube = program.document["cube"]
        if "memory" not in cube or cube["pes"]["columns"] * cube["pes"]["rows"] > 1:
            continue  # PEs share memories
        trace = program.record()
        if not contends(trace):
            m = kb.load_machine(program.document, {"pe.load.queues": 1, "pe.store.queues": 1})
            with suppress(DeadlockError):
                found.append(kb.simulate(trace, m))
    assert len(found) > 40
    return found


def contends(trace: Trace) -> bool:
    """Whether two engines, of the same PE or not, may want the same memory, or the same link between nodes."""
    network = trace.machine.network
    users: dict[tuple[str, int], set[tuple[int, str]]] = {}
    for cls in trace.classes:
        for command in cls.commands:
            for lane, pe in enumerate(cls.pes.tolist()):
                used = []
                if command.op == "send":
                    used = [("link", int(network.link_of[pe, command.direction]))]
                    who = (pe, f"send {command.direction}")
                elif command.access is not None:
                    address = int(cls.columns[command.access.address.column][lane]) + command.access.address.offset
                    memory, node = address >> ADDRESS_BITS, int(network.node_of_pe[pe])
                    home = int(network.entry_node(node, memory))
                    way = network.route(node, home) if command.op == "store" else network.route(home, node)
                    used = [("memory", memory), *(("link", link) for link in way)]
                    who = (pe, "store" if command.op == "store" else "load")
                for thing in used:
                    users.setdefault(thing, set()).add(who)
    return any(len(engines) > 1 for engines in users.values())
