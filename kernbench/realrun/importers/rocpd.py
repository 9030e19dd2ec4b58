"""rocpd: the SQLite database that rocprofv3 writes unless told otherwise.

Schema: ROCm/rocprofiler-sdk ``source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql`` @50c89cbd (the tables, of which the
names end in ``_`` and a UUID; schema version 3), ``rocpd_views.sql`` (a view of each without the UUID) and
``data_views.sql`` (the views ``kernels`` and ``counters_collection``); the same files are in ROCm/rocm-systems under
``projects/rocprofiler-sdk/``. Keys of an agent's ``extdata``: there, ``source/lib/python/rocpd/csv.py`` @219e01ee.

The tables are read and not those views: ``kernels`` joins the dispatch's region, event and thread, and so leaves out
a dispatch that lacks one. A database that was merged has several UUIDs; rows belong together by ``guid``.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from kernbench.errors import InputError
from kernbench.realrun.importers.profile import Agent, Dispatch, Profile
from kernbench.realrun.importers.rocprofv3 import arch_of
from kernbench.realrun.importers.timestamps import LARGEST, check_span

FORMAT = "rocpd"

_AXES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz")
_DISPATCH = ("id", "agent_id", "kernel_id", "start", "end", "group_segment_size", "private_segment_size", *_AXES)
_SYMBOL = (
    "id",
    "kernel_name",
    "display_name",
    "group_segment_size",
    "arch_vgpr_count",
    "accum_vgpr_count",
    "sgpr_count",
)
_AGENT = ("id", "type", "name", "product_name", "model_name", "extdata")
_LEGACY = {"rocpd_op", "rocpd_kernelapi"}

_Key = tuple[Any, Any]
"""A row of a table: guid and id."""


def read(path: Path) -> Profile:
    """Read a database.

    Raises
    ------
    InputError
        If it is locked, corrupt or lacks the tables of rocpd, or a row is damaged; names table, row and column.
    """
    try:
        uri = path.resolve().as_uri() + "?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
            connection.row_factory = sqlite3.Row
            return _Database(path, connection).profile()
    except sqlite3.Error as error:
        raise InputError(f"{path}: {_fault(str(error))}") from None
    except (UnicodeDecodeError, OverflowError) as error:
        raise InputError(f"{path}: the database is corrupt ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _fault(message: str) -> str:
    if "locked" in message or "busy" in message:
        return "the database is locked: another program is writing it; wait until the profiler has ended"
    if "malformed" in message or "not a database" in message:
        return f"the database is corrupt, or cut off ({message})"
    return f"cannot be read as a rocpd database: {message}"


class _Database:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        self.names = [str(row["name"]) for row in connection.execute(query)]

    def profile(self) -> Profile:
        self._check_tables()
        agents = {self._key(row): row for row in self._rows("rocpd_info_agent", _AGENT)}
        symbols = {self._key(row): row for row in self._rows("rocpd_info_kernel_symbol", _SYMBOL)}
        counters = dict(self._counters())
        dispatches: list[Dispatch] = []
        for row in self._rows("rocpd_kernel_dispatch", _DISPATCH):
            event = (self._guid(row), row["event_id"]) if "event_id" in row.keys() else None  # noqa: SIM118
            values = counters.get(event, {}) if event else {}
            dispatches.append(self._dispatch(row, symbols, values))
        if not dispatches:
            raise InputError(f"{self.path}: holds no kernel dispatch; run rocprofv3 with --kernel-trace or --pmc")
        plain = sum(not d.counters for d in dispatches)
        counted = plain < len(dispatches)
        warnings = []
        if counted and plain:
            warnings.append(
                f"{self.path}: {plain} of {len(dispatches)} dispatches have no counters; they were left out, since "
                "the times of a run that collects counters are no measurement"
            )
            dispatches = [d for d in dispatches if d.counters]
        return Profile(self.path, FORMAT, counted, tuple(dispatches), tuple(_gpus(agents)), tuple(warnings))

    def _check_tables(self) -> None:
        needed = ("rocpd_kernel_dispatch", "rocpd_info_kernel_symbol", "rocpd_info_agent")
        lacking = [name for name in needed if not self._tables(name)]
        if not lacking:
            return
        if set(self.names) >= _LEGACY:
            raise InputError(f"{self.path}: is a trace of rocmProfileData (rpd), not of rocprofv3; it cannot be read")
        shown = ", ".join(self.names[:20]) or "none"
        raise InputError(f"{self.path}: is SQLite but not rocpd: lacks {', '.join(lacking)}. Its tables: {shown}")

    def _tables(self, name: str) -> list[str]:
        """Tables of each UUID; without any, the plain name."""
        pattern = re.compile(re.escape(name) + r"_[0-9a-fA-F_]+", re.ASCII)
        return [n for n in self.names if pattern.fullmatch(n)] or [n for n in self.names if n == name]

    def _rows(self, name: str, columns: tuple[str, ...]) -> Iterator[sqlite3.Row]:
        for table in self._tables(name):
            cursor = self.connection.execute(f'SELECT * FROM "{table}"')
            found = {str(column[0]) for column in cursor.description}
            if lacking := [column for column in columns if column not in found]:
                raise InputError(f"{self.path}: the table {table} lacks the columns {', '.join(lacking)}")
            yield from cursor

    def _guid(self, row: sqlite3.Row) -> Any:
        return row["guid"] if "guid" in row.keys() else ""  # noqa: SIM118 (a Row is no mapping)

    def _key(self, row: sqlite3.Row) -> _Key:
        return self._guid(row), row["id"]

    def _counters(self) -> Iterator[tuple[_Key, dict[str, float]]]:
        """Sums over a counter's instances, by event, as the view counters_collection has them."""
        names = {self._key(row): row["name"] for row in self._rows("rocpd_info_pmc", ("id", "name"))}
        sums: dict[_Key, dict[str, float]] = {}
        for row in self._rows("rocpd_pmc_event", ("id", "event_id", "pmc_id", "value")):
            where = f"{self.path}, rocpd_pmc_event row {row['id']}"
            name = names.get((self._guid(row), row["pmc_id"]))
            if not isinstance(name, str):
                raise InputError(f"{where}, column pmc_id: there is no counter {row['pmc_id']}")
            value = row["value"]
            if not isinstance(value, int | float) or abs(value) > LARGEST:
                raise InputError(f"{where}, column value: {value!r} is not a number")
            mine = sums.setdefault((self._guid(row), row["event_id"]), {})
            mine[name] = mine.get(name, 0.0) + value
        yield from sums.items()

    def _dispatch(self, row: sqlite3.Row, symbols: dict[_Key, sqlite3.Row], counters: dict[str, float]) -> Dispatch:
        where = f"{self.path}, rocpd_kernel_dispatch row {row['id']}"
        symbol = symbols.get((self._guid(row), row["kernel_id"]))
        name = (
            (symbol["display_name"] or symbol["kernel_name"]) if symbol is not None else None
        )  # the second ends in .kd
        if symbol is None or not isinstance(name, str):
            raise InputError(f"{where}, column kernel_id: there is no kernel {row['kernel_id']} with a name")
        start, end = _integer(row, "start", where), _integer(row, "end", where)
        check_span(start, end, where, ("start", "end"))
        return Dispatch(
            name=name,
            grid=tuple(_integer(row, f"grid_size_{a}", where, 1) for a in "xyz"),
            workgroup=tuple(_integer(row, f"workgroup_size_{a}", where, 1) for a in "xyz"),
            lds=_optional(row, "group_segment_size", where),
            static_lds=_optional(symbol, "group_segment_size", where),
            start=start,
            end=end,
            agent=_agent_id(self._guid(row), row["agent_id"]),
            process=str(self._guid(row)),
            vgpr=_optional(symbol, "arch_vgpr_count", where),
            accum_vgpr=_optional(symbol, "accum_vgpr_count", where),
            sgpr=_optional(symbol, "sgpr_count", where),
            scratch=_optional(row, "private_segment_size", where),
            counters=counters,
        )


