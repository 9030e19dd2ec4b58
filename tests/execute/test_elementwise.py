"""Vector operations, each against NumPy mathematics that rounds by NumPy's own conversions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from by_hand import FLOATS, INTS, compute, numbers, rounded, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.dtypes import DTYPES, promote

INF, NAN = math.inf, math.nan
dims = st.integers(1, 5)
shapes = st.lists(dims, min_size=1, max_size=3).map(tuple)
seeds = st.integers(0, 2**32 - 1)
floats = st.sampled_from(FLOATS)
ints = st.sampled_from(INTS)
few = settings(max_examples=60, deadline=None)


def wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)


@st.composite
def broadcast_pairs(draw):
    """Draw two shapes that broadcast, and what they broadcast to."""
    whole = draw(shapes)
    keep = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
    other = tuple(n if k else 1 for n, k in zip(whole, keep, strict=True))[draw(st.integers(0, len(whole) - 1)) :]
    return (whole, other) if draw(st.booleans()) else (other, whole)


def align(values: np.ndarray, rank: int) -> np.ndarray:
    """Insert axes behind the PEs' axis so that NumPy broadcasts the tiles' axes from the right."""
    return values.reshape(len(values), *(1,) * (rank - values.ndim + 1), *values.shape[1:])


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@given(broadcast_pairs(), seeds, floats, floats, st.sampled_from(sorted(BINARY)))
@few
def test_binary_floats_are_float32_arithmetic_rounded_once(pair, seed, a_dtype, b_dtype, name):
    rng = np.random.default_rng(seed)
    a, b = numbers(rng, (3, *pair[0]), a_dtype, special=True), numbers(rng, (3, *pair[1]), b_dtype, special=True)
    shape = np.broadcast_shapes(*pair)
    dtype = promote(DTYPES[a_dtype], DTYPES[b_dtype]).name
    with np.errstate(all="ignore"):
        wanted = BINARY[name](align(wide(a), len(shape)), align(wide(b), len(shape)))
    got = compute([a, b], lambda p, x, y: p.vector(name, shape, dtype, x, y), shape, dtype)
    np.testing.assert_array_equal(wide(got), rounded(wanted, dtype))


@given(broadcast_pairs(), seeds, ints, st.sampled_from(sorted(BINARY)))
@few
def test_binary_integers_are_exact_and_wrap(pair, seed, dtype, name):
    rng = np.random.default_rng(seed)
    a, b = numbers(rng, (3, *pair[0]), dtype), numbers(rng, (3, *pair[1]), dtype)
    shape = np.broadcast_shapes(*pair)
    with np.errstate(all="ignore"):
        wanted = BINARY[name](align(a, len(shape)), align(b, len(shape)))
    got = compute([a, b], lambda p, x, y: p.vector(name, shape, dtype, x, y), shape, dtype)
    assert same_bits(got, np.ascontiguousarray(wanted))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_division_of_all_three_kinds(dtype):
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (4, 50), dtype), numbers(rng, (4, 50), dtype)
    x, y = wide(a), wide(b)
    for function, wanted in (("true", x / y), ("floor", np.floor(x.astype(np.float64) / y)), ("mod", None)):
        got = compute(
            [a, b], lambda p, i, j, f=function: p.vector("divide", (50,), dtype, i, j, function=f), (50,), dtype
        )
        if wanted is None:
            wanted = np.array([[math.fmod(i, j) for i, j in zip(r, s, strict=True)] for r, s in zip(x, y, strict=True)])
            wanted = np.where((wanted != 0) & (np.sign(wanted) != np.sign(y)), wanted + y, wanted)
        np.testing.assert_allclose(wide(got), rounded(wanted, dtype), rtol=2**-7 if dtype == "bf16" else 2**-10)
        if function == "true":
            np.testing.assert_array_equal(wide(got), rounded(wanted, dtype))


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99).filter(bool)), min_size=1, max_size=9))
@few
def test_integer_floor_and_mod_are_pythons(pairs):
    a, b = (np.array([[p[i] for p in pairs]], np.int32) for i in (0, 1))
    shape = (len(pairs),)
    for function, python in (("floor", lambda x, y: x // y), ("mod", lambda x, y: x % y)):
        got = compute(
            [a, b], lambda p, x, y, f=function: p.vector("divide", shape, "i32", x, y, function=f), shape, "i32"
        )
        assert got[0].tolist() == [python(x, y) for x, y in pairs]


UNARY = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "abs": abs,
    "negate": lambda x: -x,
}
PRECISION = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-22}


@given(shapes, seeds, floats, st.sampled_from(sorted(UNARY)))
@few
def test_unary_floats_match_float64(shape, seed, dtype, name):
    a = numbers(np.random.default_rng(seed), (2, *shape), dtype)
    if name in ("log", "log2", "sqrt", "rsqrt"):
        a = np.abs(a)
    wanted = np.array([UNARY[name](x) if abs(x) < 80 else NAN for x in a.astype(float).ravel()]).reshape(a.shape)
    got = compute([a], lambda p, x: p.vector(name, shape, dtype, x), shape, dtype).astype(np.float64)
    known = np.isfinite(wanted) & (np.abs(wanted) < 65000)
    # 1.01 for the float32 arithmetic before the one rounding; half the smallest subnormal of float16 besides.
    np.testing.assert_allclose(
        got[known], wanted[known], rtol=1.01 * PRECISION[dtype], atol=2.0**-25 if dtype == "f16" else 1e-44
    )


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("exp", [-INF, INF, NAN, 0.0, 1000.0], [0.0, INF, NAN, 1.0, INF]),
        ("exp2", [-INF, INF, NAN, 10.0, -200.0], [0.0, INF, NAN, 1024.0, 0.0]),
        ("log", [0.0, INF, -1.0, NAN, 1.0], [-INF, INF, NAN, NAN, 0.0]),
        ("log2", [0.0, INF, -1.0, 8.0, 0.5], [-INF, INF, NAN, 3.0, -1.0]),
        ("sqrt", [0.0, INF, -1.0, 4.0, NAN], [0.0, INF, NAN, 2.0, NAN]),
        ("rsqrt", [0.0, INF, -1.0, 4.0, NAN], [INF, 0.0, NAN, 0.5, NAN]),
        ("abs", [-INF, -0.0, -1.5, NAN, 2.0], [INF, 0.0, 1.5, NAN, 2.0]),
    ],
)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.filterwarnings("error")
def test_special_values_need_no_warning(name, values, wanted, dtype):
    a = np.array([values], DTYPES[dtype].external)
    got = compute([a], lambda p, x: p.vector(name, (5,), dtype, x), (5,), dtype)
    np.testing.assert_array_equal(got[0], np.array(wanted, got.dtype))


def test_float16_overflows_to_infinity_and_keeps_subnormals():
    a = np.array([[60000.0, 6e-8, 2e-7]], np.float16)
    got = compute([a], lambda p, x: p.vector("add", (3,), "f16", x, x), (3,), "f16")
    np.testing.assert_array_equal(got[0], [INF, 2 * np.float16(6e-8), 2 * np.float16(2e-7)])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_wins_over_any_number(name):
    a, b = np.array([[NAN, 1.0]], np.float32), np.array([[1.0, NAN]], np.float32)
    assert np.isnan(compute([a, b], lambda p, x, y: p.vector(name, (2,), "f32", x, y), (2,), "f32")).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_number_among_selected_operands_is_rounded(dtype):
    a = np.zeros((1, 3), DTYPES[dtype].external)
    got = compute([a], lambda p, x: p.vector("maximum", (3,), dtype, x, 1.0003), (3,), dtype)
    np.testing.assert_array_equal(wide(got), 1.0)
    got = compute([a], lambda p, x: p.vector("maximum", (3,), dtype, x, 1e39), (3,), dtype)
    np.testing.assert_array_equal(wide(got), INF)


RELATIONS = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


@given(broadcast_pairs(), seeds, st.sampled_from([*FLOATS, *INTS]), st.sampled_from(sorted(RELATIONS)))
@few
def test_compare(pair, seed, dtype, relation):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 4, (2, *s)).astype(DTYPES[dtype].external) for s in pair)
    shape = np.broadcast_shapes(*pair)
    got = compute([a, b], lambda p, x, y: p.vector("compare", shape, "b1", x, y, relation=relation), shape, "b1")
    wanted = RELATIONS[relation](align(a, len(shape)), align(b, len(shape)))
    np.testing.assert_array_equal(got, wanted)


def test_compare_of_an_unsigned_tile_with_a_number_out_of_its_range():
    a = np.array([[0, 255]], np.uint8)
    for number, wanted in ((-1, [False, False]), (300, [True, True])):
        got = compute([a], lambda p, x, n=number: p.vector("compare", (2,), "b1", x, n, relation="lt"), (2,), "b1")
        assert got[0].tolist() == wanted


def test_compare_takes_numbers_as_float32():
    a = np.array([[0.1, 0.2]], np.float32)  # neither equals the float64 of the same digits
    got = compute([a], lambda p, x: p.vector("compare", (2,), "b1", x, 0.1, relation="eq"), (2,), "b1")
    assert got[0].tolist() == [True, False]


@given(shapes, seeds, st.sampled_from([*FLOATS, "i32"]))
@few
def test_where(shape, seed, dtype):
    rng = np.random.default_rng(seed)
    condition, a = numbers(rng, (2, *shape), "b1"), numbers(rng, (2, *shape), dtype, special=True)
    b = numbers(rng, (2, *shape[-1:]), dtype)
    got = compute([condition, a, b], lambda p, c, x, y: p.vector("where", shape, dtype, c, x, y), shape, dtype)
    np.testing.assert_array_equal(wide(got), wide(np.where(condition, a, align(b, len(shape)))))


def test_where_rounds_a_number():
    condition = np.array([[True, False]])
    got = compute([condition], lambda p, c: p.vector("where", (2,), "f16", c, 1.0003, -1e30), (2,), "f16")
    np.testing.assert_array_equal(got[0], [1.0, -INF])


LOGICAL = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "lshift": lambda a, b: a << b, "rshift": lambda a, b: a >> b,
}  # fmt: skip


@given(shapes, seeds, ints, st.sampled_from(sorted(LOGICAL)))
@few
def test_logical_on_integers(shape, seed, dtype, function):
    rng = np.random.default_rng(seed)
    a = numbers(rng, (2, *shape), dtype)
    b = (
        rng.integers(0, 7, (2, *shape)).astype(a.dtype)
        if function.endswith("shift")
        else numbers(rng, (2, *shape), dtype)
    )
    got = compute([a, b], lambda p, x, y: p.vector("logical", shape, dtype, x, y, function=function), shape, dtype)
    assert same_bits(got, LOGICAL[function](a, b))


def test_logical_on_conditions():
    a, b = np.array([[True, True, False, False]]), np.array([[True, False, True, False]])
    for function, wanted in (("and", a & b), ("or", a | b), ("xor", a ^ b)):
        got = compute([a, b], lambda p, x, y, f=function: p.vector("logical", (4,), "b1", x, y, function=f), (4,), "b1")
        np.testing.assert_array_equal(got, wanted)
    got = compute([a], lambda p, x: p.vector("logical", (4,), "b1", x, function="not"), (4,), "b1")
    np.testing.assert_array_equal(got, ~a)


REDUCTIONS = {"max": np.max, "min": np.min, "sum": np.sum}


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
    seeds,
    floats,
    st.sampled_from(sorted(REDUCTIONS)),
    st.data(),
)
@few
def test_float_reductions_keep_their_axis_and_round_once(shape, seed, dtype, name, data):
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    a = numbers(np.random.default_rng(seed), (2, *shape), dtype)
    axes = tuple(range(1, a.ndim)) if axis is None else axis % len(shape) + 1
    exact = REDUCTIONS[name](a.astype(np.float64), axis=axes, keepdims=True)
    got = compute([a], lambda p, x: p.vector(name, exact.shape[1:], dtype, x, axis=axis), exact.shape[1:], dtype)
    if name == "sum":  # float32 accumulation errs in proportion to the sum of magnitudes
        slack = 1e-5 * np.abs(a.astype(np.float64)).sum(axis=axes, keepdims=True)
        assert (np.abs(got.astype(np.float64) - exact) <= slack + 1.01 * PRECISION[dtype] * np.abs(exact)).all()
    else:
        np.testing.assert_array_equal(got.astype(np.float64), exact)


@given(shapes, seeds, st.sampled_from(["i32", "i64", "u8"]), st.sampled_from(sorted(REDUCTIONS)), st.data())
@few
def test_integer_reductions_are_exact(shape, seed, dtype, name, data):
    axis = data.draw(st.none() | st.integers(0, len(shape) - 1))
    a = numbers(np.random.default_rng(seed), (2, *shape), dtype) // 100
    axes = tuple(range(1, a.ndim)) if axis is None else axis + 1
    wanted = REDUCTIONS[name](a, axis=axes, keepdims=True).astype(a.dtype)
    got = compute([a], lambda p, x: p.vector(name, wanted.shape[1:], dtype, x, axis=axis), wanted.shape[1:], dtype)
    np.testing.assert_array_equal(got, wanted)


def test_sum_of_float16_accumulates_in_float32():
    a = np.full((1, 4096), 1.0, np.float16)  # a float16 accumulator would stop at 2048
    got = compute([a], lambda p, x: p.vector("sum", (1,), "f16", x, axis=0), (1,), "f16")
    assert got[0, 0] == 4096


def test_conditions_can_be_counted():
    a = np.random.default_rng(0).random((3, 50)) < 0.4
    got = compute([a], lambda p, x: p.vector("sum", (1,), "i32", x, axis=0), (1,), "i32")
    np.testing.assert_array_equal(got[:, 0], a.sum(axis=1))


@pytest.mark.parametrize("name", ["max", "min"])
def test_reductions_pass_nan_on(name):
    a = np.array([[1.0, NAN, 2.0]], np.float32)
    assert np.isnan(compute([a], lambda p, x: p.vector(name, (1,), "f32", x, axis=0), (1,), "f32")).all()


@pytest.mark.parametrize(("name", "wanted"), [("max", -INF), ("min", INF), ("sum", 0.0)])
def test_reductions_of_nothing(name, wanted):
    a = np.zeros((2, 3, 0), np.float32)
    got = compute([a], lambda p, x: p.vector(name, (3, 1), "f32", x, axis=1), (3, 1), "f32")
    np.testing.assert_array_equal(got, np.full((2, 3, 1), wanted))


@given(seeds, st.sampled_from([*FLOATS, *INTS, "b1"]), st.sampled_from([*FLOATS, *INTS, "b1"]))
@few
def test_cast(seed, source, target):
    rng = np.random.default_rng(seed)
    a = numbers(rng, (2, 30), source)
    if DTYPES[source].kind == "float" and DTYPES[target].kind == "int":
        limits = np.iinfo(DTYPES[target].held_as)
        wanted = np.array([[min(max(math.trunc(x), limits.min), limits.max) for x in r] for r in a.astype(float)])
    elif DTYPES[target].kind == "float":
        wanted = rounded(a.astype(np.float32), target)
    else:
        wanted = a.astype(DTYPES[target].held_as)
    got = compute([a], lambda p, x: p.vector("cast", (30,), target, x), (30,), target)
    np.testing.assert_array_equal(wide(got), wide(wanted))


@pytest.mark.parametrize("dtype", INTS)
def test_floats_out_of_range_saturate_and_nan_becomes_0(dtype):
    limits = np.iinfo(DTYPES[dtype].held_as)
    a = np.array([[INF, -INF, NAN, 3e38, -3e38, 2.9, -0.9, 1.5]], np.float32)
    got = compute([a], lambda p, x: p.vector("cast", (8,), dtype, x), (8,), dtype)
    assert got[0].tolist() == [limits.max, limits.min, 0, limits.max, limits.min, 2, 0, 1]


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "u8", "b1"])
def test_fill_with_a_number(dtype):
    got = compute([], lambda p: p.vector("fill", (2, 3), dtype, 3.0003), (2, 3), dtype)
    wanted = True if dtype == "b1" else rounded(3.0003, dtype) if dtype in FLOATS else 3
    np.testing.assert_array_equal(wide(got), np.full((8, 2, 3), wide(np.asarray(wanted))))


def test_lanes_are_operands_that_differ_between_pes():
    got = compute([], lambda p: p.vector("fill", (2,), "i32", p.lane(*range(10, 18), offset=5)), (2,), "i32")
    np.testing.assert_array_equal(got, np.repeat(np.arange(15, 23)[:, None], 2, axis=1))
    a = np.ones((8, 2, 3), np.float32)
    got = compute([a], lambda p, x: p.vector("multiply", (2, 3), "f32", x, p.lane(*range(8))), (2, 3), "f32")
    np.testing.assert_array_equal(got, np.arange(8.0)[:, None, None] * a)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), seeds, st.data())
@few
def test_trans_permutes_axes(shape, seed, data):
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    a = numbers(np.random.default_rng(seed), (3, *shape), "f32")
    wanted = a.transpose(0, *(i + 1 for i in axes))
    for chained in (False, True):  # a view of a loaded tile, and of one that was computed

        def add(p, x, chained=chained):
            x = p.vector("add", tuple(shape), "f32", x, 0.0) if chained else x
            return p.vector("trans", wanted.shape[1:], "f32", x, axes=axes)

        got = compute([a], add, wanted.shape[1:], "f32")
        np.testing.assert_array_equal(got, wanted)


def test_trans_and_then_a_reduction_along_either_axis():
    a = numbers(np.random.default_rng(0), (3, 4, 5), "f32")
    for axis in (0, 1):
        shape = (1, 4) if axis == 0 else (5, 1)

        def add(p, x, axis=axis, shape=shape):
            return p.vector("max", shape, "f32", p.vector("trans", (5, 4), "f32", x, axes=(1, 0)), axis=axis)

        np.testing.assert_array_equal(
            compute([a], add, shape, "f32"), a.max(axis=2 - axis, keepdims=True).transpose(0, 2, 1)
        )


@given(broadcast_pairs(), seeds)
@few
def test_broadcast(pair, seed):
    small, shape = sorted(pair, key=lambda s: (len(s), math.prod(s)))
    a = numbers(np.random.default_rng(seed), (2, *small), "f16")
    got = compute([a], lambda p, x: p.vector("broadcast", shape, "f16", x), shape, "f16")
    np.testing.assert_array_equal(got, np.broadcast_to(align(a, len(shape)), (2, *shape)))


def test_arange():
    got = compute([], lambda p: p.vector("arange", (6,), "i32", start=3, stop=9), (6,), "i32")
    assert same_bits(got, np.repeat(np.arange(3, 9, dtype=np.int32)[None], 8, axis=0))


def test_an_operand_seen_in_another_shape():
    a = numbers(np.random.default_rng(0), (3, 4, 6), "f32")
    got = compute([a], lambda p, x: p.vector("max", (8, 1), "f32", x._replace(shape=(8, 3)), axis=1), (8, 1), "f32")
    np.testing.assert_array_equal(got, a.reshape(3, 8, 3).max(axis=2, keepdims=True))
