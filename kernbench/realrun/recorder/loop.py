"""The loop over a plan: resume, budget, failures, and records that are on disk as soon as they are made."""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernbench.errors import InputError, nearest
from kernbench.realrun.recorder.machine import Reading, with_state
from kernbench.realrun.recorder.plan import Job, load_plan
from kernbench.realrun.records import (
    Device,
    Implementation,
    Output,
    RunRecord,
    RunSpec,
    Times,
    parse_record,
    write_records,
)

BATCH = 10
"""Records between two readings of the clocks; that many at most are lost by an interruption."""


class WrongResult(Exception):
    """The kernel computed something else; there is no record of it."""


@dataclass(frozen=True)
class Measured:
    """What a runner finds out about one spec."""

    spec: RunSpec
    implementation: Implementation
    times: Times
    output: Output


class Runner(Protocol):
    """Runs specs on some machine."""

    def device(self) -> Device:
        """Describe the machine."""

    def state(self) -> Reading:
        """Read clocks and power."""

    def prepare(self, jobs: Sequence[Job], limit_s: float | None, say: Callable[[str], None]) -> None:
        """Get ready for all of these, by compiling."""

    def measure(self, job: Job) -> Measured:
        """Run, check and time one; any exception is a failure of this one only."""

    def tidy(self) -> None:
        """Free what the last spec held; raises if nothing more can run."""


