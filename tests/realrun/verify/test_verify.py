"""The compiled kernel of a spec computes what the bench computes, and does the work that the bench is charged for."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.errors import InputError, SpecError
from kernbench.realrun.verify import MACHINES, find_case, named_specs, verify
from kernbench.realrun.verify.screen import summary

ARCHITECTURES = ["gfx942", "gfx950"]
UNEXPLAINED = ("sage_row_i4",)
"""Reads its factors once a tile of 16 keys, which the bench does once a block: 0.1 % of all bytes."""
LOW_ROWS = {"decode_partial", "paged_partial", "mla_partial"}
"""Kernels with 16 rows: Triton lets each wave make the whole product of scores."""


def run(*words):
    return CliRunner().invoke(app, ["realrun", "verify", *words])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", named_specs())
def test_every_named_spec(name, arch):
    found = verify(find_case(name, arch))
    assert found.passed, found
    assert found.between.rel_l2 <= found.machine_code.tolerance / 2
    for launch in found.launches:
        assert launch.code.endswith(arch), "its code comes with kernbench"
        work = launch.work
        for kind in ("matrix operations", "global bytes written"):
            assert work[kind].counted == work[kind].charged
        for kind in ("exponentials", "global bytes read"):
            assert work[kind].counted == work[kind].charged or work[kind].note
            assert "not explained" not in work[kind].note or name in UNEXPLAINED
        assert (launch.implementation["score_copies"] > 1) == (launch.kernel in LOW_ROWS and launch.waves > 1)
        assert launch.implementation["registers"] == launch.registers
        assert launch.implementation["lds_bytes"] == launch.lds_bytes
        assert 0 < launch.bound.cycles == max(launch.bound.matrix, launch.bound.vector, launch.bound.lds)
        assert launch.bound.transcendental < launch.bound.vector
    assert list(summary(name, found)[2:]) == documented(arch)[name], "docs/machine-code-verify.md is out of date"


@cache
def documented(arch):
    """Counts of each spec as the document has them."""
    text = (Path(__file__).parents[3] / "docs" / "machine-code-verify.md").read_text()
    table = text.split(f"verify --all --arch {arch}\n")[1].split("\n$ ")[0].split("```")[0]
    rows = [re.split(r" {2,}", line.strip()) for line in table.splitlines()[2:]]
    return {row[0]: row[2:] for row in rows if row[0] in named_specs()}


def test_a_wave_by_itself_makes_no_product_twice():
    """The same decode with four waves and with one: what differs is only who makes the product of scores."""
    four, one = (verify(find_case(name, "gfx942")).launches[0] for name in ("decode_d128", "decode_one_wave"))
    assert four.work["matrix operations"].counted == 2.5 * one.work["matrix operations"].counted
    assert four.work["global bytes read"] == one.work["global bytes read"]


@pytest.mark.parametrize("kept", ["captured", "random"])
def test_captured_and_random_inputs(kept):
    settings = {"h_q": 9, "h_kv": 3, "T_q": 130, "S_kv": 130}
    found = verify(find_case("prefill_d64_causal", "gfx942", settings), inputs=kept)
    assert found.inputs == kept
    assert found.passed, found


@pytest.mark.parametrize(("keys", "splits"), [(1, 1), (63, 2), (64, 8), (65, 5)])
def test_lengths_that_hurt(keys, splits):
    found = verify(find_case("decode_d64", "gfx950", {"S_kv": keys, "h_q": 6, "h_kv": 2, "splits": splits}))
    assert found.passed, found


def test_both_are_held_to_float64():
    case = find_case("decode_d64", "gfx942", {"S_kv": 64})
    wrong = replace(case.bench, reference=lambda spec, arrays: 1.01 * case.bench.reference(spec, arrays))
    found = verify(replace(case, bench=wrong))
    assert not found.machine_code.passed
    assert not found.simulated.passed
    assert not found.passed
    assert found.between.passed
    right = verify(case)
    assert right.passed
    for part in ("machine_code", "simulated"):
        assert not right.model_copy(update={part: getattr(found, part)}).passed


def test_the_command_prints_values_work_and_time(tmp_path):
    file = tmp_path / "v.json"
    done = run("prefill_d64_causal", "--arch", "gfx950", "--set", "S_kv=97", "--set", "T_q=97", "--json", str(file))
    assert done.exit_code == 0, done.output
    for text in ("machine code (executed on a CPU) - float64", "bench (simulated) - float64", "machine code - bench",
                 "matrix operations", "exponentials", "global bytes read", "LDS bytes a tile", "cycles: at least",
                 "counts and published issue rates", "simulated"):  # fmt: skip
        assert text in done.output
    written = json.loads(file.read_text())
    assert written["arch"] == "gfx950"
    assert written["topology"] == MACHINES["gfx950"]
    (launch,) = written["launches"]
    assert launch["work"]["matrix operations"]["charged"] == launch["work"]["matrix operations"]["counted"]
    assert str(launch["simulated_cycles"]) in done.output.replace(",", "")


def test_the_same_twice(tmp_path):
    first, second = (verify(find_case("sage_fp8", "gfx942")).model_dump_json() for _ in range(2))
    assert first == second


def test_a_result_of_run_can_be_verified(tmp_path):
    file = tmp_path / "run.json"
    sizes = ("dtype=f16", "T_q=50", "S_kv=50", "BLOCK_M=64", "BLOCK_N=32", "waves=2", "lds_bytes=8192")
    words = [word for size in sizes for word in ("--set", size)]
    done = CliRunner().invoke(app, ["run", "fa2_prefill", "--topology", "mi300x", "--json", str(file), *words])
    assert done.exit_code == 0, done.output
    assert run(str(file), "--arch", "gfx942").exit_code == 0


def test_a_verification_can_be_verified_for_its_own_architecture(tmp_path):
    file = tmp_path / "v.json"
    assert run("vsa", "--arch", "gfx950", "--json", str(file)).exit_code == 0
    assert run(str(file), "--arch", "gfx950").exit_code == 0
    other = run(str(file), "--arch", "gfx942")
    assert other.exit_code == 2
    assert "is for arch=gfx950, but --arch is gfx942" in other.output


def test_odd_inputs_are_named(tmp_path):
    """What is not finite in the inputs is not the kernel's fault."""
    file = tmp_path / "odd.npz"
    values = np.ones((70, 2, 64), np.float16)
    np.savez(file, q=values, k=np.where(np.arange(70)[:, None, None] == 3, np.nan, values), v=values)
    done = run("prefill_d64", "--inputs", str(file), "--set", "h_q=2", "--set", "h_kv=2", "--set", "T_q=70", "--set",
               "S_kv=70")  # fmt: skip
    assert done.exit_code == 1
    assert "k as float16 holds 128 NaN or infinite values" in done.output.replace("\n", " ")


