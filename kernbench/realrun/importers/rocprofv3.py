"""CSV files of rocprofv3: kernel traces of three generations, counters in long form, agents.

Headers: ROCm/rocm-systems ``projects/rocprofiler-sdk/source/docs/data``; of files that ``rocpd convert`` wrote,
``projects/rocprofiler-sdk/source/lib/python/rocpd/csv.py``.
"""

from __future__ import annotations

import re

from kernbench.errors import InputError
from kernbench.realrun.importers.formats import Row, Table
from kernbench.realrun.importers.profile import Agent, Dispatch, Profile
from kernbench.realrun.importers.timestamps import check_span, integer, number, optional_integer

_TIMES = ("Start_Timestamp", "End_Timestamp")


def read_trace(table: Table) -> Profile:
    """Read a kernel trace.

    Raises
    ------
    InputError
        If a field is damaged; names file, line and column.
    """
    lds = (
        "Group_Segment_Size"
        if table.has("Group_Segment_Size") and not table.has("LDS_Block_Size")
        else "LDS_Block_Size"
    )
    scratch = "Private_Segment_Size" if lds == "Group_Segment_Size" else "Scratch_Size"
    total = lds == "Group_Segment_Size" or table.has("Guid")
    dispatches = []
    for row in table.rows:
        start, end = _span(row)
        dispatches.append(
            Dispatch(
                name=_name(row),
                grid=tuple(integer(row[f"Grid_Size_{a}"], row.where, f"Grid_Size_{a}", 1) for a in "XYZ"),
                workgroup=tuple(
                    integer(row[f"Workgroup_Size_{a}"], row.where, f"Workgroup_Size_{a}", 1) for a in "XYZ"
                ),
                lds=optional_integer(row[lds], row.where, lds) if total else None,
                static_lds=None if total else optional_integer(row[lds], row.where, lds),
                start=start,
                end=end,
                agent=row["Agent_Id"],
                vgpr=optional_integer(row.get("VGPR_Count"), row.where, "VGPR_Count"),
                accum_vgpr=optional_integer(row.get("Accum_VGPR_Count"), row.where, "Accum_VGPR_Count"),
                sgpr=optional_integer(row.get("SGPR_Count"), row.where, "SGPR_Count"),
                scratch=optional_integer(row.get(scratch), row.where, scratch),
                process=row.get("Guid"),
            )
        )
    return Profile(table.path, table.format.name, False, tuple(dispatches), warnings=table.warnings)


def read_counters(table: Table) -> Profile:
    """Read counters, a line each; the lines of a dispatch become one.

    A counter that a dispatch has several lines of (one of each instance) is summed.

    Raises
    ------
    InputError
        If a field is damaged, also a timestamp, though it is not used: what damaged it may have damaged the rest.
    """
    first: dict[tuple[str, ...], Row] = {}
    counters: dict[tuple[str, ...], dict[str, float]] = {}
    for row in table.rows:
        # A replayed dispatch has a pass of its own for each group of counters.
        key = tuple(row.get(c) for c in ("Guid", "Process_Id", "Agent_Id", "Dispatch_Id", "Replay_Pass"))
        first.setdefault(key, row)
        name = row["Counter_Name"]
        if not name:
            raise InputError(f"{row.where}, column Counter_Name: is empty")
        value = number(row["Counter_Value"], row.where, "Counter_Value")
        _span(row)
        mine = counters.setdefault(key, {})
        mine[name] = mine.get(name, 0.0) + value
    dispatches = tuple(_counted(row, counters[key]) for key, row in first.items())
    return Profile(table.path, table.format.name, True, dispatches, warnings=table.warnings)


def _counted(row: Row, counters: dict[str, float]) -> Dispatch:
    start, end = _span(row)
    lds = optional_integer(row.get("LDS_Block_Size"), row.where, "LDS_Block_Size")
    total = "guid" in row.index  # converted from rocpd
    return Dispatch(
        name=_name(row),
        grid=(integer(row["Grid_Size"], row.where, "Grid_Size", 1),),
        workgroup=(integer(row["Workgroup_Size"], row.where, "Workgroup_Size", 1),),
        lds=lds if total else None,
        static_lds=None if total else lds,
        start=start,
        end=end,
        agent=row["Agent_Id"],
        process=row.get("Guid") or row.get("Process_Id"),
        vgpr=optional_integer(row.get("VGPR_Count"), row.where, "VGPR_Count"),
        accum_vgpr=optional_integer(row.get("Accum_VGPR_Count"), row.where, "Accum_VGPR_Count"),
        sgpr=optional_integer(row.get("SGPR_Count"), row.where, "SGPR_Count"),
        scratch=optional_integer(row.get("Scratch_Size"), row.where, "Scratch_Size"),
        counters=counters,
    )


def read_agents(table: Table) -> Profile:
    """Read the GPUs of a file of agents; CPUs are left out.

    Raises
    ------
    InputError
        If a field of a GPU is damaged.
    """
    gpus = [row for row in table.rows if row["Agent_Type"].upper() == "GPU"]
    agents = []
    for i, row in enumerate(gpus):
        # Which number a trace gives depends on rocprofv3's --agent-index: of the node, logical, or of its kind.
        node, logical = row["Node_Id"], row.get("Logical_Node_Id") or row["Node_Id"]
        agents.append(
            Agent(
                gpu=row.get("Product_Name") or row.get("Model_Name") or None,
                arch=arch_of(row["Name"], row.get("Gfx_Target_Version")),
                xcc=optional_integer(row["Num_Xcc"], row.where, "Num_Xcc") or None,
                wave_size=optional_integer(row["Wave_Front_Size"], row.where, "Wave_Front_Size") or None,
                ids=frozenset({node, f"Agent {node}", f"Agent {logical}", f"GPU {i}"}),
            )
        )
    return Profile(table.path, table.format.name, False, agents=tuple(agents), warnings=table.warnings)


def arch_of(name: str, version: str = "") -> str | None:
    """Name an architecture from an agent's name, or from its target version.

    >>> arch_of("gfx942"), arch_of("", "90402"), arch_of("", "90010"), arch_of("AMD EPYC")
    ('gfx942', 'gfx942', 'gfx90a', None)
    """
    if found := re.match(r"gfx[0-9a-f]+", name):
        return found.group()
    if re.fullmatch(r"[0-9]{5,6}", version, re.ASCII):
        major, rest = divmod(int(version), 10000)
        minor, step = divmod(rest, 100)
        return f"gfx{major}{minor:x}{step:x}"
    return None


def _name(row: Row) -> str:
    if not row["Kernel_Name"]:
        raise InputError(f"{row.where}, column Kernel_Name: is empty")
    return row["Kernel_Name"]


def _span(row: Row) -> tuple[int, int]:
    if not any(row.get(column) for column in _TIMES) and "counter_name" in row.index:
        return 0, 0
    start, end = (integer(row.get(column), row.where, column) for column in _TIMES)
    check_span(start, end, row.where, _TIMES)
    return start, end
