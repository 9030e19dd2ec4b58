"""Benches that launch grids: right values at any size, a result like any other, and errors that help."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import kernbench as kb
from kernbench.bench import GridBench, all_benches, apply_settings, find_bench
from kernbench.cli import app
from kernbench.errors import InputError, SpecError
from kernbench.execute import execute
from kernbench.on_grid import form_for
from kernbench.record import record
from kernbench.run import RunResult, run_bench
from kernbench.specs.correctness import compare
from kernbench.specs.inputs import make_inputs

GPU = kb.load_machine("h200")
NAMES = ("decode_splitkv", "fa2_prefill", "mla_decode_grid", "paged_decode")
SMALL = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ran(name, mode="both", machine=GPU, seed=0, inputs=None, **chosen):
    bench = find_bench(name)
    spec, implementation = apply_settings(bench, chosen)
    return run_bench(bench, machine, spec, implementation=implementation, mode=mode, seed=seed, inputs=inputs)


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("name", NAMES)
def test_its_cases_are_right(name):
    bench = find_bench(name)
    for case in bench.cases:
        result = ran(name, "values", inputs=case.inputs, **case.settings)
        assert case.topology == "h200"
        assert result.passed, (case, result.correctness)


@SMALL
@given(
    S_kv=st.integers(1, 300), splits=st.integers(1, 20), BLOCK_N=st.sampled_from([16, 32, 64]),
    group=st.integers(1, 20), h_kv=st.integers(1, 3), batch=st.integers(1, 2), stages=st.integers(1, 3),
    kv_dtype=st.sampled_from(["bf16", "f16", "fp8e4m3", "i8"]), dtype=st.sampled_from(["bf16", "f16"]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_decode_is_right_at_any_size(group, h_kv, seed, **chosen):
    assert ran("decode_splitkv", "values", seed=seed, h_q=group * h_kv, h_kv=h_kv, d_head=16, **chosen).passed


@SMALL
@given(
    S_kv=st.integers(1, 300), splits=st.integers(1, 9), PAGE=st.sampled_from([16, 32, 128]), batch=st.integers(1, 3),
    BLOCK_N=st.sampled_from([16, 64]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_paged_decode_is_right_at_any_size(seed, **chosen):
    assert ran("paged_decode", "values", seed=seed, d_head=16, **chosen).passed


@SMALL
@given(
    T_q=st.integers(1, 150), before=st.integers(0, 100), BLOCK_M=st.sampled_from([16, 32, 64]), causal=st.booleans(),
    BLOCK_N=st.sampled_from([16, 32]), diagonal_only=st.booleans(), batch=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_prefill_is_right_at_any_size(T_q, before, seed, **chosen):
    assert ran("fa2_prefill", "values", seed=seed, T_q=T_q, S_kv=T_q + before, d_head=16, **chosen).passed


@SMALL
@given(S_kv=st.integers(1, 200), splits=st.integers(1, 9), h_q=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_mla_decode_is_right_at_any_size(seed, **chosen):
    assert ran("mla_decode_grid", "values", seed=seed, d_head=40, d_rope=8, **chosen).passed


@pytest.mark.parametrize("kv_dtype", ["bf16", "f16", "fp8e4m3", "i8"])
def test_the_tolerance_catches_a_dropped_tile(kv_dtype):
    """The last tile of 16: without its keys the result is held to be wrong."""
    bench = find_bench("decode_splitkv")
    spec, chosen = apply_settings(bench, {"kv_dtype": kv_dtype, "S_kv": 1024, "splits": 4})
    arrays = make_inputs(spec, "random").arrays
    short, _ = apply_settings(bench, {"kv_dtype": kv_dtype, "S_kv": 1024 - 64, "splits": 4})
    cut = {name: array[:, : short.S_kv] if name in "kv" else array for name, array in arrays.items()}
    launches, out = bench.launches(short, chosen, GPU, cut)
    for launch in launches:
        execute(record(launch.kernel, GPU, launch.args, grid=launch.grid))
    reference = bench.reference(spec, arrays)
    assert not compare(bench.output(short, out), reference, bench.tolerance(spec)).passed


# ---------------------------------------------------------------- the result
@pytest.mark.parametrize("name", NAMES)
def test_a_run_gives_values_and_time(name):
    result = ran(name)
    assert result.passed
    assert result.makespan_ps == sum(part.makespan_ps + part.overhead_ps for part in result.launches)
    assert all(part.overhead_ps == GPU.spec.launch.graph for part in result.launches)
    assert sum(result.time_by_cause.values()) == 1.0
    assert all(sum(part.time_by_cause.values()) == 1.0 for part in result.launches)
    assert all(0 <= share <= 1 for share in result.engines.values())
    assert result.critical_path is None
    assert result.engine_time is None
    again = RunResult.model_validate_json(result.model_dump_json())
    assert again.implementation == result.implementation


@pytest.mark.parametrize("name", NAMES)
def test_time_needs_no_values_and_is_the_same_with_them(name):
    timed, both = ran(name, "time"), ran(name)
    assert timed.makespan_ps == both.makespan_ps
    assert timed.hbm_bytes == both.hbm_bytes
    assert timed.inputs is None


@pytest.mark.parametrize("name", NAMES)
def test_the_definition_gives_the_same_picoseconds(name):
    bench = find_bench(name)
    compiled, simpy = (run_bench(bench, GPU, mode="time", engine=engine) for engine in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps
    assert compiled.time_by_cause == simpy.time_by_cause


def test_decode_reads_its_cache_once_and_stores_partials_and_result():
    result = ran("decode_splitkv", "time", S_kv=1000, splits=4, h_q=8, h_kv=2, d_head=64)
    cache, q, o = 2 * 1000 * 2 * 64 * 2, 4 * 8 * 64 * 2, 8 * 64 * 2  # each split reads the queries; the cache has them
    parts = 4 * 8 * (64 + 2) * 4
    assert result.hbm_bytes == cache + q // 4 + parts + o
    assert result.flops == 2 * 2 * 16 * 64 * 1024 * 2  # padded tiles, two heads


def test_time_is_no_less_than_the_memory_needs():
    result = ran("decode_splitkv", "time", S_kv=65536, h_q=64, h_kv=8, d_head=128, splits=32)
    assert result.makespan_ps > result.hbm_bytes * 10**12 / GPU.memory.bandwidth


def test_a_longer_cache_takes_longer():
    spans = [ran("decode_splitkv", "time", S_kv=n, h_q=64, h_kv=8, d_head=128).makespan_ps for n in (1024, 8192, 65536)]
    assert spans == sorted(spans)


# ---------------------------------------------------------------- settings and errors
def test_settings_go_where_they_belong():
    spec, implementation = apply_settings(find_bench("decode_splitkv"), {"S_kv": "77", "BLOCK_N": "32"})
    assert (spec.S_kv, implementation.BLOCK_N, implementation.waves) == (77, 32, 4)


@pytest.mark.parametrize(("name", "near"), [("S_kw", "S_kv"), ("BLOK_N", "BLOCK_N"), ("register", "registers")])
def test_an_unknown_setting_gives_the_nearest_of_both(name, near):
    with pytest.raises(SpecError, match=rf"unknown field '{name}' .*did you mean '{near}'"):
        apply_settings(find_bench("decode_splitkv"), {name: "1"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"BLOCK_N": 8}, "BLOCK_N"), ({"instruction": "big"}, "MxNxK"), ({"T_q": 2}, "T_q"), ({"waves": 0}, "waves")],
)
def test_values_out_of_range_are_named(wrong, message):
    with pytest.raises(SpecError, match=message):
        apply_settings(find_bench("decode_splitkv"), wrong)


@pytest.mark.parametrize("name", NAMES)
def test_a_grid_bench_on_a_mesh_says_where_it_runs(name):
    with pytest.raises(InputError, match=rf"bench {name} launches grids .* row4_pe8 is a mesh.*--topology h200"):
        run_bench(find_bench(name), kb.load_machine("row4_pe8"))


def test_a_bench_for_meshes_alone_on_a_gpu_says_where_it_runs():
    meshes = [bench for bench in all_benches().values() if not isinstance(form_for(bench, GPU)[0], GridBench)]
    assert {"gqa_decode_long", "gqa_prefill"} <= {bench.name for bench in meshes}
    for bench in meshes:
        with pytest.raises(InputError, match=rf"bench {bench.name} is written for a mesh .* h200 .*decode_splitkv"):
            run_bench(bench, GPU, mode="time")


def command(*words):
    return CliRunner().invoke(app, list(words))


def test_the_command_line_runs_it_and_writes_json(tmp_path):
    file = tmp_path / "result.json"
    shown = command("run", "decode_splitkv", "--topology", "h200", "--set", "S_kv=200", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "PASS" in shown.output
    assert "decode_partial" in shown.output
    found = json.loads(file.read_text())
    assert [part["kernel"] for part in found["launches"]] == ["decode_partial", "reduce_splits"]
    assert found["implementation"]["BLOCK_N"] == 64


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "decode_splitkv", "--topology", "h200"),
        ("run", "decode_splitkv", "--topology", "h200", "--trace", "x.pftrace"),
        ("explain", "gqa_decode_long", "--topology", "h200"),
        ("run", "gqa_decode_long", "--topology", "h200"),
        ("run", "decode_splitkv"),
    ],
)
def test_what_is_for_meshes_only_is_one_clear_error(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = command(*words)
    assert shown.exit_code == 2
    assert "mesh" in shown.output
    assert "Traceback" not in shown.output
    assert not list(Path(tmp_path).iterdir())


def test_check_runs_the_cases_of_a_grid_bench():
    shown = command("check", "mla_decode_grid")
    assert shown.exit_code == 0
    assert "6 of 6 cases passed" in shown.output


def test_random_inputs_differ_by_seed():
    one, other = (ran("decode_splitkv", "values", seed=seed).correctness.max_abs for seed in (1, 2))
    assert one != other
    assert np.isfinite(one)


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_table_that_is_read_before_the_loop(engine):
    """Three pages and three stages: every entry of the block table is asked for before the first tile is used."""
    bench = find_bench("paged_decode")
    spec = bench.spec(S_kv=96, PAGE=32, h_q=4, h_kv=1, dtype="f16", kv_dtype="f16")
    chosen = bench.implementation(splits=1, BLOCK_N=32, stages=3, lds_bytes=16384)
    ran = run_bench(bench, kb.load_machine("mi300x"), spec, implementation=chosen, mode="time", engine=engine)
    assert ran.makespan_ps > 0
