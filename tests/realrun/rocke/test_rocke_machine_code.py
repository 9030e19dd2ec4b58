"""The whole way, from a checkout's IR to values and counts; and kernels of the stand-in that are wrong on purpose."""

import json

import numpy as np
import pytest

from kernbench.realrun.rocke.checkout import Checkout, find_layout
from kernbench.realrun.rocke.crosscheck import CrossCheck, write_crosscheck
from kernbench.realrun.rocke.draw import draw_executable
from kernbench.realrun.rocke.llvm import flavour
from kernbench.realrun.rocke.machine_code import execute_kernel
from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape, JengaSparseSpec, QkScaleSpec, SageAttentionSpec
from tests.realrun.rocke.copies import LOWERING, ROWS, STANDIN, TILED, copy_to, edit
from tests.realrun.test_commands import realrun

KINDS = 8
"""Kinds of kernels that are drawn in turn."""
PER_HEAD = QkScaleSpec("per_head")
BY_ROWS = SageAttentionSpec(FmhaCommonSpec(FmhaShape(64, 1, 1)), "fp16_bf16", PER_HEAD, PER_HEAD, 3, 5)
BY_TILES = JengaSparseSpec(FmhaCommonSpec(FmhaShape(32, 1, 1)), 16, 64, block_q=16, block_k=32)


def executed(root, spec, arch="gfx942"):
    with Checkout(find_layout(root), flavour()) as checkout:
        checkout.ask("load", "importing it")
        done, differences = execute_kernel(checkout, spec, arch, np.random.default_rng(0))
    return done, {difference.what: difference for difference in differences}


def test_kernels_of_every_kind_compute_and_work_as_kernbench_says(tmp_path):
    file = tmp_path / "all.json"
    result = realrun("rocke", "--rocke", STANDIN, "--specs", 3, "--execute", KINDS, "--arch", "gfx942", "--json", file)
    assert result.exit_code == 0, result.output
    assert "no difference" in result.stdout
    rows = json.loads(file.read_text())["executed"]
    assert len(rows) == KINDS
    for row in rows:
        assert row["right"]
        assert row["counted"] == row["expected"]
        by_rows = row["counted"]["mfma"] == 0
        assert row["equal"] == 1 if by_rows else row["equal"] > 0.98
    assert sum(row["counted"]["mfma"] == 0 for row in rows) == 4


def test_fp8_bytes_are_read_as_the_architecture_reads_them():
    spec = draw_executable(0, KINDS)[-1]
    assert spec.quant_mode == "fp8_bf16"
    done, differences = executed(STANDIN, spec, "gfx950")
    assert differences == {}
    assert (done.arch, done.equal) == ("gfx950", 1)


WRONG = {
    "a scale that is too large": (
        BY_ROWS, ROWS, 'fn.fmul(fn.fmul(dot, "%scale_log2"), both)', 'fn.fmul(fn.fmul(dot, "1.0"), both)',
    ),
    "sums that are never rescaled": (BY_ROWS, ROWS, "fn.exp2(fn.fsub(old, top))", '"1.0"'),
    "the wrong block": (BY_TILES, TILED, "div(key, self.spec.block_k)", "div(key, 2 * self.spec.block_k)"),
}  # fmt: skip


@pytest.mark.parametrize("defect", WRONG)
def test_wrong_values_are_found(tmp_path, defect):
    root = copy_to(tmp_path)
    spec, *change = WRONG[defect]
    edit(root, *change)
    done, differences = executed(root, spec)
    assert "values on gfx942" in differences
    assert not done.right


def test_more_work_than_the_tiles_say_is_found(tmp_path):
    root = copy_to(tmp_path)
    twice = """\
            product = self.multiply(a, b, product)
            product = self.multiply(a, "zeroinitializer", product)"""
    edit(root, TILED, "            product = self.multiply(a, b, product)", twice)
    done, differences = executed(root, BY_TILES)
    assert set(differences) == {"mfma of machine code on gfx942"}
    assert done.values.passed
    assert done.counted.mfma == done.expected.mfma * 3 // 2
    assert not done.right


def test_an_output_that_is_not_written_is_found_and_its_error_is_null_in_the_file(tmp_path):
    root, file = copy_to(tmp_path), tmp_path / "all.json"
    edit(root, ROWS, "factor = fn", 'fn.lines.append("  ret void\\nnever:")\n        factor = fn')
    done, differences = executed(root, BY_ROWS)
    assert {"values on gfx942", "written_bytes of machine code on gfx942"} <= set(differences)
    assert "192 values are NaN" in differences["values on gfx942"].checkout
    assert done.counted.written_bytes == 0
    write_crosscheck(CrossCheck(find_layout(root), flavour(), executed=[done]), file)
    (row,) = json.loads(file.read_text())["executed"]
    assert row["values"]["rel_l2"] is row["to_float64"] is None
    assert not row["right"]


BODY = "head + body"
REFUSED = {
    "out of bounds": (ROWS, 'self.start("o", query', 'self.start("o", fn.add(query, 1 << 20)', "out of bounds"),
    "no IR": (LOWERING, BODY, "head + body[:-20]", "refuses the IR"),
    "for another machine": (LOWERING, '"amdgcn-amd-amdhsa"', '"nvptx64-nvidia-cuda"', "the IR is for 'nvptx64"),
    "by another name": (LOWERING, BODY, 'head + body.replace("@rocke_sage", "@other")', "other_attention_fp16"),
    "with fewer arguments": (
        LOWERING,
        BODY,
        'head + body.replace("i32 %seqlen_q,", "")',
        "arguments given, takes 16",
    ),
    "not lowered": (LOWERING, "body = kernel", "raise NotImplementedError('later')\n    body = kernel", "later"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_kernel_that_cannot_be_executed_is_a_difference(tmp_path, case):
    *change, says = REFUSED[case]
    root = copy_to(tmp_path)
    edit(root, *change)
    done, differences = executed(root, BY_ROWS)
    assert done is None
    assert says in differences["machine code on gfx942"].checkout
