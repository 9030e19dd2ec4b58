"""What held each command back, by hand and for random programs against a plain reading of the definition."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import kernbench as kb
from kernbench.machine import OPPOSITE
from kernbench.placement import ADDRESS_BITS, on
from kernbench.record.stream import Engine, Op
from kernbench.simulate import held as compiled
from kernbench.simulate import journey
from kernbench.simulate.costs import transfer_ps
from kernbench.simulate.path import Cause
from kernbench.simulate.timeline import Timeline
from kernbench.simulate.waits import Held, causes, waits

from .helpers import both_engines, machine, random_timelines, row

BIG = (64, 128)
"""Of f32: 32,768 bytes, 128,000 ps at a load port."""


def cause_of(timeline: Timeline, pe: int = 0) -> list[str]:
    rank = timeline.program.rank[pe]
    found = causes(timeline)[timeline.program.out[rank] : timeline.program.out[rank + 1]]
    return [Held(c).name.lower() for c in found]


# ---------------------------------------------------------------- by hand
@both_engines
def test_a_command_waits_for_its_operand_or_its_engine(engine):
    def kernel(x, *, tl):
        a = tl.load(x, shape=BIG)
        tl.exp(a)
        tl.exp(a)

    m = machine()
    timeline = kb.simulate(kb.record(kernel, m, (kb.shape_only(BIG, "f32", m),)), engine=engine)
    assert cause_of(timeline) == ["issue", "operand", "engine"]
    found = waits(timeline)
    assert found.start_ps.tolist() == [0, 227_000, 490_000]  # exp takes 8,000 + 64 x 4 x 1,000
    assert found.issue_ps.tolist() == [0, 0, 0]
    assert found.on.tolist() == [-1, 0, 1]


@both_engines
def test_a_load_waits_for_the_buffer_that_it_overwrites(engine):
    def kernel(x, *, tl):
        for _ in range(2):
            with tl.scratch_scope():
                tl.exp(tl.load(x, shape=BIG))

    m = machine()
    timeline = kb.simulate(kb.record(kernel, m, (kb.shape_only(BIG, "f32", m),)), engine=engine)
    assert cause_of(timeline) == ["issue", "operand", "reuse", "operand"]
    # Issued at 2,000, the second load waits for the end of exp at 228,000 + 264,000; it takes 228,000.
    assert waits(timeline).start_ps.tolist() == [0, 227_000, 490_000, 717_000]


@both_engines
def test_issue_waits_while_a_queue_is_full(engine):
    def kernel(*, tl):
        for _ in range(4):
            tl.zeros((1, 128))

    timeline = kb.simulate(kb.record(kernel, machine(pe__queue_depth=1)), engine=engine)
    assert cause_of(timeline) == ["issue", "engine", "engine", "engine"]
    # Each fill takes 9,000; the third is issued when the second starts, and waits as long again for the engine: a tie.
    found = waits(timeline)
    assert found.issue_ps.tolist() == [0, 0, 7_000, 8_000]
    assert found.start_ps.tolist() == [0, 8_000, 9_000, 9_000]
    assert [Held(h).name for h in found.issue_held] == ["ISSUE", "ISSUE", "QUEUE", "QUEUE"]


@both_engines
def test_a_receive_waits_for_its_message_and_holds_the_next_issue(engine):
    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tl.send(dir="intra_E", src=tl.zeros((1, 128)))
        else:
            tl.recv(dir="intra_W", shape=(1, 128), dtype="f32")
            tl.zeros((1, 128))

    timeline = kb.simulate(kb.record(kernel, row(pes=2)), engine=engine)
    assert cause_of(timeline, 1) == ["message", "message"]
    found = waits(timeline, timeline.program.rank[np.array([1])])
    assert found.start_ps.tolist() == [18_000, 0]
    assert found.issue_ps.tolist() == [0, 17_000]
    assert found.on.tolist() == [-1, 0]


@both_engines
def test_a_send_waits_for_a_credit(engine):
    def kernel(control, *, tl):
        if tl.program_id(0) == 0:
            tile = tl.zeros((1, 128))
            tl.send(dir="intra_E", src=tile)
            tl.send(dir="intra_E", src=tile)
        else:
            tl.load_scalar(control)
            for _ in range(2):
                tl.recv(dir="intra_W", shape=(1, 128), dtype="f32")

    m = row(pes=2, pe__channel__depth=1)
    control = kb.tensor(np.ones(1, np.int32), m)
    timeline = kb.simulate(kb.record(kernel, m, (control,)), engine=engine)
    assert cause_of(timeline) == ["issue", "operand", "credit"]
    assert cause_of(timeline, 1) == ["issue", "operand", "message"]
    # The value is there at 100,016, then the receive is issued; the news takes 5,000. The send was due at 2,000.
    assert waits(timeline).issue_ps[2] == 103_016


@both_engines
def test_a_load_waits_for_memory_that_serves_others(engine):
    # 32,768 bytes at 128 GB/s are 256,000
    m = row(pes=2, cube__memory__bandwidth="128 GB/s")

    def kernel(x, *, tl):
        tl.load(x, shape=BIG)

    timeline = kb.simulate(kb.record(kernel, m, (kb.shape_only(BIG, "f32", m, on(0, 0, 0)),)), engine=engine)
    assert [cause_of(timeline, pe) for pe in (0, 1)] == [["issue"], ["memory"]]
    assert waits(timeline).memory_ps.tolist() == [0, 256_000]


@both_engines
def test_loads_and_messages_wait_for_links_that_serve_others(engine):
    m = row(cubes=2, pes=2, sip__cubes__link__bandwidth="128 GB/s")  # 32,768 bytes are 256,000

    def load(x, *, tl):
        if tl.program_id(1) == 0:
            tl.load(x, shape=BIG)

    timeline = kb.simulate(kb.record(load, m, (kb.shape_only(BIG, "f32", m, on(0, 1, 0)),)), engine=engine)
    assert [cause_of(timeline, pe) for pe in (0, 1)] == [["issue"], ["link"]]
    found = waits(timeline)
    # The second waits 32,768 at the memory; its head comes to the link at 152,768, and the link is taken till 376,000.
    assert found.memory_ps.tolist() == [0, 32_768]
    assert found.link_ps.tolist() == [0, 376_000 - 152_768]

    def send(*, tl):
        if tl.program_id(1) == 0:
            tl.send(dir="E", src=tl.zeros((1, 128)))
        else:
            tl.recv(dir="W", shape=(1, 128), dtype="f32")

    timeline = kb.simulate(kb.record(send, m), engine=engine)
    # The send waits 8,000 for its operand; 512 bytes take 4,000.
    assert waits(timeline, timeline.program.rank[np.array([0, 1])]).link_ps.tolist() == [0, 0, 0, 4_000]
    assert cause_of(timeline, 1) == ["issue", "operand"]


# ---------------------------------------------------------------- random programs
def test_the_waits_of_random_programs_are_what_the_definition_says():
    seen: Counter[str] = Counter()
    for timeline in random_timelines():
        found, place = waits(timeline), 0
        for rank in range(timeline.program.n_ranks):
            for expected in _read(timeline, rank):
                issue_wait, start_wait = expected
                assert (found.issue_ps[place], Held(found.issue_held[place])) == issue_wait
                assert (found.start_ps[place], Held(found.start_held[place])) == start_wait
                options = [issue_wait, start_wait]
                options += [(found.memory_ps[place], Held.MEMORY), (found.link_ps[place], Held.LINK)]
                longest = max(ps for ps, _ in options)
                cause = min(held for ps, held in options if ps == longest) if longest else Held.ISSUE
                assert Held(found.cause[place]) == cause
                seen[cause.name] += 1
                place += 1
        assert place == timeline.program.n_commands
        assert (causes(timeline) == found.cause).all()
        assert (timeline.cause == found.cause).all()
    assert all(seen[held.name] > 10 for held in Held), seen


def _read(timeline: Timeline, rank: int):
    """Yield ((wait before issue, for what), (wait before start, for what)) of each command, from trace and times."""
    program, m = timeline.program, timeline.program.machine
    cls, pe = program.trace.classes[program.class_of[rank]], int(program.pe[rank])
    issue, start, end = (t.tolist() for t in timeline.of_pe(pe))
    lanes = {int(Engine.LOAD): m.pe.load.queues, int(Engine.STORE): m.pe.store.queues}
    for i, command in enumerate(cls.commands):
        ready = issue[i - 1] + m.pe.issue if i else 0
        at_issue, at_start = [], []
        at_start += [((Held.OPERAND, Held.REUSE)[kind], end[j]) for j, kind in command.deps]
        for engine, mine in cls.stream.by_engine.items():
            if i in mine:
                k, q = mine.tolist().index(i), lanes.get(engine, 1)
                at_start += [(Held.ENGINE, end[mine[k - q]])] if k >= q else []
                at_start += [(Held.ENGINE, start[mine[k - 1]])] if k and q > 1 else []
                at_issue += [(Held.QUEUE, start[mine[k - m.pe.queue_depth]])] if k >= m.pe.queue_depth else []
        if i and cls.stream.op[i - 1] in (Op.RECV, Op.SCALAR):
            of_recv = cls.stream.op[i - 1] == Op.RECV
            at_issue.append((Held.MESSAGE, start[i - 1]) if of_recv else (Held.OPERAND, end[i - 1]))
        if command.op in ("send", "recv"):
            peer, back = int(m.network.peer[pe, command.direction]), int(OPPOSITE[command.direction])
            theirs = program.trace.classes[program.class_of[program.rank[peer]]].stream.by_engine
            _, other_start, other_end = timeline.of_pe(peer)
            n = int(cls.stream.message[i])
            if command.op == "recv":
                link = m.network.link_of[peer, back]
                j = theirs[int(Engine.SEND) + back][n]
                at_start.append((Held.MESSAGE, int(other_end[j] + m.network.link_latency[link])))
            elif n >= m.pe.channel.depth:
                link = m.network.link_of[pe, command.direction]
                j = theirs[int(Engine.RECV) + back][n - m.pe.channel.depth]
                at_issue.append((Held.CREDIT, int(other_start[j] + m.network.link_latency[link])))
        yield _last(at_issue, ready, issue[i]), _last(at_start, issue[i], start[i])


def _last(options: list[tuple[Held, int]], begin: int, end: int) -> tuple[int, Held]:
    if begin == end:
        return 0, Held.ISSUE
    assert max(moment for _, moment in options) == end
    return end - begin, min(held for held, moment in options if moment == end)


def test_what_is_not_late_has_not_waited_and_what_has_waited_is_late():
    seen: Counter[tuple[str, bool]] = Counter()
    for timeline in random_timelines():
        program, found = timeline.program, waits(timeline)
        for rank, pe in enumerate(program.pe.tolist()):
            cls = program.trace.classes[program.class_of[rank]]
            _, start, end = timeline.of_pe(pe)
            for i, command in enumerate(cls.commands):
                place = program.out[rank] + i
                waited = int(found.memory_ps[place] + found.link_ps[place])
                if command.access is None or command.op == "composite":
                    assert command.op in ("composite", "send") or waited == 0
                    continue
                late = int(end[i]) - _alone(timeline, rank, i, int(start[i]))
                assert (waited > 0) == (late > 0), (timeline, pe, i)
                assert waited >= late
                seen[command.op, late > 0] += 1
    assert len(seen) == 4
    assert min(seen.values()) > 50


def _alone(timeline: Timeline, rank: int, i: int, start: int) -> int:
    """When a load or store would end if nobody else used memories and links."""
    program, m = timeline.program, timeline.program.machine
    network, memory = m.network, m.memory
    cls = program.trace.classes[program.class_of[rank]]
    command = cls.commands[i]
    access = command.access
    address = int(cls.columns[access.address.column][program.lane[rank]]) + access.address.offset
    node = int(network.node_of_pe[program.pe[rank]])
    entry = int(network.entry_node(node, address >> ADDRESS_BITS))
    there, back = network.route(node, entry), network.route(entry, node)
    offset, n = address & ((1 << ADDRESS_BITS) - 1), command.nbytes
    stripes = np.arange(offset, offset + n) // memory.interleave % memory.channels
    moved = transfer_ps(int(np.bincount(stripes).max()) * memory.channels, memory.bandwidth)

    def over(links: list[int], head: int, tail: int) -> tuple[int, int]:
        for link in links:
            latency = int(network.link_latency[link])
            tail = max(head + transfer_ps(n, int(network.link_bandwidth[link])), tail) + latency
            head += latency
        return head, tail

    if command.op == "store":
        head, tail = over(there, start, start + transfer_ps(n, m.pe.store.bandwidth))
        return max(tail, head + moved) + memory.latency
    request = int(network.link_latency[there].sum())
    port, outstanding = transfer_ps(n, m.pe.load.bandwidth), m.pe.load.outstanding
    if outstanding is not None:
        trip = request + memory.latency + int(network.link_latency[back].sum())
        port = max(port, -(-n * trip // outstanding))
    head = start + request + memory.latency
    head, tail = over(back, head, head + moved)
    return max(tail, head + port)


# ---------------------------------------------------------------- the compiled part
@pytest.mark.parametrize("held", list(Held))
def test_the_compiled_part_numbers_causes_alike(held):
    assert getattr(compiled, f"_{held.name}") == held


@pytest.mark.parametrize("cause", list(Cause))
def test_the_compiled_part_numbers_path_causes_alike(cause):
    assert getattr(journey, cause.name) == cause
