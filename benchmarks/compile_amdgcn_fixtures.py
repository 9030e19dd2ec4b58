"""Compile our own Triton kernels to AMD machine code, as the tests execute it. No GPU and no PyTorch are needed.

    python benchmarks/compile_amdgcn_fixtures.py tests/realrun/amdgcn/fixtures

Needs Triton 3.9.0, as other versions emit other code. Writes one gzipped file of assembly text for each kernel and
architecture, and ``kernels.json``, which says how each is launched and what the compiler made of it.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

TRITON = "3.9.0"
MODULES = "kernbench.realrun.kernels"
ALIGNED = "aligned"
"""Marks an integer that Triton may take as a multiple of 16, as it does for the ones of a real launch."""
Recipe = tuple[str, str, dict[str, str], dict[str, Any], dict[str, int]]
"""Module, kernel, types of the arguments, constants and options."""
POINTERS = {"o_part": "*fp32", "m_part": "*fp32", "l_part": "*fp32"}
SCALES = {"k_scale": "*fp32", "v_scale": "*fp32"}
SPLIT = {"seqlen": "i32", "kv_heads": "i32", "group": "i32", "split_len": "i32", "splits": "i32"}
LAST = {"stride_t": ALIGNED, "qk_scale": "fp32"}
HEADS = {"seqlen": "i32", "q_heads": "i32", "group": "i32"}
REDUCE = POINTERS | {"o": "*fp16", "group": "i32", "splits": "i32"}
FP8 = {"gfx90a": "*fp8e4b8", "gfx942": "*fp8e4b8", "gfx950": "*fp8e4nv"}
"""The E4M3 that each architecture's conversions know; gfx90a has none and takes many instructions."""


def qkv(kind: str, stored: str | None = None) -> dict[str, str]:
    """Return the types of queries, and of keys and values that are stored in another format."""
    return {"q": f"*{kind}", "k": stored or f"*{kind}", "v": stored or f"*{kind}"}


def decode(kind: str, d: int, scale: int = 0, stored: str | None = None) -> Recipe:
    """Return a split-KV decode kernel."""
    types = qkv(kind, stored) | SCALES | POINTERS | SPLIT | LAST
    return "splitkv", "decode_partial", types, {"GP": 16, "D": d, "BN": 64, "SCALE": scale}, {"num_warps": 4}


def reduction(d: int) -> Recipe:
    """Return the reduction of a split-KV decode."""
    return "splitkv", "reduce_splits", REDUCE, {"D": d, "SP": 8, "CHUNK": 4}, {"num_warps": 4}


def prefill(kind: str, d: int, rows: int, keys: int, causal: bool, waves: int, **options: int) -> Recipe:
    """Return a prefill kernel that checks the end of the sequence."""
    constants = {"D": d, "BM": rows, "BN": keys, "CAUSAL": causal, "BOUND": True, "DIAGONAL_ONLY": False}
    types = qkv(kind) | {"o": f"*{kind}"} | HEADS | {"qk_scale": "fp32"}
    return "prefill", "prefill", types, constants, {"num_warps": waves} | options


PAGED = qkv("fp16") | {"table": "*i32"} | POINTERS | SPLIT | {"pages": "i32"} | LAST
LATENT = {"q": "*fp16", "cache": "*fp16"} | POINTERS | {"seqlen": "i32", "blocks": "i32", "split_len": "i32",
                                                        "splits": "i32", "qk_scale": "fp32"}  # fmt: skip
