"""Narrow formats: rounding against ml_dtypes, bytes and packing, and products on them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.dtypes import DTYPES, promote
from kernbench.errors import InputError, KernbenchError, KernelError
from kernbench.execute import round_to
from kernbench.packing import from_bytes, to_bytes

FP8 = ("fp8e4m3", "fp8e4m3fnuz", "fp8e5m2")
SMALL = (*FP8, "fp4e2m1")
NARROW = (*SMALL, "e8m0", "i4")
MACHINE = kb.load_machine("pe1")
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=40, deadline=None)


def grid(dtype):
    """Every number of a format, as float32; NaN included where there is one."""
    kind = DTYPES[dtype]
    return np.arange(2**kind.bits, dtype=np.uint8).view(kind.external).astype(np.float32)


def saturated(values, dtype):
    """ml_dtypes' own conversion of clipped numbers: what saturating conversion means."""
    external = DTYPES[dtype].external
    largest = float(ml_dtypes.finfo(external).max)
    clipped = np.clip(values, -largest, largest)
    with np.errstate(all="ignore"):
        return np.where(np.isnan(values), np.float32(np.nan), clipped.astype(external).astype(np.float32))


def assert_rounds(values, dtype):
    values = np.asarray(values, np.float32)
    wanted, got = saturated(values, dtype), round_to(values, dtype)
    nan = np.isnan(values)
    assert (np.isnan(got) == nan).all()
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])
    np.testing.assert_array_equal(round_to(values.copy(), dtype, out=values), got)  # in place is another loop


# ---------------------------------------------------------------- rounding
@pytest.mark.parametrize("dtype", SMALL)
def test_every_number_stays_and_its_neighbours_and_ties_round_as_ml_dtypes_does(dtype):
    numbers = grid(dtype)
    finite = np.unique(numbers[np.isfinite(numbers)])
    ties = (finite[1:] + finite[:-1]) / np.float32(2)
    near = [np.nextafter(x, to) for x in (finite, ties) for to in (np.float32(-np.inf), np.float32(np.inf))]
    np.testing.assert_array_equal(round_to(finite, dtype), finite)
    assert_rounds(np.concatenate([numbers, finite, ties, -ties, *near]), dtype)


@pytest.mark.parametrize("dtype", SMALL)
def test_random_bit_patterns_of_every_exponent(dtype):
    rng = np.random.default_rng(1)
    assert_rounds(rng.integers(0, 2**32, 500_000, np.uint32).view(np.float32), dtype)
    scale = float(ml_dtypes.finfo(DTYPES[dtype].external).max)
    assert_rounds(rng.uniform(-1.3, 1.3, 200_000) * scale, dtype)
    assert_rounds(rng.standard_normal(200_000) * float(ml_dtypes.finfo(DTYPES[dtype].external).smallest_normal), dtype)


@pytest.mark.parametrize(
    ("dtype", "largest"), [("fp8e4m3", 448), ("fp8e4m3fnuz", 240), ("fp8e5m2", 57344), ("fp4e2m1", 6)]
)
def test_what_is_too_large_saturates_and_nan_stays(dtype, largest):
    values = np.array([largest * 1.01, largest * 2, 3e38, np.inf, -np.inf, np.nan, -0.0, -1e-30], np.float32)
    got = round_to(values, dtype)
    assert got[:5].tolist() == [largest] * 4 + [-largest]
    assert np.isnan(got[5])
    assert np.signbit(got[6:]).all() == (dtype != "fp8e4m3fnuz")
    assert not got[6:].any()


def test_e8m0_takes_the_nearest_power_of_two_and_nothing_that_is_no_scale():
    codes = np.arange(255, dtype=np.uint8)
    powers = np.ldexp(1.0, codes.astype(int) - 127).astype(np.float32)
    np.testing.assert_array_equal(grid("e8m0")[:255], powers)
    np.testing.assert_array_equal(round_to(powers, "e8m0"), powers)
    below, half = np.nextafter(powers[1:-1] * np.float32(1.5), np.float32(0)), powers[1:-1] * np.float32(1.5)
    np.testing.assert_array_equal(round_to(below, "e8m0"), powers[1:-1])
    np.testing.assert_array_equal(round_to(half, "e8m0"), powers[2:])
    assert np.isnan(round_to(np.array([0, -0.0, -1, np.inf, np.nan, 3e38], np.float32), "e8m0")).all()
    assert round_to(np.array([1e-45], np.float32), "e8m0") == np.float32(2.0**-127)


