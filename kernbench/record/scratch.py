"""A PE's scratch while a kernel is recorded: who lies where, and who must wait for whom.

Scratch is a stack. A scope that ends frees what was made inside it; the next tile may then take the same bytes,
and must wait until the last command that uses the old ones has ended. These waits are found here, by address,
so that reusing a buffer too early costs time and a second buffer buys it back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

ALIGNMENT = 64
"""Tiles start at multiples of this many bytes (assumed: the width of a scratch port)."""

Users = dict[object, int]
"""Commands that used a buffer: the last one on each engine, since an engine works in order."""


@dataclass(slots=True, eq=False)
class Buffer:
    """The bytes of one tile."""

    address: int
    nbytes: int
    line: int
    written_by: int = -1
    """Index of the command that wrote it last; -1: none."""
    writer: object = None
    """Engine of that command."""
    readers: Users = field(default_factory=dict)
    """Who has read it since."""
    freed_at: int = -1
    """Source line of the scope that freed it; -1: alive."""

    def users(self) -> Users:
        """Every command that must have ended before other values may take these bytes.

        A reader ends after the writer whose value it reads, so the writer counts only where nobody has read.
        """
        if self.readers:
            return self.readers
        return {self.writer: self.written_by} if self.written_by >= 0 else {}


@dataclass(slots=True)
class _Rotation:
    """How often a ``with scratch_scope(...)`` line has been passed, and how large its copies are."""

    passes: int = 0
    size: int = 0


@dataclass(slots=True)
class _Scope:
    line: int
    start: int
    top_before: int
    buffers: list[Buffer] = field(default_factory=list)
    rotation: dict[int, _Rotation] = field(default_factory=dict)


class _Region(NamedTuple):
    """Bytes that no tile owns any more but that commands may still be using."""

    start: int
    end: int
    users: Users


class Scratch:
    """A stack allocator that remembers the users of the bytes it gives out again."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.top = 0
        self.peak = 0
        self.by_line: dict[int, int] = {}
        """Bytes in use at this moment, by the line that made the tiles; the other copies of a scope, by its line."""
        self.peak_by_line: dict[int, int] = {}
        """The same at the moment of the peak."""
        self._scopes = [_Scope(-1, 0, 0)]
        self._freed: list[_Region] = []
        self._freed_starts: list[int] = []

    def copy(self) -> tuple[Scratch, dict[int, Buffer]]:
        """Return a scratch in the same state, and its own copies of the live buffers, by the id of the original."""
        other = Scratch(self.capacity)
        other.top, other.peak = self.top, self.peak
        other.by_line, other.peak_by_line = dict(self.by_line), self.peak_by_line
        other._freed, other._freed_starts = list(self._freed), list(self._freed_starts)
        copies = {id(b): replace(b, readers=dict(b.readers)) for b in self.live()}
        other._scopes = [
            _Scope(
                s.line, s.start, s.top_before, [copies[id(b)] for b in s.buffers],
                {line: replace(rotation) for line, rotation in s.rotation.items()},
            )
            for s in self._scopes
        ]  # fmt: skip
        return other, copies

    def live(self) -> list[Buffer]:
        """Buffers alive at this moment, oldest first."""
        return [b for scope in self._scopes for b in scope.buffers]

    def allocate(self, nbytes: int, line: int) -> tuple[Buffer, Iterable[int]] | None:
        """Give out bytes; return the buffer and the commands that still use them, or ``None`` if there is no room."""
        room = -(-nbytes // ALIGNMENT) * ALIGNMENT
        start = self.top
        if start + room > self.capacity:
            return None
        buffer = Buffer(start, room, line)
        self._scopes[-1].buffers.append(buffer)
        self.by_line[line] = self.by_line.get(line, 0) + room
        self.top = start + room
        if self.top > self.peak:
            self.peak = self.top
            self.peak_by_line = dict(self.by_line)
        return buffer, self._take(start, start + room)

    def open_scope(self, line: int, buffers: int) -> None:
        """Begin a scope. Its tiles go to the copy of scratch whose turn it is."""
        outer = self._scopes[-1]
        rotation = outer.rotation.setdefault(line, _Rotation())
        start = self.top + rotation.size * (rotation.passes % buffers)
        rotation.passes += 1
        self._scopes.append(_Scope(line, start, self.top))
        self.by_line[line] = self.by_line.get(line, 0) + start - self.top
        self.top = start

    def close_scope(self) -> None:
        """End the innermost scope and free its tiles."""
        scope = self._scopes.pop()
        rotation = self._scopes[-1].rotation[scope.line]
        rotation.size = max(rotation.size, self.top - scope.start)
        self.by_line[scope.line] -= scope.start - scope.top_before
        self.top = scope.top_before
        for buffer in scope.buffers:
            buffer.freed_at = scope.line
            self.by_line[buffer.line] -= buffer.nbytes
            self._free(buffer)

    def _free(self, buffer: Buffer) -> None:
        users = buffer.users()
        if users:
            start = buffer.address
            i = bisect_left(self._freed_starts, start)
            self._freed_starts.insert(i, start)
            self._freed.insert(i, _Region(start, start + buffer.nbytes, users))

    def _take(self, start: int, end: int) -> Iterable[int]:
        """Remove ``start..end`` from the freed bytes and return who used them."""
        freed = self._freed
        i = first = bisect_left(self._freed_starts, start)
        if first and freed[first - 1].end > start:
            i = first = first - 1
        while i < len(freed) and freed[i].start < end:
            i += 1
        taken = freed[first:i]
        if not taken:
            return ()
        rest = []
        for region in taken:
            if region.start < start:
                rest.append(region._replace(end=start))
            if region.end > end:
                rest.append(region._replace(start=end))
        freed[first:i] = rest
        self._freed_starts[first:i] = [region.start for region in rest]
        return taken[0].users.values() if len(taken) == 1 else _last_users(taken)


def _last_users(regions: Iterable[_Region]) -> Iterable[int]:
    """Return the last command on each engine among the users of several regions."""
    users: Users = {}
    for region in regions:
        for engine, command in region.users.items():
            users[engine] = max(command, users.get(engine, -1))
    return users.values()
