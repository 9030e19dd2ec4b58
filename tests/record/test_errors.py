"""What a kernel's author reads when a kernel is wrong: what, at which of its lines, on which PEs, and the mend."""

import numpy as np
import pytest

import kernbench as kb
from kernbench.errors import ScratchError

from .helpers import complaint, marked, small_machine

MACHINE = small_machine()  # 2 CUBEs of 2 x 2 PEs
ALL = "on cube 0-1 pe 0-3"
EVERYWHERE = ("sip", "cube", "pe")


def of_rows(rows, columns=8, dtype="f16", placement=None):
    return kb.shape_only((rows, columns), dtype, MACHINE, placement or kb.split(axis=0, over=EVERYWHERE))


# ---------------------------------------------------------------- scratch
def test_scratch_overflow_tells_who_holds_what():
    def kernel(*, tl):
        with tl.scratch_scope():
            tl.zeros((1000, 1000), "f32")  # gone
        tl.zeros((1000, 512), "f32")  # kept
        for _ in range(2):
            tl.exp(tl.zeros((500, 256), "f32"))  # twice
        tl.zeros((600, 512), "f32")  # here

    text = complaint(kernel, MACHINE)
    assert "scratch overflow: a tile (600, 512) f32 needs 1,228,800 bytes, but 98,304 of 4,194,304 are free" in text
    assert "use smaller tiles, fewer buffers, or free tiles with tl.scratch_scope()" in text
    assert f"2,048,000 bytes in 1 tile made at tests/record/{marked(kernel, '# kept')}" in text
    assert f"2,048,000 bytes in 4 tiles made at tests/record/{marked(kernel, '# twice')}" in text
    assert "# gone" not in text
    assert f"\n  at tests/record/{marked(kernel)}" in text
    assert ALL in text


def test_scratch_overflow_counts_the_other_copies_of_a_scope():
    def kernel(*, tl):
        for _ in range(2):
            with tl.scratch_scope(buffers=2):  # scope
                tl.zeros((600, 1024), "f32")  # here

    text = complaint(kernel, MACHINE)
    assert f"2,457,600 bytes in the other copies of the scope at tests/record/{marked(kernel, '# scope')}" in text
    assert "1,736,704 of 4,194,304 are free" in text
    assert marked(kernel) in text


def test_use_after_scope_tells_where_the_tile_came_from_and_how_to_carry_it_out():
    def kernel(*, tl):
        with tl.scratch_scope():  # scope
            t = tl.zeros((4, 4), "f16")  # made
        if tl.program_id(1) == 1:
            tl.exp(t)  # here

    text = complaint(kernel, MACHINE)
    assert "a tile (4, 4) f16 is used after its scratch scope ended" in text
    assert f"made at tests/record/{marked(kernel, '# made')}" in text
    assert f"freed by the scope at tests/record/{marked(kernel, '# scope')}" in text
    assert "tl.copy_to(tile made outside, tile)" in text
    assert marked(kernel) in text
    assert "on cube 1 pe 0-3" in text


@pytest.mark.parametrize(
    "use",
    [
        lambda t, o, tl: tl.store(o, t),
        lambda t, o, tl: tl.send(dir="intra_E", src=t),
        lambda t, o, tl: tl.dot(t, tl.zeros((8, 8))),
        lambda t, o, tl: tl.copy_to(t, tl.zeros((8, 8))),
        lambda t, o, tl: tl.copy_to(tl.zeros((8, 8)), t),
        lambda t, o, tl: tl.reshape(t, (64,)),
        lambda t, o, tl: t.T,
        lambda t, o, tl: t + 1,
        lambda t, o, tl: 1 / t,
        lambda t, o, tl: tl.max(t, axis=0),
        lambda t, o, tl: tl.where(t, 0, 1),
        lambda t, o, tl: tl.composite(tl.zeros((8, 8), "f16"), t),
        lambda t, o, tl: tl.cast(t, "f32"),
    ],
)
def test_every_use_after_scope_is_noticed(use):
    def kernel(o, *, tl):
        with tl.scratch_scope():
            t = tl.zeros((8, 8), "f16")
        use(t, o, tl)

    with pytest.raises(ScratchError, match="used after its scratch scope ended"):
        kb.record(kernel, MACHINE, (of_rows(64),))


