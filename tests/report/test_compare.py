"""`kernbench compare`: parts add up, lines are found again though they moved, and what cannot be compared is named."""

import json

import pytest
from typer.testing import CliRunner

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.cli import app
from kernbench.errors import InputError
from kernbench.report.compare import compare_runs, launch_times
from kernbench.report.shares import parts_of
from kernbench.run import exact_shares, run_bench
from kernbench.specs.attention import DecodeSpec


@pytest.fixture(scope="module")
def runs():
    """Runs by name."""
    bench, machine = find_bench("gqa_decode_long"), kb.load_machine("row4_pe8")
    slow = kb.load_machine("row4_pe8", {"cube.memory.bandwidth": "300 GB/s"})
    grid, gpu = find_bench("decode_splitkv"), kb.load_machine("h200")
    return {
        "a": run_bench(bench, machine, DecodeSpec(S_kv=200)),
        "longer": run_bench(bench, machine, DecodeSpec(S_kv=400, TILE_S_KV=16)),
        "slow": run_bench(bench, slow, DecodeSpec(S_kv=200), mode="time"),
        "values": run_bench(bench, machine, DecodeSpec(S_kv=200), mode="values"),
        "grid": run_bench(grid, gpu, mode="time"),
        "grid of 4": run_bench(grid, gpu, implementation=grid.implementation(splits=4), mode="time"),
    }


def moved(result, by, old="", new=""):
    """Return a result as if lines had been put in above the kernel, and one text of it changed."""

    def name(line):
        file, number, text = line.split(":", 2)
        return f"{file}:{int(number) + by}:{text.replace(old, new) if old else text}"

    path = result.critical_path
    lines = {name(line): share for line, share in path.time_by_line.items()}
    return result.model_copy(
        update={"critical_path": path.model_copy(update={"time_by_line": lines}), "kernel_sha256": "another"}
    )


# ---------------------------------------------------------------- shares as picoseconds
@pytest.mark.parametrize("parts", [{"a": 1}, {"a": 1, "b": 2, "c": 0}, {"a": 2_508_802, "b": 7, "c": 10**11 + 1}])
def test_shares_come_back_as_the_integers_that_they_were_made_of(parts):
    assert parts_of(exact_shares(parts), sum(parts.values())) == parts


def test_shares_of_anything_add_up_to_the_whole():
    assert sum(parts_of({"a": 1 / 3, "b": 1 / 3, "c": 1 - 2 / 3}, 10**15 + 1).values()) == 10**15 + 1


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(InputError, match=r"add up to 0\.5, not to 1"):
        parts_of({"a": 0.25, "b": 0.25}, 1000)


# ---------------------------------------------------------------- laws
@pytest.mark.parametrize(("a", "b"), [("a", "longer"), ("longer", "a"), ("a", "slow"), ("grid", "grid of 4")])
def test_the_differences_add_up_to_that_of_the_makespan(runs, a, b):
    found = compare_runs(runs[a], runs[b])
    whole = runs[b].makespan_ps - runs[a].makespan_ps
    assert found.makespan.difference_ps == whole != 0
    assert found.ratio == runs[b].makespan_ps / runs[a].makespan_ps
    for parts in (found.by_cause, found.by_line, found.by_launch):
        if parts is not None:
            assert sum(part.difference_ps for part in parts) == whole
            sizes = [abs(part.difference_ps) for part in parts]
            assert sizes == sorted(sizes, reverse=True)


def test_a_run_compared_with_itself_has_no_change(runs):
    found = compare_runs(runs["a"], runs["a"])
    assert found.makespan.difference_ps == 0
    assert not any(part.difference_ps for part in (*found.by_cause, *found.by_line))
    assert not found.differences
    assert not found.not_compared


def test_the_other_way_round_everything_changes_its_sign(runs):
    there, back = compare_runs(runs["a"], runs["longer"]), compare_runs(runs["longer"], runs["a"])
    assert {p.name: p.difference_ps for p in there.by_cause} == {p.name: -p.difference_ps for p in back.by_cause}


def test_launches_add_up_to_the_makespan(runs):
    times = launch_times(runs["grid"])
    assert len(times) == 2
    assert sum(times.values()) == runs["grid"].makespan_ps


# ---------------------------------------------------------------- source lines
def test_lines_that_moved_are_found_again(runs):
    found = compare_runs(runs["a"], moved(runs["a"], by=100))
    assert all(part.difference_ps == 0 and not part.only_in for part in found.by_line)
    assert len(found.by_line) == len(runs["a"].critical_path.time_by_line)


