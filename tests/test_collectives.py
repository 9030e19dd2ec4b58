"""Collectives: the right values for every program, the promised messages, and no deadlock with channels of depth 1."""

import itertools

import numpy as np
import pytest

import kernbench as kb
from kernbench.collectives import (
    LEVELS,
    Ring,
    all_gather,
    all_reduce,
    all_reduce_chunks,
    broadcast,
    butterfly_messages,
    chunk_numbers,
    reduce_scatter,
    reduce_to_root,
    route_of,
    tree_messages,
)
from kernbench.errors import KernelError
from kernbench.record.record import record_members

ALL = ("sip", "cube", "pe")
SHAPES = {
    # columns and rows of PEs, of CUBEs and of SIPs; how CUBEs and SIPs are joined
    "one": ((1, 1), (1, 1, "row"), (1, 1, "row")),
    "two": ((2, 1), (1, 1, "row"), (1, 1, "row")),
    "grid of PEs": ((4, 2), (1, 1, "row"), (1, 1, "row")),
    "column of PEs": ((1, 5), (1, 1, "row"), (1, 1, "row")),
    "odd grid of PEs": ((3, 3), (1, 1, "row"), (1, 1, "row")),
    "row of CUBEs": ((1, 1), (7, 1, "row"), (1, 1, "row")),
    "ring of CUBEs": ((2, 1), (5, 1, "ring"), (1, 1, "row")),
    "mesh of CUBEs": ((1, 2), (2, 3, "mesh"), (1, 1, "row")),
    "torus of CUBEs": ((1, 1), (3, 3, "torus"), (1, 1, "row")),
    "SIPs": ((2, 1), (1, 2, "mesh"), (3, 1, "ring")),
    "all levels": ((2, 2), (3, 1, "row"), (2, 1, "row")),
}
FOLDED = {
    "column of PEs": "pe",
    "odd grid of PEs": "pe",
    "row of CUBEs": "cube",
    "torus of CUBEs": "cube",
    "all levels": "cube",
}
"""The level of which no closed walk visits all programs."""


def machine_of(shape, depth=1):
    (pe_columns, pe_rows), (columns, rows, arrangement), (sip_columns, sip_rows, sip_arrangement) = SHAPES[shape]
    return kb.load_machine(
        "sip4_grid4x4_pe8",
        {
            "cube.pes.columns": pe_columns,
            "cube.pes.rows": pe_rows,
            "sip.cubes.columns": columns,
            "sip.cubes.rows": rows,
            "sip.cubes.arrangement": arrangement,
            "system.sips.columns": sip_columns,
            "system.sips.rows": sip_rows,
            "system.sips.arrangement": sip_arrangement,
            "pe.channel.depth": depth,
        },
    )


def sizes_of(machine):
    """(SIPs, CUBEs in a SIP, PEs in a CUBE)."""
    return machine.n_sips, machine.cubes_per_sip, machine.pes_per_cube


def subsets(machine):
    """Choices of levels; those with one program change nothing, and are added once."""
    real = [level for level, n in zip(ALL, sizes_of(machine), strict=True) if n > 1]
    return [levels for n in range(1, len(real) + 1) for levels in itertools.combinations(real, n)] + [ALL]


def run(machine, kernel, x, width, *settings):
    """Launch ``kernel(x, out, *settings)``, each PE with its row of x and its row of out; both engines must end."""
    rows = kb.split(0, over=ALL)
    out = kb.empty((machine.n_pes, width), "f32", machine, rows)
    args = (kb.tensor(x.reshape(machine.n_pes, -1), machine, rows), out, *settings)
    result = kb.launch(kernel, machine, args=args)
    return out.numpy().reshape(*sizes_of(machine), width), result.trace


def messages(trace):
    return sum(len(cls.pes) for cls in trace.classes for command in cls.commands if command.op == "send")


def sent_bytes(trace):
    sends = ((len(cls.pes), command) for cls in trace.classes for command in cls.commands if command.op == "send")
    return sum(pes * command.nbytes for pes, command in sends)


