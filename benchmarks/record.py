"""How the cost of recording grows with the number of PEs: it should follow the number of different behaviours.

Records the GQA decode bench on 64 and on 4,096 PEs, with the same tiles on each PE. Prints host seconds and their
ratio, measured in this run, the two taking turns. Usage: python benchmarks/record.py [--tiles 16] [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import time

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.specs.attention import DecodeSpec

TILE = 128
MACHINES = (
    kb.load_machine("row4_pe8", overrides={"sip.cubes.columns": 8}),
    kb.load_machine("grid16x32_pe8"),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=16, help="of each PE")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    bench = find_bench("gqa_decode_long")
    works = []
    for machine in MACHINES:
        keys = options.tiles * TILE * machine.n_pes
        spec = DecodeSpec(S_kv=keys, h_q=8, h_kv=1, d_head=128, TILE_S_KV=TILE, buffers=2)
        works.append((machine, bench.arguments(spec, machine, None)[0]))
    times: list[list[float]] = [[] for _ in works]
    for _ in range(options.rounds):
        for (machine, args), mine in zip(works, times, strict=True):
            begin = time.perf_counter()
            trace = kb.record(bench.kernel, machine, args)
            mine.append(time.perf_counter() - begin)
            recorded = sum(len(c.commands) for c in trace.classes)
            if len(mine) == 1:
                lanes = sum(column.nbytes for c in trace.classes for column in c.columns)
                print(
                    f"{machine.n_pes:5,} PEs: {trace.n_commands:9,} commands in {len(trace.classes)} classes of "
                    f"{recorded:,} in all, {lanes:,} bytes of lane columns"
                )
    few, many = (statistics.median(t) for t in times)
    print(f"record, median of {options.rounds}: {few:.4f} s on 64 PEs, {many:.4f} s on 4,096 PEs: {many / few:.2f} x")


if __name__ == "__main__":
    main()
