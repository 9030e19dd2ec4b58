"""The values of ``gqa_decode_long`` against the float64 reference: any machine, any split, any format."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.errors import KernbenchError
from kernbench.run import run_bench
from kernbench.specs.attention import DecodeSpec
from kernbench.specs.correctness import compare
from kernbench.specs.inputs import make_inputs

SOURCE = Path(__file__).parent.parent / "benches" / "gqa_decode_long.py"
CUBES_AND_PES = {1: (1, 1, 1), 2: (2, 1, 1), 8: (1, 4, 2), 12: (3, 2, 2), 32: (4, 4, 2), 64: (8, 4, 2)}
"""Ranks → (CUBEs in a row, columns and rows of PEs in a CUBE)."""


@pytest.fixture(scope="module")
def bench():
    return find_bench("gqa_decode_long")


def row_machine(ranks):
    cubes, columns, rows = CUBES_AND_PES[ranks]
    return kb.load_machine("row4_pe8", {"sip.cubes.columns": cubes, "cube.pes.columns": columns, "cube.pes.rows": rows})


def assert_right(bench, machine, spec, inputs="random", seed=0):
    result = run_bench(bench, machine, spec, mode="values", inputs=inputs, seed=seed)
    assert result.correctness.passed, result.correctness
    return result


# ---------------------------------------------------------------- sizes of machines and of caches
@pytest.mark.parametrize("S_kv", [1, 7, 1000, 1025])
@pytest.mark.parametrize("ranks", CUBES_AND_PES)
def test_the_chain_is_right_on_any_number_of_ranks(bench, ranks, S_kv):
    result = assert_right(bench, row_machine(ranks), DecodeSpec(S_kv=S_kv, h_q=8, h_kv=2), seed=ranks + S_kv)
    assert result.pes == ranks


@pytest.mark.parametrize("S_kv", [1, 7, 1000])
@pytest.mark.parametrize("ranks", CUBES_AND_PES)
def test_captured_inputs_are_right_on_any_number_of_ranks(bench, ranks, S_kv):
    assert_right(bench, row_machine(ranks), DecodeSpec(S_kv=S_kv), inputs="captured")


@pytest.mark.parametrize("tile", [1, 7, 64, 1000, 4096])
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_tiles_of_any_size_and_any_number_of_buffers_give_the_same(bench, tile, buffers):
    assert_right(bench, row_machine(2), DecodeSpec(S_kv=250, TILE_S_KV=tile, buffers=buffers), inputs="captured")


# ---------------------------------------------------------------- what is split over what
ASSIGNMENTS = [
    dict(zip(("sip", "cube", "pe"), roles, strict=True))
    for roles in itertools.product(("batch", "heads", "S_kv", None), repeat=3)
]


def spec_of(assignment, **sizes):
    splits = {
        f"split_{role}": tuple(level for level, r in assignment.items() if r == role)
        for role in ("batch", "heads", "S_kv")
    }
    return DecodeSpec(**splits, **sizes)


@pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda a: "-".join(str(role) for role in a.values()))
def test_each_of_batch_heads_and_keys_may_go_to_any_level(bench, assignment):
    machine = kb.load_machine("sip4_grid4x4_pe8", {"sip.cubes.columns": 2, "sip.cubes.rows": 3})
    assert_right(bench, machine, spec_of(assignment, batch=2, T_q=2, S_kv=61, h_q=6, h_kv=3, d_head=16))


def test_the_order_of_levels_is_free(bench):
    machine = row_machine(12)
    for levels in (("cube", "pe"), ("pe", "cube"), ("pe", "sip", "cube")):
        assert_right(bench, machine, DecodeSpec(S_kv=100, split_S_kv=levels), inputs="captured")


def test_512_pes_on_four_sips(bench):
    result = assert_right(bench, kb.load_machine("sip4_grid4x4_pe8"), DecodeSpec(S_kv=1000), inputs="captured")
    assert result.pes == 512


# ---------------------------------------------------------------- what is asked for
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("T_q", [2, 5, 40])
def test_several_queries_see_what_they_may(bench, T_q, causal):
    for tile in (4, 1024):
        spec = DecodeSpec(T_q=T_q, S_kv=45, causal=causal, TILE_S_KV=tile)
        assert_right(bench, row_machine(2), spec, inputs="captured")
        assert_right(bench, row_machine(32), spec)


def test_every_token_may_be_a_query(bench):
    for machine in (row_machine(1), row_machine(12)):
        assert_right(bench, machine, DecodeSpec(T_q=50, S_kv=50, TILE_S_KV=8), inputs="captured")


@pytest.mark.parametrize(("h_q", "h_kv"), [(1, 1), (4, 4), (3, 1), (10, 2), (15, 5)])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_groups_and_formats(bench, h_q, h_kv, dtype):
    assert_right(bench, row_machine(8), DecodeSpec(h_q=h_q, h_kv=h_kv, d_head=32, S_kv=777, dtype=dtype))


def test_the_scale_is_used(bench):
    assert_right(bench, row_machine(8), DecodeSpec(softmax_scale=0.7), inputs="captured")


def test_each_sequence_of_a_batch_is_its_own(bench):
    assert_right(bench, row_machine(8), DecodeSpec(batch=3, S_kv=30, h_q=4, h_kv=2, T_q=2))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_specs_are_right(bench, data):
    draw = data.draw
    T_q = draw(st.integers(1, 4), "T_q")
    h_kv = draw(st.integers(1, 3), "h_kv")
    spec = spec_of(
        draw(st.sampled_from(ASSIGNMENTS), "assignment"),
        batch=draw(st.integers(1, 3), "batch"),
        T_q=T_q,
        S_kv=draw(st.integers(T_q, 300), "S_kv"),
        h_q=h_kv * draw(st.integers(1, 5), "group"),
        h_kv=h_kv,
        d_head=draw(st.sampled_from([8, 24, 64]), "d_head"),
        dtype=draw(st.sampled_from(["f16", "f32"]), "dtype"),
        causal=draw(st.booleans(), "causal"),
        TILE_S_KV=draw(st.integers(1, 80), "tile"),
        buffers=draw(st.integers(1, 3), "buffers"),
    )
    assert_right(bench, row_machine(12), spec, seed=draw(st.integers(0, 99), "seed"))


# ---------------------------------------------------------------- the tolerance
@pytest.fixture(scope="module")
def dropping(tmp_path_factory):
    """Return the kernel with one tile left out: the one that starts at a given key."""
    loop = "        n = min(spec.TILE_S_KV, keys - start)\n"
    source = SOURCE.read_text()
    assert source.count(loop) == 1
    path = tmp_path_factory.mktemp("mutant") / "mutant.py"
    path.write_text(source.replace(loop, f"        if k.origin[2] + start == DROPPED:\n            continue\n{loop}"))
    namespace = {"__name__": "mutant"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)

    def kernel_without(key):
        namespace["DROPPED"] = key
        return namespace["gqa_decode"]

    return kernel_without


def error_without_tile(bench, kernel, machine, spec, inputs, seed=0):
    made = make_inputs(spec, inputs, seed)
    args, out = bench.arguments(spec, machine, made.arrays)
    kb.execute(kb.record(kernel, machine, args=args))
    return compare(bench.output(spec, out), bench.reference(spec, made.arrays), bench.tolerance(spec))


@pytest.mark.parametrize(("dtype", "step"), [("bf16", 32), ("f16", 256), ("f32", 256)])
@pytest.mark.parametrize("inputs", ["captured", "random"])
def test_one_dropped_tile_fails_wherever_it_is(bench, dropping, inputs, dtype, step):
    """Every tile of bf16, whose tolerance is the loosest; what it notices the others notice all the more."""
    machine, spec = row_machine(32), DecodeSpec(dtype=dtype)
    assert bench.tolerance(spec) <= bench.tolerance(DecodeSpec(dtype="bf16"))
    assert error_without_tile(bench, dropping(-1), machine, spec, inputs).passed
    for key in range(0, 1024, step):
        found = error_without_tile(bench, dropping(key), machine, spec, inputs)
        assert not found.passed, f"the tile at key {key} is not missed: {found}"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_one_dropped_tile_of_a_long_cache_fails(bench, dropping, dtype):
    machine, spec = row_machine(8), DecodeSpec(S_kv=32768, h_q=2, h_kv=1, d_head=32, TILE_S_KV=256, dtype=dtype)
    assert error_without_tile(bench, dropping(-1), machine, spec, "random").passed
    for key in (0, 256 * 77, 32768 - 256):
        assert not error_without_tile(bench, dropping(key), machine, spec, "random").passed


# ---------------------------------------------------------------- time
def test_two_buffers_are_faster_than_one(bench):
    machine = kb.load_machine("pe1", {"pe.queue_depth": 16})  # so that the next tile's loads are issued early enough
    spec = DecodeSpec(S_kv=65536, h_q=8, h_kv=1, d_head=128)
    one, two = (run_bench(bench, machine, spec.replace(buffers=n), mode="time").makespan_ps for n in (1, 2))
    assert two < 0.95 * one


def test_a_cache_of_any_size_is_timed_without_being_held(bench):
    spec = DecodeSpec(S_kv=1 << 25, h_q=8, h_kv=1, d_head=128, buffers=2)  # 17 GB
    result = run_bench(bench, kb.load_machine("grid8x8_pe8"), spec, mode="time")
    assert result.hbm_bytes >= 2 * (1 << 25) * 128 * 2
    assert result.correctness is None
    assert result.inputs is None


def test_bytes_from_memory_are_those_of_the_tensors(bench):
    spec = DecodeSpec(S_kv=1000, h_q=8, h_kv=2, d_head=64)
    result = run_bench(bench, kb.load_machine("row4_pe8"), spec, mode="time")
    cache, rows = 2 * 1000 * 2 * 64 * 2, 8 * 64 * 2
    assert result.hbm_bytes == cache + 32 * rows + rows  # each PE reads the queries, the root writes the output


def test_both_engines_agree(bench):
    machine, spec = row_machine(12), DecodeSpec(S_kv=100, TILE_S_KV=4, buffers=2)
    compiled, simpy = (run_bench(bench, machine, spec, mode="time", engine=e) for e in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps
    assert compiled.engines == simpy.engines


def test_nan_inputs_are_reported_and_do_not_pass(bench, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(n, 2, 16)).astype(np.float16) for name, n in (("q", 1), ("k", 40), ("v", 40))}
    arrays["k"][11, 1, 0] = np.nan
    np.savez(tmp_path / "qkv.npz", **arrays)
    result = run_bench(bench, row_machine(8), inputs=str(tmp_path / "qkv.npz"), mode="values")
    assert not result.correctness.passed
    assert result.correctness.nan_count == 16
    assert "k as float16 holds 1 NaN" in result.warnings[0]


def test_a_cache_that_no_memory_holds_is_an_error(bench):
    spec = DecodeSpec(S_kv=1 << 32, split_S_kv="none")
    with pytest.raises(KernbenchError, match="too small"):
        run_bench(bench, kb.load_machine("pe1"), spec, mode="time")
