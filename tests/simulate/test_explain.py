"""What-ifs are exact, and nothing beats the lower bounds."""

from __future__ import annotations

from collections import Counter

import pytest

import kernbench as kb
from kernbench.simulate.explain import WHAT_IFS, explain, lower_bounds

from .helpers import machine, random_timelines, row, uncontended_timelines

BIG = (64, 128)
"""Of f32: 32,768 bytes, 128,000 ps at a load port."""
LATENCIES = ("system.sips.link.latency", "sip.cubes.link.latency", "cube.pes.link.latency")


def saved(kernel, m, args=()) -> dict[str, int]:
    """What each thing would save."""
    return {w.free: w.saved_ps for w in explain(kb.record(kernel, m, args)).what_ifs}


# ---------------------------------------------------------------- laws
def test_no_run_is_shorter_than_its_lower_bounds():
    seen: Counter[str] = Counter()
    for timeline in random_timelines():
        for bound in lower_bounds(timeline):
            assert 0 < bound.ps <= timeline.makespan_ps, bound
            seen[bound.name] += 1
    assert min(seen.values()) > 5
    assert len(seen) == 9


def test_savings_are_what_is_left_of_the_makespan_largest_first():
    for timeline in random_timelines()[:20]:
        found = explain(timeline.program.trace)
        assert found.timeline.makespan_ps == timeline.makespan_ps
        assert {w.free for w in found.what_ifs} == set(WHAT_IFS)
        assert all(w.makespan_ps + w.saved_ps == timeline.makespan_ps for w in found.what_ifs)
        for listed in ([w.saved_ps for w in found.what_ifs], [b.ps for b in found.bounds]):
            assert listed == sorted(listed, reverse=True)
        assert found.as_json()["makespan_ps"] == timeline.makespan_ps


def test_without_contention_nothing_that_is_free_makes_a_run_longer():
    helped: Counter[str] = Counter()
    for timeline in uncontended_timelines():
        program = timeline.program
        for what in explain(program.trace, program.machine).what_ifs:
            assert what.saved_ps >= 0, what
            helped[what.free] += what.saved_ps > 0
    assert all(helped[name] > 1 for name in WHAT_IFS), helped


def test_under_contention_a_saving_may_be_negative():
    found = [what for timeline in random_timelines() for what in explain(timeline.program.trace).what_ifs]
    assert 0 < sum(what.saved_ps < 0 for what in found) < len(found) / 20


@pytest.mark.parametrize("free", ["issue", "latency"])
def test_what_a_machine_file_can_make_free_too_takes_as_long_in_the_definition(free):
    checked = 0
    for timeline in random_timelines()[:60]:
        trace, m = timeline.program.trace, timeline.program.machine
        changes = {"pe.issue": "0 ns", "pe.queue_depth": 64}
        if free == "latency":
            changes = {f"{m.memory_scope}.memory.latency": "0 ns", **dict.fromkeys(LATENCIES, "0 ns")}
            if m.spec.links:
                continue  # these have latencies of their own
        elif max(len(commands) for c in trace.classes for commands in c.stream.by_engine.values()) > 64:
            continue  # a machine has no longer queues
        other = kb.simulate(trace, m.with_overrides(changes), engine="simpy")
        found = {w.free: w.makespan_ps for w in explain(trace).what_ifs}
        assert found[free] == other.makespan_ps
        checked += found[free] < timeline.makespan_ps
    assert checked > 15


# ---------------------------------------------------------------- by hand
def test_each_thing_saves_what_it_takes_where_nothing_else_hides_it():
    m = machine()

    def kernel(x, *, tl):
        a = tl.load(x, shape=(8, 128))
        tl.exp(tl.dot(a, tl.load(x, shape=(128, 16), strides=(1, 128))))

    found = saved(kernel, m, (kb.shape_only((128, 128), "f16", m),))
    # Loads of 2,048 and 4,096 bytes are issued at 0 and 1,000, but the memory, 1 ps a byte, has the first until 2,048.
    # So the second's head is there at 102,048 and takes 16,000 through the port; at an endless port it takes 4,096.
    # dot: 10,000 + 2 x 8 x 16 x 128 / 8 Tflop/s; exp: 8,000 + 4,000.
    assert found == {
        "latency": 100_000, "load and store ports": 16_000 - 4_096, "matrix": 14_096, "vector": 12_000,
        "memory bandwidth": 1_048, "issue": 0, "links": 0, "buffer reuse": 0, "sends": 0,
    }  # fmt: skip


