"""Narrow formats in the language: what they cost in bytes and time, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

import kernbench as kb
from kernbench.errors import InputError, KernelError
from kernbench.machine import load_machine
from kernbench.simulate.costs import cost_ps
from kernbench.testing.engines import compare_engines

MACHINE = load_machine("pe1")
BYTES = kb.shape_only((4, 64), "u8", MACHINE)
OUT = kb.shape_only((64, 64), "f32", MACHINE, kb.on())


def record(body, *tensors, machine=MACHINE):
    def kernel(*pointers, tl):
        body(*pointers, tl=tl)

    return kb.record(kernel, machine, (*(tensors or (BYTES,)), OUT))


def refuses(body, match):
    with pytest.raises(KernelError, match=match):
        record(body)


def load(x, tl, dtype="u8"):
    return tl.load(x, shape=(4, 64), dtype=dtype, bitcast=True)


def the_command(trace, name):
    (command,) = [c for c in trace.classes[0].commands if c.name == name]
    return command


def duration(trace, name):
    stream = trace.classes[0].stream
    (key,) = [key for key in stream.cost_keys if key[1] == name]
    return cost_ps(trace.machine, key)[0]


# ---------------------------------------------------------------- bytes
def test_views_make_no_command_and_take_no_scratch():
    def body(x, out, *, tl):
        t = load(x, tl)
        k = tl.unpack(t, "fp4e2m1")
        assert (k.shape, k.dtype.name, k.nbytes) == ((4, 128), "fp4e2m1", 256)
        assert tl.pack(k).shape == (4, 64)
        assert tl.bitcast(t, "fp8e4m3").dtype.name == "fp8e4m3"
        assert tl.bitcast(t, "u8") is t
        tl.store(out, tl.bitcast(tl.bitcast(t, "fp8e5m2"), "e8m0"))

    trace = record(body)
    assert [c.op for c in trace.classes[0].commands] == ["load", "store"]
    assert trace.scratch_peak_bytes == 256
    assert the_command(trace, "store").srcs[0].dtype == "e8m0"


@pytest.mark.parametrize(
    ("dtype", "nbytes"), [("fp4e2m1", 128), ("i4", 128), ("fp8e4m3", 256), ("e8m0", 256), ("f16", 512)]
)
def test_scratch_is_taken_at_the_true_width(dtype, nbytes):
    def body(x, out, *, tl):
        assert tl.full((4, 64), 1, dtype).nbytes == nbytes

    assert record(body).scratch_peak_bytes == nbytes


def test_an_odd_number_of_halves_takes_a_whole_byte():
    def body(x, out, *, tl):
        assert tl.zeros((3, 3), "i4").nbytes == 5

    record(body)


def test_loads_move_the_bytes_of_the_format():
    x = kb.shape_only((4, 64), "fp8e4m3", MACHINE)
    trace = record(lambda x, out, *, tl: tl.load(x, shape=(4, 64), dtype="fp8e4m3"), x)
    assert the_command(trace, "load").nbytes == 256


# ---------------------------------------------------------------- time
def ps_of(name, a, b, machine=MACHINE):
    def body(x, out, *, tl):
        left, right = tl.full((16, 64), 1, a), tl.full((64, 16), 1, b)
        if name == "dot":
            tl.dot(left, right)
        else:
            tl.dot_scaled(left, None, right, None)

    return duration(record(body, machine=machine), name)


@pytest.mark.parametrize("name", ["dot", "dot_scaled"])
def test_products_take_the_time_of_the_slower_format(name):
    matrix = MACHINE.pe.matrix
    work = 2 * 16 * 64 * 16 * 10**12

    def at(dtype):
        return matrix.startup - (-work // matrix.rates[dtype])

    for dtype in ("f16", "fp8e4m3", "fp8e5m2", "fp4e2m1", "i8", "i4"):
        assert ps_of(name, dtype, dtype) == at(dtype)
    assert ps_of(name, "fp8e4m3fnuz", "fp8e4m3fnuz") == at("fp8e4m3")
    assert ps_of(name, "fp8e4m3", "fp4e2m1") == ps_of(name, "fp4e2m1", "fp8e4m3") == at("fp8e4m3")
    assert ps_of(name, "f16", "f32") == at("f32")


def test_a_machine_without_a_rate_says_so():
    document = load_machine("pe1").with_overrides({"pe.matrix.rates": {"f16": "8 Tflop/s"}})
    with pytest.raises(InputError, match="no matrix rate for fp4e2m1"):
        ps_of("dot", "f16", "fp4e2m1", document)


def test_a_streamed_product_counts_the_format_of_what_it_streams():
    x = kb.shape_only((64, 64), "f32", MACHINE)

    def body(x, out, *, tl):
        tl.composite(tl.full((16, 64), 1, "fp8e4m3"), x, shape=(64, 16), strides=(64, 1))

    assert [key[3] for key in record(body, x).classes[0].stream.cost_keys if key[0].name == "COMPOSITE"] == [
        "fp8e4m3,f32"
    ]


@pytest.mark.parametrize(("normalize", "passes"), [(False, 6), (True, 7)])
def test_hadamard_costs_a_pass_for_each_stage(normalize, passes):
    machine = MACHINE.with_overrides({"pe.vector.cost": {"default": 1, "hadamard": 3, "lookup": 5}})

    def body(x, out, *, tl):
        tl.hadamard(tl.full((5, 64), 1.0), normalize=normalize)
        tl.lookup(tl.full((256,), 1.0), tl.full((5, 64), 1, "u8"))

    trace = record(body, machine=machine)
    vector, cycle = machine.pe.vector, 10**12 / machine.pe.clock
    each = -(-5 * 64 // vector.lanes)
    assert duration(trace, "hadamard") == pytest.approx(vector.startup + passes * each * 3 * cycle, abs=1)
    assert duration(trace, "lookup") == pytest.approx(vector.startup + each * 5 * cycle, abs=1)


def test_both_engines_agree():
    def kernel(x, out, *, tl):
        k = tl.unpack(load(x, tl), "fp4e2m1")
        q = tl.cast(tl.hadamard(tl.full((8, 128), 1.0, "f16")), "fp8e4m3")
        s = tl.dot_scaled(q, None, k.T, tl.full((4, 4), 1, "e8m0"))
        tl.store(out, tl.lookup(tl.full((16,), 1.0), tl.cast(s, "i32") & 15))

    assert compare_engines(kb.record(kernel, MACHINE, (BYTES, OUT))) == "agree"


# ---------------------------------------------------------------- refusals
def test_what_makes_no_sense_is_refused():
    refuses(lambda x, out, *, tl: tl.bitcast(load(x, tl), "f16"), "bitcast from u8 to f16: their widths differ")
    refuses(lambda x, out, *, tl: tl.bitcast(load(x, tl), "i4"), "tl.unpack reads two")
    refuses(lambda x, out, *, tl: load(x, tl, "fp4e2m1"), r'tl.unpack\(tile, "fp4e2m1"\)')
    refuses(
        lambda x, out, *, tl: tl.unpack(load(x, tl), "fp8e4m3"), "fp8e4m3 is not packed; packed formats are fp4e2m1, i4"
    )
    refuses(lambda x, out, *, tl: tl.unpack(load(x, tl, "i8"), "i4"), 'u8, not i8; say tl.bitcast\\(tile, "u8"\\)')
    refuses(lambda x, out, *, tl: tl.unpack(load(x, tl), "i4", order="low"), "unknown order 'low'")
    refuses(lambda x, out, *, tl: tl.pack(tl.zeros((4, 3), "i4")), "odd last axis")
    refuses(lambda x, out, *, tl: tl.pack(load(x, tl)), "u8 is not packed")
    refuses(
        lambda x, out, *, tl: tl.copy_to(tl.bitcast(load(x, tl), "i8"), tl.zeros((4, 64), "i8")), "copy into the tile"
    )
    refuses(lambda x, out, *, tl: tl.lookup(tl.zeros((2, 2)), load(x, tl)), "reshape it to one axis")
    refuses(lambda x, out, *, tl: tl.lookup(tl.zeros((2,)), tl.zeros((2,))), "index is f32, not of integers")
    refuses(lambda x, out, *, tl: tl.hadamard(tl.zeros((2, 3))), "is 3, not a power of two")
    refuses(lambda x, out, *, tl: tl.hadamard(tl.zeros((2, 4)), axis=2), "no axis 2")
    refuses(lambda x, out, *, tl: tl.hadamard(load(x, tl)), "floats only")


def test_dot_scaled_checks_its_operands():
    def scaled(a_scale=None, block=32, b="fp8e4m3", acc=None):
        def body(x, out, *, tl):
            a, other = tl.zeros((4, 64), "fp8e4m3"), tl.zeros((64, 2), b)
            scale = None if a_scale is None else tl.full(*a_scale)
            tl.dot_scaled(a, scale, other, None, block=block, acc=None if acc is None else tl.zeros(acc))

        return body

    record(scaled(a_scale=((4, 2), 1, "f32"), acc=(4, 2)))
    refuses(scaled(a_scale=((4, 1), 1, "e8m0")), r"a_scale is \(4, 1\), not \(4, 2\)")
    refuses(scaled(a_scale=((4, 2), 1, "u8")), 'say tl.bitcast\\(scale, "e8m0"\\)')
    refuses(scaled(a_scale=((4, 2), 1, "f16")), "scales are e8m0 or f32")
    refuses(scaled(block=48), "block=48 does not divide k = 64")
    refuses(scaled(b="i8"), "dot_scaled of fp8e4m3 and i8")
    refuses(scaled(acc=(4, 4)), "dot_scaled: acc is")


def test_arrays_that_no_format_fits_are_refused():
    with pytest.raises(kb.KernbenchError, match="unknown dtype 'float8_e4m3'"):
        kb.tensor(np.zeros(2, ml_dtypes.float8_e4m3), MACHINE)
