"""Times worked out by hand, to the picosecond, for both engines.

Figures that recur (``helpers.DOCUMENT``): memory 1 ps a byte and 100,000 of latency; the load port 1000/256 ps a byte,
the store port 1000/128; one command issued every 1,000; a vector operation takes 8,000, and 1,000 for each 128 elements
(exp: 4,000).
"""

from __future__ import annotations

import numpy as np
import pytest

import kernbench as kb

from .helpers import both_engines, machine, row, timed

HALF_KB = (1, 128)
"""Shape of an f32 tile of 512 bytes. It fills one pass of the vector lanes: fill takes 9,000, exp 12,000."""


# ---------------------------------------------------------------- loads and memory
@both_engines
def test_a_load_that_the_port_bounds(engine):
    # head = 100,000; tail = 4,096 + 100,000; port = 4096 * 1000 / 256 = 16,000; end = max(104,096, 116,000)
    m = machine()
    x = kb.shape_only(1024, "f32", m)

    def kernel(x, *, tl):
        tl.load(x, shape=1024)

    assert timed(kernel, m, (x,), engine)() == [(0, 0, 116_000)]


@both_engines
def test_a_load_that_the_memory_bounds(engine):
    # at 100 GB/s the channel ends at 40,960: tail = 140,960 is later than head + port = 116,000
    m = machine(cube__memory__bandwidth="100 GB/s")
    x = kb.shape_only(1024, "f32", m)

    def kernel(x, *, tl):
        tl.load(x, shape=1024)

    assert timed(kernel, m, (x,), engine)() == [(0, 0, 140_960)]


@both_engines
def test_durations_are_rounded_up(engine):
    # one byte at 3 GB/s takes 333.3 ps in memory, at 7 GB/s 142.9 at the port: 334 and 143
    m = machine(cube__memory__bandwidth="3 GB/s", cube__memory__latency="0 ns", pe__load__bandwidth="7 GB/s")
    x = kb.shape_only(64, "i8", m)

    def kernel(x, *, tl):
        tl.load(x, shape=1)

    timeline = kb.simulate(kb.record(kernel, m, (x,)), engine=engine)
    assert timeline.makespan_ps == 334
    assert timeline.memory_busy_ps.tolist() == [334]


@both_engines
def test_requests_of_one_channel_follow_one_another(engine):
    # Four PEs ask at 0 and are served in their order: PE p begins at 4096 p; 100,000 later its port begins, for 16,000.
    m = row(pes=4)
    x = kb.shape_only(1024, "f32", m)

    def kernel(x, *, tl):
        tl.load(x, shape=1024)

    of_pe = timed(kernel, m, (x,), engine)
    assert [of_pe(pe) for pe in range(4)] == [[(0, 0, 116_000 + 4_096 * pe)] for pe in range(4)]


@both_engines
def test_who_arrives_first_is_served_first_whatever_its_index(engine):
    # PE 1 asks at 0. PE 0 issues its load second, at 3,000.
    m = row(pes=2, pe__issue="3 ns")
    x = kb.shape_only(65536, "f32", m)

    def kernel(x, *, tl):
        if tl.program_id(0) == 0:
            tl.zeros(HALF_KB)
        tl.load(x, shape=65536)

    # 262,144 bytes: PE 1 has the channel until 262,144, PE 0 (arrival 3,000) until 524,288; ports take 1,024,000
    of_pe = timed(kernel, m, (x,), engine)
    assert of_pe(1) == [(0, 0, 100_000 + 1_024_000)]
    assert of_pe(0)[1] == (3_000, 3_000, 262_144 + 100_000 + 1_024_000)


