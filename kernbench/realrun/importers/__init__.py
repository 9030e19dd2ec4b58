"""Import runs of AMD GPUs from what their profilers write: rocprofv3 (CSV and rocpd) and rocprof v1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.errors import InputError
from kernbench.realrun.importers import rocpd, rocprof_v1, rocprofv3
from kernbench.realrun.importers.agents import Fleet, prefix_of
from kernbench.realrun.importers.formats import is_sqlite, read_table
from kernbench.realrun.importers.group import Group, counter_values, group, join, quantiles
from kernbench.realrun.importers.labels import Label, Labels, parse_spec, read_labels
from kernbench.realrun.importers.profile import Agent, Profile
from kernbench.realrun.records import Device, Implementation, RunRecord, Times

__all__ = ["SKIP_FIRST", "ImportResult", "import_runs", "parse_spec"]

SKIP_FIRST = 3
"""Dispatches of each kernel that are taken as warm-up: caches, clocks and code objects are not yet as later."""

_UNKNOWN_ARCH = "unknown"
_READERS = {
    "trace": rocprofv3.read_trace,
    "counters": rocprofv3.read_counters,
    "agents": rocprofv3.read_agents,
    "v1": rocprof_v1.read,
}


@dataclass(frozen=True)
class ImportResult:
    """Records, and what a user should know of them."""

    records: tuple[RunRecord, ...]
    warnings: tuple[str, ...]


def import_runs(
    paths: Sequence[Path],
    *,
    spec: Mapping[str, Any] | None = None,
    sidecar: Path | None = None,
    source: str | None = None,
    skip_first: int = SKIP_FIRST,
    xcc: int | None = None,
    kernel: str | None = None,
) -> ImportResult:
    """Make records of profiles: one of each kernel, grid, workgroup, LDS and GPU.

    Times come from files without counters only; a file with counters gives counters, which are joined with the times
    of the same kernel, grid, workgroup and LDS. Formats are told from content.

    Parameters
    ----------
    paths : Sequence[Path]
        Traces, counters, agents, databases. Agents are also looked for beside each file.
    spec : Mapping[str, Any], optional
        ``family``, fields of the spec and of the implementation, ``gpu``, ``arch``; see :func:`parse_spec`.
    sidecar : Path, optional
        YAML that says the same by kernel name.
    source : str, optional
        Who measured it and where that is published; the files and their formats if left out.
    skip_first : int, default 3
        Warm-up dispatches of each kernel that are dropped, of each file, process and GPU.
    xcc : int, optional
        XCDs of the GPU as it was partitioned, that sums over XCDs are divided by; as the profile says if left out.
    kernel : str, optional
        Regular expression: only kernels in whose names it is found.

    Raises
    ------
    InputError
        If a file is damaged or of no known format, an argument is not legal, or nothing is left to import.
    """
    if not paths:
        raise InputError("give at least one file to import")
    if skip_first < 0:
        raise InputError(f"skip-first is {skip_first}; it must be 0 or more")
    if xcc is not None and xcc < 1:
        raise InputError(f"xcc is {xcc}; it must be 1 or more")
    if source is not None and not source.strip():
        raise InputError("source is empty")
    labels = read_labels(spec, sidecar)
    profiles = [_only(profile, kernel) for profile in map(_read, _distinct(paths))]
    given = [agent for profile in profiles if not profile.dispatches for agent in profile.agents]
    warnings = [warning for profile in profiles for warning in profile.warnings]
    runs = [(profile, Fleet(profile, given)) for profile in profiles if profile.dispatches]
    for _, fleet in runs:
        warnings += fleet.warnings
    if not runs:
        raise InputError(_nothing(profiles, kernel))
    if xcc is not None:
        warnings += _disagreeing(runs, xcc)
    runs = _without_times_of_counter_runs(runs, warnings)
    timed = _warm(group((run for run in runs if not run[0].counted), skip_first), skip_first, warnings)
    counted = _warm(group((run for run in runs if run[0].counted), skip_first), skip_first, warnings)
    if not timed and not counted:
        raise InputError(f"no kernel was dispatched more than {skip_first} times; give a smaller --skip-first")
    builder = _Builder(labels, source, skip_first, xcc)
    records = [builder.record(one, other) for one, other in join(timed, counted, warnings)]
    return ImportResult(tuple(records), tuple(dict.fromkeys(warnings + builder.warnings())))


def _distinct(paths: Sequence[Path]) -> list[Path]:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise InputError(f"{path}: is given twice; its dispatches would count twice")
        seen.add(path.resolve())
    return list(paths)


def _read(path: Path) -> Profile:
    if path.is_dir():
        raise InputError(f"{path}: is a directory; give the files in it")
    if is_sqlite(path):
        return rocpd.read(path)
    table = read_table(path)
    return _READERS[table.format.kind](table)


def _only(profile: Profile, kernel: str | None) -> Profile:
    if kernel is None:
        return profile
    try:
        pattern = re.compile(kernel)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"kernel {kernel!r}: is not a regular expression: {error}") from None
    kept = tuple(d for d in profile.dispatches if pattern.search(d.name))
    return Profile(profile.path, profile.format, profile.counted, kept, profile.agents, profile.warnings)


def _nothing(profiles: list[Profile], kernel: str | None) -> str:
    if kernel is not None:
        return f"no dispatch of a kernel whose name fits {kernel!r}"
    names = ", ".join(str(profile.path) for profile in profiles)
    return f"{names}: holds agents only; give a kernel trace or counters too"


def _disagreeing(runs: list[tuple[Profile, Fleet]], xcc: int) -> list[str]:
    said = {agent.xcc for _, fleet in runs for agent in fleet.agents if agent.xcc is not None}
    return [f"xcc is {xcc}, and the profile says {found}; {xcc} was taken" for found in sorted(said - {xcc})]


def _without_times_of_counter_runs(
    runs: list[tuple[Profile, Fleet]], warnings: list[str]
) -> list[tuple[Profile, Fleet]]:
    """Drop traces of the very runs that collected counters, told by dispatches with the same stamps."""
    stamps = {(d.start, d.end) for profile, _ in runs if profile.counted for d in profile.dispatches if d.end}
    kept = []
    for profile, fleet in runs:
        if not profile.counted and any((d.start, d.end) in stamps for d in profile.dispatches):
            warnings.append(
                f"{profile.path}: its times were left out, since the same run collected counters; trace another run "
                "without --pmc"
            )
            continue
        if not profile.counted and (twin := _counters_beside(profile.path)):
            warnings.append(
                f"{profile.path}: {twin.name} lies beside it; if one run wrote both, these times are too long. Trace "
                "another run without --pmc"
            )
        kept.append((profile, fleet))
    if all(profile.counted for profile, _ in kept):
        warnings.append("there are counters and no times; add the kernel trace of a run without --pmc")
    return kept


def _counters_beside(path: Path) -> Path | None:
    prefix = prefix_of(path)
    twin = path.with_name(f"{prefix}counter_collection.csv")
    return twin if prefix and twin != path and twin.exists() else None


def _warm(groups: list[Group], skip_first: int, warnings: list[str]) -> list[Group]:
    for one in groups:
        if not one.kept:
            warnings.append(
                f"{one.title()}: left out, since all its dispatches ({one.seen}) are among the first {skip_first}; "
                "a smaller --skip-first keeps it"
            )
    return [one for one in groups if one.kept]


class _Builder:
    """Makes records, and collects what is not known of them."""

    def __init__(self, labels: Labels, source: str | None, skip_first: int, xcc: int | None) -> None:
        self._labels = labels
        self._source = source
        self._skip = skip_first
        self._xcc = xcc
        self._lacking: set[str] = set()
        self._no_arch = False
        self._ragged: list[str] = []

    def record(self, one: Group, other: Group | None) -> RunRecord:
        """Make a record of a group, and the counters that belong to it."""
        counted = one if one.counted else other
        label = self._labels.find(one.first.name)
        sources = sorted(one.sources | (other.sources if other else set()))
        times = {label.time: quantiles(one.durations)} if one.durations else {}
        device = self._device(one, other, label)
        return RunRecord(
            id=_identity(one, device),
            family=label.family,
            spec=label.spec,
            implementation=self._implementation(one, other, label),
            device=device,
            times=Times(**times),
            counters=counter_values(counted, self._xcc, self._lacking) if counted else {},
            evidence="recorded",
            source=self._source or "; ".join(sources),
            caveat=self._caveat(one, counted),
        )

    def warnings(self) -> list[str]:
        """Say what is not known of the records, or looks wrong."""
        found = self._labels.warnings()
        if self._lacking:
            found.append(
                f"{', '.join(sorted(self._lacking))}: left out; they are sums over XCDs, and how many there are is not "
                "known. Give --xcc (8 of MI300X, MI325X, MI350X and MI355X unpartitioned, 6 of MI300A, 1 of MI200), or "
                "the agent_info.csv of the run"
            )
        if self._no_arch:
            found.append(
                "the GPU is not known: give the agent_info.csv of the run, or --spec arch=gfx942 --spec gpu=..."
            )
        for title in self._ragged:
            found.append(f"{title}: its grid is no multiple of its workgroup; workgroups were rounded up")
        return found

    def _implementation(self, one: Group, other: Group | None, label: Label) -> Implementation:
        first = one.first
        if any(g % w for g, w in zip(first.grid, first.workgroup, strict=True)):
            self._ragged.append(one.title())
        # Old traces have no registers, and new ones no LDS asked for at launch; the counters of the kernel may.
        vgpr, accum, sgpr, lds, static_lds = (
            next((v for d in (first, other.first if other else first) if (v := getattr(d, name)) is not None), None)
            for name in ("vgpr", "accum_vgpr", "sgpr", "lds", "static_lds")
        )
        wave = first.wave_size or _agent(one, other).wave_size
        notes = {
            "kernel": first.name,
            "workgroup": list(first.workgroup),
            "vgpr": vgpr,
            "accum_vgpr": accum,
            "sgpr": sgpr,
            "scratch_bytes": first.scratch,
            "static_lds_bytes": static_lds,
        }
        measured = {
            "name": first.name,
            "grid": tuple(-(-g // w) for g, w in zip(first.grid, first.workgroup, strict=True)),
            "waves": -(-first.size[2] // wave) if wave else None,
            "registers": None if vgpr is None else vgpr + (accum or 0),
            "lds_bytes": lds,
            "notes": {key: value for key, value in notes.items() if value is not None},
        }
        return Implementation(**{**measured, **label.implementation})

    def _device(self, one: Group, other: Group | None, label: Label) -> Device:
        agent = _agent(one, other)
        arch = label.device.get("arch", agent.arch)
        if arch is None:
            self._no_arch = True
        return Device(gpu=label.device.get("gpu", agent.gpu), arch=arch or _UNKNOWN_ARCH)

    def _caveat(self, one: Group, counted: Group | None) -> str:
        parts = []
        if one.durations:
            parts.append(
                "time of the kernel alone as the profiler stamped it, without the gap between launches; caches as the "
                f"run left them; first {self._skip} dispatches dropped"
            )
        if counted:
            parts.append(f"counters: medians over {counted.kept} dispatches of a run of their own; GRBM_* of one XCD")
        return "; ".join(parts)


def _agent(one: Group, other: Group | None) -> Agent:
    return one.agent if one.agent.arch or other is None else other.agent


def _identity(one: Group, device: Device) -> str:
    first, agent = one.first, one.agent
    # What was measured too: the same kernel of another run is another record, and the same file again is the same.
    measured = (one.durations, sorted(one.counters.items()))
    lds = (first.lds, first.static_lds)
    parts = (first.name, first.grid, first.workgroup, lds, device.arch, device.gpu, agent.xcc, agent.wave_size)
    text = repr((parts, measured))
    short = re.sub(r"[^A-Za-z0-9]+", "-", first.name)[:40].strip("-") or "kernel"
    return f"import-{short}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:10]}"
