"""Importing profiles: times, counters, workgroups, agents."""

import shutil
from pathlib import Path

import pytest

from kernbench.errors import InputError
from kernbench.realrun.importers import import_runs, parse_spec
from kernbench.realrun.records import parse_record, write_records

from .rocpd_database import write

F = Path(__file__).parent / "fixtures"
OLD = F / "old" / "kernel_trace.csv"
CURRENT = F / "current" / "7_kernel_trace.csv"
CONVERTED = F / "converted" / "out_kernel_trace.csv"
COUNTERS = F / "counters" / "9_counter_collection.csv"
V1 = F / "v1" / "results.csv"
V1_COUNTERS = F / "v1" / "pmc.csv"


def one(result, text="fmha"):
    found = [r for r in result.records if text in r.implementation.notes["kernel"]]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("path", [OLD, CURRENT, CONVERTED])
def test_every_generation_of_traces_gives_the_same_times(path):
    record = one(import_runs([path]))
    # 50.4, 50.0, 50.2, 50.6 and 50.8 us are left after three.
    assert record.times.published.median == 50.4
    assert record.times.published.n == 5
    assert record.times.published.p10 == pytest.approx(50.08)
    assert record.times.published.p90 == pytest.approx(50.72)
    assert record.implementation.grid == (128, 64, 16)
    assert record.implementation.lds_bytes == (None if path == CURRENT else 65536)
    assert record.implementation.notes.get("static_lds_bytes") == (65536 if path == CURRENT else None)
    assert record.implementation.notes["workgroup"] == [256, 1, 1]
    assert (record.family, record.evidence, record.grade) == ("other", "recorded", None)
    assert record.spec.model_dump(exclude_none=True) == {}
    assert path.name in record.source
    assert "first 3 dispatches" in record.caveat


def test_registers_are_those_of_the_trace_if_it_has_them():
    assert one(import_runs([CURRENT])).implementation.registers == 192
    assert one(import_runs([OLD])).implementation.registers is None
    assert one(import_runs([OLD, COUNTERS])).implementation.registers == 192


def test_agents_beside_a_trace_name_its_gpu():
    result = import_runs([CURRENT])
    record = one(result)
    assert (record.device.gpu, record.device.arch) == ("AMD Instinct MI300X", "gfx942")
    assert record.implementation.waves == 4
    assert not result.warnings


def test_without_agents_the_gpu_is_unknown_and_can_be_said():
    result = import_runs([OLD])
    assert (one(result).device.gpu, one(result).device.arch) == (None, "unknown")
    assert "agent_info.csv" in result.warnings[0]
    said = import_runs([OLD], spec={"arch": "gfx950", "gpu": "AMD Instinct MI355X"})
    assert (one(said).device.gpu, one(said).device.arch) == ("AMD Instinct MI355X", "gfx950")
    assert not said.warnings


def test_agents_given_choose_the_gpu_that_the_trace_names():
    assert one(import_runs([OLD, F / "agents" / "mixed.csv"])).device.arch == "gfx950"


@pytest.mark.parametrize("skip", [0, 5, 7])
def test_warm_up_is_dropped_from_each_kernel(skip):
    record = one(import_runs([CURRENT], skip_first=skip))
    assert record.times.published.n == 8 - skip
    assert (record.times.published.p10 is None) == (skip == 7)


def test_a_kernel_of_which_all_is_warm_up_is_left_out_and_said(tmp_path):
    lines = CURRENT.read_text().splitlines(keepends=True)
    path = tmp_path / "x.csv"
    path.write_text("".join(line for i, line in enumerate(lines) if i < 5 or "fmha" in line))
    result = import_runs([path])
    assert len(result.records) == 1
    assert any("reduce_kernel" in w and "--skip-first" in w for w in result.warnings)
    with pytest.raises(InputError, match="smaller --skip-first"):
        import_runs([path], skip_first=8)


