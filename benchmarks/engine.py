"""How fast time is computed: the compiled core beside SimPy, large runs, another machine, loads across the network.

All figures are of this run, for the GQA decode bench with one key/value head (8 query heads, d 128, tiles of 1,024
keys, two buffers): CPU seconds of one thread, the least of some rounds, and wall seconds of whole processes. SimPy
needs minutes for the large program, so that it is compared on one with fewer tiles, unless --full is given. Run it on
an idle machine.

    python benchmarks/engine.py [--full] [--only core|many|again|remote]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.placement import ADDRESS_BITS
from kernbench.record.trace import PEClass, Trace
from kernbench.simulate.explain import WHAT_IFS, explain
from kernbench.simulate.waits import causes
from kernbench.specs.attention import DecodeSpec

TILE = 1024
BENCH = "gqa_decode_long"
SIZES = {"h_q": 8, "h_kv": 1, "d_head": 128, "TILE_S_KV": TILE, "buffers": 2}


def record(machine: kb.Machine, keys: int) -> Trace:
    """Record the decode with this many keys over the whole machine."""
    bench = find_bench(BENCH)
    spec = DecodeSpec(S_kv=keys, **SIZES)
    return kb.record(bench.kernel, machine, bench.arguments(spec, machine, None)[0])


def seconds(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Least CPU seconds of each work; the works take turns, so that drift of the host hits all alike."""
    times: list[list[float]] = [[] for _ in works]
    for i in range(rounds + 1):
        for work, mine in zip(works, times, strict=True):
            begin = time.process_time()
            work()
            if i:  # the first round compiles, or loads what is compiled
                mine.append(time.process_time() - begin)
    return [min(mine) for mine in times]


def time_and_causes(trace: Trace) -> None:
    """Time a trace and find what held each command back."""
    causes(kb.simulate(trace))


def core(full: bool, rounds: int) -> None:
    """The compiled core with causes, and SimPy."""
    machine = kb.load_machine("grid8x8_pe8")
    large = record(machine, machine.n_pes * 128 * TILE)
    (whole,) = seconds(rounds, lambda: time_and_causes(large))
    (time_only,) = seconds(rounds, lambda: kb.simulate(large))
    n = large.n_commands
    print(f"{machine.n_pes} PEs x 128 tiles, {n:,} commands: {whole:.4f} s, {whole / n * 1e9:.1f} ns a command")
    print(f"  of that, without finding causes: {time_only:.4f} s, {time_only / n * 1e9:.1f} ns a command")

    small = large if full else record(machine, machine.n_pes * 4 * TILE)
    n = small.n_commands
    (ours,) = seconds(rounds, lambda: time_and_causes(small))
    begin = time.process_time()
    causes(kb.simulate(small, engine="simpy"))
    theirs = time.process_time() - begin
    print(
        f"SimPy, {128 if full else 4} tiles, {n:,} commands: {theirs:.2f} s, {theirs / n * 1e9:,.0f} ns a command; "
        f"compiled {ours:.4f} s: {theirs / ours:.0f} x"
    )


def many() -> None:
    """A whole process on 4,096 PEs: time only, nothing to compile any more."""
    keys = 4096 * 128 * TILE
    settings = [f"--set={name}={value}" for name, value in ({"S_kv": keys} | SIZES).items()]
    command = [sys.executable, "-m", "kernbench.cli", "run", BENCH, "--topology", "grid16x32_pe8", "--mode", "time"]
    command += ["--no-progress", *settings]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", cache)}
        environment["PYTHONPATH"] = str(Path(kb.__file__).parents[1])
        quick = [*command, "--set=S_kv=4096", "--topology=grid8x8_pe8"]
        quick = [part for part in quick if part not in (f"--set=S_kv={keys}", "--topology", "grid16x32_pe8")]
        subprocess.run(quick, check=True, env=environment, stdout=subprocess.DEVNULL)  # compiles
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(
        f"4,096 PEs x 128 tiles, kernbench run --mode time, whole process: {statistics.median(times):.2f} s, "
        f"peak {peak / 1e9:.2f} GB"
    )


def again(rounds: int) -> None:
    """A recorded trace on another machine: one that is new each time, its links laid out anew."""
    machine = kb.load_machine("row4_pe8", overrides={"sip.cubes.columns": 8})
    trace = record(machine, 131_072)
    others = iter([machine.with_overrides({"pe.issue": f"{2 + i} ns"}) for i in range(rounds + 1)])
    (new,) = seconds(rounds, lambda: kb.simulate(trace, next(others)))
    known = machine.with_overrides({"pe.issue": "1500 ps"})
    seen, explained = seconds(rounds, lambda: kb.simulate(trace, known), lambda: explain(trace, known))
    print(
        f"64 PEs, 131,072 keys, {trace.n_commands:,} commands, recorded before: {new * 1e3:.2f} ms on a new machine, "
        f"{seen * 1e3:.2f} ms on one seen before; kernbench explain, {len(WHAT_IFS)} what-ifs: {explained * 1e3:.1f} ms"
    )


def remote(rounds: int) -> None:
    """Loads from the memories of other CUBEs, beside the same loads from the own one."""
    machine = kb.load_machine("grid8x8_pe8")
    local = record(machine, machine.n_pes * 32 * TILE)
    network = machine.network
    homes = np.random.default_rng(0).permutation(network.n_memories).astype(np.int64)
    hops = [len(network.route(a, b)) for a, b in enumerate(homes.tolist())]
    far = moved(local, homes)
    near_s, far_s = seconds(rounds, lambda: time_and_causes(local), lambda: time_and_causes(far))
    n = local.n_commands
    print(
        f"512 PEs x 32 tiles, {n:,} commands: loads from the own CUBE {near_s / n * 1e9:.1f} ns a command; from CUBEs "
        f"{statistics.mean(hops):.1f} hops away on average {far_s / n * 1e9:.1f} ns a command: {far_s / near_s:.2f} x"
    )


def moved(trace: Trace, homes: np.ndarray) -> Trace:
    """Give each memory's contents to the memory ``homes[memory]``."""
    return replace(trace, classes=tuple(_moved(cls, homes) for cls in trace.classes))


def _moved(cls: PEClass, homes: np.ndarray) -> PEClass:
    addresses = {c.access.address.column for c in cls.commands if c.access is not None}
    within = (1 << ADDRESS_BITS) - 1
    columns = list(cls.columns)
    for i in addresses:
        columns[i] = (homes[columns[i] >> ADDRESS_BITS] << ADDRESS_BITS) | (columns[i] & within)
    return replace(cls, columns=tuple(columns))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="SimPy on all 128 tiles: minutes")
    parser.add_argument("--only", choices=["core", "many", "again", "remote"])
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    works = {
        "core": lambda: core(options.full, options.rounds),
        "many": many,
        "again": lambda: again(options.rounds),
        "remote": lambda: remote(options.rounds),
    }
    for name, work in works.items():
        if options.only in (None, name):
            work()


if __name__ == "__main__":
    main()
