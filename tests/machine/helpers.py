"""Machines for tests, made from the shipped ones by overrides."""

from __future__ import annotations

from typing import Any

import pytest

from kernbench.errors import TopologyError
from kernbench.machine import Machine, load_machine

SIP_LINK = {"bandwidth": "64 GB/s", "latency": "500 ns"}
MEMORY = {"channels": 16, "interleave": "256 B", "bandwidth": "1.2 TB/s", "latency": "100 ns", "capacity": "24 GiB"}


def machine(
    cubes: tuple[str, int, int] = ("row", 4, 1),
    sips: tuple[str, int, int] = ("row", 1, 1),
    pes: tuple[int, int] = (4, 2),
    **overrides: Any,
) -> Machine:
    """A machine with grids of the given (arrangement, columns, rows)."""
    changes: dict[str, Any] = {"system.sips.link": SIP_LINK, "cube.pes.columns": pes[0], "cube.pes.rows": pes[1]}
    for path, grid in (("system.sips", sips), ("sip.cubes", cubes)):
        changes |= {f"{path}.arrangement": grid[0], f"{path}.columns": grid[1], f"{path}.rows": grid[2]}
    return load_machine("row4_pe8", changes | overrides)


def message(overrides: dict[str, Any], base: str = "row4_pe8") -> str:
    """What a user reads when a machine cannot be used."""
    with pytest.raises(TopologyError) as caught:
        load_machine(base, overrides)
    return str(caught.value)
