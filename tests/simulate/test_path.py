"""The critical path accounts for every picosecond, and names what a person would name."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import kernbench as kb
from kernbench.placement import on
from kernbench.simulate.arrays import arrays_of
from kernbench.simulate.path import Cause, CriticalPath, Edge, critical_path
from kernbench.simulate.serve import serve_again
from kernbench.simulate.servers import services_of
from kernbench.simulate.timeline import Timeline

from .helpers import both_engines, machine, random_timelines, row

BIG = (64, 128)
"""Of f32: 32,768 bytes, 128,000 ps at a load port, 32,768 at the memory."""


# ---------------------------------------------------------------- random programs
@pytest.fixture(scope="module")
def paths() -> list[CriticalPath]:
    """The critical path of each random program, and of each of its PEs."""
    found = []
    for timeline in random_timelines():
        found.append(critical_path(timeline))
        for pe in timeline.program.pe.tolist():
            path = critical_path(timeline, pe)
            if len(timeline.of_pe(pe)[0]):
                found.append(path)
                assert path.end_ps[-1] == timeline.of_pe(pe)[2].max()
            else:
                assert path.time_by_cause() == path.time_by_place() == {}
    assert len(found) > 300
    return found


def test_segments_follow_one_another_from_0_to_the_end(paths):
    for path in paths:
        assert path.start_ps[0] == 0
        assert (path.start_ps[1:] == path.end_ps[:-1]).all()
        assert (path.start_ps < path.end_ps).all()


def test_the_path_of_the_run_ends_with_the_run():
    for timeline in random_timelines():
        assert critical_path(timeline).end_ps[-1] == timeline.makespan_ps


def test_every_split_adds_up_to_the_end_exactly(paths):
    for path in paths:
        end = int(path.end_ps[-1])
        for split in (path.time_by_cause(), path.time_by_line(), path.time_by_place(), path.time_by_part()):
            assert sum(split.values()) == end
            assert min(split.values()) > 0
            assert list(split.values()) == sorted(split.values(), reverse=True)
        stretches = path.stretches()
        assert sum(s.end_ps - s.start_ps for s in stretches) == end
        for place, ps in path.time_by_place().items():
            assert sum(s.end_ps - s.start_ps for s in stretches if s.where == place) == ps


def test_random_programs_have_every_cause_and_every_edge(paths):
    causes: Counter[str] = Counter()
    edges: Counter[str] = Counter()
    for path in paths:
        causes.update(path.time_by_cause().keys())
        edges.update(path.edges.keys())
    assert all(causes[cause.name.lower()] > 3 for cause in Cause), causes
    assert all(edges[edge.name.lower()] > 3 for edge in Edge), edges


def test_work_lies_within_the_command_that_it_belongs_to(paths):
    inside = [Cause.MATRIX, Cause.VECTOR, Cause.MEMORY, Cause.PORT, Cause.LINK, Cause.RECEIVE]
    for path in paths:
        timeline, program = path.timeline, path.timeline.program
        place = program.out[program.rank[path.pe]] + path.command
        mine = np.isin(path.cause, inside)
        assert (timeline.start_ps[place] <= path.start_ps)[mine].all()
        assert (timeline.end_ps[place] >= path.end_ps)[mine].all()
        issued = path.cause == Cause.ISSUE
        assert ((path.end_ps - path.start_ps)[issued] == program.machine.pe.issue).all()
        assert (timeline.issue_ps[place][issued] == path.end_ps[issued]).all()


def test_no_memory_or_link_works_longer_on_the_path_than_in_the_run(paths):
    for path in paths:
        timeline, network = path.timeline, path.timeline.program.machine.network
        spent = np.zeros(network.n_memories + network.n_links, np.int64)
        busy = np.isin(path.cause, (Cause.MEMORY, Cause.LINK))
        np.add.at(spent, path.place[busy], (path.end_ps - path.start_ps)[busy])
        memories = timeline.memory_busy_ps.reshape(network.n_memories, -1).sum(axis=1)
        assert (spent <= np.concatenate([memories, timeline.link_busy_ps])).all()


def test_places_are_where_the_cause_can_be(paths):
    for path in paths:
        network = path.timeline.program.machine.network
        at_pe, at_memory = path.place < 0, (path.place >= 0) & (path.place < network.n_memories)
        at_link = path.place >= network.n_memories
        where = {Cause.MEMORY: at_memory, Cause.LINK: at_link, Cause.CREDIT: at_link, Cause.LATENCY: ~at_pe}
        for cause in Cause:
            assert where.get(cause, at_pe)[path.cause == cause].all(), cause


def test_the_work_of_memories_can_be_laid_out_again():
    laid_out = 0
    for timeline in random_timelines():
        program = timeline.program
        memory = program.machine.memory
        lanes = np.array([len(cls.pes) for cls in program.trace.classes])
        services = services_of(timeline, arrays_of(timeline))
        for server in range(program.machine.network.n_memories):
            first, last = services.start[server : server + 2].tolist()
            serve_again(
                first, last, services.arrival, services.rank, services.command, services.channel_begin,
                program.class_start, program.nbytes, program.column, program.offset, program.class_of, program.lane,
                program.lane_values, program.lane_start, lanes, memory.channels, memory.interleave,
                program.figures.channel_num, program.figures.channel_den,
            )  # fmt: skip
            begin = services.channel_begin[first:last]
            earliest = np.where(begin < 0, np.iinfo(np.int64).max, begin).min(axis=1)
            place = program.out[services.rank[first:last]] + services.command[first:last]
            assert (earliest == timeline.served_ps[place]).all()
            laid_out += last - first
    assert laid_out > 1000


# ---------------------------------------------------------------- by hand
def path_of(kernel, m, args=(), engine="compiled") -> CriticalPath:
    return critical_path(kb.simulate(kb.record(kernel, m, args), engine=engine))


@both_engines
def test_a_load_of_one_pe_is_latency_and_port(engine):
    m = machine()

    def kernel(x, *, tl):
        tl.load(x, shape=BIG)

    path = path_of(kernel, m, (kb.shape_only(BIG, "f32", m),), engine)
    assert path.time_by_cause() == {"port": 128_000, "latency": 100_000}
    assert path.time_by_place() == {"sip0.cube0.pe0": 128_000, "memory of sip0.cube0": 100_000}
    assert path.time_by_part() == {"PEs": 128_000, "memories": 100_000}


@both_engines
def test_arithmetic_is_matrix_and_vector(engine):
    m = machine()

    def kernel(*, tl):
        a = tl.zeros((8, 128), "f16")  # 8,000 + 8 passes: 16,000
        b = tl.zeros((128, 1024), "f16")  # 8,000 + 1,024 passes: 1,032,000
        tl.exp(tl.dot(a, b))  # 10,000 + 2 x 8 x 1024 x 128 / 8 Tflop/s: 272,144; then 8,000 + 64 x 4,000: 264,000

    path = path_of(kernel, m, (), engine)
    assert path.time_by_cause() == {"vector": 16_000 + 1_032_000 + 264_000, "matrix": 272_144}
    assert path.edges == {"operand": 2, "engine": 1}
    lines = list(path.time_by_line().items())
    assert [ps for _, ps in lines] == [1_032_000, 272_144 + 264_000, 16_000]
    assert "b = tl.zeros((128, 1024)" in lines[0][0]


@both_engines
def test_pes_that_share_a_memory_are_memory_whoever_it_serves(engine):
    m = row(pes=3, cube__memory__bandwidth="128 GB/s")  # 32,768 bytes are 256,000

    def kernel(x, *, tl):
        tl.load(x, shape=BIG)

    path = path_of(kernel, m, (kb.shape_only(BIG, "f32", m, on(0, 0, 0)),), engine)
    assert path.time_by_cause() == {"memory": 3 * 256_000, "latency": 100_000}
    assert path.time_by_place() == {"memory of sip0.cube0": 3 * 256_000 + 100_000}
    assert path.pe[path.cause == Cause.MEMORY].tolist() == [0, 1, 2]
    assert path.edges == {"memory": 2}


@both_engines
def test_a_chain_of_messages_is_link_latency_and_receive(engine):
    m = row(pes=3)

    def kernel(*, tl):
        me = tl.program_id(0)
        tile = tl.zeros((1, 128)) if me == 0 else tl.recv(dir="intra_W", shape=(1, 128), dtype="f32")
        if me < 2:
            tl.send(dir="intra_E", src=tile)

    path = path_of(kernel, m, (), engine)
    assert path.time_by_cause() == {"latency": 10_000, "vector": 9_000, "link": 8_000, "receive": 8_000}
    assert path.time_by_part() == {"intra_E links": 18_000, "PEs": 17_000}
    assert path.time_by_place()["link sip0.cube0.pe1 -> sip0.cube0.pe2"] == 9_000
    assert path.edges == {"operand": 2, "message": 2}


@both_engines
def test_a_full_channel_is_credit(engine):
    m = row(pes=2, pe__channel__depth=1)

    def kernel(control, *, tl):
        if tl.program_id(0) == 0:
            tile = tl.zeros((1, 128))
            tl.send(dir="intra_E", src=tile)
            tl.send(dir="intra_E", src=tile)
        else:
            tl.load_scalar(control)
            for _ in range(2):
                tl.recv(dir="intra_W", shape=(1, 128), dtype="f32")

    path = path_of(kernel, m, (kb.tensor(np.ones(1, np.int32), m),), engine)
    # The value of 4 bytes comes through the port at 100,016 (16 later than its head). Then the first message is taken,
    # the news takes 5,000, the second message 4,000 on the link and 5,000 more, and the receive 4,000.
    assert path.time_by_cause() == {
        "latency": 105_000, "credit": 5_000, "link": 4_000, "receive": 4_000, "port": 16
    }  # fmt: skip
    assert path.edges == {"credit": 1, "message": 1, "operand": 1}


@both_engines
@pytest.mark.parametrize("pes", [1, 2, 3])
def test_loads_over_a_slow_link_are_that_link(engine, pes):
    m = row(cubes=2, pes=pes, sip__cubes__link__bandwidth="128 GB/s")  # 32,768 bytes are 256,000

    def kernel(x, *, tl):
        if tl.program_id(1) == 0:
            tl.load(x, shape=BIG)

    path = path_of(kernel, m, (kb.shape_only(BIG, "f32", m, on(0, 1, 0)),), engine)
    assert path.time_by_cause() == {"link": pes * 256_000, "latency": 20_000 + 100_000 + 20_000}
    assert path.time_by_place() == {
        "link sip0.cube1 -> sip0.cube0": pes * 256_000 + 20_000,
        "memory of sip0.cube1": 100_000,
        "link sip0.cube0 -> sip0.cube1": 20_000,
    }
    assert path.time_by_part() == {"W links": pes * 256_000 + 20_000, "memories": 100_000, "E links": 20_000}


@both_engines
def test_a_store_over_a_link_is_port_link_or_memory_whichever_is_slowest(engine):
    def kernel(x, *, tl):
        if tl.program_id(1) == 0:
            tl.store(x, tl.empty(BIG))

    def split(**changes: str) -> dict[str, int]:
        m = row(cubes=2, **changes)
        return path_of(kernel, m, (kb.shape_only(BIG, "f32", m, on(0, 1, 0)),), engine).time_by_cause()

    assert split() == {"port": 256_000, "latency": 120_000}
    assert split(sip__cubes__link__bandwidth="64 GB/s") == {"link": 512_000, "latency": 120_000}
    assert split(cube__memory__bandwidth="64 GB/s") == {"memory": 512_000, "latency": 120_000}


@both_engines
def test_many_small_commands_are_issue(engine):
    m = machine(pe__vector__startup="0 ns", pe__issue="50 ns")

    def kernel(*, tl):
        for _ in range(10):
            tl.zeros((1, 128))

    path = path_of(kernel, m, (), engine)
    assert path.time_by_cause() == {"issue": 9 * 50_000, "vector": 1_000}
    assert path.edges == {"issue": 9}


@both_engines
def test_a_buffer_that_is_used_too_soon_is_told_by_an_edge(engine):
    m = machine()

    def kernel(x, *, tl):
        for _ in range(2):
            with tl.scratch_scope():
                tl.exp(tl.load(x, shape=BIG))

    path = path_of(kernel, m, (kb.shape_only(BIG, "f32", m),), engine)
    assert path.time_by_cause() == {"vector": 2 * 264_000, "port": 256_000, "latency": 200_000}
    assert path.edges == {"operand": 2, "reuse": 1}


def test_the_path_of_a_pe_ends_with_its_own_last_command():
    m = row(pes=2)

    def kernel(*, tl):
        if tl.program_id(0) == 1:
            tl.zeros((1, 128))
        tl.zeros((1, 128))

    timeline: Timeline = kb.simulate(kb.record(kernel, m))
    assert critical_path(timeline, 0).time_by_cause() == {"vector": 9_000}
    assert critical_path(timeline, 1).time_by_cause() == {"vector": 18_000}
    assert critical_path(timeline).time_by_place() == {"sip0.cube0.pe1": 18_000}


def test_a_pe_that_takes_no_part_has_no_path():
    m = row(pes=2)
    timeline = kb.simulate(kb.record(lambda *, tl: tl.zeros((1, 128)), m, grid=(1, 1, 1)))
    with pytest.raises(KeyError, match="PE 1 takes no part"):
        critical_path(timeline, 1)
