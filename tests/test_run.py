"""The result of a run: its fields, its JSON, and the page that documents both."""

import json
import math
import re
from pathlib import Path

import pytest

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.errors import InputError
from kernbench.ledger import Ledger
from kernbench.run import CorrectnessResult, PathResult, RunResult, Wall, run_bench
from kernbench.specs.attention import DecodeSpec

DOCUMENT = Path(__file__).parent.parent / "docs" / "run-json.md"
PROMISED = {
    *("bench", "topology", "spec", "mode", "engine", "inputs", "seed", "pes", "classes", "commands", "makespan_ps"),
    *("cycles", "engines", "scratch_peak_bytes", "hbm_bytes", "link_bytes", "flops", "correctness", "wall"),
    *("kernbench_version", "topology_sha256"),
}


@pytest.fixture(scope="module")
def results():
    bench, machine = find_bench("gqa_decode_long"), kb.load_machine("row4_pe8")
    return {mode: run_bench(bench, machine, DecodeSpec(S_kv=200), mode=mode) for mode in ("both", "values", "time")}


def test_everything_promised_is_there(results):
    record = json.loads(results["both"].model_dump_json())
    assert set(record) >= PROMISED
    assert set(record["correctness"]) >= {"max_abs", "rel_l2", "cosine", "tolerance", "passed"}
    assert set(record["wall"]) >= {"record_s", "execute_s", "simulate_s", "total_s"}
    assert record["correctness"]["passed"] is True
    assert record["spec"]["S_kv"] == 200
    assert record["topology"] == "row4_pe8"
    assert record["topology_sha256"] == kb.load_machine("row4_pe8").sha256
    assert record["kernbench_version"] == kb.__version__
    assert record["inputs"] == "captured"
    assert record["pes"] == 32


def test_what_a_mode_does_not_measure_is_null(results):
    values, time = results["values"], results["time"]
    for name in ("engine", "makespan_ps", "cycles", "engines", "hbm_bytes", "link_bytes", "flops"):
        assert getattr(values, name) is None, name
        assert getattr(time, name) is not None, name
    assert values.wall.simulate_s is None
    assert time.correctness is None
    assert time.inputs is None
    assert time.wall.execute_s is time.wall.reference_s is None


def test_the_mode_does_not_change_a_figure(results):
    both = results["both"]
    assert both.correctness == results["values"].correctness
    for name in ("makespan_ps", "engines", "hbm_bytes", "link_bytes", "flops", "commands", "scratch_peak_bytes"):
        assert getattr(both, name) == getattr(results["time"], name)


def test_figures_keep_to_their_laws(results):
    result = results["both"]
    assert all(0 <= share <= 1 for share in result.engines.values())
    cache = 2 * 200 * 3 * 64 * 2
    assert result.hbm_bytes >= cache
    assert result.flops >= 2 * 2 * 200 * 9 * 64
    wall = result.wall
    stages = (wall.inputs_s, wall.record_s, wall.execute_s, wall.simulate_s, wall.reference_s)
    assert sum(stages) <= wall.total_s


def test_the_json_is_read_back_as_it_was(results):
    for result in results.values():
        assert RunResult.model_validate_json(result.model_dump_json()) == result


def test_numbers_that_json_lacks_become_null():
    errors = {"max_abs": math.nan, "rel_l2": math.inf, "worst_row_rel_l2": math.nan, "cosine": math.nan}
    wrong = CorrectnessResult(**errors, tolerance=1e-3, nan_count=3, passed=False)
    record = json.loads(wrong.model_dump_json())
    assert record["max_abs"] is record["rel_l2"] is record["cosine"] is None
    assert record["nan_count"] == 3


def test_the_document_describes_every_field_and_no_other():
    described = set(re.findall(r"^\| `([\w.]+)` \|", DOCUMENT.read_text(), flags=re.MULTILINE))
    fields = set(RunResult.model_fields)
    fields |= {f"correctness.{name}" for name in CorrectnessResult.model_fields}
    fields |= {f"wall.{name}" for name in Wall.model_fields}
    fields |= {f"critical_path.{name}" for name in PathResult.model_fields}
    fields |= {f"ledger.{name}" for name in Ledger.model_fields}
    fields |= {"evidence.values", "evidence.time", "evidence.wall"}
    assert described == fields


def test_there_is_a_json_schema():
    schema = RunResult.model_json_schema(mode="serialization")
    assert set(schema["properties"]) >= PROMISED
    assert set(schema["required"]) >= PROMISED - {"kernbench_version"}
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(("option", "value"), [("mode", "times"), ("engine", "simpi")])
def test_unknown_choices_give_the_nearest(option, value):
    with pytest.raises(InputError, match=rf"unknown {option} '{value}' \(did you mean '{value[:4]}"):
        run_bench(find_bench("gqa_decode_long"), kb.load_machine("pe1"), **{option: value})


def test_stages_are_told_as_they_begin():
    seen = []
    run_bench(find_bench("gqa_decode_long"), kb.load_machine("pe1"), progress=seen.append)
    stages = [stage for stage in seen if "%" not in stage]
    assert stages == ["inputs", "record", "execute", "simulate", "reference"]
    assert {"execute 100%", "simulate 100%"} <= set(seen)


def test_every_picosecond_has_a_cause_and_a_source_line():
    result = run_bench(find_bench("gqa_decode_long"), kb.load_machine("row4_pe8"), mode="time")
    path = result.critical_path
    assert sum(result.time_by_cause.values()) == 1.0
    assert sum(path.time_by_line.values()) == 1.0
    assert sum(path.time_by_place.values()) == 1.0
    assert {"load", "matrix", "vector", "send", "recv", "store"} == set(result.engine_time)
    assert all(sum(shares.values()) == pytest.approx(1) for shares in result.engine_time.values())
    assert path.segments[0].start_ps == 0
    assert path.segments[-1].end_ps == result.makespan_ps
    assert path.segments_left_out == 0
    ends = [s.end_ps for s in path.segments]
    assert [s.start_ps for s in path.segments[1:]] == ends[:-1]
    assert "gqa_decode_long.py" in next(iter(path.time_by_line))


def test_the_scratch_peak_is_split_by_source_line():
    result = run_bench(find_bench("gqa_decode_long"), kb.load_machine("row4_pe8"), mode="time")
    assert sum(result.scratch_by_line.values()) == result.scratch_peak_bytes


def test_the_seed_changes_random_inputs_and_not_the_time():
    bench, machine, spec = find_bench("gqa_decode_long"), kb.load_machine("cube1_pe8"), DecodeSpec(S_kv=100)
    first, second = (run_bench(bench, machine, spec, inputs="random", seed=seed) for seed in (1, 2))
    assert first.correctness.max_abs != second.correctness.max_abs
    assert first.makespan_ps == second.makespan_ps
