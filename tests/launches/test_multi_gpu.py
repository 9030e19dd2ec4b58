"""Decode over several GPUs: right values at any size on any of them, and a time that is the sum of its steps."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import kernbench as kb
from kernbench.bench import apply_settings, find_bench
from kernbench.cli import app
from kernbench.errors import InputError, SpecError
from kernbench.run import run_bench
from kernbench.simulate.launch.collective import collective_time

BENCH = find_bench("decode_multi_gpu")
MACHINES = {name: kb.load_machine(name) for name in ("h200", "h200x2", "mi300x8")}
ROW3 = kb.load_machine("h200x2", {"system.sips.columns": 3})
SMALL = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ran(machine, mode="time", seed=0, engine="compiled", **chosen):
    spec, implementation = apply_settings(BENCH, chosen)
    machine = MACHINES.get(machine, machine)
    return run_bench(BENCH, machine, spec, implementation=implementation, mode=mode, seed=seed, engine=engine)


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("number", range(len(BENCH.cases)))
def test_its_cases_are_right(number):
    case = BENCH.cases[number]
    spec, chosen = apply_settings(BENCH, case.settings)
    machine = kb.load_machine(case.topology)
    assert run_bench(BENCH, machine, spec, implementation=chosen, mode="values", inputs=case.inputs).passed


@SMALL
@given(
    n=st.integers(1, 6), S_kv=st.integers(6, 300), splits=st.integers(1, 9), BLOCK_N=st.sampled_from([16, 32]),
    group=st.integers(1, 5), h_kv=st.integers(1, 2), batch=st.integers(1, 2), seed=st.integers(0, 2**32 - 1),
    reduction=st.sampled_from(["gather", "reduce_to_root"]), kv_dtype=st.sampled_from(["bf16", "f16"]),
)  # fmt: skip
def test_it_is_right_on_any_number_of_gpus(n, group, h_kv, seed, **chosen):
    machine = kb.load_machine("h200x2", {"system.sips.columns": n})
    assert ran(machine, "values", seed, h_q=group * h_kv, h_kv=h_kv, d_head=16, **chosen).passed


def test_a_collective_that_loses_a_gpu_is_caught(monkeypatch):
    """Without the last move the gathered tensor keeps a NaN, with a stale one the output is off."""
    import kernbench.run_grid as run_grid

    honest = run_grid.move

    def lossy(step):
        honest(
            type(step)(**(vars(step) | {"moves": tuple((s, t, 0) if i == 1 else (s, t, i) for s, t, i in step.moves)}))
        )

    monkeypatch.setattr(run_grid, "move", lossy)
    assert not ran("h200x2", "values").passed


# ---------------------------------------------------------------- time
@pytest.mark.parametrize("reduction", ["gather", "reduce_to_root"])
@pytest.mark.parametrize("machine", ["h200", "h200x2", "mi300x8", ROW3])
def test_the_makespan_is_the_sum_of_its_steps(machine, reduction):
    result = ran(machine, S_kv=4096, reduction=reduction)
    launched = sum(part.makespan_ps + part.overhead_ps for part in result.launches)
    sent = sum(part.makespan_ps for part in result.collectives or ())
    assert result.makespan_ps == launched + sent
    assert sum(result.time_by_cause.values()) == 1.0
    assert result.time_by_cause.get("collective", 0) == pytest.approx(sent / result.makespan_ps)


def test_gather_on_two():
    result = ran("h200x2", S_kv=1000, h_q=8, h_kv=2, d_head=64)
    nbytes = 8 * (64 + 2) * 4
    (gather,) = result.collectives
    assert (gather.operation, gather.after, gather.senders, gather.nbytes) == ("all_gather", 2, 2, nbytes)
    assert gather.makespan_ps == collective_time(MACHINES["h200x2"], "all_gather", nbytes).ps
    assert [(part.kernel, part.sips) for part in result.launches] == [
        ("decode_share", 2), ("merge_partials", 2), ("merge_partials", 2),
    ]  # fmt: skip
    assert result.link_bytes == 2 * nbytes
    cache = 2 * 1000 * 2 * 64 * 2
    assert result.hbm_bytes > cache
    assert result.engines["link"] > 0


def test_a_tree_takes_three_rounds_on_eight():
    result = ran("mi300x8", S_kv=1000, h_q=8, h_kv=2, d_head=64, reduction="reduce_to_root")
    assert [(part.operation, part.senders) for part in result.collectives] == [
        ("send_recv", 4), ("send_recv", 2), ("send_recv", 1),
    ]  # fmt: skip
    assert [part.sips for part in result.launches] == [8, 8, 4, 2, 1]
    assert result.link_bytes == 7 * 8 * 66 * 4


def test_a_send_along_a_row_crosses_each_link():
    result = ran(ROW3, S_kv=1000, h_q=8, h_kv=2, d_head=64, reduction="reduce_to_root")
    near, far = result.collectives
    assert far.makespan_ps - near.makespan_ps == ROW3.spec.system.sips.link.latency
    assert result.link_bytes == 3 * near.nbytes


def test_one_gpu_sends_nothing():
    result = ran("h200")
    assert result.collectives is None
    assert result.link_bytes == 0
    assert [part.sips for part in result.launches] == [1, 1]
    assert "link" not in result.engines


def test_work_is_that_of_one_gpu_spread_out():
    sizes = {"S_kv": 65536, "h_q": 64, "h_kv": 8, "d_head": 128, "splits": 16}
    one, two = ran("h200", **sizes), ran("h200x2", **sizes)
    assert one.flops == two.flops
    first, half = one.launches[0].makespan_ps, two.launches[0].makespan_ps
    assert 0.45 * first < half < 0.62 * first


def test_its_gather_takes_what_was_measured():
    """h200x2_runs.jsonl, sp-decode ... s65536-x16: 10.7 us for 33,280 bytes of each GPU."""
    (gather,) = ran("h200x2", S_kv=65536, h_q=64, h_kv=8, d_head=128, splits=16).collectives
    assert gather.nbytes == 33_280
    assert gather.makespan_ps / 1e6 == pytest.approx(10.7, rel=0.1)


def test_both_engines_agree():
    compiled, simpy = (ran("h200x2", engine=engine, S_kv=300) for engine in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps


# ---------------------------------------------------------------- what is said
def test_unvalidated_machines_say_so():
    assert any("mi300x8 are not validated" in line for line in ran("mi300x8").warnings)
    assert not ran("h200x2").warnings
    assert not ran("mi300x8", "values").warnings


def test_errors():
    with pytest.raises(SpecError, match="S_kv=3 must be at least 8: each GPU of mi300x8 needs a key"):
        ran("mi300x8", S_kv=3)
    with pytest.raises(SpecError, match="kv_dtype"):
        ran("h200x2", kv_dtype="i8")
    with pytest.raises(InputError, match="mi250x says nothing of collectives"):
        ran(kb.load_machine("mi250x"))
    assert ran(kb.load_machine("mi250x"), "values").passed  # values need no figures


def test_the_command_line_writes_json(tmp_path):
    file = tmp_path / "result.json"
    words = ["run", "decode_multi_gpu", "--topology", "h200x2", "--json", str(file)]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "PASS" in shown.output
    found = json.loads(file.read_text())
    assert found["collectives"][0]["protocol"] == "low-latency"
    assert found["makespan_ps"] > found["collectives"][0]["makespan_ps"]
