"""Run a bench, and the machine code of its kernels on the same inputs; hold values, work and time side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from kernbench._version import __version__
from kernbench.bench import GridLaunch, names_failures
from kernbench.clock import Progress
from kernbench.errors import InputError
from kernbench.execute import execute
from kernbench.grid_time import Timed
from kernbench.realrun.amdgcn.kernel import LaunchResult
from kernbench.realrun.verify.bound import Bound, bound_of
from kernbench.realrun.verify.charged import Charged
from kernbench.realrun.verify.counted import Counted, Work, differences, instruction_of, results_of
from kernbench.realrun.verify.machine_code import MachineLaunch
from kernbench.realrun.verify.specs import OF_THE_COMPILER, Case
from kernbench.run import CorrectnessResult
from kernbench.run_grid import recorded
from kernbench.simulate.costs import PS
from kernbench.specs.correctness import compare
from kernbench.specs.implementation import Implementation
from kernbench.specs.inputs import default_source, make_inputs


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Count(_Part):
    """One kind of work: what the simulator charges for, against what the machine code does."""

    charged: int
    counted: int
    note: str = Field(description="why they differ, if they do; empty: they are equal or it is not known")


class BoundResult(_Part):
    """A lower bound from instruction counts and published issue rates, in cycles of the machine's clock."""

    matrix: int
    vector: int = Field(description="transcendental instructions included")
    transcendental: int
    lds: int
    cycles: int = Field(description="the largest of matrix, vector and LDS")
    unit: str = Field(description="which it is")


class LaunchCounts(_Part):
    """One launch: its machine code, what it did, and what the simulator makes of it."""

    kernel: str = Field(description="name of the compiled kernel")
    grid: tuple[int, ...]
    waves: int = Field(description="of a workgroup")
    code: str = Field(description="name of the code that came with kernbench, or compiled here")
    compiler: str
    registers: int = Field(description="vector registers of a lane, accumulation registers included")
    lds_bytes: int = Field(description="dynamic LDS of a workgroup")
    implementation: dict[str, Any] = Field(description="what was simulated: the compiler's choices in their places")
    tiles: int = Field(description="tiles of scores over the launch; 0 if rows are handled one by one")
    work: dict[str, Count]
    counters: dict[str, int] = Field(description="by rocprof's names")
    opcodes: dict[str, int] = Field(description="how often each was executed by a wave")
    bound: BoundResult
    simulated_cycles: int = Field(description="the launch on the simulated machine, without what starting it costs")


class Verification(_Part):
    """Everything that was found."""

    bench: str
    spec: dict[str, Any]
    implementation: dict[str, Any] = Field(description="what the spec chose; the rest is the compiler's")
    arch: str
    topology: str = Field(description="the simulated machine")
    inputs: str
    seed: int
    machine_code: CorrectnessResult = Field(description="machine code against float64")
    simulated: CorrectnessResult = Field(description="the bench's own kernel against float64")
    between: CorrectnessResult = Field(description="machine code against the bench's own kernel")
    launches: list[LaunchCounts]
    warnings: list[str] = Field(description="what is odd though legal, such as NaN in the inputs")
    evidence: dict[str, str] = {
        "machine_code": "compiled code, executed on a CPU: values and counts, no real run",
        "simulated": "simulated",
        "bound": "from counts and published issue rates",
    }
    kernbench_version: str = __version__

    @property
    def passed(self) -> bool:
        """Whether both outputs are within the bench's tolerance of float64."""
        return self.machine_code.passed and self.simulated.passed