# ---------------------------------------------------------------- bytes
@pytest.mark.parametrize("dtype", NARROW)
def test_every_code_survives_memory(dtype):
    raw = np.arange(256, dtype=np.uint8)
    values = from_bytes(raw, DTYPES[dtype])
    assert values.dtype == DTYPES[dtype].held_as
    back = to_bytes(values, DTYPES[dtype])
    nan = np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(back[~nan] if len(nan) == 256 else back, raw[~nan] if len(nan) == 256 else raw)


@pytest.mark.parametrize("order", ["low_first", "high_first"])
@pytest.mark.parametrize("external", [ml_dtypes.int4, ml_dtypes.float4_e2m1fn])
def test_pack_puts_two_in_a_byte(external, order):
    codes = np.random.default_rng(2).integers(0, 16, (3, 10)).astype(np.uint8)
    array = codes.view(external)
    first, second = codes[:, 0::2], codes[:, 1::2]
    wanted = first | second << 4 if order == "low_first" else first << 4 | second
    np.testing.assert_array_equal(kb.pack(array, order), wanted)


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(InputError, match="last axis must be even"):
        kb.pack(np.zeros((2, 3), ml_dtypes.int4))
    with pytest.raises(InputError, match="pack takes"):
        kb.pack(np.zeros(2, np.int8))
    with pytest.raises(InputError, match="unknown order 'low'"):
        kb.pack(np.zeros(2, ml_dtypes.int4), "low")


@pytest.mark.parametrize("dtype", [*FP8, "e8m0"])
def test_tensors_of_8_bits_keep_every_code(dtype):
    array = np.arange(256, dtype=np.uint8).view(DTYPES[dtype].external)
    tensor = kb.tensor(array, MACHINE)
    assert (tensor.dtype.name, tensor.nbytes) == (dtype, 256)
    tensor.parts()
    nan = np.isnan(array.astype(np.float32))
    np.testing.assert_array_equal(tensor.numpy().view(np.uint8)[~nan], array.view(np.uint8)[~nan])
    assert np.isnan(kb.empty(3, dtype, MACHINE).numpy().astype(np.float32)).all()


def test_tensors_of_4_bits_are_bytes():
    with pytest.raises(InputError, match=r"packed two a byte.*kernbench\.pack"):
        kb.tensor(np.zeros(4, ml_dtypes.int4), MACHINE)
    with pytest.raises(InputError, match="packed two a byte"):
        kb.shape_only((4,), "fp4e2m1", MACHINE)
    with pytest.raises(KernbenchError, match="not whole bytes"):
        _ = DTYPES["i4"].nbytes


def test_two_narrow_floats_give_float32():
    assert promote(DTYPES["fp8e4m3"], DTYPES["fp8e5m2"]).name == "f32"
    assert promote(DTYPES["i4"], DTYPES["i8"]).name == "i8"
    assert promote(DTYPES["i4"], DTYPES["fp8e4m3"]).name == "fp8e4m3"


# ---------------------------------------------------------------- kernels
def run(kernel, *arrays, out, dtype="f32", **options):
    result = kb.empty(out, dtype, MACHINE, kb.on())
    tensors = [kb.tensor(a, MACHINE) for a in arrays]
    kb.launch(kernel, MACHINE, args=(*tensors, result), **options)
    return result.numpy()


@pytest.mark.parametrize("dtype", SMALL)
def test_arithmetic_rounds_once_and_saturates(dtype):
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((2, 64)) * 10).astype(np.float32)

    def kernel(x, out, *, tl):
        a = tl.cast(tl.load(x, shape=(2, 64)), dtype)
        tl.store(out, a * a + 0)

    once = saturated(x, dtype)
    np.testing.assert_array_equal(run(kernel, x, out=(2, 64)), saturated(once * once, dtype))


@pytest.mark.parametrize("dtype", FP8)
def test_store_rounds_to_the_tensor(dtype):
    x = np.array([[0.3, 1e9, -1e9, 17.7]], np.float32)

    def kernel(x, out, *, tl):
        tl.store(out, tl.load(x, shape=(1, 4)))

    np.testing.assert_array_equal(run(kernel, x, out=(1, 4), dtype=dtype).astype(np.float32), saturated(x, dtype))


