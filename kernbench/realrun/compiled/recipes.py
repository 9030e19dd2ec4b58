"""Recipes: a Triton kernel, the types of its arguments, its constants, waves and stages; and those that are shipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernbench.errors import InputError

Types = dict[str, str]
ALIGNED = "aligned"
"""An integer that Triton may take as a multiple of 16, as it finds out for itself at a real launch."""
POINTER = {"bf16": "*bf16", "f16": "*fp16", "f32": "*fp32", "i8": "*i8", "u8": "*u8", "i32": "*i32",
           "fp8e4m3": "*fp8e4nv", "fp8e4m3fnuz": "*fp8e4b8"}  # fmt: skip
"""Triton's name for a pointer to each of kernbench's formats."""
FP8 = {"gfx90a": "fp8e4m3fnuz", "gfx942": "fp8e4m3fnuz", "gfx950": "fp8e4m3"}
"""The E4M3 that each architecture's conversions know; gfx90a has none and takes many instructions."""
LEAST_SPLITS = 8
"""Splits that every merging kernel has room for."""
REDUCE_CHUNK = 16
"""Splits that the merging kernel reads at a time, at most."""


class NoCompilerError(InputError):
    """Code that would have to be compiled, without the compiler for it."""


@dataclass(frozen=True)
class Recipe:
    """One compilation of a kernel in :mod:`kernbench.realrun.kernels`."""

    module: str
    kernel: str
    types: tuple[tuple[str, str], ...]
    """Argument → Triton's type, :data:`ALIGNED` for an integer that is a multiple of 16."""
    constants: tuple[tuple[str, Any], ...]
    waves: int
    stages: int
    waves_per_eu: int = 0
    """Waves of a SIMD that the compiler saves registers for; 0: it decides."""

    @classmethod
    def of(
        cls, kernel: str, types: Types, constants: Mapping[str, Any], waves: int, stages: int = 2, waves_per_eu: int = 0
    ) -> Recipe:
        """Make one; ``kernel`` is ``module.function``."""
        module, _, function = kernel.partition(".")
        return cls(module, function, tuple(types.items()), tuple(constants.items()), waves, stages, waves_per_eu)

    def __str__(self) -> str:
        """Write what tells it from others of its kernel: formats, constants, waves and stages."""
        formats = [f"{name} {kind[1:]}" for name, kind in self.types if kind.startswith("*")]
        constants = [f"{name}={value}" for name, value in self.constants]
        return f"{self.kernel} ({', '.join([*formats, *constants])}; {self.waves} waves, {self.stages} stages)"

    def constant(self, name: str) -> Any:
        """Return a constant. Raises KeyError."""
        return dict(self.constants)[name]


def pointers(**formats: str) -> Types:
    """Return the types of tensors of these formats."""
    return {name: POINTER[kind] for name, kind in formats.items()}


def _ints(*names: str) -> Types:
    return dict.fromkeys(names, "i32")


PARTS = pointers(o_part="f32", m_part="f32", l_part="f32")
SPLIT = _ints("seqlen", "kv_heads", "group", "split_len", "splits")
LAST = {"stride_t": ALIGNED, "qk_scale": "fp32"}
HEADS = _ints("seqlen", "q_heads", "group")
FACTOR = {"qk_scale": "fp32"}


def padded(n: int) -> int:
    """Return the next power of two.

    >>> padded(5)
    8
    """
    return 1 << max(n - 1, 0).bit_length()


def decode(
    dtype: str, d: int, stored: str = "", scale: int = 0, *, rows: int = 16, keys: int = 64, waves: int = 4,
    stages: int = 2,
) -> Recipe:  # fmt: skip
    """Split-KV decode; ``scale``: 0 none, 1 a factor for the cache, 2 one for each token and head."""
    kept = stored or dtype
    types = pointers(q=dtype, k=kept, v=kept, k_scale="f32", v_scale="f32") | PARTS | SPLIT | LAST
    return Recipe.of(
        "splitkv.decode_partial", types, {"GP": rows, "D": d, "BN": keys, "SCALE": scale}, waves, stages
    )  # fmt: skip


def reduction(dtype: str, d: int, splits: int) -> Recipe:
    """Return the launch that merges the splits of a decode; one kernel serves up to 8 of them."""
    types = PARTS | pointers(o=dtype) | _ints("group", "splits")
    room = max(padded(splits), LEAST_SPLITS)
    sizes = {"D": d, "SP": room, "CHUNK": min(REDUCE_CHUNK, room)}
    return Recipe.of("splitkv.reduce_splits", types, sizes, 4, 1)


def paged(dtype: str, d: int, page: int, *, rows: int = 16, keys: int = 32, waves: int = 2, stages: int = 2) -> Recipe:
    """Decode through a block table."""
    types = pointers(q=dtype, k=dtype, v=dtype, table="i32") | PARTS | SPLIT | _ints("pages") | LAST
    return Recipe.of("paged.paged_partial", types, {"GP": rows, "D": d, "BN": keys, "PAGE": page}, waves, stages)


def latent(
    dtype: str, width: int, rope: int, *, heads: int = 16, keys: int = 32, waves: int = 4, stages: int = 2
) -> Recipe:
    """Absorbed decode over a latent cache."""
    types = pointers(q=dtype, cache=dtype) | PARTS | _ints("seqlen", "blocks", "split_len", "splits") | FACTOR
    return Recipe.of("mla.mla_partial", types, {"BH": heads, "LATENT": width, "ROPE": rope, "BN": keys}, waves, stages)