def verify(
    case: Case, *, inputs: str | None = None, seed: int = 0, strict: bool = True, progress: Progress | None = None
) -> Verification:
    """Execute a case's machine code and its bench, and compare.

    Parameters
    ----------
    case
        As :func:`~kernbench.realrun.verify.find_case` returns it.
    inputs, seed
        As for :func:`kernbench.run.run_bench`.
    strict
        As for :meth:`kernbench.realrun.amdgcn.kernel.Kernel.launch`.
    progress
        Called with what is going on.

    Raises
    ------
    KernbenchError
        If the inputs cannot be used, no code can be had, or the code breaks a rule of the machine.
    """
    bench, machine, arch = case.bench, case.machine, case.arch
    tell = progress or (lambda stage: None)
    made = make_inputs(case.spec, inputs or default_source(case.spec), seed)
    spec, arrays = made.spec, made.arrays
    reference, tolerance = bench.reference(spec, arrays), bench.tolerance(spec)

    tell("machine code")
    steps, out = _launches(case, spec, arrays)
    twins = [MachineLaunch.of(step, arch) for step in steps]
    done = []
    for i, twin in enumerate(twins):
        tell(f"machine code of {twin.kernel.name}, {i + 1} of {len(twins)}")
        done.append(twin.run(strict))
    executed = bench.output(spec, out)

    tell("bench")
    steps, out = _launches(case, spec, arrays)
    fitted = [_with_what_it_occupies(step, twin, result) for step, twin, result in zip(steps, twins, done, strict=True)]
    stages = [recorded(step, machine) for step in fitted]
    for stage in stages:
        for trace in stage.traces:
            execute(trace)
    simulated = bench.output(spec, out)
    tell("time")
    times = [part.makespan_ps for part in Timed.of(stages, machine, "compiled").parts()]

    launches = [
        _counts(twin, result, step.implementation, Charged.of(stage.traces[0], step.implementation), ps, case)
        for twin, result, step, stage, ps in zip(twins, done, fitted, stages, times, strict=True)
    ]
    return Verification(
        bench=bench.name,
        spec=spec.model_dump(mode="json"),
        implementation=case.implementation.model_dump(mode="json", exclude=set(OF_THE_COMPILER)),
        arch=arch,
        topology=machine.name,
        inputs=made.source,
        seed=seed,
        machine_code=_compared(executed, reference, tolerance),
        simulated=_compared(simulated, reference, tolerance),
        between=_compared(executed, simulated.astype(np.float64), tolerance),
        launches=launches,
        warnings=list(made.warnings),
    )


def write_verifications(found: list[Verification], path: Path, *, one: bool) -> None:
    """Write one verification, or all of them as a list, as JSON."""
    plain = [each.model_dump(mode="json") for each in found]
    path.write_text(json.dumps(plain[0] if one else plain, indent=2) + "\n", encoding="utf-8")


def _launches(case: Case, spec: Any, arrays: dict[str, np.ndarray]) -> tuple[list[GridLaunch], Any]:
    with names_failures(case.bench):
        steps, out = case.bench.launches(spec, case.implementation, case.machine, arrays)
    for step in steps:
        if not isinstance(step, GridLaunch):
            raise InputError(f"bench {case.bench.name} launches on several GPUs; machine code is executed for one")
    return [step for step in steps if isinstance(step, GridLaunch)], out


def _with_what_it_occupies(step: GridLaunch, twin: MachineLaunch, done: LaunchResult) -> GridLaunch:
    """Give a launch the registers, LDS, matrix instruction and copies of products that its compiler chose."""
    score_copies, value_copies = twin.copies(results_of(done.opcodes))
    chosen = step.implementation.replace(
        registers=min(twin.kernel.registers, 512),
        lds_bytes=twin.code.lds_bytes,
        waves=twin.code.recipe.waves,
        instruction=instruction_of(done.opcodes),
        score_copies=score_copies,
        value_copies=value_copies,
        keys_across_waves=False,  # waves lie along the rows
    )
    return replace(step, implementation=chosen)


def _compared(actual: np.ndarray, reference: np.ndarray, tolerance: float) -> CorrectnessResult:
    return CorrectnessResult(**vars(compare(actual, reference, tolerance)))


def _counts(
    twin: MachineLaunch, done: LaunchResult, chosen: Implementation, charged: Charged, ps: int, case: Case
) -> LaunchCounts:
    machine, recipe = case.machine, twin.code.recipe
    bound = bound_of(
        done.opcodes, case.arch, compute_units=machine.n_pes, groups=twin.groups, waves=recipe.waves
    )  # fmt: skip
    work = differences(charged, Counted.of(done), recipe.waves, recipe.stages, twin.groups)
    return LaunchCounts(
        kernel=twin.kernel.name,
        grid=twin.grid,
        waves=recipe.waves,
        code=twin.code.shipped or "compiled here",
        compiler=twin.code.compiler,
        registers=twin.kernel.registers,
        lds_bytes=twin.code.lds_bytes,
        implementation=chosen.model_dump(mode="json"),
        tiles=charged.tiles,
        work={name: _count(each) for name, each in work.items()},
        counters=done.counters,
        opcodes=done.opcodes,
        bound=_bound(bound),
        simulated_cycles=-(-ps * machine.pe.clock // PS),
    )


def _count(work: Work) -> Count:
    return Count(charged=work.charged, counted=work.counted, note=work.note)


def _bound(bound: Bound) -> BoundResult:
    return BoundResult(
        matrix=bound.matrix, vector=bound.vector, transcendental=bound.transcendental, lds=bound.lds,
        cycles=bound.cycles, unit=bound.unit,
    )  # fmt: skip