def test_a_bench_and_a_file(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text("bench: jenga_sparse\nT_q: 32\nS_kv: 64\nblock_k: 16\n")
    assert run(str(file), "--arch", "gfx950").exit_code == 0
    case = find_case("sage_attention", "gfx942")
    assert (case.spec.form, case.spec.arch) == ("faithful", "gfx942")


def test_all_of_them(monkeypatch, tmp_path):
    specs = {name: named_specs()[name] for name in ("sage_causal", "vsa")}
    monkeypatch.setattr("kernbench.realrun.verify.named_specs", lambda: specs)
    file = tmp_path / "all.json"
    done = run("--all", "--arch", "gfx950", "--json", str(file))
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in specs)
    assert [each["bench"] for each in json.loads(file.read_text())] == ["sage_attention", "vsa_sparse"]
    assert run("--all", "vsa").exit_code == run("--all", "--set", "T_q=32").exit_code == 2


def test_the_list():
    done = run("--list")
    assert done.exit_code == 0
    assert all(name in done.output for name in named_specs())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("decode_d46",), "'decode_d46' is no spec, no bench and no file (did you mean 'decode_d64'?)"),
        ((), "which spec?"),
        (("decode_d64", "--arch", "gfx1100"), "unknown architecture 'gfx1100'"),
        (("gqa_prefill",), "bench gqa_prefill is written for a mesh"),
        (("decode_multi_gpu",), "on several GPUs"),
        (("ultraquant_decode",), "there is no compiled kernel that divides the work as decode does"),
        (("decode_d64", "--set", "score_copies=2"), "score_copies cannot be set here: the compiler decides"),
        (("sage_f16", "--set", "arch=gfx950"), "sage_f16 is for arch=gfx950, but --arch is gfx942"),
        (("decode_d64", "--set", f"S_kv={10**11}"), "out of memory"),
        (("--list", "--json", "x.json"), "--list writes no file"),
        (("--all", "--inputs", "captured"), "--all verifies the named specs as they are"),
        (("prefill_d64", "--set", "T_q=64"), "takes as many queries as keys (300)"),
        (("prefill_d64", "--set", "d_head=80"), "d_head=80: compiled kernels take a power of two"),
        (("prefill_d64", "--set", "depth=3"), "unknown field 'depth'"),
        (("prefill_d64", "--set", "BLOCK_N=48"), "Triton"),
        (("paged_decode", "--set", "kv_dtype=i8"), "the compiled paged kernel has no factors"),
    ],
)
def test_errors_say_what_is_wrong(words, message):
    done = run(*words)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output


def test_a_file_that_says_no_bench(tmp_path):
    file = tmp_path / "spec.yaml"
    for text in ("T_q: 32\n", "[1, 2]\n", "bench: {\n", "bench: fa2_prefill\nT_q: 1\nT_q: 2\n"):
        file.write_text(text)
        with pytest.raises(InputError, match=r"spec\.yaml"):
            find_case(str(file), "gfx942")
    file.write_text("bench: fa2_prefill\ncolour: red\n")
    with pytest.raises(SpecError, match="colour"):
        find_case(str(file), "gfx942")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bench: jenga_sparse\n1: 2\n", "1 is no name of a field"),
        ("bench: jenga_sparse\nkernbench_version: 1\nspec: [1]\n", "spec is [1], expected a mapping"),
        ("bench: jenga_sparse\nkernbench_version: 1\nspec: {}\nimplementation: 7\n", "implementation is 7, expected"),
        ("x: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
    ],
)
def test_a_file_of_the_wrong_kinds(tmp_path, text, message):
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        find_case(str(file), "gfx942")


def test_a_name_too_long_for_a_file():
    with pytest.raises(InputError, match="no file"):
        find_case("a" * 5000, "gfx942")
