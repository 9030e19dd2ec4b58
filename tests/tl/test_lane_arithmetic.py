"""Per-PE integers behave on every PE as that PE's own Python integer would."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernbench as kb
from kernbench.errors import KernelError
from kernbench.tl import Group, LaneInt

NUMBERS = st.integers(-50, 50)
OPERATIONS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": lambda a, b: a << (b % 5),
    ">>": lambda a, b: a >> (b % 5), "**": lambda a, b: a ** (b % 4), "divmod": lambda a, b: sum(divmod(a, b)),
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "neg": lambda a, b: -a + +b, "abs": lambda a, b: abs(a) - b,
}  # fmt: skip


def apply(name, a, b):
    """Return the result, or None for a division by zero."""
    try:
        return OPERATIONS[name](a, b)
    except ZeroDivisionError:
        return None


def group_of(n, put_aside=None):
    return Group(np.arange(n), put_aside or (lambda pes: None))


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6), st.sampled_from(sorted(OPERATIONS)), NUMBERS, NUMBERS
)
def test_arithmetic_is_that_of_python(pairs, name, plain, offset):
    group = group_of(len(pairs))
    a, b = (LaneInt(group, np.array(column)) for column in zip(*pairs, strict=True))
    for left, right, expected in (
        (a, b, [apply(name, x, y) for x, y in pairs]),
        (a + offset, b, [apply(name, x + offset, y) for x, y in pairs]),
        (a, plain, [apply(name, x, plain) for x, _ in pairs]),
        (a - offset, plain, [apply(name, x - offset, plain) for x, _ in pairs]),
        (plain, b, [apply(name, plain, y) for _, y in pairs]),
        (np.int64(plain), b, [apply(name, plain, y) for _, y in pairs]),
        (a, np.int32(plain), [apply(name, x, plain) for x, _ in pairs]),
    ):
        found = apply(name, left, right)
        if None in expected:
            assert found is None
        else:
            assert isinstance(found, LaneInt)
            assert [int(v) for v in found.active_values] == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_where_python_needs_one_answer_those_that_differ_are_put_aside(values):
    aside = []
    group = group_of(len(values), aside.append)
    lanes = LaneInt(group, np.array(values))
    assert int(lanes) == values[0]
    assert [values[pe] for pe in group.active_pes] == [values[0]] * values.count(values[0])
    left = [pe for pes in aside for pe in pes]
    assert sorted(left + list(group.active_pes)) == list(range(len(values)))
    assert int(lanes) == values[0]
    assert len(aside) == (len(set(values)) > 1)


@pytest.mark.parametrize(
    ("ask", "classes"),
    [
        (lambda pe, tl: 1 if pe == 0 else 0, 2),
        (lambda pe, tl: pe and 1, 2),
        (lambda pe, tl: not pe, 2),
        (lambda pe, tl: pe in (1, 2), 3),
        (lambda pe, tl: bool(0 < pe < 3), 3),
        (lambda pe, tl: min(pe, 2), 2),
        (lambda pe, tl: list(range(pe % 3)), 3),
        (lambda pe, tl: [10, 20, 30, 40][pe], 4),
        (lambda pe, tl: {0: 1}.get(pe), 4),
        (lambda pe, tl: float(pe // 2), 2),
        (lambda pe, tl: f"{pe}", 1),
        (lambda pe, tl: pe == "0", 1),
        (lambda pe, tl: pe is None, 1),
        (lambda pe, tl: bool(pe < 2.5), 2),
        (lambda pe, tl: tl.minimum(pe, 2) + tl.maximum(3, pe), 1),
        (lambda pe, tl: tl.cdiv(pe, 2), 1),
        (lambda pe, tl: tl.full((1,), pe), 1),
        (lambda pe, tl: tl.zeros((pe // 2 + 1,)), 2),
    ],
)
def test_how_many_runs_a_question_costs(ask, classes):
    machine = kb.load_machine("row4_pe8", overrides={"sip.cubes.columns": 1, "cube.pes.rows": 1})

    def kernel(*, tl):
        tl.zeros((1,))
        ask(tl.program_id(0), tl)

    assert len(kb.record(kernel, machine).classes) == classes


def test_tl_minimum_and_maximum_of_per_pe_integers():
    machine = kb.load_machine("cube1_pe8")

    def kernel(o, *, tl):
        pe = tl.program_id(0)
        tl.store(o + 4 * pe, tl.full((1,), 10 * tl.minimum(pe, 5) + tl.maximum(pe, 3), "i32"))

    o = kb.empty((8,), "i32", machine, kb.on())
    kb.launch(kernel, machine, (o,))
    assert o.numpy().tolist() == [10 * min(pe, 5) + max(pe, 3) for pe in range(8)]


def test_a_number_that_is_not_whole_is_refused():
    pe = LaneInt(group_of(4), np.arange(4))
    for wrong in (lambda: pe + 0.5, lambda: 0.5 * pe, lambda: pe // 1.5, lambda: 2.0 - pe, lambda: pe % np.float32(2)):
        with pytest.raises(KernelError, match="per-PE arithmetic is in whole numbers"):
            wrong()
    with pytest.raises(KernelError, match="use `//`"):
        operator.truediv(pe, 2)
    with pytest.raises(KernelError, match="use `not condition`"):
        operator.invert(pe)


def test_integers_of_two_runs_do_not_mix():
    a, b = (LaneInt(group_of(4), np.arange(4)) for _ in "ab")
    with pytest.raises(KernelError, match="of another run of the kernel"):
        a + b


def test_the_same_expression_gives_the_same_array():
    pe = LaneInt(group_of(4), np.arange(4))
    first = ((pe * 10 + 3) * 64 + 128) // 2
    for i in range(1000):
        again = ((pe * 10 + i) * 64 + 128) // 2
        assert again.root is first.root
        assert again.offset == 32 * i + 64


def test_the_index_of_every_program():
    machine = kb.load_machine("sip4_grid4x4_pe8")

    def kernel(o, *, tl):
        sip, cube, pe = (tl.program_id(axis=axis) for axis in (2, 1, 0))
        me = (sip * tl.num_programs(1) + cube) * tl.num_programs(0) + pe
        tl.store(o + 4 * me, tl.full((1,), sip * 10000 + cube * 100 + pe, "i32"))

    o = kb.empty((machine.n_pes,), "i32", machine, kb.on())
    kb.launch(kernel, machine, (o,))
    expected = [sip * 10000 + cube * 100 + pe for sip in range(4) for cube in range(16) for pe in range(8)]
    assert o.numpy().tolist() == expected


@pytest.mark.parametrize("grid", [None, 3, (8, 2), (5, 3, 1), (2, 4, 1)])
def test_the_grid_says_who_takes_part(grid):
    machine = kb.load_machine("row4_pe8")
    extents = machine.shape if grid is None else (*np.atleast_1d(grid).tolist(), 1, 1)[:3]
    sizes = []

    def kernel(*, tl):
        tl.zeros((1,))
        sizes.append([(tl.num_programs(a), tl.columns(a), tl.rows(a)) for a in range(3)])

    trace = kb.record(kernel, machine, grid=grid)
    assert trace.grid == extents
    assert sorted(pe for c in trace.classes for pe in c.pes) == [
        cube * 8 + pe for cube in range(extents[1]) for pe in range(extents[0])
    ]
    assert sizes == [[(extents[0], 4, -(-extents[0] // 4)), (extents[1], 4, 1), (1, 1, 1)]]