class _Store:
    """The records of one output file: those it had, and new ones, appended to ``FILE.partial`` as they come."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._partial = out.with_name(out.name + ".partial")
        self._failed = out.with_name(out.name + ".failed")
        self.records: dict[str, RunRecord] = {}
        for path in (out, self._partial):
            for number, line in enumerate(_lines(path), 1):
                try:
                    record = parse_record(line, f"{path}:{number}")
                except InputError:
                    if path == out:
                        raise
                    continue  # cut off by an interruption
                self.records[record.id] = record
        self.failed: dict[str, str] = {}
        for line in _lines(self._failed):
            with contextlib.suppress(ValueError, KeyError):
                entry = json.loads(line)
                self.failed[entry["id"]] = entry["error"]
        with self._appending(self._partial):  # so that a path that cannot be written is found before the work
            pass

    def add(self, records: Iterable[RunRecord]) -> None:
        with self._appending(self._partial) as file:
            for record in records:
                self.records[record.id] = record
                file.write(record.model_dump_json(exclude_none=True, exclude_defaults=True) + "\n")

    def fail(self, name: str, message: str) -> None:
        self.failed[name] = message
        with self._appending(self._failed) as file:
            file.write(json.dumps({"id": name, "error": message}) + "\n")

    def finish(self) -> None:
        write_records(self.records.values(), self._out)
        self._partial.unlink(missing_ok=True)

    def leave_no_trace(self) -> None:
        """Take away the file that was made to see whether it can be, if nothing stands in it."""
        if self._partial.exists() and not self._partial.stat().st_size:
            self._partial.unlink()

    @staticmethod
    @contextlib.contextmanager
    def _appending(path: Path):  # type: ignore[no-untyped-def]
        try:
            with path.open("a", encoding="utf-8") as file:
                yield file
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line] if path.exists() else []


def _select(jobs: list[Job], only: str | Sequence[str] | None) -> list[Job]:
    if only is None:
        return jobs
    wanted = [only] if isinstance(only, str) else list(only)
    known = sorted({job.family for job in jobs})
    for family in wanted:
        if family not in known:
            raise InputError(f"the plan has no family {family!r}{nearest(family, known)}")
    return [job for job in jobs if job.family in wanted]


def record_plan(
    plan: Path | str,
    out: Path,
    *,
    only: str | Sequence[str] | None = None,
    budget_s: float | None = None,
    progress: Callable[[str], None] | None = None,
    runner: Runner | None = None,
) -> int:
    """Time the specs of a plan on this machine's GPU and write a record for each.

    Records are appended to ``OUT.partial`` as they come and all written to ``out`` at the end. A rerun leaves out what
    either file has, and what ``OUT.failed`` says failed; delete that file to try again.

    Parameters
    ----------
    plan
        A file, or the name of a plan that comes with kernbench.
    only
        Families to run; None runs all.
    budget_s
        Seconds after which no further spec is begun; preparing takes half of it at most.
    progress
        Called with one line of text at a time.
    runner
        What runs the specs; None for the GPU that PyTorch sees.

    Returns
    -------
    int
        0 if all specs have records, or the budget ended the run without a failure; 1 if any failed or was wrong; 3 if
        the GPU failed for good and a new process should go on with the rest.

    Raises
    ------
    InputError
        If the plan cannot be used, ``out`` cannot be read or written, or there is no GPU, PyTorch or Triton.
    """
    start = time.monotonic()
    say = progress or (lambda line: None)
    name, jobs = load_plan(plan)
    jobs = _select(jobs, only)
    store = _Store(out)
    todo = [job for job in jobs if job.id not in store.records and job.id not in store.failed]
    say(f"plan {name}: {len(jobs)} specs, {len(jobs) - len(todo)} done or failed before")
    if todo:
        try:
            runner = runner or _gpu_runner()
        except InputError:
            store.leave_no_trace()
            raise
        code = _run(name, todo, store, runner, start, budget_s, say)
    else:
        code = 0
    store.finish()
    families = Counter(record.family for record in store.records.values())
    say(f"{len(store.records)} records: " + ", ".join(f"{family} {n}" for family, n in sorted(families.items())))
    failed = [job.id for job in jobs if job.id in store.failed]
    for failure in failed:
        say(f"failed: {failure}: {store.failed[failure][:200]}")
    return code or int(bool(failed))


def _run(
    name: str, todo: list[Job], store: _Store, runner: Runner, start: float, budget_s: float | None,
    say: Callable[[str], None],
) -> int:  # fmt: skip
    device = runner.device()
    today = datetime.date.today().isoformat()
    source = f"kernbench realrun record, plan {name}, {today}"
    try:
        runner.prepare(todo, None if budget_s is None else budget_s / 2, say)
    except Exception as error:  # each spec can still compile its own kernels, more slowly
        say(f"compiling ahead failed: {type(error).__name__}: {error}"[:500])
    held: list[tuple[Job, Measured]] = []
    before = runner.state()

    def flush() -> None:
        nonlocal before
        after = runner.state()
        here = with_state(device, before, after)
        store.add(
            RunRecord(
                id=job.id, family=job.family, spec=m.spec, implementation=m.implementation, device=here,
                times=m.times, output=m.output, evidence="live", source=source, date=today,
            )
            for job, m in held
        )  # fmt: skip
        held.clear()
        before = after

    try:
        for number, job in enumerate(todo, 1):
            spent = time.monotonic() - start
            if budget_s is not None and spent >= budget_s:
                say(f"budget of {budget_s:g} s spent: {len(todo) - number + 1} specs left for another run")
                break
            try:
                measured = runner.measure(job)
                held.append((job, measured))
                cold = measured.times.cold
                say(f"{number}/{len(todo)} {spent:.0f} s {job.id}: {cold.median if cold else '?'} us")
            except Exception as error:  # one spec's failure must not stop the others
                # Kept as text: the exception's frames would hold the spec's tensors.
                message = f"{type(error).__name__}: {error}"[:1000]
                store.fail(job.id, message)
                say(f"{number}/{len(todo)} {spent:.0f} s {job.id}: FAILED: {message[:200]}")
            try:
                runner.tidy()
            except Exception as error:
                say(f"the GPU has failed for good after {job.id}: {type(error).__name__}: {error}"[:300])
                return 3
            if len(held) >= BATCH:
                flush()
    finally:
        if held:
            flush()
    return 0


def _gpu_runner() -> Runner:
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        raise InputError(f"recording needs PyTorch and Triton: {error}") from None
    if not torch.cuda.is_available():
        raise InputError("recording needs a GPU that PyTorch can use (CUDA or ROCm); there is none")
    from kernbench.realrun.recorder.gpu import GpuRunner

    return GpuRunner()
