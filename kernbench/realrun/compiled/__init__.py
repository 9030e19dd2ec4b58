"""Machine code of kernbench's own Triton kernels: recipes, a compiler, and code that comes with kernbench.

A :class:`Recipe` says what is compiled. :func:`code_for` gives its machine code for an AMD architecture: what comes
with kernbench for exactly this recipe, else what an installed Triton makes of it.
"""

from kernbench.realrun.compiled.code import Code, code_for, shipped_code, shipped_kernels
from kernbench.realrun.compiled.recipes import Recipe

__all__ = ["Code", "Recipe", "code_for", "shipped_code", "shipped_kernels"]