def test_a_file_of_counters_gives_counters_and_no_times():
    result = import_runs([COUNTERS])
    record = one(result)
    assert record.times.model_dump(exclude_defaults=True) == {}
    assert record.counters == {"SQ_WAVES": 524288.0, "GRBM_GUI_ACTIVE": (800000 + 800 * 3.5) / 8}
    assert any("no times" in w for w in result.warnings)


@pytest.mark.parametrize("trace", [OLD, CURRENT, CONVERTED])
def test_counters_are_joined_with_the_times_of_the_same_kernel(trace):
    result = import_runs([trace, COUNTERS])
    record = one(result)
    assert record.times.published.median == 50.4
    assert record.counters["SQ_WAVES"] == 524288.0
    assert record.implementation.grid == (128, 64, 16)
    assert record.device.arch == "gfx942"
    assert "9_counter_collection.csv" in record.source
    assert one(result, "reduce").counters == {}


@pytest.mark.parametrize(("declared", "joined"), [("0", True), ("65024", True), ("66048", False)])
def test_lds_asked_for_at_launch_is_no_hindrance(tmp_path, declared, joined):
    """Of 65536 bytes that the trace has, the counters of a Triton kernel have 0."""
    path = tmp_path / "c.csv"
    path.write_text(COUNTERS.read_text().replace(",256,65536,", f",256,{declared},"))
    timed = [r for r in import_runs([OLD, path]).records if r.times.published and "fmha" in r.id]
    assert [bool(r.counters) for r in timed] == [joined]


def test_counters_that_fit_two_grids_are_joined_with_none(tmp_path):
    path = tmp_path / "t.csv"
    text = CURRENT.read_text()
    turned = text.replace(",32768,64,16\n", ",32768,16,64\n").split("\n", 1)[1]
    path.write_text(text + turned)
    result = import_runs([path, COUNTERS])
    assert any("fit several" in w for w in result.warnings)
    assert sorted(bool(r.counters) for r in result.records if "fmha" in r.id) == [False, False, True]


def test_sums_over_xcds_need_their_number(tmp_path):
    alone = Path(shutil.copy(COUNTERS, tmp_path / "c.csv"))
    result = import_runs([alone])
    assert set(one(result).counters) == {"SQ_WAVES"}
    assert any("GRBM_GUI_ACTIVE" in w and "--xcc" in w for w in result.warnings)
    assert one(import_runs([alone], xcc=4)).counters["GRBM_GUI_ACTIVE"] == (800000 + 800 * 3.5) / 4
    said = import_runs([COUNTERS], xcc=1)
    assert one(said).counters["GRBM_GUI_ACTIVE"] == 800000 + 800 * 3.5
    assert any("profile says 8" in w for w in said.warnings)


def test_times_of_the_run_that_collected_counters_are_left_out(tmp_path):
    """rocprofv3 --kernel-trace --pmc writes both files of one run."""
    counters = tmp_path / "5_counter_collection.csv"
    counters.write_text(COUNTERS.read_text())
    start = 5200098838431000
    lines = CURRENT.read_text().splitlines(keepends=True)
    trace = tmp_path / "5_kernel_trace.csv"
    trace.write_text(lines[0] + lines[1].replace("3200098838431000,3200098838521000", f"{start},{start + 91000}"))
    result = import_runs([trace, counters], skip_first=0, xcc=8)
    assert any("same run" in w for w in result.warnings)
    assert [r.times.published for r in result.records] == [None]
    assert any("lies beside" in w for w in import_runs([trace], skip_first=0).warnings)


def test_a_line_each_instance_of_a_counter_is_summed(tmp_path):
    path = tmp_path / "c.csv"
    lines = COUNTERS.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1] + lines[1])
    assert one(import_runs([path], skip_first=0)).counters == {"SQ_WAVES": 2 * 524288.0}


def test_rocprof_v1():
    record = one(import_runs([V1]), "copy")
    assert record.implementation.notes["kernel"] == "copy_kernel(float*, float*, int)"
    assert record.times.published.median == 8.25
    assert record.implementation.grid == (4096,)
    assert record.implementation.waves == 4
    joined = one(import_runs([V1, V1_COUNTERS], xcc=1), "copy")
    assert joined.times.published.median == 8.25
    assert joined.counters == {"SQ_WAVES": 16384.0, "GRBM_GUI_ACTIVE": 16003.5}