def _agent_id(guid: Any, number: Any) -> str:
    return f"{guid}:{number}"


def _gpus(agents: dict[_Key, sqlite3.Row]) -> Iterator[Agent]:
    for (guid, number), row in agents.items():
        if row["type"] != "GPU":
            continue
        extra = _extdata(row["extdata"])
        version = extra.get("gfx_target_version")
        product = row["product_name"] or extra.get("product_name") or row["model_name"]
        yield Agent(
            gpu=str(product) if product else None,
            arch=arch_of(str(row["name"] or ""), str(version or "")),
            xcc=_positive(extra.get("num_xcc")),
            wave_size=_positive(extra.get("wave_front_size")),
            ids=frozenset({_agent_id(guid, number)}),
        )


def _extdata(text: Any) -> dict[str, Any]:
    # Free-form: what cannot be read is not known, which is said where it would have been needed.
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _integer(row: sqlite3.Row, column: str, where: str, at_least: int = 0) -> int:
    value = row[column]
    if not isinstance(value, int):
        raise InputError(f"{where}, column {column}: {value!r} is not a whole number")
    if value < at_least:
        raise InputError(f"{where}, column {column}: {value} is less than {at_least}")
    return value


def _optional(row: sqlite3.Row, column: str, where: str) -> int | None:
    return None if row[column] is None else _integer(row, column, where)
