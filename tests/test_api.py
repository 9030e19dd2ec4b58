"""The public API: its names, tensors and placements, and what a launch returns."""

import subprocess
import sys
from itertools import pairwise, permutations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.errors import InputError

SIZES = {"sip": 2, "cube": 3, "pe": 4}
MACHINE = kb.load_machine(
    "sip4_grid4x4_pe8",
    overrides={
        "system.sips.columns": 2, "system.sips.rows": 1, "sip.cubes.columns": 3, "sip.cubes.rows": 1,
        "cube.pes.columns": 2,
    },
)  # fmt: skip
AXIS = {"pe": 0, "cube": 1, "sip": 2}


# ---------------------------------------------------------------- names
ROOMS = ["record", "execute", "simulate"]


@pytest.mark.parametrize(
    "first", [*ROOMS, "record.record", "execute.engine", "simulate.program", "launcher", "tl", "run"]
)
def test_rooms_stay_functions_whatever_is_imported_first(first):
    program = f"""
import kernbench.{first}, kernbench as kb
import kernbench.record.trace, kernbench.execute.values, kernbench.simulate.timeline
from kernbench import record, execute, simulate
for room in ("record", "execute", "simulate"):
    function = getattr(kb, room)
    assert callable(function) and function.__name__ == room and function is globals()[room], function
    assert callable(getattr(__import__("importlib").import_module("kernbench." + room), room))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("order", list(permutations(ROOMS)))
def test_rooms_stay_functions_in_any_order_of_use(order):
    uses = "; ".join(f"assert kb.{room}.__name__ == {room!r}" for room in order)
    subprocess.run([sys.executable, "-c", f"import kernbench as kb; {uses}; {uses}"], check=True, timeout=120)


def test_importing_kernbench_loads_neither_numpy_nor_the_rooms():
    program = "import kernbench, sys; assert not {'numpy', 'numba', 'kernbench.record'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_all_names_are_there():
    assert {"record", "execute", "simulate", "launch", "tensor", "empty", "shape_only", "split", "on", "replicated",
            "load_machine", "KernbenchError"} <= set(kb.__all__)  # fmt: skip
    assert len(kb.__all__) == len(set(kb.__all__))
    for name in kb.__all__:
        assert getattr(kb, name) is not None
        assert name in dir(kb)
    with pytest.raises(AttributeError, match="has no attribute 'lanuch'"):
        kb.lanuch  # noqa: B018


# ---------------------------------------------------------------- tensors
ARRAYS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "b1": np.bool_,
}  # fmt: skip


def random_array(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    if dtype == "b1":
        return random.random(shape) < 0.5
    if dtype[0] in "fb":
        return (random.standard_normal(shape) * 100).astype(ARRAYS[dtype])
    limits = np.iinfo(ARRAYS[dtype])
    return random.integers(limits.min, limits.max, shape, dtype=ARRAYS[dtype], endpoint=True)


@pytest.mark.parametrize("dtype", sorted(ARRAYS))
def test_every_format_goes_to_the_device_and_back(dtype):
    array = random_array((5, 7), dtype)
    x = kb.tensor(array, MACHINE)
    assert x.dtype.name == dtype
    assert x.nbytes == array.nbytes
    for _ in range(2):
        assert x.numpy().dtype == array.dtype
        np.testing.assert_array_equal(x.numpy(), array)
        x.parts()


def test_a_tensor_is_a_copy_of_its_array():
    array = np.ones(8, np.float16)
    x = kb.tensor(array, MACHINE)
    array[:] = 2
    x.numpy()[:] = 3
    assert (x.numpy() == 1).all()


def test_arrays_in_any_layout_are_taken():
    array = random_array((6, 8), "f32")
    for view in (array.T, array[::2, ::-1], np.asfortranarray(array), array.astype(">f4"), array.tolist()):
        if isinstance(view, list):
            view = np.array(view, np.float32)
        np.testing.assert_array_equal(kb.tensor(view, MACHINE, kb.split(axis=0, over="pe")).numpy(), view)


def test_an_empty_tensor_holds_nan_or_zero_until_it_is_stored_to():
    assert np.isnan(kb.empty((4, 4), "f16", MACHINE).numpy()).all()
    assert np.isnan(kb.empty((4, 4), "bf16", MACHINE).numpy().astype(np.float32)).all()
    assert (kb.empty(4, "i32", MACHINE).numpy() == 0).all()


def test_a_shape_has_no_values():
    t = kb.shape_only((2**40, 128), "f16", MACHINE)
    assert (t.shape, t.nbytes, t.is_held) == ((2**40, 128), 2**48, False)
    with pytest.raises(InputError, match="has no values"):
        t.numpy()


# ---------------------------------------------------------------- placements
@st.composite
def placements(draw):
    """Draw a shape of up to three axes and a placement of it: each level splits an axis, is pinned, or replicates."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    levels = draw(st.permutations(sorted(SIZES)))
    roles = {level: draw(st.sampled_from(["split", "pin", "replicate"])) for level in levels}
    placement = kb.replicated()
    by_axis: dict[int, list[str]] = {}
    for level in levels:
        if roles[level] == "split":
            by_axis.setdefault(draw(st.integers(0, len(shape) - 1)), []).append(level)
    for axis, over in by_axis.items():
        placement = placement.split(axis - len(shape) * draw(st.integers(0, 1)), over=tuple(over))
    pins = {level: draw(st.integers(0, SIZES[level] - 1)) for level in levels if roles[level] == "pin"}
    placement = placement.on(**pins) if pins else placement
    return shape, placement, [level for level in levels if roles[level] != "split"]