def numbers(machine, width):
    """Whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(7).integers(-999, 999, (*sizes_of(machine), width)).astype(np.float32)


def over(x, levels):
    """Sum over the axes of the levels, and repeat the sum along them."""
    axes = tuple(ALL.index(level) for level in levels)
    return np.broadcast_to(x.sum(axis=axes, keepdims=True), x.shape)


def groups(machine, levels):
    """Number of groups of programs, one for each combination of indices at the other levels."""
    return machine.n_pes // members(machine, levels)


def members(machine, levels):
    return int(np.prod([n for n, level in zip(sizes_of(machine), ALL, strict=True) if level in levels]))


def add(a, b):
    return tuple(x + y for x, y in zip(a, b, strict=True))


# ---------------------------------------------------------------- kernels
def reduce_two_tiles(x, out, levels, form, *, tl):
    width = x.shape[1] // 2
    parts = (tl.load(x, shape=(1, width)), tl.load(x.at(0, width), shape=(1, width)))
    whole = reduce_to_root(parts, add, levels, form, tl=tl)
    if whole is not None:
        tl.store(out, whole[0])
        tl.store(out.at(0, width), whole[1])


def all_reduce_two_tiles(x, out, levels, *, tl):
    width = x.shape[1] // 2
    parts = (tl.load(x, shape=(1, width)), tl.load(x.at(0, width), shape=(1, width)))
    whole = all_reduce(parts, add, levels, tl=tl)
    tl.store(out, whole[0])
    tl.store(out.at(0, width), whole[1])


def broadcast_two_tiles(x, out, levels, *, tl):
    width = x.shape[1] // 2
    parts = (tl.load(x, shape=(1, width)), tl.load(x.at(0, width), shape=(1, width)))
    is_root = all(tl.program_id(LEVELS[level][0]) == 0 for level in levels)
    got = broadcast(parts if is_root else None, parts, levels, tl=tl)
    tl.store(out, got[0])
    tl.store(out.at(0, width), got[1])


def chunked(x, out, levels, form, step, *, tl):
    """Chunk k is row k of this PE's part; each chunk is a tuple of two tiles."""
    order = chunk_numbers(levels, form, tl=tl)
    width = x.shape[1] // len(order) // 2
    size = 2 * width * 4

    def load(number):
        return tuple(tl.load(x + number * size + half * width * 4, shape=(1, width)) for half in (0, 1))

    def store(at, chunk):
        for half in (0, 1):
            tl.store(out + at * size + half * width * 4, chunk[half])

    if step == "reduce_scatter":
        store(0, reduce_scatter([load(k) for k in order], add, levels, form, tl=tl))
    elif step == "all_gather":
        for number, chunk in zip(order, all_gather(load(0), levels, form, tl=tl), strict=True):
            store(number, chunk)
    else:
        whole = all_reduce_chunks([load(k) for k in order], add, levels, form, tl=tl)
        for number, chunk in zip(order, whole, strict=True):
            store(number, chunk)


# ---------------------------------------------------------------- one result
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["chain", "tree", "butterfly"])
def test_the_root_of_each_group_has_the_sum(shape, form):
    machine = machine_of(shape)
    x = numbers(machine, 4)
    for levels in subsets(machine):
        got, trace = run(machine, reduce_two_tiles, x, 4, levels, form)
        root = tuple(slice(0, 1) if level in levels else slice(None) for level in ALL)
        np.testing.assert_array_equal(got[root], over(x, levels)[root])
        assert messages(trace) == 2 * expected_reduce(machine, levels, form)
        assert sent_bytes(trace) == 4 * x.shape[-1] // 2 * messages(trace)


def expected_reduce(machine, levels, form):
    """Messages for each tile; groups at outer levels count once for each program that is not reduced over before."""
    total, going_on = 0, machine.n_pes
    for level in ("pe", "cube", "sip"):
        if level in levels:
            grid = machine.grids[ALL.index(level)]
            one = {
                "chain": grid.count - 1,
                "tree": grid.rows * tree_messages(grid.columns) + tree_messages(grid.rows),
                "butterfly": grid.rows * butterfly_messages(grid.columns)
                + grid.columns * butterfly_messages(grid.rows),
            }[form]
            total += going_on // grid.count * one
            going_on //= grid.count
    return total


