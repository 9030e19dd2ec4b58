"""Compile every kernel of a plan for GPUs that need not be there, and show what the compiler made of each.

    python benchmarks/compile_realrun_kernels.py h200 cuda:90 hip:gfx942

Needs PyTorch (its CPU build will do) and Triton.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def show(what: tuple) -> str:
    from kernbench.realrun.recorder.compiling import compile_one

    name = f"{what[1]} {dict(what[3])} args {[a for a in what[2] if isinstance(a, str)][:3]} w{what[4]} st{what[5]}"
    try:
        kernel = compile_one(what)
    except Exception as error:
        return f"FAILED {name}: {type(error).__name__}: {str(error)[-300:]}"
    return f"ok shared {kernel.metadata.shared} {name}"


def main() -> int:
    from kernbench.realrun.recorder.compiling import use_target
    from kernbench.realrun.recorder.gpu import recipes
    from kernbench.realrun.recorder.plan import load_plan

    plan, *targets = sys.argv[1:]
    todo = recipes(load_plan(plan)[1])
    failed = 0
    for target in targets:
        backend, arch = target.split(":")
        place = (backend, int(arch) if backend == "cuda" else arch, 32 if backend == "cuda" else 64)
        with ProcessPoolExecutor(2, get_context("spawn"), initializer=use_target, initargs=(place,)) as pool:
            for line in pool.map(show, todo):
                failed += line.startswith("FAILED")
                print(target, line, flush=True)
    print(f"{len(todo)} kernels for {len(targets)} targets, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
