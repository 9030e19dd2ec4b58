"""Loads and stores: strides, bounds, bitcasts, rounding, and views that later stores must not change."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from by_hand import FLOATS, INTS, Program, compute, numbers, rounded, row, run, same_bits
from by_hand import values as held_values
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.dtypes import DTYPES
from kernbench.errors import InputError, KernelError
from kernbench.placement import on, replicated, split
from kernbench.tensors import empty, shape_only, tensor

few = settings(max_examples=60, deadline=None)


def load_and_store(values, shape, dtype, batch=16, **load):
    """Load a tile on each PE from its row of ``values`` and store it; return it."""
    machine = row(len(values))
    tensors = {
        "x": tensor(values, machine, split(0, "pe")),
        "out": empty((len(values), int(np.prod(shape))), dtype, machine, split(0, "pe")),
    }
    p = Program(*range(len(values)))
    if "lanes" in load:
        load["element"] = p.lane(*load.pop("lanes"), offset=load.pop("offset"))
    p.store(1, p.load(0, shape, dtype, **load), dtype)
    run(machine, tensors, p, batch=batch)
    return held_values(tensors["out"]).reshape(len(values), *shape)


@given(st.data(), st.integers(0, 2**32 - 1), st.sampled_from([*FLOATS, *INTS, "b1"]))
@few
def test_load_follows_element_strides_and_valid(data, seed, dtype):
    rng = np.random.default_rng(seed)
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    strides = tuple(data.draw(st.integers(0, 5)) for _ in shape)
    valid = data.draw(st.none() | st.tuples(*(st.integers(0, n + 1) for n in shape)))
    values = numbers(rng, (3, 60), dtype)
    lanes = [int(e) for e in rng.integers(0, 5, 3)]
    got = load_and_store(values, shape, dtype, lanes=lanes, offset=2, strides=strides, valid=valid, other=1)
    for pe in range(3):
        for index in np.ndindex(shape):
            inside = valid is None or all(i < n for i, n in zip(index, valid, strict=True))
            at = lanes[pe] + 2 + sum(i * s for i, s in zip(index, strides, strict=True))
            assert got[pe][index] == (values[pe, at] if inside else 1)


def test_negative_strides():
    values = np.arange(20, dtype=np.float32).reshape(2, 10)
    np.testing.assert_array_equal(load_and_store(values, (4,), "f32", element=9, strides=(-2,)), values[:, 9:1:-2])


def test_what_is_not_valid_need_not_exist():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = load_and_store(values, (2, 4), "f32", element=1, strides=(100, 1), valid=(1, 2), other=-7)
    np.testing.assert_array_equal(got[0], [[1, 2, -7, -7], [-7, -7, -7, -7]])


@pytest.mark.parametrize(("dtype", "other", "wanted"), [("f16", 1.0003, 1.0), ("f16", -1e30, -np.inf), ("i8", -3, -3)])
def test_other_is_a_number_of_the_tiles_format(dtype, other, wanted):
    values = np.zeros((1, 4), DTYPES[dtype].external)
    assert load_and_store(values, (2,), dtype, valid=(0,), other=other).tolist() == [[wanted, wanted]]


def test_load_beyond_the_part_names_parameter_pe_and_line():
    with pytest.raises(KernelError, match=r"'x', whose part at sip0\.cube0\.pe1 has 4 elements") as caught:
        load_and_store(np.zeros((2, 4), np.float32), (3,), "f32", lanes=[0, 2], offset=0)
    assert "kernel.py:1: command 0" in str(caught.value)


@pytest.mark.parametrize("element", [-1, 10**15])
def test_load_before_or_far_behind_the_part(element):
    with pytest.raises(KernelError, match="leaves parameter 'x'"):
        load_and_store(np.zeros((2, 4), np.float32), (3,), "f32", element=element)


# ---------------------------------------------------------------------- bitcasts
@pytest.mark.parametrize(
    ("source", "target"),
    [("f16", "i16"), ("f16", "u16"), ("f16", "bf16"), ("bf16", "f16"), ("bf16", "u16"), ("u16", "f16"), ("i16", "bf16"),
     ("f32", "i32"), ("u32", "f32"), ("i8", "u8"), ("u8", "i8"), ("b1", "u8"), ("i32", "u32")],
)  # fmt: skip
def test_bitcast_between_formats_of_one_width(source, target):
    values = numbers(np.random.default_rng(0), (2, 24), source)
    got = load_and_store(values, (3, 2), target, element=3, strides=(7, 2))
    wanted = values.view(DTYPES[target].external)[:, [3, 5, 10, 12, 17, 19]].reshape(2, 3, 2)
    nan = wanted != wanted
    assert same_bits(np.where(nan, 0, got), np.where(nan, 0, wanted))
    np.testing.assert_array_equal(got != got, nan)


def test_bitcast_counts_elements_of_the_format_that_it_reads():
    values = np.arange(8, dtype=np.uint16).reshape(1, 8) * 257
    got = load_and_store(values, (3,), "u32", element=1)
    np.testing.assert_array_equal(got[0], values.view(np.uint32)[0, 1:4])


def test_bitcast_ignores_bytes_behind_the_last_whole_element():
    values = np.array([[1, 2, 3]], np.uint16)
    assert load_and_store(values, (1,), "u32").tolist() == [[2 * 2**16 + 1]]
    with pytest.raises(KernelError, match="leaves parameter 'x'"):
        load_and_store(values, (2,), "u32")


def test_bytes_that_are_not_0_are_true():
    assert load_and_store(np.array([[0, 1, 2, 255]], np.uint8), (4,), "b1").tolist() == [[False, True, True, True]]


def test_bitcast_reads_what_was_stored_before():
    machine = row(2)
    tensors = {"x": empty((2, 4), "f16", machine, split(0, "pe")), "out": empty((2, 4), "u16", machine, split(0, "pe"))}
    p = Program(0, 1)
    for number in (1.0, -2.5):
        p.store(0, p.vector("fill", (4,), "f16", number), "f16")
        p.store(1, p.load(0, (4,), "u16"), "u16")
        run(machine, tensors, p)
        np.testing.assert_array_equal(tensors["out"].numpy(), np.full((2, 4), np.float16(number).view(np.uint16)))


# ---------------------------------------------------------------------- stores
def store(values, dtype, size=20, machine=None, **how):
    """Load each PE's tile and store it into a tensor of ``size`` elements a PE; return the tensor."""
    n_pes = len(values)
    machine = row(n_pes)
    tensors = {
        "x": tensor(values.reshape(n_pes, -1), machine, split(0, "pe")),
        "out": tensor(np.full((n_pes, size), 7, DTYPES[dtype].external), machine, split(0, "pe")),
    }
    p = Program(*range(n_pes))
    p.store(1, p.load(0, values.shape[1:], tensors["x"].dtype.name), dtype, **how)
    run(machine, tensors, p)
    return held_values(tensors["out"])


