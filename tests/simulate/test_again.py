"""Timing one trace on many machines quickly gives the same as timing it on each alone."""

import numpy as np
import pytest

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.simulate.compiled import Workspace, run_compiled
from kernbench.simulate.program import build_program
from kernbench.specs.attention import DecodeSpec

CHANGES = [
    {"cube.memory.bandwidth": "0.7 TB/s"},
    {"pe.load.queues": 1},
    {"pe.load.queues": 4, "pe.queue_depth": 3},
    {"pe.issue": "3 ns", "sip.cubes.link.latency": "90 ns"},
    {"sip.cubes.link.bandwidth": "20 GB/s"},
    {"pe.vector.cost": {"default": 3}, "pe.matrix.startup": "100 ns"},
    {"pe.store.queues": 3, "cube.memory.channels": 2},
    {"links": [{"from": "sip0.cube0", "to": "sip0.cube1", "bandwidth": "1 GB/s"}]},
]


def recorded(keys):
    machine = kb.load_machine("row4_pe8")
    bench = find_bench("gqa_decode_long")
    args, _ = bench.arguments(DecodeSpec(S_kv=keys, TILE_S_KV=64, buffers=2), machine, None)
    return kb.record(bench.kernel, machine, args=args)


def columns(timeline):
    return [timeline.issue_ps, timeline.start_ps, timeline.end_ps, timeline.link_nbytes, *timeline.hops]


@pytest.mark.parametrize("order", [1, -1])
def test_a_program_made_like_another_gives_the_same_picoseconds(order):
    trace, like, workspace = recorded(4000), None, Workspace()
    for change in [{}, *CHANGES][::order]:
        machine = trace.machine.with_overrides(change)
        like = build_program(trace, machine, like)
        quick, alone = run_compiled(like, workspace=workspace), kb.simulate(trace, machine)
        assert all(np.array_equal(a, b) for a, b in zip(columns(quick), columns(alone), strict=True)), change


def test_a_workspace_serves_traces_of_any_size():
    workspace = Workspace()
    for keys in (300, 9000, 32, 4000):
        trace = recorded(keys)
        quick = run_compiled(build_program(trace, trace.machine), workspace=workspace)
        assert np.array_equal(quick.end_ps, kb.simulate(trace).end_ps)


def test_a_program_is_not_made_like_one_of_another_trace():
    first, second = recorded(300), recorded(9000)
    like = build_program(first, first.machine)
    assert build_program(second, second.machine, like).n_commands == second.n_commands


def test_machines_share_their_network_only_where_their_links_are_equal():
    machine = kb.load_machine("row4_pe8")
    assert machine.with_overrides({"cube.memory.bandwidth": "1 TB/s"}).network is machine.network
    assert machine.with_overrides({"sip.cubes.link.latency": "1 ns"}).network is not machine.network
    slow = {"links": [{"from": "sip0.cube0", "to": "sip0.cube1", "latency": "1 us"}]}
    assert machine.with_overrides(slow).network.link_latency.max() == 10**6
    assert machine.network.link_latency.max() == 20_000
