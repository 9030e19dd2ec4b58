"""Measures one spec after another on the GPU that PyTorch sees."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernbench.realrun.recorder import compiling, decode, machine, micro, prefill
from kernbench.realrun.recorder.loop import Measured, WrongResult
from kernbench.realrun.recorder.plan import Job
from kernbench.realrun.recorder.timing import GpuTimer, Timer, quantiles
from kernbench.realrun.recorder.work import Launch, Maker, Work
from kernbench.realrun.records import Device, Implementation, Output, Quantiles, RunSpec, Times

BUILDERS: dict[str, Callable[[dict[str, Any], Maker], Work]] = {
    "decode_splitkv": decode.decode_splitkv,
    "paged_decode": decode.paged_decode,
    "ultraquant_decode": decode.ultraquant_decode,
    "mla_decode": decode.mla_decode,
    "prefill": prefill.prefill,
    "block_sparse": prefill.block_sparse,
    "sdpa_flash": prefill.sdpa_flash,
    "sdpa_cudnn": prefill.sdpa_cudnn,
    "micro": micro.micro,
}
"""How each family's launches are made."""

NAMES = {"sdpa_flash": "torch-sdpa-flash", "sdpa_cudnn": "torch-sdpa-cudnn"}
DIGEST_BYTES = 4 << 20
"""Outputs larger than this get no digest: copying and hashing them would take longer than the timing."""
GRAPH_LIMIT_US = 2000.0
"""Launches longer than this are not timed in a cold graph: the host's share is nothing beside them."""
KEEP_BYTES = 24 << 30
"""Memory that PyTorch may keep between specs."""


def make_work(job: Job, make: Maker) -> Work:
    """Make the launches of one spec."""
    return BUILDERS[job.family](dict(job.fields), make)


def repetitions(us: float) -> int:
    """Choose how often a launch of this length is timed."""
    return 20 if us < 200 else 15 if us < 2000 else 7 if us < 10_000 else 5


