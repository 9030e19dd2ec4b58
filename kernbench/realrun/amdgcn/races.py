"""Checks LDS for races among the waves of a workgroup: what one wave writes, others may touch only behind a barrier.

A write is released when its wave has waited for it (``lgkmcnt``, or ``vmcnt`` for a load that goes straight to LDS) and
the workgroup has then passed a barrier. Until then no other wave may read it. A word that a wave has read must not be
overwritten by another wave before the workgroup passes a barrier. Both go by words of 4 bytes. Two writes of one word
by different waves are not looked for.

The accesses since the last barrier are kept as they come, with the range of their addresses; single words are looked
at only where a range that is read meets one that is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.errors import KernelError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.state import Bools, Group, Waves

WORD = 4
MOST_KEPT = 128
"""Accesses that are kept one by one."""
MANY = -1
"""Stands for a wave where several have read a word."""
Numbers = NDArray[np.int64]


class Queue:
    """Outstanding operations of one counter of ``s_waitcnt``, by wave."""

    def __init__(self, waves: int) -> None:
        self.issued: Numbers = np.zeros(waves, np.int64)
        self.covered: Numbers = np.zeros(waves, np.int64)
        self.unordered: Numbers = np.zeros(waves, np.int64)
        """Number of the last load that may overtake others."""
        self.writes: dict[int, Numbers] = {}
        """By register: the number of the load that writes it."""
        self.stored: Numbers = np.zeros(waves, np.int64)
        """Number of the last operation that writes LDS."""
        self.released: Numbers = np.zeros(waves, np.int64)
        """Operations that were covered when the workgroup last passed a barrier."""


@dataclass(slots=True)
class Access:
    """One instruction's access to LDS."""

    at: Any
    """Addresses ``[wave, lane]`` in the LDS of all workgroups."""
    active: Bools
    width: int
    first: int
    """Range of the addresses in a workgroup."""
    behind: int
    waves: Numbers
    queue: str
    number: Numbers
    """Of a write: its number in the queue. Of a read: how many barriers the workgroup has passed."""
    entered: bool = False
    """Whether its words are in the tables."""

    def meets(self, first: int, behind: int) -> bool:
        """Whether the range of its addresses meets another."""
        return self.first < behind and first < self.behind

    def words(self) -> tuple[Numbers, Any]:
        """Return the words touched by active lanes, and the number in :attr:`waves` of each one's wave."""
        lanes = np.nonzero(self.active)
        at, wave = self.at[lanes], lanes[0]
        steps = range(0, max(self.width, WORD), WORD)
        last = (at + (self.width - 1)) // WORD  # an unaligned access reaches into one word more
        found = [(at + step) // WORD for step in steps] + ([last] if (at % WORD).any() else [])
        return np.concatenate(found), np.tile(wave, len(found))


class LdsRaces:
    """Accesses to LDS of a batch of waves since each workgroup's last barrier."""

    def __init__(self, state: Waves, queues: dict[str, Queue]) -> None:
        self._state, self._queues = state, queues
        self._alone = state.per_group == 1
        self._all: Numbers = np.arange(state.count, dtype=np.int64)
        self._writes: list[Access] = []
        self._reads: list[Access] = []
        self._barriers: Numbers = np.zeros(state.groups, np.int64)
        words = state.lds.size // WORD
        self._writer: Numbers = np.zeros(words, np.int64)
        """By word: (number * 2 + whether vmcnt counts it) * waves + wave of the last write."""
        self._reader: Numbers = np.zeros(words, np.int64)
        self._read_at: Numbers = np.full(words, -1, np.int64)
        """By word: which wave has read it, and after how many barriers."""

    def write(self, g: Group, at: Any, active: Bools, width: int, span: tuple[int, int], line: Line, name: str) -> None:
        """Note a write, which the counter ``name`` counts; ``span`` is its range of addresses in a workgroup.

        Raises
        ------
        KernelError
            Another wave has read a word of it since the last barrier.
        """
        if self._alone and name == "lgkm":
            return
        queue = self._queues[name]
        number = queue.issued[g.at] + 1
        queue.stored[g.at] = number
        access = Access(at, active, width, *span, g.waves, name, number)
        if any(read.meets(*span) for read in self._reads):
            self._check_overwrite(g, access, line)
        self._writes.append(access)
        if len(self._writes) > MOST_KEPT:
            self._condense_writes()

    def read(self, g: Group, at: Any, active: Bools, width: int, span: tuple[int, int], line: Line) -> None:
        """Note a read.

        Raises
        ------
        KernelError
            A word of it is written by another wave and not released, or by a load that is not waited for.
        """
        access = Access(at, active, width, *span, g.waves, "", self._barriers[g.group_of])
        if self._writes and any(write.meets(*span) for write in self._writes):
            self._check_read(g, access, line)
        if not self._alone:
            self._reads.append(access)
            if len(self._reads) > MOST_KEPT:
                self._condense_reads()

    def barrier(self, waves: Numbers, every: bool) -> None:
        """Release what the waves, which pass a barrier together, have waited for; ``every`` if no others run."""
        self._barriers[np.unique(self._state.group_of[waves])] += 1
        for queue in self._queues.values():
            queue.released[waves] = queue.covered[waves]
        if every:
            self._reads.clear()
        else:
            self._reads = [r for r in self._reads if (r.number == self._barriers[self._group_of(r)]).any()]
        if all((q.stored <= q.released).all() for q in self._queues.values()):
            self._writes.clear()
        else:
            for write in self._writes:  # released words must not hide what was written after them
                self._enter_write(write)
            self._writes = [w for w in self._writes if (w.number > self._queues[w.queue].released[w.waves]).any()]

    def _condense_writes(self) -> None:
        """Leave one access for each counter in place of many, for loops without a barrier."""
        for write in self._writes:
            self._enter_write(write)
        first, behind = min(w.first for w in self._writes), max(w.behind for w in self._writes)
        self._writes = [
            Access(None, w.active, 0, first, behind, self._all, w.queue, self._queues[w.queue].stored.copy(), True)
            for w in {w.queue: w for w in self._writes}.values()
            if not self._alone or (self._queues[w.queue].stored > self._queues[w.queue].covered).any()
        ]

    def _condense_reads(self) -> None:
        for read in self._reads:
            self._enter_read(read)
        first, behind = min(r.first for r in self._reads), max(r.behind for r in self._reads)
        barriers = self._barriers[self._state.group_of]
        self._reads = [Access(None, self._reads[0].active, 0, first, behind, self._all, "", barriers, True)]

    def _group_of(self, access: Access) -> Numbers:
        return self._state.group_of[access.waves]

    def _enter_write(self, write: Access) -> None:
        if write.entered:
            return
        words, wave = write.words()
        owner = (write.number * 2 + (write.queue == "vm")) * self._state.count + write.waves
        self._writer[words] = owner[wave]
        write.entered = True

    def _enter_read(self, read: Access) -> None:
        if read.entered:
            return
        words, index = read.words()
        wave, barriers = read.waves[index], read.number[index]
        others = (self._read_at[words] == barriers) & (self._reader[words] != wave)
        self._reader[words] = wave
        others |= self._reader[words] != wave
        self._reader[words[others]] = MANY
        self._read_at[words] = barriers
        read.entered = True

    def _check_read(self, g: Group, read: Access, line: Line) -> None:
        for write in self._writes:
            self._enter_write(write)
        words, index = read.words()
        code, writer = np.divmod(self._writer[words], self._state.count)
        number, by_vm = code >> 1, (code & 1).astype(np.bool_)
        vm, lgkm = self._queues["vm"], self._queues["lgkm"]
        own = writer == read.waves[index]
        released = np.where(by_vm, vm.released[writer], lgkm.released[writer])
        late = number > np.where(own, np.where(by_vm, vm.covered[writer], number), released)
        if late.any():
            which = int(np.argmax(late))
            lane = int(np.nonzero(read.active)[1][which % np.count_nonzero(read.active)])
            name = "vm" if by_vm[which] else "lgkm"
            covered = number[which] <= self._queues[name].covered[writer[which]]
            missing = "a barrier follows" if covered else f"s_waitcnt {name}cnt covers"
            kind = "load" if by_vm[which] else "write"
            other = int(writer[which]) // self._state.groups
            raise KernelError(f"{line.place}: lane {lane} reads LDS before {missing} the {kind} to it of wave {other}")

    def _check_overwrite(self, g: Group, write: Access, line: Line) -> None:
        for read in self._reads:
            if read.meets(write.first, write.behind):
                self._enter_read(read)
        words, index = write.words()
        barriers = self._barriers[g.group_of][index]
        bad = (self._read_at[words] == barriers) & (self._reader[words] != write.waves[index])
        if bad.any():
            which = int(np.argmax(bad))
            lane = int(np.nonzero(write.active)[1][which % np.count_nonzero(write.active)])
            reader = int(self._reader[words[which]])
            other = "other waves" if reader == MANY else f"wave {reader // self._state.groups}"
            raise KernelError(f"{line.place}: lane {lane} writes LDS that {other} read, with no barrier in between")
