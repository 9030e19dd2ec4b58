"""Run a bench: inputs, values, time and check, as one result.

The command line prints what :func:`run_bench` returns; ``--json`` writes it as ``docs/run-json.md`` describes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from kernbench._version import __version__
from kernbench.bench import AnyBench, GridBench, names_failures
from kernbench.clock import Clock
from kernbench.clock import Progress as Progress
from kernbench.errors import InputError, nearest
from kernbench.execute import execute
from kernbench.ledger import Ledger, ledger_of
from kernbench.machine import Machine
from kernbench.provenance import kernel_sha256, repeat_command
from kernbench.record import record
from kernbench.simulate import simulate
from kernbench.specs.attention import BenchSpec
from kernbench.specs.correctness import compare
from kernbench.specs.implementation import Implementation
from kernbench.specs.inputs import default_source, make_inputs

if TYPE_CHECKING:
    from kernbench.record import Trace
    from kernbench.simulate.timeline import Timeline

Mode = Literal["both", "values", "time"]
Engine = Literal["compiled", "simpy"]
NullableFloat = Annotated[
    float | None, PlainSerializer(lambda x: x if x is not None and math.isfinite(x) else None, when_used="json")
]
"""A float that JSON cannot always hold: NaN and infinity become null there."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CorrectnessResult(_Part):
    """How close the values are to the float64 reference."""

    max_abs: NullableFloat = Field(description="largest absolute difference; null if a value is NaN or infinite")
    rel_l2: NullableFloat = Field(description="|actual - reference| / |reference|; null likewise")
    worst_row_rel_l2: NullableFloat = Field(description="the same for the output row that is furthest off")
    cosine: NullableFloat = Field(description="cosine of the angle between actual and reference")
    tolerance: float = Field(description="limit on rel_l2; worst_row_rel_l2 may be twice as large")
    nan_count: int = Field(ge=0, description="values that are NaN or infinite")
    passed: bool


class PathSegment(_Part):
    """A stretch of the critical path."""

    start_ps: int
    end_ps: int
    pe: str = Field(description="whose command it is, as sip0.cube1.pe3")
    cause: str = Field(description="what the time goes to; see docs/why.md")
    line: str = Field(description="file:number: text of the kernel's source line")


class PathResult(_Part):
    """The critical path, from picosecond 0 to the end of the run."""

    time_by_line: dict[str, float] = Field(description="source line → share of the makespan; they add up to 1")
    time_by_place: dict[str, float] = Field(description="PE, memory or link → share of the makespan; they add up to 1")
    waited_for: dict[str, int] = Field(description="what the steps of the path waited for → how many steps")
    segments: list[PathSegment] = Field(description="the longest stretches, in the order of time")
    segments_left_out: int = Field(ge=0, description="shorter stretches that are not listed")


class LaunchPart(_Part):
    """One launch of a grid of workgroups."""

    kernel: str = Field(description="name of the kernel function")
    grid: tuple[int, int, int] = Field(description="workgroups along x, y and z")
    makespan_ps: int = Field(description="from its first workgroup's dispatch to its last one's end")
    overhead_ps: int = Field(description="what starting it costs before that")
    workgroups_per_pe: int = Field(description="workgroups that a PE holds at once")
    time_by_cause: dict[str, float] = Field(description="share of the places' time by cause; they add up to 1")
    sips: int = Field(1, description="SIPs (GPUs) that run a launch like it side by side; this is the slowest")


class CollectivePart(_Part):
    """What SIPs (GPUs) send one another between two launches."""

    operation: str = Field(description="all_gather, send_recv ...")
    after: int = Field(description="how many entries of launches come before it")
    senders: int = Field(description="SIPs that send")
    nbytes: int = Field(description="of one rank: its input")
    sent_nbytes: int = Field(description="bytes that each sender sends")
    protocol: str = Field(description="low-latency, bulk or copy")
    makespan_ps: int = Field(description="from the last rank's beginning to its end everywhere")


