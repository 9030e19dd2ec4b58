"""Mesh benches on GPU-like machines: the originals' launch grids, and twins that are grid benches."""

import numpy as np
import pytest
from typer.testing import CliRunner

import kernbench as kb
from kernbench.bench import GridBench, apply_settings, find_bench
from kernbench.cli import app
from kernbench.errors import InputError, SpecError
from kernbench.on_grid import form_for
from kernbench.run import run_bench
from kernbench.specs.mla import MlaDecodeSpec

MI355X, H200 = kb.load_machine("mi355x"), kb.load_machine("h200")
FMHA = {"form": "faithful", "T_q": 32, "S_kv": 80, "h_q": 4, "h_kv": 2}
SPECS = (
    ("sage_attention", FMHA | {"mask_mode": "causal"}, (2, 4, 1)),
    ("sage_attention", FMHA | {"quant_mode": "i8_fp8_bf16", "T_q": 5}, (5, 4, 1)),
    ("jenga_sparse", FMHA | {"block_k": 16}, (2, 4, 1)),
    ("vsa_sparse", FMHA | {"block_k": 16}, (2, 4, 1)),
    ("ultraquant_decode", {"num_seqs": 2, "seq_lens": "300,17", "num_kv_heads": 2}, (2, 2, 2)),
    ("ultraquant_reduce", {"num_seqs": 2, "seq_lens": "300,17", "num_kv_heads": 2}, (2, 16, 4)),
)
FORMS = ("sage_attention", "jenga_sparse", "vsa_sparse", "ultraquant_decode", "ultraquant_reduce")


def ran(name, settings, machine=MI355X, **options):
    bench = find_bench(name)
    spec, implementation = apply_settings(form_for(bench, machine)[0], settings)
    return run_bench(bench, machine, spec, implementation=implementation, **options)


def command(*words):
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(("name", "settings", "grid"), SPECS)
def test_the_faithful_form_is_one_launch_of_the_originals_grid(name, settings, grid):
    result = ran(name, settings)
    assert result.passed
    assert result.bench == name
    assert result.makespan_ps > MI355X.spec.launch.graph
    (launch,) = result.launches
    assert tuple(launch.grid) == grid
    assert result.pes == np.prod(grid)
    assert result.implementation["waves"] == 1


@pytest.mark.parametrize(("name", "settings", "grid"), SPECS)
def test_both_engines_give_the_same_picoseconds(name, settings, grid):
    compiled, simpy = (ran(name, settings, mode="time", engine=engine) for engine in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps > 0
    assert compiled.time_by_cause == simpy.time_by_cause


@pytest.mark.parametrize("topology", ["h200", "mi300x8"])
def test_other_machines_run_it_too(topology):
    result = ran("sage_attention", FMHA, kb.load_machine(topology))
    assert result.passed
    assert result.makespan_ps > 0


def test_what_a_workgroup_occupies_can_be_set():
    few, many = (ran("vsa_sparse", FMHA | {"lds_bytes": n, "block_k": 16}, mode="time") for n in (1024, 81920))
    assert few.launches[0].workgroups_per_pe > many.launches[0].workgroups_per_pe == 2


@pytest.mark.parametrize("name", FORMS)
def test_the_spatial_form_is_refused(name):
    with pytest.raises(InputError, match=r"form=spatial.* is written for a mesh .*set form=faithful"):
        ran(name, {"form": "spatial"}, mode="time")
    has_other_default = find_bench(name).spec().form == "faithful"
    shown = command("run", name, "--topology", "mi355x", *(("--set", "form=spatial") if has_other_default else ()))
    assert shown.exit_code == 2
    assert shown.output.count("kernbench:") == 1
    assert ("form=spatial, the default," in shown.output) != has_other_default


@pytest.mark.parametrize("name", FORMS)
def test_it_is_checked_on_a_gpu(name):
    cases = [case for case in find_bench(name).cases if case.topology == "mi355x"]
    assert 1 <= len(cases) <= 2
    assert all(ran(name, case.settings, mode="values", inputs=case.inputs).passed for case in cases)


def test_mla_decode_runs_its_twin_and_says_so():
    shown = command("run", "mla_decode", "--topology", "h200", "--set", "S_kv=200", "--set", "splits=3")
    assert shown.exit_code == 0, shown.output
    assert "PASS" in shown.output
    assert "ran mla_decode_grid, the form for machines whose PEs hold workgroups" in " ".join(shown.output.split())
    named, twin = (ran(name, {"S_kv": 200}, H200) for name in ("mla_decode", "mla_decode_grid"))
    assert named.bench == twin.bench == "mla_decode_grid"
    assert named.makespan_ps == twin.makespan_ps
    assert set(named.warnings) - set(twin.warnings) == {named.warnings[0]}


def test_settings_and_specs_of_the_other_form_are_errors():
    with pytest.raises(SpecError, match="unknown field 'split_S_kv'"):
        ran("mla_decode", {"split_S_kv": "cube"}, H200)
    with pytest.raises(SpecError, match="unknown spec field 'BLOCK_N'"):
        ran("mla_decode", {"BLOCK_N": 64}, kb.load_machine("row4_pe8"))
    with pytest.raises(InputError, match=r"h200 runs bench mla_decode as mla_decode_grid, which takes a Latent"):
        run_bench(find_bench("mla_decode"), H200, MlaDecodeSpec())


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "sage_attention", "--topology", "mi355x", "--set", "form=faithful"),
        ("run", "sage_attention", "--topology", "mi355x", "--set", "form=faithful", "--trace", "x.pftrace"),
        ("explain", "mla_decode", "--topology", "h200"),
        ("run", "sage_attention", "--set", "registers=64"),
    ],
)
def test_misuse_is_one_message(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = command(*words)
    assert shown.exit_code == 2
    assert shown.output.count("kernbench:") == 1
    assert not list(tmp_path.iterdir())


def test_a_mesh_keeps_the_mesh_form():
    bench = find_bench("sage_attention")
    assert form_for(bench, kb.load_machine("row4_pe8")) == (bench, ())
    assert isinstance(form_for(bench, MI355X)[0], GridBench)