def test_a_scope_that_is_left_by_return_or_break_frees_its_tiles():
    def kernel(*, tl):
        def inner():
            with tl.scratch_scope():
                tl.zeros((1000, 1000), "f32")
                return

        for _ in range(5):
            with tl.scratch_scope():
                tl.zeros((1000, 1000), "f32")
                break
        inner()
        inner()

    assert kb.record(kernel, MACHINE).scratch_peak_bytes == 4_000_000


# ---------------------------------------------------------------- operations
def test_dot_of_shapes_that_do_not_match():
    def kernel(*, tl):
        a, b = tl.zeros((4, 8), "f16"), tl.zeros((4, 8), "f16")
        tl.dot(a, b)  # here

    text = complaint(kernel, MACHINE)
    assert "dot: shapes (4, 8) and (4, 8) do not match: (m, k) and (k, n) have k in common" in text
    assert marked(kernel) in text
    assert ALL in text


@pytest.mark.parametrize(
    ("branch", "where"),
    [
        (lambda t, tl: 1 if t > 0 else 0, "if t"),
        (lambda t, tl: range(tl.sum(t)), "range"),
        (lambda t, tl: float(tl.max(t)), "float"),
        (lambda t, tl: t and 1, "and"),
        (lambda t, tl: max(t, t), "max"),
    ],
)
def test_a_branch_on_data_says_what_to_do_instead(branch, where):
    def kernel(*, tl):
        branch(tl.zeros((1, 1), "i32"), tl)

    text = complaint(kernel, MACHINE)
    assert "this needs the value of a tile (1, 1)" in text
    assert "recorded before it has data" in text
    assert "tl.where" in text
    assert "tl.load_scalar" in text
    assert where in text.split("\n  at ")[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, t, tl: t[0], "a tile cannot be iterated over or indexed"),
        (lambda x, t, tl: [*t], "a tile cannot be iterated over or indexed"),
        (lambda x, t, tl: t + tl.zeros((3, 8)), r"add: shapes (4, 8) and (3, 8) do not broadcast"),
        (lambda x, t, tl: tl.exp(2.0), "exp needs a tile among its operands"),
        (lambda x, t, tl: t + "1", "add: needs a number or a per-PE integer, not str '1'"),
        (lambda x, t, tl: t == None, "compare: needs a number or a per-PE integer, not NoneType"),  # noqa: E711
        (lambda x, t, tl: tl.copy_to(t, tl.zeros((8, 4))), "copy_to: the destination is (4, 8), the source (8, 4)"),
        (lambda x, t, tl: tl.reshape(t, (5, 7)), "of 32 elements cannot be reshaped to (5, 7)"),
        (lambda x, t, tl: tl.broadcast_to(t, (8, 8)), "a tile (4, 8) cannot be broadcast to (8, 8)"),
        (lambda x, t, tl: tl.trans(t, (0, 0)), "trans axes (0, 0) do not permute the 2 axes"),
        (lambda x, t, tl: tl.trans(tl.arange(4)), "trans needs two axes; the tile is (4,)"),
        (lambda x, t, tl: tl.max(t, axis=2), "max: a tile (4, 8) has no axis 2"),
        (lambda x, t, tl: tl.zeros((0, 4)), "sizes of 1 or more, not (0, 4)"),
        (lambda x, t, tl: tl.zeros((2.5, 4)), "a shape is made of integers, not (2.5, 4)"),
        (lambda x, t, tl: tl.zeros(None), "a shape is made of integers, not None"),
        (lambda x, t, tl: tl.zeros((4,), "f17"), "unknown dtype 'f17' (did you mean 'f16'?)"),
        (lambda x, t, tl: tl.arange(3, 3), "arange(3, 3) is empty"),
        (lambda x, t, tl: tl.full((4,), t), "full: needs a number or a per-PE integer, not Tile"),
        (lambda x, t, tl: tl.dot(t, tl.zeros((8, 2), "i32")), "dot of f32 and i32: cast one of them first"),
        (lambda x, t, tl: tl.dot(t, t.T, tl.zeros((4, 8))), "dot: acc is (4, 8), the product is (4, 4)"),
        (lambda x, t, tl: tl.dot(x, t), "dot needs a tile, not Pointer"),
        (lambda x, t, tl: t & 1, "bitwise operators need integers or conditions, not f32"),
        (lambda x, t, tl: tl.program_id(3), "program axis 3: 0 = PE in its CUBE"),
        (lambda x, t, tl: tl.scratch_scope(buffers=0), "scratch_scope(buffers=0): 1 or more"),
        (lambda x, t, tl: tl.program_id(0) / 2, "these are integers, use `//`"),
        (lambda x, t, tl: tl.program_id(0) * 0.5, "with the number 0.5: per-PE arithmetic is in whole numbers"),
        (lambda x, t, tl: tl.maximum(tl.program_id(0), 0.5), "maximum of"),
        (lambda x, t, tl: tl.program_id(0) // (tl.program_id(0) - 2), "division or modulo by zero on at least one PE"),
        (lambda x, t, tl: tl.composite(t, t), "composite: shapes (4, 8) and (4, 8) do not match"),
        (lambda x, t, tl: tl.composite(t, x), "composite with a pointer needs the shape"),
        (lambda x, t, tl: tl.composite(t, t.T, epilogue=["scael"]), "step 'scael' (did you mean 'scale'?)"),
        (lambda x, t, tl: tl.composite(t, t.T, epilogue=[("exp",)]), 'put ("max",) before it'),
        (lambda x, t, tl: tl.composite(t, t.T, epilogue=[("scale",)]), '("scale", x) needs its factor'),
        (lambda x, t, tl: tl.composite(t, t.T, epilogue=[("scale", t)]), "scale takes a number"),
        (lambda x, t, tl: tl.composite(t, t.T, epilogue=[("exp", t)]), "exp takes (4, 1)"),
        (lambda x, t, tl: tl.composite(t, t.T, epilogue=[("cast", "f16"), ("max",)]), '("cast", dtype) comes last'),
        (lambda x, t, tl: tl.composite(t, t.T, chunk=0), "chunk must be 1 or more"),
    ],
)  # fmt: skip
def test_operations_say_what_they_need(wrong, message):
    def kernel(x, *, tl):
        t = tl.zeros((4, 8))
        wrong(x, t, tl)

    text = complaint(kernel, MACHINE, (of_rows(8),))
    assert message in text
    assert "\n  at tests/record/test_errors.py:" in text
    assert "lambda x, t, tl" in text.split("\n  at ")[1]
    assert ALL in text


