"""Machine code for recipes: what comes with kernbench, and what an installed Triton makes."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernbench.errors import InputError, nearest
from kernbench.realrun.compiled.recipes import Recipe

SHIPPED = Path(__file__).parent / "code"


@dataclass(frozen=True)
class Code:
    """The machine code of one recipe."""

    recipe: Recipe
    arch: str
    text: str
    """Assembly text, as :func:`kernbench.realrun.amdgcn.load` takes it."""
    lds_bytes: int
    """Dynamic LDS of a workgroup."""
    compiler: str
    shipped: str | None
    """Its name, if it came with kernbench."""


def code_for(recipe: Recipe, arch: str) -> Code:
    """Return the machine code of a recipe: shipped, or compiled by the Triton that is installed.

    Raises
    ------
    InputError
        If none is shipped and the pinned Triton is not installed, or cannot compile it.
    """
    for name, kernel in shipped_kernels().items():
        if kernel["arch"] == arch and kernel["recipe"] == _plain(recipe):
            return shipped_code(name)
    return compiled_code(recipe, arch)


def compiled_code(recipe: Recipe, arch: str) -> Code:
    """Return what the installed Triton makes of a recipe; raises as :func:`code_for` does."""
    from kernbench.realrun.compiled.triton_code import TRITON, compile_with_triton

    text, lds_bytes = compile_with_triton(recipe, arch)
    return Code(recipe, arch, text, lds_bytes, f"triton {TRITON}", None)


@cache
def shipped_kernels() -> dict[str, dict[str, Any]]:
    """Return what comes with kernbench: ``name.arch`` → arch, recipe, lds_bytes."""
    return json.loads((SHIPPED / "kernels.json").read_text(encoding="utf-8"))["kernels"]


def shipped_code(name: str) -> Code:
    """Return the code called ``name.arch``.

    Raises
    ------
    InputError
        If there is none.
    """
    kernels = shipped_kernels()
    if name not in kernels:
        raise InputError(f"no code called {name!r} comes with kernbench{nearest(name, kernels)}")
    made = kernels[name]
    text = gzip.decompress((SHIPPED / f"{name}.s.gz").read_bytes()).decode()
    compiler = json.loads((SHIPPED / "kernels.json").read_text(encoding="utf-8"))["compiler"]
    return Code(_recipe(made["recipe"]), made["arch"], text, made["lds_bytes"], compiler, name)


def write_shipped(codes: dict[str, Code], folder: Path, compiler: str) -> None:
    """Write codes by name, and ``kernels.json``, which says what each is."""
    kernels = {}
    for name, code in codes.items():
        (folder / f"{name}.s.gz").write_bytes(gzip.compress(code.text.encode(), mtime=0))
        kernels[name] = {"arch": code.arch, "recipe": _plain(code.recipe), "lds_bytes": code.lds_bytes}
    made = {"compiler": compiler, "kernels": kernels}
    (folder / "kernels.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _plain(recipe: Recipe) -> dict[str, Any]:
    return asdict(recipe) | {"types": [list(t) for t in recipe.types], "constants": [list(c) for c in recipe.constants]}


def _recipe(plain: dict[str, Any]) -> Recipe:
    pairs = {name: tuple((a, b) for a, b in plain[name]) for name in ("types", "constants")}
    return Recipe(**(plain | pairs))
