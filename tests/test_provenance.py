"""A result says where it comes from, and the command in it makes it again."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kernbench as kb
from kernbench.bench import find_bench, load_benches
from kernbench.cli import app
from kernbench.errors import InputError
from kernbench.provenance import code_sha256, kernel_sha256, parse_overrides, repeat_command, sources_sha256
from kernbench.report.again import machine_of, read_result, time_again

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path):
    """Run a command line; return its result without what the host's clock says."""

    def run_command(command):
        path = tmp_path / "result.json"
        words = shlex.split(command)
        done = CliRunner().invoke(app, [*words[1:], "--json", str(path)])
        assert done.exit_code == 0, done.output
        return json.loads(path.read_text()) | {"wall": None}

    return run_command


@pytest.mark.parametrize(
    "command",
    [
        "kernbench run gqa_decode_long --mode time",
        "kernbench run gqa_decode_long --set S_kv=77 --set split_heads=cube --set split_S_kv=pe --set causal=false "
        "--override 'cube.memory.bandwidth=0.8 TB/s' --override pe.load.queues=4 --seed 3 --inputs random",
        "kernbench run gqa_decode_long --mode time --override 'pe.vector.cost={default: 2, exp: 8}'",
        "kernbench run decode_splitkv --topology h200 --mode time --set splits=2 --engine simpy --set S_kv=256",
    ],
)
def test_the_command_of_a_result_makes_it_again(run, command):
    first = run(command)
    assert run(first["command"]) == first


def test_an_override_changes_the_machine_and_is_kept_in_the_result(run, tmp_path):
    slow = run("kernbench run gqa_decode_long --mode time --override 'cube.memory.bandwidth=0.1 TB/s'")
    fast = run("kernbench run gqa_decode_long --mode time")
    assert slow["makespan_ps"] > fast["makespan_ps"]
    assert slow["machine"]["cube"]["memory"]["bandwidth"] == "0.1 TB/s"
    assert kb.load_machine(slow["machine"]).sha256 == slow["topology_sha256"]


def test_a_run_read_from_its_file_is_timed_again_to_the_picosecond(run, tmp_path):
    run("kernbench run gqa_decode_long --mode time --set S_kv=100 --override 'pe.clock=2 GHz'")
    result = read_result(tmp_path / "result.json")
    again = time_again(result)
    assert again.timeline.makespan_ps == result.makespan_ps
    assert machine_of(result).sha256 == result.topology_sha256


def test_a_run_whose_kernel_has_changed_is_not_shown_as_the_same(run, tmp_path):
    run("kernbench run gqa_decode_long --mode time --set S_kv=100")
    result = read_result(tmp_path / "result.json").model_copy(update={"makespan_ps": 1})
    with pytest.raises(InputError, match=r"has changed since; make the result again with\n  kernbench run"):
        time_again(result)


def test_runs_without_a_timeline_say_so(run, tmp_path):
    run("kernbench run gqa_decode_long --mode values")
    with pytest.raises(InputError, match="was not timed"):
        time_again(read_result(tmp_path / "result.json"))
    run("kernbench run decode_splitkv --topology h200 --mode time")
    with pytest.raises(InputError, match="launches grids of workgroups"):
        time_again(read_result(tmp_path / "result.json"))


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", r"result.json:1: is no JSON"), ("{}", r"is no result of a run \(bench: "), ("[]", "is no result of a run")],
)
def test_files_that_hold_no_result_are_refused(tmp_path, text, says):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_result(path)
    with pytest.raises(InputError, match="cannot read"):
        read_result(tmp_path / "none.json")


def test_overrides_are_read_as_yaml():
    assert parse_overrides({"a": "{f16: 8 Tflop/s}", "b": "4", "c": "null"}) == {
        "a": {"f16": "8 Tflop/s"},
        "b": 4,
        "c": None,
    }
    with pytest.raises(InputError, match="--override a: cannot read"):
        parse_overrides({"a": "{f16"})


def test_the_fingerprint_of_a_kernel_is_that_of_its_file(tmp_path, monkeypatch):
    shipped = kernel_sha256(find_bench("gqa_decode_long"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benches").mkdir()
    from kernbench.bench import bench_files

    source = next(path for path in bench_files() if path.name == "gqa_decode_long.py").read_text()
    (tmp_path / "benches" / "gqa_decode_long.py").write_text(source + "\n# mine\n")
    mine = kernel_sha256(find_bench("gqa_decode_long"))
    assert len(shipped) == len(mine) == len(code_sha256()) == 64
    assert mine != shipped


def test_a_machine_file_is_named_by_its_path(tmp_path):
    from kernbench.machine.load import find_machine_file

    path = tmp_path / "my machine.yaml"
    path.write_text(find_machine_file("row4_pe8.yaml").read_text())
    command = repeat_command(find_bench("gqa_decode_long"), kb.load_machine(path))
    assert shlex.split(command)[-1] == str(path)


def test_sources_are_the_files_of_a_bench_and_of_what_it_imports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "benches").mkdir()
    shutil.copy(ROOT / "benches" / "mla_decode.py", tmp_path / "benches" / "mine.py")
    (tmp_path / "its_helper.py").write_text("def half(x): return x / 2\n")
    with (tmp_path / "benches" / "mine.py").open("a") as file:
        file.write("\nfrom its_helper import half\n")
    bench = load_benches(tmp_path / "benches" / "mine.py")[0]
    before, kernel = sources_sha256(bench), kernel_sha256(bench)
    (tmp_path / "its_helper.py").write_text("def half(x): return x / 3\n")
    assert sources_sha256(bench) != before
    assert kernel_sha256(bench) == kernel
    assert len({sources_sha256(find_bench(name)) for name in ("gqa_decode_long", "mla_decode", "fa2_prefill")}) == 3


@pytest.mark.parametrize("text", ["2020-99-99", "!!int abc", "[" * 3000, "9" * 5000])
def test_an_override_that_yaml_cannot_read_is_one_message(text):
    with pytest.raises(InputError, match=r"--override pe\.clock: cannot read"):
        parse_overrides({"pe.clock": text})


@pytest.mark.parametrize("text", ["'\"><b>", "2020-99-99", "a: b", "{", "plain"])
def test_a_text_that_yaml_would_misread_is_quoted_in_the_command(text):
    machine = kb.load_machine("pe1", {"description": text})
    words = shlex.split(repeat_command(find_bench("gqa_decode_long"), machine))
    key, _, value = words[words.index("--override") + 1].partition("=")
    assert parse_overrides({key: value}) == {"description": text}
