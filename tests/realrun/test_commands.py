"""`kernbench realrun`: what it prints and writes, and how it ends."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kernbench as kb
from kernbench.cli import app
from kernbench.realrun.records import write_records
from kernbench.realrun.sources import read_records

from .made import decode, measured_on, prefill
from .test_calibrate import write_marked

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run everything in an empty working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runs(tmp_path):
    """A file of runs that a slower machine than the model's has made."""
    slower = kb.load_machine("h200", {"pe.clock": "1700 MHz"})
    made = [decode(f"d{i}", splits=2**i) for i in range(5)]
    made += [prefill(f"p{i}", waves=4 + 4 * (i % 2), stages=2 + i // 2, s_q=512, s_kv=512) for i in range(4)]
    path = tmp_path / "runs.jsonl"
    write_records([measured_on(r, slower) for r in made] + [decode("x", family="other")], path)
    return path


def realrun(*arguments):
    return CliRunner().invoke(app, ["realrun", *map(str, arguments)])


def assert_bad_input(*arguments, says):
    result = realrun(*arguments)
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output


# ---------------------------------------------------------------- compare
def test_compare_prints_errors_and_what_was_skipped(runs):
    result = realrun("compare", "--records", runs)
    assert result.exit_code == 0, result.output
    for part in ("decode_splitkv", "prefill", "kept aside", "roofline", "skipped 1", "no model for other"):
        assert part in result.stdout


def test_compare_writes_the_contract(runs, tmp_path):
    assert realrun("compare", "--records", runs, "--json", "c.json").exit_code == 0
    data = json.loads((tmp_path / "c.json").read_text())
    assert {"families", "rows", "skipped", "kept_aside"} <= set(data)
    assert set(data["families"]) == {"decode_splitkv", "prefill"}
    statistics = {"gpu", "n", "median", "mean", "p90", "bias", "roofline_median"}
    for errors in (*data["families"].values(), *data["kept_aside"].values()):
        assert set(errors) == statistics
    assert len(data["rows"]) == 27
    for row in data["rows"]:
        assert {"id", "measured_us", "predicted_us", "roofline_us", "reason", "split", "evidence"} <= set(row)
        assert row["evidence"] == "live"
    assert sum(e["n"] for e in data["kept_aside"].values()) == sum(r["split"] == "test" for r in data["rows"])
    assert [s["id"] for s in data["skipped"]] == ["x"]


def test_compare_draws_a_picture(runs, tmp_path):
    assert realrun("compare", "--records", runs, "--plot", "c.png").exit_code == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_compare_some_families_and_gpus_of_several_files(runs, tmp_path):
    write_records([measured_on(decode("other file"), kb.load_machine("h200"))], tmp_path / "more.jsonl")
    files = ("--records", runs, "--records", "more.jsonl")
    result = realrun("compare", *files, "--family", "decode_splitkv", "--gpu", "H200", "--json", "c.json")
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert len(rows) == 18
    assert {r["family"] for r in rows} == {"decode_splitkv"}


def test_compare_twice_writes_the_same_bytes(runs, tmp_path):
    for name in ("a.json", "b.json"):
        assert realrun("compare", "--records", runs, "--json", name).exit_code == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_unknown_families_and_gpus(runs):
    assert_bad_input("compare", "--records", runs, "--family", "prefil", says="did you mean 'prefill'")
    assert_bad_input("compare", "--records", runs, "--gpu", "H20", says="no run on 'H20'")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "empty"), ("nonsense\n", "neither JSON lines"), ('{"family": "prefill"}\n', "bad.jsonl:1"),
        ('{"family": "prefill", "id": "a", "id2": 1}\n', "bad.jsonl:1"), ("{not json}\n", "not JSON"),
    ],
)  # fmt: skip
def test_a_broken_file_leaves_nothing_half_written(content, says, tmp_path):
    (tmp_path / "bad.jsonl").write_text(content)
    arguments = ("compare", "--records", "bad.jsonl", "--json", "c.json", "--plot", "c.png")
    assert_bad_input(*arguments, says=says)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.jsonl"]


def test_an_old_result_survives_an_error(tmp_path):
    (tmp_path / "c.json").write_text("old")
    assert_bad_input("compare", "--records", "missing.jsonl", "--json", "c.json", says="cannot read missing.jsonl")
    assert (tmp_path / "c.json").read_text() == "old"


def test_a_path_that_cannot_be_written(runs):
    assert_bad_input("compare", "--records", runs, "--json", "no/such/folder/c.json", says="no/such/folder")


# ---------------------------------------------------------------- import and record
def test_import_makes_records_that_compare_reads(tmp_path):
    trace = FIXTURES / "current" / "7_kernel_trace.csv"
    result = realrun("import", trace, "--out", "runs.jsonl", "--spec", "family=prefill", "--skip-first", 0)
    assert result.exit_code == 0, result.output
    assert "records in runs.jsonl" in result.stdout
    found = read_records(tmp_path / "runs.jsonl")
    assert found.records
    assert all(r.family == "prefill" for r in found.records)
    assert realrun("compare", "--records", "runs.jsonl").exit_code == 0


def test_a_failed_import_leaves_nothing(tmp_path):
    assert_bad_input("import", "missing.csv", "--out", "runs.jsonl", says="missing.csv")
    trace = FIXTURES / "current" / "7_kernel_trace.csv"
    assert_bad_input("import", trace, "--out", "runs.jsonl", "--spec", "family=prefil", says="prefil")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_plan_is_bad_input(tmp_path):
    assert_bad_input("record", "--plan", "nosuch", "--out", "runs.jsonl", says="nosuch")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- calibrate
def test_calibrate_writes_a_machine_that_fits_better(runs, tmp_path):
    folder = tmp_path / "machines"
    folder.mkdir()
    path = write_marked(folder, ("pe.clock",))
    result = realrun("calibrate", path, "--out", "fitted.yaml", "--gpu", "H200", "--records", runs, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "training records" in result.stdout
    assert "pe.clock" in result.stdout
    assert kb.load_machine(str(tmp_path / "fitted.yaml")).pe.clock == pytest.approx(1.7e9, rel=0.02)


def test_calibrating_nothing_is_bad_input(runs, tmp_path):
    folder = tmp_path / "machines"
    folder.mkdir()
    none = write_marked(folder, ())
    common = ("--out", "fitted.yaml", "--records", runs)
    assert_bad_input("calibrate", none, *common, "--gpu", "H200", says="nothing to fit")
    assert_bad_input("calibrate", "h200", *common, "--gpu", "MI300X", says="no run on 'MI300X'")
    assert_bad_input("calibrate", "h20", *common, "--gpu", "H200", says="h20")
    assert not (tmp_path / "fitted.yaml").exists()


def test_recording_without_a_gpu_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    out = tmp_path / "mine.jsonl"
    result = CliRunner().invoke(app, ["realrun", "record", "--plan", "smoke", "--out", str(out)])
    assert result.exit_code == 2
    assert "PyTorch" in result.output
    assert list(tmp_path.iterdir()) == []