def prefill(
    dtype: str, d: int, rows: int, keys: int, causal: bool, *, waves: int, stages: int = 2, diagonal_only: bool = False,
    waves_per_eu: int = 0,
) -> Recipe:  # fmt: skip
    """Prefill that checks the end of the sequence, so that it serves every length."""
    sizes = {"D": d, "BM": rows, "BN": keys, "CAUSAL": causal, "BOUND": True, "DIAGONAL_ONLY": diagonal_only}
    types = pointers(q=dtype, k=dtype, v=dtype, o=dtype) | HEADS | FACTOR
    return Recipe.of("prefill.prefill", types, sizes, waves, stages, waves_per_eu)


def sparse(d: int) -> Recipe:
    """Prefill under a mask of blocks, in the style of Triton's kernels."""
    types = pointers(q="f16", k="f16", v="f16", mask="i8", o="f16") | HEADS | _ints("mask_cols") | FACTOR
    return Recipe.of(
        "sparse.block_sparse", types, {"D": d, "BM": 64, "BN": 32, "BQ": 64, "BK": 64, "SKIP": True}, waves=2
    )  # fmt: skip


def ultraquant(d: int) -> Recipe:
    """Decode over slots of 4-bit codes."""
    types = pointers(q="bf16", cache="u8") | PARTS | SPLIT | LAST
    return Recipe.of("ultraquant.ultraquant_partial", types, {"GP": 16, "D": d, "BN": 32}, waves=2)


TILES = _ints("seqlen", "q_heads", "group", "q_blocks", "q_block", "k_blocks", "k_block", "window")


def sage_tile(dtype: str, d: int, stored: str, factors: int, mask: int, listed: int = 0) -> Recipe:
    """16 rows of a head by matrix instructions: sage, Jenga (``mask=3``) and VSA (``mask=4``, a list of ``listed``)."""
    types = pointers(q=dtype, k=stored, v=stored, o=dtype, q_scale="f32", k_scale="f32")
    types |= pointers(kept="i32" if mask == 4 else "i8", count="i32") | {"scale_log2": "fp32"} | TILES
    types |= _ints("listed", "block_q", "block_k")
    sizes = {"D": d, "FACTORS": factors, "MASK": mask, "LISTED": padded(listed)}
    return Recipe.of("sage.sage_tile", types, sizes, waves=1, stages=1)


def sage_row(dtype: str, d: int, stored: str, kind: int, mask: int) -> Recipe:
    """One row of a head by vector operations; ``kind``: 0 floats, 1 int8 codes, 2 packed 4-bit codes."""
    types = pointers(q=dtype, k=stored, v=stored, o=dtype, q_scale="f32", k_scale="f32", k_table="f32", v_table="f32")
    types |= {"scale_log2": "fp32"} | TILES
    return Recipe.of("sage.sage_row", types, {"D": d, "BN": 16, "KIND": kind, "MASK": mask}, waves=1, stages=1)


def shipped_recipes(arch: str) -> dict[str, Recipe]:
    """Return what comes with kernbench for an architecture, by name."""
    fp8 = FP8[arch]
    oldest = {
        "decode_d64": decode("f16", 64),
        "decode_d64_fp8": decode("f16", 64, fp8, 1),
        "reduce_d64": reduction("f16", 64, 8),
        "prefill_d64_causal": prefill("f16", 64, 64, 32, True, waves=2),
        "prefill_d128_causal": prefill("f16", 128, 128, 64, True, waves=4),
        "prefill_d128_causal_spills": prefill("f16", 128, 128, 64, True, waves=4, waves_per_eu=3),
    }
    if arch == "gfx90a":
        return oldest
    ocp = {} if fp8 == "fp8e4m3" else {"decode_d64_fp8_ocp": decode("f16", 64, "fp8e4m3", 1)}
    return (
        oldest
        | ocp
        | {
            "decode_d128": decode("f16", 128),
            "decode_d128_wave": decode("f16", 128, waves=1),
            "decode_d128_bf16": decode("bf16", 128),
            "decode_d64_bf16": decode("bf16", 64),
            "decode_d64_i8": decode("f16", 64, "i8", 2),
            "decode_d64_i8_factor": decode("f16", 64, "i8", 1),
            "reduce_d64_bf16": reduction("bf16", 64, 8),
            "reduce_d128": reduction("f16", 128, 8),
            "reduce_d128_bf16": reduction("bf16", 128, 8),
            "reduce_d512_bf16": reduction("bf16", 512, 8),
            "paged_d64": paged("f16", 64, 16),
            "paged_d64_page64": paged("f16", 64, 64),
            "paged_d64_bf16": paged("bf16", 64, 64, keys=64, waves=4),
            "mla": latent("f16", 128, 64),
            "mla_d512_bf16": latent("bf16", 512, 64),
            "sparse_d64": sparse(64),
            "ultraquant_d128": ultraquant(128),
            "prefill_d64": prefill("f16", 64, 64, 32, False, waves=2),
            "prefill_d64_bf16": prefill("bf16", 64, 64, 32, False, waves=2),
            "prefill_d64_bf16_causal_8": prefill("bf16", 64, 128, 64, True, waves=8),
            "prefill_d128": prefill("f16", 128, 128, 64, False, waves=4),
            "sage_f16": sage_tile("f16", 64, "f16", 2, 0),
            "sage_fp8": sage_tile("f16", 64, fp8, 2, 0),
            "sage_causal": sage_tile("f16", 64, "f16", 1, 1),
            "sage_window": sage_tile("bf16", 128, "bf16", 2, 2),
            "sage_row_fp8": sage_row("f16", 64, fp8, 0, 0),
            "sage_row_i8": sage_row("f16", 64, "i8", 1, 0),
            "sage_row_i4": sage_row("bf16", 128, "u8", 2, 1),
            "jenga": sage_tile("f16", 64, "f16", 0, 3),
            "vsa": sage_tile("f16", 64, "f16", 0, 4, 32),
        }
    )