@both_engines
@pytest.mark.parametrize(
    ("elements", "tail", "busy"),
    [
        # bytes 32 to 231: 32 in channel 0, 64 in 1, 64 in 2, 40 in 3; 4 ps a byte; the longest takes 256
        (100, 256, [128, 256, 256, 160]),
        # bytes 32 to 631 are parts of stripes 0 to 9: channel 0 has stripes 0 (32 bytes), 4 and 8; channel 1 has 1, 5
        # and 9 (56 bytes); 2 and 3 have two whole ones
        (300, 736, [640, 736, 512, 512]),
        # bytes 32 to 51: within one stripe
        (10, 80, [80, 0, 0, 0]),
    ],
)
def test_a_request_is_cut_into_channels_by_address(engine, elements, tail, busy):
    # the port is fast enough not to matter
    m = machine(cube__memory__channels=4, pe__load__bandwidth="4 TB/s")
    x = kb.shape_only(1024, "f16", m)

    def kernel(x, *, tl):
        tl.load(x + 32, shape=elements)

    timeline = kb.simulate(kb.record(kernel, m, (x,)), engine=engine)
    assert timeline.end_ps.tolist() == [100_000 + tail]
    assert timeline.memory_busy_ps.tolist() == busy


@both_engines
def test_head_leaves_with_the_first_channel_and_tail_with_the_last(engine):
    # First load: channel 0 busy until 4 * 64 = 256. Second, at 100: bytes 0 to 127 in channels 0 and 1. Channel 1
    # begins at 100 (head), channel 0 at 256 and ends at 512 (tail). The port takes 500: head + port = 600 is later.
    m = machine(cube__memory__channels=4, cube__memory__latency="0 ns", pe__issue="100 ps")
    x = kb.shape_only(1024, "i8", m)

    def kernel(x, *, tl):
        tl.load(x, shape=64)
        tl.load(x, shape=128)

    assert timed(kernel, m, (x,), engine)() == [(0, 0, 256), (100, 100, 600)]


@both_engines
def test_outstanding_bytes_bound_a_load(engine):
    # 1,024 bytes a round trip of 100,000: 4,096 bytes take 400,000 at the port
    m = machine(pe__load__outstanding="1 KiB")
    x = kb.shape_only(1024, "f32", m)

    def kernel(x, *, tl):
        tl.load(x, shape=1024)

    assert timed(kernel, m, (x,), engine)() == [(0, 0, 500_000)]


@both_engines
def test_outstanding_bytes_of_a_remote_load_count_over_its_longer_round_trip(engine):
    # trip = 20,000 + 100,000 + 20,000; 4096 * 140,000 / 1024 = 560,000; head is back at 140,000
    m = row(cubes=2, pe__load__outstanding="1 KiB")
    x = kb.shape_only(1024, "f32", m, kb.on(cube=1))

    def kernel(x, *, tl):
        if tl.program_id(1) == 0:
            tl.load(x, shape=1024)

    assert timed(kernel, m, (x,), engine)() == [(0, 0, 700_000)]


# ---------------------------------------------------------------- engines
@both_engines
def test_a_product_that_memory_bounds(engine):
    # a: 2,048 bytes: channel 0-2,048, head 100,000, port 8,000: 108,000.
    # b: 262,144 bytes, asked at 1,000: channel 2,048-264,192, head 102,048, port 1,024,000: 1,126,048.
    # dot: 10,000 + 2 * 8 * 1024 * 128 / 8e12 s = 10,000 + 262,144
    m = machine()
    a, b = kb.shape_only((8, 128), "f16", m), kb.shape_only((128, 1024), "f16", m)

    def kernel(a, b, *, tl):
        tl.dot(tl.load(a, shape=(8, 128)), tl.load(b, shape=(128, 1024)))

    assert timed(kernel, m, (a, b), engine)() == [
        (0, 0, 108_000),
        (1_000, 1_000, 1_126_048),
        (2_000, 1_126_048, 1_126_048 + 272_144),
    ]


