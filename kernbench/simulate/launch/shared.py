"""Which loads of a launch read the same tile: what caches can serve.

A tile is a range of loads with one address and one size. Those that are read once are left to nobody; the others get
numbers, and each load says which number it reads in each workgroup: the base of one of the workgroup's streams, plus an
offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernbench.errors import InputError
from kernbench.record.trace import Trace

MOST_BYTES = 1 << 30
"""Of the tables that say which tile each load of each workgroup reads."""
MOST_TILES = 1 << 24
SECTOR = 32
"""Bytes that reading one element of a control tensor really asks for: what a cache holds at least of a line."""


class _Read(NamedTuple):
    """One load of one class."""

    cls: int
    command: int
    column: np.ndarray
    """int64[workgroup of the class]: address without the offset."""
    offset: int
    nbytes: int
    form: tuple[tuple[int, ...], ...]
    """Shape and strides: loads of one form follow one another in a loop."""


@dataclass
class SharedTiles:
    """Numbers of the tiles that are read more than once."""

    base: np.ndarray
    """int64[workgroup, stream]: number that each stream of a workgroup starts at."""
    tiles: int
    """Numbers in use: 0 ... tiles - 1."""
    of: list[dict[int, tuple[int, int]]]
    """For each class: command → (stream, offset); loads that are not here read what nobody else reads."""


@dataclass
class _Numbering:
    """Numbers while they are given out."""

    trace: Trace
    tiles: int = 0
    of: list[dict[int, tuple[int, int]]] = field(default_factory=list)
    bases: list[list[np.ndarray]] = field(default_factory=list)
    """For each class and stream, int64[workgroup of the class]."""

    def claim(self, tiles: int) -> int:
        """Return the first of so many new numbers."""
        first, self.tiles = self.tiles, self.tiles + tiles
        if self.tiles > MOST_TILES:
            raise InputError(
                f"the workgroups of {self.trace.kernel} read more than {MOST_TILES:,} different tiles that they share: "
                "use larger tiles or a smaller problem"
            )
        return first

    def stream(self, cls: int, base: np.ndarray) -> int:
        """Return the number of a new stream of a class."""
        self.bases[cls].append(base)
        total = len(self.bases[cls]) * len(base) * 8
        if total > MOST_BYTES:
            raise _too_large(self.trace, total)
        return len(self.bases[cls]) - 1


def shared_tiles(trace: Trace) -> SharedTiles:
    """Number the tiles of a trace that more than one load reads.

    Raises
    ------
    InputError
        If the tables would take more than a gigabyte.
    """
    numbering = _Numbering(trace, of=[{} for _ in trace.classes], bases=[[] for _ in trace.classes])
    for reads in _by_tensor(trace).values():
        if not _number_as_table(numbering, reads):
            _number_each(numbering, reads)
    workgroups = sum(len(cls.pes) for cls in trace.classes)
    streams = max(len(bases) for bases in numbering.bases)
    if workgroups * streams * 8 > MOST_BYTES:
        raise _too_large(trace, workgroups * streams * 8)
    base = np.zeros((workgroups, streams), np.int64)
    for cls, bases in zip(trace.classes, numbering.bases, strict=True):
        for stream, first in enumerate(bases):
            base[cls.pes, stream] = first
    return SharedTiles(base, numbering.tiles, numbering.of)


def _by_tensor(trace: Trace) -> dict[int, list[_Read]]:
    found: dict[int, list[_Read]] = {}
    for c, cls in enumerate(trace.classes):
        for i, command in enumerate(cls.commands):
            if command.op != "load" or command.access is None:
                continue
            column, offset = cls.columns[command.access.address.column], command.access.address.offset
            nbytes, form = command.nbytes, (command.access.shape, command.access.strides)
            if command.name == "load_scalar":
                column, offset, nbytes = (column + offset) // SECTOR * SECTOR, 0, SECTOR
            found.setdefault(command.access.tensor, []).append(_Read(c, i, column, offset, nbytes, form))
    return found


def _number_as_table(numbering: _Numbering, reads: Sequence[_Read]) -> bool:
    """Number a tensor's tiles as (address column, offset), if no two of these pairs are one address.

    So it is where workgroups walk over rows that they share as a whole, or not at all, as the keys of a head. It needs
    one stream for each column in place of one for each load.
    """
    columns = {id(read.column): read.column for read in reads}
    nbytes = sum(column.nbytes for column in columns.values())
    if nbytes > MOST_BYTES:
        raise _too_large(numbering.trace, nbytes)
    starts = np.unique(np.concatenate(list(columns.values())))
    form_of: dict[tuple[int, int], tuple[tuple[int, ...], ...]] = {}
    for read in reads:
        form_of.setdefault((read.offset, read.nbytes), read.form)
    kinds = {kind: i for i, kind in enumerate(sorted(form_of, key=lambda kind: (form_of[kind], *kind)))}
    if len(starts) * len(kinds) > MOST_TILES:
        return False
    offsets = np.array([offset for offset, _ in kinds], np.int64)
    addresses = (starts[:, None] + offsets).reshape(-1)
    if len(np.unique(addresses)) < len(addresses):
        return False
    place = {key: np.searchsorted(starts, column) for key, column in columns.items()}
    is_read = np.zeros((len(starts), len(kinds)), np.bool_)
    times = 0
    for read in reads:
        is_read[place[id(read.column)], kinds[read.offset, read.nbytes]] = True
        times += len(read.column)
    if times == np.count_nonzero(is_read):
        return True  # nobody shares anything
    first = numbering.claim(len(starts) * len(kinds))
    streams: dict[tuple[int, int], int] = {}
    for read in reads:
        key = (read.cls, id(read.column))
        if key not in streams:
            streams[key] = numbering.stream(read.cls, first + place[id(read.column)] * len(kinds))
        numbering.of[read.cls][read.command] = (streams[key], kinds[read.offset, read.nbytes])
    return True


def _number_each(numbering: _Numbering, reads: Sequence[_Read]) -> None:
    """Number a tensor's tiles by address and size, with a stream for each load."""
    total = sum(len(read.column) for read in reads) * 8
    if total > MOST_BYTES:
        raise _too_large(numbering.trace, total)
    sizes = {nbytes: i for i, nbytes in enumerate(sorted({read.nbytes for read in reads}))}
    names = np.concatenate([(read.column + read.offset) * len(sizes) + sizes[read.nbytes] for read in reads])
    found, number = np.unique(names, return_inverse=True)
    if len(found) == len(names):
        return
    first, at = numbering.claim(len(found)), 0
    for read in reads:
        mine = number.reshape(-1)[at : at + len(read.column)]
        at += len(read.column)
        numbering.of[read.cls][read.command] = (numbering.stream(read.cls, first + mine), 0)


def _too_large(trace: Trace, nbytes: int) -> InputError:
    workgroups = sum(len(cls.pes) for cls in trace.classes)
    return InputError(
        f"{trace.kernel} on {workgroups:,} workgroups: the table of the tiles that they share would take "
        f"{nbytes / 2**30:.1f} GiB, and 1 GiB is the most; use a smaller grid or larger tiles"
    )
