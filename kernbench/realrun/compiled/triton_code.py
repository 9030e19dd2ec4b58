"""Compiles recipes for AMD GPUs with Triton. No GPU and no PyTorch are needed."""

from __future__ import annotations

import importlib
import os
from typing import Any

from kernbench.errors import InputError
from kernbench.realrun.compiled.recipes import ALIGNED, NoCompilerError, Recipe

TRITON = "3.9.0"
"""Other versions emit other code, so that counts of instructions would not repeat."""
_SETTINGS = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_ALWAYS_COMPILE": "1"}


def compile_with_triton(recipe: Recipe, arch: str) -> tuple[str, int]:
    """Return the assembly text of a recipe, and the bytes of dynamic LDS that it wants.

    Raises
    ------
    InputError
        If Triton is missing, is another version, or cannot compile the kernel for this architecture.
    """
    what = f"{recipe} for {arch}"
    before = {name: os.environ.get(name) for name in _SETTINGS}
    os.environ |= _SETTINGS
    try:
        return _compiled(recipe, arch, what)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _compiled(recipe: Recipe, arch: str, what: str) -> tuple[str, int]:
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise NoCompilerError(
            f"there is no code for {what}, and Triton is not there to compile it ({error}): "
            "pip install 'kernbench[triton]'"
        ) from None
    if triton.__version__ != TRITON:
        raise NoCompilerError(f"Triton {triton.__version__} is installed, but code is compiled by Triton {TRITON} only")
    function = getattr(importlib.import_module(f"kernbench.realrun.kernels.{recipe.module}"), recipe.kernel)
    divisible = {
        (i,): [["tt.divisibility", 16]]
        for i, (_, kind) in enumerate(recipe.types)
        if kind.startswith("*") or kind == ALIGNED
    }
    signature = {name: {ALIGNED: "i32"}.get(kind, kind) for name, kind in recipe.types}
    signature |= dict.fromkeys(dict(recipe.constants), "constexpr")
    options: dict[str, Any] = {"num_warps": recipe.waves, "num_stages": recipe.stages}
    if recipe.waves_per_eu:
        options["waves_per_eu"] = recipe.waves_per_eu
    source = ASTSource(fn=function, signature=signature, constexprs=dict(recipe.constants), attrs=divisible)
    try:
        made = triton.compile(source, target=GPUTarget("hip", arch, 64), options=options)
    except Exception as error:  # Triton raises whatever its passes raise
        raise InputError(f"Triton cannot compile {what}: {str(error).strip() or type(error).__name__}") from None
    return made.asm["amdgcn"], made.metadata.shared
