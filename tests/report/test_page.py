"""The page of a run and that of a sweep: the numbers are the JSON's, nothing comes from elsewhere, text stays text."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.cli import app
from kernbench.errors import InputError
from kernbench.ledger import ledger_of
from kernbench.report.again import time_again
from kernbench.report.page.run_page import run_page
from kernbench.report.page.sweep_page import sweep_page
from kernbench.run import run_bench
from kernbench.simulate.explain import lower_bounds
from kernbench.specs.attention import DecodeSpec
from tests.report.pages import Page
from tests.report.sweeps import frame

COMMAND = "kernbench sweep tiles.yaml"


@pytest.fixture(scope="module")
def results():
    bench, machine = find_bench("gqa_decode_long"), kb.load_machine("row4_pe8")
    spec = DecodeSpec(S_kv=200, TILE_S_KV=16)
    grid = find_bench("decode_splitkv")
    return {
        "both": run_bench(bench, machine, spec),
        "time": run_bench(bench, machine, spec, mode="time"),
        "values": run_bench(bench, machine, spec, mode="values"),
        "grid": run_bench(grid, kb.load_machine("h200"), mode="time"),
    }


def text_of(result):
    return run_page(result, time_again(result) if result.critical_path else None)


@pytest.fixture(scope="module")
def texts(results):
    found = {name: text_of(result) for name, result in results.items()}
    both = results["both"]
    faster = {"cube.memory.bandwidth": "1.9 TB/s"}
    found["sweep"] = sweep_page(
        frame(300), name="tiles", command=COMMAND, winner=both, overrides=faster, again=time_again(both)
    )
    return found


@pytest.fixture(scope="module")
def pages(texts):
    return {name: Page(text) for name, text in texts.items()}


# ---------------------------------------------------------------- the numbers are the JSON's
def test_the_page_holds_the_whole_result(results, pages):
    for name, result in results.items():
        assert pages[name].data["result"] == json.loads(result.model_dump_json())


def test_the_summary_has_the_figures_of_the_json(results, pages):
    record, page = json.loads(results["both"].model_dump_json()), pages["both"]
    assert page.numbers("summary", "makespan") == [record["makespan_ps"], record["makespan_ps"], record["cycles"]]
    assert f"{record['makespan_ps']:,} ps" in page.row("summary", "makespan")[0]
    assert page.numbers("summary", "engines busy") == list(record["engines"].values())
    assert page.numbers("summary", "memory traffic") == [record["hbm_bytes"]] * 2
    assert page.numbers("summary", "link traffic") == [record["link_bytes"]] * 2
    assert page.numbers("summary", "matrix arithmetic") == [record["flops"]] * 2
    assert page.numbers("summary", "PEs") == [record["pes"], record["classes"], record["commands"]]
    assert page.numbers("summary", "scratch peak") == [record["scratch_peak_bytes"]] * 2
    for name, kind in (("makespan", "simulated"), ("PEs", "recorded"), ("wall", "measured on the host")):
        assert page.row("summary", name)[-1] == kind


@pytest.mark.parametrize("name", ["both", "time", "grid", "sweep"])
def test_times_by_cause_are_the_json_s_and_add_up_to_the_makespan(results, pages, name):
    result = results["both" if name == "sweep" else name]
    rows = pages[name].exact["time"][1:]
    assert [share for share, *_ in rows] == list(result.time_by_cause.values())
    assert sum(ps for _, ps, _ in rows) == result.makespan_ps


def test_errors_of_the_values_are_the_json_s(results, pages):
    found, page = results["both"].correctness, pages["both"]
    assert page.numbers("correctness", "relative L2, whole output") == [found.rel_l2, found.tolerance]
    assert page.numbers("correctness", "relative L2, worst row")[0] == found.worst_row_rel_l2
    assert page.numbers("correctness", "largest absolute difference") == [found.max_abs]
    assert page.numbers("correctness", "cosine") == [found.cosine]


def test_each_line_of_the_path_stands_in_the_kernel_with_its_share(results, pages):
    path, page = results["both"].critical_path, pages["both"]
    listed = {
        int(row[0]): (numbers[0], row[2].strip())
        for row, numbers in zip(page.rows["path"], page.exact["path"], strict=True)
        if row[0].isdigit() and len(numbers) == 1
    }
    assert listed == {
        int(number): (share, text.strip())
        for (_, number, text), share in ((line.split(":", 2), share) for line, share in path.time_by_line.items())
    }


def test_the_lines_around_the_path_are_those_of_the_file(pages):
    source = Path(find_bench("gqa_decode_long").kernel.__code__.co_filename)
    lines = source.read_text(encoding="utf-8").splitlines()
    listed = [row for row in pages["both"].rows["path"] if len(row) == 3 and row[0].isdigit()]
    assert len(listed) > 20
    assert all(row[2] == lines[int(row[0]) - 1] for row in listed)


def test_the_stretches_are_those_of_the_json(results, pages):
    table = pages["both"].data["segments"]
    assert [column["name"] for column in table["columns"]] == ["start_ps", "end_ps", "takes_ps", "pe", "cause", "line"]
    assert [(start, end, pe, cause, line) for start, end, _, pe, cause, line in table["rows"]] == [
        tuple(segment.model_dump().values()) for segment in results["both"].critical_path.segments
    ]
    assert sum(row[2] for row in table["rows"]) == results["both"].makespan_ps  # none is left out of so short a run


@pytest.mark.parametrize(("name", "section"), [("both", "bounds"), ("sweep", "why")])
def test_lower_bounds_stand_beside_what_was_achieved(results, pages, name, section):
    result, page = results["both"], pages[name]
    assert page.numbers(section, "achieved")[:2] == [result.makespan_ps] * 2
    bounds = lower_bounds(time_again(result).timeline)
    assert {"vector", "matrix", "memory", "links between CUBEs"} <= {bound.name for bound in bounds}
    for bound in bounds:
        assert page.numbers(section, bound.name) == [bound.ps, bound.ps, bound.ps / result.makespan_ps]
        assert bound.ps <= result.makespan_ps


def test_lower_bounds_of_a_grid_bench_are_those_of_its_engines_and_launches(results, pages):
    result, page = results["grid"], pages["grid"]
    for name, share in result.engines.items():
        ps = page.numbers("bounds", name)[0]
        assert share * result.makespan_ps - 1 <= ps <= share * result.makespan_ps
    overhead = sum(launch.overhead_ps for launch in result.launches)
    assert page.numbers("bounds", "starting launches") == [overhead, overhead, overhead / result.makespan_ps]


def test_launches_stand_in_the_place_of_the_path(results, pages):
    page = pages["grid"]
    assert "path" not in page.rows
    for launch in results["grid"].launches:
        numbers = page.numbers("launches", launch.kernel)
        assert numbers[:4] == [launch.workgroups_per_pe, launch.overhead_ps, launch.makespan_ps, launch.makespan_ps]


def test_scratch_by_line_is_the_json_s(results, pages):
    rows, numbers = pages["both"].rows["scratch"][1:], pages["both"].exact["scratch"][1:]
    assert {row[2]: exact[0] for row, exact in zip(rows, numbers, strict=True)} == results["both"].scratch_by_line


@pytest.mark.parametrize("name", ["both", "grid", "sweep"])
def test_the_ledger_names_every_figure_of_the_machine(results, pages, name):
    ledger = results["both" if name == "sweep" else name].ledger
    rows = [[cell.strip() for cell in row] for row in pages[name].rows["ledger"][1:]]
    assert rows == [[f.key, f.value, f.origin, f.note.strip()] for f in ledger.figures]
    assert ledger.summary in pages[name].texts["ledger"]
    assert all(doubt in pages[name].texts["ledger"] for doubt in ledger.outside_validation)


def test_what_was_not_asked_for_is_said(pages):
    assert "Not asked for: mode values simulates no time" in pages["values"].texts["time"]
    assert "Not asked for: mode time computes no values" in pages["time"].texts["correctness"]
    assert pages["values"].row("summary", "makespan") == ["not asked for (mode values)"]
    assert "path" not in pages["values"].rows


def test_the_command_that_makes_it_again_is_there(results, pages):
    for name, result in results.items():
        assert result.command in pages[name].texts["reproduce"]


# ---------------------------------------------------------------- sweeps
def test_the_points_of_a_sweep_are_those_of_the_table(pages):
    points, table = frame(300), pages["sweep"].data["points-data"]
    names = [column["name"] for column in table["columns"]]
    assert set(names) == set(points.columns) - {"topology", "S_kv", "pes"}  # the same in all, and said once
    assert "row4_pe8" in pages["sweep"].texts["summary"]
    for name in ("makespan_ps", "TILE_S_KV", "sharding", "status", "key", "feasible"):
        found = [row[names.index(name)] for row in table["rows"]]
        assert found == [None if pd.isna(value) else value for value in points[name]]
    assert {c["name"] for c in table["columns"] if c["is_number"]} >= {"makespan_ps", "TILE_S_KV", "cost"}


def test_a_sweep_says_how_its_points_ended(pages):
    points = frame(300)
    failed, against = int((points.status == "failed").sum()), int((~points.feasible.fillna(True)).sum())
    said = " ".join(pages["sweep"].texts["summary"].split())
    assert f"300 points: {300 - failed} done, {failed} failed; of those done, {against} are against" in said
    assert pages["sweep"].exact["failures"][1] == [failed]
    assert pages["sweep"].rows["failures"][1][1:] == ["kernel.py:3: scratch is <full>", "point00000"]


def test_a_sweep_over_machines_shows_how_it_scales():
    points = frame(40)
    points["pes"] = [8, 32] * 20
    page = Page(sweep_page(points, name="scale", command=COMMAND, winner=None, again=None))
    pictures = {v for element, attribute, v in page.attributes if element == "figure" and attribute == "id"}
    assert "picture-scaling-strong" in pictures
    assert "scaling" in page.texts


def test_a_sweep_of_which_nothing_is_done_has_no_pictures():
    points = frame(40)
    page = Page(sweep_page(points[points.status == "failed"], name="x", command=COMMAND, winner=None, again=None))
    assert not [element for element, *_ in page.attributes if element == "figure"]
    assert set(page.texts) == {"summary", "points", "failures", "reproduce"}


def test_the_winner_is_named_with_what_its_machine_changes(pages):
    assert "cube.memory.bandwidth1.9 TB/s" in " ".join(pages["sweep"].texts["why"].split())  # a name and its value


def test_a_sweep_says_how_its_winner_is_checked(results, pages):
    correctness = results["both"].correctness
    assert pages["sweep"].numbers("correctness", "relative L2, whole output")[0] == correctness.rel_l2
    timed = results["time"]
    page = Page(sweep_page(frame(5), name="t", command=COMMAND, winner=timed, again=time_again(timed)))
    assert "--mode time" in timed.command
    assert timed.command.replace(" --mode time", "") in page.texts["correctness"]
    assert "--mode" not in page.texts["correctness"]


def test_a_sweep_has_the_ledger_of_each_machine_with_or_without_a_winner():
    ledgers = {name: ledger_of(kb.load_machine(name)) for name in ("row4_pe8", "grid8x8_pe8")}
    page = Page(sweep_page(frame(5), name="none", command=COMMAND, winner=None, again=None, ledgers=ledgers))
    for name, ledger in ledgers.items():
        assert f"{name}, before the sweep changes anything: {ledger.summary}" in page.texts["ledger"]
        assert ledger.outside_validation[0] in page.texts["ledger"]


def test_a_sweep_without_a_winner_says_so():
    page = Page(sweep_page(frame(5), name="none", command=COMMAND, winner=None, again=None))
    assert "There is no winner" in page.texts["summary"]
    assert "why" not in page.texts


# ---------------------------------------------------------------- self-contained, well-formed, safe, the same twice
EVERY = ["both", "time", "values", "grid", "sweep"]


@pytest.mark.parametrize("name", EVERY)
def test_nothing_comes_from_elsewhere(pages, name):
    page = pages[name]
    links = [v for _, attribute, v in page.attributes if attribute in ("src", "href", "xlink:href", "action", "srcset")]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    style = "".join(page.styles) + "".join(v or "" for _, attribute, v in page.attributes if attribute == "style")
    assert "@import" not in style
    assert not re.search(r"url\((?!#)", style)
    policies = [v for element, attribute, v in page.attributes if element == "meta" and attribute == "content"]
    assert any(policy.startswith("default-src 'none';") and "http" not in policy for policy in policies)


@pytest.mark.parametrize("name", EVERY)
def test_elements_are_closed_and_ids_are_there_once(pages, name):
    page = pages[name]
    assert page.open == []
    ids = [value for _, attribute, value in page.attributes if attribute == "id"]
    assert len(ids) == len(set(ids))
    targets = {v[1:] for element, attribute, v in page.attributes if element == "a" and attribute == "href"}
    assert targets <= set(ids)
    assert targets == set(page.texts)  # the contents name every section


OF_A_TIMELINE = {"machine", "causes", "gantt", "gantt-cube", "heat-map", "roofline-plot"}
PICTURES = {
    "both": OF_A_TIMELINE,
    "time": OF_A_TIMELINE,
    "sweep": OF_A_TIMELINE | {"pareto", "latency-plot"},
    "values": {"machine"},
    "grid": {"machine", "causes", "roofline-plot"},
}


@pytest.mark.parametrize("name", EVERY)
def test_there_are_the_pictures_that_the_run_has_data_for(texts, pages, name):
    found = {v for element, attribute, v in pages[name].attributes if element == "figure" and attribute == "id"}
    assert found == {f"picture-{one}" for one in PICTURES[name]}
    assert texts[name].count("<svg") == len(found)


EVIL = "</script><script>alert('x')</script>&<b>"


def test_text_that_looks_like_markup_stays_text(results):
    result = results["values"].model_copy(
        update={
            "bench": EVIL, "topology": EVIL, "spec": {EVIL: EVIL}, "command": EVIL, "warnings": [EVIL],
            "scratch_by_line": {EVIL: 1},
        }
    )  # fmt: skip
    page = Page(run_page(result, None))
    assert page.data["result"]["bench"] == EVIL
    assert EVIL in page.texts["warnings"]
    assert EVIL in page.texts["summary"]
    assert [element for element, *_ in page.attributes].count("script") == 2  # one type and one id, of the JSON
    assert page.open == []


def test_points_that_look_like_markup_stay_text():
    points = frame(3)
    points["sharding"] = [EVIL, "a", "b"]
    page = Page(sweep_page(points, name=EVIL, command=EVIL, winner=None, again=None))
    names = [column["name"] for column in page.data["points-data"]["columns"]]
    assert page.data["points-data"]["rows"][0][names.index("sharding")] == EVIL


def test_the_same_result_gives_the_same_bytes(results, texts):
    for name in ("both", "grid"):
        assert text_of(results[name]) == texts[name]


# ---------------------------------------------------------------- the command
def kernbench(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_writes_one_file_and_replaces_it(results, texts, tmp_path):
    run, out = tmp_path / "run.json", tmp_path / "new" / "page"
    run.write_text(results["both"].model_dump_json())
    for _ in range(2):
        done = kernbench("report", run, "--out", out)
        assert done.exit_code == 0, done.output
        assert [path.name for path in out.iterdir()] == ["index.html"]
    assert (out / "index.html").read_text(encoding="utf-8") == texts["both"]


SWEEP = """
name: small
bench: gqa_decode_long
topology: [pe1]
spec: {S_kv: [32, 64], TILE_S_KV: [16, 32]}
"""


def test_the_command_shows_a_stored_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SWEEP)
    assert kernbench("sweep", "small.yaml", "--workers", "1", "--no-progress").exit_code == 0
    done = kernbench("report", "small", "--out", "page")
    assert done.exit_code == 0, done.output
    page = Page((tmp_path / "page" / "index.html").read_text(encoding="utf-8"))
    names = [column["name"] for column in page.data["points-data"]["columns"]]
    times = [row[names.index("makespan_ps")] for row in page.data["points-data"]["rows"]]
    assert len(times) == 4
    keys = [row[names.index("S_kv")] for row in page.data["points-data"]["rows"]]
    most = [time for time, n in zip(times, keys, strict=True) if n == max(keys)]  # less work is no better choice
    assert page.data["result"]["makespan_ps"] == min(most)
    assert "Points have 2 kinds of inputs." in page.texts["why"]
    assert "kernbench sweep small.yaml" in page.texts["reproduce"]
    assert "TILE_S_KV" in page.texts["reproduce"]  # the sweep file is there as well
    assert "pe1, before the sweep changes anything" in page.texts["ledger"]


def test_an_unknown_sweep_is_one_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = kernbench("report", "nothing", "--out", "page")
    assert done.exit_code == 2
    assert "kernbench.sqlite" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_bad_file_is_one_message_and_nothing_is_written(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("[1]")
    for path, says in ((bad, "is no result of a run"), (tmp_path / "none.json", "No such file")):
        done = kernbench("report", path, "--out", tmp_path / "out")
        assert done.exit_code == 2
        assert says in done.stderr
        assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_one_message(results, tmp_path):
    run = tmp_path / "run.json"
    run.write_text(results["values"].model_dump_json())
    done = kernbench("report", run, "--out", run / "inside")
    assert done.exit_code == 2
    assert "cannot make the folder" in done.stderr


def test_a_result_that_the_code_no_longer_gives_is_refused(results, tmp_path):
    run = tmp_path / "run.json"
    run.write_text(results["time"].model_copy(update={"makespan_ps": 12345}).model_dump_json())
    done = kernbench("report", run, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "12,345" in done.stderr
    assert not (tmp_path / "out").exists()


def test_shares_that_are_not_those_of_the_makespan_are_refused(results):
    broken = results["grid"].model_copy(update={"time_by_cause": {"load": 0.1, "sync": 0.2}})
    with pytest.raises(InputError, match="add up to 0"):
        run_page(broken, None)
