"""Times of messages and remote accesses worked out by hand, for both engines.

Figures that recur besides those of ``test_closed_forms``: links between PEs take 1000/128 ps a byte and 5,000 of
latency, those between CUBEs 1000/256 and 20,000, those between SIPs 1000/64 and 500,000; a receive takes 4,000.
"""

from __future__ import annotations

import pytest

import kernbench as kb

from .helpers import DOCUMENT, both_engines, machine, row, timed

HALF_KB = (1, 128)


# ---------------------------------------------------------------- messages
@both_engines
def test_a_message_between_pes(engine):
    # fill until 9,000; 512 bytes at 128 GB/s: 4,000; 5,000 of latency; 4,000 to receive
    m = row(pes=2)

    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tl.send(dir="intra_E", src=tl.zeros(HALF_KB))
        else:
            tl.recv(dir="intra_W", shape=HALF_KB, dtype="f32")

    of_pe = timed(kernel, m, (), engine)
    assert of_pe(0) == [(0, 0, 9_000), (1_000, 9_000, 13_000)]
    assert of_pe(1) == [(0, 18_000, 22_000)]


@both_engines
def test_issue_goes_on_when_the_message_is_taken_not_when_it_is_in_scratch(engine):
    m = row(pes=2)

    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tl.send(dir="intra_E", src=tl.zeros(HALF_KB))
        else:
            got = tl.recv(dir="intra_W", shape=HALF_KB, dtype="f32")
            tl.zeros(HALF_KB)
            tl.exp(got)

    of_pe = timed(kernel, m, (), engine)
    assert of_pe(1) == [(0, 18_000, 22_000), (18_000, 18_000, 27_000), (19_000, 27_000, 39_000)]


@both_engines
def test_pes_share_the_link_between_cubes_in_the_order_of_arrival_and_index(engine):
    # PEs 0 and 1 send 512 bytes at 9,000, PE 2 1,024 at 10,000 (two passes to fill); 512 bytes at 256 GB/s are 2,000
    m = row(cubes=2, pes=3)

    def kernel(*, tl):
        shape = (2, 128) if tl.program_id(0) == 2 else HALF_KB
        if tl.program_id(1) == 0:
            tl.send(dir="E", src=tl.zeros(shape))
        else:
            tl.recv(dir="W", shape=shape, dtype="f32")

    of_pe = timed(kernel, m, (), engine)
    assert of_pe(0)[1] == (1_000, 9_000, 11_000)
    assert of_pe(1)[1] == (1_000, 9_000, 13_000)  # the link is PE 0's until 11,000
    assert of_pe(2)[1] == (1_000, 10_000, 17_000)  # from 13,000 on
    assert [of_pe(pe)[0][1] for pe in (3, 4, 5)] == [31_000, 33_000, 37_000]


@both_engines
def test_a_message_between_sips(engine):
    # 512 bytes at 64 GB/s: 8,000; 500,000 of latency
    m = machine(system__sips__columns=2)

    def kernel(*, tl):
        if tl.program_id(2) == 0:
            tl.send(dir="sip_E", src=tl.zeros(HALF_KB))
        else:
            tl.recv(dir="sip_W", shape=HALF_KB, dtype="f32")

    assert timed(kernel, m, (), engine)(1) == [(0, 517_000, 521_000)]


@both_engines
def test_a_slow_receiver_stalls_the_sender_for_credits(engine):
    # The channel holds two. The receiver has one buffer, so that it takes message k when exp has read message k - 1.
    m = row(pes=2)

    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tile = tl.zeros(HALF_KB)
            for _ in range(4):
                tl.send(dir="intra_E", src=tile)
        else:
            for _ in range(4):
                with tl.scratch_scope():
                    tl.exp(tl.recv(dir="intra_W", shape=HALF_KB, dtype="f32"))

    of_pe = timed(kernel, m, (), engine)
    # messages 0 and 1: on the link at 9,000 and 13,000, there at 18,000 and 22,000
    # taken:   0 at 18,000; then exp from 22,000 to 34,000
    #          1 at 34,000; exp 38,000-50,000
    #          2 at 50,000 (there since 32,000); exp 54,000-66,000
    #          3 at 66,000; exp 70,000-82,000
    # credits: message 2 is issued at 18,000 + 5,000, message 3 at 34,000 + 5,000
    assert of_pe(0)[1:] == [
        (1_000, 9_000, 13_000),
        (2_000, 13_000, 17_000),
        (23_000, 23_000, 27_000),
        (39_000, 39_000, 43_000),
    ]
    assert [start for _, start, _ in of_pe(1)[::2]] == [18_000, 34_000, 50_000, 66_000]
    assert of_pe(1)[-1] == (66_000, 70_000, 82_000)