def test_i4_wraps_when_computed_and_saturates_from_floats():
    def kernel(x, out, *, tl):
        i = tl.cast(tl.arange(-9, 9), "i4")
        tl.store(out, i)
        tl.store(out.row(1), i + i)
        tl.store(out.row(2), i << 1)
        tl.store(out.row(3), tl.cast(tl.load(x, shape=(18,)), "i4"))
        tl.store(out.row(4), tl.broadcast_to(tl.sum(i, axis=0), (18,)))

    x = np.linspace(-20, 20, 18, dtype=np.float32)
    got = run(kernel, x, out=(5, 18), dtype="i32")
    i = np.arange(-9, 9)

    def wrap(n):
        return (n + 8) % 16 - 8

    np.testing.assert_array_equal(got[:3], [wrap(i), wrap(2 * i), wrap(2 * i)])
    np.testing.assert_array_equal(got[3], np.clip(np.trunc(x), -8, 7))
    np.testing.assert_array_equal(got[4], wrap(wrap(i).sum()))


@pytest.mark.parametrize("order", ["low_first", "high_first"])
@pytest.mark.parametrize("dtype", ["fp4e2m1", "i4"])
def test_unpack_and_pack(dtype, order):
    codes = np.random.default_rng(4).integers(0, 16, (4, 6)).astype(np.uint8)
    array = codes.view(DTYPES[dtype].external)
    packed = kb.pack(array, order)

    def kernel(x, out, again, *, tl):
        t = tl.unpack(tl.load(x, shape=(4, 3)), dtype, order=order)
        tl.store(out, t)
        tl.store(again, tl.pack(t * 1, order=order))

    again = kb.empty((4, 3), "u8", MACHINE, kb.on())
    out = kb.empty((4, 6), "f32", MACHINE, kb.on())
    kb.launch(kernel, MACHINE, args=(kb.tensor(packed, MACHINE), out, again))
    np.testing.assert_array_equal(out.numpy(), array.astype(np.float32))
    np.testing.assert_array_equal(again.numpy(), packed)


def test_views_follow_copies_into_their_tile_and_transposes():
    def kernel(x, out, *, tl):
        t = tl.zeros((2, 4), "u8")
        seen = tl.bitcast(t, "i8")
        tl.copy_to(t, tl.load(x, shape=(4, 2)).T)
        tl.store(out, seen.T)

    x = np.arange(252, 260).astype(np.uint8).reshape(4, 2)
    np.testing.assert_array_equal(run(kernel, x, out=(4, 2), dtype="i8"), x.view(np.int8))


def test_messages_carry_views():
    machine = kb.load_machine("cube1_pe8")
    codes = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)

    def kernel(x, out, *, tl):
        pe = tl.program_id(0)
        if pe == 0:
            tl.send(dir="intra_E", src=tl.unpack(tl.load(x, shape=(8,)), "fp4e2m1"))
        if pe == 1:
            tl.store(out, tl.recv(dir="intra_W", shape=(16,), dtype="fp4e2m1"))

    out = kb.empty((16,), "f32", machine, kb.on())
    result = kb.launch(kernel, machine, args=(kb.tensor(kb.pack(codes), machine), out))
    np.testing.assert_array_equal(out.numpy(), codes.astype(np.float32))
    sent = [c.nbytes for cls in result.trace.classes for c in cls.commands if c.op in ("send", "recv")]
    assert sent == [8, 8]


