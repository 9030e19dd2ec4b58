"""Timelines that several pictures are drawn of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.simulate.timeline import Timeline


@pytest.fixture(scope="session")
def timeline_of() -> Callable[..., Timeline]:
    """Time a decode on a machine; each is made once."""
    made: dict[str, Timeline] = {}

    def make(machine: str, **changes: object) -> Timeline:
        key = f"{machine} {sorted(changes.items())}"
        if key not in made:
            bench, loaded = find_bench("gqa_decode_long"), kb.load_machine(machine)
            spec = bench.spec(**{"S_kv": 8192, "h_q": 8, "h_kv": 1, "d_head": 64, **changes})
            args, _ = bench.arguments(spec, loaded, None)
            made[key] = kb.simulate(kb.record(bench.kernel, loaded, args=args))
        return made[key]

    return make