def test_rocpd(tmp_path):
    record = one(import_runs([write(tmp_path / "x.db")]))
    assert (record.device.gpu, record.device.arch) == ("AMD Instinct MI300X", "gfx942")
    assert (record.times.published.median, record.times.published.n) == (50.0, 3)
    assert record.implementation.grid == (128, 64, 16)
    assert (record.implementation.registers, record.implementation.waves) == (192, 4)


def test_rocpd_counters_are_summed_over_instances_and_joined(tmp_path):
    counted = write(tmp_path / "c.db", counters=True)
    record = one(import_runs([counted]))
    assert record.times.published is None
    assert record.counters == {"SQ_WAVES": 8 * 65536.0, "GRBM_GUI_ACTIVE": 100000.0}
    joined = one(import_runs([CURRENT, counted]))
    assert joined.counters == record.counters
    assert joined.times.published.median == 50.4
    assert joined.implementation.lds_bytes == 65536  # which the trace does not have


def test_rocpd_merged_and_without_uuid(tmp_path):
    merged = write(tmp_path / "m.db")
    write(merged, uuid="_0000aaaa_1111_7222_8333_444455556666", guid="other")
    assert one(import_runs([merged])).times.published.n == 6  # warm-up of each process
    assert one(import_runs([write(tmp_path / "plain.db", uuid="")])).times.published.n == 3


def test_names_of_files_do_not_matter(tmp_path):
    database = write(tmp_path / "kernel_trace.csv")
    trace = Path(shutil.copy(CURRENT, tmp_path / "results.db"))
    assert len(import_runs([database]).records) == 1
    assert len(import_runs([trace]).records) == 2


def test_traces_in_another_time_order_give_the_same(tmp_path):
    lines = CURRENT.read_text().splitlines(keepends=True)
    path = tmp_path / "t.csv"
    path.write_text(lines[0] + "".join(reversed(lines[1:])))
    assert one(import_runs([path])).times == one(import_runs([CURRENT])).times


def test_a_ragged_grid_is_rounded_up_and_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(CURRENT.read_text().replace(",32768,64,16\n", ",32700,64,16\n"))
    result = import_runs([path])
    assert one(result).implementation.grid == (128, 64, 16)
    assert any("rounded up" in w for w in result.warnings)


def test_spec_and_source_of_the_user():
    spec = parse_spec(["family=prefill", "batch=16", "causal=true", "dtype=bf16", "name=aiter-asm", "block_m=256"])
    result = import_runs([CURRENT], spec=spec, source="me, at home", kernel="fmha")
    record = one(result)
    assert (record.family, record.spec.batch, record.spec.causal, record.spec.dtype) == ("prefill", 16, True, "bf16")
    assert (record.implementation.name, record.implementation.block_m) == ("aiter-asm", 256)
    assert record.source == "me, at home"
    assert not result.warnings
    assert any("2 kernels" in w for w in import_runs([CURRENT], spec=spec).warnings)


def test_sidecar():
    result = import_runs([CURRENT], sidecar=F / "sidecar.yaml", spec={"page_size": 16})
    record = one(result)
    assert (record.family, record.spec.h_kv, record.spec.page_size) == ("prefill", 8, 16)
    assert record.implementation.name == "aiter-asm"
    assert record.times.cold.median == 50.4
    assert one(result, "reduce").family == "other"
    assert any("never_there" in w for w in result.warnings)


def test_records_survive_being_written(tmp_path):
    known = {"gpu": "AMD Instinct MI300X"}
    result = import_runs([CURRENT, COUNTERS, V1], spec=known)
    write_records(result.records, tmp_path / "r.jsonl")
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [parse_record(line, "r") for line in lines] == list(result.records)
    assert len({r.id for r in result.records}) == len(result.records)
    assert [r.id for r in import_runs([CURRENT, COUNTERS, V1], spec=known).records] == [r.id for r in result.records]
