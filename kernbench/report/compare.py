"""What changed between two runs: makespan, time by cause, by source line and by launch, and what differs in what ran.

Times are integer picoseconds: the differences by cause add up to that of the makespan, and so do those by line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kernbench.ledger import Ledger
from kernbench.report.shares import parts_of
from kernbench.run import CorrectnessResult, RunResult

FIGURES = ("pes", "classes", "commands", "scratch_peak_bytes", "hbm_bytes", "link_bytes", "flops")
"""Counts of a result that are compared."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Change(_Part):
    """A time of both runs. Null: that run has no such line, or launch."""

    name: str
    a_ps: int | None
    b_ps: int | None
    difference_ps: int = Field(description="of B to A; what a run does not have counts as 0")

    @property
    def only_in(self) -> str:
        """``A`` or ``B`` if the other run has nothing like it, else empty."""
        return "B" if self.a_ps is None else "A" if self.b_ps is None else ""


class Figure(_Part):
    """A count of both runs; null if the mode does not measure it."""

    name: str
    a: int | None
    b: int | None


class Difference(_Part):
    """Something that is not the same in what ran. Null: that run has no such thing."""

    where: str = Field(description="run, spec, implementation, machine or kernel")
    name: str = Field(description="a field; of a machine the key path in its file")
    a: Any
    b: Any


class Comparison(_Part):
    """What changed from run A to run B."""

    a: str = Field(description="bench and topology of run A")
    b: str
    makespan: Change | None = Field(description="null if a run has no time")
    ratio: float | None = Field(description="makespan of B over that of A; null if a run has no time")
    by_cause: list[Change] | None = Field(description="largest change first; the differences add up to the makespan's")
    by_line: list[Change] | None = Field(description="of the critical path, likewise; null if a run has no such path")
    by_launch: list[Change] | None = Field(description="of grid benches, with the collectives, likewise")
    figures: list[Figure]
    differences: list[Difference]
    correctness_a: CorrectnessResult | None
    correctness_b: CorrectnessResult | None
    ledger_a: Ledger
    ledger_b: Ledger
    not_compared: list[str] = Field(description="what cannot be compared, and why")


def compare_runs(a: RunResult, b: RunResult) -> Comparison:
    """Say what changed from run ``a`` to run ``b``; what one of them does not measure is named as not compared.

    Lines of the critical path are matched by file, text and, among lines on the path with the same text, their order:
    numbers move when a kernel is edited. Of one and the same kernel file the numbers are matched too.

    Raises
    ------
    InputError
        If the shares of a result do not add up to 1.
    """
    timed = a.makespan_ps is not None and b.makespan_ps is not None
    makespan = _change("makespan", a.makespan_ps, b.makespan_ps) if timed else None
    return Comparison(
        a=_title(a),
        b=_title(b),
        makespan=makespan,
        ratio=b.makespan_ps / a.makespan_ps if a.makespan_ps and b.makespan_ps else None,
        by_cause=_by_cause(a, b) if timed else None,
        by_line=_by_line(a, b) if a.critical_path and b.critical_path else None,
        by_launch=_by_launch(a, b) if a.launches and b.launches else None,
        figures=[Figure(name=name, a=getattr(a, name), b=getattr(b, name)) for name in FIGURES],
        differences=_differences(a, b),
        correctness_a=a.correctness,
        correctness_b=b.correctness,
        ledger_a=a.ledger,
        ledger_b=b.ledger,
        not_compared=_not_compared(a, b),
    )


def _title(run: RunResult) -> str:
    return f"{run.bench} on {run.topology}"


def _change(name: str, a: int | None, b: int | None) -> Change:
    return Change(name=name, a_ps=a, b_ps=b, difference_ps=(b or 0) - (a or 0))


def _largest_first(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: -abs(change.difference_ps))


def _by_cause(a: RunResult, b: RunResult) -> list[Change]:
    in_a, in_b = (parts_of(run.time_by_cause or {}, run.makespan_ps or 0) for run in (a, b))
    return _largest_first(_change(name, in_a.get(name, 0), in_b.get(name, 0)) for name in {**in_a, **in_b})


# ---------------------------------------------------------------- source lines
_LINE = re.compile(r"(?P<file>.*?):(?P<number>\d+)(?:: (?P<text>.*))?", re.DOTALL)


def split_line(line: str) -> tuple[str, int, str]:
    """Return file, number and text of a source line as results name it.

    >>> split_line("benches/mine.py:12: x = tl.load(a)")
    ('benches/mine.py', 12, 'x = tl.load(a)')
    """
    found = _LINE.fullmatch(line)
    return (found["file"], int(found["number"]), found["text"] or "") if found else (line, 0, "")


