"""What is wrong with a kernel, a grid or a tensor as a whole is told like what is wrong with a line."""

import functools

import numpy as np
import pytest

import kernbench as kb
from kernbench.errors import InputError, KernelError, ScratchError

from .helpers import complaint, marked, small_machine

MACHINE = small_machine()  # 2 CUBEs of 2 x 2 PEs
ALL = "on cube 0-1 pe 0-3"


def rows(n):
    return kb.shape_only((n, 8), "f16", MACHINE, kb.split(axis=0, over=("sip", "cube", "pe")))


# ---------------------------------------------------------------- the kernel as a whole
def test_a_kernel_that_does_no_work():
    def idle(x, *, tl):
        if tl.program_id(0) > 100:
            tl.load(x, shape=(1, 8))

    assert "idle does no work: no PE issues a command" in complaint(idle, MACHINE, (rows(8),))


def test_an_exception_in_the_kernel_names_its_line():
    def kernel(*, tl):
        for i in (2, 1, 0):
            tl.full((1,), 6 // i)  # here

    text = complaint(kernel, MACHINE)
    assert "kernel failed: ZeroDivisionError:" in text
    assert marked(kernel) in text
    assert ALL in text


def test_an_exception_in_a_library_names_the_kernels_line():
    def kernel(*, tl):
        np.broadcast_shapes((2,), (3,))  # here

    text = complaint(kernel, MACHINE)
    assert "ValueError: shape mismatch" in text
    assert marked(kernel) in text


def test_an_exception_on_some_pes_names_them():
    table = {0: 8, 1: 4}

    def kernel(*, tl):
        tl.zeros((table[tl.program_id(0)],))  # here

    text = complaint(kernel, MACHINE)
    assert "KeyError" in text
    assert "on cube 0-1 pe 2" in text or "on cube 0-1 pe 3" in text
    assert marked(kernel) in text


def test_ctrl_c_is_not_swallowed():
    def kernel(*, tl):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kb.record(kernel, MACHINE)


@pytest.mark.parametrize("grid", [0, 5, (2, 3), (1, 1, 2), (1, 1, 1, 1), (), (2.0,), "ab", (True and -1,)])
def test_a_grid_that_does_not_fit(grid):
    def kernel(*, tl):
        tl.zeros((1,))

    text = complaint(kernel, MACHINE, grid=grid)
    assert "does not fit row4_pe8" in text
    assert "(PE in CUBE, CUBE in SIP, SIP), at most (4, 2, 1)" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((1,), "missing a required argument: 'b'"),
        ((1, 2, 3), "too many positional arguments"),
    ],
)
def test_arguments_that_do_not_fit(args, message):
    def kernel(a, b, *, tl):
        tl.zeros((1,))

    text = complaint(kernel, MACHINE, args)
    assert text.startswith("the arguments do not fit kernel(..., *, tl)")
    assert message in text


def test_a_kernel_without_tl():
    def kernel(a):
        pass

    assert "unexpected keyword argument 'tl'" in complaint(kernel, MACHINE, (1,))


def test_a_tensor_of_another_machine():
    def kernel(x, *, tl):
        tl.load(x, shape=(1, 8))

    other = kb.shape_only((8, 8), "f16", kb.load_machine("row4_pe8"))
    assert "x was placed on a machine of another shape than row4_pe8" in complaint(kernel, MACHINE, (other,))


def test_a_memory_that_is_too_small():
    def kernel(k, *, tl):
        tl.load(k, shape=(1, 128))

    huge = kb.shape_only((2**28, 128), "f16", MACHINE, kb.split(axis=0, over="pe"))
    text = complaint(kernel, MACHINE, (huge,))
    assert "memory 0 of row4_pe8 is too small: the kernel's tensors need 68,719,476,736 bytes there" in text
    assert "its capacity is 25,769,803,776" in text
    assert "split the tensors over more CUBEs" in text


@pytest.mark.parametrize("dot_dtype", ["i8", "f8", "double"])
def test_dot_dtype_is_a_float_format(dot_dtype):
    def kernel(*, tl):
        tl.zeros((1,))

    with pytest.raises(kb.KernbenchError, match=dot_dtype):
        kb.record(kernel, MACHINE, dot_dtype=dot_dtype)


def test_kernels_may_be_partial_functions_or_objects():
    def kernel(a, b, *, tl):
        tl.full((1,), a + b)

    class Kernel:
        def __call__(self, a, *, tl):
            kernel(a, 1, tl=tl)

    assert kb.record(functools.partial(kernel, 1), MACHINE, (2,)).kernel == "kernel"
    assert kb.record(Kernel(), MACHINE, (2,)).kernel == "Kernel"


# ---------------------------------------------------------------- tensors
@pytest.mark.parametrize("dtype", ["float64", "complex64", "object"])
def test_an_array_that_no_device_holds(dtype):
    with pytest.raises(InputError, match=f"an array of {dtype} cannot be placed on a device: cast it"):
        kb.tensor(np.zeros(4, dtype), MACHINE)


def test_other_unusable_tensors():
    with pytest.raises(InputError, match="needs at least one axis"):
        kb.tensor(np.float32(1), MACHINE)
    with pytest.raises(InputError, match="axis 2 does not exist in a tensor of shape"):
        kb.shape_only((4, 4), "f16", MACHINE, kb.split(axis=2, over="pe"))
    with pytest.raises(InputError, match="cube 5 does not exist: row4_pe8 has cube 0-1"):
        kb.shape_only((4, 4), "f16", MACHINE, kb.on(cube=5))
    with pytest.raises(InputError, match=r"unknown level 'cub' \(did you mean 'cube'\?\)"):
        kb.split(axis=0, over="cub")
    with pytest.raises(InputError, match="level 'pe' already has a part"):
        kb.split(axis=0, over="pe").split(axis=1, over="pe")
    with pytest.raises(InputError, match="axis 0 is already split"):
        kb.split(axis=0, over="pe").split(axis=0, over="cube")
    with pytest.raises(InputError, match="split twice"):
        kb.shape_only((4, 4), "f16", MACHINE, kb.split(axis=1, over="pe").split(axis=-1, over="cube"))
    for shape in ((), (-1,), (2.5,), None):
        with pytest.raises(InputError, match="one or more sizes of 0 or more"):
            kb.shape_only(shape, "f16", MACHINE)


def test_errors_are_of_kinds_that_programs_can_tell_apart():
    assert issubclass(ScratchError, KernelError)
    assert issubclass(KernelError, kb.KernbenchError)
    assert issubclass(InputError, kb.KernbenchError)
