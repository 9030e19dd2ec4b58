"""Scratch: what it holds, what it holds at most, and who must wait before its bytes are used again."""

import numpy as np
import pytest

import kernbench as kb
from kernbench.record.trace import OPERAND, REUSE, Ref
from kernbench.testing import random_program

from .helpers import commands, dependencies, marked, small_machine

MACHINE = small_machine(cubes=1, columns=1, rows=1)


def only_class(kernel, *args, machine=MACHINE):
    trace = kb.record(kernel, machine, args)
    (cls,) = trace.classes
    return trace, cls


def rows_of(n, columns=256, dtype="f16"):
    return kb.shape_only((n, columns), dtype, MACHINE)


# ---------------------------------------------------------------- accounting
def test_the_peak_is_the_most_that_is_alive_at_once():
    def kernel(*, tl):
        tl.zeros((10, 10), "f32")  # kept: 400 bytes in 448
        with tl.scratch_scope():
            tl.zeros((100,), "f16")  # freed: 200 bytes in 256
        with tl.scratch_scope():
            for _ in range(3):
                tl.zeros((16,), "f32")  # at the peak: 64 bytes each
            with tl.scratch_scope():
                tl.zeros((17,), "f32")  # inner: 68 bytes in 128

    trace, cls = only_class(kernel)
    assert trace.scratch_peak_bytes == cls.scratch_peak_bytes == 448 + 3 * 64 + 128
    lines = {trace.lines[line].text: n for line, n in cls.scratch_by_line.items()}
    assert {text.split("# ")[1].split(":")[0]: n for text, n in lines.items()} == {
        "kept": 448, "at the peak": 192, "inner": 128,
    }  # fmt: skip


def test_both_copies_of_a_scope_count_and_the_other_one_is_told_by_the_scopes_line():
    def kernel(*, tl):
        for _ in range(3):
            with tl.scratch_scope(buffers=2):  # scope
                tl.zeros((1024,), "f32")  # tile

    trace, cls = only_class(kernel)
    assert trace.scratch_peak_bytes == 8192
    by_line = {trace.lines[line].text.split("# ")[1]: n for line, n in cls.scratch_by_line.items()}
    assert by_line == {"scope": 4096, "tile": 4096}
    assert [tile.address for tile in cls.tiles] == [0, 4096, 0]


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_scopes_rotate_their_copies(buffers):
    def kernel(*, tl):
        for _ in range(7):
            with tl.scratch_scope(buffers=buffers):
                tl.zeros((64,), "f32")
                tl.zeros((1,), "f32")

    _, cls = only_class(kernel)
    assert [tile.address for tile in cls.tiles[::2]] == [i % buffers * 320 for i in range(7)]
    assert [tile.address for tile in cls.tiles[1::2]] == [i % buffers * 320 + 256 for i in range(7)]
    assert cls.scratch_peak_bytes == min(7, buffers) * 320


def test_an_inner_scope_starts_its_rotation_anew_with_each_pass_of_the_outer():
    def kernel(*, tl):
        for _ in range(2):
            with tl.scratch_scope():
                for _ in range(3):
                    with tl.scratch_scope(buffers=2):
                        tl.zeros((16,), "f32")

    _, cls = only_class(kernel)
    assert [tile.address for tile in cls.tiles] == [0, 64, 0] * 2


def test_classes_have_their_own_peaks():
    machine = small_machine(cubes=1, columns=2, rows=1)

    def kernel(*, tl):
        tl.zeros((1000 if tl.program_id(0) else 10,), "f32")

    trace = kb.record(kernel, machine)
    assert [c.scratch_peak_bytes for c in trace.classes] == [64, 4032]
    assert trace.scratch_peak_bytes == 4032


# ---------------------------------------------------------------- reuse
def sweep(buffers):
    def kernel(x, *, tl):
        kept = tl.zeros((1, 256), "f16")
        for i in range(5):
            with tl.scratch_scope(buffers=buffers):
                t = tl.load(x.row(i), shape=(1, 256))
                u = tl.exp(t)
                tl.copy_to(kept, u)

    return [c for c in commands(kernel, MACHINE, (rows_of(5),)) if c.op == "load"]


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_a_load_waits_for_the_last_reader_of_the_copy_that_it_takes(buffers):
    loads = sweep(buffers)  # commands: 0 fill, then (load, exp, copy) for each row
    for i, load in enumerate(loads):
        expected = [] if i < buffers else [2 + 3 * (i - buffers)]
        assert dependencies(load, REUSE) == expected
        assert dependencies(load, OPERAND) == []


