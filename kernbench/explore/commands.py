"""``kernbench sweep`` and ``kernbench results``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernbench.commandline import GOOD, NoProgress, output_file, reports_errors
from kernbench.errors import InputError

if TYPE_CHECKING:
    from kernbench.explore.runner import Tally
    from kernbench.explore.space import Sweep

StoreOption = Annotated[Path, typer.Option("--store", help="File of the results.")]
_STORE = Path("kernbench.sqlite")


@reports_errors
def sweep(
    file: Annotated[Path, typer.Argument(help="Sweep file; docs/sweeps.md says what it may hold.")],
    store: StoreOption = _STORE,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one for each core.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Time the points on a Dask cluster: its scheduler's address.")
    ] = None,
    no_progress: NoProgress = False,
) -> int:
    """Time a bench over settings and machines; what is done stays done, whenever it is interrupted."""
    if cluster is not None and workers is not None:
        raise InputError("--workers is for this machine; a cluster has the workers that it has")
    from kernbench.explore.runner import Runner, basis_text
    from kernbench.explore.screen import print_sweep
    from kernbench.explore.search import run_sweep
    from kernbench.explore.space import Sweep
    from kernbench.explore.store import Store
    from kernbench.explore.sweepfile import SweepFile
    from kernbench.explore.workers import cluster_workers, local_workers

    read = SweepFile.read(file)
    checked = Sweep.of(read, str(file))
    with Store(store, create=True) as results:
        results.begin(read.name, read.model_dump_json(exclude_defaults=True), basis_text(checked))
        hired = cluster_workers(cluster) if cluster is not None else local_workers(workers)
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
    """Show a bar with the time left and the best so far on stderr, if that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kernbench.explore.screen import best_text

    columns: list[Any] = [BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda tally: bar.update(
            task, total=tally.total, completed=tally.seen, description=best_text(sweep, tally)
        )


@reports_errors
def results(
    sweep: Annotated[str | None, typer.Argument(help="Name of a sweep; default: list the sweeps.")] = None,
    store: StoreOption = _STORE,
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
    from kernbench.explore.sweepfile import SweepFile

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