@pytest.mark.parametrize("batch", [1, 16])
@given(seeds, st.sampled_from([*SMALL, "i8", "i4"]), st.sampled_from(["fp8e4m3", "fp4e2m1"]), st.booleans())
@few
def test_dot_scaled_is_a_sum_of_scaled_blocks(batch, seed, a_dtype, b_dtype, batched):
    if a_dtype.startswith("i"):
        b_dtype = "i8"
    rng = np.random.default_rng(seed)
    lead, m, n, k, block = ((2,) if batched else ()), 3, 5, 64, 16
    a, b = (rng.integers(-5, 6, (*lead, *s)).astype(np.float32) for s in ((m, k), (k, n)))
    scales = [
        rng.integers(117, 138, (*lead, rows, k // block)).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
        for rows in (m, n)
    ]
    acc = rng.standard_normal((*lead, m, n)).astype(np.float32)

    def kernel(a, b, a_scale, b_scale, acc, out, *, tl):
        left, right = (
            tl.cast(tl.load(a, shape=(*lead, m, k)), a_dtype),
            tl.cast(tl.load(b, shape=(*lead, k, n)), b_dtype),
        )
        sa, sb = (tl.load(s, shape=(*lead, rows, k // block)) for s, rows in ((a_scale, m), (b_scale, n)))
        tl.store(out, tl.dot_scaled(left, sa, right, sb, block=block, acc=tl.load(acc, shape=acc.shape)))

    out = kb.empty(acc.shape, "f32", MACHINE, kb.on())
    args = [kb.tensor(x, MACHINE) for x in (a, b, *scales, acc)]
    kb.execute(kb.record(kernel, MACHINE, (*args, out)), batch=batch)
    rounded = [x if d.startswith("i") else saturated(x, d) for x, d in ((a, a_dtype), (b, b_dtype))]
    wide = [np.repeat(s.astype(np.float64), block, axis=-1) for s in scales]
    left, right = rounded[0] * wide[0], rounded[1] * np.swapaxes(wide[1], -1, -2)
    error = np.abs(out.numpy() - (left @ right + acc))
    assert (error <= 2.0**-21 * (np.abs(left) @ np.abs(right) + np.abs(acc))).all()


def test_scales_multiply_exactly_though_their_product_leaves_float32():
    def kernel(big, small, out, *, tl):
        one = tl.full((1, 32), 1, "fp8e4m3")
        a, b = tl.load(big, shape=(1, 1)), tl.load(small, shape=(1, 1))
        tl.store(out, tl.dot_scaled(one, a, one.T, b))
        tl.store(out.row(1), tl.dot_scaled(one * 2.0**-9, a, one.T * 2.0**-9, a))

    big, small = (np.array([[x]]).astype(ml_dtypes.float8_e8m0fnu) for x in (2.0**127, 2.0**-127))
    assert run(kernel, big, small, out=(2, 1)).tolist() == [[32], [np.inf]]


def test_a_nan_scale_spoils_its_row_only():
    scale = np.array([[1.0], [np.nan]]).astype(ml_dtypes.float8_e8m0fnu)

    def kernel(scale, out, *, tl):
        one = tl.full((2, 32), 1, "fp8e4m3")
        tl.store(out, tl.dot_scaled(one, tl.load(scale, shape=(2, 1)), one.T, None))

    np.testing.assert_array_equal(run(kernel, scale, out=(2, 2)), [[32, 32], [np.nan, np.nan]])


@given(seeds, st.sampled_from([1, 2, 8, 64, 128]), st.sampled_from([-1, 0]), st.booleans())
@few
def test_hadamard_is_sylvesters_matrix(seed, n, axis, normalize):
    x = np.random.default_rng(seed).standard_normal((n, 3) if axis == 0 else (3, n)).astype(np.float32)
    matrix = np.array([[(-1.0) ** bin(i & j).count("1") for j in range(n)] for i in range(n)])
    matrix = matrix / np.sqrt(n) if normalize else matrix

    def kernel(x, out, *, tl):
        tl.store(out, tl.hadamard(tl.load(x, shape=x.shape), axis=axis, normalize=normalize))

    wanted = matrix @ x.astype(np.float64) if axis == 0 else x.astype(np.float64) @ matrix
    np.testing.assert_allclose(run(kernel, x, out=x.shape), wanted, rtol=0, atol=1e-6 * n)


def test_hadamard_rounds_once_at_the_end():
    x = np.array([[2048, 1, 1, 0]], np.float16)  # 2048 + 1 is not on the float16 grid, 2048 + 1 + 1 is

    def kernel(x, out, *, tl):
        tl.store(out, tl.hadamard(tl.load(x, shape=(1, 4)), normalize=False))

    assert run(kernel, x, out=(1, 4), dtype="f16").tolist() == [[2050, 2048, 2048, 2046]]


@pytest.mark.parametrize("index_dtype", ["u8", "i32"])
def test_lookup_takes_from_the_table_of_each_pe(index_dtype):
    rng = np.random.default_rng(5)
    machine = kb.load_machine("cube1_pe8")
    table = rng.standard_normal((8, 16)).astype(np.float16)
    index = rng.integers(0, 16, (8, 3, 4)).astype(index_dtype.replace("u8", "uint8").replace("i32", "int32"))
    over = kb.split(axis=0, over="pe")

    def kernel(table, index, out, *, tl):
        tl.store(out, tl.lookup(tl.load(table, shape=(16,)), tl.load(index, shape=(1, 3, 4))))

    out = kb.empty((8, 3, 4), "f16", machine, over)
    kb.launch(kernel, machine, args=(kb.tensor(table, machine, over), kb.tensor(index, machine, over), out))
    np.testing.assert_array_equal(out.numpy(), np.stack([t[i] for t, i in zip(table, index, strict=True)]))


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_outside_the_table_is_an_error(index):
    def kernel(out, *, tl):
        tl.store(out, tl.lookup(tl.zeros((4,)), tl.full((1,), index, "i32")))

    with pytest.raises(KernelError, match=f"index {index} is outside a table of 4 on PE 0"):
        run(kernel, out=(1,))
