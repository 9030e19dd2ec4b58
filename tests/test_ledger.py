"""The ledger: where figures come from, and what of a run lies outside what was measured."""

import json
from collections import Counter

import pytest

import kernbench as kb
from kernbench.bench import all_benches, find_bench
from kernbench.ledger import Ledger, ledger_of
from kernbench.machine import describe, topology_names
from kernbench.realrun.compare import compare
from kernbench.realrun.predict import machine_of, predict
from kernbench.realrun.sources import read_records, shipped_records
from kernbench.realrun.validated import covered
from kernbench.run import run_bench
from kernbench.screen import ledger_text
from kernbench.specs.attention import DecodeSpec
from kernbench.validated import FILE, measured_families, write_measured_families

MACHINES = {name: kb.load_machine(path) for name, path in topology_names().items()}
GPUS = [name for name, machine in MACHINES.items() if machine.holds_workgroups]


# ---------------------------------------------------------------- figures
@pytest.mark.parametrize("name", MACHINES)
def test_every_figure_is_in_the_ledger_once_with_one_origin(name):
    ledger = ledger_of(MACHINES[name])
    assert [(f.key, f.value, f.note) for f in ledger.figures] == [tuple(f) for f in describe(MACHINES[name])]
    assert sum(ledger.counts.values()) == len(ledger.figures)
    assert {origin: n for origin, n in ledger.counts.items() if n} == Counter(f.origin for f in ledger.figures)
    assert ledger.counts["unstated"] == ledger.counts["changed"] == 0
    assert Ledger.model_validate_json(ledger.model_dump_json()) == ledger


def test_the_note_decides_the_origin_and_a_shape_is_chosen():
    origins = {f.key: f.origin for f in ledger_of(MACHINES["mi355x"]).figures}
    assert origins["sip.cubes.columns"] == "chosen"
    assert origins["cube.pes.columns"] == "sourced"  # "32 CUs, source: ..."
    assert origins["pe.workgroup.end"] == "calibrated"
    plain = ledger_of(kb.load_machine(json.loads(json.dumps(MACHINES["row4_pe8"].document))))
    shape = {"sip.cubes.arrangement", "sip.cubes.columns", "sip.cubes.rows", "cube.pes.columns", "cube.pes.rows"}
    assert {f.key for f in plain.figures if f.origin == "chosen"} == shape
    assert plain.counts["unstated"] == len(plain.figures) - len(shape)


def test_overrides_are_changed_whatever_the_file_said_and_links_are_told_apart():
    link = {"from": "sip0.cube0", "to": "sip0.cube1", "bandwidth": "64 GB/s"}
    before = ledger_of(MACHINES["row4_pe8"])
    ledger = ledger_of(MACHINES["row4_pe8"].with_overrides({"pe.clock": "2 GHz", "links": [link]}))
    assert [f.key for f in ledger.figures if f.origin == "changed"][:2] == ["pe.clock", "links[0].from"]
    assert ledger.counts["assumed"] == before.counts["assumed"] - 1
    written = ledger_of(kb.load_machine(dict(MACHINES["row4_pe8"].document) | {"links": [link]}))
    assert {f.key: f.origin for f in written.figures if f.key.startswith("links")} == {
        "links[0].from": "chosen", "links[0].to": "chosen", "links[0].bandwidth": "unstated",
    }  # fmt: skip


# ---------------------------------------------------------------- what was measured
def said(topology, bench=None, **settings):
    spec = find_bench(bench).spec(**settings) if bench else None
    machine = kb.load_machine(topology) if isinstance(topology, str) else topology
    return ledger_of(machine, bench and find_bench(bench), spec).outside_validation


def test_a_mesh_says_once_that_nothing_was_measured():
    (sentence,) = said("row4_pe8", "gqa_decode_long")
    assert "no measured run" in sentence


def test_a_spec_among_the_measured_ones_says_nothing():
    inside = {"batch": 4, "h_q": 32, "h_kv": 8, "d_head": 128, "S_kv": 8192}
    assert said("h200", "decode_splitkv", **inside) == ()
    assert said("h200") == ()
    wide = said("h200", "decode_splitkv", **inside | {"S_kv": 1 << 20, "d_head": 512})
    assert [s.split(" ")[0] for s in wide] == ["S_kv=1048576", "d_head=512"]
    assert "S_kv 512 to 200,000" in wide[0]
    (other,) = said("h200", "fa2_prefill", **inside | {"T_q": 1024, "dtype": "f16"})
    assert other == "dtype=f16 was not measured: prefill was measured on h200 with dtype bf16"
    (page,) = said("h200", "paged_decode", **inside | {"PAGE": 1024})
    assert "PAGE=1024" in page
    (heads,) = said("h200", "mla_decode_grid", S_kv=2048, h_q=8)
    assert "h_q=8" in heads


