"""How long one prediction of a measured run takes, over all shipped runs that can be predicted.

Each run is predicted twice and the second is timed, so that compiling and loading machines are not in it. Times are
the processor's, so that others on the host do not show in them. A run with cold and warm times is simulated for each.
Prints milliseconds by kernel family and how many runs take longer than the limit. Takes some minutes.
Usage: python benchmarks/predict.py [--every 1]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.realrun.predict import predict
from kernbench.realrun.sources import read_records, shipped_records

LIMIT_MS = 50.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="predict each N-th run only")
    options = parser.parse_args()
    records = [r for path in shipped_records() for r in read_records(path).records][:: options.every]
    found: dict[str, list[float]] = {}
    longest = ("", 0.0)
    for record in records:
        try:
            predict(record)
        except KernbenchError:
            continue
        begin = time.process_time()
        predict(record)
        ms = (time.process_time() - begin) * 1e3
        found.setdefault(record.family, []).append(ms)
        longest = max(longest, (record.id, ms), key=lambda one: one[1])
    print(f"{'family':26s} {'runs':>5s} {'median ms':>10s} {'p90':>7s} {'max':>7s}  over {LIMIT_MS:g} ms")
    every = [ms for mine in found.values() for ms in mine]
    for family, mine in [*sorted(found.items()), ("all", every)]:
        over = sum(ms > LIMIT_MS for ms in mine)
        middle, most = np.median(mine), np.percentile(mine, 90)
        print(
            f"{family:26s} {len(mine):5d} {middle:10.1f} {most:7.1f} {max(mine):7.1f}  {over} ({over / len(mine):.0%})"
        )
    print(f"longest: {longest[0]}, {longest[1]:.0f} ms")


if __name__ == "__main__":
    main()
