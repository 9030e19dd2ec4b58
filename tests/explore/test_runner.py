"""Running sweeps: every point as `kernbench run` times it, once, whatever was there before."""

import json
import sys
import tracemalloc
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import kernbench as kb
from kernbench.bench import apply_settings, find_bench
from kernbench.errors import InputError
from kernbench.explore import results_frame
from kernbench.explore.evaluate import Context, Evaluator, Job
from kernbench.explore.frame import varied
from kernbench.explore.screen import sorted_frame
from kernbench.explore.search import _shuffled
from kernbench.explore.store import Store
from kernbench.explore.why import best_rows, run_point
from kernbench.run import run_bench
from tests.explore.helpers import SMALL, read_sweep, rows_of, run_here

ROOT = Path(__file__).parents[2]


def test_every_point_is_timed_as_a_run_of_its_own_is(tmp_path):
    tally, timed = run_here(SMALL, tmp_path / "s.sqlite")
    assert (tally.seen, tally.timed, timed, tally.failed) == (12, 12, 12, 0)
    bench = find_bench("gqa_decode_long")
    for row in rows_of(tmp_path / "s.sqlite"):
        machine = kb.load_machine(row["topology"], json.loads(row["overrides"]))
        spec, _ = apply_settings(bench, json.loads(row["settings"]))
        alone = run_bench(bench, machine, spec, mode="time")
        for name in ("makespan_ps", "hbm_bytes", "link_bytes", "flops", "scratch_peak_bytes", "pes", "commands"):
            assert row[name] == getattr(alone, name), name


def test_grid_benches_are_swept_too(tmp_path):
    text = "bench: decode_splitkv\ntopology: [h200, mi300x]\nspec: {S_kv: 1024, splits: [1, 4]}"
    run_here(text, tmp_path / "s.sqlite", "grid")
    for row in rows_of(tmp_path / "s.sqlite", "grid"):
        machine = kb.load_machine(row["topology"])
        spec, implementation = apply_settings(find_bench("decode_splitkv"), json.loads(row["settings"]))
        alone = run_bench(find_bench("decode_splitkv"), machine, spec, implementation=implementation, mode="time")
        assert row["makespan_ps"] == alone.makespan_ps


def test_a_winner_of_workgroups_has_its_bounds_too(tmp_path):
    text = "bench: decode_splitkv\ntopology: [h200, mi300x]\nspec: {S_kv: [1024, 65536], batch: 16, splits: 8}"
    run_here(text, tmp_path / "s.sqlite", "grid")
    for row in rows_of(tmp_path / "s.sqlite", "grid"):
        why, machine = run_point(row), kb.load_machine(row["topology"])
        bounds = {bound.name: bound.ps for bound in why.bounds}
        assert {"matrix", "vector", "memory", "starting launches"} <= set(bounds)
        assert all(0 < ps <= row["makespan_ps"] for ps in bounds.values())
        assert list(bounds.values()) == sorted(bounds.values(), reverse=True)
        # at the rates of the machine's file nothing can be quicker than these
        peak = machine.memory.bandwidth * machine.n_sips
        assert row["hbm_bytes"] * 10**12 / peak <= bounds["memory"] + 1
        assert bounds["starting launches"] == 2 * machine.spec.launch.graph


def test_what_is_in_the_store_is_not_timed_again(tmp_path):
    run_here(SMALL, tmp_path / "s.sqlite")
    before = rows_of(tmp_path / "s.sqlite")
    tally, timed = run_here(SMALL, tmp_path / "s.sqlite")
    assert (tally.seen, tally.timed, timed) == (12, 0, 0)
    assert rows_of(tmp_path / "s.sqlite") == before
    tally, timed = run_here(SMALL.replace("[1, 2]", "[1, 2, 3]"), tmp_path / "s.sqlite")
    assert (tally.seen, timed) == (18, 6)


def test_equal_machines_written_in_other_units_are_one_result(tmp_path):
    run_here(SMALL, tmp_path / "s.sqlite")
    same = SMALL.replace("0.4 TB/s, 0.8 TB/s, 1.2 TB/s", "400 GB/s, 800 GB/s, 1200 GB/s")
    assert run_here(same, tmp_path / "s.sqlite")[1] == 0


