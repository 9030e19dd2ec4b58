"""Timing the points of a sweep: one trace recorded for each kernel and spec, and used again over machines.

What is here runs in worker processes, local or of a cluster, and takes and returns plain data.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernbench.bench import AnyBench, Bench, apply_settings, find_bench, names_failures
from kernbench.errors import InputError, KernbenchError
from kernbench.explore.space import overridden
from kernbench.machine import Machine
from kernbench.on_grid import form_for
from kernbench.provenance import code_sha256, sources_sha256
from kernbench.record import Trace, record
from kernbench.tensors import Tensor

if TYPE_CHECKING:
    from kernbench.simulate.program import Program

DONE, FAILED = "done", "failed"
_TRACES = 4
"""Recorded traces that a worker keeps: its points come ordered by trace."""


@dataclass(frozen=True)
class Context:
    """What all points of a sweep share; a worker checks that it has the same code."""

    bench: str
    sources_sha256: str
    code_sha256: str
    machines: str
    """JSON: for each machine its document and the name of its file."""

    @classmethod
    def of(cls, bench: AnyBench, machines: Sequence[Machine]) -> Context:
        """Return the context of a sweep in this process."""
        documents = [[dict(machine.document), machine.source] for machine in machines]
        return cls(bench.name, sources_sha256(bench), code_sha256(), json.dumps(documents))


@dataclass(frozen=True)
class Job:
    """A point to be timed."""

    key: str
    topology: int
    settings: str
    """JSON: fields that are set."""
    overrides: str
    """JSON: values of the machine's file that are changed."""


@dataclass(frozen=True)
class Outcome:
    """What timing a point found."""

    key: str
    status: str
    """``done`` or ``failed``."""
    error: str | None = None
    spec: str = "{}"
    """JSON: every field of the spec and the implementation."""
    pes: int | None = None
    commands: int | None = None
    makespan_ps: int | None = None
    scratch_peak_bytes: int | None = None
    hbm_bytes: int | None = None
    link_bytes: int | None = None
    flops: int | None = None


_MINE = threading.local()
"""Each thread's evaluator: what it keeps between chunks must not be shared."""


def evaluate_chunk(context: Context, jobs: Sequence[Job]) -> tuple[list[Outcome], float]:
    """Time some points, in a worker; return what was found and how many seconds it took."""
    evaluator = getattr(_MINE, "evaluator", None)
    if evaluator is None or evaluator.context != context:
        evaluator = _MINE.evaluator = Evaluator(context)
    begin = time.perf_counter()
    return [evaluator.evaluate(job) for job in jobs], time.perf_counter() - begin


class Evaluator:
    """Times points of one sweep, one after the other.

    Raises
    ------
    InputError
        If the bench or kernbench itself is another here than where the sweep was started.
    """

    def __init__(self, context: Context) -> None:
        from kernbench.simulate.compiled import Workspace

        self.context = context
        bench = find_bench(context.bench)
        self._machines = [Machine.from_document(*pair) for pair in json.loads(context.machines)]
        self._bench = form_for(bench, self._machines[0])[0]
        if (sources_sha256(self._bench), code_sha256()) != (context.sources_sha256, context.code_sha256):
            raise InputError(
                f"a worker has another version of kernbench, or of the bench {context.bench}, than this process: "
                "install the same on both"
            )
        self._traces: OrderedDict[tuple[Any, ...], Trace | KernbenchError] = OrderedDict()
        self._like: Program | None = None
        self._workspace = Workspace()

    def evaluate(self, job: Job) -> Outcome:
        """Time one point; what makes it impossible is part of the outcome."""
        try:
            machine = overridden(self._machines[job.topology], job.overrides)
            spec, implementation = apply_settings(self._bench, json.loads(job.settings))
        except KernbenchError as error:
            return Outcome(job.key, FAILED, str(error))
        fields = spec.model_dump(mode="json") | (implementation.model_dump(mode="json") if implementation else {})
        try:
            found = self._grid(spec, implementation, machine) if implementation else self._mesh(spec, machine)
        except KernbenchError as error:
            return Outcome(job.key, FAILED, str(error), json.dumps(fields))
        return Outcome(job.key, DONE, None, json.dumps(fields), **found)

    def _mesh(self, spec: Any, machine: Machine) -> dict[str, int]:
        from kernbench.simulate.compiled import run_compiled
        from kernbench.simulate.program import build_program

        trace = self._trace(spec, machine)
        self._like = build_program(trace, machine, self._like)
        timeline = run_compiled(self._like, workspace=self._workspace)
        return {
            "pes": trace.n_pes,
            "commands": trace.n_commands,
            "makespan_ps": timeline.makespan_ps,
            "scratch_peak_bytes": trace.scratch_peak_bytes,
            "hbm_bytes": timeline.hbm_bytes,
            "link_bytes": timeline.link_bytes,
            "flops": timeline.flops,
        }

    def _trace(self, spec: Any, machine: Machine) -> Trace:
        """Return the trace of a spec: recorded once for all machines that recording cannot tell apart.

        The arguments are made for each machine, since a bench may make them of any of its figures.
        """
        assert isinstance(self._bench, Bench)  # a grid bench has an implementation
        with names_failures(self._bench):
            args, _ = self._bench.arguments(spec, machine, None)
        key = (spec.model_dump_json(), machine.signature, *machine.recording_limits, _identity(args))
        if key not in self._traces:
            self._like = None
            while len(self._traces) >= _TRACES:
                self._traces.popitem(last=False)
            try:
                self._traces[key] = record(self._bench.kernel, machine, args=args)
            except KernbenchError as error:
                self._traces[key] = error
        self._traces.move_to_end(key)
        found = self._traces[key]
        if isinstance(found, KernbenchError):
            raise found
        return found

    def _grid(self, spec: Any, implementation: Any, machine: Machine) -> dict[str, int | None]:
        from kernbench.run import run_bench

        result = run_bench(self._bench, machine, spec, implementation=implementation, mode="time")
        names = ("pes", "commands", "makespan_ps", "scratch_peak_bytes", "hbm_bytes", "link_bytes", "flops")
        return {name: getattr(result, name) for name in names}


def _identity(arg: Any) -> Any:
    """Return what tells an argument of a kernel from another one: of a tensor its form, and values that it holds."""
    if isinstance(arg, (tuple, list)):
        return tuple(_identity(one) for one in arg)
    if isinstance(arg, Tensor):
        values = arg.numpy().tobytes() if arg.is_held else b""
        return arg.shape, arg.dtype.name, arg.placement, values
    return repr(arg)
