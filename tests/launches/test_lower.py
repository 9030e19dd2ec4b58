"""From a recorded grid to the steps of its workgroups."""

import math
from fractions import Fraction

import numpy as np
import pytest

import kernbench as kb
from kernbench.errors import InputError
from kernbench.record import record
from kernbench.simulate.launch import shared, simulate_launch
from kernbench.simulate.launch.lower import lower
from kernbench.simulate.launch.steps import Engines, Kind
from kernbench.specs.implementation import Implementation

GPU = kb.load_machine("h200")
ONE = Implementation(waves=1)


def shape(*extents, dtype="bf16"):
    return kb.shape_only(extents, dtype, GPU)


def launch_of(kernel, args, grid=1, implementation=ONE, machine=GPU, **options):
    return lower(record(kernel, GPU, args, grid=grid), machine, implementation, **options)


def kinds(launch, c=0):
    return [step.kind.name for step in launch.classes[c].prologue]


def walk(x, y, tiles, buffers, *, tl):
    """Add up the tiles of a workgroup's row."""
    acc = tl.zeros((16, 16))
    for i in range(tiles):
        with tl.scratch_scope(buffers=buffers):
            tl.copy_to(acc, acc + tl.cast(tl.load(x.at(tl.program_id(0), i), shape=(16, 16)), "f32"))
    tl.store(y.at(tl.program_id(0)), acc)


# ---------------------------------------------------------------- order
def test_a_workgroup_loads_waits_works_stores_and_ends():
    launch = launch_of(walk, (shape(1, 1, 16, 16), shape(1, 16, 16, dtype="f32"), 1, 1))
    assert kinds(launch) == ["LOAD", "WAIT", "RUN", "WAIT", "STORE", "PAUSE"]
    assert launch.classes[0].prologue[-1].ps == GPU.pe.workgroup.end


def piped(stages):
    """A pipeline with room for all of its tiles."""
    return Implementation(waves=1, stages=stages, lds_bytes=1 << 17)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_loads_run_as_many_tiles_ahead_as_the_pipeline_has_stages(stages):
    args = (shape(1, 6, 16, 16), shape(1, 16, 16, dtype="f32"), 6, stages)
    launch = launch_of(walk, args, implementation=piped(stages), fold=False)
    ahead = max(stages - 1, 1)  # without a pipeline a tile is asked for when it is needed
    assert kinds(launch)[: ahead + 1] == ["LOAD"] * ahead + ["WAIT"]
    flying = most = 0
    for step in launch.classes[0].prologue:
        flying += (step.kind == Kind.LOAD) - (step.kind == Kind.WAIT and step.token > 0)
        most = max(most, flying)
    assert most == ahead


def test_a_buffer_that_is_in_use_holds_its_load_up():
    tiles, out = shape(1, 6, 16, 16, dtype="f32"), shape(1, 16, 16, dtype="f32")
    args = (tiles, out, 6, 1)  # the kernel has one buffer, whatever the pipeline
    steps = kinds(launch_of(walk, args, implementation=piped(4), fold=False))
    assert steps[:3] == ["LOAD", "WAIT", "RUN"]


def test_a_pipeline_without_room_is_none():
    args = (shape(1, 6, 16, 16), shape(1, 16, 16, dtype="f32"), 6, 3)
    small = Implementation(waves=1, stages=3, lds_bytes=100)  # a tile has 512 bytes
    assert kinds(launch_of(walk, args, implementation=small, fold=False))[:2] == ["LOAD", "WAIT"]


def test_running_ahead_hides_latency():
    spans = [
        simulate_launch(
            launch_of(walk, (shape(1, 8, 16, 16), shape(1, 16, 16, dtype="f32"), 8, n), implementation=piped(n))
        ).makespan_ps
        for n in (2, 3, 5, 8)
    ]
    assert spans == sorted(spans, reverse=True)
    assert spans[0] - spans[-1] > 5 * GPU.memory.latency


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 9])
def test_a_folded_loop_takes_the_same_picoseconds(tiles, stages):
    args = (shape(5, tiles, 16, 16), shape(5, 16, 16, dtype="f32"), tiles, stages)
    one, flat = (launch_of(walk, args, 5, piped(stages), fold=fold) for fold in (True, False))
    assert one.classes[0].iterations == (tiles if tiles >= 3 else 0)
    times = [simulate_launch(launch, engine) for launch in (one, flat) for engine in ("compiled", "simpy")]
    for other in times[1:]:
        assert (other.end_ps == times[0].end_ps).all()
        assert (other.spent_ps == times[0].spent_ps).all()


def test_tokens_are_used_again():
    launch = launch_of(walk, (shape(1, 50, 16, 16), shape(1, 16, 16, dtype="f32"), 50, 2))
    assert launch.classes[0].tokens <= 4