def copy_own_part(x, y, *, tl):
    if all(n > 0 for n in x.shape):
        tl.store(y, tl.load(x, shape=x.shape))


def gather(x, whole, idle, shape, *, tl):
    """Every part, of the first PE that has it, goes to its place in a whole tensor."""
    if any(tl.program_id(AXIS[level]) > 0 for level in idle):
        return
    if all(n > 0 for n in x.shape):
        tile = tl.load(x, shape=x.shape)
        strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        at = sum((i * s for i, s in zip(x.origin, strides, strict=True)), start=0)
        tl.store(whole + at * whole.dtype.nbytes, tile, strides=strides)


@settings(max_examples=60, deadline=None)
@given(placements(), st.sampled_from(["f16", "f32", "i32", "bf16"]))
def test_tensors_keep_their_values_in_any_placement(drawn, dtype):
    shape, placement, idle = drawn
    array = random_array(shape, dtype)
    x, whole = kb.tensor(array, MACHINE, placement), kb.empty(shape, dtype, MACHINE, kb.on(1, 2, 3))
    kb.execute(kb.record(gather, MACHINE, args=(x, whole, idle, shape)))
    np.testing.assert_array_equal(whole.numpy(), array)
    np.testing.assert_array_equal(x.numpy(), array)
    assert sum(part.size for part in x.parts()) == array.size


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=3), st.permutations(["sip", "cube", "pe"]),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
)  # fmt: skip
def test_each_pe_copies_its_own_part(shape, levels, axes):
    placement = kb.replicated()
    for axis in sorted(set(axes)):
        placement = placement.split(axis, over=tuple(lv for lv, a in zip(levels, axes, strict=True) if a == axis))
    array = random_array(tuple(shape), "f16")
    x, y = kb.tensor(array, MACHINE, placement), kb.empty(array.shape, "f16", MACHINE, placement)
    kb.execute(kb.record(copy_own_part, MACHINE, args=(x, y)))
    np.testing.assert_array_equal(y.numpy(), array)


@given(st.integers(0, 200), st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=3, unique=True))
def test_parts_are_as_even_as_can_be(rows, over):
    layout = kb.shape_only((rows, 2), "f16", MACHINE, kb.split(axis=0, over=tuple(over))).layout
    ranks = int(np.prod([SIZES[level] for level in over]))
    lengths = layout.extents[:, 0]
    assert len(lengths) == ranks
    assert lengths.sum() == rows
    assert lengths.max() - lengths.min() <= 1
    assert list(lengths) == sorted(lengths, reverse=True)
    assert list(layout.starts[:, 0]) == [int(lengths[:i].sum()) for i in range(ranks)]


def test_ranks_count_with_the_last_level_fastest():
    def part_of(over, sip, cube, pe):
        index = (sip * SIZES["cube"] + cube) * SIZES["pe"] + pe
        return kb.shape_only((24,), "f16", MACHINE, kb.split(axis=0, over=over)).layout.part_of_pe[index]

    assert part_of(("sip", "cube", "pe"), 1, 2, 3) == 23
    assert part_of(("cube", "pe"), 1, 2, 3) == 11
    assert part_of(("pe", "cube"), 1, 2, 3) == 3 * 3 + 2
    assert part_of("pe", 1, 2, 3) == 3