# ---------------------------------------------------------------- memory
def test_a_load_outside_the_tensor():
    def kernel(x, *, tl):
        tl.load(x + 64, shape=(8, 8))  # here

    text = complaint(kernel, MACHINE, (of_rows(8, placement=kb.replicated()),))
    assert "bytes 64 to 192 of x are touched, but it is (8, 8) f16 and ends at byte 128" in text
    assert marked(kernel) in text
    assert ALL in text


def test_a_load_outside_this_pes_part():
    def kernel(k, *, tl):
        tl.load(k, shape=(4, 8))  # here

    text = complaint(kernel, MACHINE, (of_rows(30),))  # parts of 4 rows and, on the last two PEs, 3
    assert "bytes 0 to 64 of k are touched, but this PE's part of it is (3, 8) f16 and ends at byte 48" in text
    assert "keep within k.shape, or give valid= the rows that are there" in text
    assert "on cube 1 pe 2-3" in text
    assert marked(kernel) in text


@pytest.mark.parametrize(
    ("access", "touched"),
    [
        (lambda x, tl: tl.load(x - 2, shape=(1,)), "bytes -2 to 0"),
        (lambda x, tl: tl.load(x + 16 * tl.program_id(0), shape=(6, 8)), "bytes 48 to 144"),
        (lambda x, tl: tl.load(x, shape=(8, 2), strides=(1, 64)), "bytes 0 to 144"),
        (lambda x, tl: tl.load(x, shape=(2, 2), strides=(-8, 1)), "bytes -16 to 4"),
        (lambda x, tl: tl.store(x + 120, tl.zeros((8,))), "bytes 120 to 136"),
        (lambda x, tl: tl.composite(tl.zeros((1, 9), "f16"), x, shape=(9, 8)), "bytes 0 to 144"),
        (lambda x, tl: tl.load(x + 128, shape=(4, 8), valid=1), "bytes 128 to 144"),
    ],
)
def test_every_access_keeps_its_bounds(access, touched):
    def kernel(x, *, tl):
        access(x, tl)

    text = complaint(kernel, MACHINE, (of_rows(8, placement=kb.on()),))
    assert f"{touched} of x are touched" in text
    assert "ends at byte 128" in text


