"""How long kernbench itself takes for one GQA decode, beside plain NumPy doing the same mathematics.

One KV head, 8 query heads, d 128, float16, 64 PEs, tiles of 1,024 keys. With 131,072 keys each PE has two tiles and the
chain that combines the PEs weighs in; with --keys 524288 it has eight and the sweep dominates. Prints host seconds and
ratios, all measured in this run on one BLAS thread; run it on an idle machine.

    python benchmarks/decode.py [--keys 131072] [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.specs.attention import DecodeSpec

GROUP, D, TILE = 8, 128, 1024


def tiled_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Online softmax over float16 tiles widened one by one: what a careful NumPy user would write."""
    m, l = np.full((GROUP, 1), -np.inf, np.float32), np.zeros((GROUP, 1), np.float32)
    acc = np.zeros((GROUP, D), np.float32)
    wide_q = q.astype(np.float32)
    for start in range(0, len(k), TILE):
        s = wide_q @ k[start : start + TILE].astype(np.float32).T * np.float32(D**-0.5)
        m_new = np.maximum(m, s.max(axis=1, keepdims=True))
        keep, p = np.exp(m - m_new), np.exp(s - m_new)
        l = l * keep + p.sum(axis=1, keepdims=True)
        acc = acc * keep + p @ v[start : start + TILE].astype(np.float32)
        m = m_new
    return acc / l


def gemms_only(q: np.ndarray, k: np.ndarray, v: np.ndarray, p: np.ndarray) -> None:
    """The two matrix products of each tile on float32 arrays, and nothing else."""
    for start in range(0, len(k), TILE):
        q @ k[start : start + TILE].T
        p @ v[start : start + TILE]


def median_s(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Median seconds of each work; the works take turns, so that drift of the machine hits all alike."""
    times: list[list[float]] = [[] for _ in works]
    for i in range(rounds + 1):
        for work, mine in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            if i:  # the first round warms caches up and compiles
                mine.append(time.perf_counter() - begin)
    return [statistics.median(t) for t in times]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=131_072)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    machine = kb.load_machine("row4_pe8", overrides={"sip.cubes.columns": 8})
    bench = find_bench("gqa_decode_long")
    spec = DecodeSpec(S_kv=options.keys, h_q=GROUP, h_kv=1, d_head=D, TILE_S_KV=TILE)
    random = np.random.default_rng(0)
    shapes = {"q": (1, 1, GROUP, D), "k": (1, options.keys, 1, D), "v": (1, options.keys, 1, D)}
    arrays = {n: random.standard_normal(s, np.float32).astype(np.float16) for n, s in shapes.items()}
    q, k, v = arrays["q"][0, 0], arrays["k"][0, :, 0], arrays["v"][0, :, 0]
    wide = [x.astype(np.float32) for x in (q, k, v)]
    p = random.random((GROUP, TILE), np.float32)

    def whole() -> None:
        args, _ = bench.arguments(spec, machine, arrays)
        kb.launch(bench.kernel, machine, args)

    args, _ = bench.arguments(spec, machine, arrays)
    trace = kb.record(bench.kernel, machine, args)
    with threadpool_limits(1, "blas"):
        t_whole, t_record, t_execute, t_simulate, t_numpy, t_gemms = median_s(
            options.rounds,
            whole,
            lambda: kb.record(bench.kernel, machine, args),
            lambda: kb.execute(trace),
            lambda: kb.simulate(trace),
            lambda: tiled_numpy(q, k, v),
            lambda: gemms_only(*wide, p),
        )
    print(f"{machine.n_pes} PEs, {options.keys:,} keys, {trace.n_commands:,} commands")
    print(f"host seconds, medians of {options.rounds}")
    print(f"tensors + record + execute + simulate  {t_whole:8.4f}   {t_whole / t_numpy:5.2f} x tiled NumPy")
    print(f"  record                               {t_record:8.4f}")
    print(f"  execute (values)                     {t_execute:8.4f}   {t_execute / t_gemms:5.2f} x the GEMMs alone")
    print(f"  simulate (time)                      {t_simulate:8.4f}")
    print(f"tiled NumPy, float16 in                {t_numpy:8.4f}")
    print(f"the GEMMs alone, float32 NumPy         {t_gemms:8.4f}")


if __name__ == "__main__":
    main()