@both_engines
def test_a_deeper_channel_does_without_the_stall(engine):
    m = row(pes=2, pe__channel__depth=4)

    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tile = tl.zeros(HALF_KB)
            for _ in range(4):
                tl.send(dir="intra_E", src=tile)
        else:
            for _ in range(4):
                with tl.scratch_scope():
                    tl.exp(tl.recv(dir="intra_W", shape=HALF_KB, dtype="f32"))

    assert timed(kernel, m, (), engine)(0)[1:] == [
        (1_000 * i, 5_000 + 4_000 * i, 9_000 + 4_000 * i) for i in range(1, 5)
    ]


# ---------------------------------------------------------------- remote memory
def load_it(x, *, tl):
    if tl.program_id(1) == 0:
        tl.load(x, shape=1024)


def store_it(x, *, tl):
    if tl.program_id(1) == 0:
        tl.store(x, tl.zeros((1024,)))


@both_engines
def test_a_load_over_two_links(engine):
    # 4,096 bytes take 4,096 in memory, 16,000 on each link and at the port.
    # request there 40,000; head 140,000, tail 144,096
    # first link 140,000-156,000: head 160,000, tail 176,000
    # second 160,000-176,000: head 180,000, tail 196,000; head + port = 196,000
    m = row(cubes=3)
    x = kb.shape_only(1024, "f32", m, kb.on(cube=2))
    timeline = kb.simulate(kb.record(load_it, m, (x,)), engine=engine)
    assert timeline.end_ps.tolist() == [196_000]
    names = m.network.link_names()
    used = {names[i]: int(n) for i, n in enumerate(timeline.link_nbytes) if n}
    assert used == {"sip0.cube2 -> sip0.cube1": 4096, "sip0.cube1 -> sip0.cube0": 4096}
    assert set(timeline.link_busy_ps[timeline.link_nbytes > 0].tolist()) == {16_000}


@both_engines
@pytest.mark.parametrize(
    ("slow", "end"),
    [
        # First link at 64 GB/s: 140,000-204,000: head 160,000, tail 224,000. Second 160,000-176,000: tail 244,000.
        (("sip0.cube2", "sip0.cube1"), 244_000),
        # Second link at 64 GB/s: 160,000-224,000: head 180,000, tail 244,000: the slower link counts once.
        (("sip0.cube1", "sip0.cube0"), 244_000),
        # A slow link the other way does not matter: requests have no bytes.
        (("sip0.cube0", "sip0.cube1"), 196_000),
    ],
)
def test_the_tail_follows_the_slowest_link(engine, slow, end):
    m = row(cubes=3, links=[{"from": slow[0], "to": slow[1], "bandwidth": "64 GB/s"}])
    x = kb.shape_only(1024, "f32", m, kb.on(cube=2))
    assert timed(load_it, m, (x,), engine)() == [(0, 0, end)]


@both_engines
def test_a_store_here(engine):
    # fill: 8 passes, 16,000. Head is at the memory at once: channel until 20,096; the port's tail is at 16,000 + 32,000
    m = machine()
    x = kb.shape_only(1024, "f32", m)
    assert timed(store_it, m, (x,), engine)()[1] == (1_000, 16_000, 48_000 + 100_000)


@both_engines
def test_a_store_that_the_memory_bounds(engine):
    # at 100 GB/s the channel has it from 16,000 to 56,960
    m = machine(cube__memory__bandwidth="100 GB/s")
    x = kb.shape_only(1024, "f32", m)
    assert timed(store_it, m, (x,), engine)()[1] == (1_000, 16_000, 156_960)


