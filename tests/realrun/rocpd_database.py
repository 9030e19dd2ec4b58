"""A rocpd database as rocprofv3 writes it, in the part that is read: see kernbench/realrun/importers/rocpd.py."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

UUID = "_00002e0d_9533_7533_b0f4_7d200442d314"
GUID = "00002e0d-9533-7533-b0f4-7d200442d314"

TABLES = {
    "rocpd_metadata": "id INTEGER PRIMARY KEY, tag TEXT NOT NULL, value TEXT NOT NULL",
    "rocpd_string": "id INTEGER PRIMARY KEY, guid TEXT NOT NULL, string TEXT NOT NULL",
    "rocpd_info_agent": """id INTEGER PRIMARY KEY, guid TEXT NOT NULL, nid INTEGER, pid INTEGER,
        type TEXT CHECK (type IN ('CPU', 'GPU')), absolute_index INTEGER, logical_index INTEGER, type_index INTEGER,
        uuid INTEGER, name TEXT, model_name TEXT, vendor_name TEXT, product_name TEXT, user_name TEXT,
        extdata JSONB DEFAULT '{}' NOT NULL""",
    "rocpd_info_kernel_symbol": """id INTEGER PRIMARY KEY, guid TEXT NOT NULL, nid INTEGER, pid INTEGER,
        code_object_id INTEGER, kernel_name TEXT, display_name TEXT, kernel_object INTEGER,
        kernarg_segment_size INTEGER, kernarg_segment_alignment INTEGER, group_segment_size INTEGER,
        private_segment_size INTEGER, sgpr_count INTEGER, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER,
        extdata JSONB DEFAULT '{}' NOT NULL""",
    "rocpd_info_pmc": """id INTEGER PRIMARY KEY, guid TEXT NOT NULL, nid INTEGER, pid INTEGER, agent_id INTEGER,
        name TEXT NOT NULL, symbol TEXT NOT NULL""",
    "rocpd_event": "id INTEGER PRIMARY KEY, guid TEXT NOT NULL, category_id INTEGER, correlation_id INTEGER",
    "rocpd_pmc_event": """id INTEGER PRIMARY KEY, guid TEXT NOT NULL, event_id INTEGER, pmc_id INTEGER NOT NULL,
        value REAL DEFAULT 0.0, extdata JSONB DEFAULT '{}'""",
    "rocpd_kernel_dispatch": """id INTEGER PRIMARY KEY, guid TEXT NOT NULL, nid INTEGER, pid INTEGER, tid INTEGER,
        agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER,
        "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, private_segment_size INTEGER, group_segment_size INTEGER,
        workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
        grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER,
        region_name_id INTEGER, event_id INTEGER, extdata JSONB DEFAULT '{}' NOT NULL""",
}

KERNEL = "_ZN5aiter24fmha_fwd_hd128_bf16_causalE"
AGENT = {"num_xcc": 8, "wave_front_size": 64, "cu_count": 304, "gfx_target_version": 90402}


def write(
    path: Path, *, uuid: str = UUID, guid: str = GUID, counters: bool = False, durations=(90, 52, 51, 50, 49, 50)
):
    """Write a database, or add the tables of another UUID to one. Durations in microseconds."""
    with closing(sqlite3.connect(path)) as db:
        for name, columns in TABLES.items():
            db.execute(f'CREATE TABLE "{name}{uuid}" ({columns})')
            if uuid:
                db.execute(f'CREATE VIEW IF NOT EXISTS "{name}" AS SELECT * FROM "{name}{uuid}"')

        def add(table: str, **values: object) -> None:
            names = ", ".join(f'"{key}"' for key in values)
            marks = ", ".join("?" * len(values))
            db.execute(f'INSERT INTO "{table}{uuid}" ({names}) VALUES ({marks})', tuple(values.values()))

        add("rocpd_metadata", tag="schema_version", value="3")
        add("rocpd_info_agent", id=1, guid=guid, type="CPU", name="AMD EPYC 9654")
        gpu = {"type": "GPU", "name": "gfx942", "product_name": "AMD Instinct MI300X", "extdata": json.dumps(AGENT)}
        add("rocpd_info_agent", id=2, guid=guid, absolute_index=4, logical_index=4, type_index=0, **gpu)
        registers = {"group_segment_size": 65536, "sgpr_count": 64, "arch_vgpr_count": 128, "accum_vgpr_count": 64}
        add("rocpd_info_kernel_symbol", id=7, guid=guid, kernel_name=KERNEL + ".kd", display_name=KERNEL, **registers)
        for i, name in enumerate(("SQ_WAVES", "GRBM_GUI_ACTIVE") if counters else (), 1):
            add("rocpd_info_pmc", id=i, guid=guid, agent_id=2, name=name, symbol=name)
        start = 7200098838431000 if counters else 3200098838431000  # another run
        for i, duration in enumerate(durations, 1):
            add("rocpd_event", id=i, guid=guid, correlation_id=i)
            axes = {"workgroup_size_x": 256, "workgroup_size_y": 1, "workgroup_size_z": 1}
            axes |= {"grid_size_x": 32768, "grid_size_y": 64, "grid_size_z": 16}
            ids = {"agent_id": 2, "kernel_id": 7, "dispatch_id": i, "queue_id": 1, "stream_id": 1, "event_id": i}
            # No region: the view "kernels" would leave such a dispatch out.
            spans = {"start": start, "end": start + duration * 1000}
            sizes = {"private_segment_size": 0, "group_segment_size": 65536}
            add("rocpd_kernel_dispatch", guid=guid, **ids, **spans, **sizes, **axes)
            start += duration * 1000 + 500
            if counters:
                for _ in range(8):
                    add("rocpd_pmc_event", guid=guid, event_id=i, pmc_id=1, value=65536.0)
                    add("rocpd_pmc_event", guid=guid, event_id=i, pmc_id=2, value=100000.0)
        db.commit()
    return path
