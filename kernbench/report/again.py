"""Reading a run's result back, and timing the same run again for what its file does not hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kernbench.errors import InputError
from kernbench.run import RunResult

if TYPE_CHECKING:
    from kernbench.bench import AnyBench
    from kernbench.machine import Machine
    from kernbench.simulate.timeline import Timeline


def read_result(path: Path) -> RunResult:
    """Read what ``kernbench run --json`` wrote.

    Raises
    ------
    InputError
        If there is no such file, or it holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(f"cannot read {path}: {reason}") from None
    how = "write one with `kernbench run BENCH --json FILE`"
    try:
        return RunResult.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: is no JSON ({error.msg}); {how}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise InputError(f"{path}: is no result of a run ({where}: {first['msg']}); {how}") from None


@dataclass(frozen=True)
class Again:
    """A run that was timed again."""

    bench: AnyBench
    machine: Machine
    timeline: Timeline


def machine_of(result: RunResult) -> Machine:
    """Return the machine of a result, from the copy of its file that the result holds."""
    from kernbench.machine import load_machine

    return load_machine(result.machine)


def time_again(result: RunResult) -> Again:
    """Record and simulate the run of a mesh bench again; time is deterministic, so it is the same.

    Raises
    ------
    InputError
        If the run was not timed, the bench launches grids of workgroups (they have no timeline of commands), or the
        time is another: the kernel or kernbench has changed since.
    """
    from kernbench.bench import GridBench, apply_settings, find_bench
    from kernbench.record import record
    from kernbench.simulate import simulate

    if result.makespan_ps is None:
        raise InputError(f"this run of {result.bench} was not timed: run it with --mode both or --mode time")
    bench, machine = find_bench(result.bench), machine_of(result)
    if isinstance(bench, GridBench) or machine.holds_workgroups:
        raise InputError(f"{result.bench} on {result.topology} launches grids of workgroups: it has no timeline")
    spec, _ = apply_settings(bench, result.spec)
    args, _ = bench.arguments(spec, machine, None)
    timeline = simulate(record(bench.kernel, machine, args=args), machine)
    if timeline.makespan_ps != result.makespan_ps:
        raise InputError(
            f"{result.bench} on {result.topology} now takes {timeline.makespan_ps:,} ps, not {result.makespan_ps:,}: "
            f"the kernel or kernbench has changed since; make the result again with\n  {result.command}"
        )
    return Again(bench, machine, timeline)
