"""The winner of a sweep, and why it takes what it takes: its lower bounds beside what it achieved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernbench.bench import AnyBench, apply_settings, find_bench
from kernbench.errors import InputError
from kernbench.explore.space import work_of
from kernbench.machine import load_machine
from kernbench.run import RunResult, run_bench

if TYPE_CHECKING:
    from kernbench.simulate.explain import Bound
    from kernbench.simulate.timeline import Timeline


@dataclass(frozen=True)
class Why:
    """A run and what it is held up by."""

    result: RunResult
    bounds: tuple[Bound, ...]
    """Times that no schedule of the same commands on this machine can beat, largest first."""


def run_point(row: dict[str, Any]) -> Why:
    """Run a stored point again, for time, with all that a sweep does not keep.

    Parameters
    ----------
    row
        As :meth:`kernbench.explore.store.Store.rows` yields it.

    Raises
    ------
    InputError
        If it failed, or takes another time now: its machine's file, its kernel or kernbench has changed since.
    """
    from kernbench.bounds import bounds_of

    if row["status"] != "done":
        raise InputError(f"the point failed: {row['error']}")
    machine = load_machine(row["topology"], json.loads(row["overrides"]))
    if machine.sha256 != row["machine_sha256"]:
        raise InputError(f"{row['topology']} has changed since the sweep was run: run the sweep again")
    from kernbench.on_grid import form_for

    bench = find_bench(row["bench"])
    spec, implementation = apply_settings(form_for(bench, machine)[0], json.loads(row["settings"]))
    timelines: list[Timeline] = []
    look = None if machine.holds_workgroups else timelines.append
    result = run_bench(bench, machine, spec, implementation=implementation, mode="time", look=look)
    if result.makespan_ps != row["makespan_ps"]:
        raise InputError(
            f"the point now takes {result.makespan_ps:,} ps, not {row['makespan_ps']:,}: the kernel or kernbench has "
            "changed since the sweep was run: run the sweep again"
        )
    return Why(result, bounds_of(result, timelines[0] if timelines else None))


def best_rows(rows: list[dict[str, Any]], objectives: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the best feasible point for each work, the largest first: other inputs make no worse choice.

    Best is what has the least objectives, the first one deciding; of equals the first in the space.
    """
    best: dict[tuple[int, str], dict[str, Any]] = {}
    for row in (row for row in rows if row["feasible"]):
        work = _work(row["bench"], row["topology"], row["settings"])
        best[work] = min(best.get(work, row), row, key=lambda r: (*(r[name] for name in objectives), r["position"]))
    return [best[work] for work in sorted(best, reverse=True)]


@lru_cache(maxsize=100_000)
def _work(bench: str, topology: str, settings: str) -> tuple[int, str]:
    return work_of(apply_settings(_form(bench, topology), json.loads(settings))[0])


@lru_cache(maxsize=16)
def _form(bench: str, topology: str) -> AnyBench:
    from kernbench.on_grid import form_for

    return form_for(find_bench(bench), load_machine(topology))[0]
