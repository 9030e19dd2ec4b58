"""Deadlocks: who waits for whom, at which line, and what to do about it."""

from __future__ import annotations

import pytest
from by_hand import Program, ring, row, run, trace_of

from kernbench.errors import DeadlockError
from kernbench.record.deadlock import deadlock_error


def message(machine, *programs, batch=16) -> str:
    with pytest.raises(DeadlockError) as caught:
        run(machine, {}, *programs, batch=batch)
    return str(caught.value)


def exchange(first: Program, second: Program, order: str, count: int = 1) -> None:
    for p, toward in ((first, "intra_E"), (second, "intra_W")):
        tile = p.vector("fill", (1,), "f32", 0.0)
        for verb in order.split():
            for _ in range(count):
                if verb == "send":
                    p.send(toward, tile)
                else:
                    p.recv(toward, (1,), "f32")


def test_both_receive_first():
    a, b = Program(0), Program(1)
    exchange(a, b, "recv send")
    assert message(row(2), a, b) == "\n".join(
        [
            "deadlock: 2 PEs wait for one another in a ring",
            "  sip0.cube0.pe0 receives from intra_E, where sip0.cube0.pe1 has not sent",
            "    at kernel.py:2: command 1",
            "  sip0.cube0.pe1 receives from intra_W, where sip0.cube0.pe0 has not sent",
            "    at kernel.py:2: command 1",
            "  both receive before they send: send first on one side",
        ]
    )


def test_both_send_more_than_a_channel_holds():
    a, b = Program(0), Program(1)
    exchange(a, b, "send recv", count=3)
    text = message(row(2), a, b)
    assert "pe0 sends to intra_E, where sip0.cube0.pe1 has not received the last 2 messages" in text
    assert "kernel.py:4" in text
    assert "both send before they receive, and a channel holds 2 messages" in text
    assert "raise pe.channel.depth" in text


@pytest.mark.parametrize("count", [1, 2])
def test_sending_first_is_fine_while_the_channel_has_room(count):
    a, b = Program(0), Program(1)
    exchange(a, b, "send recv", count=count)
    run(row(2), {}, a, b)


def test_messages_in_another_order_than_they_are_received():
    """PE 0 fills its channel to PE 1, which first waits for PE 2, which waits for PE 0's next message."""
    a, b, c = Program(0), Program(1), Program(2)
    tile = a.vector("fill", (1,), "f32", 0.0)
    for direction in ("E", "E", "E", "W"):
        a.send(direction, tile)
    for direction in ("E", "W", "W", "W"):
        b.recv(direction, (1,), "f32")
    c.send("W", c.recv("E", (1,), "f32"))
    text = message(ring(3), a, b, c)
    assert "3 PEs wait for one another in a ring" in text
    assert "cube0.pe0 sends to E, where sip0.cube1.pe0 has not received the last 2 messages" in text
    assert "cube1.pe0 receives from E, where sip0.cube2.pe0 has not sent" in text
    assert "keep the same order, or raise pe.channel.depth (now 2)" in text
    run(ring(3, depth=3), {}, a, b, c)


def test_a_ring_of_many_pes_is_told_by_what_they_have_in_common():
    p = Program(*range(64))
    p.recv("W", (1,), "f32")
    p.send("E", p.vector("fill", (1,), "f32", 0.0))
    text = message(ring(64), p)
    assert text.startswith("deadlock: 64 PEs wait for one another in a ring\n  cube 0-63 pe 0 receives from W")
    assert text.count("kernel.py") == 1
    assert "all receive before they send: send first on one side" in text


@pytest.mark.parametrize("behind", ["intra_W", "intra_E"])
def test_those_who_wait_behind_the_ring_are_counted_but_not_blamed(behind):
    in_ring, others = ((0, 1), (2, 3, 4)) if behind == "intra_W" else ((3, 4), (0, 1, 2))
    a, b, rest = Program(in_ring[0]), Program(in_ring[1]), Program(*others)
    exchange(a, b, "recv send")
    rest.recv(behind, (1,), "f32")
    text = message(row(5), *sorted((a, b, rest), key=lambda p: p.pes[0]))
    assert text.startswith("deadlock: 2 PEs wait for one another in a ring, and 5 PEs in all cannot go on")
    assert not any(f"pe{pe} receives" in text for pe in others)
    assert "stuck in all: cube 0 pe 0-4" in text


@pytest.mark.parametrize("batch", [1, 16])
def test_a_receive_that_nobody_sends(batch):
    p = Program(1, 2, 3)
    p.recv("intra_W", (1,), "f32")
    text = message(row(4), p, batch=batch)
    assert text.startswith("deadlock: sip0.cube0.pe1 waits for a PE that has ended, and 3 PEs in all cannot go on")
    assert "pe1 receives from intra_W, where sip0.cube0.pe0 has not sent" in text
    assert 'sip0.cube0.pe0 has ended: let it tl.send(dir="intra_E", ...), or do not receive' in text


def test_of_a_chain_only_its_end_is_told():
    p = Program(0, 1, 2)
    p.recv("intra_E", (1,), "f32")
    text = message(row(4), p)
    assert text.startswith("deadlock: sip0.cube0.pe2 waits for a PE that has ended, and 3 PEs in all cannot go on")
    assert text.count("receives from") == 1


def test_of_several_chains_the_first_is_told():
    p = Program(1, 3, 5)
    p.recv("intra_W", (1,), "f32")
    assert message(row(6), p).startswith("deadlock: sip0.cube0.pe1 waits for a PE that has ended, and 3 PEs in all")


def test_a_message_too_many_for_a_pe_that_has_ended():
    p = Program(0)
    tile = p.vector("fill", (1,), "f32", 0.0)
    for _ in range(3):
        p.send("intra_E", tile)
    text = message(row(2), p)
    assert "pe0 sends to intra_E" in text
    assert 'pe1 has ended: let it tl.recv(dir="intra_W", ...), or do not send' in text


def test_the_reason_must_be_the_command():
    p = Program(0)
    p.recv("intra_E", (1,), "f32")
    trace = trace_of(row(2), {}, p)
    assert isinstance(deadlock_error(trace, {0: (0, "recv")}), DeadlockError)
    with pytest.raises(ValueError, match="command 0 of PE 0 is a recv, not the send"):
        deadlock_error(trace, {0: (0, "send")})
