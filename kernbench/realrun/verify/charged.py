"""What the simulator charges a recorded launch for, in the units that machine code is counted in."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from kernbench.dtypes import DTYPES
from kernbench.record import Trace
from kernbench.record.trace import Command, PEClass, Ref
from kernbench.simulate.launch.commands import is_of_rows
from kernbench.simulate.launch.lower import copied, matrix_operations
from kernbench.simulate.launch.scores import is_tile
from kernbench.specs.implementation import Implementation

EXPONENTIALS = ("exp", "exp2")
RECIPROCALS = ("divide", "log", "log2", "sqrt", "rsqrt")
"""Other operations that compilers make of transcendental instructions."""


_COPIED = ("tile_exp", "tile_div")
_LINES = 5
"""Loads of rows and columns that are told apart."""


@dataclass(frozen=True)
class Charged:
    """Work of one launch over all of its workgroups."""

    matrix_operations: int
    """A multiply-add is two; tiles are whole."""
    tile_exponentials: int
    """Exponentials of whole tiles: the model charges for each."""
    row_exponentials: int
    """Exponentials of one number a row: the model has them beside those of a tile, for nothing."""
    tile_divisions: int
    row_divisions: int
    """Divisions, logarithms and roots likewise."""
    read_bytes: int
    written_bytes: int
    """Global memory, as workgroups ask for it, in front of the caches."""
    single_bytes: int
    """Those bytes read that are loads of one number: factors, entries of tables."""
    line_loads: tuple[int, ...]
    """Bytes read by loads of rows and columns: the first of each workgroup, the second, ...; the last are the rest."""
    staged_bytes: int
    """Loaded operands of products, each once: what goes through LDS if every wave takes its own part."""
    tiles: int
    """Tiles of scores: those whose rows' maxima are taken."""
    groups_by_tiles: dict[int, int]
    """Number of such tiles → workgroups that have so many."""

    @classmethod
    def of(cls, trace: Trace, implementation: Implementation) -> Charged:
        """Add up the commands of a recorded grid, those that several waves do for themselves as often."""
        sums: dict[str, int] = defaultdict(int)
        groups: dict[int, int] = defaultdict(int)
        lines: dict[int, int] = defaultdict(int)
        for part in trace.classes:
            loaded: dict[int, int] = {}
            before, number = sums["tiles"], 0
            copies = copied(part, implementation)
            for i, command in enumerate(part.commands):
                if command.op == "load" and command.access is not None and not is_tile(command.access.shape):
                    lines[min(number, _LINES)] += command.nbytes * len(part.pes)
                    number += 1
                for name, amount in _work(command, part, loaded):
                    sums[name] += amount * len(part.pes) * (copies.get(i, 1) if name in _COPIED else 1)
            groups[(sums["tiles"] - before) // len(part.pes)] += len(part.pes)
        return cls(
            matrix_operations=matrix_operations(trace, implementation),
            tile_exponentials=sums["tile_exp"],
            row_exponentials=sums["row_exp"],
            tile_divisions=sums["tile_div"],
            row_divisions=sums["row_div"],
            read_bytes=sums["read"],
            written_bytes=sums["written"],
            single_bytes=sums["single"],
            line_loads=tuple(lines.values()),
            staged_bytes=sums["staged"],
            tiles=sums["tiles"],
            groups_by_tiles=dict(groups),
        )


def _work(command: Command, part: PEClass, loaded: dict[int, int]) -> Iterator[tuple[str, int]]:
    """Yield what one command adds; ``loaded`` has the bytes of tiles that came from memory, casts included."""
    if command.op == "load":
        yield "read", command.nbytes
        if command.access is None or math.prod(command.access.shape) == 1:
            yield "single", command.nbytes
        if command.access is not None:
            loaded.update(dict.fromkeys(command.dst, _whole_bytes(command)))
    elif command.op == "store":
        yield "written", command.nbytes
    elif command.op == "dot":
        sources = [s.tile for s in command.srcs[:2] if isinstance(s, Ref)]
        yield "staged", sum(loaded.pop(tile, 0) for tile in sources)
    elif command.op == "vector":
        source = command.srcs[0] if command.srcs else None
        if command.name in ("cast", "trans") and isinstance(source, Ref) and source.tile in loaded:
            loaded.update(dict.fromkeys(command.dst, loaded.pop(source.tile)))
        elements = math.prod(command.work)
        kind = "exp" if command.name in EXPONENTIALS else "div" if command.name in RECIPROCALS else ""
        if kind:
            shapes = [s.shape for s in command.srcs if isinstance(s, Ref)] + [part.tiles[t].shape for t in command.dst]
            yield f"{'tile' if any(is_tile(shape) for shape in shapes) else 'row'}_{kind}", elements
        if command.name == "max" and is_of_rows(command):
            yield "tiles", 1


def _whole_bytes(command: Command) -> int:
    assert command.access is not None
    return math.prod(command.access.shape) * DTYPES[command.access.dtype].bits // 8