@both_engines
def test_products_that_the_matrix_engine_bounds(engine):
    # A dot of (128, 128) by (128, 128): 10,000 + 2 * 128**3 / 1e12 s = 4,204,304; loads of 32,768 bytes take 128,000 at
    # the port and hide behind it.
    m = machine(pe__matrix__rates__f16="1 Tflop/s")
    b = kb.shape_only((512, 128), "f16", m)

    def kernel(b, *, tl):
        a = tl.load(b, shape=(128, 128))
        for i in range(1, 4):
            with tl.scratch_scope(buffers=2):
                tl.dot(a, tl.load(b.row(128 * i), shape=(128, 128)))

    # second operand: asked at 1,000, channel from 32,768, head 132,768, end 260,768; then three dots back to back
    times = timed(kernel, m, (b,), engine)()
    assert times[2] == (2_000, 260_768, 260_768 + 4_204_304)
    assert times[-1][2] == 260_768 + 3 * 4_204_304


@both_engines
@pytest.mark.parametrize(
    ("clock", "elements", "duration"),
    [
        ("1 GHz", 1, 8_000 + 4_000),
        ("1 GHz", 128, 8_000 + 4_000),
        ("1 GHz", 300, 8_000 + 3 * 4_000),  # three passes of the lanes
        ("3 GHz", 129, 8_000 + 2_667),  # 8 cycles of 333.3
    ],
)
def test_a_vector_operation_takes_whole_passes_of_its_lanes(engine, clock, elements, duration):
    m = machine(pe__clock=clock)

    def kernel(*, tl):
        tl.exp(tl.empty((elements,)))

    assert timed(kernel, m, (), engine)() == [(0, 0, duration)]


@both_engines
def test_a_product_is_padded_to_the_engines_tile(engine):
    # (3, 5) x (5, 7) counts as (8, 16) x (16, 16): 2 * 8 * 16 * 16 / 8e12 s = 512
    m = machine()

    def kernel(*, tl):
        tl.dot(tl.empty((3, 5), "f16"), tl.empty((5, 7), "f16"))

    assert timed(kernel, m, (), engine)() == [(0, 0, 10_512)]


@both_engines
def test_a_load_scalar_holds_issue_until_the_value_is_there(engine):
    # 4 bytes: head 100,000 and port 16 (15.6 rounded up)
    m = machine()
    x = kb.tensor(np.arange(4, dtype=np.int32), m)

    def kernel(x, *, tl):
        tl.load_scalar(x)
        tl.zeros(HALF_KB)

    assert timed(kernel, m, (x,), engine)() == [(0, 0, 100_016), (100_016, 100_016, 109_016)]


@both_engines
def test_a_full_queue_holds_issue(engine):
    # Fills take 9,000. With one place, the third waits until the second has started; the load behind it waits too.
    m = machine(pe__queue_depth=1)
    x = kb.shape_only(128, "f32", m)

    def kernel(x, *, tl):
        for _ in range(3):
            tl.zeros(HALF_KB)
        tl.load(x, shape=128)

    # load of 512 bytes: head 100,000 after its start, port 2,000
    assert timed(kernel, m, (x,), engine)() == [
        (0, 0, 9_000),
        (1_000, 9_000, 18_000),
        (9_000, 18_000, 27_000),
        (10_000, 10_000, 112_000),
    ]


@both_engines
@pytest.mark.parametrize(
    ("queues", "starts"), [(1, [0, 102_000, 204_000]), (2, [0, 1_000, 102_000]), (3, [0, 1_000, 2_000])]
)
def test_load_queues_overlap_loads(engine, queues, starts):
    # Each load of 512 bytes takes 102,000, for the channel is free again when the next one asks.
    m = machine(pe__load__queues=queues)
    x = kb.shape_only(128, "f32", m)

    def kernel(x, *, tl):
        for _ in range(3):
            tl.load(x, shape=128)

    times = timed(kernel, m, (x,), engine)()
    assert [(issue, start, end - start) for issue, start, end in times] == [
        (1_000 * i, start, 102_000) for i, start in enumerate(starts)
    ]