def test_free_sends_take_no_time_at_all():
    m = row(pes=3, cubes=2)

    def kernel(*, tl):
        me, cube = tl.program_id(0), tl.program_id(1)
        if me > 0:
            got = tl.recv(dir="intra_W", shape=(1, 128), dtype="f32")
        elif cube > 0:
            got = tl.recv(dir="W", shape=(1, 128), dtype="f32")
        else:
            got = tl.zeros((1, 128))
        if me < 2:
            tl.send(dir="intra_E", src=got)
        if me == 0 and cube == 0:
            tl.send(dir="E", src=got)

    explanation = explain(kb.record(kernel, m))
    # The zeros take 9,000, then all is there at once but for the issue of the second send.
    assert {w.free: w.makespan_ps for w in explanation.what_ifs}["sends"] == 9_000
    assert explanation.timeline.makespan_ps > 50_000


def test_buffer_reuse_saves_what_a_second_buffer_would():
    m = machine()

    def kernel(x, buffers, *, tl):
        for _ in range(2):
            with tl.scratch_scope(buffers=buffers):
                tl.exp(tl.load(x, shape=BIG))

    x = kb.shape_only(BIG, "f32", m)
    one, two = (kb.simulate(kb.record(kernel, m, (x, n))).makespan_ps for n in (1, 2))
    assert one - two > 0
    assert saved(lambda x, *, tl: kernel(x, 1, tl=tl), m, (x,))["buffer reuse"] == one - two
    assert saved(lambda x, *, tl: kernel(x, 2, tl=tl), m, (x,))["buffer reuse"] == 0


def test_a_composite_is_freed_of_either_engine():
    m = machine(pe__vector__startup="0 ns")

    def kernel(*, tl):
        tl.composite(tl.empty((8, 128), "f16"), tl.empty((128, 16), "f16"), epilogue=[("scale", 0.5)])

    # matrix 14,096 and vector 1,000; the number of chunks is 1
    found = saved(kernel, m)
    assert (found["matrix"], found["vector"]) == (14_096, 1_000)


def test_queues_that_never_fill_may_hold_a_whole_kernel():
    def kernel(x, *, tl):
        a = tl.load(x, shape=(1, 128))
        for _ in range(200):
            tl.exp(a)

    m = machine(pe__queue_depth=1)
    trace = kb.record(kernel, m, (kb.shape_only((1, 128), "f32", m),))
    assert {w.free: w.makespan_ps for w in explain(trace).what_ifs}["issue"] == 102_000 + 200 * 12_000


def test_bounds_say_which_engine_memory_and_link_has_most_to_do():
    m = row(cubes=2, pes=2)

    def kernel(x, *, tl):
        if tl.program_id(1) == 0:
            a = tl.load(x, shape=BIG)
            if tl.program_id(0) == 1:
                tl.exp(a)

    x = kb.shape_only(BIG, "f32", m, kb.placement.on(0, 1, 0))
    found = {(b.name, b.where): b.ps for b in explain(kb.record(kernel, m, (x,))).bounds}
    assert found == {
        ("vector", "sip0.cube0.pe1"): 264_000,
        ("links between CUBEs", "sip0.cube1 -> sip0.cube0"): 256_000,
        ("memory", "memory of sip0.cube1, channel 0"): 65_536,
        ("load ports", "sip0.cube0.pe0"): 64_000,  # two queues
        ("issue", "sip0.cube0.pe1"): 1_000,
    }
