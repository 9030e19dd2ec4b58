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
TARGETS = ("gfx942", "gfx950")
ALIGNED = "aligned"
"""Marks an integer that Triton may take as a multiple of 16, as it does for the ones of a real launch."""
SPLITKV = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "k_scale": "*fp32", "v_scale": "*fp32", "o_part": "*fp32",
           "m_part": "*fp32", "l_part": "*fp32", "seqlen": "i32", "kv_heads": "i32", "group": "i32",
           "split_len": "i32", "splits": "i32", "stride_t": ALIGNED, "qk_scale": "fp32"}  # fmt: skip
REDUCE = {"o_part": "*fp32", "m_part": "*fp32", "l_part": "*fp32", "o": "*fp16", "group": "i32", "splits": "i32"}
PREFILL = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "o": "*fp16",
           "seqlen": "i32", "q_heads": "i32", "group": "i32", "qk_scale": "fp32"}  # fmt: skip


def prefill(d: int, rows: int, keys: int, causal: bool) -> dict[str, Any]:
    """Return the constants of a prefill kernel that checks the end of the sequence."""
    return {"D": d, "BM": rows, "BN": keys, "CAUSAL": causal, "BOUND": True, "DIAGONAL_ONLY": False}


FIXTURES: dict[str, tuple[str, str, dict[str, str], dict[str, Any], int]] = {
    "decode_d64": ("splitkv", "decode_partial", SPLITKV, {"GP": 16, "D": 64, "BN": 64, "SCALE": 0}, 4),
    "decode_d128": ("splitkv", "decode_partial", SPLITKV, {"GP": 16, "D": 128, "BN": 64, "SCALE": 0}, 4),
    "reduce_d64": ("splitkv", "reduce_splits", REDUCE, {"D": 64, "SP": 8, "CHUNK": 4}, 4),
    "reduce_d128": ("splitkv", "reduce_splits", REDUCE, {"D": 128, "SP": 8, "CHUNK": 4}, 4),
    "prefill_d64": ("prefill", "prefill", PREFILL, prefill(64, 64, 32, False), 2),
    "prefill_d64_causal": ("prefill", "prefill", PREFILL, prefill(64, 64, 32, True), 2),
    "prefill_d128": ("prefill", "prefill", PREFILL, prefill(128, 128, 64, False), 4),
    "prefill_d128_causal": ("prefill", "prefill", PREFILL, prefill(128, 128, 64, True), 4),
}
"""Module, kernel, types of the arguments, constants and waves of each fixture."""


def compile_fixture(name: str, arch: str) -> tuple[str, dict[str, Any]]:
    """Return the assembly text of one fixture, and how it is launched."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, kernel, types, constants, waves = FIXTURES[name]
    function = getattr(importlib.import_module(f"{MODULES}.{module}"), kernel)
    divisible = {
        (i,): [["tt.divisibility", 16]]
        for i, kind in enumerate(types.values())
        if kind.startswith("*") or kind == ALIGNED
    }
    signature = {arg: "i32" if kind == ALIGNED else kind for arg, kind in types.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=divisible)
    made = triton.compile(source, target=GPUTarget("hip", arch, 64), options={"num_warps": waves, "num_stages": 2})
    launch = {"kernel": kernel, "waves": waves, "lds_bytes": made.metadata.shared, "constants": constants}
    return made.asm["amdgcn"], launch


def main() -> int:
    os.environ |= {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_ALWAYS_COMPILE": "1"}
    import triton

    if triton.__version__ != TRITON:
        print(f"needs Triton {TRITON}, this is {triton.__version__}")
        return 1
    place = Path(sys.argv[1])
    launches: dict[str, Any] = {}
    for name in FIXTURES:
        for arch in TARGETS:
            text, launches[f"{name}.{arch}"] = compile_fixture(name, arch)
            path = place / f"{name}.{arch}.s.gz"
            path.write_bytes(gzip.compress(text.encode(), mtime=0))
            print(f"{path.name}: {len(text)} characters, {path.stat().st_size} bytes")
    made = {"compiler": f"triton {TRITON}", "kernels": launches}
    (place / "kernels.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
