"""Moment by moment an engine does what its sums say that it does."""

from __future__ import annotations

import numpy as np
import pytest

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.simulate.engine_lanes import engine_lanes
from kernbench.simulate.engine_time import COLUMNS, engine_time
from kernbench.simulate.timeline import Timeline


def timeline_of(machine: str, **changes: object) -> Timeline:
    bench = find_bench("gqa_decode_long")
    spec = bench.spec(**{"S_kv": 8192, "h_q": 8, "h_kv": 1, "d_head": 64, **changes})
    loaded = kb.load_machine(machine)
    args, _ = bench.arguments(spec, loaded, None)
    return kb.simulate(kb.record(bench.kernel, loaded, args=args))


@pytest.mark.parametrize(
    ("machine", "changes"),
    [("row4_pe8", {}), ("row4_pe8", {"buffers": 1, "TILE_S_KV": 32}), ("sip4_grid4x4_pe8", {"split_S_kv": ["cube"]})],
)
def test_the_lanes_sum_to_the_time_of_the_engines(machine: str, changes: dict[str, object]) -> None:
    timeline = timeline_of(machine, **changes)
    time = engine_time(timeline)
    for pe in timeline.program.pe[:: max(1, len(timeline.program.pe) // 12)].tolist():
        expected = time.of_pe(pe)
        lanes = engine_lanes(timeline, pe)
        assert [lane.name for lane in lanes] == list(expected)
        for lane in lanes:
            length = np.diff(np.append(lane.begin_ps, timeline.makespan_ps))
            assert lane.begin_ps[0] == 0
            assert (length > 0).all()
            assert (np.diff(lane.state) != 0).all()
            sums = np.bincount(lane.state, length, len(COLUMNS)).astype(int)
            assert dict(zip(COLUMNS, sums.tolist(), strict=True)) == expected[lane.name]


def test_a_pe_without_commands_has_no_lanes() -> None:
    timeline = timeline_of("row4_pe8", split_S_kv=["cube"])
    lanes = {pe: engine_lanes(timeline, pe) for pe in range(32)}
    without = {pe for pe in lanes if not len(timeline.of_pe(pe)[0])}
    assert without
    assert {pe for pe, found in lanes.items() if not found} == without
