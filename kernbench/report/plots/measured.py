"""Real runs as points of a roofline, for machines that describe a GPU that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.report.plots.roofline import Point, measured_points

if TYPE_CHECKING:
    from kernbench.run import RunResult

_TIMES = ("cold", "published")
"""Times that a launch is drawn by, the first that there is: caches flushed, or as someone published it."""


def measured_for(results: Sequence[RunResult], machine: Machine) -> list[Point]:
    """Return the shipped real runs of the kernel families that some results are of, on the GPU of their machine."""
    from kernbench.bench import GridBench, find_bench

    benches = [find_bench(result.bench) for result in results]
    families = {bench.family for bench in benches if isinstance(bench, GridBench) and bench.family}
    return [point for family in sorted(families) for point in measured_on(machine, family)]


def measured_on(machine: Machine, family: str | None = None) -> list[Point]:
    """Return the shipped real runs on the GPU that a machine describes.

    Parameters
    ----------
    machine
        A machine as it is shipped, or with figures changed: runs are of the GPU, not of its figures.
    family
        Kernel family; default: all.

    Returns
    -------
    list of Point
        Empty if no real run of it is known.
    """
    from kernbench.realrun.predict.entry import machine_of
    from kernbench.realrun.prediction import NotModelled
    from kernbench.realrun.records import RunRecord
    from kernbench.realrun.sources import read_records, shipped_records

    def is_here(record: RunRecord) -> bool:
        try:
            return machine_of(record).name == machine.name
        except NotModelled:
            return False

    if not machine.holds_workgroups:
        return []
    records = [record for path in shipped_records() for record in read_records(path).records]
    records = [record for record in records if family in (None, record.family) and is_here(record)]
    for time in _TIMES:
        try:
            return measured_points(records, time)
        except InputError:  # none with this time
            continue
    return []
