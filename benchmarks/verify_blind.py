"""Verify specs that nobody chose: random sizes, tiles, waves, stages and formats, compiled here.

    python benchmarks/verify_blind.py [COUNT] [FIRST_SEED]

Needs Triton (pip install 'kernbench[triton]'). Prints one line for each, and how many were right in values, matrix
operations and bytes written, and how many had a number that no note explains.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

from kernbench.errors import KernbenchError
from kernbench.realrun.verify import find_case, verify


def decode(draw: random.Random) -> dict[str, Any]:
    heads, group = draw.choice((1, 2, 3)), draw.choice((1, 3, 8, 16, 24, 40))
    dtype = draw.choice(("f16", "bf16"))
    return {
        "S_kv": draw.randint(1, 700), "h_kv": heads, "h_q": heads * group, "d_head": draw.choice((32, 64, 128)),
        "dtype": dtype, "BLOCK_N": draw.choice((16, 32, 64, 128)), "waves": draw.choice((1, 2, 4, 8)),
        "splits": draw.choice((1, 3, 8, 12)), "stages": draw.choice((1, 2, 3)),
    }  # fmt: skip


def splitkv(draw: random.Random) -> dict[str, Any]:
    sizes = decode(draw)
    return sizes | {"kv_dtype": draw.choice((sizes["dtype"], "i8", "fp8e4m3"))}


def paged(draw: random.Random) -> dict[str, Any]:
    sizes = decode(draw)
    return sizes | {"kv_dtype": sizes["dtype"], "PAGE": draw.choice((16, 64, 256)), "batch": draw.choice((1, 3))}


def latent(draw: random.Random) -> dict[str, Any]:
    latent, rope = draw.choice((64, 128)), draw.choice((16, 64))
    return {
        "S_kv": draw.randint(1, 400), "h_q": draw.choice((3, 16, 40)), "d_head": latent + rope, "d_rope": rope,
        "dtype": draw.choice(("f16", "bf16")), "BLOCK_N": draw.choice((16, 32, 64)),
        "waves": draw.choice((1, 2, 4)), "BLOCK_H": draw.choice((16, 32)), "splits": draw.choice((1, 4, 7)),
    }  # fmt: skip


def prefill(draw: random.Random) -> dict[str, Any]:
    keys, heads, group = draw.randint(1, 300), draw.choice((1, 2)), draw.choice((1, 2, 3))
    return {
        "T_q": keys, "S_kv": keys, "h_kv": heads, "h_q": heads * group, "d_head": draw.choice((32, 64, 128)),
        "dtype": draw.choice(("f16", "bf16")), "BLOCK_M": draw.choice((16, 32, 64, 128)),
        "BLOCK_N": draw.choice((16, 32, 64, 128)), "waves": draw.choice((1, 2, 4, 8)), "stages": draw.choice((1, 2, 3)),
        "causal": draw.random() < 0.5, "diagonal_only": draw.random() < 0.5,
    }  # fmt: skip


def sage(draw: random.Random) -> dict[str, Any]:
    mode = draw.choice(("fp16_bf16", "fp8_bf16", "i8_fp8_bf16", "i4_fp8_bf16"))
    rows, keys = (16 * draw.randint(1, 6) if draw.random() < 0.5 else draw.randint(1, 40) for _ in range(2))
    return {
        "quant_mode": mode, "T_q": rows, "S_kv": keys, "h_q": 4, "h_kv": draw.choice((1, 2, 4)),
        "d_head": 128 if mode.startswith("i4") else draw.choice((64, 128)),
        "dtype": "f16" if mode == "fp8_bf16" else draw.choice(("f16", "bf16")),
        "mask_mode": draw.choice(("none", "causal")), "k_scale": draw.choice(("per_head", "per_block")),
        "k_scale_block": draw.choice((16, 32)),
    }  # fmt: skip


FAMILIES = {
    "decode_splitkv": splitkv, "paged_decode": paged, "mla_decode_grid": latent, "fa2_prefill": prefill,
    "sage_attention": sage,
}  # fmt: skip


def main() -> int:
    given = [int(word) for word in sys.argv[1:]]
    count, first = (given + [30, 0][len(given) :])[:2]
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        draw = random.Random(seed)
        bench, arch = draw.choice(list(FAMILIES)), draw.choice(("gfx942", "gfx950"))
        settings = FAMILIES[bench](draw)
        found[line_of(seed, bench, arch, settings)] += 1
    print(", ".join(f"{name} {number}" for name, number in sorted(found.items())))
    return 0


def line_of(seed: int, bench: str, arch: str, settings: dict[str, Any]) -> str:
    """Verify one spec and print its line; return what it is."""
    words = " ".join(f"{key}={value}" for key, value in settings.items())
    try:
        result = verify(find_case(bench, arch, settings), seed=seed)
    except KernbenchError as error:
        reason = str(error).strip().splitlines()
        print(f"{seed} refused {bench} {arch} {words}\n    {reason[0]}", flush=True)
        return "refused"
    wrong = [] if result.passed else [f"values {result.machine_code.rel_l2:.1e}"]
    odd = []
    for launch in result.launches:
        for kind in ("matrix operations", "global bytes written"):
            work = launch.work[kind]
            if work.charged != work.counted:
                wrong.append(f"{launch.kernel}: {kind} {work.charged:,} {work.counted:,}")
        for kind in ("exponentials", "global bytes read"):
            work = launch.work[kind]
            if work.charged != work.counted and (not work.note or "not explained" in work.note):
                odd.append(f"{launch.kernel}: {kind} {work.charged:,} {work.counted:,} {work.note}")
    what = "wrong" if wrong else "not all explained" if odd else "right"
    print(f"{seed} {what} {bench} {arch} {words}", *wrong, *odd, sep="\n    ", flush=True)
    return what


if __name__ == "__main__":
    sys.exit(main())
