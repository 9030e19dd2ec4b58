"""Machine code for recipes: what comes with kernbench, and what an installed Triton makes."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from kernbench.errors import InputError, nearest
from kernbench.realrun.compiled.recipes import NoCompilerError, Recipe

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
    alike = []
    for name, kernel in shipped_kernels().items():
        if kernel["arch"] == arch and kernel["recipe"]["kernel"] == recipe.kernel:
            if kernel["recipe"] == _plain(recipe):
                return shipped_code(name)
            alike.append(name)
    try:
        return compiled_code(recipe, arch)
    except NoCompilerError as error:
        comes = "\n    ".join(str(shipped_code(name).recipe) for name in alike) or "none"
        raise NoCompilerError(f"{error}\n  what comes with kernbench for {arch}:\n    {comes}") from None


def compiled_code(recipe: Recipe, arch: str) -> Code:
    """Return what the installed Triton makes of a recipe; raises as :func:`code_for` does."""
    from kernbench.realrun.compiled.triton_code import TRITON, compile_with_triton

    text, lds_bytes = compile_with_triton(recipe, arch)
    return Code(recipe, arch, text, lds_bytes, f"triton {TRITON}", None)


@cache
def _index() -> dict[str, Any]:
    return json.loads((SHIPPED / "kernels.json").read_text(encoding="utf-8"))


def shipped_kernels() -> dict[str, dict[str, Any]]:
    """Return what comes with kernbench: ``name.arch`` → arch, recipe, lds_bytes."""
    return _index()["kernels"]


def shipped_sources() -> dict[str, str]:
    """Return the fingerprint of the file of kernels that shipped code was made from, by module."""
    return _index()["sources"]


def source_sha256(module: str) -> str:
    """Return the fingerprint of a file of :mod:`kernbench.realrun.kernels`."""
    return sha256((Path(__file__).parent.parent / "kernels" / f"{module}.py").read_bytes()).hexdigest()


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
    return Code(_recipe(made["recipe"]), made["arch"], text, made["lds_bytes"], _index()["compiler"], name)


def write_shipped(codes: dict[str, Code], folder: Path, compiler: str) -> None:
    """Write codes by name, and ``kernels.json``, which says what each is."""
    kernels = {}
    for name, code in codes.items():
        (folder / f"{name}.s.gz").write_bytes(gzip.compress(code.text.encode(), mtime=0))
        kernels[name] = {"arch": code.arch, "recipe": _plain(code.recipe), "lds_bytes": code.lds_bytes}
    sources = {code.recipe.module: source_sha256(code.recipe.module) for code in codes.values()}
    made = {"compiler": compiler, "kernels": kernels, "sources": sources}
    (folder / "kernels.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _plain(recipe: Recipe) -> dict[str, Any]:
    return asdict(recipe) | {"types": [list(t) for t in recipe.types], "constants": [list(c) for c in recipe.constants]}


def _recipe(plain: dict[str, Any]) -> Recipe:
    pairs = {name: tuple((a, b) for a, b in plain[name]) for name in ("types", "constants")}
    return Recipe(**(plain | pairs))