def test_each_part_lies_in_the_memory_of_its_pe():
    def memories(placement):
        return kb.shape_only((24,), "f16", MACHINE, placement).layout.memory_of_pe.reshape(2, 3, 4)

    near = np.arange(6).reshape(2, 3, 1)
    assert (memories(kb.replicated()) == near).all()
    assert (memories(kb.split(axis=0, over=("sip", "cube", "pe"))) == near).all()
    assert (memories(kb.on(sip=1, cube=2)) == 5).all()
    assert (memories(kb.on(cube=1)) == 1).all()
    assert (memories(kb.split(axis=0, over="cube").on(sip=1)) == [[[3], [4], [5]]]).all()


def test_tensors_do_not_overlap_in_memory():
    def kernel(a, b, c, *, tl):
        for x in (a, b, c):
            if x.rows > 0:
                tl.load(x, shape=(x.rows,))

    tensors = [
        kb.shape_only((100_000,), "f16", MACHINE, placement)
        for placement in (kb.replicated(), kb.split(axis=0, over=("cube", "pe")), kb.on(cube=1))
    ]
    trace = kb.record(kernel, MACHINE, args=tensors)
    ranges = {}
    for pe in range(MACHINE.n_pes):
        for c in trace.commands_of(pe):
            ranges[c.access.address] = (c.access.tensor, c.access.address + c.nbytes)
    ordered = sorted((low, high) for low, (_, high) in ranges.items())
    assert all(high <= low for (_, high), (low, _) in pairwise(ordered))
    assert len(ranges) == 6 + 6 * 4 + 1


# ---------------------------------------------------------------- launching
def double(x, y, *, tl):
    tl.store(y, tl.load(x, shape=x.shape) * 2)


def tensors(held=True):
    everywhere = kb.split(axis=0, over=("sip", "cube", "pe"))
    if not held:
        return [kb.shape_only((48, 4), "f32", MACHINE, everywhere) for _ in "xy"]
    return kb.tensor(random_array((48, 4), "f32"), MACHINE, everywhere), kb.empty((48, 4), "f32", MACHINE, everywhere)


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_launch_gives_values_and_time(engine):
    x, y = tensors()
    result = kb.launch(double, MACHINE, args=(x, y), engine=engine)
    np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())
    assert result.makespan_ps == result.timeline.makespan_ps > 0
    assert result.execution.pes == result.trace.n_pes == MACHINE.n_pes


def test_a_launch_for_time_needs_no_values():
    result = kb.launch(double, MACHINE, args=tensors(held=False), mode="time")
    assert result.execution is None
    assert result.makespan_ps > 0
    with pytest.raises(InputError, match=r"'x'.*has a shape but no values"):
        kb.launch(double, MACHINE, args=tensors(held=False))


def test_a_launch_for_values_has_no_time():
    x, y = tensors()
    result = kb.launch(double, MACHINE, args=(x, y), mode="values")
    np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())
    assert result.timeline is None
    with pytest.raises(InputError, match='mode "values" has no time'):
        _ = result.makespan_ps


def test_the_steps_by_hand_are_a_launch():
    x, y = tensors()
    trace = kb.record(double, MACHINE, args=(x, y), grid=None, dot_dtype="f32")
    kb.execute(trace)
    timeline = kb.simulate(trace, MACHINE, engine="compiled")
    assert timeline.makespan_ps == kb.launch(double, MACHINE, args=(x, y)).makespan_ps
    np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())


def test_one_trace_serves_other_machines_of_its_shape():
    trace = kb.record(double, MACHINE, args=tensors(held=False))
    slow = MACHINE.with_overrides({"cube.memory.bandwidth": "1 GB/s"})
    assert kb.simulate(trace, slow).makespan_ps > kb.simulate(trace).makespan_ps


def test_a_launch_takes_the_options_of_record():
    def kernel(o, *, tl):
        ones = tl.full((1, 64), 3.001, "f32")
        tl.store(o, tl.dot(ones, tl.trans(ones)))

    o = kb.empty((1, 1), "f32", MACHINE, kb.on())
    kb.launch(kernel, MACHINE, args=(o,), grid=1)
    exact = float(o.numpy()[0, 0])
    kb.launch(kernel, MACHINE, args=(o,), grid=(1, 1, 1), dot_dtype="f16")
    assert float(o.numpy()[0, 0]) == float(np.float16(exact)) != exact


@pytest.mark.parametrize(("option", "value"), [("mode", "vlaues"), ("engine", "simpi")])
def test_unknown_options_are_told_with_the_nearest(option, value):
    with pytest.raises(InputError, match=f"unknown {option} '{value}' \\(did you mean"):
        kb.launch(double, MACHINE, args=tensors(), **{option: value})
