"""Results as a pandas frame: one row a point, for tables, plots and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernbench.errors import InputError, nearest
from kernbench.explore.expressions import Expression, quantity
from kernbench.explore.store import Store

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("pes", "commands", "makespan_ps", "scratch_peak_bytes", "hbm_bytes", "link_bytes", "flops")
"""Columns of whole numbers, missing where a point failed."""


def results_frame(store: Store | Path | str, sweep: str | None = None, where: str | None = None) -> pd.DataFrame:
    """Return stored results.

    Parameters
    ----------
    store
        An open store, or the path of one.
    sweep
        Name of a sweep, whose points come in the order of its space; default: every result, by key.
    where
        An expression over the columns (``"makespan_ps < 1e9 and S_kv == 65536"``); only rows for which it is true are
        returned. A row that lacks a value that it compares is left out.

    Returns
    -------
    pandas.DataFrame
        One row a point: ``key``, ``bench``, ``topology``; each field of the spec; ``sharding``; each value of the
        machine that was changed, by its dotted key; ``pes``, ``status`` (``done`` or ``failed``), ``error``,
        ``feasible``, the results in picoseconds and bytes (missing for failed points), ``cost``, ``version``.

    Raises
    ------
    InputError
        If there is no such store or sweep, or the expression is none.
    """
    import pandas as pd

    if not isinstance(store, Store):
        with Store(Path(store)) as opened:
            return results_frame(opened, sweep, where)
    if sweep is not None:
        store.definition(sweep)  # says so if there is none
    rows = [_flat(row) for row in store.rows(sweep)]
    expression = Expression(where, "--where") if where is not None else None
    if expression is not None:
        known = {name for row in rows for name in row}
        for name in expression.names:
            if rows and name not in known:
                raise InputError(f"--where: {where!r}: no column {name!r}{nearest(name, known)}")
        rows = [row for row in rows if _holds(expression, row)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    order = [name for name in names if name not in _LAST] + [name for name in _LAST if name in names]
    frame = pd.DataFrame(rows, columns=order or ["key", *_LAST])
    for name in ("position", *WHOLE):
        if name in frame:
            frame[name] = frame[name].astype("Int64")
    return frame


_LAST = ("pes", "status", "feasible", "error", *WHOLE[1:], "cost", "version")


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the store with the spec's fields and the overrides in columns of their own."""
    spec = {name: _cell(value) for name, value in json.loads(row["spec"] or "{}").items()}
    if not spec:
        spec = {name: _cell(value) for name, value in json.loads(row["settings"]).items()}
    overrides = {name: _cell(value) for name, value in json.loads(row["overrides"]).items()}
    place = {"position": row["position"]} if row["position"] is not None else {}
    rest = {name: row[name] for name in ("pes", "status")}
    judged = {"feasible": row["status"] == "done" if row["feasible"] is None else bool(row["feasible"])}
    results = {name: row[name] for name in ("error", *WHOLE[1:], "cost", "version")}
    head = {name: row[name] for name in ("key", "bench", "topology")}
    return {**head, **place, **spec, "sharding": row["sharding"], **overrides, **rest, **judged, **results}


def _cell(value: Any) -> Any:
    """Return a value that a table can hold: levels as the command line writes them, other structures as JSON."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value) or "none"
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, dict)) else value


def is_missing(value: Any) -> bool:
    """Return whether a cell of a frame is empty: None, NaN, or the NA of columns of whole numbers."""
    import pandas as pd

    return bool(pd.isna(value))


def _holds(expression: Expression, row: Mapping[str, Any]) -> bool:
    values = {name: in_base_units(row.get(name)) for name in expression.names}
    return None not in values.values() and expression.holds(values)


def in_base_units(value: Any) -> Any:
    """Return what a quantity as text comes to, as expressions write it; other values as they are."""
    found = quantity(value) if isinstance(value, str) else None
    return value if found is None else found[0]


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV (UTF-8, a header, empty cells where a value is missing)."""
    frame.to_csv(path, index=False, lineterminator="\n")


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as Parquet; a column whose values are of several kinds is written as text."""
    plain = frame.copy()
    for name in plain.columns:
        kinds = {type(value) for value in plain[name] if not is_missing(value)}
        if len(kinds) > 1 and not kinds <= {int, float}:
            plain[name] = [None if is_missing(value) else str(value) for value in plain[name]]
    plain.to_parquet(path, index=False)


_NOT_SETTINGS = {"key", "bench", "position", "sweep", *_LAST}


def varied(frame: pd.DataFrame) -> list[str]:
    """Return the columns of settings, in their order, in which rows differ; empty cells aside.

    The fields ``split_...`` of a spec are left to ``sharding``, which says them in one word where it is there.
    """
    skipped = {name for name in frame.columns if str(name).startswith("split_")} if "sharding" in frame else set()
    names = [str(name) for name in frame.columns if name not in _NOT_SETTINGS and name not in skipped]
    return [name for name in names if frame[name].dropna().astype(str).nunique() > 1]
