"""Code that comes with kernbench is that of the recipes; other code needs Triton."""

import sys

import pytest

from kernbench.errors import InputError
from kernbench.realrun import amdgcn
from kernbench.realrun.amdgcn.assembly import ARCHITECTURES
from kernbench.realrun.compiled import code_for, shipped_code, shipped_kernels
from kernbench.realrun.compiled.code import shipped_sources, source_sha256, write_shipped
from kernbench.realrun.compiled.recipes import decode, reduction, shipped_recipes
from kernbench.realrun.compiled.triton_code import TRITON


def test_every_recipe_has_its_code():
    """A changed recipe needs `python -m kernbench.realrun.compiled`."""
    recipes = {f"{name}.{arch}": recipe for arch in ARCHITECTURES for name, recipe in shipped_recipes(arch).items()}
    assert {name: shipped_code(name).recipe for name in shipped_kernels()} == recipes


def test_the_code_is_that_of_the_sources():
    """A changed kernel needs `python -m kernbench.realrun.compiled`."""
    modules = {shipped_code(name).recipe.module for name in shipped_kernels()}
    assert shipped_sources() == {module: source_sha256(module) for module in modules}


def test_a_recipe_finds_its_code():
    code = code_for(decode("f16", 128), "gfx950")
    assert code.shipped == "decode_d128.gfx950"
    assert code.compiler == f"triton {TRITON}"
    assert code.recipe.constant("D") == 128
    kernel = amdgcn.load(code.text, "gfx950")["decode_partial"]
    assert len(kernel.arguments) == len(code.recipe.types) + 2, "Triton adds two pointers"


def test_what_needs_no_code_of_its_own():
    """As docs/machine-code-verify.md has it: up to 8 splits are merged by one kernel."""
    assert {code_for(reduction("f16", 64, splits), "gfx942").shipped for splits in range(1, 9)} == {"reduce_d64.gfx942"}
    assert reduction("f16", 64, 8) != reduction("f16", 64, 9)


def test_other_code_needs_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(InputError, match=r"pip install 'kernbench\[triton\]'") as caught:
        code_for(decode("f16", 128, rows=32, waves=2), "gfx950")
    wanted, _, comes = str(caught.value).partition("comes with kernbench for gfx950")
    assert "GP=32" in wanted
    assert "2 waves" in wanted
    assert "q bf16, k bf16, v bf16, k_scale fp32" in comes


def test_only_one_version_of_triton_will_do(monkeypatch):
    class Other:
        __version__ = "3.2.0"
        GPUTarget = ASTSource = None

    for name in ("triton", "triton.backends", "triton.backends.compiler", "triton.compiler"):
        monkeypatch.setitem(sys.modules, name, Other)
    with pytest.raises(InputError, match=f"Triton 3.2.0 is installed, but code is compiled by Triton {TRITON} only"):
        code_for(decode("f16", 128, rows=32), "gfx950")


def test_an_unknown_name():
    with pytest.raises(InputError, match=r"did you mean 'decode_d128.gfx942'"):
        shipped_code("decode_d128.gfx94")


def test_written_code_is_the_same_bytes_each_time(tmp_path):
    codes = {name: shipped_code(name) for name in ("mla.gfx942", "vsa.gfx950")}
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_shipped(codes, tmp_path / folder, "some compiler")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