def test_a_control_element_is_waited_for_before_the_load_that_it_steers():
    def gather(table, x, y, *, tl):
        for i in range(3):
            with tl.scratch_scope():
                row = tl.load_scalar(table.at(i))
                tl.store(y.at(i), tl.load(x.at(row), shape=(64,)))

    table = kb.tensor(np.array([2, 0, 1], np.int32), GPU)
    steps = launch_of(gather, (table, shape(3, 64), shape(3, 64))).classes[0].prologue
    waited = set()
    for step in steps:
        if step.kind == Kind.WAIT:
            waited.add(step.token)
        if step.kind == Kind.LOAD and step.nbytes == 128:
            assert waited  # its element came first
    assert sum(step.kind == Kind.LOAD for step in steps) == 6


# ---------------------------------------------------------------- costs
def product(a, b, c, *, tl):
    tl.store(c, tl.dot(tl.load(a, shape=(16, 64)), tl.load(b, shape=(64, 8))))


def run_of(launch):
    """Return the only RUN."""
    (step,) = (step for step in launch.classes[0].prologue if step.kind == Kind.RUN)
    return step


@pytest.mark.parametrize(
    ("instruction", "padded"),
    [(None, 16 * 8 * 64), ("16x8x16", 16 * 8 * 64), ("64x64x16", 64 * 64 * 64)],  # None: mma
)
def test_a_product_takes_its_padded_size_at_the_share_of_the_rate(instruction, padded):
    args = (shape(16, 64), shape(64, 8), shape(16, 8, dtype="f32"))
    step = run_of(launch_of(product, args, implementation=Implementation(instruction=instruction)))
    matrix = GPU.pe.matrix
    share = Fraction(str(matrix.achievable)) * Fraction(str(matrix.instructions.get(instruction or "16x8x16", 1)))
    assert step.ps == math.ceil(2 * padded * 10**12 / (matrix.rates["bf16"] * share))
    assert step.engines == Engines.BOTH


def test_overlap_leaves_the_vector_engine_to_others():
    args = (shape(16, 64), shape(64, 8), shape(16, 8, dtype="f32"))
    assert run_of(launch_of(product, args, implementation=Implementation(overlap=True))).engines == Engines.MATRIX


def test_vector_work_between_two_waits_is_one_run_rounded_up_once():
    def work(x, y, *, tl):
        t = tl.load(x, shape=(100, 3))
        tl.store(y, tl.exp2(t * 2.0) + 1.0)

    step = run_of(launch_of(work, (shape(100, 3, dtype="f32"), shape(100, 3, dtype="f32"))))
    vector = GPU.pe.vector
    cost = {name: Fraction(str(vector.cost.get(name, vector.cost["default"]))) for name in ("multiply", "exp2", "add")}
    cycles = 300 * sum(cost.values())
    assert step.ps == math.ceil(cycles * 10**12 / (vector.lanes * GPU.pe.clock))


@pytest.mark.parametrize(
    ("axis", "chosen", "barriers"),
    [
        (-1, {"waves": 4}, 0),  # each wave has rows of its own
        (-1, {"waves": 4, "keys_across_waves": True}, 1),
        (-1, {"waves": 8, "keys_across_waves": True}, 2),
        (0, {"waves": 4}, 1),
        (0, {"waves": 1}, 0),
    ],
)
def test_a_maximum_across_waves_costs_barriers(axis, chosen, barriers):
    def maximum(x, y, *, tl):
        tl.store(y, tl.max(tl.load(x, shape=(32, 64)), axis=axis))

    args = (shape(32, 64, dtype="f32"), shape(*((32, 1) if axis else (1, 64)), dtype="f32"))
    launch = launch_of(maximum, args, implementation=Implementation(**chosen))
    pauses = sum(step.ps for step in launch.classes[0].prologue if step.kind == Kind.PAUSE)
    assert pauses == barriers * GPU.pe.workgroup.barrier + GPU.pe.workgroup.end


# ---------------------------------------------------------------- tiles that workgroups share
def test_rows_that_only_one_workgroup_reads_are_nobody_elses():
    launch = launch_of(walk, (shape(4, 3, 16, 16), shape(4, 16, 16, dtype="f32"), 3, 1), grid=4)
    assert launch.tiles == 0
    assert all(step.stream == -1 for step in launch.classes[0].prologue)