class GpuRunner:
    """Measures on a GPU; with another ``timer`` and ``where="cpu"`` it does all but the timing, for tests."""

    def __init__(self, timer: Timer | None = None, where: str = "cuda") -> None:
        self._where = where
        torch.backends.cuda.matmul.allow_tf32 = False
        self._timer = timer or GpuTimer()
        self._gpu = where != "cpu"
        if self._gpu:
            gc.collect()
            gc.freeze()
            gc.disable()  # a collection inside a graph's capture could free another graph, which ends the capture

    def device(self) -> Device:
        """Describe the GPU."""
        return machine.describe() if self._gpu else Device(gpu=None, arch="cpu")

    def state(self) -> machine.Reading:
        """Read clocks and power."""
        return machine.read_state() if self._gpu else machine.Reading()

    def prepare(self, jobs: Sequence[Job], limit_s: float | None, say: Callable[[str], None]) -> None:
        """Compile all kernels of the plan in parallel. What fails here is tried, and reported, in its turn."""
        if not self._gpu:
            return
        from triton.runtime import driver

        target = driver.active.get_current_target()
        workers = max(1, min(len(os.sched_getaffinity(0)), 16) - 1)
        name = (target.backend, target.arch, target.warp_size)
        for message in compiling.compile_all(recipes(jobs), name, workers=workers, limit_s=limit_s, say=say):
            say(f"not compiled: {message}")

    def measure(self, job: Job) -> Measured:
        """Make inputs, check the result, and time.

        Raises
        ------
        WrongResult
            If the output differs from full-precision mathematics by more than the spec's tolerance.
        """
        work = make_work(job, Maker(self._where, zlib.crc32(job.id.encode())))
        with work.around():
            kernels = self._first_run(work)
            error, out = work.check()
            if not error <= work.tolerance:  # NaN is wrong, too
                raise WrongResult(f"relative error {error:.3g} is over {work.tolerance:g}")
            output = _describe_output(error, out)
            times = self._time(work)  # notes of the work may grow here
        main = next(iter(work.launches.values()))
        spec = job.spec(**work.spec)
        return Measured(spec, _implementation(job, work, main, kernels), times, output)

    def tidy(self) -> None:
        """Give memory back after a spec, if much is held.

        Raises
        ------
        RuntimeError
            If the GPU has failed for good: nothing more can run in this process.
        """
        gc.collect(0)
        if self._gpu:
            torch.cuda.synchronize()
            if torch.cuda.memory_reserved() > KEEP_BYTES:
                torch.cuda.empty_cache()

    def _first_run(self, work: Work) -> dict[str, Any]:
        for tensor in work.poison:
            tensor.fill_(float("nan") if tensor.is_floating_point() else -(2**31) + 1)
        kernels = {name: launch() for name, launch in work.launches.items()}
        if self._gpu:
            torch.cuda.synchronize()
        return kernels

    def _time(self, work: Work) -> Times:
        timer = self._timer
        work.run()  # warm, as the check ran other kernels
        us = min(timer.cold(work.run, 3))
        n = repetitions(us)
        got: dict[str, Quantiles | None] = {"cold": quantiles(timer.cold(work.run, n))}
        if len(work.launches) > 1:
            for name, launch in work.launches.items():
                got[name] = quantiles(timer.cold(launch, max(5, n * 3 // 4)))
        launches = max(1, min(20, math.ceil(1000 / us)))
        try:
            got["warm"] = quantiles(timer.graph(work.run, launches, max(3, n // 2)))
            if us <= GRAPH_LIMIT_US:
                got["cold_graph"] = quantiles(timer.cold_graph(work.run, max(5, n // 2)))
        except Exception as error:  # a library may refuse to be captured; the other times stand
            work.notes["graph"] = f"not timed: {type(error).__name__}: {error}"[:300]
        return Times(**got)


def recipes(jobs: Sequence[Job]) -> list[compiling.Recipe]:
    """List the compilations that specs need; a spec that cannot be made is left out."""
    found: set[compiling.Recipe] = set()
    for job in jobs:
        try:
            work = make_work(job, Maker("meta"))
        except Exception:  # reported when its turn to be measured comes
            continue
        found.update(compiling.recipe(launch) for launch in work.launches.values() if isinstance(launch, Launch))
    return sorted(found, key=repr)


def _describe_output(error: float, out: Any) -> Output:
    samples = tuple(float(x) for x in out.reshape(-1)[:4].float().cpu())
    digest = None
    if out.numel() * out.element_size() <= DIGEST_BYTES:
        digest = hashlib.sha256(out.contiguous().view(torch.uint8).cpu().numpy().tobytes()).hexdigest()
    return Output(rel_err=error, digest=digest, samples=samples)


def _figures(kernel: Any) -> dict[str, int | None]:
    """Read what the compiler made of a kernel; there is nothing to read in the interpreter."""
    metadata = getattr(kernel, "metadata", None)
    return {
        "registers": getattr(kernel, "n_regs", None),
        "spills": getattr(kernel, "n_spills", None),
        "lds_bytes": getattr(metadata, "shared", None),
    }


def _implementation(job: Job, work: Work, main: Any, kernels: dict[str, Any]) -> Implementation:
    notes = dict(work.notes)
    if job.family == "micro":
        known = {*RunSpec.model_fields, "waves"}
        notes = {**{k: v for k, v in job.fields.items() if v is not None and k not in known}, **notes}
    if not isinstance(main, Launch):
        return Implementation(name=NAMES.get(job.family, "torch"), grid=work.grid, notes=notes)
    if "reduce" in kernels:
        notes["reduce"] = _figures(kernels["reduce"])
    notes["kernel"] = main.kernel.__name__
    f = job.fields
    return Implementation(
        name="triton",
        grid=work.grid,
        block_m=main.constexprs.get("GP") or f.get("block_m"),
        block_n=f.get("block_n"),
        waves=main.waves,
        stages=f.get("stages"),
        splits=f.get("splits"),
        **_figures(next(iter(kernels.values()))),
        notes=notes,
    )
