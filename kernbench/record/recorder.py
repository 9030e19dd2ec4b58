"""The recorder behind ``tl``: appends the commands of one run of the kernel, with their dependencies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.dtypes import DTYPES, DType
from kernbench.errors import ChannelError, KernbenchError, KernelError, ScratchError
from kernbench.record.lines import LineTable
from kernbench.record.scratch import Buffer, Scratch, Users
from kernbench.record.trace import OPERAND, REUSE, Access, Command, Lane, PEClass, Ref, TileInfo
from kernbench.tl import DIRECTIONS, Group, LaneInt, Pointer, Tile
from kernbench.tl.language import Language

if TYPE_CHECKING:
    from kernbench.machine import Machine

_IN_ORDER = {"dot", "vector"}
"""Operations whose engine ends its commands in the order of issue, so that only the last one counts."""


class Recorder:
    """Commands of the PEs in ``group``, which is narrowed while the kernel runs."""

    def __init__(
        self, machine: Machine, group: Group, grid: tuple[int, int, int], dot_dtype: DType, lines: LineTable
    ) -> None:
        self.machine = machine
        self.group = group
        self.grid = grid
        sips, cubes, pes = machine.grids
        self.columns = (pes.columns, cubes.columns, sips.columns)
        self.tl = Language(self, dot_dtype)
        self.warnings: dict[str, None] = {}
        self._lines = lines
        self._scratch = Scratch(machine.pe.scratch)
        self._commands: list[Command] = []
        self._tiles: list[TileInfo] = []
        self._columns: list[np.ndarray] = []
        self._column_of: dict[int, int] = {}
        self._column_of_content: dict[bytes, int] = {}
        self._programs: dict[int, LaneInt] = {}
        self._stored: dict[int, list[tuple[int, Any, Any]]] = {}
        self._loaded: dict[int, list[tuple[int, Any, Any]]] = {}

    # ------------------------------------------------------------------ errors and source lines
    def line(self) -> int:
        """Index of the kernel's source line that is being executed."""
        return self._lines.find(sys._getframe(1))

    def error(self, kind: type[KernbenchError], message: str, pes: np.ndarray | None = None) -> KernbenchError:
        """Return an error with the kernel's source line and the PEs concerned."""
        who = self.machine.describe_pes(self.group.active_pes if pes is None else pes)
        return kind(f"{message}\n  at {self._lines[self.line()]}\n  on {who}")

    def warn(self, message: str) -> None:
        """Note something allowed but hardly meant."""
        who = self.machine.describe_pes(self.group.active_pes)
        self.warnings[f"{message}\n  at {self._lines[self.line()]}\n  on {who}"] = None

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
    def load(
        self, ptr: Pointer, shape: tuple[int, ...], kind: DType, strides: tuple[int, ...], valid: Any, other: float
    ) -> Tile:
        """Append a LOAD."""
        access, nbytes = self._access(ptr, shape, kind, strides, valid, other)
        index = len(self._commands)
        needs = self._memory_needs(ptr, access, index, store=False)
        tile = self._new_tile(shape, kind, index, ("load", index), needs)
        self._append("load", "load", (tile.index,), (), {}, access, -1, nbytes, (), needs)
        return tile

    def load_scalar(self, ptr: Pointer) -> LaneInt:
        """Append the LOAD of one control element and return its value on every PE."""
        kind = ptr.dtype
        access, nbytes = self._access(ptr, (1,), kind, (1,), None, 0)
        if self._stored.get(ptr.binding.index):
            raise self.error(KernelError, f"load_scalar from {ptr.binding.name}, which this kernel writes")
        assert ptr.binding.control is not None
        parts, part_of = ptr.binding.control
        element = (ptr.byte.values if isinstance(ptr.byte, LaneInt) else np.full(len(part_of), ptr.byte)) // kind.nbytes
        values = np.zeros(len(part_of), np.int64)
        for lane in self.group.active:
            values[lane] = parts[part_of[lane]][element[lane]]
        self._append("load", "load_scalar", (), (), {}, access, -1, nbytes, (), {})
        return LaneInt(self.group, values)

    def store(self, ptr: Pointer, tile: Tile, strides: tuple[int, ...], valid: Any) -> None:
        """Append a STORE."""
        access, nbytes = self._access(ptr, tile.shape, ptr.dtype, strides, valid, 0)
        index = len(self._commands)
        needs = self._memory_needs(ptr, access, index, store=True)
        srcs = self._read((tile,), index, ("store", index), needs)
        self._append("store", "store", (), srcs, {}, access, -1, nbytes, (), needs)

    def compute(
        self,
        op: str,
        name: str,
        outs: Sequence[tuple[tuple[int, ...], DType]],
        operands: Sequence[Any],
        attrs: dict[str, Any],
        work: tuple[int, ...],
        streamed: tuple[Pointer, tuple[int, ...], DType, tuple[int, ...]] | None = None,
    ) -> list[Tile]:
        """Append a DOT, VECTOR or COMPOSITE that makes new tiles."""
        index = len(self._commands)
        engine: object = op if op in _IN_ORDER else (op, index)
        needs: dict[int, int] = {}
        access, nbytes = None, 0
        if streamed is not None:
            ptr, shape, kind, strides = streamed
            access, nbytes = self._access(ptr, shape, kind, strides, None, 0)
            needs = self._memory_needs(ptr, access, index, store=False)
        srcs = self._read(operands, index, engine, needs)
        tiles = [self._new_tile(shape, kind, index, engine, needs) for shape, kind in outs]
        dst = tuple(t.index for t in tiles)
        self._append(op, name, dst, srcs, attrs, access, -1, nbytes, work, needs, engine)
        return tiles

    def empty(self, shape: tuple[int, ...], kind: DType) -> Tile:
        """Allocate a tile that nothing has written."""
        return self._new_tile(shape, kind, -1, None, {})

    def copy_to(self, dst: Tile, src: Tile) -> None:
        """Append a copy into an existing tile."""
        index = len(self._commands)
        needs: dict[int, int] = {}
        srcs = self._read((src,), index, "vector", needs)
        self._wait_for(dst.buffer.users(), needs)
        dst.buffer.written_by, dst.buffer.writer = index, "vector"
        dst.buffer.readers = {}
        self._append("vector", "copy", (dst.index,), srcs, {}, None, -1, 0, (src.size,), needs, "vector")

    def send(self, direction: int, src: Tile) -> None:
        """Append a SEND."""
        self._check_neighbour(direction, "send")
        index = len(self._commands)
        engine = ("send", direction)
        needs: dict[int, int] = {}
        srcs = self._read((src,), index, engine, needs)
        attrs = {"shape": src.shape, "dtype": src.dtype.name}
        self._append("send", DIRECTIONS[direction], (), srcs, attrs, None, direction, src.nbytes, (), needs, engine)

    def recv(self, direction: int, shape: tuple[int, ...], kind: DType) -> Tile:
        """Append a RECV."""
        self._check_neighbour(direction, "recv")
        index = len(self._commands)
        engine = ("recv", direction)
        needs: dict[int, int] = {}
        tile = self._new_tile(shape, kind, index, engine, needs)
        attrs = {"shape": shape, "dtype": kind.name}
        name = DIRECTIONS[direction]
        self._append("recv", name, (tile.index,), (), attrs, None, direction, tile.nbytes, (), needs, engine)
        return tile

    # ------------------------------------------------------------------ scratch
    def open_scope(self, buffers: int) -> None:
        """Begin a scratch scope."""
        self._scratch.open_scope(self.line(), buffers)

    def close_scope(self) -> None:
        """End the innermost scratch scope."""
        self._scratch.close_scope()

    def check_alive(self, tile: Tile) -> None:
        """Raise if the tile's scope has ended."""
        if tile.buffer.freed_at >= 0:
            raise self.error(
                ScratchError,
                f"a tile {tile.shape} {tile.dtype} is used after its scratch scope ended"
                f"\n  made at {self._lines[tile.buffer.line]}"
                f"\n  freed by the scope at {self._lines[tile.buffer.freed_at]}"
                "\n  carry the value out with tl.copy_to(tile made outside, tile), or use it inside",
            )

    def finish(self) -> PEClass:
        """Return the commands of the PEs that agreed to the end."""
        active = self.group.active
        by_line = {line: n for line, n in self._scratch.peak_by_line.items() if n}
        columns = tuple(column[active] for column in self._columns)
        return PEClass(
            self.group.active_pes, tuple(self._commands), tuple(self._tiles), columns, self._scratch.peak, by_line
        )

    # ------------------------------------------------------------------ parts of a command
    def _append(
        self,
        op: str,
        name: str,
        dst: tuple[int, ...],
        srcs: tuple[Any, ...],
        attrs: dict[str, Any],
        access: Access | None,
        direction: int,
        nbytes: int,
        work: tuple[int, ...],
        needs: dict[int, int],
        engine: object = None,
    ) -> None:
        """``needs`` maps earlier commands to OPERAND or REUSE."""
        deps = tuple(sorted((i, kind) for i, kind in needs.items() if not self._follows(i, op, engine)))
        self._commands.append(
            Command(op, name, dst, srcs, attrs, access, direction, nbytes, work, deps, self._lines.find(sys._getframe(2)))
        )

    def _follows(self, earlier: int, op: str, engine: object) -> bool:
        """Whether the engine's own order already puts this command after ``earlier``."""
        before = self._commands[earlier]
        return before.op == op and (op in _IN_ORDER or (op == "send" and engine == ("send", before.direction)))

    def _read(self, operands: Sequence[Any], index: int, engine: object, needs: dict[int, int]) -> tuple[Any, ...]:
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
                srcs.append(Ref(x.index, x.shape))
            elif isinstance(x, LaneInt):
                srcs.append(self._lane(x))
            else:
                srcs.append(x)
        return tuple(srcs)

    def _wait_for(self, users: Users, needs: dict[int, int]) -> None:
        for command in users.values():
            needs.setdefault(command, REUSE)

    def _new_tile(
        self, shape: tuple[int, ...], kind: DType, index: int, engine: object, needs: dict[int, int]
    ) -> Tile:
        nbytes = kind.nbytes
        for n in shape:
            nbytes *= n
        line = self.line()
        found = self._scratch.allocate(nbytes, line)
        if found is None:
            raise self._overflow(shape, kind, nbytes)
        buffer, users = found
        self._wait_for(users, needs)
        buffer.written_by, buffer.writer = index, engine
        self._tiles.append(TileInfo(shape, kind.name, buffer.address, nbytes, line))
        return Tile(self.tl, len(self._tiles) - 1, shape, kind, buffer)

    def _overflow(self, shape: tuple[int, ...], kind: DType, nbytes: int) -> KernbenchError:
        scratch = self._scratch
        live: dict[int, tuple[int, int]] = {}
        for buffer in scratch.live():
            count, size = live.get(buffer.line, (0, 0))
            live[buffer.line] = (count + 1, size + buffer.nbytes)
        largest = sorted(live.items(), key=lambda item: -item[1][1])[:8]
        rows = "".join(
            f"\n    {size:>12,} bytes in {count} tile{'s' * (count > 1)} made at {self._lines[line]}"
            for line, (count, size) in largest
        )
        return self.error(
            ScratchError,
            f"scratch overflow: a tile {shape} {kind} needs {nbytes:,} bytes, but {scratch.capacity - scratch.top:,} of "
            f"{scratch.capacity:,} are free; use smaller tiles, fewer buffers, or free tiles with tl.scratch_scope()"
            f"\n  alive:{rows or ' nothing'}",
        )

    def _lane(self, value: LaneInt) -> Lane | int:
        """Return the value as a lane column and an offset, or as a plain int where all PEs agree."""
        root = value.root
        column = self._column_of.get(id(root))
        if column is None:
            content = root.tobytes()
            column = self._column_of_content.get(content)
            if column is None:
                column = len(self._columns)
                self._columns.append(root)
                self._column_of_content[content] = column
            if self._columns[column] is root:
                self._column_of[id(root)] = column  # safe: the column keeps `root` alive, so its id stays taken
        return Lane(column, value.offset)

    def _access(
        self, ptr: Pointer, shape: tuple[int, ...], kind: DType, strides: tuple[int, ...], valid: Any, other: float
    ) -> tuple[Access, int]:
        binding, byte = ptr.binding, ptr.byte
        touched = valid or shape
        low = high = 0
        count = 1
        for n, step in zip(touched, strides, strict=True):
            count *= n
            reach = (n - 1) * step
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
        self._check_bounds(ptr, low * kind.nbytes, (high + 1) * kind.nbytes)
        base = LaneInt(self.group, binding.base)
        address = self._lane(base + byte)
        assert isinstance(address, Lane)
        element: Any = byte // kind.nbytes
        if isinstance(element, LaneInt):
            element = self._lane(element)
        return Access(binding.index, address, element, shape, strides, valid, other, kind.name), count * kind.nbytes

    def _check_bounds(self, ptr: Pointer, low: int, high: int) -> None:
        binding, byte = ptr.binding, ptr.byte
        active = self.group.active
        first = byte.active_values if isinstance(byte, LaneInt) else byte
        outside = (first + low < 0) | (first + high > binding.part_nbytes[active])
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            begin = int(first[at] if isinstance(byte, LaneInt) else first)
            size = int(binding.part_nbytes[active[at]])
            part = tuple(int(n) for n in binding.extents[active[at]])
            raise self.error(
                KernelError,
                f"bytes {begin + low:,} to {begin + high:,} of {binding.name} are touched, but this PE's part ends at byte "
                f"{size:,}: its shape is {part} {binding.dtype}",
                self.group.active_pes[outside],
            )
        if np.any(np.asarray(first) % ptr.dtype.nbytes):
            raise self.error(KernelError, f"address of {binding.name} is not a multiple of {ptr.dtype.nbytes} bytes")

    def _memory_needs(self, ptr: Pointer, access: Access, index: int, store: bool) -> dict[int, int]:
        """Find this PE's own earlier stores (and, for a store, loads) of the same bytes: they come first."""
        tensor = ptr.binding.index
        touched = access.valid or access.shape
        size = DTYPES[access.dtype].nbytes
        reach = [(n - 1) * s * size for n, s in zip(touched, access.strides, strict=True)]
        low = ptr.byte + sum(r for r in reach if r < 0)
        high = ptr.byte + sum(r for r in reach if r > 0) + size
        needs = {}
        earlier = self._stored.get(tensor, []) + (self._loaded.get(tensor, []) if store else [])
        for command, its_low, its_high in earlier:
            if self._overlaps(low, high, its_low, its_high):
                needs[command] = OPERAND if not store else REUSE
        (self._stored if store else self._loaded).setdefault(tensor, []).append((index, low, high))
        return needs

    def _overlaps(self, low: Any, high: Any, its_low: Any, its_high: Any) -> bool:
        """Whether two ranges of bytes meet on any active PE (no PE is put aside by asking)."""
        lows, highs, their_lows, their_highs = (
            v.active_values if isinstance(v, LaneInt) else v for v in (low, high, its_low, its_high)
        )
        return bool(np.any((lows < their_highs) & (their_lows < highs)))

    def _check_neighbour(self, direction: int, verb: str) -> None:
        peers = self.machine.network.peer[self.group.active_pes, direction]
        inside = peers >= 0
        if inside.all():
            axis = direction // 4
            per_cube, per_sip = self.machine.pes_per_cube, self.machine.cubes_per_sip
            index = (peers % per_cube, peers // per_cube % per_sip, peers // (per_cube * per_sip))[axis]
            inside = index < self.grid[axis]
        if not inside.all():
            name = DIRECTIONS[direction]
            raise self.error(
                ChannelError,
                f'{verb}(dir="{name}") goes over the border: there is no neighbour that way',
                self.group.active_pes[~inside],
            )
