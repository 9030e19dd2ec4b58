"""What ``kernbench sweep`` and ``kernbench results`` print."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernbench.commandline import DEFAULT_STORE
from kernbench.errors import InputError, nearest
from kernbench.explore.frame import in_base_units, is_missing, varied
from kernbench.explore.runner import Tally
from kernbench.explore.space import Point, Sweep
from kernbench.explore.store import Store
from kernbench.explore.why import best_rows, run_point
from kernbench.provenance import setting_text
from kernbench.readable import bytes_text, time_text
from kernbench.screen import new_console, print_ledger, shares_text

if TYPE_CHECKING:
    import pandas as pd

_BYTES = ("scratch_peak_bytes", "hbm_bytes", "link_bytes")


def figure_text(name: str, value: Any) -> str:
    """Write a value of a results column with its unit."""
    if name == "makespan_ps":
        return time_text(int(value))
    if name in _BYTES:
        return bytes_text(int(value))
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def best_text(sweep: Sweep, tally: Tally) -> str:
    """Say what is the best point so far."""
    failed = f", {tally.failed} failed" if tally.failed else ""
    if tally.best is None:
        return f"no feasible point yet{failed}"
    first = sweep.objectives[0]
    value = tally.best.objectives((first,))[0]
    return escape(f"best {figure_text(first, value)}: {point_text(sweep, tally.best.point)}{failed}")


def point_text(sweep: Sweep, point: Point) -> str:
    """Write the settings of a point that differ between the points of its sweep."""
    shown: dict[str, Any] = {}
    for dimension, i in zip(sweep.dimensions, point.index, strict=True):
        value = dimension.values[i]
        if len(dimension.values) == 1:
            continue
        if dimension.kind == "splits":
            shown |= {name: levels for name, levels in value.items() if levels != "none"}
        else:
            shown[dimension.name] = sweep.machines[i].name if dimension.kind == "topology" else value
    return " ".join(f"{name}={setting_text(value)}" for name, value in shown.items()) or "the only point"


def print_sweep(sweep: Sweep, store: Store, tally: Tally) -> None:
    """Print what a sweep came to: how many points, the winner, and why it takes what it takes."""
    console = new_console()
    timed = f"{tally.timed:,} timed now, {tally.seen - tally.timed:,} taken from {store.path}"
    rest = [
        f"{count:,} {what}"
        for count, what in (
            (tally.failed, "failed"),
            (tally.infeasible, "break a constraint on results"),
            (tally.excluded, "excluded before"),
        )
        if count
    ]
    name = sweep.file.name
    points = f"{tally.seen:,} point{'s' if tally.seen != 1 else ''}"
    console.print(f"[bold]{escape(name)}[/]: {points} ({'; '.join([timed, *rest])})")
    best = best_rows(list(store.rows(name)), sweep.objectives)
    if not best:
        words = ["kernbench", "results", name, *(["--store", str(store.path)] if store.path != DEFAULT_STORE else [])]
        console.print(f"[yellow]no point is feasible[/]; `{escape(shlex.join(words))}` shows why")
        return
    row = best[0]
    if len(best) > 1:
        _print_best(console, sweep, best)
    why = run_point(row)
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in (*sweep.objectives, *(c for c in ("makespan_ps", *_BYTES) if c not in sweep.objectives)):
        table.add_row(column, figure_text(column, row[column]), "simulated" if column != "cost" else "cost expression")
    found = escape(point_text(sweep, sweep.numbered(row["position"])))
    most = " of the most work" if len(best) > 1 else ""
    console.print(f"[bold]best[/]{most} by {', then '.join(sweep.file.objectives)}: {found}")
    console.print(table)
    result = why.result
    console.print(f"time goes to: {shares_text(result.time_by_cause or {})}")
    span = result.makespan_ps or 1
    bounds = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("why: no schedule beats", "time", "of what it took", "where"):
        bounds.add_column(heading)
    for bound in why.bounds:
        bounds.add_row(bound.name, time_text(bound.ps), f"{bound.ps / span:.1%}", escape(bound.where))
    console.print(bounds)
    print_ledger(console, result.ledger, result.warnings)
    console.print(f"[dim]again:[/] {escape(result.command)}", soft_wrap=True)


_WORKS = 12
"""Kinds of work for which the best is printed."""


def _print_best(console: Console, sweep: Sweep, best: list[dict[str, Any]]) -> None:
    """Print the best point for each work."""
    console.print("points differ in their inputs; the best for each, the most work first:")
    table = Table(box=None, pad_edge=False, show_header=False)
    for row in best[:_WORKS]:
        figures = [figure_text(column, row[column]) for column in sweep.objectives]
        table.add_row(*figures, escape(point_text(sweep, sweep.numbered(row["position"]))))
    console.print(table)
    if len(best) > _WORKS:
        console.print(f"[dim]and {len(best) - _WORKS:,} more[/]")


def print_sweeps(store: Store) -> None:
    """Print the sweeps of a store."""
    console = new_console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("sweep", "points", "done", "feasible"):
        table.add_column(heading, justify="left" if heading == "sweep" else "right")
    for name, counts in store.counts().items():
        table.add_row(escape(name), *(f"{count:,}" for count in counts))
    console.print(table)


def sorted_frame(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a frame sorted by a column, smallest first, missing values last. Raises InputError if there is none."""
    if column not in frame.columns:
        raise InputError(f"--sort: no column {column!r}{nearest(column, frame.columns)}")
    import pandas as pd

    if pd.api.types.is_numeric_dtype(frame[column].dtype):
        return frame.sort_values(column, kind="stable", na_position="last")
    values = [
        None if pd.isna(value) else in_base_units(value) for value in frame[column]
    ]  # 800 GB/s comes before 1.2 TB/s
    order = sorted(range(len(values)), key=lambda i: _sort_key(values[i]))
    return frame.iloc[order]


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Order numbers before texts, and what is missing last."""
    if value is None:
        return 2, 0.0, ""
    return (0, value, "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def print_results(frame: pd.DataFrame, limit: int) -> None:
    """Print the columns that differ, and the results."""
    console = new_console()
    settings = varied(frame)
    shown = [*settings, "pes", "makespan_ps", *_BYTES, "cost", "feasible", "error"]
    shown = [name for name in shown if name in frame.columns and not frame[name].isna().all()]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in shown:
        table.add_column(escape(name), overflow="fold")
    for row in frame.head(limit or len(frame))[shown].itertuples(index=False):
        pairs = zip(shown, row, strict=True)
        cells = ("" if is_missing(value) else figure_text(name, value) for name, value in pairs)
        table.add_row(*(escape(cell.splitlines()[0] if cell else "") for cell in cells))
    console.print(table)
    if 0 < limit < len(frame):
        console.print(f"[dim]and {len(frame) - limit:,} more; --limit 0 shows all[/]")
    elif frame.empty:
        console.print("no points")
