"""The ways in which partial results of a split KV cache come together: values, messages and bytes."""

import itertools

import numpy as np
import pytest

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.collectives import butterfly_messages, tree_messages
from kernbench.run import run_bench
from kernbench.specs.attention import DecodeSpec

REDUCTIONS = ["chain", "tree", "butterfly", "ring_all_reduce", "none"]
SHAPES = {
    # columns and rows of PEs and of CUBEs, and SIPs in a ring
    "1": ((1, 1), (1, 1), 1),
    "2": ((2, 1), (1, 1), 1),
    "12": ((2, 2), (3, 1), 1),
    "15": ((3, 1), (5, 1), 1),
    "24": ((2, 1), (2, 2), 3),
    "32": ((4, 2), (4, 1), 1),
}


@pytest.fixture(scope="module")
def bench():
    return find_bench("gqa_decode_long")


def machine_of(shape, depth=1):
    (pe_columns, pe_rows), (columns, rows), sips = SHAPES[shape]
    return kb.load_machine(
        "sip4_grid4x4_pe8",
        {
            "cube.pes.columns": pe_columns,
            "cube.pes.rows": pe_rows,
            "sip.cubes.columns": columns,
            "sip.cubes.rows": rows,
            "system.sips.columns": sips,
            "pe.channel.depth": depth,
        },
    )


def sends(bench, machine, spec):
    """Sorted (bytes, messages of that size) over all PEs."""
    args, _ = bench.arguments(spec, machine, None)
    trace = kb.record(bench.kernel, machine, args=args)
    found = {}
    for cls in trace.classes:
        for command in cls.commands:
            if command.op == "send":
                found[command.nbytes] = found.get(command.nbytes, 0) + len(cls.pes)
    return found


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_reduction_is_right_on_every_machine(bench, shape, reduction):
    machine = machine_of(shape)
    for S_kv in (1, 61):
        result = run_bench(bench, machine, DecodeSpec(S_kv=S_kv, reduction=reduction), inputs="captured")
        assert result.correctness.passed, result.correctness


ASSIGNMENTS = list(itertools.product(("batch", "heads", "S_kv", None), repeat=3))


@pytest.mark.parametrize("reduction", REDUCTIONS[1:])
def test_every_reduction_is_right_for_any_assignment_of_levels(bench, reduction):
    machine = machine_of("24")
    for i, roles in enumerate(ASSIGNMENTS):
        if "S_kv" not in roles and i % 9:
            continue  # nothing to reduce
        splits = {
            f"split_{role}": tuple(level for level, r in zip(("pe", "sip", "cube"), roles, strict=True) if r == role)
            for role in ("batch", "heads", "S_kv")
        }
        sizes = {"batch": 2, "T_q": 2, "S_kv": 13, "h_q": 6, "h_kv": 2, "d_head": 8, "TILE_S_KV": 5}
        result = run_bench(bench, machine, DecodeSpec(reduction=reduction, **splits, **sizes), mode="values")
        assert result.correctness.passed, (splits, result.correctness)


def test_reductions_agree_and_chunks_of_any_size_do(bench):
    machine = machine_of("15")
    spec = DecodeSpec(S_kv=200, h_q=1, h_kv=1, d_head=5, dtype="f32")  # 5 elements in chunks for 3 and for 5 PEs
    errors = [run_bench(bench, machine, spec.replace(reduction=r), mode="values").correctness for r in REDUCTIONS]
    assert all(error.passed for error in errors)
    assert max(error.rel_l2 for error in errors) < 1e-6


def test_partials_are_merged_on_the_host_in_float64(bench):
    machine, spec = machine_of("12"), DecodeSpec(S_kv=5, h_q=4, h_kv=2, d_head=8, reduction="none")
    rng = np.random.default_rng(3)
    shapes = {"q": (1, 1, 4, 8), "k": (1, 5, 2, 8), "v": (1, 5, 2, 8)}
    arrays = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    args, o = bench.arguments(spec, machine, arrays)
    kb.execute(kb.record(bench.kernel, machine, args=args))
    assert o.shape == (12, 1, 2, 2, 10)
    assert o.dtype.name == "f32"
    parts = o.numpy()
    np.testing.assert_array_equal(parts[5:, ..., 9], 0)  # the l of PEs without keys
    assert (parts[:5, ..., 9] > 0).all()
    assert bench.output(spec, o).dtype == np.float64


# ---------------------------------------------------------------- messages and bytes
ROWS, D = 4, 16
SPEC = DecodeSpec(S_kv=100, h_q=4, h_kv=1, d_head=D)
ML, ACC = ROWS * 4, ROWS * D * 4
"""Bytes of m and of l, and of the weighted values."""