def _by_line(a: RunResult, b: RunResult) -> list[Change]:
    in_a, in_b = _line_times(a), _line_times(b)
    if set(in_a) & set(in_b) and _same_kernel(a, b):
        return _largest_first(_change(name, in_a.get(name), in_b.get(name)) for name in {**in_a, **in_b})
    keys_a, keys_b = _keys(in_a), _keys(in_b)
    changes = []
    for key in {**keys_a, **keys_b}:
        name_a, name_b = keys_a.get(key), keys_b.get(key)
        at_a, at_b = in_a.get(name_a or ""), in_b.get(name_b or "")
        changes.append(_change(name_b or name_a or "", at_a, at_b))
    return _largest_first(changes)


def _line_times(run: RunResult) -> dict[str, int]:
    shares = run.critical_path.time_by_line if run.critical_path else {}
    return parts_of(shares, run.makespan_ps or 0)


def _same_kernel(a: RunResult, b: RunResult) -> bool:
    return bool(a.kernel_sha256) and a.kernel_sha256 == b.kernel_sha256


def _keys(lines: Iterable[str]) -> dict[tuple[str, str, int], str]:
    """Return each line by file name, text, and which of those with this text it is."""
    seen: Counter[tuple[str, str]] = Counter()
    keys = {}
    for line in sorted(lines, key=split_line):
        file, _, text = split_line(line)
        same = (file.rpartition("/")[2], text)
        keys[(*same, seen[same])] = line
        seen[same] += 1
    return keys


# ---------------------------------------------------------------- launches
def _by_launch(a: RunResult, b: RunResult) -> list[Change]:
    in_a, in_b = launch_times(a), launch_times(b)
    return _largest_first(_change(name, in_a.get(name), in_b.get(name)) for name in {**in_a, **in_b})


def launch_times(run: RunResult) -> dict[str, int]:
    """Return picoseconds of each launch, its overhead included, and of each collective; they add up to the makespan.

    Those that have a name in common are numbered: ``reduce``, ``reduce, 2nd``.
    """
    times: dict[str, int] = {}
    collectives = list(run.collectives or ())
    for i, launch in enumerate([*(run.launches or ()), None]):
        for part in [c for c in collectives if c.after == i]:
            times[_numbered(part.operation, times)] = part.makespan_ps
        if launch is not None:
            times[_numbered(launch.kernel, times)] = launch.overhead_ps + launch.makespan_ps
    return times


def _numbered(name: str, known: Mapping[str, int]) -> str:
    n, numbered = 1, name
    while numbered in known:
        n += 1
        numbered = f"{name} ({n})"
    return numbered


# ---------------------------------------------------------------- what ran
def _differences(a: RunResult, b: RunResult) -> list[Difference]:
    names = ("bench", "topology", "mode", "engine", "inputs", "seed", "kernbench_version")
    groups: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("run", {n: getattr(a, n) for n in names}, {n: getattr(b, n) for n in names}),
        ("spec", a.spec, b.spec),
        ("implementation", a.implementation or {}, b.implementation or {}),
        ("machine", flatten(a.machine), flatten(b.machine)),
        ("kernel", {"sha256": a.kernel_sha256}, {"sha256": b.kernel_sha256}),
    ]
    found = []
    for where, in_a, in_b in groups:
        for name in {**in_a, **in_b}:
            left, right = in_a.get(name), in_b.get(name)
            if left != right:
                found.append(Difference(where=where, name=name, a=left, b=right))
    return found


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a document by key path.

    >>> flatten({"cube": {"memory": {"bandwidth": "1 TB/s"}}, "links": ["E", "W"]})
    {'cube.memory.bandwidth': '1 TB/s', 'links.0': 'E', 'links.1': 'W'}
    """
    leaves: dict[str, Any] = {}
    for key, value in document.items():
        path = f"{prefix}{key}"
        inside = {str(i): item for i, item in enumerate(value)} if isinstance(value, list) else value
        if isinstance(inside, Mapping):
            leaves.update(flatten(inside, f"{path}."))
        else:
            leaves[path] = inside
    return leaves


def _not_compared(a: RunResult, b: RunResult) -> list[str]:
    runs = {"A": a, "B": b}
    said = [f"time: run {x} has none (mode {run.mode})" for x, run in runs.items() if run.makespan_ps is None]
    if not said:
        grids = [x for x, run in runs.items() if run.critical_path is None]
        if len(grids) == 1:
            said.append(f"source lines, launches: run {grids[0]} launches grids of workgroups, the other is of a mesh")
        elif grids:
            said.append("source lines: runs of grids of workgroups have no critical path; launches stand in its place")
    said += [f"values: run {x} has none (mode {run.mode})" for x, run in runs.items() if run.correctness is None]
    if a.bench != b.bench:
        said.append(f"the work: the benches differ ({a.bench}, {b.bench}), so a shorter time may be of less work")
    return said