SPARSE = qkv("fp16") | {"mask": "*i8", "o": "*fp16"} | HEADS | {"mask_cols": "i32", "qk_scale": "fp32"}
FOUR_BITS = {"q": "*bf16", "cache": "*u8"} | POINTERS | SPLIT | LAST
FIXTURES: dict[str, Recipe] = {
    "decode_d64": decode("fp16", 64),
    "decode_d128": decode("fp16", 128),
    "decode_d128_bf16": decode("bf16", 128),
    "decode_d64_fp8": decode("fp16", 64, 1, "fp8"),
    "decode_d64_i8": decode("fp16", 64, 2, "*i8"),
    "reduce_d64": reduction(64),
    "reduce_d128": reduction(128),
    "paged_d64": ("paged", "paged_partial", PAGED, {"GP": 16, "D": 64, "BN": 32, "PAGE": 16}, {"num_warps": 2}),
    "mla": ("mla", "mla_partial", LATENT, {"BH": 16, "LATENT": 128, "ROPE": 64, "BN": 32}, {"num_warps": 4}),
    "sparse_d64": ("sparse", "block_sparse", SPARSE,
                   {"D": 64, "BM": 64, "BN": 32, "BQ": 64, "BK": 64, "SKIP": True}, {"num_warps": 2}),
    "ultraquant_d128": ("ultraquant", "ultraquant_partial", FOUR_BITS, {"GP": 16, "D": 128, "BN": 32},
                        {"num_warps": 2}),
    "prefill_d64": prefill("fp16", 64, 64, 32, False, 2),
    "prefill_d64_causal": prefill("fp16", 64, 64, 32, True, 2),
    "prefill_d64_bf16": prefill("bf16", 64, 64, 32, False, 2),
    "prefill_d128": prefill("fp16", 128, 128, 64, False, 4),
    "prefill_d128_causal": prefill("fp16", 128, 128, 64, True, 4),
    "prefill_d128_causal_spills": prefill("fp16", 128, 128, 64, True, 4, waves_per_eu=3),
}  # fmt: skip
OLDEST = ("decode_d64", "decode_d64_fp8", "reduce_d64", "prefill_d64_causal", "prefill_d128_causal",
          "prefill_d128_causal_spills")  # fmt: skip
TARGETS = {"gfx90a": OLDEST, "gfx942": tuple(FIXTURES), "gfx950": tuple(FIXTURES)}
"""What is compiled for each architecture."""
CODE_OBJECT = ("decode_d64", "gfx950")
"""The one that is also kept as the ELF file that a GPU loads."""


def compile_fixture(name: str, arch: str) -> tuple[str, bytes, dict[str, Any]]:
    """Return the assembly text of one fixture, its code object, and how it is launched."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, kernel, types, constants, options = FIXTURES[name]
    function = getattr(importlib.import_module(f"{MODULES}.{module}"), kernel)
    divisible = {
        (i,): [["tt.divisibility", 16]]
        for i, kind in enumerate(types.values())
        if kind.startswith("*") or kind in (ALIGNED, "fp8")
    }
    signature = {arg: {ALIGNED: "i32", "fp8": FP8[arch]}.get(kind, kind) for arg, kind in types.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=divisible)
    made = triton.compile(source, target=GPUTarget("hip", arch, 64), options={"num_stages": 2, **options})
    launch = {
        "kernel": kernel,
        "waves": options["num_warps"],
        "lds_bytes": made.metadata.shared,
        "constants": constants,
    }
    return made.asm["amdgcn"], made.asm["hsaco"], launch


def main() -> int:
    os.environ |= {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_ALWAYS_COMPILE": "1"}
    import triton

    if triton.__version__ != TRITON:
        print(f"needs Triton {TRITON}, this is {triton.__version__}")
        return 1
    place = Path(sys.argv[1])
    launches: dict[str, Any] = {}
    for arch, names in TARGETS.items():
        for name in names:
            text, code_object, launches[f"{name}.{arch}"] = compile_fixture(name, arch)
            path = place / f"{name}.{arch}.s.gz"
            path.write_bytes(gzip.compress(text.encode(), mtime=0))
            if (name, arch) == CODE_OBJECT:
                (place / f"{name}.{arch}.co").write_bytes(code_object)
            print(f"{path.name}: {len(text)} characters, {path.stat().st_size} bytes")
    made = {"compiler": f"triton {TRITON}", "kernels": launches}
    (place / "kernels.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
