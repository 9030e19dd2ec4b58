"""A machine as a grid of workgroups, and what recording and executing make of it."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernbench as kb
from kernbench.errors import ChannelError, InputError, KernelError, ScratchError
from kernbench.record import record

GPU = kb.load_machine("h200")
sizes = st.integers(1, 7)


# ---------------------------------------------------------------- the view
@given(sizes, sizes, sizes)
def test_workgroups_are_counted_with_x_the_fastest(x, y, z):
    grid = GPU.as_grid((x, y, z))
    assert grid.n_pes == x * y * z
    assert grid.shape == (x, y, z)
    index = grid.n_pes - 1
    assert grid.pe_name(index) == f"workgroup ({x - 1}, {y - 1}, {z - 1})"


def test_axes_that_are_left_out_have_one_workgroup():
    assert GPU.as_grid(5).grid == GPU.as_grid((5,)).grid == (5, 1, 1)


def test_all_workgroups_see_one_memory_and_have_no_neighbours():
    network = GPU.as_grid((256, 256)).network
    assert network.n_memories == 1
    assert (network.peer == -1).all()
    assert network.n_links == 0


def test_sets_of_workgroups_are_written_as_ranges():
    grid = GPU.as_grid((4, 3))
    assert grid.describe_pes(range(12)) == "workgroups x 0-3 y 0-2"
    assert grid.describe_pes([0, 1, 5]) == "workgroups x 0-1 y 0; x 1 y 1"
    assert GPU.as_grid((2, 1, 3)).describe_pes([0, 4]) == "workgroups x 0 y 0 z 0,2"


def test_the_signature_holds_the_grid():
    assert GPU.as_grid((4, 2)).signature == GPU.as_grid((4, 2)).signature
    assert GPU.as_grid((4, 2)).signature != GPU.as_grid((2, 4)).signature
    assert GPU.as_grid((4, 2)).signature != GPU.signature


@pytest.mark.parametrize("grid", [(), (0,), (1, 2, 3, 4), (2.0,), (-1, 2), (1 << 20, 1 << 20)])
def test_a_grid_that_is_none_is_refused(grid):
    with pytest.raises(InputError, match="grid"):
        GPU.as_grid(grid)


def test_a_mesh_has_no_grids():
    with pytest.raises(InputError, match=r"row4_pe8 gives each PE one program .* such as h200"):
        kb.load_machine("row4_pe8").as_grid((2, 2))


# ---------------------------------------------------------------- recording and executing
def negate(x, y, *, tl):
    """Write -x, a row for each workgroup (x, y)."""
    at = (tl.program_id(1), tl.program_id(0))
    tl.store(y.at(*at), -tl.load(x.at(*at), shape=(x.shape[2],)))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_each_workgroup_works_at_its_own_place(nx, ny, seed):
    x = np.random.default_rng(seed).standard_normal((ny, nx, 5)).astype(np.float32)
    y = kb.empty(x.shape, "f32", GPU)
    result = kb.launch(negate, GPU, args=(kb.tensor(x, GPU), y), grid=(nx, ny), mode="values")
    assert (y.numpy() == -x).all()
    assert len(result.trace.classes) == 1


def test_launches_of_different_grids_share_tensors():
    def increase(x, y, *, tl):
        pid = tl.program_id(0)
        tl.store(y.at(pid), tl.load(x.at(pid), shape=(4,)) + 1.0)

    def total(y, out, *, tl):
        tl.store(out, tl.sum(tl.load(y, shape=(6, 4)), axis=0))

    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    y, out = kb.empty((6, 4), "f32", GPU), kb.empty((1, 4), "f32", GPU)
    kb.launch(increase, GPU, args=(kb.tensor(x, GPU), y), grid=6, mode="values")
    kb.launch(total, GPU, args=(y, out), grid=1, mode="values")
    assert np.allclose(out.numpy()[0], (x + 1).sum(axis=0), atol=1e-5)


def test_65536_workgroups_that_agree_are_recorded_in_seconds():
    x = kb.shape_only((512, 128, 64), "f32", GPU)
    y = kb.shape_only((512, 128, 64), "f32", GPU)
    start = time.perf_counter()
    trace = record(negate, GPU, (x, y), grid=(128, 512))
    assert time.perf_counter() - start < 5
    assert (trace.n_pes, len(trace.classes)) == (65536, 1)


def test_workgroups_that_differ_are_classes():
    def ragged(x, y, *, tl):
        pid = tl.program_id(0)
        n = tl.minimum(x.shape[0] - pid * 4, 4)
        tl.store(y.at(pid * 4), tl.load(x.at(pid * 4), shape=(4,), valid=n), valid=n)

    x = np.arange(10, dtype=np.float32)
    y = kb.empty((10,), "f32", GPU)
    result = kb.launch(ragged, GPU, args=(kb.tensor(x, GPU), y), grid=3)
    assert (y.numpy() == x).all()
    assert len(result.trace.classes) == 2


# ---------------------------------------------------------------- what is refused
def test_a_launch_needs_its_grid():
    x = kb.shape_only((4,), "f32", GPU)
    with pytest.raises(InputError, match=r"h200 hold workgroups of a grid, so a launch there needs its grid"):
        record(negate, GPU, (x, x))


def test_two_workgroups_that_store_to_the_same_bytes_are_an_error():
    def all_to_one(x, y, *, tl):
        tl.store(y, tl.load(x.at(tl.program_id(0)), shape=(4,)))

    x, y = kb.shape_only((3, 4), "f32", GPU), kb.shape_only((4,), "f32", GPU)
    with pytest.raises(
        KernelError, match=r"written by workgroup \(0, 0, 0\) and also written by workgroup \(1, 0, 0\)"
    ):
        record(all_to_one, GPU, (x, y), grid=3)


def test_a_workgroup_cannot_read_what_another_stores():
    def shift(x, *, tl):
        pid = tl.program_id(0)
        tl.store(x.at(pid), tl.load(x.at(pid + 1), shape=(4,)))

    with pytest.raises(KernelError, match=r"written by workgroup .* and read by workgroup"):
        record(shift, GPU, (kb.shape_only((4, 4), "f32", GPU),), grid=3)


def test_there_are_no_channels():
    def talk(*, tl):
        tl.send(dir="intra_E", src=tl.zeros((4,)))

    with pytest.raises(ChannelError, match="no neighbour"):
        record(talk, GPU, (), grid=4)


def test_tensors_cannot_be_split_over_workgroups():
    x = kb.shape_only((8, 4), "f32", GPU, kb.split(0, over="pe"))
    with pytest.raises(InputError, match="workgroups of a grid see whole tensors"):
        record(negate, GPU, (x, x), grid=1)


def test_addresses_outside_a_tensor_name_the_workgroups():
    def too_far(x, *, tl):
        tl.load(x.at(tl.program_id(0)), shape=(4,))

    with pytest.raises(KernelError, match=r"on workgroups x 3 y 0"):
        record(too_far, GPU, (kb.shape_only((3, 4), "f32", GPU),), grid=4)


# ---------------------------------------------------------------- room for tiles
def test_a_dead_tile_gives_its_room_to_the_next():
    def chain(x, y, *, tl):
        t = tl.load(x, shape=(128, 128))
        for _ in range(50):
            t = t * 2.0
        tl.store(y, t)

    x = kb.shape_only((128, 128), "f32", GPU)
    trace = record(chain, GPU, (x, kb.shape_only((128, 128), "f32", GPU)), grid=1)
    assert trace.scratch_peak_bytes == 2 * 128 * 128 * 4
    assert sum(trace.classes[0].scratch_by_line.values()) == trace.scratch_peak_bytes


def test_more_live_tiles_than_registers_and_scratch_hold_are_an_error():
    def too_much(x, y, *, tl):
        tiles = [tl.load(x, shape=(128, 128)) for _ in range(8)]
        for t in tiles:
            tl.store(y, t)

    x = kb.shape_only((128, 128), "f32", GPU)
    with pytest.raises(ScratchError, match=r"524,288 bytes of live tiles, but a PE of h200 holds 495,616 .*\n  alive"):
        record(too_much, GPU, (x, kb.shape_only((128, 128), "f32", GPU)), grid=1)
