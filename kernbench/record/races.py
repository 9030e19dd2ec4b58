"""A check of a whole trace: no two PEs fight over memory.

PEs share no clock, so what a PE reads from bytes that another one writes in the same launch would depend on timing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernbench.errors import KernelError
from kernbench.record.runs import Runs, runs_of_access
from kernbench.record.trace import Command, Trace


def check_races(trace: Trace) -> None:
    """Check that no PE touches bytes of a device tensor that another PE writes in the same launch.

    Raises
    ------
    KernelError
        Naming the tensor, both PEs and both source lines.
    """
    written = {
        c.access.tensor for cls in trace.classes for c in cls.commands if c.op == "store" and c.access is not None
    }
    for tensor in sorted(written):
        touches = [
            (cls.columns[c.access.address.column] + c.access.address.offset, cls.pes, c, runs_of_access(c.access))
            for cls in trace.classes
            for c in cls.commands
            if c.access is not None and c.access.tensor == tensor
        ]
        if _clash([_bounds(*touch) for touch in touches]) is None:
            continue
        clash = _clash([_runs(*touch) for touch in touches])  # bounds may meet where bytes do not
        if clash is not None:
            raise _error(trace, tensor, *clash)


@dataclass(frozen=True)
class _Ranges:
    """Ranges of bytes, one entry each."""

    low: np.ndarray
    high: np.ndarray
    pe: np.ndarray
    line: np.ndarray
    is_store: np.ndarray

    def __getitem__(self, where: np.ndarray) -> _Ranges:
        return _Ranges(*(column[where] for column in self._columns()))

    def _columns(self) -> tuple[np.ndarray, ...]:
        return self.low, self.high, self.pe, self.line, self.is_store

    @classmethod
    def join(cls, parts: list[_Ranges]) -> _Ranges:
        """Return all ranges, sorted by their first byte."""
        ranges = cls(*(np.concatenate(columns) for columns in zip(*(p._columns() for p in parts), strict=True)))
        return ranges[np.argsort(ranges.low, kind="stable")]


def _bounds(base: np.ndarray, pes: np.ndarray, command: Command, runs: Runs) -> _Ranges:
    """Return the range from the first byte that each PE touches to the last."""
    stretch = runs.stretch()
    return _ranges(base + stretch.low, base + stretch.high, pes, command)


def _runs(base: np.ndarray, pes: np.ndarray, command: Command, runs: Runs) -> _Ranges:
    """Return exactly the bytes that each PE touches."""
    low = (base[:, None] + runs.starts()).reshape(-1)
    return _ranges(low, low + runs.run, np.repeat(pes, len(low) // len(pes)), command)


def _ranges(low: np.ndarray, high: np.ndarray, pe: np.ndarray, command: Command) -> _Ranges:
    n = len(low)
    return _Ranges(low, high, pe, np.full(n, command.line), np.full(n, command.op == "store"))


def _clash(parts: list[_Ranges]) -> tuple[_Ranges, _Ranges] | None:
    """Return a store and another PE's access that meets it, as ranges of one entry; None if there are none."""
    ranges = _Ranges.join(parts)
    stores, loads = ranges[ranges.is_store], ranges[~ranges.is_store]
    return _two_stores(stores) or _store_and_load(stores, loads)


def _two_stores(stores: _Ranges) -> tuple[_Ranges, _Ranges] | None:
    # In the order of first bytes, the first that meets any other PE's also meets the one that reaches furthest so far:
    # if that one were its own PE's, then the other PE's would have met that one before.
    reach = np.maximum.accumulate(stores.high)[:-1]
    furthest = np.maximum.accumulate(np.where(stores.high[:-1] == reach, np.arange(len(reach)), 0))
    meets = np.flatnonzero((stores.low[1:] < reach) & (stores.pe[1:] != stores.pe[furthest]))
    if not len(meets):
        return None
    i = int(meets[0])
    return stores[np.array([furthest[i]])], stores[np.array([i + 1])]


def _store_and_load(stores: _Ranges, loads: _Ranges) -> tuple[_Ranges, _Ranges] | None:
    # Stores that overlap are one PE's: as blocks they are apart, each of one PE.
    first = np.flatnonzero(np.r_[True, stores.low[1:] >= np.maximum.accumulate(stores.high)[:-1]])
    low, high, pe = stores.low[first], np.maximum.reduceat(stores.high, first), stores.pe[first]
    owner = np.cumsum(np.r_[False, pe[1:] != pe[:-1]])
    begin = np.searchsorted(high, loads.low, side="right")
    end = np.searchsorted(low, loads.high, side="left")
    some = np.flatnonzero(begin < end)
    begin, last = begin[some], end[some] - 1
    other = some[(pe[begin] != loads.pe[some]) | (owner[begin] != owner[last])]
    if not len(other):
        return None
    load = loads[other[:1]]
    meets = (stores.pe != load.pe) & (stores.low < load.high) & (load.low < stores.high)
    return stores[np.flatnonzero(meets)[:1]], load


def _error(trace: Trace, tensor: int, store: _Ranges, other: _Ranges) -> KernelError:
    verb = "also written" if other.is_store[0] else "read"
    name = trace.machine.pe_name
    return KernelError(
        f"{trace.tensor_names[tensor]} is written by {name(int(store.pe[0]))} and {verb} by "
        f"{name(int(other.pe[0]))} at the same bytes: which comes first would depend on timing"
        f"\n  written at {trace.lines[store.line[0]]}"
        f"\n  {verb} at {trace.lines[other.line[0]]}"
        "\n  pass the value on a channel, or let one PE store"
    )
