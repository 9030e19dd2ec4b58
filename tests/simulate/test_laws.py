"""Laws that hold for every program: bounds, conservation, repetition, and what errors say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernbench as kb
from kernbench.errors import DeadlockError, InputError, ScratchError
from kernbench.machine.units import bytes_per_s, picoseconds
from kernbench.record.stream import Engine
from kernbench.simulate.costs import transfer_ps
from kernbench.simulate.timeline import Timeline
from kernbench.testing import random_program

from .helpers import both_engines, machine, row, uncontended_timelines


@pytest.fixture(scope="module")
def timelines() -> list[Timeline]:
    """Timelines of random programs that do not deadlock."""
    found = []
    for seed in range(60):
        with suppress(DeadlockError):
            found.append(kb.simulate(random_program(seed).record()))
    assert len(found) >= 40
    return found


def hops(timeline: Timeline) -> tuple[int, int]:
    """Bytes that links carry for messages and for loads and stores, from the trace alone."""
    program = timeline.program
    network = program.machine.network
    messages = accesses = 0
    for cls in program.trace.classes:
        for command in cls.commands:
            if command.op == "send":
                messages += command.nbytes * len(cls.pes)
            elif command.access is not None:
                nodes = network.node_of_pe[cls.pes]
                memories = (cls.columns[command.access.address.column] + command.access.address.offset) >> 44
                for node, entry in zip(nodes, network.entry_node(nodes, memories), strict=True):
                    a, b = (node, entry) if command.op == "store" else (entry, node)
                    accesses += command.nbytes * len(network.route(a, b))
    return messages, accesses


# ---------------------------------------------------------------- bounds
def test_commands_are_issued_in_order_then_start_then_end(timelines):
    for timeline in timelines:
        for pe in timeline.program.pe:
            issue, start, end = timeline.of_pe(int(pe))
            assert (np.diff(issue) >= timeline.program.machine.pe.issue).all()
            assert (issue <= start).all()
            assert (start <= end).all()


def test_nothing_starts_before_what_it_depends_on_has_ended(timelines):
    for timeline in timelines:
        for i, cls in enumerate(timeline.program.trace.classes):
            _, start, end = timeline.of_class(i)
            for index, command in enumerate(cls.commands):
                for earlier, _ in command.deps:
                    assert (end[:, earlier] <= start[:, index]).all()


def test_no_engine_works_on_more_than_it_has_lanes_for(timelines):
    for timeline in timelines:
        pe = timeline.program.machine.pe
        lanes = {Engine.LOAD: pe.load.queues, Engine.STORE: pe.store.queues}
        for i, cls in enumerate(timeline.program.trace.classes):
            _, start, end = timeline.of_class(i)
            for engine, mine in cls.stream.by_engine.items():
                for begun, ended in zip(start[:, mine], end[:, mine], strict=True):
                    at_work = ((begun[:, None] >= begun) & (begun[:, None] < ended)).sum(axis=1)
                    assert at_work.max() <= lanes.get(engine, 1)


def test_nothing_is_busy_for_longer_than_the_run(timelines):
    for timeline in timelines:
        assert (timeline.memory_busy_ps <= timeline.makespan_ps).all()
        assert (timeline.link_busy_ps <= timeline.makespan_ps).all()
        assert all(0 <= share <= 1 for share in timeline.busy_share().values())


def test_the_makespan_is_no_less_than_any_bound(timelines):
    for timeline in timelines:
        program, m = timeline.program, timeline.program.machine
        bounds = [int(n - 1) * m.pe.issue for n in np.diff(program.out)]
        bounds += [
            transfer_ps(int(n), int(b)) for n, b in zip(timeline.link_nbytes, m.network.link_bandwidth, strict=True)
        ]
        bounds.append(transfer_ps(timeline.hbm_bytes, m.memory.bandwidth * m.network.n_memories))
        best = max(m.pe.matrix.rates.values())
        bounds.append(-(-timeline.flops * 10**12 // (best * program.n_ranks)))
        assert timeline.makespan_ps >= max(bounds)


def test_doubling_every_bandwidth_and_halving_every_latency_never_slows_a_run_without_contention():
    faster = 0
    for timeline in uncontended_timelines():
        program = timeline.program
        better = kb.simulate(program.trace, kb.load_machine(_twice_as_fast(program.machine.document)))
        assert better.makespan_ps <= timeline.makespan_ps
        faster += better.makespan_ps < timeline.makespan_ps
    assert faster > 20


def _twice_as_fast(part: Any, name: str = "") -> Any:
    """A machine's document with bandwidths doubled and latencies halved, wherever they stand."""
    if isinstance(part, Mapping):
        return {key: _twice_as_fast(value, key) for key, value in part.items()}
    if isinstance(part, list):
        return [_twice_as_fast(value) for value in part]
    if name == "bandwidth":
        return f"{2 * int(bytes_per_s(part))} B/s"
    return f"{int(picoseconds(part)) // 2} ps" if name == "latency" else part