def test_rows_of_a_sweep_say_what_it_says_though_another_timed_them_first(tmp_path):
    path = tmp_path / "s.sqlite"
    run_here("bench: gqa_decode_long\ntopology: cube1_pe8\nspec: {S_kv: 64, TILE_S_KV: 16}", path, "plain")
    own = "bench: gqa_decode_long\ntopology: cube1_pe8\nspec: {S_kv: 64, TILE_S_KV: 16}\n"
    own += "machine: {cube.memory.bandwidth: [800 GB/s, 1.2 TB/s]}"  # the last is what the file says
    assert run_here(own, path, "own")[1] == 1
    frame = results_frame(path, "own")
    assert list(frame["cube.memory.bandwidth"]) == ["800 GB/s", "1.2 TB/s"]
    assert len(results_frame(path, "own", 'cube.memory.bandwidth > "1 TB/s"')) == 1
    assert len(results_frame(path, "own", 'cube.memory.bandwidth == "0.8 TB/s"')) == 1
    by_bandwidth = sorted_frame(frame.iloc[::-1], "cube.memory.bandwidth")
    assert list(by_bandwidth["cube.memory.bandwidth"]) == ["800 GB/s", "1.2 TB/s"]


def test_points_that_come_to_the_same_are_timed_once_and_both_stored(tmp_path):
    text = "bench: gqa_decode_long\ntopology: cube1_pe8\nspec: {S_kv: 64}\nmachine: {pe.clock: [1 GHz, 1000 MHz]}"
    tally, timed = run_here(text, tmp_path / "s.sqlite")
    assert (tally.seen, timed) == (2, 1)
    rows = rows_of(tmp_path / "s.sqlite")
    assert [row["position"] for row in rows] == [0, 1]
    assert rows[0]["key"] == rows[1]["key"]


def test_impossible_points_are_kept_with_their_reason(tmp_path):
    text = (
        "bench: gqa_decode_long\ntopology: cube1_pe8\nspec: {S_kv: 64, h_q: [4, 5], h_kv: 2}\n"
        "machine: {pe.scratch: [256 B, 4 MiB], pe.load.queues: [1, 2]}"
    )
    tally, _ = run_here(text, tmp_path / "s.sqlite")
    rows = rows_of(tmp_path / "s.sqlite")
    assert (tally.seen, tally.failed) == (8, 6)
    assert {row["error"].splitlines()[0] for row in rows if row["error"] and "h_q=5" in row["error"]}
    assert sum("scratch" in (row["error"] or "") for row in rows) == 2
    frame = results_frame(tmp_path / "s.sqlite", "small")
    assert frame["makespan_ps"].isna().sum() == 6
    assert frame["feasible"].sum() == 2


def test_a_trace_recorded_for_one_machine_is_no_passport_for_smaller_ones(tmp_path):
    """Scratch, memory and channels are limits of recording: each point has those of its own machine."""
    bench, machine = find_bench("gqa_decode_long"), kb.load_machine("cube1_pe8")
    evaluator = Evaluator(Context.of(bench, [machine]))
    changes = [{}, {"pe.scratch": "512 B"}, {}, {"cube.memory.capacity": "4 KiB"}, {"pe.scratch": "512 B"}, {}]
    jobs = [Job(str(i), 0, '{"S_kv": 256}', json.dumps(change)) for i, change in enumerate(changes)]
    found = [evaluator.evaluate(job) for job in jobs]
    assert [outcome.status for outcome in found] == ["done", "failed", "done", "failed", "failed", "done"]
    assert found[1].error == found[4].error
    assert "scratch" in found[1].error
    assert "is too small" in found[3].error
    assert found[0].makespan_ps == found[2].makespan_ps == found[5].makespan_ps


def test_one_trace_serves_all_machines_of_a_shape(monkeypatch):
    from kernbench.explore import evaluate

    recorded = []
    real = evaluate.record
    monkeypatch.setattr(evaluate, "record", lambda *a, **k: recorded.append(1) or real(*a, **k))
    sweep = read_sweep(SMALL)
    evaluator = Evaluator(Context.of(sweep.bench, sweep.machines))
    for i, point in enumerate(sweep.points()):
        evaluator.evaluate(Job(str(i), 0, json.dumps(point.settings), json.dumps(point.overrides)))
    assert len(recorded) == 4  # specs, not points


