"""Run a grid bench: its launches one after the other, on one SIP or several, as one result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernbench.bench import Collective, GridBench, GridLaunch, SideBySide, names_failures
from kernbench.clock import Clock
from kernbench.execute import execute
from kernbench.grid_time import Stage, Timed
from kernbench.ledger import ledger_of, not_validated
from kernbench.machine import Machine
from kernbench.record import Trace, record
from kernbench.run import CorrectnessResult, Engine, Mode, RunResult, Wall, scratch_by_line
from kernbench.simulate.costs import PS
from kernbench.simulate.launch.lower import matrix_operations
from kernbench.specs.attention import BenchSpec
from kernbench.specs.correctness import compare
from kernbench.specs.implementation import Implementation
from kernbench.specs.inputs import default_source, make_inputs


def run_grid_bench(
    bench: GridBench,
    machine: Machine,
    spec: BenchSpec | None,
    implementation: Implementation | None,
    mode: Mode,
    engine: Engine,
    inputs: str | None,
    seed: int,
    clock: Clock,
    origin: dict[str, Any],
) -> RunResult:
    """Run a grid bench on a machine whose PEs hold workgroups; see :func:`kernbench.run.run_bench`.

    ``origin`` holds the fields of the result that say where it comes from.

    The launches follow one another on the device, as those of a replayed graph: each costs ``launch.graph`` and then
    its own time, and none begins before the one before it has ended. Launches of several SIPs go side by side, and
    what follows them waits for the slowest. Caches begin without the call's inputs.
    """
    spec, chosen = spec or bench.spec(), implementation or bench.implementation()
    arrays, source = None, inputs
    warnings: tuple[str, ...] = ()
    with clock.stage("inputs"):
        if mode != "time" or inputs is not None:
            made = make_inputs(spec, inputs or default_source(spec), seed)
            spec, arrays, source, warnings = made.spec, made.arrays, made.source, made.warnings
        with names_failures(bench):
            steps, out = bench.launches(spec, chosen, machine, arrays if mode != "time" else None)
    with clock.stage("record"):
        stages = [step if isinstance(step, Collective) else recorded(step, machine) for step in steps]
    correctness = None
    if mode != "time":
        with clock.stage("execute"):
            for stage in stages:
                if isinstance(stage, Collective):
                    move(stage)
                    continue
                for trace in stage.traces:
                    execute(trace, progress=clock.tick("execute"))
    timed: Timed | None = None
    if mode != "values":
        with clock.stage("simulate"):
            timed = Timed.of(stages, machine, engine)
    if mode != "time" and arrays is not None:
        with clock.stage("reference"):
            found = compare(bench.output(spec, out), bench.reference(spec, arrays), bench.tolerance(spec))
            correctness = CorrectnessResult(**vars(found))
    every = list(_traces(stages))
    largest = max((trace for trace, _ in every), key=lambda trace: trace.scratch_peak_bytes)
    return RunResult(
        bench=bench.name,
        topology=machine.name,
        topology_sha256=machine.sha256,
        **origin,
        spec=spec.model_dump(mode="json"),
        implementation=chosen.model_dump(mode="json"),
        mode=mode,
        engine=engine if timed else None,
        inputs=source,
        seed=seed,
        pes=sum(trace.n_pes * alike for trace, alike in every),
        classes=sum(len(trace.classes) for trace, _ in every),
        commands=sum(trace.n_commands * alike for trace, alike in every),
        makespan_ps=timed and timed.makespan_ps,
        cycles=timed and -(-timed.makespan_ps * machine.pe.clock // PS),
        engines=timed and timed.busy(),
        time_by_cause=timed and timed.by_cause(),
        critical_path=None,
        engine_time=None,
        launches=timed and timed.parts(),
        collectives=(timed and timed.collectives()) or None,
        scratch_peak_bytes=largest.scratch_peak_bytes,
        scratch_by_line=scratch_by_line(largest),
        hbm_bytes=timed and timed.memory_nbytes(),
        link_bytes=timed and timed.link_nbytes(),
        flops=timed and sum(alike * n for n, alike in _operations(stages)),
        correctness=correctness,
        wall=Wall.of(clock),
        ledger=ledger_of(machine, bench, spec, timed=timed is not None),
        warnings=list(dict.fromkeys([*warnings, *_doubts(machine, timed), *(w for t, _ in every for w in t.warnings)])),
    )


def move(step: Collective) -> None:
    """Bring the values of a collective to where they go."""
    for source, target, i in step.moves:
        ((values,), (into,)) = source.parts(), target.parts()
        into.reshape(target.shape)[i] = values.reshape(source.shape)


def recorded(step: GridLaunch | SideBySide, machine: Machine) -> Stage:
    """Record the launches of a step, to be executed and timed."""
    step = step if isinstance(step, SideBySide) else SideBySide((step,))
    traces = [record(launch.kernel, machine, launch.args, grid=launch.grid) for launch in step.launches]
    return Stage(step.launches, traces, step.alike)


def _traces(stages: Sequence[Stage | Collective]) -> Iterator[tuple[Trace, int]]:
    """Yield each recorded launch, and on how many SIPs it runs."""
    for stage in stages:
        if isinstance(stage, Stage):
            yield from ((trace, stage.alike) for trace in stage.traces)


def _operations(stages: Sequence[Stage | Collective]) -> Iterator[tuple[int, int]]:
    """Yield the matrix operations of each recorded launch, and on how many SIPs it runs."""
    for stage in stages:
        if isinstance(stage, Stage):
            for launch, trace in zip(stage.launches, stage.traces, strict=True):
                yield matrix_operations(trace, launch.implementation), stage.alike


def _doubts(machine: Machine, timed: Timed | None) -> list[str]:
    doubt = not_validated(machine)
    return [] if timed is None or doubt is None else [doubt]
