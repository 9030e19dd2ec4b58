"""Whether kernbench and a checkout agree on specs: a stand-in that does, and copies that are broken on purpose."""

import json

from kernbench.realrun.rocke.agree import compare_specs
from kernbench.realrun.rocke.checkout import Checkout, find_layout
from kernbench.realrun.rocke.crosscheck import cross_check
from kernbench.realrun.rocke.llvm import flavour
from kernbench.realrun.rocke.payloads import payload_of
from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape, VsaSparseSpec
from tests.realrun.rocke.copies import KERNELS, QK_SCALE, SAGE, SHARED, SPARSE, copy_to, edit
from tests.realrun.test_commands import realrun

SPECS = 120


def test_a_sound_checkout_agrees_on_everything_and_is_left_alone(tmp_path):
    root = copy_to(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    found = cross_check(root, specs=SPECS, execute=0)
    assert found.differences == []
    assert 0.2 * SPECS < found.agreement.legal < 0.8 * SPECS
    assert set(found.agreement.compared) == {"making", "validity", "building", "name", "grid", "signature"}
    assert found.agreement.compared["making"] == SPECS
    assert found.agreement.compared["grid"] == found.agreement.legal
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


BROKEN = {
    "validity on gfx1250": (SHARED, "arch in NARROW_ATOM", "arch in NARROW_ATOM | WITHOUT_NARROW_ATOM"),
    "making": (QK_SCALE, '{"per_head", "per_block"}', '{"per_head", "per_block", "per_token"}'),
    "building on gfx942": (SAGE, "spec.common.shape.head_size != 128:", "False:"),
    "building on gfx950": (SAGE, "i4 is for heads", "i4 is only for heads"),  # the same as on gfx942
    "name": (SPARSE, 'f"MB{self.max_blocks_per_q}"', '""'),
    "grid": (SPARSE, "spec.seqlen_q // 16, spec", "spec.seqlen_q // 32, spec"),
    "signature": (SPARSE, 'pointer("mask", "i8")', 'pointer("mask", "i32")'),
}


def test_each_thing_that_differs_is_named(tmp_path):
    root = copy_to(tmp_path)
    for old_and_new in BROKEN.values():
        edit(root, *old_and_new)
    found = cross_check(root, specs=2 * SPECS, execute=0).differences
    assert {difference.what for difference in found} == set(BROKEN)
    for difference in found:
        family = {"name": "Vsa", "signature": "Jenga", "building on gfx942": "Sage", "making": "Sage"}
        assert difference.subject.startswith(family.get(difference.what, ""))
        assert difference.kernbench != difference.checkout


def test_a_rule_that_raises_is_compared_with_one_that_answers(tmp_path):
    root = copy_to(tmp_path)
    edit(root, SPARSE, "spec.seqlen_k % spec.block_k == 0", "spec.block_k == 0 or spec.seqlen_k % spec.block_k == 0")
    spec = payload_of(VsaSparseSpec(FmhaCommonSpec(FmhaShape(64, 2, 2)), 16, 32, block_k=0))
    with Checkout(find_layout(root), flavour()) as checkout:
        checkout.ask("load", "importing it")
        found = compare_specs(checkout, [spec], []).differences
    assert "validity on gfx942" in {difference.what for difference in found}
    assert all(d.kernbench.startswith("raises ZeroDivisionError") and d.checkout == "accepted" for d in found)


def test_other_fields_are_told_and_end_the_comparison(tmp_path):
    root = copy_to(tmp_path)
    edit(root, SHARED, "block_size_q: int = 16", "block_size_q: int = 32")
    edit(root, QK_SCALE, "stride_block: int = 1", "block_stride: int = 1")
    edit(root, SPARSE, "block_k: int = 64", "block_k: int")
    edit(root, SPARSE, "block_q: int = 1\n", "block_q: int\n")
    found = cross_check(root, specs=SPECS, execute=0)
    assert {d.what for d in found.differences} == {"field"}
    assert {d.subject: (d.kernbench, d.checkout) for d in found.differences} == {
        "FmhaShape.block_size_q": ("16", "32"),
        "QkScaleSpec.stride_block": ("1", "no such field"),
        "QkScaleSpec.block_stride": ("no such field", "1"),
        **{f"{family}Spec.block_k": ("64", "no default") for family in ("JengaSparse", "VsaSparse")},
        **{f"{family}Spec.block_q": ("1", "no default") for family in ("JengaSparse", "VsaSparse")},
    }
    assert found.specs == 0


def test_the_command_ends_with_1_if_something_differs(tmp_path):
    root = copy_to(tmp_path)
    edit(root, *BROKEN["grid"])
    file = tmp_path / "all.json"
    result = realrun("rocke", "--rocke", root, "--specs", SPECS, "--execute", 0, "--json", file)
    assert result.exit_code == 1, result.output
    data = json.loads(file.read_text())
    assert data["specs"] == data["compared"]["making"] == SPECS
    assert {difference["what"] for difference in data["differences"]} == {"grid"}
    assert f"{len(data['differences'])} differences" in result.stdout
    assert f"and {len(data['differences']) - 10} more" in result.stdout


def test_what_a_checkout_prints_and_reads_disturbs_nothing(tmp_path):
    root = copy_to(tmp_path)
    edit(root, KERNELS, 'print("the', 'import os\n\nos.write(1, b"{}\\n")\nassert open(0).read() == ""\nprint("the')
    assert cross_check(root, specs=3, execute=0).differences == []
