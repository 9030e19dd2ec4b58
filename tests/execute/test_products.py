"""``dot`` and ``composite``: against float64 products, and against the same steps as plain commands."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import FLOATS, Program, compute, numbers, rounded, row, run, same_bits, values
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.dtypes import DTYPES
from kernbench.placement import split
from kernbench.record.trace import Access, Lane
from kernbench.tensors import empty, tensor

dims = st.integers(1, 9)
seeds = st.integers(0, 2**32 - 1)
floats = st.sampled_from(FLOATS)
few = settings(max_examples=60, deadline=None)
PRECISION = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24}


def assert_is_product(got, a, b, acc, dtype):
    """Check a product to the error bound of a float32 sum of products and one rounding."""
    a, b, got = (x.astype(np.float64) for x in (a, b, got))
    exact, magnitude = a @ b, np.abs(a) @ np.abs(b)
    if acc is not None:
        exact, magnitude = exact + acc.astype(np.float64), magnitude + np.abs(acc.astype(np.float64))
    bound = (a.shape[-1] + 2) * 2.0**-24 * magnitude + 1.01 * PRECISION[dtype] * np.abs(exact) + 2.0**-24
    assert (np.abs(got - exact) <= bound).all()


@given(dims, dims, dims, st.none() | st.integers(1, 3), st.booleans(), seeds, floats, floats)
@few
def test_dot_of_floats(m, k, n, heads, with_acc, seed, kind, dtype):
    rng = np.random.default_rng(seed)
    lead = () if heads is None else (heads,)
    shapes = [(*lead, m, k), (*lead, k, n), (*lead, m, n)][: 2 + with_acc]
    arrays = [rng.standard_normal((3, *s)).astype(DTYPES[kind].external) for s in shapes]
    got = compute(arrays, lambda p, *tiles: p.dot((*lead, m, n), dtype, *tiles), (*lead, m, n), dtype)
    assert_is_product(got, arrays[0], arrays[1], arrays[2] if with_acc else None, dtype)


def test_dot_adds_acc_in_float32_and_rounds_once():
    a, b = np.array([[[1.0, 1.0]]], np.float16), np.array([[[2048.0], [1.0]]], np.float16)
    acc = np.array([[[1.0]]], np.float16)  # 2049 + 1 = 2050 is on the grid, 2049 alone would go to 2048
    got = compute([a, b, acc], lambda p, *tiles: p.dot((1, 1), "f16", *tiles), (1, 1), "f16")
    assert got.item() == 2050


@given(dims, dims, dims, st.sampled_from(["i8", "u8", "i16", "i32"]), st.booleans(), seeds)
@few
def test_dot_of_integers_is_exact_modulo_2_to_32(m, k, n, dtype, with_acc, seed):
    rng = np.random.default_rng(seed)
    a, b = numbers(rng, (2, m, k), dtype), numbers(rng, (2, k, n), dtype)
    arrays = [a, b] + ([numbers(rng, (2, m, n), "i32")] if with_acc else [])
    wide = [x.astype(object) for x in arrays]
    exact = np.stack([x @ y for x, y in zip(wide[0], wide[1], strict=True)]) + (wide[2] if with_acc else 0)
    wanted = ((exact + 2**31) % 2**32 - 2**31).astype(np.int32)
    got = compute(arrays, lambda p, *tiles: p.dot((m, n), "i32", *tiles), (m, n), "i32")
    assert same_bits(got, wanted)


@pytest.mark.parametrize("strides", [(1, 8), (16, 1), (1, 16), (2, 16), (16, 2)])
def test_dot_of_tiles_with_any_strides(strides):
    rng = np.random.default_rng(0)
    machine = row(2)
    a, b = rng.standard_normal((2, 3 * 8)).astype(np.float32), rng.standard_normal((2, 200)).astype(np.float32)
    tensors = {
        "a": tensor(a, machine, split(0, "pe")), "b": tensor(b, machine, split(0, "pe")),
        "out": empty((2, 12), "f32", machine, split(0, "pe")),
    }  # fmt: skip
    p = Program(0, 1)
    x, y = p.load(0, (3, 8), "f32"), p.load(1, (8, 4), "f32", element=5, strides=strides)
    p.store(2, p.dot((3, 4), "f32", x, y))
    run(machine, tensors, p)
    index = 5 + np.add.outer(np.arange(8) * strides[0], np.arange(4) * strides[1])
    assert_is_product(tensors["out"].numpy().reshape(2, 3, 4), a.reshape(2, 3, 8), b[:, index], None, "f32")


def test_dot_of_trans_of_a_loaded_tile():
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((3, n, 4)).astype(np.float16) for n in (2, 6))

    def add(p, x, y):
        return p.dot((2, 6), "f32", x, p.vector("trans", (4, 6), "f16", y, axes=(1, 0)))

    assert_is_product(compute([q, k], add, (2, 6), "f32"), q, k.transpose(0, 2, 1), None, "f32")


@pytest.mark.parametrize("computed", [False, True])
def test_dot_of_an_operand_seen_in_another_shape(computed):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4, 6)).astype(np.float32), rng.standard_normal((3, 3, 2)).astype(np.float32)

    def add(p, x, y):
        x = p.vector("negate", (4, 6), "f32", x) if computed else x
        return p.dot((8, 2), "f32", x._replace(shape=(8, 3)), y)

    got = compute([a, b], add, (8, 2), "f32")
    assert_is_product(got, (-a if computed else a).reshape(3, 8, 3), b, None, "f32")


def test_dot_over_no_terms_is_zero():
    a, b = np.zeros((2, 3, 0), np.float32), np.zeros((2, 0, 4), np.float32)
    got = compute([a, b], lambda p, x, y: p.dot((3, 4), "f32", x, y), (3, 4), "f32")
    np.testing.assert_array_equal(got, np.zeros((2, 3, 4)))


# ---------------------------------------------------------------------- composite
def fused(arrays, out, steps, numbers=(), streamed=False):
    """Execute one composite on every PE.

    ``arrays`` are a, b and tile operands of the epilogue; ``out`` are the formats of the results. Operands of
    ``steps`` count through the operands of the epilogue: first those in ``arrays``, then ``numbers``.
    """
    n_pes, m, k = arrays[0].shape
    n = arrays[1].shape[2]
    machine = row(n_pes)
    tensors = {f"x{i}": tensor(x.reshape(n_pes, -1), machine, split(0, "pe")) for i, x in enumerate(arrays)}
    shapes = [(m, n), (m, 1)][: len(out)]
    for i, (shape, dtype) in enumerate(zip(shapes, out, strict=True)):
        tensors[f"out{i}"] = empty((n_pes, shape[0] * shape[1]), dtype, machine, split(0, "pe"))
    p = Program(*range(n_pes))
    kinds = [tensors[f"x{i}"].dtype.name for i in range(len(arrays))]
    access = Access(1, Lane(0, 0), 0, (k, n), (n, 1), None, 0, kinds[1]) if streamed else None
    loaded = [i for i in range(len(arrays)) if not (streamed and i == 1)]
    srcs = (*(p.load(i, arrays[i].shape[1:], kinds[i]) for i in loaded), *numbers)
    before = 1 if streamed else 2
    epilogue = tuple((s[0], *(before + i if s[0] != "cast" else i for i in s[1:])) for s in steps)
    tiles = tuple(p.tile(shape, dtype) for shape, dtype in zip(shapes, out, strict=True))
    p.add("composite", "composite", tiles, srcs, access, epilogue=epilogue)
    for i, tile in enumerate(tiles):
        p.store(len(arrays) + i, tile, out[i])
    run(machine, tensors, p)
    return [values(tensors[f"out{i}"]).reshape(n_pes, *shape) for i, shape in enumerate(shapes)]


def operands(k=5, m=4, n=7, dtype="f16"):
    rng = np.random.default_rng(k)
    return [rng.standard_normal((3, *shape)).astype(DTYPES[dtype].external) for shape in ((m, k), (k, n))]


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("streamed", [False, True])
def test_composite_without_epilogue_is_dot(streamed):
    arrays = operands()
    wanted = compute(arrays, lambda p, x, y: p.dot((4, 7), "f32", x, y), (4, 7), "f32")
    (got,) = fused(arrays, ["f32"], [], streamed=streamed)
    assert same_bits(got, wanted)


@pytest.mark.parametrize("streamed", [False, True])
def test_softmax_numerator_and_row_maxima(streamed):
    arrays = operands()
    steps = [("scale", 0), ("max",), ("exp",), ("cast", "f16")]
    p, top = fused(arrays, ["f16", "f32"], steps, numbers=(0.25,), streamed=streamed)
    scores = product(*arrays) * 0.25
    np.testing.assert_allclose(top, scores.max(axis=2, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(
        p.astype(float), np.exp(scores - scores.max(axis=2, keepdims=True)), rtol=2**-10, atol=1e-7
    )
    assert (p.max(axis=2) == 1).all()


def test_epilogue_equals_the_same_steps_as_plain_commands():
    arrays = operands()

    def plain(p, x, y):
        s = p.vector("multiply", (4, 7), "f32", p.dot((4, 7), "f32", x, y), 0.25)
        top = p.vector("max", (4, 1), "f32", s, axis=1)
        return p.vector(
            "cast", (4, 7), "bf16", p.vector("exp", (4, 7), "f32", p.vector("subtract", (4, 7), "f32", s, top))
        )

    got, _ = fused(arrays, ["bf16", "f32"], [("scale", 0), ("max",), ("exp",), ("cast", "bf16")], numbers=(0.25,))
    assert same_bits(got, compute(arrays, plain, (4, 7), "bf16"))


def test_steps_are_applied_in_their_order():
    arrays = operands(dtype="f32")
    _, before = fused(arrays, ["f32", "f32"], [("max",), ("scale", 0)], numbers=(-2.0,))
    scaled, after = fused(arrays, ["f32", "f32"], [("scale", 0), ("max",)], numbers=(-2.0,))
    np.testing.assert_allclose(before, product(*arrays).max(axis=2, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(after, (-2 * product(*arrays)).max(axis=2, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(scaled, -2 * product(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("streamed", [False, True])
def test_exp_less_a_tile_or_a_number(streamed):
    arrays = operands()
    shift = np.random.default_rng(1).standard_normal((3, 4, 1)).astype(np.float32)
    (got,) = fused([*arrays, shift], ["f32"], [("exp", 0)], streamed=streamed)
    np.testing.assert_allclose(got, np.exp(product(*arrays) - shift), rtol=1e-5)
    (got,) = fused(arrays, ["f32"], [("exp", 0)], numbers=(1.5,), streamed=streamed)
    np.testing.assert_allclose(got, np.exp(product(*arrays) - 1.5), rtol=1e-5)


def test_only_results_are_rounded():
    a, b = np.full((1, 1, 1), 1.0, np.float16), np.full((1, 1, 1), 1.0, np.float16)
    (got,) = fused([a, b], ["f16"], [("scale", 0), ("scale", 1)], numbers=(1e-9, 1e9))
    assert got.item() == rounded(1.0, "f16")