def test_messages_on_a_line_by_hand():
    rounds = {1: [], 2: [1], 3: [1, 2], 4: [2, 2], 5: [2, 2, 4], 6: [3, 2, 4], 7: [3, 4, 4], 9: [4, 4, 4, 8]}
    assert {n: tree_messages(n) for n in rounds} == {n: sum(of) for n, of in rounds.items()}
    rounds = {1: [], 2: [2], 3: [2, 3], 4: [4, 4], 5: [4, 4, 5], 6: [6, 4, 6], 7: [6, 7, 7], 8: [8, 8, 8]}
    assert {n: butterfly_messages(n) for n in rounds} == {n: sum(of) for n, of in rounds.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_all_reduce_gives_everyone_the_sum(shape):
    machine = machine_of(shape)
    x = numbers(machine, 4)
    for levels in subsets(machine):
        got, trace = run(machine, all_reduce_two_tiles, x, 4, levels)
        np.testing.assert_array_equal(got, over(x, levels))
        real = [level for level in LEVELS if level in levels and members(machine, (level,)) > 1]
        *inner, outermost = real or ["pe"]
        firsts = machine.n_pes // members(machine, inner)
        grid = machine.grids[ALL.index(outermost)]
        one = grid.rows * butterfly_messages(grid.columns) + grid.columns * butterfly_messages(grid.rows)
        expected = expected_reduce(machine, inner, "tree") + firsts // grid.count * one + machine.n_pes - firsts
        assert messages(trace) == 2 * expected


@pytest.mark.parametrize("shape", SHAPES)
def test_broadcast_gives_everyone_the_tiles_of_the_first(shape):
    machine = machine_of(shape)
    x = numbers(machine, 4)
    for levels in subsets(machine):
        got, trace = run(machine, broadcast_two_tiles, x, 4, levels)
        root = tuple(slice(0, 1) if level in levels else slice(None) for level in ALL)
        np.testing.assert_array_equal(got, np.broadcast_to(x[root], x.shape))
        assert messages(trace) == 2 * (machine.n_pes - groups(machine, levels))


def test_butterfly_gives_everyone_the_same_bits():
    machine = machine_of("odd grid of PEs")
    x = np.random.default_rng(1).standard_normal((1, 1, 9, 4)).astype(np.float32)
    got, _ = run(machine, all_reduce_two_tiles, x, 4, ("pe",))
    assert len({row.tobytes() for row in got.reshape(9, 4)}) == 1


# ---------------------------------------------------------------- chunks
@pytest.mark.parametrize("form", ["ring", "line"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reduce_scatter_gives_each_its_own_sum(shape, form):
    machine = machine_of(shape)
    for levels in subsets(machine):
        n = members(machine, levels)
        x = numbers(machine, n * 4)
        got, trace = run(machine, chunked, x, 4, levels, form, "reduce_scatter")
        np.testing.assert_array_equal(got, own_part(over(x, levels), machine, levels))
        assert messages(trace) == 2 * expected_chunks(machine, levels, form, shape)
        assert sent_bytes(trace) == 2 * 4 * messages(trace)


@pytest.mark.parametrize("form", ["ring", "line"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_gather_gives_everyone_all_in_order(shape, form):
    machine = machine_of(shape)
    x = numbers(machine, 4)
    for levels in subsets(machine):
        got, trace = run(machine, chunked_gather, x, members(machine, levels) * 4, levels, form)
        np.testing.assert_array_equal(got, gathered(x, machine, levels))
        assert messages(trace) == 2 * expected_chunks(machine, levels, form, shape)


@pytest.mark.parametrize("form", ["ring", "line"])
@pytest.mark.parametrize("shape", ["one", "two", "odd grid of PEs", "ring of CUBEs", "mesh of CUBEs"])
def test_chunked_all_reduce_gives_everyone_everything(shape, form):
    machine = machine_of(shape)
    for levels in subsets(machine):
        x = numbers(machine, members(machine, levels) * 4)
        got, trace = run(machine, chunked, x, x.shape[-1], levels, form, "all_reduce")
        np.testing.assert_array_equal(got, over(x, levels))
        assert messages(trace) == 2 * 2 * expected_chunks(machine, levels, form, shape)


def chunked_gather(x, out, levels, form, *, tl):
    own = tuple(tl.load(x + half * 8, shape=(1, 2)) for half in (0, 1))
    order = chunk_numbers(levels, form, tl=tl)
    for number, chunk in zip(order, all_gather(own, levels, form, tl=tl), strict=True):
        for half in (0, 1):
            tl.store(out + number * 16 + half * 8, chunk[half])


def own_part(whole, machine, levels):
    """Chunk k of program k, programs being counted over the levels, outermost first."""
    index = np.zeros(sizes_of(machine), int)
    for axis, level in enumerate(ALL):
        if level in levels:
            shape = [1, 1, 1]
            shape[axis] = sizes_of(machine)[axis]
            index = index * shape[axis] + np.arange(shape[axis]).reshape(shape)
    chunks = whole.reshape(*sizes_of(machine), members(machine, levels), -1)
    return np.take_along_axis(chunks, index[..., None, None], axis=3)[..., 0, :]


def gathered(x, machine, levels):
    axes = [axis for axis, level in enumerate(ALL) if level in levels]
    kept = [axis for axis in range(3) if axis not in axes]
    moved = np.transpose(x, [*kept, *axes, 3])
    flat = moved.reshape(*(x.shape[a] for a in kept), *(1 for _ in axes), -1)
    back = np.argsort([*kept, *axes, 3])
    return np.broadcast_to(np.transpose(flat, back), (*sizes_of(machine), flat.shape[-1]))


def expected_chunks(machine, levels, form, shape):
    n = members(machine, levels)
    total, left = 0, n
    for level in ("pe", "cube", "sip"):
        if level not in levels:
            continue
        count = machine.grids[ALL.index(level)].count
        left //= count
        folded = form == "ring" and level == FOLDED.get(shape)
        per_step = 2 * (count - 1) if folded else count
        total += machine.n_pes // count * (count - 1) * left * per_step
    if form == "line" or shape not in FOLDED:
        assert total == groups(machine, levels) * n * (n - 1)
    return total


def test_rings_run_through_neighbours_and_visit_everyone():
    steps = {"N": (0, -1), "E": (1, 0), "S": (0, 1), "W": (-1, 0)}
    for columns, rows, wraps in itertools.product(range(1, 7), range(1, 7), itertools.product([False, True], repeat=2)):
        if columns * rows == 1:
            continue
        wraps = (wraps[0] and columns >= 3, wraps[1] and rows >= 3)
        route = route_of(columns, rows, wraps)
        assert sorted(route.order) == list(range(columns * rows))

        def move(position, direction, columns=columns, rows=rows, wraps=wraps):
            x, y = position % columns + steps[direction][0], position // columns + steps[direction][1]
            assert wraps[0] or 0 <= x < columns
            assert wraps[1] or 0 <= y < rows
            return y % rows * columns + x % columns

        forwards = 0
        for rank, position in enumerate(route.order):
            follower = route.order[(rank + 1) % len(route.order)]
            role, theirs = route.roles[route.role[position]], route.roles[route.role[follower]]
            reached, back = move(position, role.to), move(follower, theirs.source)
            if reached != follower:
                assert back == reached, "the two hops meet at the program that forwards"
                source, onward = route.roles[route.role[reached]].via
                assert move(reached, source) == position
                assert move(reached, onward) == follower
                forwards += 1
            else:
                assert back == position
        assert route.messages == len(route.order) + forwards
        n = columns * rows
        closed = any(wraps) if min(columns, rows) == 1 else n % 2 == 0
        assert forwards == (0 if closed or n == 2 else n - 2)


def test_a_ring_shifts_to_the_next_and_knows_who_that_is():
    def kernel(x, out, *, tl):
        ring = Ring("pe", tl)
        (theirs,) = ring.shift((tl.load(x, shape=(1, 1)),))
        tl.store(out, theirs)
        tl.store(out + 4, tl.full((1, 1), ring.ahead(-1)))
        tl.store(out + 8, tl.full((1, 1), ring.rank))

    for shape in ("grid of PEs", "odd grid of PEs", "column of PEs"):
        machine = machine_of(shape)
        x = np.arange(machine.n_pes, dtype=np.float32).reshape(1, 1, -1, 1)
        got, _ = run(machine, kernel, x, 3)
        sent, before, rank = got.reshape(-1, 3).T
        np.testing.assert_array_equal(sent, before)
        np.testing.assert_array_equal(rank[before.astype(int)], (rank - 1) % machine.n_pes)


# ---------------------------------------------------------------- classes
def behaviour(trace, pe):
    """What a PE does, line numbers apart."""
    return [command._replace(line=0) for command in trace.commands_of(pe)]


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        *((reduce_two_tiles, (ALL, form)) for form in ("chain", "tree", "butterfly")),
        (all_reduce_two_tiles, (ALL,)),
        (broadcast_two_tiles, (("sip", "pe"),)),
        *((chunked, (ALL, form, "all_reduce")) for form in ("ring", "line")),
    ],
)
def test_every_program_does_what_it_does_alone(kernel, settings):
    machine = machine_of("all levels")
    x, out = (kb.shape_only((24, 24 * 4), "f32", machine, kb.split(0, over=ALL)) for _ in "xo")
    args = (x, out, *settings)
    together = record_members(kernel, machine, args)
    for pe in (0, 1, 7, 13, 18, 23):
        alone = record_members(kernel, machine, args, members=[pe])
        assert behaviour(together, pe) == behaviour(alone, pe)


@pytest.fixture(scope="module")
def pes64():
    return kb.load_machine("row4_pe8", {"sip.cubes.columns": 8})


@pytest.mark.parametrize(("form", "most"), [("chain", 9), ("tree", 15), ("butterfly", 15)])
def test_reductions_on_64_pes_have_few_classes(pes64, form, most):
    _, trace = run(pes64, reduce_two_tiles, numbers(pes64, 4), 4, ALL, form)
    assert len(trace.classes) <= most


def test_rings_have_classes_by_direction_not_by_program():
    for cubes in (8, 16):
        one_pe = {"cube.pes.columns": 1, "cube.pes.rows": 1}
        machine = kb.load_machine("grid8x8_pe8", {"sip.cubes.columns": cubes, **one_pe})
        x = numbers(machine, machine.n_pes * 2)
        _, trace = run(machine, chunked, x, 2, ("cube",), "ring", "reduce_scatter")
        assert len(trace.classes) <= 10


# ---------------------------------------------------------------- time
def test_a_ring_of_chunks_beats_a_butterfly_for_large_values_and_loses_for_small_ones():
    ring = {"sip.cubes.arrangement": "ring", "sip.cubes.columns": 8, "cube.pes.columns": 1, "cube.pes.rows": 1}
    machine = kb.load_machine("row4_pe8", ring)
    spans = {}
    for width in (64, 131072):
        x = kb.shape_only((8, width), "f32", machine, kb.split(0, over=ALL))
        out = kb.shape_only((8, width), "f32", machine, kb.split(0, over=ALL))
        for kernel, settings in ((all_reduce_two_tiles, (("cube",),)), (chunked, (("cube",), "ring", "all_reduce"))):
            trace = kb.record(kernel, machine, args=(x, out, *settings))
            spans[width, kernel] = kb.simulate(trace).makespan_ps
    assert spans[64, all_reduce_two_tiles] < spans[64, chunked]
    assert spans[131072, chunked] < 0.8 * spans[131072, all_reduce_two_tiles]


def test_a_tree_beats_a_chain_where_combining_is_slow():
    machine = kb.load_machine("row4_pe8", {"sip.cubes.columns": 16, "pe.vector.startup": "200 ns"})
    x, out = (kb.shape_only((128, 64), "f32", machine, kb.split(0, over=ALL)) for _ in "xo")
    spans = {
        form: kb.simulate(kb.record(reduce_two_tiles, machine, args=(x, out, ("cube",), form))).makespan_ps
        for form in ("chain", "tree", "butterfly")
    }
    assert spans["tree"] < 0.5 * spans["chain"]
    assert spans["butterfly"] < 0.5 * spans["chain"]


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("kernel", "settings", "message"),
    [
        (reduce_two_tiles, (("cub",), "chain"), r"unknown level 'cub' \(did you mean 'cube'\?\)"),
        (reduce_two_tiles, (("cube",), "three"), r"unknown reduction 'three' \(did you mean 'tree'\?\)"),
        (chunked, (("pe",), "rings", "all_reduce"), r"unknown form 'rings' \(did you mean 'ring'\?\)"),
    ],
)
def test_unknown_names_give_the_nearest(kernel, settings, message):
    machine = machine_of("all levels")
    with pytest.raises(KernelError, match=message):
        run(machine, kernel, numbers(machine, 24), 24, *settings)


def test_a_wrong_number_of_chunks_is_named():
    def kernel(x, out, *, tl):
        tl.store(out, reduce_scatter([(tl.load(x, shape=(1, 1)),)] * 3, add, ("pe",), tl=tl)[0])

    with pytest.raises(KernelError, match="over 4 programs needs 4 chunks, not 3"):
        run(machine_of("all levels"), kernel, numbers(machine_of("all levels"), 1), 1)


def test_a_part_of_a_row_is_refused():
    machine = machine_of("grid of PEs")
    args = (kb.tensor(np.ones((8, 4), np.float32), machine, kb.split(0, over="pe")),) * 2
    with pytest.raises(KernelError, match="5 programs in rows of 4"):
        kb.record(reduce_two_tiles, machine, args=(*args, ("pe",), "chain"), grid=(5,))