def expected(machine, reduction):
    """Messages of m, of l and of acc each: per CUBE, then between the first PEs of each SIP, then of all SIPs."""
    one = {
        "chain": lambda g: g.count - 1,
        "tree": lambda g: g.rows * tree_messages(g.columns) + tree_messages(g.rows),
        "butterfly": lambda g: g.rows * butterfly_messages(g.columns) + g.columns * butterfly_messages(g.rows),
    }[reduction]
    sips, cubes, pes = machine.grids
    return machine.n_cubes * one(pes) + machine.n_sips * one(cubes) + one(sips)


@pytest.mark.parametrize("reduction", ["chain", "tree", "butterfly"])
@pytest.mark.parametrize("shape", SHAPES)
def test_messages_of_whole_partial_results(bench, shape, reduction):
    machine = machine_of(shape)
    n = expected(machine, reduction)
    assert sends(bench, machine, SPEC.replace(reduction=reduction)) == ({ML: 2 * n, ACC: n} if n else {})
    if reduction == "chain":
        assert n == machine.n_pes - 1


def test_messages_on_32_pes_by_hand(bench):
    """4 CUBEs in a row, of 2 rows of 4 PEs."""
    by_hand = {
        "chain": 31,
        "tree": 4 * (2 * (1 + 1 + 2) + 1) + (1 + 1 + 2),
        "butterfly": 4 * (2 * (4 + 4) + 4 * 2) + (4 + 4),
    }
    for reduction, n in by_hand.items():
        assert expected(machine_of("32"), reduction) == n
    assert sends(bench, machine_of("32"), SPEC.replace(reduction="none")) == {}


def test_messages_of_the_ring(bench):
    """m and l: a tree in each CUBE, a butterfly between them, a broadcast. Then two rounds in chunks at each level."""
    machine = machine_of("32")
    ml = 4 * (2 * (1 + 1 + 2) + 1) + (4 + 4) + 4 * 7
    chunk_of_8, chunk_of_4 = ROWS * D // 8 * 4, ROWS * D // 4 * 4
    inside = 4 * 2 * 7 * 8  # CUBEs x (scatter, gather) x steps x PEs: a closed ring
    between = 2 * 3 * 2 * 3  # the row of CUBEs is folded: 2 (4 - 1) messages a step
    assert sends(bench, machine, SPEC.replace(reduction="ring_all_reduce")) == {
        ML: 2 * ml,
        chunk_of_8: inside,
        chunk_of_4: between,
    }


def test_groups_reduce_apart(bench):
    """Heads over CUBEs, keys over PEs: a reduction in each CUBE and nothing between them."""
    machine = machine_of("32")
    spec = SPEC.replace(h_q=16, h_kv=4, split_heads="cube", split_S_kv="pe")
    for reduction, n in (("chain", 7), ("tree", 2 * 4 + 1), ("butterfly", 2 * 8 + 4 * 2)):
        assert sends(bench, machine, spec.replace(reduction=reduction)) == {ML: 4 * 2 * n, ACC: 4 * n}


def test_bytes_to_memory_of_each(bench):
    machine = machine_of("32")
    loads = 2 * 100 * D * 2 + 32 * ROWS * D * 2  # the cache once, the queries on each PE
    output, part = ROWS * D * 2, ROWS * (D + 2) * 4
    stage = 32 * 2 * ACC + 4 * 2 * ACC  # stored and loaded again by all, then by the first PE of each CUBE
    moved = {"chain": output, "tree": output, "none": 32 * part, "ring_all_reduce": stage + output}
    for reduction, stored in moved.items():
        result = run_bench(bench, machine, SPEC.replace(reduction=reduction), mode="time")
        assert result.hbm_bytes == loads + stored, reduction


# ---------------------------------------------------------------- time
def test_both_engines_agree(bench):
    for reduction in REDUCTIONS[1:]:
        spec = SPEC.replace(reduction=reduction)
        engines = ("compiled", "simpy")
        compiled, simpy = (run_bench(bench, machine_of("12"), spec, mode="time", engine=e) for e in engines)
        assert compiled.makespan_ps == simpy.makespan_ps


def test_fewer_combinations_in_turn_are_faster_between_many_cubes(bench):
    machine = kb.load_machine("grid8x8_pe8")
    spans = {
        reduction: run_bench(bench, machine, SPEC.replace(S_kv=512, reduction=reduction), mode="time").makespan_ps
        for reduction in ("chain", "tree", "none")
    }
    assert spans["none"] < spans["tree"] < 0.9 * spans["chain"]
