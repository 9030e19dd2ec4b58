"""The command line: what it prints, what it writes, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kernbench.bench import find_bench
from kernbench.cli import app
from kernbench.ledger import ledger_of
from kernbench.machine import load_machine

ROOT = Path(__file__).parent.parent
RUN = ["run", "gqa_decode_long", "--no-progress"]
SMALL = [*RUN, "--topology", "pe1", "--set", "S_kv=64"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run everything in an empty working directory."""
    monkeypatch.chdir(tmp_path)


def kernbench(*arguments):
    return CliRunner().invoke(app, list(arguments))


def assert_bad_input(*arguments, says):
    result = kernbench(*arguments)
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output
    return result


def in_a_process(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "kernbench.cli", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts,
        **options,
    )  # fmt: skip


def hear_interrupts():
    """Undo what a shell does to what it runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


# ---------------------------------------------------------------- run
def test_the_main_job_is_right_and_timed():
    result = kernbench(*RUN)
    assert result.exit_code == 0, result.output
    assert "PASS" in result.stdout
    for text in ("captured inputs", "makespan", "matrix", "memory traffic", "simulated", "measured on the host"):
        assert text in result.stdout


def test_settings_topology_and_seed_reach_the_result(tmp_path):
    arguments = ["--set", "T_q=2", "--set", "split_S_kv=pe", "--seed", "7", "--inputs", "random", "--json", "r.json"]
    assert kernbench(*SMALL, *arguments).exit_code == 0
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["topology"] == "pe1"
    assert record["seed"] == 7
    assert record["inputs"] == "random"
    assert (record["spec"]["S_kv"], record["spec"]["T_q"], record["spec"]["split_S_kv"]) == (64, 2, ["pe"])


@pytest.mark.parametrize(
    ("mode", "has", "lacks"),
    [("values", "PASS", "makespan"), ("time", "makespan", "PASS"), ("both", "PASS", "nothing")],
)
def test_a_mode_prints_what_it_measures(mode, has, lacks):
    result = kernbench(*SMALL, "--mode", mode)
    assert result.exit_code == 0
    assert has in result.stdout
    assert lacks not in result.stdout


def test_simpy_prints_the_same_time_as_the_compiled_core(tmp_path):
    for engine in ("simpy", "compiled"):
        assert kernbench(*SMALL, "--mode", "time", "--engine", engine, "--json", f"{engine}.json").exit_code == 0
    first, second = (json.loads((tmp_path / f"{engine}.json").read_text()) for engine in ("simpy", "compiled"))
    assert first["makespan_ps"] == second["makespan_ps"]


def test_sizes_that_the_captured_inputs_lack_are_run_with_random_ones_and_say_so():
    result = kernbench(*SMALL, "--set", "h_q=8", "--set", "h_kv=2")
    assert result.exit_code == 0
    assert "random inputs" in result.stdout


def test_wrong_values_end_with_1(tmp_path):
    arrays = {name: np.ones((n, 1, 8), np.float16) for name, n in (("q", 1), ("k", 20), ("v", 20))}
    arrays["v"][3] = np.nan
    np.savez(tmp_path / "qkv.npz", **arrays)
    result = kernbench(*RUN, "--topology", "pe1", "--inputs", "qkv.npz", "--json", "r.json")
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    assert "v as float16 holds 8 NaN or infinite values" in result.stdout
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["correctness"]["rel_l2"] is None
    assert record["correctness"]["passed"] is False
    assert len(record["warnings"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "gqa_decode"], "unknown bench 'gqa_decode' (did you mean 'gqa_decode_long'?)"),
        ([*RUN, "--topology", "row4_pe9"], "unknown machine 'row4_pe9' (did you mean 'row4_pe8'?)"),
        ([*RUN, "--set", "S_vk=4"], "unknown spec field 'S_vk' (did you mean 'S_kv'?)"),
        ([*RUN, "--set", "S_kv"], "--set takes key=value, e.g. --set S_kv=4096, not 'S_kv'"),
        ([*RUN, "--set", "=3"], "--set takes key=value"),
        ([*RUN, "--set", "S_kv=1", "--set", "S_kv=2"], "--set S_kv is given twice"),
        ([*RUN, "--set", "S_kv=-4"], "cannot be '-4'"),
        ([*RUN, "--mode", "tim"], "unknown mode 'tim' (did you mean 'time'?)"),
        ([*RUN, "--engine", "sympy"], "unknown engine 'sympy' (did you mean 'simpy'?)"),
        ([*RUN, "--inputs", "captured", "--set", "d_head=32"], "d_head=32 (captured: 64)"),
        ([*RUN, "--inputs", "none.npz"], "there is no file none.npz"),
        ([*RUN, "--json", "no/such/folder/r.json"], "cannot write no/such/folder/r.json: No such file or directory"),
        ([*RUN, "--json", "."], "cannot write .: Is a directory"),
        (["show", "row4"], "unknown machine 'row4'"),
        (["show"], "name a machine to show"),
        (["show", "pe1", "--png", "no/such/m.png"], "cannot write no/such/m.png"),
        (["check", "nothing"], "unknown bench 'nothing'"),
        (["run"], "Missing argument"),
        (["walk"], "No such command 'walk'"),
        ([*RUN, "--seed", "-1"], "--seed"),
    ],
)
def test_bad_input_ends_with_2_and_one_message(arguments, says):
    assert_bad_input(*arguments, says=says)


def test_a_spec_that_overflows_scratch_names_the_line():
    result = assert_bad_input(*SMALL[:-1], "S_kv=65536", "--set", "TILE_S_KV=65536", says="scratch overflow")
    assert "gqa_decode_long.py" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_file_is_refused_before_the_work(tmp_path):
    (tmp_path / "r.json").write_text("old")
    (tmp_path / "r.json").chmod(0o444)
    assert_bad_input(*SMALL, "--json", "r.json", says="cannot write r.json: Permission denied")


def test_an_output_is_replaced_whole_or_left_alone(tmp_path):
    (tmp_path / "r.json").write_text("old")
    assert_bad_input(*SMALL, "--inputs", "none.npz", "--json", "r.json", says="none.npz")
    assert (tmp_path / "r.json").read_text() == "old"
    assert kernbench(*SMALL, "--json", "r.json").exit_code == 0
    assert json.loads((tmp_path / "r.json").read_text())["bench"] == "gqa_decode_long"
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_the_result_may_go_to_a_device():
    assert kernbench(*SMALL, "--json", "/dev/null").exit_code == 0


# ---------------------------------------------------------------- list, show, check, version
def test_list_names_benches_and_topologies_with_summaries():
    result = kernbench("list")
    assert result.exit_code == 0
    topologies = ("pe1", "cube1_pe8", "row4_pe8", "grid8x8_pe8", "grid16x32_pe8", "sip4_grid4x4_pe8")
    for name in ("gqa_decode_long", *topologies):
        assert re.search(rf"^  {name} +\w.*", result.stdout, flags=re.MULTILINE), name


def test_list_names_a_bench_file_that_does_not_import(tmp_path):
    (tmp_path / "benches").mkdir()
    (tmp_path / "benches" / "mine.py").write_text("import kernbench\nBENCHES = [nothing]\n")
    assert_bad_input("list", says="benches/mine.py:2: cannot be imported: NameError")


def test_show_gives_every_figure_with_its_source(tmp_path):
    result = kernbench("show", "row4_pe8", "--png", "machine.png")
    assert result.exit_code == 0
    assert "32 PEs: 1 SIP x 4 CUBE x 8 PE" in result.stdout
    assert re.search(r"cube\.memory\.bandwidth +1\.2 TB/s +source: ", result.stdout)
    assert (tmp_path / "machine.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["machine.png"]


def test_show_gives_the_schema_for_editors():
    schema = json.loads(kernbench("show", "--schema").stdout)
    assert schema["type"] == "object"
    assert {"sip", "cube", "pe"} <= set(schema["properties"])


def test_check_runs_many_specs_and_counts():
    result = kernbench("check", "decode_splitkv")
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert len(lines) > 10
    assert all(line.startswith("ok ") for line in lines[:-1])
    assert lines[-1] == f"{len(lines) - 1} of {len(lines) - 1} cases passed"


def test_check_ends_with_1_if_a_case_fails(tmp_path):
    text = (ROOT / "benches" / "gqa_decode_long.py").read_text()
    wrong = text.replace("tl.dot(Q, K) * spec.scale", "tl.dot(Q, K) * (spec.scale * 1.5)")
    assert wrong != text
    (tmp_path / "benches").mkdir()
    few = "\nkept = [case for case in BENCHES[0].cases if case.settings.get('S_kv', 9999) < 100]\n"
    few += "import dataclasses\nBENCHES = [dataclasses.replace(BENCHES[0], cases=kept)]\n"
    (tmp_path / "benches" / "mine.py").write_text(wrong.replace('"gqa_decode_long"', '"mine"') + few)
    result = kernbench("check", "mine")
    assert result.exit_code == 1
    assert "FAIL mine" in result.stdout
    assert re.search(r"\n1 of \d+ cases passed", result.stdout)  # one key: its softmax is 1 whatever the scale


def test_explain_tells_what_would_change_the_run(tmp_path):
    result = kernbench("explain", "gqa_decode_long", "--set", "S_kv=65536", "--json", str(tmp_path / "why.json"))
    assert result.exit_code == 0
    assert "lower bound" in result.stdout
    found = json.loads((tmp_path / "why.json").read_text())
    savings = {w["free"]: w["saved_ps"] for w in found["what_ifs"]}
    assert next(iter(savings)) == "memory bandwidth"  # so long a cache is bound by its memory
    assert all(b["ps"] <= found["makespan_ps"] for b in found["bounds"])
    ledger = ledger_of(load_machine("row4_pe8"), find_bench("gqa_decode_long"))
    assert found["ledger"] == json.loads(ledger.model_dump_json())
    assert f"ledger: {ledger.summary}" in result.stdout


def test_a_timeline_is_written_and_says_what_it_leaves_out(tmp_path):
    file = tmp_path / "timeline.pftrace"
    arguments = ("run", "gqa_decode_long", "--mode", "time", "--trace", str(file))
    result = kernbench(*arguments, "--trace-pes", "cube1", "--trace-limit", "300")
    assert result.exit_code == 0
    assert f"{file}: " in result.stdout.replace("\n", "")
    assert "24 PEs not selected" in result.stdout
    assert file.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [file]


def test_a_timeline_needs_time(tmp_path):
    result = kernbench("run", "gqa_decode_long", "--mode", "values", "--trace", str(tmp_path / "t"))
    assert result.exit_code == 2
    assert "--trace needs time" in result.stderr


def test_version():
    assert re.fullmatch(r"kernbench \d+\.\d+\.\d+\n", kernbench("--version").stdout)


# ---------------------------------------------------------------- the process
def test_help_is_quick_and_imports_nothing_heavy():
    code = "import sys, kernbench.cli; print({'numpy', 'numba', 'pydantic', 'matplotlib', 'rich'} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert loaded.stdout.strip() == "set()"
    with in_a_process("--help") as process:
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Simulate attention kernels" in out


def test_ctrl_c_ends_with_one_line_and_writes_nothing(tmp_path):
    text = (ROOT / "benches" / "gqa_decode_long.py").read_text()
    wait = "    import pathlib, time\n    pathlib.Path('started').touch()\n    time.sleep(60)\n"
    first = "    if any(tl.program_id"
    assert text.count(first) == 1
    (tmp_path / "benches").mkdir()
    (tmp_path / "benches" / "slow.py").write_text(
        text.replace(first, wait + first).replace('"gqa_decode_long"', '"slow"')
    )
    with in_a_process("run", "slow", "--json", "r.json", cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 130
    assert err == "kernbench: interrupted; nothing was written\n"
    assert out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benches", "started"]
