"""CSV files of rocprof v1 (and of rocprofv2's file plugin, version 1): a line each dispatch, a column each counter.

Header: ROCm/rocprofiler README.md ("File plugin version 1 output header").
"""

from __future__ import annotations

import re

from kernbench.errors import InputError
from kernbench.realrun.importers.formats import Row, Table
from kernbench.realrun.importers.profile import Dispatch, Profile
from kernbench.realrun.importers.timestamps import check_span, integer, number, optional_integer

_TIMES = ("BeginNs", "EndNs")
_FIXED = frozenset(
    [
        "index",
        "kernelname",
        "gpu-id",
        "queue-id",
        "queue-index",
        "pid",
        "tid",
        "grd",
        "wgr",
        "lds",
        "scr",
        "vgpr",
        "arch_vgpr",
        "accum_vgpr",
        "sgpr",
        "fbar",
        "wave_size",
        "sig",
        "obj",
        "dispatchns",
        "beginns",
        "endns",
        "completens",
        "durationns",
    ]
)


def read(table: Table) -> Profile:
    """Read dispatches.

    Raises
    ------
    InputError
        If a field is damaged, or the file has neither times nor counters.
    """
    counters = [column for column in table.header if column and column.lower() not in _FIXED]
    timed = all(table.has(column) for column in _TIMES)
    if not timed and not counters:
        raise InputError(
            f"{table.path}: has neither times (BeginNs, EndNs) nor counters; run rocprof with --timestamp on"
        )
    dispatches = tuple(_dispatch(row, counters, timed) for row in table.rows)
    return Profile(table.path, table.format.name, bool(counters), dispatches, warnings=table.warnings)


def _dispatch(row: Row, counters: list[str], timed: bool) -> Dispatch:
    start = end = 0
    if timed:
        start, end = (integer(row[column], row.where, column) for column in _TIMES)
        check_span(start, end, row.where, _TIMES)
    return Dispatch(
        name=_name(row),
        grid=(integer(row["grd"], row.where, "grd", 1),),
        workgroup=(integer(row["wgr"], row.where, "wgr", 1),),
        lds=optional_integer(row["lds"], row.where, "lds"),
        start=start,
        end=end,
        agent=row["gpu-id"],
        process=row.get("pid"),
        vgpr=optional_integer(row.get("arch_vgpr") or row.get("vgpr"), row.where, "arch_vgpr"),
        accum_vgpr=optional_integer(row.get("accum_vgpr"), row.where, "accum_vgpr"),
        sgpr=optional_integer(row.get("sgpr"), row.where, "sgpr"),
        scratch=optional_integer(row["scr"], row.where, "scr"),
        wave_size=optional_integer(row.get("wave_size"), row.where, "wave_size") or None,
        counters={column: number(row[column], row.where, column) for column in counters},
    )


def _name(row: Row) -> str:
    # rocprofv3 writes neither of these suffixes.
    name = re.sub(r"(\s*\[clone \.kd\]|\.kd)$", "", row["KernelName"])
    if not name:
        raise InputError(f"{row.where}, column KernelName: is empty")
    return name
