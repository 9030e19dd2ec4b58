"""A machine with figures that are easy to reckon with, and how tests time a kernel on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import kernbench as kb

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