HASH_PROGRAM = """
import kernbench as kb
from kernbench.errors import DeadlockError
from kernbench.testing import random_program
for seed in range(8):
    try:
        t = kb.simulate(random_program(seed).record())
        print(seed, t.issue_ps.tolist(), t.start_ps.tolist(), t.end_ps.tolist(), t.cause.tolist())
    except DeadlockError as stuck:
        print(stuck)
"""


def test_neither_the_hash_seed_nor_the_order_of_hosts_work_changes_a_picosecond():
    texts = set()
    for seed in ("0", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(kb.__file__).parents[1])}
        done = subprocess.run(
            [sys.executable, "-c", HASH_PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        texts.add(done.stdout)
    assert len(texts) == 1
    backwards = {}
    for seed in reversed(range(8)):
        with suppress(DeadlockError):
            backwards[seed] = kb.simulate(random_program(seed).record()).end_ps.tolist()
    assert all(str(ends) in texts.copy().pop() for ends in backwards.values())


# ---------------------------------------------------------------- conservation
def test_bytes_in_are_bytes_out(timelines):
    for timeline in timelines:
        commands = [(c, len(cls.pes)) for cls in timeline.program.trace.classes for c in cls.commands]
        sent, received = (sum(c.nbytes * n for c, n in commands if c.op == op) for op in ("send", "recv"))
        assert sent == received
        assert timeline.link_bytes == sum(hops(timeline))
        assert timeline.hbm_bytes == sum(c.nbytes * n for c, n in commands if c.access is not None)


def test_busy_time_is_the_time_that_the_bytes_take(timelines):
    for timeline in timelines:
        memory, network = timeline.program.machine.memory, timeline.program.machine.network
        # Each request rounds up in each channel, so the sum may be a picosecond too long for each.
        exact = timeline.hbm_bytes * memory.channels * 10**12 / memory.bandwidth
        rounding = memory.channels * sum(len(c.pes) * len(c.commands) for c in timeline.program.trace.classes)
        assert exact * (1 - 1e-12) <= timeline.memory_busy_ps.sum() <= exact + rounding
        exact_links = timeline.link_nbytes / network.link_bandwidth * 1e12
        assert (timeline.link_busy_ps >= exact_links * (1 - 1e-12)).all()
        assert ((timeline.link_busy_ps > 0) == (timeline.link_nbytes > 0)).all()


@both_engines
def test_the_same_trace_gives_the_same_times_again(engine, timelines):
    trace = timelines[0].program.trace
    one, two = (kb.simulate(trace, engine=engine) for _ in range(2))
    for column in ("issue_ps", "start_ps", "end_ps", "memory_busy_ps", "link_busy_ps", "link_nbytes"):
        assert (getattr(one, column) == getattr(two, column)).all()
        assert getattr(one, column).dtype == np.int64
    assert one.engine == engine


@both_engines
def test_progress_goes_up_to_the_whole(engine, timelines):
    calls: list[tuple[int, int]] = []
    trace = timelines[0].program.trace
    kb.simulate(trace, engine=engine, progress=lambda done, total: calls.append((done, total)))
    assert calls
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1]


@both_engines
def test_pes_may_do_nothing(engine):
    m = row(pes=3)

    def kernel(*, tl):
        if tl.program_id(0) == 1:
            tl.exp(tl.empty(128))

    timeline = kb.simulate(kb.record(kernel, m), engine=engine)
    assert [len(timeline.of_pe(pe)[0]) for pe in range(3)] == [0, 1, 0]
    assert timeline.makespan_ps == 12_000


# ---------------------------------------------------------------- deadlock
@both_engines
def test_a_deadlock_names_both_pes_the_channel_and_the_lines(engine):
    m = row(pes=2)

    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tl.recv(dir="intra_E", shape=(4,), dtype="f32")
            tl.send(dir="intra_E", src=tl.zeros(4))
        else:
            tl.recv(dir="intra_W", shape=(4,), dtype="f32")
            tl.send(dir="intra_W", src=tl.zeros(4))

    with pytest.raises(DeadlockError) as caught:
        kb.simulate(kb.record(kernel, m), engine=engine)
    text = str(caught.value)
    assert "deadlock: 2 PEs wait for one another in a ring" in text
    assert "sip0.cube0.pe0 receives from intra_E, where sip0.cube0.pe1 has not sent" in text
    assert "sip0.cube0.pe1 receives from intra_W, where sip0.cube0.pe0 has not sent" in text
    lines = re.findall(r"test_laws\.py:\d+: (.*)", text)
    assert lines == [f'tl.recv(dir="intra_{side}", shape=(4,), dtype="f32")' for side in "EW"]
    assert "send first on one side" in text


@both_engines
def test_a_ring_of_full_channels_is_a_deadlock(engine):
    m = row(cubes=3, sip__cubes__arrangement="ring")

    def kernel(count, *, tl):
        tile = tl.zeros(4)
        for _ in range(count):
            tl.send(dir="E", src=tile)
        for _ in range(count):
            tl.recv(dir="W", shape=(4,), dtype="f32")

    assert kb.simulate(kb.record(kernel, m, (2,)), engine=engine).makespan_ps > 0  # as many as a channel holds
    trace = kb.record(kernel, m, (3,))
    with pytest.raises(DeadlockError, match="3 PEs wait for one another in a ring") as caught:
        kb.simulate(trace, engine=engine)
    assert "sends to E, where sip0.cube1.pe0 has not received the last 2 messages" in str(caught.value)
    deeper = m.with_overrides({"pe.channel.depth": 3})
    assert kb.simulate(trace, deeper, engine=engine).makespan_ps > 0


# ---------------------------------------------------------------- memory, machines
@pytest.mark.parametrize("shape", [(2**20, 128), (2**26, 128)])
def test_timing_needs_no_memory_for_the_tensors(shape):
    m = row(cubes=4, cube__memory__capacity="1 TiB")
    keys = kb.shape_only(shape, "f16", m, kb.split(0, over="cube"))

    def kernel(keys, *, tl):
        for start in range(0, 4096, 1024):
            with tl.scratch_scope(buffers=2):
                tl.load(keys.row(start), shape=(1024, 128))

    tracemalloc.start()
    timeline = kb.simulate(kb.record(kernel, m, (keys,)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert timeline.hbm_bytes == 4 * 4096 * 128 * 2
    assert peak < 32 * 2**20


def double(x, y, *, tl):
    tl.store(y, tl.load(x, shape=(64, 128)) * 2.0)


@both_engines
def test_a_trace_can_be_timed_on_a_machine_with_other_figures(engine):
    m = machine()
    x, y = (kb.shape_only((64, 128), "f32", m) for _ in "xy")
    trace = kb.record(double, m, (x, y))
    slower = m.with_overrides({"pe.load.bandwidth": "128 GB/s"})
    here, there = kb.simulate(trace, engine=engine), kb.simulate(trace, slower, engine=engine)
    # 32,768 bytes take 128,000 at 256 GB/s and twice as long at 128: all that follows is that much later
    assert there.makespan_ps - here.makespan_ps == 128_000
    assert there.program.machine is slower


@both_engines
@pytest.mark.parametrize(
    "changes",
    [{"cube.pes.columns": 2}, {"sip.cubes.columns": 2}, {"sip.cubes.columns": 3, "sip.cubes.arrangement": "ring"}],
)
def test_a_machine_of_another_shape_is_refused(engine, changes):
    m = machine()
    x, y = (kb.shape_only((64, 128), "f32", m) for _ in "xy")
    with pytest.raises(InputError, match="has another shape: record it again"):
        kb.simulate(kb.record(double, m, (x, y)), m.with_overrides(changes), engine=engine)


@both_engines
def test_a_machine_with_too_little_scratch_is_refused(engine):
    m = machine()
    x, y = (kb.shape_only((64, 128), "f32", m) for _ in "xy")
    trace = kb.record(double, m, (x, y))
    assert trace.scratch_peak_bytes == 2 * 32768
    kb.simulate(trace, m.with_overrides({"pe.scratch": "64 KiB"}), engine=engine)
    with pytest.raises(
        ScratchError, match=r"needs 65,536 bytes of scratch in a PE, reckoning has 65,535 \(pe\.scratch\)"
    ):
        kb.simulate(trace, m.with_overrides({"pe.scratch": "65535 B"}), engine=engine)


def test_a_missing_matrix_rate_is_told():
    m = machine()

    def kernel(*, tl):
        tl.dot(tl.empty((8, 16), "bf16"), tl.empty((16, 16), "bf16"))

    with pytest.raises(InputError, match=r"no matrix rate for bf16 \(pe\.matrix\.rates has f16\)"):
        kb.simulate(kb.record(kernel, m))


def test_an_unknown_engine_is_told(timelines):
    with pytest.raises(InputError, match=r"unknown engine 'simpie' \(did you mean 'simpy'\?\)"):
        kb.simulate(timelines[0].program.trace, engine="simpie")
