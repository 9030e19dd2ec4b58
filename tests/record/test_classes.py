"""The cost of recording follows the number of behaviours: few classes, few runs, few lane columns."""

import numpy as np
import pytest

import kernbench as kb
from kernbench.collectives import reduce_to_root
from kernbench.errors import KernelError

from .helpers import small_machine

EVERYWHERE = ("sip", "cube", "pe")


def chained_sum(x, o, tiles, *, tl):
    """Sum the rows of every PE, then chain the sums to PE 0."""
    total = tl.zeros((1, 16))
    for i in range(tiles):
        with tl.scratch_scope(buffers=2):
            tl.copy_to(total, total + tl.load(x.row(i), shape=(1, 16)))
    whole = reduce_to_root((total,), lambda a, b: (a[0] + b[0],), EVERYWHERE[::-1], tl=tl)
    if whole is not None:
        tl.store(o, whole[0])


def traced(name, tiles=3):
    machine = kb.load_machine(name)
    x = kb.shape_only((tiles * machine.n_pes, 16), "f32", machine, kb.split(axis=0, over=EVERYWHERE))
    return kb.record(chained_sum, machine, args=(x, kb.shape_only((1, 16), "f32", machine, kb.on()), tiles))


@pytest.mark.parametrize("name", ["row4_pe8", "grid8x8_pe8", "grid16x32_pe8", "sip4_grid4x4_pe8"])
def test_a_chain_reduction_has_a_handful_of_classes(name):
    trace = traced(name)
    assert trace.n_pes == trace.machine.n_pes
    assert 6 <= len(trace.classes) <= 12


@pytest.mark.parametrize("name", ["row4_pe8", "grid8x8_pe8"])
def test_lane_columns_do_not_grow_with_the_commands(name):
    few, many = traced(name, tiles=2), traced(name, tiles=40)
    assert max(len(c.columns) for c in many.classes) == max(len(c.columns) for c in few.classes) <= 2


@pytest.mark.parametrize(
    "address",
    [
        lambda x, i, me: x + (me * 40 + i) * 64,
        lambda x, i, me: x + me * 2560 + i * 64,
        lambda x, i, me: x + 64 * (i + 40 * me),
        lambda x, i, me: x.at(me * 40 + i),
        lambda x, i, me: x + (i * 128 + me * 5120) // 2,
        lambda x, i, me: 16 * (i + 40 * me) * 4 + x,
        lambda x, i, me: x - -(me * 40 + i) * np.int64(64),
    ],
)
def test_addresses_of_a_loop_share_one_column_however_they_are_written(address):
    machine = small_machine()

    def kernel(x, *, tl):
        for i in range(40):
            tl.load(address(x, i, tl.program_id(1) * 4 + tl.program_id(0)), shape=(16,))

    x = kb.shape_only((40 * machine.n_pes, 16), "f32", machine)
    (cls,) = kb.record(kernel, machine, args=(x,)).classes
    assert len({c.access.address.column for c in cls.commands}) == 1
    assert len({c.access.element.column for c in cls.commands}) == 1
    assert [int(cls.columns[c.access.element.column][3]) + c.access.element.offset for c in cls.commands] == [
        16 * (3 * 40 + i) for i in range(40)
    ]


def test_pes_that_disagree_go_their_own_ways_and_the_commands_before_are_shared():
    machine = small_machine(cubes=1)
    runs = []

    def kernel(*, tl):
        runs.append(1)
        t = tl.zeros((4,))
        for _ in range(10):
            t = t + 1
        if tl.program_id(0) % 2:
            t + 2
        else:
            t * 2

    trace = kb.record(kernel, machine)
    assert [list(c.pes) for c in trace.classes] == [[0, 2], [1, 3]]
    assert len(runs) == 2
    even, odd = (c.commands for c in trace.classes)
    assert all(a is b for a, b in zip(even[:11], odd[:11], strict=True))
    assert (even[11].name, odd[11].name) == ("multiply", "add")


def test_a_kernel_that_remembers_earlier_runs_is_refused():
    machine = small_machine(cubes=1)
    runs = []

    def kernel(*, tl):
        runs.append(1)
        if len(runs) > 1:
            tl.empty((4,))
        if tl.zeros((4,)) is not None and tl.program_id(0) == 0:
            tl.zeros((4,))

    with pytest.raises(KernelError, match="did something else when it was run again") as caught:
        kb.record(kernel, machine)
    assert ": tl.empty((4,))" in str(caught.value)
    assert "on cube 0 pe 1-3" in str(caught.value)


def test_a_tile_kept_from_an_earlier_run_is_refused():
    kept = []

    def kernel(*, tl):
        kept.append(tl.zeros((4,)))
        if tl.program_id(0) == 0:
            return
        tl.exp(kept[0])

    with pytest.raises(KernelError, match="of another run of the kernel"):
        kb.record(kernel, small_machine(cubes=1))


def test_commands_of_says_what_one_pe_does():
    trace = traced("row4_pe8")
    first = next(c for c in trace.commands_of(5) if c.op == "load")
    tensor = trace.tensors[0]
    assert first.access.element == 0
    assert first.access.address & (2**44 - 1) == 5 * 4096  # the sixth part in the CUBE's memory, from a page of its own
    assert tensor.layout.memory_of_pe[5] == first.access.address >> 44 == 0
    with pytest.raises(KeyError, match="PE 999 takes no part"):
        next(trace.commands_of(999))
