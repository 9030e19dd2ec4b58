"""``kernbench sweep`` and ``kernbench results``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernbench.commandline import DEFAULT_STORE, GOOD, NoProgress, StoreOption, output_file, reports_errors

if TYPE_CHECKING:
    from kernbench.explore.runner import Tally
    from kernbench.explore.space import Sweep


@reports_errors
def sweep(
    file: Annotated[Path, typer.Argument(help="Sweep file; docs/sweeps.md says what it may hold.")],
    store: StoreOption = DEFAULT_STORE,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one for each core.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Time the points on a Dask cluster: its scheduler's address.")
    ] = None,
    no_progress: NoProgress = False,
) -> int:
    """Time a bench over settings and machines; what is done stays done, whenever it is interrupted."""
    from kernbench.explore.runner import Runner
    from kernbench.explore.screen import print_sweep
    from kernbench.explore.search import run_sweep
    from kernbench.explore.space import Sweep
    from kernbench.explore.store import Store
    from kernbench.explore.sweepfile import SweepFile
    from kernbench.explore.workers import hired_workers

    hired = hired_workers(workers, cluster)
    read = SweepFile.read(file)
    checked = Sweep.of(read, str(file))
    with Store(store, create=True) as results:
        with hired as hands, _shown(checked, no_progress) as show:
            runner = Runner(checked, results, hands, show)
            try:
                tally = run_sweep(runner)
            except KeyboardInterrupt:
                kept = f"{runner.tally.seen:,} points are kept in {store}; the same command goes on from there"
                raise KeyboardInterrupt(kept) from None
        print_sweep(checked, results, tally)
    return GOOD


@contextmanager
def _shown(sweep: Sweep, hidden: bool) -> Iterator[Callable[[Tally], None] | None]:
    """Show on stderr how far it is: a bar with the time left and the best so far, or, in a log, a line now and then."""
    if hidden:
        yield None
        return
    if not sys.stderr.isatty():
        yield _logged(sweep)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    from kernbench.explore.screen import best_text

    def kept(width: int) -> Column:  # a long description is cut, never what stands before it
        return Column(no_wrap=True, min_width=width)

    columns: list[Any] = [
        BarColumn(20, table_column=kept(20)),
        MofNCompleteColumn(table_column=kept(2 * len(f"{sweep.size}") + 1)),
        TimeRemainingColumn(table_column=kept(7)),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    ]
    with Progress(*columns, console=Console(stderr=True), expand=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda tally: bar.update(
            task, total=tally.total, completed=tally.seen, description=best_text(sweep, tally)
        )


_EVERY_S = 30
"""Seconds between two lines of progress where stderr is no terminal."""


def _logged(sweep: Sweep) -> Callable[[Tally], None]:
    from kernbench.explore.screen import best_text

    said = time.monotonic()

    def tell(tally: Tally) -> None:
        nonlocal said
        if time.monotonic() - said >= _EVERY_S:
            said = time.monotonic()
            typer.echo(f"{tally.seen:,} of {tally.total or 0:,} points; {best_text(sweep, tally)}", err=True)

    return tell


@reports_errors
def results(
    sweep: Annotated[str | None, typer.Argument(help="A sweep, by name or file; default: list the sweeps.")] = None,
    store: StoreOption = DEFAULT_STORE,
    where: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="Only rows for which this is true, as makespan_ps < 1e9.")
    ] = None,
    sort: Annotated[str | None, typer.Option(metavar="COLUMN", help="Default: the sweep's first objective.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows that are printed; 0: all.")] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write all rows to this file.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write all rows to this file.")] = None,
) -> int:
    """List stored results: the sweeps, or the points of one; filter, sort and export them."""
    from kernbench.explore.frame import results_frame, write_csv, write_parquet
    from kernbench.explore.screen import print_results, print_sweeps, sorted_frame
    from kernbench.explore.store import Store
    from kernbench.explore.sweepfile import SweepFile, sweep_name

    sweep = sweep_name(sweep) if sweep is not None else None
    with output_file(csv) as csv_file, output_file(parquet) as parquet_file, Store(store) as opened:
        wanted = sweep is not None or where is not None or sort is not None or csv is not None or parquet is not None
        if not wanted:
            print_sweeps(opened)
            return GOOD
        frame = results_frame(opened, sweep, where)
        objective = "makespan_ps"
        if sweep is not None:
            from kernbench.explore.sweepfile import METRICS

            definition = SweepFile.from_document(opened.definition(sweep), str(store))
            objective = METRICS[definition.objectives[0]]
        frame = sorted_frame(frame, sort or objective)
        if csv_file is not None:
            write_csv(frame, csv_file)
        if parquet_file is not None:
            write_parquet(frame, parquet_file)
    print_results(frame, limit)
    return GOOD
