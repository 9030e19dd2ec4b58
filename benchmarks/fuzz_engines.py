"""Compare the two engines on many random programs. Stops at Ctrl-C and tells what it has found so far.

    python benchmarks/fuzz_engines.py --n 100000 --seed 1

A program that differs is printed whole; ``random_program(seed, length)`` gives it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from kernbench.testing import compare_engines, random_program


def main() -> int:
    """Run the programs; return 1 if the engines differ on any."""
    options = _options()
    counts: Counter[str] = Counter()
    commands, begin = 0, time.perf_counter()
    try:
        for seed in range(options.seed, options.seed + options.n):
            length = 1 + seed % options.length
            n, found = _compare(seed, length)
            commands += n
            counts[found if found in ("agree", "deadlock") else "differ"] += 1
            if found not in ("agree", "deadlock"):
                print(f"\nrandom_program(seed={seed}, length={length}): {found}\n\n{random_program(seed, length)}")
            _show(counts, options.n, time.perf_counter() - begin)
    except KeyboardInterrupt:
        print("\nstopped", end="")
    done = sum(counts.values())
    print(
        f"\n{done:,} programs of {commands:,} commands compared in {time.perf_counter() - begin:.0f} s: "
        f"{counts['agree']:,} agree, {counts['deadlock']:,} deadlock alike, {counts['differ']:,} differ"
    )
    return 1 if counts["differ"] or not done else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000, help="programs to run (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one; the next counts on (default: 0)")
    parser.add_argument("--length", type=int, default=16, help="statements of the longest kernels (default: 16)")
    return parser.parse_args()


def _compare(seed: int, length: int) -> tuple[int, str]:
    """Return the number of commands and what came of it. A crash counts as a difference."""
    try:
        trace = random_program(seed, length).record()
        return trace.n_commands, compare_engines(trace)
    except Exception as bad:
        return 0, f"{type(bad).__name__}: {bad}"


def _show(counts: Counter[str], total: int, seconds: float) -> None:
    done = sum(counts.values())
    if sys.stderr.isatty() or done % 500 == 0:
        end = "\r" if sys.stderr.isatty() else "\n"
        print(
            f"{done:,} of {total:,}, {counts['differ']} differ, {seconds:.0f} s", end=end, file=sys.stderr, flush=True
        )


if __name__ == "__main__":
    sys.exit(main())
