"""Random small machines: every arrangement, odd figures, and many zeros and equal numbers, so that ties are common."""

from __future__ import annotations

from random import Random
from typing import Any

from kernbench.machine import load_machine

_GRIDS: tuple[tuple[str, int, int], ...] = (
    ("row", 1, 1), ("row", 1, 1), ("row", 2, 1), ("row", 3, 1), ("row", 4, 1), ("ring", 2, 1), ("ring", 3, 1),
    ("ring", 4, 1), ("mesh", 1, 2), ("mesh", 2, 2), ("torus", 2, 2), ("torus", 3, 1), ("torus", 1, 3), ("torus", 1, 4),
    ("fully_connected", 2, 1), ("fully_connected", 3, 1), ("fully_connected", 4, 1),
)  # fmt: skip
_PES = ((1, 1), (1, 1), (2, 1), (1, 2), (3, 1), (4, 1), (2, 2))
_MOST_PES = 24
_TIMES = ("0 ns", "0 ns", "0 ns", "1 ps", "333 ps", "1 ns", "1 ns", "5 ns", "20 ns", "100 ns")
_BANDWIDTHS = ("1 TB/s", "1 TB/s", "64 GB/s", "64 GB/s", "7 GB/s", "1.2 TB/s", "333 MB/s", "30 GB/s", "3 TB/s")


def random_document(random: Random) -> dict[str, Any]:
    """Draw a machine as a mapping that :func:`kernbench.machine.load_machine` takes."""
    document = _machine(random)
    if random.random() < 0.2:
        document["links"] = _degraded(random, document)
    return document


def _machine(random: Random) -> dict[str, Any]:
    sips, cubes, pes = _shape(random)
    # In a round machine everything takes equally long, and every request meets others.
    is_round = random.random() < 0.3
    times = ("0 ns",) if is_round else _TIMES
    bandwidths = ("1 TB/s",) if is_round else _BANDWIDTHS

    def link() -> dict[str, str]:
        return {"bandwidth": random.choice(bandwidths), "latency": random.choice(times)}

    memory = {
        "channels": random.randint(1, 4),
        "interleave": random.choice(("1 B", "16 B", "48 B", "64 B", "256 B", "4096 B")),
        "bandwidth": random.choice(bandwidths),
        "latency": random.choice(times),
        "capacity": "1 GiB",
    }
    owner = random.choice(("cube", "cube", "sip"))
    document: dict[str, Any] = {
        "name": "random",
        "system": {"sips": _grid(sips) | {"link": link()}},
        "sip": {"cubes": _grid(cubes) | {"link": link()}},
        "cube": {"pes": {"columns": pes[0], "rows": pes[1], "link": link()}},
        "pe": _pe(random, times, bandwidths),
    }
    document[owner]["memory"] = memory
    return document


def _shape(random: Random) -> tuple[tuple[str, int, int], tuple[str, int, int], tuple[int, int]]:
    while True:
        sips = random.choice(_GRIDS) if random.random() < 0.4 else _GRIDS[0]
        cubes, pes = random.choice(_GRIDS), random.choice(_PES)
        n_sips, n_cubes, n_pes = sips[1] * sips[2], cubes[1] * cubes[2], pes[0] * pes[1]
        if n_sips <= 3 and n_sips * n_cubes * n_pes <= _MOST_PES:
            return sips, cubes, pes


def _grid(grid: tuple[str, int, int]) -> dict[str, Any]:
    return {"arrangement": grid[0], "columns": grid[1], "rows": grid[2]}


def _pe(random: Random, times: tuple[str, ...], bandwidths: tuple[str, ...]) -> dict[str, Any]:
    load: dict[str, Any] = {"queues": random.randint(1, 3), "bandwidth": random.choice(bandwidths)}
    if random.random() < 0.5:
        load["outstanding"] = random.choice(("64 B", "1 KiB", "1000 B"))
    return {
        "clock": random.choice(("1 GHz", "1.7 GHz", "3 GHz")),
        "scratch": "1 MiB",
        "issue": random.choice(("0 ns", "1 ps", "1 ns", "1 ns", "7 ns")),
        "queue_depth": random.randint(1, 4),
        "load": load,
        "store": {"queues": random.randint(1, 3), "bandwidth": random.choice(bandwidths)},
        "matrix": {
            "startup": random.choice(times),
            "tile": {"m": random.choice((1, 8)), "n": random.choice((1, 16)), "k": random.choice((1, 16))},
            "rates": {"f16": "8 Tflop/s", "bf16": "7 Tflop/s", "f32": random.choice(("2 Tflop/s", "8 Tflop/s"))},
        },
        "vector": {
            "lanes": random.choice((1, 16, 100, 128)),
            "startup": random.choice(times),
            "cost": {"default": 1, "exp": random.choice((1, 4)), "divide": 4},
        },
        "channel": {"depth": random.randint(1, 3), "receive": random.choice(times)},
    }


def _degraded(random: Random, document: dict[str, Any]) -> list[dict[str, str]]:
    """Give one link figures of its own, if there is one."""
    names = load_machine(document).network.link_names()
    if not names:
        return []
    start, to = random.choice(names).split(" -> ")
    return [{"from": start, "to": to, "bandwidth": "1 GB/s", "latency": random.choice(_TIMES)}]