def test_a_line_that_was_rewritten_is_only_in_one_run(runs):
    found = compare_runs(runs["a"], moved(runs["a"], by=0, old="finish(partial", new="finish_well(partial"))
    gone, come = sorted((part for part in found.by_line if part.only_in), key=lambda part: part.only_in)
    assert (gone.only_in, come.only_in) == ("A", "B")
    assert "finish(partial" in gone.name
    assert "finish_well(partial" in come.name
    assert gone.difference_ps == -gone.a_ps == -come.b_ps == -come.difference_ps


def test_lines_with_the_same_text_are_told_apart_by_their_order(runs):
    def with_lines(lines, kernel):
        path = runs["a"].critical_path.model_copy(update={"time_by_line": lines})
        changes = {"critical_path": path, "kernel_sha256": kernel, "makespan_ps": 1000}
        return runs["a"].model_copy(update=changes)

    a = with_lines({"k.py:20: x = x + 1": 0.75, "k.py:3: x = x + 1": 0.25}, "one")
    b = with_lines({"k.py:9: x = x + 1": 0.25, "k.py:30: x = x + 1": 0.75}, "other")
    assert [part.difference_ps for part in compare_runs(a, b).by_line] == [0, 0]


# ---------------------------------------------------------------- what ran
def test_what_differs_in_what_ran_is_named_with_both_values(runs):
    found = compare_runs(runs["a"], runs["longer"]).differences
    assert {(d.where, d.name, d.a, d.b) for d in found} == {
        ("spec", "S_kv", 200, 400),
        ("spec", "TILE_S_KV", DecodeSpec(S_kv=200).TILE_S_KV, 16),
    }


def test_figures_of_the_machine_are_named_by_their_key(runs):
    (found,) = (d for d in compare_runs(runs["a"], runs["slow"]).differences if d.where == "machine")
    assert (found.name, found.b) == ("cube.memory.bandwidth", "300 GB/s")
    assert found.a != found.b


def test_the_implementation_of_a_grid_bench_is_compared(runs):
    found = compare_runs(runs["grid"], runs["grid of 4"]).differences
    assert [(d.where, d.name, d.b) for d in found] == [("implementation", "splits", 4)]


def test_what_cannot_be_compared_is_said_and_the_rest_is_compared(runs):
    found = compare_runs(runs["a"], runs["values"])
    assert found.makespan is found.by_cause is found.by_line is None
    assert found.correctness_a == found.correctness_b
    assert found.not_compared == ["time: run B has none (mode values)"]
    of_both = compare_runs(runs["a"], runs["grid"])
    assert of_both.by_line is of_both.by_launch is None
    assert sum(part.difference_ps for part in of_both.by_cause) == of_both.makespan.difference_ps
    assert any("run B launches grids" in reason for reason in of_both.not_compared)
    assert any("the benches differ" in reason for reason in of_both.not_compared)


# ---------------------------------------------------------------- the command
def kernbench(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def written(tmp_path, **results):
    paths = []
    for name, result in results.items():
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(result.model_dump_json())
    return paths


def test_the_command_prints_and_writes_the_comparison(runs, tmp_path):
    a, b = written(tmp_path, a=runs["a"], b=runs["longer"])
    done = kernbench("compare", a, b, "--json", tmp_path / "c.json")
    assert done.exit_code == 0, done.output
    for text in ("S_kv", "200", "400", "times as long", "time by cause", "critical path by source line", "values held"):
        assert text in done.stdout
    assert json.loads((tmp_path / "c.json").read_text()) == json.loads(
        compare_runs(runs["a"], runs["longer"]).model_dump_json()
    )


def test_the_command_says_what_stands_behind_each_time(runs, tmp_path):
    done = kernbench("compare", *written(tmp_path, a=runs["a"], b=runs["slow"]))
    for name, run in (("A", runs["a"]), ("B", runs["slow"])):
        assert f"{name}: ledger: {run.ledger.summary}; times on meshes" in done.stdout
    same = kernbench("compare", *written(tmp_path, a=runs["a"], b=runs["longer"]))
    assert same.stdout.count("ledger: ") == 1


@pytest.mark.parametrize("name", ["values", "grid"])
def test_the_command_says_what_it_cannot_compare(runs, tmp_path, name):
    done = kernbench("compare", *written(tmp_path, a=runs["a"], b=runs[name]))
    assert done.exit_code == 0, done.output
    assert "not compared: " in done.stdout


def test_a_file_that_is_no_result_is_one_message_and_nothing_is_written(runs, tmp_path):
    (a,) = written(tmp_path, a=runs["a"])
    bad = tmp_path / "bad.json"
    bad.write_text('{"bench": "x"}')
    for path, says in ((bad, "is no result of a run"), (tmp_path / "none.json", "No such file")):
        done = kernbench("compare", a, path, "--json", tmp_path / "c.json")
        assert done.exit_code == 2
        assert says in done.stderr
        assert path.name in done.stderr
        assert "Traceback" not in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "bad.json"]