def test_a_trace_is_not_shared_where_the_bench_makes_other_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benches").mkdir()
    chosen = "spec = spec.model_copy(update={'TILE_S_KV': 16 if machine.memory.bandwidth < 10**12 else 32})"
    by_figure = OWN.replace("60 // (spec.TILE_S_KV - 32)", chosen)
    (tmp_path / "benches" / "own_decode.py").write_text(by_figure)
    monkeypatch.delitem(sys.modules, "kernbench_bench_own_decode", raising=False)
    text = (
        SMALL.replace("gqa_decode_long", "own_long")
        .replace("[16, 32]", "8")
        .replace("[1, 2]", "1")
        .replace("64", "512")
    )
    run_here(text, tmp_path / "s.sqlite")
    slow, _, fast = (row["commands"] for row in rows_of(tmp_path / "s.sqlite"))
    assert slow > fast  # twice as many tiles


def test_a_worker_with_other_code_refuses_to_time():
    sweep = read_sweep(SMALL)
    context = Context.of(sweep.bench, sweep.machines)
    with pytest.raises(InputError, match="a worker has another version of kernbench"):
        Evaluator(Context(context.bench, "0" * 64, context.code_sha256, context.machines))


def test_costs_and_constraints_on_results(tmp_path):
    run_here(SMALL, tmp_path / "s.sqlite")
    times = sorted(row["makespan_ps"] for row in rows_of(tmp_path / "s.sqlite"))
    limit = times[6]
    text = SMALL + (
        "cost: makespan_ps * buffers + cube.memory.bandwidth / 1e12\nobjectives: [cost]\n"
        f"constraints: [makespan_ps < {limit}]\n"
    )
    tally, timed = run_here(text, tmp_path / "s.sqlite")
    assert timed == 0  # the same results, judged anew
    rows = rows_of(tmp_path / "s.sqlite")
    for row in rows:
        settings, changes = json.loads(row["settings"]), json.loads(row["overrides"])
        bandwidth = float(changes["cube.memory.bandwidth"].split()[0])
        assert row["cost"] == pytest.approx(row["makespan_ps"] * settings["buffers"] + bandwidth)
        assert bool(row["feasible"]) == (row["makespan_ps"] < limit)
    assert tally.infeasible == sum(time >= limit for time in times) > 0
    best = best_rows(rows, ("cost",))[0]
    assert best["cost"] == min(row["cost"] for row in rows if row["feasible"])
    assert tally.best.point.position == best["position"]


def test_constraints_that_leave_no_point_are_an_error_that_says_which(tmp_path):
    text = SMALL + "constraints: [buffers > 1, TILE_S_KV * buffers < 20]"
    with pytest.raises(InputError, match="the constraints leave no point: of the 12,") as error:
        run_here(text, tmp_path / "s.sqlite")
    assert "constraints[0]: 'buffers > 1' excludes 6" in str(error.value)
    assert "constraints[1]: 'TILE_S_KV * buffers < 20' excludes 9" in str(error.value)


def test_a_random_search_tries_so_many_allowed_points_and_the_same_again(tmp_path):
    text = SMALL + "search: {random: 3, seed: 4}\nconstraints: [buffers == 1]"
    run_here(text, tmp_path / "a.sqlite")
    run_here(text, tmp_path / "b.sqlite", slots=5)
    a, b = rows_of(tmp_path / "a.sqlite"), rows_of(tmp_path / "b.sqlite")
    assert a == b
    assert len({row["position"] for row in a}) == 3
    assert all(json.loads(row["settings"])["buffers"] == 1 for row in a)
    run_here(text.replace("seed: 4", "seed: 5"), tmp_path / "c.sqlite")
    assert {r["position"] for r in rows_of(tmp_path / "c.sqlite")} != {r["position"] for r in a}


def test_a_search_of_a_vast_space_takes_little_memory(tmp_path):
    vast = "bench: gqa_decode_long\ntopology: cube1_pe8\nspec: {S_kv: 64, TILE_S_KV: 16}\nmachine:\n"
    for key in ("pe.matrix.startup", "pe.vector.startup", "pe.issue", "cube.memory.latency", "cube.pes.link.latency"):
        vast += f"  {key}: {{from: 1 ns, to: 300 ns, step: 1 ns}}\n"
    sweep = read_sweep(vast + "search: {random: 2000000}")
    tracemalloc.start()
    drawn = list(islice(_shuffled(sweep.size, 0), 1000))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert len(set(drawn)) == 1000
    assert sorted(_shuffled(50, 3)) == list(range(50))
    vaster = vast + "  pe.load.queues: {from: 1, to: 16}\n  pe.channel.receive: {from: 1 ns, to: 300 ns, step: 1 ns}"
    with pytest.raises(InputError, match="has more than 1,000,000,000,000,000 combinations"):
        read_sweep(vaster)


