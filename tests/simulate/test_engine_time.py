"""What each engine does with its time adds up to the makespan, and is told by what a person would say."""

from __future__ import annotations

from collections import Counter

import pytest

import kernbench as kb
from kernbench.placement import on
from kernbench.record.stream import Engine
from kernbench.simulate import held, usage
from kernbench.simulate.engine_time import COLUMNS, engine_name, engine_time
from kernbench.simulate.waits import Held, waits

from .helpers import both_engines, machine, random_timelines, row

BIG = (64, 128)
"""Of f32: 32,768 bytes, 128,000 ps at a load port."""


def test_the_time_of_each_engine_adds_up_to_the_makespan():
    seen: Counter[str] = Counter()
    for timeline in random_timelines():
        found = engine_time(timeline)
        assert (found.ps >= 0).all()
        assert (found.ps.sum(axis=1) == timeline.makespan_ps).all()
        seen.update(name for name, ps in zip(COLUMNS, found.ps.sum(axis=0), strict=True) if ps)
        for shares in found.shares().values():
            assert sum(shares.values()) == pytest.approx(1)
    assert min(seen[name] for name in COLUMNS) > 10, seen


def test_every_engine_that_has_work_has_a_row():
    for timeline in random_timelines():
        expected = [
            (int(pe), engine)
            for pe, cls in zip(timeline.program.pe, timeline.program.class_of, strict=True)
            for engine in sorted(timeline.program.trace.classes[cls].stream.by_engine)
        ]
        found = engine_time(timeline)
        assert list(zip(found.pe.tolist(), found.engine.tolist(), strict=True)) == expected


def test_an_engine_is_at_work_while_any_of_its_commands_is():
    overlaps = 0
    for timeline in random_timelines():
        found, waited = engine_time(timeline), waits(timeline)
        at_memory, at_link = (COLUMNS.index(name) for name in ("memory", "link"))
        for pe, engine, ps in zip(found.pe.tolist(), found.engine.tolist(), found.ps.tolist(), strict=True):
            rank = timeline.program.rank[pe]
            mine = timeline.program.trace.classes[timeline.program.class_of[rank]].stream.by_engine[engine]
            _, start, end = timeline.of_pe(pe)
            reach = at_work = 0
            for begun, ended in zip(start[mine].tolist(), end[mine].tolist(), strict=True):
                overlaps += begun < reach
                at_work += max(ended - max(begun, reach), 0)
                reach = max(reach, ended)
            assert ps[0] + ps[at_memory] + ps[at_link] == at_work
            assert ps[-1] == timeline.makespan_ps - reach
            place = timeline.program.out[rank] + mine
            memory, link = (int(column[place].sum()) for column in (waited.memory_ps, waited.link_ps))
            if at_work == int((end[mine] - start[mine]).sum()):  # one command at a time
                assert (ps[at_memory], ps[at_link]) == (memory, link)
            else:
                assert ps[at_memory] + ps[at_link] <= memory + link
    assert overlaps > 100


@both_engines
def test_gaps_are_told_by_what_the_next_command_waited_for(engine):
    def kernel(x, *, tl):
        for _ in range(2):
            with tl.scratch_scope():
                tl.exp(tl.load(x, shape=BIG))

    m = machine()
    timeline = kb.simulate(kb.record(kernel, m, (kb.shape_only(BIG, "f32", m),)), engine=engine)
    # load 0 - 228,000, exp - 492,000, load - 720,000, exp - 984,000
    found = engine_time(timeline).of_pe(0)
    assert _told(found["load"]) == {"busy": 456_000, "reuse": 264_000, "idle": 264_000}
    assert _told(found["vector"]) == {"busy": 528_000, "operand": 227_000 + 228_000, "issue": 1_000}
    assert engine_time(timeline).shares()["load"]["busy"] == pytest.approx(456 / 984)


@both_engines
def test_a_gap_behind_a_receive_is_the_message_not_the_operand(engine):
    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tl.send(dir="intra_E", src=tl.zeros((1, 128)))
        else:
            tl.exp(tl.recv(dir="intra_W", shape=(1, 128), dtype="f32"))

    timeline = kb.simulate(kb.record(kernel, row(pes=2)), engine=engine)
    # The message comes at 18,000 and is in scratch at 22,000; exp takes 12,000. Issue is ready for it at 1,000.
    found = engine_time(timeline).of_pe(1)
    assert _told(found["vector"]) == {"busy": 12_000, "message": 17_000, "operand": 4_000, "issue": 1_000}
    assert _told(found["recv intra_W"]) == {"busy": 4_000, "message": 18_000, "idle": 12_000}
    assert _told(engine_time(timeline).of_pe(0)["send intra_E"]) == {
        "busy": 4_000, "operand": 8_000, "issue": 1_000, "idle": 21_000
    }  # fmt: skip


@both_engines
@pytest.mark.parametrize("queues", [1, 2])
def test_waits_at_memory_are_not_work_unless_another_queue_works(engine, queues):
    m = row(pes=2, cube__memory__bandwidth="128 GB/s", pe__load__queues=queues, pe__issue="0 ns")

    def kernel(x, *, tl):
        for _ in range(2):
            tl.load(x, shape=BIG)

    trace = kb.record(kernel, m, (kb.shape_only(BIG, "f32", m, on(0, 0, 0)),))
    found = engine_time(kb.simulate(trace, engine=engine)).of_pe(1)["load"]
    # Each load keeps the memory for 256,000 and is 100,000 on its way.
    if queues == 1:
        # PE 0's begin at 0 and, issued again at 356,000, behind PE 1's at 512,000; then PE 1's second at 768,000.
        # So of PE 1, the first waits 256,000, is served until 512,000 and ends at 612,000; the second waits 156,000.
        assert _told(found) == {"busy": 356_000 + 356_000, "memory": 256_000 + 156_000}
    else:
        # The four are served in the order of PEs: PE 1's from 512,000 and from 768,000 on. All is over at 1,124,000.
        assert _told(found) == {"busy": 612_000, "memory": 512_000}


def test_names_of_engines():
    assert [engine_name(e) for e in (Engine.LOAD, Engine.VECTOR)] == ["load", "vector"]
    assert engine_name(Engine.SEND + 1) == "send intra_E"
    assert engine_name(Engine.RECV + 11) == "recv sip_W"


def test_the_compiled_part_numbers_columns_alike():
    first = usage._FIRST
    assert [COLUMNS[usage._BUSY], COLUMNS[usage._IDLE], len(COLUMNS)] == ["busy", "idle", usage._IDLE + 1]
    assert all(COLUMNS[first + h] == h.name.lower() for h in Held)
    assert (usage._ISSUE, usage._MEMORY, usage._LINK) == (held._ISSUE, held._MEMORY, held._LINK)


def _told(columns: dict[str, int]) -> dict[str, int]:
    """Leave out what is 0."""
    return {name: ps for name, ps in columns.items() if ps}
