"""How many points a second a sweep times: one trace, many machines, one core.

For each case the sweep's own evaluator (what a worker process runs) times machines that differ in memory bandwidth and
latency, after one point that records and compiles. Prints points per CPU second of one thread, all measured in this
run; beside it the same points by `kb.simulate` alone, which makes every layout anew. With --ten-thousand it also runs
a whole sweep of 10,000 points of a small decode, as `kernbench sweep` does: wall seconds and the largest process.

    python benchmarks/sweep.py [--rounds 40] [--ten-thousand]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.explore.evaluate import Context, Evaluator, Job
from kernbench.machine import Machine
from kernbench.specs.attention import DecodeSpec

BENCH = "gqa_decode_long"
SIZES = {"h_q": 8, "h_kv": 1, "d_head": 128, "TILE_S_KV": 1024, "buffers": 2}
TEN_THOUSAND = """
name: ten_thousand
bench: gqa_decode_long
topology: row4_pe8
spec: {S_kv: 4096}
machine:
  sip.cubes.columns: 8
  cube.memory.bandwidth: {from: 0.5 TB/s, to: 1.49 TB/s, step: 0.01 TB/s}
  cube.memory.latency: {from: 50 ns, to: 149 ns, step: 1 ns}
"""


def machines(base: Machine, count: int) -> list[dict[str, str]]:
    """Overrides that make that many machines."""
    return [
        {"cube.memory.bandwidth": f"{500 + i} GB/s", "cube.memory.latency": f"{50 + i % 50} ns"} for i in range(count)
    ]


def least_and_mean(works: list[Callable[[], object]]) -> tuple[float, float]:
    """CPU seconds of the quickest, and of one on average."""
    times = []
    for work in works:
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times), sum(times) / len(times)


def points_a_second(what: str, base: Machine, keys: int, rounds: int, target: int) -> None:
    """Time one trace on many machines."""
    settings = json.dumps({"S_kv": keys} | SIZES)
    evaluator = Evaluator(Context.of(find_bench(BENCH), [base]))
    changes = machines(base, rounds + 1)
    jobs = [Job(str(i), 0, settings, json.dumps(change)) for i, change in enumerate(changes)]
    commands = evaluator.evaluate(jobs[0]).commands  # records and compiles
    least, mean = least_and_mean([lambda job=job: evaluator.evaluate(job) for job in jobs[1:]])

    bench = find_bench(BENCH)
    spec = DecodeSpec(S_kv=keys, **SIZES)
    trace = kb.record(bench.kernel, base, args=bench.arguments(spec, base, None)[0])
    some = changes[1 : 1 + max(rounds // 4, 3)]
    _, alone = least_and_mean([lambda c=c: kb.simulate(trace, base.with_overrides(c)).makespan_ps for c in some])
    print(
        f"{what}, {commands:,} commands: {1 / mean:.1f} points a second ({1 / least:.1f} at the quickest; target "
        f"{target}); kb.simulate alone {1 / alone:.1f}: {alone / mean:.2f} x"
    )


def ten_thousand() -> None:
    """A whole sweep, as the command line runs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ten_thousand.yaml"
        path.write_text(TEN_THOUSAND, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(Path(kb.__file__).parents[1])}
        command = [sys.executable, "-m", "kernbench.cli", "sweep", path.name, "--workers", "2", "--no-progress"]
        begin = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, env=environment, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(
        f"10,000 points of the small decode on 64 PEs, 2 workers, whole command: {seconds:.0f} s "
        f"({10_000 / seconds:.0f} points a second), largest of the three processes {peak / 1e6:.0f} MB"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--ten-thousand", action="store_true")
    options = parser.parse_args()
    row8 = kb.load_machine("row4_pe8", overrides={"sip.cubes.columns": 8})
    points_a_second("64 PEs x 2 tiles", row8, 131_072, 5 * options.rounds, 60)
    grid = kb.load_machine("grid8x8_pe8")
    points_a_second("512 PEs x 128 tiles", grid, 512 * 128 * 1024, options.rounds, 15)
    if options.ten_thousand:
        ten_thousand()


if __name__ == "__main__":
    main()