def test_store_writes_only_its_region():
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    got = store(values, "f32", element=1, strides=(8, 2))
    wanted = np.full((2, 20), 7, np.float32)
    wanted[:, [1, 3, 5, 9, 11, 13]] = values.reshape(2, 6)
    np.testing.assert_array_equal(got, wanted)


def test_store_writes_only_what_is_valid():
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    got = store(values, "f32", size=5, element=1, strides=(100, 2), valid=(1, 2))
    np.testing.assert_array_equal(got, [[7, 0, 7, 1, 7], [7, 6, 7, 7, 7]])


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "i32"])
def test_store_rounds_to_the_tensors_format(source, target):
    values = numbers(np.random.default_rng(0), (3, 20), source, special=True)
    got = store(values, target)
    np.testing.assert_array_equal(got.astype(np.float32), rounded(values.astype(np.float32), target))


@pytest.mark.parametrize("target", INTS)
def test_store_truncates_floats_to_integers(target):
    values = np.array([[2.9, 0.5, 100.999, 7.0]], np.float32)
    np.testing.assert_array_equal(store(values, target, size=4), [[2, 0, 100, 7]])


def test_store_of_signed_floats():
    np.testing.assert_array_equal(store(np.array([[-2.9, -0.5]], np.float32), "i16", size=2), [[-2, 0]])


def test_every_pe_stores_into_its_own_part():
    machine = row(5)
    out = empty((11, 2), "f32", machine, split(0, "pe"))  # parts of 3, 2, 2, 2 and 2 rows
    p = Program(*range(5))
    p.store(0, p.vector("fill", (2, 2), "f32", p.lane(*range(5))))
    run(machine, {"out": out}, p, batch=2)
    np.testing.assert_array_equal(out.numpy()[:, 0], [0, 0, np.nan, 1, 1, 2, 2, 3, 3, 4, 4])


# ---------------------------------------------------------------------- aliasing
@pytest.mark.parametrize("alias", [False, True], ids=["one parameter", "two parameters"])
def test_a_loaded_tile_keeps_its_values_when_its_tensor_is_stored_to(alias):
    machine = row(2)
    x = tensor(np.arange(8, dtype=np.float32).reshape(2, 4), machine, split(0, "pe"))
    tensors = {"x": x, "out": empty((2, 4), "f32", machine, split(0, "pe")), "same": x}
    p = Program(0, 1)
    before = p.load(0, (4,), "f32")
    p.store(2 if alias else 0, p.vector("fill", (4,), "f32", -1.0))
    p.store(1, before)
    run(machine, tensors, p)
    np.testing.assert_array_equal(tensors["out"].numpy(), np.arange(8).reshape(2, 4))
    np.testing.assert_array_equal(x.numpy(), -1)


