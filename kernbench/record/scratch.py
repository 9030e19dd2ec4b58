"""A PE's scratch while a kernel is recorded: who lies where, and who must wait for whom.

Scratch is a stack. A scope that ends frees what was made inside it; the next tile may then take the same bytes,
and must wait until the last command that uses the old ones has ended. These waits are found here, by address,
so that reusing a buffer too early costs time and a second buffer buys it back.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

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
            return dict(self.readers)
        return {self.writer: self.written_by} if self.written_by >= 0 else {}


@dataclass(slots=True)
class _Scope:
    line: int
    start: int
    top_before: int
    buffers: list[Buffer] = field(default_factory=list)
    rotation: dict[int, _Rotation] = field(default_factory=dict)


@dataclass(slots=True)
class _Rotation:
    """How often a ``with scratch_scope(...)`` line has been passed, and how large its copies are."""

    passes: int = 0
    size: int = 0


@dataclass(slots=True)
class _Region:
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
        """Bytes alive at this moment, by the line that made them."""
        self.peak_by_line: dict[int, int] = {}
        """The same at the moment of the peak."""
        self._scopes = [_Scope(-1, 0, 0)]
        self._freed: list[_Region] = []

    def live(self) -> list[Buffer]:
        """Buffers alive at this moment, oldest first."""
        return [b for scope in self._scopes for b in scope.buffers]

    def allocate(self, nbytes: int, line: int) -> tuple[Buffer, Users] | None:
        """Give out bytes; return the buffer and who still uses them, or ``None`` if there is no room."""
        room = -(-nbytes // ALIGNMENT) * ALIGNMENT
        if self.top + room > self.capacity:
            return None
        buffer = Buffer(self.top, room, line)
        self.top += room
        self._scopes[-1].buffers.append(buffer)
        self.by_line[line] = self.by_line.get(line, 0) + room
        if self.top > self.peak:
            self.peak = self.top
            self.peak_by_line = dict(self.by_line)
        return buffer, self._take(buffer.address, buffer.address + room)

    def open_scope(self, line: int, buffers: int) -> None:
        """Begin a scope. Its tiles go to the copy of scratch whose turn it is."""
        outer = self._scopes[-1]
        rotation = outer.rotation.setdefault(line, _Rotation())
        start = self.top + rotation.size * (rotation.passes % buffers)
        rotation.passes += 1
        self._scopes.append(_Scope(line, start, self.top))
        self.top = start

    def close_scope(self) -> None:
        """End the innermost scope and free its tiles."""
        scope = self._scopes.pop()
        rotation = self._scopes[-1].rotation[scope.line]
        rotation.size = max(rotation.size, self.top - scope.start)
        self.top = scope.top_before
        for buffer in scope.buffers:
            buffer.freed_at = scope.line
            self.by_line[buffer.line] -= buffer.nbytes
            self._free(buffer.address, buffer.address + buffer.nbytes, buffer.users())

    def _free(self, start: int, end: int, users: Users) -> None:
        if users:
            self._freed.insert(bisect_left(self._freed, start, key=lambda r: r.start), _Region(start, end, users))

    def _take(self, start: int, end: int) -> Users:
        """Remove ``start..end`` from the freed bytes and return who used them."""
        users: Users = {}
        i = bisect_left(self._freed, start, key=lambda r: r.start)
        if i and self._freed[i - 1].end > start:
            i -= 1
        first, rest = i, []
        while i < len(self._freed) and self._freed[i].start < end:
            region = self._freed[i]
            for engine, command in region.users.items():
                users[engine] = max(command, users.get(engine, -1))
            if region.start < start:
                rest.append(_Region(region.start, start, region.users))
            if region.end > end:
                rest.append(_Region(end, region.end, region.users))
            i += 1
        self._freed[first:i] = rest
        return users
