"""What memories and links served, one request after the other: found from a Timeline, for the critical path.

A Timeline notes when a memory began with a request, not in which of its channels. But it tells when each request came,
and channels serve in the order of (arrival, PE, command), so their work can be laid out again. That is done for single
memories, when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernbench.simulate.plain import runnable
from kernbench.simulate.timeline import Timeline


class Services(NamedTuple):
    """What each server serves: memories first, then links. Private links have no entry."""

    start: np.ndarray
    """int64[servers + 1]: services of server x are ``start[x]:start[x + 1]``, in the order in which they are served."""
    arrival: np.ndarray
    """int64: when the request comes to the memory; when the link begins with it."""
    rank: np.ndarray
    """int32: PE, by its rank."""
    command: np.ndarray
    """int32: index of the command in its PE."""
    hop: np.ndarray
    """int64: of a load or store on a link, index into the timeline's :attr:`~Timeline.hops`; else -1."""
    channel_begin: np.ndarray
    """int64[service, channel]: when each channel of the memory began with it; -1: it had no part in it."""
    is_laid_out: np.ndarray
    """bool[server]: whether ``channel_begin`` is filled for that memory."""


def services_of(timeline: Timeline, arrays: tuple[Any, ...]) -> Services:
    """Find what each server serves; ``arrays`` are those of :func:`~kernbench.simulate.arrays.arrays_of`."""
    from kernbench.simulate import serve

    gather: Callable[..., int] = runnable(serve.gather, timeline.program.n_commands)
    machine = timeline.program.machine
    servers = machine.network.n_memories + machine.network.n_links
    starts = np.zeros(servers + 1, np.int64)
    total = gather(*arrays, starts, *_columns(0))
    starts = np.cumsum(starts)
    arrival, rank, command, hop = columns = _columns(total)
    gather(*arrays, starts[:-1].copy(), *columns)
    order = np.lexsort((arrival, np.repeat(np.arange(servers), np.diff(starts))))  # equal ones stay as they are
    # Most of the channels' times are never touched, and so take no memory.
    begin = np.empty((total, machine.memory.channels), np.int64)
    is_laid_out = np.zeros(servers, np.bool_)
    return Services(starts, arrival[order], rank[order], command[order], hop[order], begin, is_laid_out)


def _columns(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