def test_load_after_store_sees_the_new_values():
    machine = row(2)
    x = tensor(np.zeros((2, 4), np.float32), machine, split(0, "pe"))
    out = empty((2, 4), "f32", machine, split(0, "pe"))
    p = Program(0, 1)
    p.load(0, (4,), "f32")
    p.store(0, p.vector("fill", (4,), "f32", 5.0))
    p.store(1, p.load(0, (4,), "f32"))
    run(machine, {"x": x, "out": out}, p)
    np.testing.assert_array_equal(out.numpy(), 5)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_copy_into_a_loaded_tile_leaves_the_tensor_alone(kind):
    machine = row(1)
    values = np.arange(4).astype(DTYPES[kind].external)
    x, out = tensor(values, machine, on()), empty((8,), kind, machine, on())
    p = Program(0)
    tile, other = p.load(0, (4,), kind), p.load(0, (4,), kind)
    p.copy(tile, p.vector("add", (4,), "f32", tile, 10.0))
    p.store(1, tile, kind)
    p.store(1, other, kind, element=4)
    run(machine, {"x": x, "out": out}, p)
    np.testing.assert_array_equal(x.numpy(), values)
    np.testing.assert_array_equal(out.numpy(), np.concatenate([values + 10, values]).astype(values.dtype))


def test_copy_carries_the_value_and_not_the_tile():
    machine = row(1)
    out = empty((2,), "f32", machine, on())
    p = Program(0)
    a, b = p.vector("fill", (1,), "f32", 1.0), p.vector("fill", (1,), "f32", 2.0)
    p.copy(a, b)
    p.copy(b, 3.0)
    p.store(0, a)
    p.store(0, b, element=1)
    run(machine, {"out": out}, p)
    assert out.numpy().tolist() == [2, 3]


def test_copy_rounds_to_the_format_of_the_tile():
    machine = row(1)
    out = empty((1,), "f32", machine, on())
    p = Program(0)
    a = p.vector("fill", (1,), "f16", 0.0)
    p.copy(a, p.vector("fill", (1,), "f32", 1.0003))
    p.store(0, a)
    run(machine, {"out": out}, p)
    assert out.numpy().tolist() == [1.0]


@pytest.mark.parametrize(
    ("name", "attrs"),
    [("cast", {}), ("copy", {}), ("exp", {}), ("abs", {}), ("add", {}), ("max", {"axis": None}),
     ("sum", {"axis": None}), ("divide", {"function": "true"}), ("maximum", {}), ("broadcast", {}),
     ("trans", {"axes": (1, 0)})],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_operands_keep_their_values(name, attrs, dtype):
    a = numbers(np.random.default_rng(0), (3, 4, 4), "f32")

    def add(p, x):
        x = p.vector("negate", (4, 4), "f32", x)
        shape = (1, 1) if "axis" in attrs else (4, 4)
        p.vector(name, shape, dtype, *([x, x] if name in ("add", "divide", "maximum") else [x]), **attrs)
        return x

    np.testing.assert_array_equal(compute([a], add, (4, 4), "f32"), -a)


# ---------------------------------------------------------------------- the rest
def test_scratch_that_nothing_has_written_is_nan_or_0():
    machine = row(1)
    out = {"f": empty((3,), "bf16", machine, on()), "i": tensor(np.ones(3, np.int32), machine, on())}
    p = Program(0)
    p.store(0, p.tile((3,), "bf16"), "bf16")
    p.store(1, p.tile((3,), "i32"), "i32")
    run(machine, out, p)
    assert out["f"].numpy().dtype == ml_dtypes.bfloat16
    assert np.isnan(out["f"].numpy().astype(float)).all()
    assert out["i"].numpy().tolist() == [0, 0, 0]


def test_tensors_of_which_every_memory_holds_a_copy_are_read_by_all():
    machine = row(3)
    x = tensor(np.arange(4, dtype=np.float32), machine, replicated())
    out = empty((3, 4), "f32", machine, split(0, "pe"))
    p = Program(0, 1, 2)
    p.store(1, p.load(0, (4,), "f32"))
    run(machine, {"x": x, "out": out}, p)
    np.testing.assert_array_equal(out.numpy(), np.tile(np.arange(4), (3, 1)))


def test_a_tensor_without_values_cannot_be_executed():
    machine = row(2)
    tensors = {"q": tensor(np.zeros(4, np.float32), machine), "cache": shape_only((2, 4), "f16", machine)}
    p = Program(0, 1)
    p.load(0, (4,), "f32")
    with pytest.raises(InputError, match="parameter 'cache' of kernel 'kernel' has a shape but no values"):
        run(machine, tensors, p)