def test_a_random_search_of_more_points_than_there_are_tries_all(tmp_path):
    tally, _ = run_here(SMALL + "search: {random: 500}", tmp_path / "s.sqlite")
    assert tally.seen == tally.total == 12


GUIDED = """
bench: gqa_decode_long
topology: cube1_pe8
spec: {S_kv: 512, TILE_S_KV: [8, 16, 32, 64], buffers: [1, 2]}
machine:
  cube.memory.bandwidth: {from: 0.1 TB/s, to: 1.6 TB/s, step: 0.1 TB/s}
  pe.matrix.startup: {from: 8 ns, to: 64 ns, step: 8 ns}
search: {guided: 60, seed: 1}
"""


def test_a_guided_search_finds_a_good_point_with_few_tries(tmp_path):
    tally, timed = run_here(GUIDED, tmp_path / "s.sqlite", "guided")
    assert timed == tally.seen == 60
    run_here(GUIDED.replace("{guided: 60, seed: 1}", "exhaustive"), tmp_path / "all.sqlite", "guided")
    every = sorted(row["makespan_ps"] for row in rows_of(tmp_path / "all.sqlite", "guided"))
    assert len(every) == 1024
    best = tally.best.outcome.makespan_ps
    assert np.searchsorted(every, best) < 10  # of 1,024: chance alone finds one this good with 60 tries in 45 %


def test_a_guided_search_goes_on_where_it_was_stopped_and_depends_on_no_worker_count(tmp_path):
    run_here(GUIDED, tmp_path / "a.sqlite", "guided")
    a = rows_of(tmp_path / "a.sqlite", "guided")

    class Stop(Exception):
        pass

    def stop(tally):
        if tally.seen == 25:
            raise Stop

    with pytest.raises(Stop):
        run_here(GUIDED, tmp_path / "b.sqlite", "guided", slots=3, progress=stop)
    kept = len(rows_of(tmp_path / "b.sqlite", "guided"))
    assert 25 <= kept < 60
    _, timed = run_here(GUIDED, tmp_path / "b.sqlite", "guided", slots=1)
    assert timed == 60 - kept
    assert rows_of(tmp_path / "b.sqlite", "guided") == a


def test_the_winner_says_why_its_bounds_are_below_what_it_took(tmp_path):
    run_here(SMALL, tmp_path / "s.sqlite")
    row = best_rows(rows_of(tmp_path / "s.sqlite"), ("makespan_ps",))[0]
    why = run_point(row)
    assert why.result.makespan_ps == row["makespan_ps"]
    assert {"matrix", "vector", "memory", "links between PEs"} <= {bound.name for bound in why.bounds}
    assert all(0 < bound.ps <= row["makespan_ps"] for bound in why.bounds)
    assert shown_again(why.result.command, row)


def test_points_of_less_work_are_no_better_choice(tmp_path):
    tally, _ = run_here(SMALL.replace("S_kv: 64", "S_kv: [64, 256, 128]"), tmp_path / "s.sqlite")
    rows = rows_of(tmp_path / "s.sqlite")
    best = best_rows(rows, ("makespan_ps",))
    assert [json.loads(row["settings"])["S_kv"] for row in best] == [256, 128, 64]
    for row in best:
        same = [r for r in rows if json.loads(r["settings"])["S_kv"] == json.loads(row["settings"])["S_kv"]]
        assert row["makespan_ps"] == min(r["makespan_ps"] for r in same)
    assert tally.best.point.position == best[0]["position"]


def shown_again(command, row):
    return all(f"{name}={value}" in command for name, value in json.loads(row["settings"]).items())


def test_a_winner_that_takes_another_time_now_is_not_explained(tmp_path):
    run_here(SMALL, tmp_path / "s.sqlite")
    row = rows_of(tmp_path / "s.sqlite")[0]
    with pytest.raises(InputError, match="has changed since the sweep was run"):
        run_point(row | {"makespan_ps": 1})
    with pytest.raises(InputError, match="cube1_pe8 has changed since"):
        run_point(row | {"machine_sha256": "0"})