@both_engines
def test_a_store_over_two_links(engine):
    # head 16,000, tail 48,000
    # first link 16,000-32,000: head 36,000, tail 68,000; second 36,000-52,000: head 56,000, tail 88,000
    # memory 56,000-60,096; end = max(88,000, 60,096) + 100,000
    m = row(cubes=3)
    x = kb.shape_only(1024, "f32", m, kb.on(cube=2))
    assert timed(store_it, m, (x,), engine)()[1] == (1_000, 16_000, 188_000)


@both_engines
def test_loads_and_messages_share_a_link(engine):
    # PE 0 loads 4,096 bytes from CUBE 1, whose PE fills 120 passes of lanes until 128,000 and sends them west.
    m = row(cubes=2)
    x = kb.shape_only(1024, "f32", m, kb.on(cube=1))

    def kernel(x, *, tl):
        if tl.program_id(1) == 0:
            tl.load(x, shape=1024)
            tl.recv(dir="E", shape=(120, 128), dtype="f32")
        else:
            tl.send(dir="W", src=tl.zeros((120, 128)))

    # load: request 20,000, head at the link 120,000; link until 136,000; head 140,000, tail 156,000, port 156,000
    # send: arrives at 128,000, begins at 136,000; 61,440 bytes are 240,000; there at 396,000
    of_pe = timed(kernel, m, (x,), engine)
    assert of_pe(0) == [(0, 0, 156_000), (1_000, 396_000, 400_000)]
    assert of_pe(1)[1] == (1_000, 128_000, 376_000)


@both_engines
def test_a_sips_shared_memory_is_entered_at_the_requests_own_cube(engine):
    # SIP 1's CUBE 1 loads from the memory of SIP 0, over the one link between them, into which it goes at its own CUBE.
    # request 500,000; head 600,000; 4,096 bytes at 64 GB/s are 64,000: head 1,100,000, tail 1,164,000
    memory = DOCUMENT["cube"]["memory"]
    m = row(cubes=2, system__sips__columns=2, cube__memory=None, sip__memory=memory)
    x = kb.shape_only(1024, "f32", m, kb.on(sip=0))

    def kernel(x, *, tl):
        if tl.program_id(2) * 2 + tl.program_id(1) == 3:
            tl.load(x, shape=1024)

    timeline = kb.simulate(kb.record(kernel, m, (x,)), engine=engine)
    assert timeline.end_ps.tolist() == [1_164_000]
    assert sorted(timeline.link_nbytes.tolist())[-2:] == [0, 4096]  # one link


@both_engines
def test_latencies_of_zero_keep_the_order_of_pes(engine):
    # Everything at 1 ps a byte and without latency. PEs 0 (CUBE 0) and 1 (CUBE 1) load 100 bytes from CUBE 2 at 0: the
    # channel has PE 0's until 100 and PE 1's until 200. Both cross the link from CUBE 2 to CUBE 1, which has PE 0's
    # from 0 to 100. PE 2 (CUBE 2) stores into CUBE 1 over the same link, behind PE 0 and before PE 1: 100-200, 200-300.
    zero = {"bandwidth": "1 TB/s", "latency": "0 ns"}
    m = row(
        cubes=3, sip__cubes__link=zero, cube__memory__latency="0 ns", pe__issue="0 ns",
        pe__load__bandwidth="1 TB/s", pe__store__bandwidth="1 TB/s",
    )  # fmt: skip
    x, y = kb.shape_only(100, "i8", m, kb.on(cube=2)), kb.shape_only(100, "i8", m, kb.on(cube=1))

    def kernel(x, y, *, tl):
        if tl.program_id(1) == 2:
            tl.store(y, tl.empty((100,), "i8"))
        else:
            tl.load(x, shape=100)

    # PE 0: head at once through memory and both links: port and tail end at 100.
    # PE 1: head leaves memory at 100, waits for the link until 200, tail 300.
    # PE 2: link from 100, memory from 100 to 200; its tail left the link at 200.
    of_pe = timed(kernel, m, (x, y), engine)
    assert [of_pe(pe) for pe in range(3)] == [[(0, 0, 100)], [(0, 0, 300)], [(0, 0, 200)]]