def test_valid_keeps_a_ragged_tile_within_bounds():
    def kernel(x, *, tl):
        tl.load(x + 64, shape=(8, 8), valid=4)
        tl.load(x + 64, shape=(8, 8), valid=(4, 8), other=1)
        tl.load(x + 8, shape=(8, 8), strides=(8, 1), valid=(8, 4))

    kb.record(kernel, MACHINE, (of_rows(8, placement=kb.replicated()),))


def test_a_load_as_another_dtype():
    def kernel(x, *, tl):
        tl.load(x, shape=(1, 8), dtype="f32")  # here

    text = complaint(kernel, MACHINE, (of_rows(8),))
    assert 'load as f32 from x, which holds f16: read it as "f16" and cast, or say bitcast=True' in text
    assert marked(kernel) in text


def test_a_bitcast_of_another_width():
    def kernel(x, *, tl):
        tl.load(x, shape=(1, 8), dtype="i16", bitcast=True)
        tl.load(x, shape=(1, 4), dtype="f32", bitcast=True)  # here

    text = complaint(kernel, MACHINE, (of_rows(8),))
    assert "bitcast from f16 to f32: their widths differ" in text
    assert marked(kernel) in text


def test_an_address_between_two_elements():
    def kernel(x, *, tl):
        tl.load(x + tl.program_id(0), shape=(2,))  # here

    text = complaint(kernel, MACHINE, (of_rows(8),))
    assert "byte 1 of x is not the first of an element: f16 takes 2 bytes, and pointer arithmetic is in bytes" in text
    assert "on cube 0-1 pe 1,3" in text


def test_a_store_into_a_tensor_that_is_copied():
    def kernel(o, *, tl):
        tl.store(o, tl.zeros((8, 8)))  # here

    text = complaint(kernel, MACHINE, (of_rows(8, placement=kb.replicated()),))
    assert "store into o, of which every memory holds its own copy: they would differ" in text
    assert "kb.split(...) or kb.on(...)" in text
    assert marked(kernel) in text


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        (
            lambda x, tl: 128,
            "load needs a pointer (a tensor among the kernel's own arguments, plus bytes), not int 128",
        ),
        (lambda x, tl: x + 0.5, "to a pointer, bytes are added: a plain or per-PE integer"),
        (lambda x, tl: x + tl.arange(8), "There are no pointers of many elements: give tl.load a shape and strides"),
        (lambda x, tl: x.at(0, 0, 0), "3 indices into x, which has 2 axes"),
        (lambda x, tl: int(x), "load needs a pointer"),
    ],
)
def test_pointers_say_what_they_are(pointer, message):
    def kernel(x, *, tl):
        tl.load(pointer(x, tl), shape=(1,))

    assert message in complaint(kernel, MACHINE, (of_rows(8),))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (None, "c has no values (kb.shape_only), so it cannot steer the kernel"),
        (np.zeros(8, np.float32), "load_scalar reads integers; c holds f32"),
        (np.zeros(4, np.int32), "bytes 28 to 32 of c are touched"),
        (np.zeros(16, np.int16), "load_scalar as i32 from c, which holds i16: read it as"),
    ],
)
def test_control_tensors_say_what_they_need(array, message):
    def kernel(c, *, tl):
        tl.load_scalar(c + 28, dtype=None if array is None or array.dtype == np.float32 else "i32")

    control = kb.shape_only((8,), "i32", MACHINE) if array is None else kb.tensor(array, MACHINE)
    assert message in complaint(kernel, MACHINE, (control,))


def test_a_control_tensor_that_the_kernel_has_written():
    def kernel(c, *, tl):
        if tl.program_id(0) + tl.program_id(1) == 0:
            tl.store(c, tl.zeros((2,), "i32"))
            tl.load_scalar(c + 8)
            tl.load_scalar(c + 4)  # here

    control = kb.tensor(np.zeros(8, np.int32), MACHINE, kb.on())
    text = complaint(kernel, MACHINE, (control,))
    assert "load_scalar from c, where this kernel has stored before" in text
    assert marked(kernel) in text