def shared_walk(x, y, *, tl):
    """Two neighbours read the same row of tiles."""
    acc = tl.zeros((16, 16))
    for i in range(3):
        acc = acc + tl.cast(tl.load(x.at(tl.program_id(0) // 2, i), shape=(16, 16)), "f32")
    tl.store(y.at(tl.program_id(0)), acc)


def test_tiles_that_workgroups_share_have_one_number():
    launch = launch_of(shared_walk, (shape(2, 3, 16, 16), shape(4, 16, 16, dtype="f32")), grid=4)
    loads = [step for step in launch.classes[0].prologue if step.kind == Kind.LOAD]
    names = np.stack([launch.base[:, step.stream] + step.offset for step in loads], axis=1)
    assert (names[0] == names[1]).all()
    assert (names[2] == names[3]).all()
    assert len(np.unique(names)) == launch.tiles == 6
    assert launch.base.shape == (4, 1)  # one stream serves all loads


def test_tiles_that_windows_share_have_one_number():
    def window(x, y, *, tl):
        first = tl.program_id(0)
        acc = tl.zeros((16,))
        for i in range(3):
            acc = acc + tl.load(x.at(first + i), shape=(16,))
        tl.store(y.at(first), acc)

    launch = launch_of(window, (shape(8, 16, dtype="f32"), shape(6, 16, dtype="f32")), grid=6)
    loads = [step for step in launch.classes[0].prologue if step.kind == Kind.LOAD]
    names = np.stack([launch.base[:, step.stream] + step.offset for step in loads], axis=1)
    assert launch.tiles == 8
    assert (names[1:, 0] == names[:-1, 1]).all()
    assert (names[1:, 1] == names[:-1, 2]).all()


def test_memory_moves_a_shared_tile_once():
    launch = launch_of(shared_walk, (shape(2, 3, 16, 16), shape(4, 16, 16, dtype="f32")), grid=4)
    moved = simulate_launch(launch).level_nbytes
    stored = 4 * 16 * 16 * 4
    assert moved[-1] - stored == 2 * 3 * 16 * 16 * 2
    assert moved[-2] == 2 * (moved[-1] - stored)


def test_what_the_launch_before_has_stored_is_in_the_cache_if_it_fits():
    args = (shape(4, 3, 16, 16), shape(4, 16, 16, dtype="f32"), 3, 1)
    assert launch_of(walk, args, grid=4, warm=True).first_level == 0
    small = GPU.with_overrides({"sip.cache.size": "4 KiB"})
    assert launch_of(walk, args, grid=4, warm=True, machine=small).first_level == -1


def test_tables_that_would_not_fit_into_memory_are_an_error(monkeypatch):
    monkeypatch.setattr(shared, "MOST_BYTES", 4 * 8 - 1)
    with pytest.raises(InputError, match=r"shared_walk on 4 workgroups: the table .* use a smaller grid"):
        launch_of(shared_walk, (shape(2, 3, 16, 16), shape(4, 16, 16, dtype="f32")), grid=4)


# ---------------------------------------------------------------- engines and faults
@pytest.mark.parametrize("grid", [1, 300])
def test_both_engines_give_the_same_picoseconds(grid):
    launch = launch_of(walk, (shape(grid, 4, 16, 16), shape(grid, 16, 16, dtype="f32"), 4, 2), grid=grid)
    compiled, simpy = (simulate_launch(launch, engine) for engine in ("compiled", "simpy"))
    assert (compiled.end_ps == simpy.end_ps).all()
    assert (compiled.spent_ps == simpy.spent_ps).all()


def test_a_workgroup_that_does_not_fit_is_an_error():
    with pytest.raises(InputError, match="does not fit into a PE of h200"):
        launch_of(walk, (shape(1, 1, 16, 16), shape(1, 16, 16, dtype="f32"), 1, 1),
                  implementation=Implementation(lds_bytes=1 << 20))  # fmt: skip


def test_a_composite_cannot_be_timed_in_a_workgroup():
    def fused(a, b, c, *, tl):
        tl.store(c, tl.composite(tl.load(a, shape=(16, 64)), tl.load(b, shape=(64, 8))))

    with pytest.raises(InputError, match="composite cannot be timed in a workgroup"):
        launch_of(fused, (shape(16, 64), shape(64, 8), shape(16, 8, dtype="f32")))


def test_a_trace_of_a_mesh_is_no_launch():
    mesh = kb.load_machine("pe1")
    trace = record(lambda x, *, tl: tl.load(x, shape=(4,)), mesh, (kb.shape_only((4,), "f32", mesh),))
    with pytest.raises(InputError, match="recorded for the PEs of pe1, not as a grid"):
        lower(trace, GPU, ONE)


def test_a_grid_is_not_timed_as_a_mesh():
    trace = record(shared_walk, GPU, (shape(2, 3, 16, 16), shape(4, 16, 16, dtype="f32")), grid=4)
    with pytest.raises(InputError, match=r"shared_walk was recorded as a grid of workgroups.*kernbench\.launch"):
        kb.simulate(trace)


def test_a_trace_can_be_timed_on_another_machine_that_holds_workgroups():
    trace = record(shared_walk, GPU, (shape(2, 3, 16, 16), shape(4, 16, 16, dtype="f32")), grid=4)
    slow = GPU.with_overrides({"sip.memory.latency": "5 us"})
    assert simulate_launch(lower(trace, slow, ONE)).makespan_ps > simulate_launch(lower(trace, GPU, ONE)).makespan_ps
