"""How fast compiled kernels are executed on the CPU: wave-instructions of one core in a second of its time.

    python benchmarks/execute_amdgcn.py [NAME.ARCH...]

Runs the compiled prefill and decode kernels that come with kernbench with enough workgroups to fill a batch.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kernbench.realrun import amdgcn
from kernbench.realrun.compiled import shipped_code

DEFAULT = [f"{name}.{arch}" for arch in ("gfx942", "gfx950") for name in ("decode_d128", "prefill_d64", "prefill_d128")]
SEQLEN, HEADS, GROUP, SPLITS = 1024, 16, 4, 16


def arguments(name: str, constants: dict[str, Any]) -> tuple[tuple[int, int], list[Any]]:
    """Return the grid and the arguments of a prefill or a decode kernel."""
    rng, d = np.random.default_rng(0), constants["D"]
    kv_heads = HEADS // GROUP
    scale = math.log2(math.e) / math.sqrt(d)
    shape = (kv_heads, SEQLEN, d) if name.startswith("prefill") else (1, SEQLEN, kv_heads, d)
    k, v = rng.standard_normal((2, *shape)).astype(np.float16)
    if name.startswith("prefill"):
        q = rng.standard_normal((HEADS, SEQLEN, d)).astype(np.float16)
        grid = (-(-SEQLEN // constants["BM"]), HEADS)
        return grid, [q, k, v, np.zeros_like(q), SEQLEN, HEADS, GROUP, scale, None, None]
    q = rng.standard_normal((1, HEADS, d)).astype(np.float16)
    parts = np.zeros((kv_heads, SPLITS, GROUP, d), np.float32)
    m, l = np.zeros((2, kv_heads, SPLITS, GROUP), np.float32)
    numbers = [SEQLEN, kv_heads, GROUP, SEQLEN // SPLITS, SPLITS, kv_heads * d, scale]
    return (kv_heads, SPLITS), [q, k, v, None, None, parts, m, l, *numbers, None, None]


def main() -> int:
    for name in sys.argv[1:] or DEFAULT:
        code = shipped_code(name)
        kernel = amdgcn.load(code.text)[code.recipe.kernel]
        grid, args = arguments(name, dict(code.recipe.constants))
        for strict in (True, False):
            with threadpool_limits(1):
                start = time.process_time()
                done = kernel.launch(grid, 64 * code.recipe.waves, args, code.lds_bytes, strict)
                seconds = time.process_time() - start
            count = done.counters["SQ_INSTS"]
            print(f"{name:24s} strict {strict!s:5s} {count:9d} in {seconds:5.2f} s: {count / seconds / 1e6:.2f} M/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