@both_engines
def test_each_load_queue_takes_its_turn(engine):
    # The third load waits for the first (1,124,000), which has its queue, though the second ended long before.
    m = machine(cube__memory__bandwidth="8 TB/s")
    x = kb.shape_only(65536, "f32", m)

    def kernel(x, *, tl):
        tl.load(x, shape=65536)
        tl.load(x, shape=128)
        tl.load(x, shape=128)

    # first: head 100,000, port 1,024,000. Second: asks at 1,000; the channel is busy until 262,144 / 8 = 32,768.
    assert [(start, end) for _, start, end in timed(kernel, m, (x,), engine)()] == [
        (0, 1_124_000),
        (1_000, 134_768),
        (1_124_000, 1_226_000),
    ]


@both_engines
@pytest.mark.parametrize(
    ("buffers", "loads", "works"),
    [
        # One copy of scratch: each load waits until exp has read the last one (102,000 + 12,000 a pass).
        (1, [0, 114_000, 228_000], [102_000, 216_000, 330_000]),
        # Two: the second load starts when issued (2,000) and has come at 104,000; the third waits for the first exp.
        (2, [0, 2_000, 114_000], [102_000, 114_000, 216_000]),
    ],
)
def test_a_second_buffer_buys_back_the_wait_for_a_reader(engine, buffers, loads, works):
    m = machine()
    x = kb.shape_only(128, "f32", m)

    def kernel(x, *, tl):
        for _ in range(3):
            with tl.scratch_scope(buffers=buffers):
                tl.exp(tl.load(x, shape=128))

    times = timed(kernel, m, (x,), engine)()
    assert [start for _, start, _ in times[::2]] == loads
    assert [start for _, start, _ in times[1::2]] == works
    assert times[-1][2] == works[-1] + 12_000


@both_engines
@pytest.mark.parametrize(
    ("memory", "port", "end"),
    [
        # Data: head 116,000, port 1,024,000: d = 1,140,000. The last chunk costs 83,018 after it.
        ("1 TB/s", "256 GB/s", 1_140_000 + 83_018),
        # Data at 116,000 + 131,072 = 247,072 + 83,018: the engines' own 426,018 from 16,000 on is later.
        ("4 TB/s", "2 TB/s", 16_000 + 426_018),
    ],
)
def test_a_streamed_composite_is_as_slow_as_its_data_or_its_engines(engine, memory, port, end):
    # matrix 10,000 + 262,144; vector 8,000 + 64 passes of (max 1 + subtract 1 + exp 4) cycles = 392,000; 8 chunks:
    # one chunk 34,018 and 49,000, together 83,018; body = max(272,144 + 49,000, 392,000 + 34,018) = 426,018
    m = machine(cube__memory__bandwidth=memory, pe__load__bandwidth=port)
    b = kb.shape_only((128, 1024), "f16", m)

    def kernel(b, *, tl):
        a = tl.full((8, 128), 1.0, "f16")  # 8 passes: 16,000
        tl.composite(a, b, shape=(128, 1024), epilogue=[("max",), ("exp",)], chunk=128)
        tl.zeros(HALF_KB)
        tl.load(b, shape=(2, 128))

    times = timed(kernel, m, (b,), engine)()
    assert times[1] == (1_000, 16_000, end)
    assert times[2] == (2_000, end, end + 9_000)  # it holds the vector engine
    assert times[3][1] == 16_000  # and one queue of the load engine, whose commands start in order


@both_engines
def test_a_composite_of_tiles_takes_its_engines_only(engine):
    # as above with 8 chunks: 426,018
    m = machine()

    def kernel(*, tl):
        a, b = tl.empty((8, 128), "f16"), tl.empty((128, 1024), "f16")
        tl.composite(a, b, epilogue=[("max",), ("exp",)], chunk=128)
        tl.dot(a, b)

    assert timed(kernel, m, (), engine)() == [(0, 0, 426_018), (1_000, 426_018, 426_018 + 272_144)]