def test_only_tiles_that_overlap_wait():
    def kernel(x, *, tl):
        with tl.scratch_scope():
            a = tl.load(x, shape=(1, 256))  # 0: bytes 0-511
            b = tl.load(x.row(1), shape=(1, 256))  # 1: bytes 512-1023
            tl.exp(b)  # 2
            tl.exp(a)  # 3
        tl.load(x, shape=(1, 128))  # 4: bytes 0-255, of a
        tl.load(x, shape=(1, 256))  # 5: bytes 256-767, of a and b
        tl.load(x, shape=(1, 32))  # 6: bytes 768-831, of b
        tl.load(x, shape=(1, 1024), valid=(1, 256))  # 7: the rest of b, and bytes of the results of 2 and 3

    found = commands(kernel, MACHINE, (rows_of(2),))
    assert [dependencies(c, REUSE) for c in found[4:]] == [[3], [3], [2], [3]]


def test_a_tile_that_nobody_reads_is_waited_for_until_it_is_written():
    def kernel(x, *, tl):
        with tl.scratch_scope():
            tl.load(x, shape=(1, 256))
        tl.load(x, shape=(1, 256))

    assert commands(kernel, MACHINE, (rows_of(1),))[1].deps == ((0, REUSE),)


def test_an_unwritten_tile_hands_the_wait_on_to_whoever_writes_its_bytes():
    def kernel(x, o, *, tl):
        t = tl.load(x, shape=(1, 256))  # 0
        with tl.scratch_scope():
            u = tl.exp(t)  # 1
            tl.store(o, u)  # 2
        with tl.scratch_scope():
            v = tl.empty((1, 256), "f16")
            tl.copy_to(v, t)  # 3: where u was

        with tl.scratch_scope():
            tl.empty((1, 256), "f16")
        tl.load(x, shape=(1, 256))  # 4

    found = commands(kernel, MACHINE, (rows_of(1), kb.shape_only((1, 256), "f16", MACHINE, kb.on())))
    assert found[3].deps == ((0, OPERAND), (2, REUSE))
    assert found[4].deps == ((3, REUSE),)


def test_copy_to_waits_for_the_readers_of_what_it_overwrites():
    def kernel(x, o, *, tl):
        t, u = tl.load(x, shape=(1, 256)), tl.load(x.row(1), shape=(1, 256))  # 0, 1
        tl.store(o, t)  # 2
        tl.copy_to(t, u)  # 3: after 2 has read t
        tl.store(o.row(1), t)  # 4: reads what 3 wrote
        tl.copy_to(u, t)  # 5: u is read by 3, on the vector engine itself
        tl.copy_to(t, t)  # 6: after 4

    found = commands(kernel, MACHINE, (rows_of(2), kb.shape_only((2, 256), "f16", MACHINE, kb.on())))
    assert found[3].deps == ((1, OPERAND), (2, REUSE))
    assert found[4].deps == ((3, OPERAND),)
    assert found[5].deps == ()
    assert found[6].deps == ((4, REUSE),)


def test_copy_to_waits_for_a_writer_that_nobody_has_read():
    def kernel(x, *, tl):
        t, u = tl.load(x, shape=(1, 256)), tl.zeros((1, 256), "f16")
        tl.copy_to(t, u)

    assert commands(kernel, MACHINE, (rows_of(1),))[2].deps == ((0, REUSE),)


def test_views_share_their_tiles_bytes():
    def kernel(x, o, *, tl):
        t = tl.load(x, shape=(1, 256))  # 0
        view = tl.reshape(t, (16, 16))
        tl.store(o, view)  # 1
        tl.copy_to(view, tl.zeros((16, 16), "f16"))  # 2, 3
        tl.store(o, t)  # 4: also after 1, in memory

    found = commands(kernel, MACHINE, (rows_of(1), kb.shape_only((1, 256), "f16", MACHINE, kb.on())))
    assert found[3].deps == ((1, REUSE),)
    assert found[4].deps == ((1, REUSE), (3, OPERAND))
    assert found[3].srcs == (Ref(1, (1, 256)),)


def before(commands):
    """For each command, which earlier ones have surely ended when it starts, as a bit mask."""
    masks = []
    last: dict = {}
    for i, c in enumerate(commands):
        waits = [index for index, _ in c.deps]
        engine = c.op if c.op in ("dot", "vector") else (c.op, c.direction) if c.direction >= 0 else None
        if engine in last and engine is not None:
            waits.append(last[engine])
        last[engine] = i
        mask = 0
        for index in waits:
            mask |= masks[index] | 1 << index
        masks.append(mask)
    return masks


