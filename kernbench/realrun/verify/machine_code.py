"""From a bench's launch to the compiled kernel that does the same: its recipe, and its arguments in their order.

Bench and compiled kernel take the same tensors in the same layouts, so that what is launched on the simulator is
launched on the machine code; only the way in which numbers are passed differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.bench import GridLaunch
from kernbench.errors import InputError
from kernbench.realrun import amdgcn
from kernbench.realrun.amdgcn.kernel import Kernel, LaunchResult
from kernbench.realrun.compiled import Code, Recipe, code_for, recipes
from kernbench.tensors import Tensor

Mapped = tuple[Recipe, list[Any]]
SCRATCH_POINTERS = (None, None)
"""Triton's kernels take two pointers behind their own arguments, for buffers that these do not use."""
NO_BLOCKS = 1 << 30
"""Length of a block of scales where a head has one scale."""


@dataclass(frozen=True)
class MachineLaunch:
    """The compiled twin of a bench's launch."""

    code: Code
    kernel: Kernel
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    """Tensors, None and numbers."""

    @classmethod
    def of(cls, launch: GridLaunch, arch: str) -> MachineLaunch:
        """Find or compile the kernel of a launch.

        Raises
        ------
        InputError
            If no compiled kernel does what the bench's does for this spec, or it cannot be had.
        """
        name = launch.kernel.__name__
        if name not in TWINS:
            raise InputError(
                f"there is no compiled kernel that divides the work as {name} does (for UltraQuant's own kernel see "
                "docs/machine-code-ultraquant.md); `kernbench realrun verify --list` shows what there is"
            )
        recipe, args = TWINS[name](launch)
        code = code_for(recipe, arch)
        kernel = amdgcn.load(code.text, arch)[recipe.kernel]
        return cls(code, kernel, launch.grid, (*args, *SCRATCH_POINTERS))

    @property
    def groups(self) -> int:
        """Workgroups of the launch."""
        return int(np.prod(self.grid))

    def copies(self, results: frozenset[tuple[int, int]]) -> tuple[int, int]:
        """Return how many waves make the same scores, and the same part of the second product.

        Triton's AMD backend lays the waves of two chained products along the rows of the first; those that find no rows
        repeat others' scores. They share the second product by its columns, and repeat parts if these are too few.
        ``results`` are rows and columns of the matrix instructions; each product takes the largest that fits into it.
        """
        constants = dict(self.code.recipe.constants)
        rows = next((constants[name] for name in ("GP", "BH", "BM") if name in constants), None)
        keys, width = constants.get("BN"), constants.get("LATENT", constants.get("D"))
        if rows is None or keys is None or width is None or not results:
            return 1, 1
        waves = self.code.recipe.waves
        m, _ = _fitting(results, rows, keys)
        values_m, values_n = _fitting(results, rows, width)
        return max(1, waves * m // rows), max(1, waves * values_m * values_n // (rows * width))

    def run(self, strict: bool = True) -> LaunchResult:
        """Execute the machine code; the tensors hold the results."""
        held = {id(a): a.numpy() for a in self.args if isinstance(a, Tensor)}
        args = [held[id(a)] if isinstance(a, Tensor) else a for a in self.args]
        done = self.kernel.launch(self.grid, 64 * self.code.recipe.waves, args, self.code.lds_bytes, strict)
        for a in self.args:
            if isinstance(a, Tensor):
                (part,) = a.parts()
                part[...] = held[id(a)].reshape(-1)
        return done


def _fitting(results: frozenset[tuple[int, int]], rows: int, columns: int) -> tuple[int, int]:
    """Return the largest result of an instruction that fits into a product, or the smallest that there is."""
    fitting = [(m, n) for m, n in results if m <= rows and n <= columns]
    return max(fitting) if fitting else min(results)


# ---------------------------------------------------------------- attention with softmax in base 2
def _prefill(launch: GridLaunch) -> Mapped:
    q, k, v, o, spec, chosen = launch.args
    if spec.T_q != spec.S_kv:
        raise InputError(f"T_q={spec.T_q}: the compiled prefill kernel takes as many queries as keys ({spec.S_kv})")
    _check_power("d_head", spec.d_head)
    recipe = recipes.prefill(
        spec.dtype, spec.d_head, chosen.BLOCK_M, chosen.BLOCK_N, spec.causal, waves=chosen.waves, stages=chosen.stages,
        diagonal_only=spec.causal and chosen.diagonal_only,
    )  # fmt: skip
    return recipe, [q, k, v, o, spec.S_kv, spec.h_q, spec.group, spec.qk_scale]


def _decode(launch: GridLaunch) -> Mapped:
    q, k, v, k_scale, v_scale, *parts, spec, chosen = launch.args
    recipe = recipes.decode(
        spec.dtype, spec.d_head, k.dtype.name, 0 if k_scale is None else 1, rows=spec.padded_group, keys=chosen.BLOCK_N,
        waves=chosen.waves, stages=chosen.stages,
    )  # fmt: skip
    token = _aligned_token(spec)
    numbers = [spec.S_kv, spec.h_kv, spec.group, chosen.split_length(spec.S_kv), chosen.splits, token, spec.qk_scale]
    return recipe, [q, k, v, k_scale, v_scale, *parts, *numbers]


def _reduce(launch: GridLaunch) -> Mapped:
    *parts, o, _ = launch.args
    splits, rows = parts[1].shape[1:]
    return recipes.reduction(o.dtype.name, o.shape[-1], splits), [*parts, o, rows, splits]


def _paged(launch: GridLaunch) -> Mapped:
    q, k, v, table, k_scale, _, *parts, spec, chosen = launch.args
    if k_scale is not None:
        raise InputError(f"kv_dtype={spec.kv_dtype}: the compiled paged kernel has no factors; take {spec.dtype}")
    keys = min(chosen.BLOCK_N, spec.PAGE)
    recipe = recipes.paged(
        spec.dtype, spec.d_head, spec.PAGE, rows=spec.padded_group, keys=keys, waves=chosen.waves, stages=chosen.stages
    )
    length = -(-chosen.split_length(spec.S_kv) // spec.PAGE) * spec.PAGE
    numbers = [spec.S_kv, spec.h_kv, spec.group, length, chosen.splits, table.shape[1], _aligned_token(spec)]
    return recipe, [q, k, v, table, *parts, *numbers, spec.qk_scale]


def _latent(launch: GridLaunch) -> Mapped:
    q, kv, *parts, spec, chosen = launch.args
    _check_power("d_head - d_rope", spec.d_latent)
    _check_power("d_rope", spec.d_rope)
    recipe = recipes.latent(
        spec.dtype, spec.d_latent, spec.d_rope, heads=chosen.BLOCK_H, keys=chosen.BLOCK_N, waves=chosen.waves,
        stages=chosen.stages,
    )  # fmt: skip
    blocks = -(-spec.h_q // chosen.BLOCK_H)
    numbers = [spec.S_kv, blocks, chosen.split_length(spec.S_kv), chosen.splits, spec.qk_scale]
    return recipe, [q, kv, *parts, *numbers]


# ---------------------------------------------------------------- as rocke divides the work
MASKS = {"none": 0, "causal": 1, "sliding_window": 2}


def _sage(launch: GridLaunch) -> Mapped:
    q, k, v, o, spec, q_scale, k_scale, *tables = launch.args
    rocke, stored, mask = spec.rocke(), k.dtype.name, MASKS[spec.mask_mode]
    layouts = (rocke.q_scale, rocke.k_scale)
    blocks = [n for x, tokens in zip(layouts, (spec.T_q, spec.S_kv), strict=True)
              for n in (x.blocks(tokens), x.scale_block if x.layout == "per_block" else NO_BLOCKS)]  # fmt: skip
    numbers = [spec.scale_log2, spec.S_kv, spec.h_q, spec.group, *blocks, spec.sliding_window]
    if rocke.route() == "mfma":
        factors = 2 if spec.k_scale == "per_block" else 1
        recipe = recipes.sage_tile(spec.dtype, spec.d_head, stored, factors, mask)
        return recipe, [q, k, v, o, q_scale, k_scale, None, None, *numbers, 0, 1, 1]
    kind = {"i8_fp8_bf16": 1, "i4_fp8_bf16": 2}.get(spec.quant_mode, 0)
    k_table, v_table = tables or (None, None)
    recipe = recipes.sage_row(spec.dtype, spec.d_head, stored, kind, mask)
    return recipe, [q, k, v, o, q_scale, k_scale, k_table, v_table, *numbers]


def _jenga(launch: GridLaunch) -> Mapped:
    q, k, v, o, spec, mask = launch.args
    return _sparse(spec, (q, k, v, o), mask, None, 3)


def _vsa(launch: GridLaunch) -> Mapped:
    q, k, v, o, spec, lut, count = launch.args
    return _sparse(spec, (q, k, v, o), lut, count, 4)


def _sparse(spec: Any, tensors: Sequence[Tensor], kept: Tensor, count: Tensor | None, mask: int) -> Mapped:
    listed = kept.shape[1]
    recipe = recipes.sage_tile(spec.dtype, spec.d_head, spec.dtype, 0, mask, listed if mask == 4 else 0)
    numbers = [spec.scale_log2, spec.S_kv, spec.h_q, spec.group, 1, 1, 1, 1, 0, listed, spec.block_q, spec.block_k]
    return recipe, [*tensors, None, None, kept, count, *numbers]


TWINS: dict[str, Callable[[GridLaunch], Mapped]] = {
    "fa2_prefill": _prefill,
    "decode_partial": _decode,
    "reduce_splits": _reduce,
    "paged_partial": _paged,
    "mla_partial": _latent,
    "sage_attention": _sage,
    "jenga_sparse": _jenga,
    "vsa_sparse": _vsa,
}
"""Name of a bench's kernel → the recipe and the arguments of its compiled twin."""


def _aligned_token(spec: Any) -> int:
    """Return the elements from token to token, which the kernels take for a multiple of 16."""
    _check_power("d_head", spec.d_head)
    return int(spec.h_kv * spec.d_head)


def _check_power(name: str, n: int) -> None:
    if n < 16 or n & (n - 1):
        raise InputError(f"{name}={n}: compiled kernels take a power of two from 16 on")
