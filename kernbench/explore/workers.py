"""Where points are timed: processes of this machine, or the workers of a Dask cluster. Both are executors."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import connection, process
from typing import Any

from kernbench.errors import InputError

_CONNECT_S = 5


@dataclass(frozen=True)
class Workers:
    """An executor and how many tasks it runs at once."""

    executor: Executor
    slots: int


def hired_workers(count: int | None, cluster: str | None) -> AbstractContextManager[Workers]:
    """Give the workers of a cluster if its address is given, else processes of this machine.

    Raises
    ------
    InputError
        If a count is given for a cluster.
    """
    if cluster is None:
        return local_workers(count)
    if count is not None:
        raise InputError("--workers is for this machine; a cluster has the workers that it has")
    return cluster_workers(cluster)


@contextmanager
def local_workers(count: int | None = None) -> Iterator[Workers]:
    """Give a process for each core, or ``count`` of them.

    They are started afresh, not forked: a script that uses them from Python needs the usual
    ``if __name__ == "__main__":``. They end with this process, whatever ends it.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = count or cores
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin_worker)
    try:
        yield Workers(pool, count)
        pool.shutdown()
    finally:
        _end(pool)


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, and end when it ends, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = process.parent_process()
    assert parent is not None  # this runs in a child

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _end(pool: ProcessPoolExecutor) -> None:
    """Do not wait for points that nobody wants any more."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in processes:
        worker.terminate()


@contextmanager
def cluster_workers(address: str) -> Iterator[Workers]:
    """Give the workers of a Dask cluster, by the address of its scheduler, as ``tcp://host:8786``.

    A task whose worker dies is given to another one by the scheduler.

    Raises
    ------
    InputError
        If nothing answers there, or it has no workers.
    """
    import distributed

    connect: Any = distributed.Client  # its annotations are not complete

    try:
        client = connect(address, timeout=_CONNECT_S, name="kernbench")
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address} ({error}); start one with `dask scheduler` and give its address"
        ) from None
    try:
        threads = sum(client.nthreads().values())
        if not threads:
            raise InputError(f"the Dask cluster at {address} has no workers; start some with `dask worker {address}`")
        yield Workers(client.get_executor(pure=False), threads)
    finally:
        client.close()