def uses(command):
    """Return the tiles that a command reads or writes."""
    return {*command.dst, *(src.tile for src in command.srcs if isinstance(src, Ref))}


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_overwritten_too_early_and_nobody_waits_for_nothing(seed):
    trace = random_program(seed, length=25).record()
    for cls in trace.classes:
        assert sum(cls.scratch_by_line.values()) == cls.scratch_peak_bytes
        ended, written = before(cls.commands), {}

        def overlap(a, b, tiles=cls.tiles):
            return (
                tiles[a].address < tiles[b].address + tiles[b].nbytes
                and tiles[b].address < tiles[a].address + tiles[a].nbytes
            )

        for i, command in enumerate(cls.commands):
            for src in command.srcs:
                if isinstance(src, Ref) and src.tile in written:
                    assert ended[i] >> written[src.tile] & 1, "an operand is read before it is written"
            for tile in command.dst:
                for j, earlier in enumerate(cls.commands[:i]):
                    if any(overlap(tile, used) for used in uses(earlier)):
                        assert ended[i] >> j & 1, "bytes are overwritten while they are in use"
                written[tile] = i
            for j in dependencies(command, REUSE):
                earlier = cls.commands[j]
                in_scratch = any(overlap(a, b) for a in command.dst for b in uses(earlier))
                in_memory = command.op == "store" and earlier.access and earlier.access.tensor == command.access.tensor
                assert in_scratch or in_memory, "a wait without a reason"


# ---------------------------------------------------------------- scratch that nothing has written
def test_reading_what_nothing_has_written_is_reported_and_gives_nan():
    machine = small_machine(cubes=1)

    def kernel(o, *, tl):
        t = tl.empty((1, 4), "f16")  # made
        if tl.program_id(0) == 2:
            tl.store(o, t + 1)  # here

    o = kb.tensor(np.zeros((1, 4), np.float16), machine, kb.on())
    result = kb.launch(kernel, machine, (o,))
    (warning,) = result.trace.warnings
    assert "a tile (1, 4) f16 is read, but nothing has written it: NaN" in warning
    assert f"made at tests/record/{marked(kernel, '# made')}" in warning
    assert marked(kernel) in warning
    assert "on cube 0 pe 2" in warning
    assert np.isnan(o.numpy()).all()


def test_what_copy_to_has_written_is_not_reported():
    def kernel(o, *, tl):
        t = tl.empty((1, 4), "f16")
        tl.copy_to(t, tl.full((1, 4), 3, "f16"))
        tl.store(o, t)

    o = kb.empty((1, 4), "f16", MACHINE, kb.on())
    result = kb.launch(kernel, MACHINE, (o,))
    assert result.trace.warnings == ()
    assert (o.numpy() == 3).all()


# ---------------------------------------------------------------- two copies buy time
def decode(q, k, v, o, tile, buffers, *, tl):
    d = 128
    Q = tl.load(q, shape=(8, d))
    m, l, acc = tl.full((8, 1), -1e30), tl.zeros((8, 1)), tl.zeros((8, d))
    for start in range(0, k.rows, tile):
        with tl.scratch_scope(buffers=buffers):
            s = tl.dot(Q, tl.load(k.row(start), shape=(d, tile), strides=(1, d)))
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            keep, p = tl.exp(m - m_new), tl.exp(s - m_new)
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            tl.copy_to(acc, acc * keep + tl.dot(tl.cast(p, "f16"), tl.load(v.row(start), shape=(tile, d))))
            tl.copy_to(m, m_new)
    tl.store(o, acc / l)


def timed(machine, tile, buffers):
    everywhere = kb.split(axis=0, over=("cube", "pe"))
    q, o = kb.shape_only((8, 128), "f16", machine), kb.shape_only((8 * machine.n_pes, 128), "f16", machine, everywhere)
    k, v = (kb.shape_only((8 * tile * machine.n_pes, 128), "f16", machine, everywhere) for _ in "kv")
    return kb.launch(decode, machine, (q, k, v, o, tile, buffers), mode="time")


@pytest.mark.parametrize("tile", [256, 1024])
def test_a_decode_with_two_buffers_is_faster(tile):
    machine = small_machine(cubes=4, columns=1, rows=1)  # one PE to a memory: its loads, not the memory, take the time
    one, two = timed(machine, tile, buffers=1), timed(machine, tile, buffers=2)
    assert two.makespan_ps < 0.97 * one.makespan_ps
    assert two.trace.n_commands == one.trace.n_commands
    assert one.trace.scratch_peak_bytes < two.trace.scratch_peak_bytes < 2 * one.trace.scratch_peak_bytes


def test_a_second_buffer_never_costs_time():
    machine = kb.load_machine("row4_pe8")
    assert timed(machine, 64, buffers=2).makespan_ps <= timed(machine, 64, buffers=1).makespan_ps