def test_the_frame_has_one_row_a_point_and_knows_what_was_varied(tmp_path):
    run_here(SMALL, tmp_path / "s.sqlite")
    with Store(tmp_path / "s.sqlite") as store:
        frame = results_frame(store, "small")
    assert len(frame) == 12
    assert varied(frame) == ["TILE_S_KV", "buffers", "cube.memory.bandwidth"]
    assert list(frame["position"]) == list(range(12))
    assert set(frame["sharding"]) == {"S_kv=pe"}
    few = results_frame(tmp_path / "s.sqlite", "small", where="TILE_S_KV == 16 and makespan_ps > 0 and buffers < 2")
    assert len(few) == 3
    with pytest.raises(InputError, match=r"--where: .*: no column 'TILE' \(did you mean 'TILE_S_KV'"):
        results_frame(tmp_path / "s.sqlite", "small", where="TILE == 16")


def test_results_come_as_they_are_found(tmp_path):
    seen = []
    run_here(SMALL, tmp_path / "s.sqlite", progress=lambda tally: seen.append((tally.seen, tally.best is not None)))
    assert [n for n, _ in seen] == list(range(13))  # 0: how many there are is known from the start
    assert all(best for _, best in islice(seen, 2, None))


@pytest.mark.parametrize("change", ["machine", "kernel"])
def test_a_guided_search_on_a_changed_machine_or_kernel_leaves_no_old_points_among_the_new(
    tmp_path, monkeypatch, change
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benches").mkdir()
    kernel = (ROOT / "benches" / "gqa_decode_long.py").read_text().replace('"gqa_decode_long"', '"mine"')
    machine = (ROOT / "topologies" / "cube1_pe8.yaml").read_text()
    sweep = GUIDED.replace("guided: 60", "guided: 24").replace("gqa_decode_long", "mine")
    sweep = sweep.replace("cube1_pe8", "./mine.yaml")
    (tmp_path / "benches" / "mine.py").write_text(kernel)
    (tmp_path / "mine.yaml").write_text(machine)
    run_here(sweep, tmp_path / "s.sqlite", "guided")
    if change == "machine":
        assert "clock: 1 GHz" in machine
        (tmp_path / "mine.yaml").write_text(machine.replace("clock: 1 GHz", "clock: 0.25 GHz"))
    else:
        (tmp_path / "benches" / "mine.py").write_text(kernel + "\n# changed\n")
    tally, timed = run_here(sweep, tmp_path / "s.sqlite", "guided")
    assert timed == 24
    rows = rows_of(tmp_path / "s.sqlite", "guided")
    assert len(rows) == 24
    best = best_rows(rows, ("makespan_ps",))[0]
    assert best["makespan_ps"] == tally.best.outcome.makespan_ps
    assert run_point(best).result.makespan_ps == best["makespan_ps"]


OWN = """
import dataclasses
import kernbench.bench

file = next(p for p in kernbench.bench.bench_files() if p.name == "gqa_decode_long.py")
long = kernbench.bench.load_benches(file)[0]


def arguments(spec, machine, arrays):
    60 // (spec.TILE_S_KV - 32)
    return long.arguments(spec, machine, arrays)


BENCHES = [dataclasses.replace(long, name="own_long", arguments=arguments)]
"""


def test_a_point_whose_bench_fails_is_kept_with_the_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benches").mkdir()
    (tmp_path / "benches" / "own_decode.py").write_text(OWN)
    tally, _ = run_here(SMALL.replace("gqa_decode_long", "own_long"), tmp_path / "s.sqlite")
    assert (tally.seen, tally.failed) == (12, 6)
    failed = next(row["error"] for row in rows_of(tmp_path / "s.sqlite") if row["status"] == "failed")
    assert failed.startswith("bench own_long failed: ZeroDivisionError: ")
    assert "own_decode.py:10" in failed


def test_a_bench_whose_arguments_have_changed_is_timed_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benches").mkdir()
    for text, timed in ((OWN, 12), (OWN, 0), (OWN + "# other\n", 12)):
        (tmp_path / "benches" / "own_decode.py").write_text(text)
        monkeypatch.delitem(sys.modules, "kernbench_bench_own_decode", raising=False)
        assert run_here(SMALL.replace("gqa_decode_long", "own_long"), tmp_path / "s.sqlite")[1] == timed
