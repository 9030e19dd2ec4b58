"""The recorder behind ``tl``: appends the commands of one run of the kernel, with their dependencies."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from kernbench.dtypes import DTYPES, DType
from kernbench.errors import ChannelError, KernbenchError, KernelError, ScratchError
from kernbench.machine.network import DIRECTIONS
from kernbench.record.addresses import Addresses
from kernbench.record.lines import LineTable
from kernbench.record.scratch import Buffer, Scratch
from kernbench.record.trace import OPERAND, REUSE, Access, Command, PEClass, Ref, TileInfo
from kernbench.tl import Group, LaneInt, Language, Pointer, Tile

if TYPE_CHECKING:
    from kernbench.machine import Machine

_IN_ORDER = {"dot", "vector"}
"""Operations whose engine ends its commands in the order of issue, so that only the last one counts."""

E = TypeVar("E", bound=KernbenchError)
P = ParamSpec("P")
Made = tuple[int, ...]
"""Indices of the tiles that an event made."""


def _event(method: Callable[Concatenate[Recorder, P], Made]) -> Callable[Concatenate[Recorder, P], list[Tile]]:
    """Make a method an event: something that the kernel does, in order. It returns the tiles that it made.

    A forked recorder begins with the log of the run that it left. While the kernel repeats these events, they are
    answered from the log, since their commands are there already.
    """
    name = method.__name__

    @wraps(method)
    def event(self: Recorder, *args: P.args, **kwargs: P.kwargs) -> list[Tile]:
        position = self._position
        if position < len(self._log):
            logged, made = self._log[position]
            if logged != name:
                raise self.unrepeatable()
        else:
            self._line = self._lines.find(sys._getframe(1))
            made = method(self, *args, **kwargs)
            self._log.append((name, made))
        self._position = position + 1
        return [self._handle(i) for i in made]

    return cast("Callable[Concatenate[Recorder, P], list[Tile]]", event)


class Recorder:
    """Commands of the PEs in ``group``, which is narrowed while the kernel runs."""

    def __init__(
        self, machine: Machine, pes: np.ndarray, grid: tuple[int, int, int], dot_dtype: DType, lines: LineTable
    ) -> None:
        self.machine = machine
        self.group = Group(pes, self._fork)
        self.grid = grid
        sips, cubes, pe_grid = machine.grids
        self.columns = (pe_grid.columns, cubes.columns, sips.columns)
        self.tl = Language(self, dot_dtype)
        self.forks: list[Recorder] = []
        """Recorders of the PEs that came to disagree: the kernel must run again for each."""
        self.warnings: dict[str, None] = {}
        self._dot_dtype = dot_dtype
        self._lines = lines
        self._line = 0
        self._log: list[tuple[str, Made]] = []
        self._position = 0
        self._scratch = Scratch(machine.scratch_capacity)
        self._commands: list[Command] = []
        self._tiles: list[TileInfo] = []
        self._buffers: list[Buffer] = []
        self._addresses = Addresses(self.group, self.error)
        self._programs: dict[int, LaneInt] = {}

    def _fork(self, pes: np.ndarray) -> None:
        """Put PEs aside: their recorder starts with all that was recorded up to now."""
        fork = Recorder(self.machine, pes, self.grid, self._dot_dtype, self._lines)
        fork._log, fork._commands, fork._tiles = list(self._log), list(self._commands), list(self._tiles)
        fork._scratch, copies = self._scratch.copy()
        fork._buffers = [copies.get(id(b), b) for b in self._buffers]
        fork._addresses = self._addresses.fork(fork.group, fork.error)
        self.forks.append(fork)

    def finish(self) -> PEClass:
        """Return the commands of the PEs that agreed to the end."""
        if self._position < len(self._log):
            raise self.unrepeatable()
        active = self.group.active
        by_line = {line: n for line, n in self._scratch.peak_by_line.items() if n}
        columns = tuple(column[active] for column in self._addresses.columns.arrays)
        return PEClass(
            self.group.active_pes, tuple(self._commands), tuple(self._tiles), columns, self._scratch.peak, by_line
        )

    # ------------------------------------------------------------------ errors and source lines
    def line(self) -> int:
        """Index of the kernel's source line that is being executed."""
        return self._lines.find(sys._getframe(1))

    def error(self, kind: type[E], message: str, pes: np.ndarray | None = None) -> E:
        """Return an error with the kernel's source line and the PEs concerned."""
        who = self.machine.describe_pes(self.group.active_pes if pes is None else pes)
        return kind(f"{message}\n  at {self._lines[self.line()]}\n  on {who}")

    def warn(self, message: str) -> None:
        """Note something allowed but hardly meant."""
        who = self.machine.describe_pes(self.group.active_pes)
        self.warnings[f"{message}\n  at {self._lines[self._line]}\n  on {who}"] = None

    def unrepeatable(self) -> KernelError:
        """Return the error for a kernel that does not do the same when it is run again."""
        return self.error(
            KernelError,
            "the kernel did something else when it was run again for PEs that take another branch: "
            "a kernel must depend on its arguments alone, not on what an earlier run left behind",
        )

    # ------------------------------------------------------------------ programs
    def program_id(self, axis: int) -> LaneInt:
        """Per-PE index along ``axis``."""
        if axis not in self._programs:
            pes, per_cube = self.group.pes, self.machine.pes_per_cube
            cube = pes // per_cube
            index = (pes % per_cube, cube % self.machine.cubes_per_sip, cube // self.machine.cubes_per_sip)[axis]
            self._programs[axis] = LaneInt(self.group, index)
        return self._programs[axis]

    # ------------------------------------------------------------------ commands
    @_event
    def load(
        self, ptr: Pointer, shape: tuple[int, ...], kind: DType, strides: tuple[int, ...], valid: Any, other: float
    ) -> Made:
        """Append a LOAD."""
        index = len(self._commands)
        access, nbytes, needs = self._addresses.access(index, ptr, shape, kind, strides, valid, other)
        tile = self._new_tile(shape, kind, index, ("load", index), needs)
        return self._append("load", "load", (tile,), (), {}, access, -1, nbytes, (), needs)

    def load_scalar(self, ptr: Pointer) -> LaneInt:
        """Append the LOAD of one control element and return its value on every PE."""
        self._load_element(ptr)
        byte = ptr.byte.active_values if isinstance(ptr.byte, LaneInt) else ptr.byte
        values = np.zeros(len(self.group.pes), np.int64)
        values[self.group.active] = ptr.binding.elements(byte // ptr.dtype.nbytes)
        return LaneInt(self.group, values)

    @_event
    def _load_element(self, ptr: Pointer) -> Made:
        access, nbytes, needs = self._addresses.access(len(self._commands), ptr, (1,), ptr.dtype, (1,), None, 0)
        if needs:
            raise self.error(KernelError, f"load_scalar from {ptr.binding.name}, where this kernel has stored before")
        return self._append("load", "load_scalar", (), (), {}, access, -1, nbytes, (), needs)

    @_event
    def store(self, ptr: Pointer, tile: Tile, strides: tuple[int, ...], valid: Any) -> Made:
        """Append a STORE."""
        index = len(self._commands)
        access, nbytes, needs = self._addresses.access(
            index, ptr, tile.shape, ptr.dtype, strides, valid, 0, is_store=True
        )
        srcs = self._read((tile,), index, ("store", index), needs)
        return self._append("store", "store", (), srcs, {}, access, -1, nbytes, (), needs)

    @_event
    def compute(
        self,
        op: str,
        name: str,
        outs: Sequence[tuple[tuple[int, ...], DType]],
        operands: Sequence[Any],
        attrs: dict[str, Any],
        work: tuple[int, ...],
        streamed: tuple[Pointer, tuple[int, ...], DType, tuple[int, ...]] | None = None,
    ) -> Made:
        """Append a DOT, VECTOR or COMPOSITE that makes new tiles."""
        index = len(self._commands)
        engine: object = op if op in _IN_ORDER else (op, index)
        access, nbytes = None, 0
        needs: dict[int, int] = {}
        if streamed is not None:
            access, nbytes, needs = self._addresses.access(index, *streamed, None, 0)
        srcs = self._read(operands, index, engine, needs)
        dst = tuple([self._new_tile(shape, kind, index, engine, needs) for shape, kind in outs])
        return self._append(op, name, dst, srcs, attrs, access, -1, nbytes, work, needs)

    @_event
    def empty(self, shape: tuple[int, ...], kind: DType) -> Made:
        """Allocate a tile that nothing has written."""
        needs: dict[int, int] = {}
        tile = self._new_tile(shape, kind, -1, None, needs)
        self._buffers[tile].readers = {("reuse", i): i for i in needs}  # the first write waits for them
        return (tile,)

    @_event
    def copy_to(self, dst: Tile, src: Tile) -> Made:
        """Append a copy into an existing tile."""
        index = len(self._commands)
        needs: dict[int, int] = {}
        self._wait_for(dst.buffer.users().values(), needs)  # before reading: a copy onto itself never waits for itself
        (ref,) = self._read((src,), index, "vector", needs)
        dst.buffer.written_by, dst.buffer.writer = index, "vector"
        dst.buffer.readers = {}
        shape = self._tiles[dst.index].shape  # `dst` may be a reshape: both are copied in the shape of the tile itself
        srcs = (ref._replace(shape=shape),)
        self._append("vector", "copy", (dst.index,), srcs, {}, None, -1, 0, (src.size,), needs)
        return ()

    @_event
    def send(self, direction: int, src: Tile) -> Made:
        """Append a SEND."""
        self._check_neighbour(direction, "send")
        needs: dict[int, int] = {}
        srcs = self._read((src,), len(self._commands), ("send", direction), needs)
        attrs = {"shape": src.shape, "dtype": src.dtype.name}
        return self._append("send", DIRECTIONS[direction], (), srcs, attrs, None, direction, src.nbytes, (), needs)

    @_event
    def recv(self, direction: int, shape: tuple[int, ...], kind: DType) -> Made:
        """Append a RECV."""
        self._check_neighbour(direction, "recv")
        needs: dict[int, int] = {}
        tile = self._new_tile(shape, kind, len(self._commands), ("recv", direction), needs)
        attrs = {"shape": shape, "dtype": kind.name}
        nbytes = kind.size_of(math.prod(shape))
        return self._append("recv", DIRECTIONS[direction], (tile,), (), attrs, None, direction, nbytes, (), needs)

    # ------------------------------------------------------------------ scratch
    @_event
    def open_scope(self, buffers: int) -> Made:
        """Begin a scratch scope."""
        self._scratch.open_scope(self._line, buffers)
        return ()

    @_event
    def close_scope(self) -> Made:
        """End the innermost scratch scope."""
        self._scratch.close_scope()
        return ()

    def check_alive(self, tile: Tile) -> None:
        """Raise if the tile's scope has ended, or the tile is not of this run."""
        if tile.tl is not self.tl:
            raise self.error(
                KernelError, f"a tile {tile.shape} {tile.dtype} is of another run of the kernel; do not keep it outside"
            )
        if tile.buffer.freed_at >= 0 and self._position == len(self._log):
            raise self.error(
                ScratchError,
                f"a tile {tile.shape} {tile.dtype} is used after its scratch scope ended"
                f"\n  made at {self._lines[tile.buffer.line]}"
                f"\n  freed by the scope at {self._lines[tile.buffer.freed_at]}"
                "\n  carry the value out with tl.copy_to(tile made outside, tile), or use it inside",
            )

    def dtype_of(self, tile: Tile) -> DType:
        """Format in which the tile was made, whatever the handle reads its bytes as."""
        return DTYPES[self._tiles[tile.index].dtype]

    def _handle(self, index: int) -> Tile:
        info = self._tiles[index]
        return Tile(self.tl, index, info.shape, DTYPES[info.dtype], self._buffers[index])

    # ------------------------------------------------------------------ parts of a command
    def _append(
        self,
        op: str,
        name: str,
        dst: Made,
        srcs: tuple[Any, ...],
        attrs: dict[str, Any],
        access: Access | None,
        direction: int,
        nbytes: int,
        work: tuple[int, ...],
        needs: dict[int, int],
    ) -> Made:
        """Append a command; ``needs`` maps earlier commands to OPERAND or REUSE. Return the tiles that it makes."""
        if op in _IN_ORDER:  # the engine's own order already puts this command after others of its kind
            commands = self._commands
            deps = [(i, kind) for i, kind in needs.items() if commands[i].op != op]
        else:
            deps = list(needs.items())
        deps.sort()
        self._commands.append(
            Command(op, name, dst, srcs, attrs, access, direction, nbytes, work, tuple(deps), self._line)
        )
        return dst

    def _read(self, operands: Iterable[Any], index: int, engine: object, needs: dict[int, int]) -> tuple[Any, ...]:
        srcs: list[Any] = []
        for x in operands:
            if isinstance(x, Tile):
                buffer = x.buffer
                if buffer.written_by < 0:
                    made = self._lines[buffer.line]
                    self.warn(f"a tile {x.shape} {x.dtype} is read, but nothing has written it: NaN\n  made at {made}")
                else:
                    needs[buffer.written_by] = OPERAND
                buffer.readers[engine] = index
                name = x.dtype.name
                srcs.append(Ref(x.index, x.shape, None if self._tiles[x.index].dtype == name else name))
            else:
                srcs.append(self._addresses.lane(x) if isinstance(x, LaneInt) else x)
        return tuple(srcs)

    def _wait_for(self, users: Iterable[int], needs: dict[int, int]) -> None:
        for command in users:
            needs.setdefault(command, REUSE)

    def _new_tile(self, shape: tuple[int, ...], kind: DType, index: int, engine: object, needs: dict[int, int]) -> int:
        nbytes = kind.size_of(math.prod(shape))
        found = self._scratch.allocate(nbytes, self._line)
        if found is None:
            raise self._overflow(shape, kind, nbytes)
        buffer, users = found
        self._wait_for(users, needs)
        buffer.written_by, buffer.writer = index, engine
        self._tiles.append(TileInfo(shape, kind.name, buffer.address, nbytes, self._line))
        self._buffers.append(buffer)
        return len(self._tiles) - 1

    def _overflow(self, shape: tuple[int, ...], kind: DType, nbytes: int) -> ScratchError:
        scratch = self._scratch
        free = max(scratch.capacity - scratch.top, 0)
        tiles: dict[int, int] = {}
        for buffer in scratch.live():
            tiles[buffer.line] = tiles.get(buffer.line, 0) + 1
        largest = sorted(((n, line) for line, n in scratch.by_line.items() if n), reverse=True)[:8]
        rows = [
            f"\n    {n:>12,} bytes in {_count(tiles[line], 'tile')} made at {self._lines[line]}"
            if line in tiles
            else f"\n    {n:>12,} bytes in the other copies of the scope at {self._lines[line]}"
            for n, line in largest
        ]
        return self.error(
            ScratchError,
            f"scratch overflow: a tile {shape} {kind} needs {nbytes:,} bytes, but {free:,} of {scratch.capacity:,} are "
            f"free; use smaller tiles, fewer buffers, or free tiles with tl.scratch_scope()"
            f"\n  alive:{''.join(rows) or ' nothing'}",
        )

    # ------------------------------------------------------------------ places
    def _check_neighbour(self, direction: int, verb: str) -> None:
        peers = self.machine.network.peer[self.group.active_pes, direction]
        inside = peers >= 0
        if inside.all():
            axis = direction // 4
            per_cube, per_sip = self.machine.pes_per_cube, self.machine.cubes_per_sip
            index = (peers % per_cube, peers // per_cube % per_sip, peers // (per_cube * per_sip))[axis]
            inside = index < self.grid[axis]
        if not inside.all():
            raise self.error(
                ChannelError,
                f'{verb}(dir="{DIRECTIONS[direction]}") goes over the border: there is no neighbour that way',
                self.group.active_pes[~inside],
            )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
