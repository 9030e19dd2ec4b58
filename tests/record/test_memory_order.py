"""Device memory: a PE sees its own stores, and no two PEs fight over bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernbench as kb
from kernbench.errors import KernelError
from kernbench.record.runs import covers, meets, runs_of
from kernbench.record.trace import OPERAND, REUSE

from .helpers import commands, complaint, dependencies, marked, small_machine

ONE = small_machine(cubes=1, columns=1, rows=1)
MACHINE = small_machine()
EVERYWHERE = ("sip", "cube", "pe")


# ---------------------------------------------------------------- one PE's own order
def waits(*accesses):
    """Return for each access to an (8, 16) f32 tensor which earlier ones it waits for, and as what."""

    def kernel(x, *, tl):
        t, u = tl.zeros((1, 4)), tl.zeros((4, 1))
        for verb, row, column, shape in accesses:
            strides = (16, 1)
            if verb == "load":
                tl.load(x.at(row, column), shape=shape, strides=strides)
            else:
                tl.store(x.at(row, column), t if shape == (1, 4) else u, strides=strides)

    found = commands(kernel, ONE, (kb.shape_only((8, 16), "f32", ONE, kb.on()),))
    index = [i for i, c in enumerate(found) if c.access is not None]
    return [
        {kind: [index.index(j) for j in dependencies(found[i], kind) if j in index] for kind in (OPERAND, REUSE)}
        for i in index
    ]


def test_a_load_waits_for_the_store_of_its_bytes_and_a_store_for_the_loads():
    found = waits(
        ("load", 0, 0, (1, 4)),
        ("store", 0, 0, (1, 4)),
        ("load", 0, 2, (1, 4)),
        ("load", 0, 4, (1, 4)),
        ("store", 0, 4, (1, 4)),
        ("store", 0, 3, (1, 4)),
    )
    assert [w[OPERAND] for w in found] == [[], [], [1], [], [], []]
    assert [w[REUSE] for w in found] == [[], [0], [], [], [2, 3], [1, 2, 4]]


def test_a_store_that_covers_earlier_ones_stands_for_them():
    found = waits(*[("store", 0, 0, (1, 4)), ("load", 0, 0, (1, 4))] * 4)
    assert [w[OPERAND] + w[REUSE] for w in found] == [[], [0], [0, 1], [2], [2, 3], [4], [4, 5], [6]]


def test_accesses_with_gaps_meet_only_where_their_bytes_do():
    column = (4, 1)
    found = waits(
        ("store", 0, 0, column),
        ("store", 0, 1, column),  # beside the first: the bounds overlap, the bytes do not
        ("load", 2, 2, column),
        ("load", 1, 0, column),
        ("store", 3, 0, (1, 4)),
    )
    assert [w[OPERAND] for w in found] == [[], [], [], [0], []]
    assert [w[REUSE] for w in found] == [[], [], [], [], [0, 1, 2, 3]]


def test_what_a_pe_loads_back_is_what_it_stored():
    def kernel(x, o, *, tl):
        for i in range(4):
            tl.store(x.row(i), tl.load(x.row(i), shape=(1, 8)) + i)
            tl.store(o, tl.load(x, shape=(4, 8)))

    values = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    x, o = kb.tensor(values, ONE, kb.on()), kb.empty((4, 8), "f32", ONE, kb.on())
    kb.launch(kernel, ONE, (x, o))
    np.testing.assert_array_equal(o.numpy(), values + np.arange(4, dtype=np.float32)[:, None])
    np.testing.assert_array_equal(x.numpy(), o.numpy())


def test_one_tensor_passed_twice_is_one_tensor():
    def kernel(x, y, *, tl):
        tl.store(x, tl.full((1, 8), 3))
        tl.store(y + 32, tl.load(y, shape=(1, 8)) * 2)

    x = kb.tensor(np.zeros((2, 8), np.float32), ONE, kb.on())
    result = kb.launch(kernel, ONE, (x, x))
    assert result.trace.tensor_names == ("x",)
    assert dependencies(result.trace.classes[0].commands[2], OPERAND) == [1]
    np.testing.assert_array_equal(x.numpy(), [[3] * 8, [6] * 8])


shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=3)


def elements(axes, size):
    """Return the bytes that an access touches, one by one."""
    starts = {0}
    for n, stride in axes:
        starts = {s + i * stride * size for s in starts for i in range(n)}
    return {s + b for s in starts for b in range(size)}


@given(shapes, shapes, st.integers(-40, 40), st.sampled_from([1, 2, 4]))
def test_what_is_known_of_two_accesses_is_true(a, b, shift, size):
    touched = [elements(axes, size) for axes in (a, b)]
    runs = [runs_of(*zip(*axes, strict=True), size) for axes in (a, b)]
    for run, own in zip(runs, touched, strict=True):
        assert {int(s) + i for s in run.starts() for i in range(run.run)} == own
        assert (run.stretch().low, run.stretch().high) == (min(own), max(own) + 1)
    mine, its = touched[0], {byte + shift for byte in touched[1]}
    stretches = [run.stretch() for run in runs]
    if mine & its:
        assert meets(*stretches, shift)
    if covers(*stretches, shift):
        assert its <= mine
    if not stretches[0].period and not stretches[1].period:
        assert bool(meets(*stretches, shift)) == bool(mine & its)
        assert bool(covers(*stretches, shift)) == (its <= mine)


# ---------------------------------------------------------------- several PEs
def test_a_race_of_stores_names_both_pes_and_lines():
    def kernel(o, *, tl):
        me = tl.program_id(0) + 4 * tl.program_id(1)
        if me == 6:
            tl.store(o + 2 * 59, tl.zeros((16,), "f16"))  # one
        else:
            tl.store(o + 2 * 16 * me, tl.zeros((12,), "f16"))  # other

    text = complaint(kernel, MACHINE, (kb.shape_only((128,), "f16", MACHINE, kb.on()),))
    assert "o is written by sip0.cube0.pe3 and also written by sip0.cube1.pe2 at the same bytes" in text
    assert "which comes first would depend on timing" in text
    assert f"\n  written at tests/record/{marked(kernel, '# other')}" in text
    assert f"\n  also written at tests/record/{marked(kernel, '# one')}" in text
    assert "pass the value on a channel, or let one PE store" in text


@pytest.mark.parametrize("first", [48, 44, 63])
def test_a_race_of_a_load_with_a_store(first):
    def kernel(o, *, tl):
        me = tl.program_id(0) + 4 * tl.program_id(1)
        if me == 2:
            tl.load(o + 2 * first, shape=(5,))  # load
        elif me == 3:
            tl.store(o + 2 * 48, tl.zeros((16,), "f16"))  # store

    text = complaint(kernel, MACHINE, (kb.shape_only((128,), "f16", MACHINE, kb.on()),))
    assert "o is written by sip0.cube0.pe3 and read by sip0.cube0.pe2 at the same bytes" in text
    assert f"\n  written at tests/record/{marked(kernel, '# store')}" in text
    assert f"\n  read at tests/record/{marked(kernel, '# load')}" in text


def test_every_pe_storing_everything():
    def kernel(o, *, tl):
        tl.store(o, tl.zeros((8, 8), "f16"))

    text = complaint(kernel, MACHINE, (kb.shape_only((8, 8), "f16", MACHINE, kb.on()),))
    assert "o is written by sip0.cube0.pe0 and also written by sip0.cube0.pe1 at the same bytes" in text


def test_each_pe_its_own_columns_is_no_race():
    def kernel(o, *, tl):
        me = tl.program_id(0) + 4 * tl.program_id(1)
        for row in (0, 2):
            tl.store(o.at(row, 4 * me), tl.full((2, 4), me), strides=(32, 1))
            tl.load(o.at(row, 4 * me), shape=(2, 4), strides=(32, 1))

    o = kb.empty((4, 32), "f32", MACHINE, kb.on())
    kb.launch(kernel, MACHINE, (o,))
    np.testing.assert_array_equal(o.numpy(), np.tile(np.repeat(np.arange(8.0), 4), (4, 1)))


def test_columns_that_overlap_by_one_are_a_race():
    def kernel(o, *, tl):
        me = tl.program_id(0) + 4 * tl.program_id(1)
        if me < 7:
            tl.store(o.at(0, 4 * me), tl.zeros((2, 5)), strides=(32, 1))

    text = complaint(kernel, MACHINE, (kb.shape_only((2, 32), "f32", MACHINE, kb.on()),))
    assert "o is written by sip0.cube0.pe0 and also written by sip0.cube0.pe1" in text


def test_many_pes_may_read_what_none_writes():
    def kernel(x, *, tl):
        tl.load(x, shape=(4, 8))
        if tl.program_id(0) + tl.program_id(1) == 0:
            tl.store(x.row(4), tl.load(x.row(4), shape=(1, 8)))

    kb.record(kernel, MACHINE, (kb.shape_only((8, 8), "f16", MACHINE, kb.on()),))


@given(
    st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.integers(0, 30), st.integers(1, 3)), min_size=1, max_size=8)
)
def test_races_are_found_exactly(accesses):
    def kernel(x, *, tl):
        me = tl.program_id(0) + 4 * tl.program_id(1)
        for pe, is_store, start, width in accesses:
            if me == pe:
                if is_store:
                    tl.store(x + 2 * start, tl.zeros((width, 2), "f16"), strides=(5, 1))
                else:
                    tl.load(x + 2 * start, shape=(width, 2), strides=(5, 1))

    touched = [{start + 5 * i + j for i in range(width) for j in (0, 1)} for _, _, start, width in accesses]
    is_race = any(
        a[0] != b[0] and (a[1] or b[1]) and touched[i] & touched[j]
        for i, a in enumerate(accesses)
        for j, b in enumerate(accesses[:i])
    )
    x = kb.shape_only((64,), "f16", MACHINE, kb.on())
    if is_race:
        with pytest.raises(KernelError, match="at the same bytes"):
            kb.record(kernel, MACHINE, (x,))
    else:
        kb.record(kernel, MACHINE, (x,))
