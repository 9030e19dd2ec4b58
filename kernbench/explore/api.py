"""Sweeps from Python: what ``kernbench sweep`` does, with a frame in place of a screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernbench.commandline import DEFAULT_STORE
from kernbench.explore.frame import results_frame
from kernbench.explore.runner import Progress, Runner
from kernbench.explore.search import run_sweep
from kernbench.explore.space import Sweep
from kernbench.explore.store import Store
from kernbench.explore.sweepfile import SweepFile
from kernbench.explore.workers import hired_workers

if TYPE_CHECKING:
    import pandas as pd


def sweep(
    file: Path | str,
    store: Path | str = DEFAULT_STORE,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Run a sweep, or go on with it, and return its points.

    Parameters
    ----------
    file
        A sweep file; ``docs/sweeps.md`` says what it may hold.
    store
        File of the results; made if it is not there.
    workers
        Processes; default: one for each core. They are spawned, so a script needs ``if __name__ == "__main__":``.
    cluster
        Address of a Dask scheduler, whose workers time the points instead.
    progress
        Called with a :class:`~kernbench.explore.runner.Tally` as points come in.

    Returns
    -------
    pandas.DataFrame
        As :func:`~kernbench.explore.results_frame` returns it: one row a point.

    Raises
    ------
    KernbenchError
        For a file, store or cluster that cannot be used, and for constraints that leave no point.
    """
    hired = hired_workers(workers, cluster)
    read = SweepFile.read(Path(file))
    checked = Sweep.of(read, str(file))
    with Store(Path(store), create=True) as results, hired as hands:
        run_sweep(Runner(checked, results, hands, progress))
        return results_frame(results, read.name)