class Wall(_Part):
    """Seconds on the host, imports excluded; null for a stage that the mode leaves out."""

    inputs_s: float | None = Field(ge=0, description="making or reading the inputs and placing the tensors")
    record_s: float = Field(ge=0, description="recording the kernel")
    execute_s: float | None = Field(ge=0, description="computing the values")
    simulate_s: float | None = Field(ge=0, description="computing the time, compilation on a first run included")
    reference_s: float | None = Field(ge=0, description="the float64 reference and the comparison")
    total_s: float = Field(ge=0, description="all of these together")

    @classmethod
    def of(cls, clock: Clock) -> Wall:
        """Return what a clock has measured up to now."""
        names = ("inputs", "record", "execute", "simulate", "reference")
        return cls(**{f"{name}_s": clock.seconds.get(name) for name in names}, total_s=clock.total_s)


class Evidence(_Part):
    """What kind of evidence each figure is."""

    values: Literal["simulated"] = "simulated"
    time: Literal["simulated"] = "simulated"
    wall: Literal["measured on the host"] = "measured on the host"


class RunResult(_Part):
    """Everything that one run found. Null: the mode does not measure it."""

    bench: str
    topology: str = Field(description="name of the machine")
    topology_sha256: str = Field(description="fingerprint of the machine's figures")
    machine: dict[str, Any] = Field(description="the machine's file as it was read, with overrides in their places")
    command: str = Field(description="the command line that makes this result again")
    kernel_sha256: str = Field(description="fingerprint of the file that the bench's kernels stand in")
    spec: dict[str, Any] = Field(description="every field of the spec")
    implementation: dict[str, Any] | None = Field(
        None, description="every field of a grid bench's implementation; null for a mesh bench"
    )
    mode: Mode
    engine: Engine | None = Field(description="what computed the time; null in mode values")
    inputs: str | None = Field(description="random, captured or the file; null if no values were needed")
    seed: int = Field(description="of random inputs")
    pes: int = Field(description="PEs that take part")
    classes: int = Field(description="groups of PEs that issue the same commands")
    commands: int = Field(description="commands over all PEs")
    makespan_ps: int | None = Field(description="simulated time until the last PE is done, in picoseconds")
    cycles: int | None = Field(description="the same in cycles of the PE clock")
    engines: dict[str, float] | None = Field(description="engine → share of the makespan that it is busy, 0 to 1")
    time_by_cause: dict[str, float] | None = Field(
        description="share of the makespan that the critical path spends on each cause, largest first; they add up to 1"
    )
    launches: list[LaunchPart] | None = Field(None, description="of a grid bench, in order; null for a mesh bench")
    collectives: list[CollectivePart] | None = Field(
        None, description="between the launches of a grid bench on several SIPs, in order; null if there are none"
    )
    critical_path: PathResult | None
    engine_time: dict[str, dict[str, float]] | None = Field(
        description="engine → what it does with the makespan (busy, waiting by cause, idle at the end) → share"
    )
    scratch_peak_bytes: int = Field(description="largest scratch footprint of any PE")
    scratch_by_line: dict[str, int] = Field(
        description="source line → bytes that its tiles hold at the moment of that peak"
    )
    hbm_bytes: int | None = Field(description="bytes read from and written to memory")
    link_bytes: int | None = Field(description="bytes that crossed links, counted on every link")
    flops: int | None = Field(description="floating-point operations of the matrix engines, a multiply-add is two")
    correctness: CorrectnessResult | None
    wall: Wall
    evidence: Evidence = Evidence()
    ledger: Ledger = Field(description="where the machine's figures come from, and what was not held against runs")
    warnings: list[str] = Field(description="what is odd though legal, such as NaN in the inputs")
    kernbench_version: str = __version__

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong: the values are right, or were not asked for."""
        return self.correctness is None or self.correctness.passed


def run_bench(
    bench: AnyBench,
    machine: Machine,
    spec: BenchSpec | None = None,
    *,
    implementation: Implementation | None = None,
    mode: Mode = "both",
    engine: Engine = "compiled",
    inputs: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    look: Callable[[Timeline], None] | None = None,
) -> RunResult:
    """Run one bench on one machine.

    Parameters
    ----------
    bench
        As :func:`kernbench.bench.find_bench` returns it. A machine whose PEs hold workgroups runs the form of a mesh
        bench that :func:`kernbench.on_grid.form_for` names.
    machine
        As :func:`kernbench.load_machine` returns it.
    spec
        Sizes and choices; default: the bench's own.
    implementation
        Of a grid bench: what its kernel chooses and occupies; default: the bench's own.
    mode
        ``values`` computes and checks the output, ``time`` simulates (no tensor is ever held), ``both`` does both.
    engine
        ``compiled``, or ``simpy``, the definition that it is held to.
    inputs
        ``random``, ``captured`` or the path of an ``.npz`` file, which fixes the sizes of the spec. Default:
        ``captured`` if the spec has the sizes of the captured tensors, else ``random``; none in mode ``time``.
    seed
        Of random inputs.
    progress
        Called with the name of each stage as it begins, and with how far it is.
    look
        Called with the timeline, if there is one, before the result is returned.

    Raises
    ------
    KernbenchError
        For any input that cannot be used, and for a bench that has no form for this kind of machine.
    """
    _check_choice("mode", mode, get_args(Mode))
    _check_choice("engine", engine, get_args(Engine))
    options = {
        "mode": mode if mode != "both" else None,
        "engine": engine if engine != "compiled" else None,
        "inputs": inputs,
        "seed": seed or None,
    }
    origin = {
        "machine": dict(machine.document),
        "command": repeat_command(bench, machine, spec, implementation, **options),
        "kernel_sha256": kernel_sha256(bench),
    }
    bench, notes = _fitting_form(bench, machine, spec)
    import numba  # noqa: F401  # the engines import it when they need it; imported here, no clock counts it

    clock = Clock(progress)
    if isinstance(bench, GridBench):
        from kernbench.run_grid import run_grid_bench

        if look is not None:
            raise mesh_only(bench, "a timeline of commands (--trace)")
        ran = run_grid_bench(bench, machine, spec, implementation, mode, engine, inputs, seed, clock, origin)
        return ran.model_copy(update={"warnings": [*notes, *ran.warnings]})
    spec, arrays, source = spec or bench.spec(), None, inputs
    warnings: tuple[str, ...] = ()
    with clock.stage("inputs"):
        if mode != "time" or inputs is not None:
            made = make_inputs(spec, inputs or default_source(spec), seed)
            spec, arrays, source, warnings = made.spec, made.arrays, made.source, made.warnings
        with names_failures(bench):
            args, out = bench.arguments(spec, machine, arrays if mode != "time" else None)
    with clock.stage("record"):
        trace = record(bench.kernel, machine, args=args)
    timeline = correctness = None
    if mode != "time":
        with clock.stage("execute"):
            execute(trace, progress=clock.tick("execute"))
    if mode != "values":
        with clock.stage("simulate"):
            timeline = simulate(trace, machine, engine=engine, progress=clock.tick("simulate"))
    if mode != "time" and arrays is not None:
        with clock.stage("reference"):
            found = compare(bench.output(spec, out), bench.reference(spec, arrays), bench.tolerance(spec))
            correctness = CorrectnessResult(**vars(found))
    by_cause, path = _why(timeline) if timeline else (None, None)
    if timeline and look:
        look(timeline)
    return RunResult(
        bench=bench.name,
        topology=machine.name,
        topology_sha256=machine.sha256,
        **origin,
        spec=spec.model_dump(mode="json"),
        mode=mode,
        engine=engine if timeline else None,
        inputs=source,
        seed=seed,
        pes=trace.n_pes,
        classes=len(trace.classes),
        commands=trace.n_commands,
        makespan_ps=timeline and timeline.makespan_ps,
        cycles=timeline and timeline.cycles,
        engines=timeline and timeline.busy_share(),
        time_by_cause=by_cause,
        critical_path=path,
        engine_time=timeline and _engine_time(timeline),
        scratch_peak_bytes=trace.scratch_peak_bytes,
        scratch_by_line=scratch_by_line(trace),
        hbm_bytes=timeline and timeline.hbm_bytes,
        link_bytes=timeline and timeline.link_bytes,
        flops=timeline and timeline.flops,
        correctness=correctness,
        wall=Wall.of(clock),
        ledger=ledger_of(machine, bench, spec, timed=timeline is not None),
        warnings=[*warnings, *trace.warnings],
    )


def _engine_time(timeline: Timeline) -> dict[str, dict[str, float]]:
    from kernbench.simulate.engine_time import engine_time

    return engine_time(timeline).shares()


_SEGMENTS = 200
"""Stretches of the critical path that a result lists."""


def _why(timeline: Timeline) -> tuple[dict[str, float], PathResult]:
    from kernbench.simulate.path import critical_path

    path, program = critical_path(timeline), timeline.program
    stretches = path.stretches()
    longest = sorted(sorted(stretches, key=lambda s: s.start_ps - s.end_ps)[:_SEGMENTS])
    segments = [
        PathSegment(
            start_ps=s.start_ps, end_ps=s.end_ps, pe=program.machine.pe_name(s.pe), cause=s.cause,
            line=str(program.trace.lines[s.line]),
        )
        for s in longest
    ]  # fmt: skip
    result = PathResult(
        time_by_line=exact_shares(path.time_by_line()),
        time_by_place=exact_shares(path.time_by_place()),
        waited_for=path.edges,
        segments=segments,
        segments_left_out=len(stretches) - len(segments),
    )
    return exact_shares(path.time_by_cause()), result


def exact_shares(parts: dict[str, int]) -> dict[str, float]:
    """Return each part's share of the whole, as multiples of 2**-40, so that their sum is exactly 1 in any order.

    >>> exact_shares({"a": 1, "b": 2})["a"]
    0.33333333333303017
    >>> sum(exact_shares({"a": 1, "b": 1, "c": 1}).values())
    1.0
    """
    total, grain = sum(parts.values()), 1 << 40
    exact = {name: part * grain // total for name, part in parts.items()}
    left = grain - sum(exact.values())
    for name, _ in sorted(parts.items(), key=lambda item: -(item[1] * grain % total))[:left]:
        exact[name] += 1
    return {name: n / grain for name, n in exact.items()}


def scratch_by_line(trace: Trace) -> dict[str, int]:
    """Return the peak of the PE with the largest footprint by source line, largest first."""
    largest = max(trace.classes, key=lambda c: c.scratch_peak_bytes)
    lines: dict[str, int] = {}
    for line, nbytes in sorted(largest.scratch_by_line.items(), key=lambda item: -item[1]):
        lines[str(trace.lines[line])] = lines.get(str(trace.lines[line]), 0) + nbytes
    return lines


def _fitting_form(bench: AnyBench, machine: Machine, spec: BenchSpec | None) -> tuple[AnyBench, tuple[str, ...]]:
    """Return the form of a bench for a machine, with warnings. Raises InputError if there is none, or not for this."""
    from kernbench.on_grid import form_for

    found, notes = form_for(bench, machine)
    check_fits(found, machine)
    if found is not bench and spec is not None and not isinstance(spec, found.spec):
        raise InputError(
            f"{machine.name} runs bench {bench.name} as {found.name}, which takes a {found.spec.__name__}, not a "
            f"{type(spec).__name__}"
        )
    return found, notes


def check_fits(bench: AnyBench, machine: Machine) -> None:
    """Check that a bench is written for this kind of machine. Raises InputError, which names one that fits."""
    if isinstance(bench, GridBench) and not machine.holds_workgroups:
        raise InputError(
            f"bench {bench.name} launches grids of workgroups, but {machine.name} is a mesh: each PE has one program "
            "of its own; run it on a machine whose PEs hold workgroups, such as --topology h200"
        )
    if not isinstance(bench, GridBench) and machine.holds_workgroups:
        raise InputError(
            f"bench {bench.name} is written for a mesh (one program a PE, channels between them), but PEs of "
            f"{machine.name} hold workgroups of a grid; run it on a mesh such as --topology row4_pe8, or run a grid "
            "bench such as decode_splitkv"
        )


def mesh_only(bench: AnyBench, what: str) -> InputError:
    """Return the error for something that exists for meshes only."""
    return InputError(
        f"{what} exists for meshes only, and bench {bench.name} launches grids of workgroups: "
        "its time by cause is in the result of `kernbench run`"
    )


def _check_choice(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"unknown {what} {value!r}{nearest(value, known)}")