def test_a_family_or_machine_that_was_never_measured_is_named():
    assert said("mi355x", "decode_splitkv") == ("decode_splitkv was not measured on mi355x; measured there: prefill",)
    assert said("mi325x", "fa2_prefill") == (
        "times on mi325x are not validated: they were held against no measured run",
    )
    (own,) = said("h200", "sage_attention", form="faithful")
    assert "sage_attention" in own


def test_a_mesh_bench_is_judged_by_the_form_that_the_machine_runs():
    settings = {"dtype": "bf16", "S_kv": 100}
    assert said("h200", "mla_decode", **settings) == said("h200", "mla_decode_grid", **settings) != ()


def test_changed_figures_are_not_those_that_were_measured():
    changes = {"sip.memory.bandwidth": "9.6 TB/s"}
    (sentence,) = said(kb.load_machine("h200", changes))
    assert sentence == "h200 was measured with other figures than these: sip.memory.bandwidth changed"
    assert said(kb.load_machine("h200", {"sip.memory.bandwidth": "4800 GB/s"})) == ()  # the same, written otherwise
    copied = kb.load_machine(dict(MACHINES["h200"].document) | {"launch": {"cold": "1 us", "graph": "1 us",
                                                                          "dispatch": "1 ns"}})  # fmt: skip
    assert "launch.cold" in said(copied)[0]


@pytest.mark.parametrize("name", GPUS)
def test_a_description_says_not_validated_exactly_where_nothing_was_measured(name):
    measured = {f.machine for f in measured_families()}
    assert ("not validated" in MACHINES[name].description) == (name not in measured)


def test_every_family_that_a_bench_names_was_measured_somewhere():
    named = {bench.family for bench in all_benches().values() if getattr(bench, "family", None)}
    assert len(named) >= 5
    assert named <= {f.family for f in measured_families()}


# ---------------------------------------------------------------- the shipped file
def test_runs_that_are_compared_lie_within_what_the_file_says():
    records = [r for path in shipped_records() for r in read_records(path).records][::40]
    here = {(f.machine, f.family): f for f in measured_families()}
    found = covered(compare(records, predict).rows, records)
    assert len(found) >= 5
    for part in found:
        whole = here[part.machine, part.family]
        assert part.times <= whole.times
        assert all(whole.sizes[n][0] <= low <= high <= whole.sizes[n][1] for n, (low, high) in part.sizes.items())
        assert all(set(formats) <= set(whole.formats[n]) for n, formats in part.formats.items())


def test_what_the_file_says_is_reached_by_a_record_of_that_family():
    records = [r for path in (*shipped_records(), FILE.parent / "h200_blind.jsonl") for r in read_records(path).records]
    for whole in measured_families():
        mine = [r.spec for r in records if r.family == whole.family and r.device.gpu is not None]
        for name, limits in whole.sizes.items():
            assert set(limits) <= {getattr(spec, name) for spec in mine}, (whole.family, name)


def test_the_file_is_read_back_as_it_was_written(tmp_path):
    write_measured_families(measured_families(), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == FILE.read_bytes()


def test_records_that_gave_no_row_cover_nothing():
    records = [r for r in read_records(shipped_records()[0]).records if r.family == "decode_splitkv"]
    (one,) = covered(compare(records[:1], predict).rows, records)
    assert (one.machine, one.family) == (machine_of(records[0]).name, "decode_splitkv")
    assert one.sizes["s_kv"] == (records[0].spec.s_kv, records[0].spec.s_kv)


# ---------------------------------------------------------------- in runs
def test_a_run_carries_its_ledger_and_values_have_no_doubts():
    bench, machine, spec = find_bench("gqa_decode_long"), MACHINES["row4_pe8"], DecodeSpec(S_kv=64)
    timed, untimed = (run_bench(bench, machine, spec, mode=mode).ledger for mode in ("time", "values"))
    assert timed == ledger_of(machine, bench, spec)
    assert untimed.figures == timed.figures
    assert untimed.outside_validation == ()


def test_what_is_warned_of_is_not_said_again():
    bench = find_bench("decode_splitkv")
    result = run_bench(bench, MACHINES["mi325x"], bench.spec(S_kv=64), mode="time")
    (doubt,) = result.ledger.outside_validation
    assert result.warnings.count(doubt) == 1
    assert ledger_text(result.ledger, result.warnings) == result.ledger.summary
    assert ledger_text(result.ledger) == f"{result.ledger.summary}; {doubt}"
