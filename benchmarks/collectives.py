"""How long the all-reduce of 1 MB over an 8 x 8 mesh of CUBEs takes: on the machine, and to simulate.

Every CUBE holds 1 MB of float32 that is summed over all CUBEs; all hold the sum at the end. With 8 PEs in each CUBE,
PE p all-reduces its eighth with the PEs p of the other CUBEs, and the eight share each link. Prints simulated times,
and host seconds for kb.simulate alone, medians of warm runs.
Usage: python benchmarks/collectives.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import kernbench as kb
from kernbench.collectives import all_reduce, all_reduce_chunks, chunk_numbers

CUBES, NBYTES = 64, 1 << 20
LIMIT_S = 0.1


def in_chunks(x: Any, out: Any, form: Any, *, tl: Any) -> None:
    """Reduce-scatter, then all-gather."""
    numbers = chunk_numbers(("cube",), form, tl=tl)
    size = x.shape[1] // len(numbers)
    chunks = [(tl.load(x + number * (size * 4), shape=(1, size)),) for number in numbers]
    whole = all_reduce_chunks(chunks, lambda a, b: (a[0] + b[0],), ("cube",), form, tl=tl)
    for number, (tile,) in zip(numbers, whole, strict=True):
        tl.store(out + number * (size * 4), tile)


def at_once(x: Any, out: Any, form: Any, *, tl: Any) -> None:
    """A butterfly of the whole value."""
    tile = tl.load(x, shape=(1, x.shape[1]))
    (whole,) = all_reduce((tile,), lambda a, b: (a[0] + b[0],), ("cube",), tl=tl)
    tl.store(out, whole)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{NBYTES:,} bytes over {CUBES} CUBEs; link bound of any all-reduce that uses one link a CUBE: ", end="")
    print(f"{2 * NBYTES * (CUBES - 1) / CUBES / 256e9 * 1e6:.2f} us at 256 GB/s")
    print("form       PEs a CUBE  classes   commands   simulated us   record s   simulate s")
    worst = 0.0
    for form, kernel, pes in (
        ("ring", in_chunks, 8),
        ("ring", in_chunks, 1),
        ("line", in_chunks, 8),
        ("line", in_chunks, 1),
        ("butterfly", at_once, 8),
    ):
        columns = {8: (4, 2), 1: (1, 1)}[pes]
        machine = kb.load_machine("grid8x8_pe8", {"cube.pes.columns": columns[0], "cube.pes.rows": columns[1]})
        rows = kb.split(0, over=("cube", "pe"))
        x, out = (kb.shape_only((machine.n_pes, NBYTES // 4 // pes), "f32", machine, rows) for _ in range(2))
        begin = time.perf_counter()
        trace = kb.record(kernel, machine, args=(x, out, form))
        record_s = time.perf_counter() - begin
        seconds = []
        for i in range(options.rounds + 1):
            begin = time.perf_counter()
            timeline = kb.simulate(trace)
            if i:  # the first run compiles and builds the trace's columns
                seconds.append(time.perf_counter() - begin)
        median = statistics.median(seconds)
        worst = max(worst, median)
        print(
            f"{form:10s} {pes:10d} {len(trace.classes):8d} {trace.n_commands:10,} {timeline.makespan_ps / 1e6:14.2f} "
            f"{record_s:10.3f} {median:12.4f}"
        )
    print(f"slowest simulation {worst:.4f} s, limit {LIMIT_S} s: {'within' if worst <= LIMIT_S else 'MISSED'}")


if __name__ == "__main__":
    main()
