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

EXPONENTIALS = ("exp", "exp2")
RECIPROCALS = ("divide", "log", "log2", "sqrt", "rsqrt")
"""Other operations that compilers make of transcendental instructions."""


@dataclass(frozen=True)
class Charged:
    """Work of one launch over all of its workgroups."""

    products: tuple[int, ...]
    """Floating-point operations of the products of each source line, a multiply-add is two; tiles are whole."""
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
    loaded_tiles: frozenset[int]
    """Sizes of whole tiles that are loaded, in bytes."""
    staged_bytes: int
    """Loaded operands of products, each once: what goes through LDS if every wave takes its own part."""
    tiles: int
    """Tiles of scores: those whose rows' maxima are taken."""
    empty_groups: int
    """Workgroups that have no such tile, in a launch where others have."""

    @property
    def matrix_operations(self) -> int:
        """Operations of all products."""
        return sum(self.products)

    @classmethod
    def of(cls, trace: Trace) -> Charged:
        """Add up the commands of a recorded grid."""
        products: dict[int, int] = {}
        sums: dict[str, int] = defaultdict(int)
        sizes: dict[bool, set[int]] = {False: set(), True: set()}
        for part in trace.classes:
            loaded: dict[int, int] = {}
            before = sums["tiles"]
            for command in part.commands:
                if command.op == "dot":
                    batch, m, n, k = command.work[:4]
                    products[command.line] = products.get(command.line, 0) + 2 * batch * m * n * k * len(part.pes)
                for name, amount in _work(command, part, loaded):
                    sums[name] += amount * len(part.pes)
            is_empty = sums["tiles"] == before
            sums["empty"] += len(part.pes) * is_empty
            sizes[is_empty].update(_whole_bytes(c) for c in part.commands if c.op == "load" and c.access is not None)
        return cls(
            products=tuple(products[line] for line in sorted(products)),
            tile_exponentials=sums["tile_exp"],
            row_exponentials=sums["row_exp"],
            tile_divisions=sums["tile_div"],
            row_divisions=sums["row_div"],
            read_bytes=sums["read"],
            written_bytes=sums["written"],
            single_bytes=sums["single"],
            loaded_tiles=frozenset(sizes[False] - sizes[True]),
            staged_bytes=sums["staged"],
            tiles=sums["tiles"],
            empty_groups=sums["empty"] if sums["tiles"] else 0,
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
            yield f"{'tile' if any(_is_tile(shape) for shape in shapes) else 'row'}_{kind}", elements
        if command.name == "max" and is_of_rows(command):
            yield "tiles", 1


def _whole_bytes(command: Command) -> int:
    assert command.access is not None
    return math.prod(command.access.shape) * DTYPES[command.access.dtype].bits // 8


def _is_tile(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and shape[-1] > 1 and math.prod(shape[:-1]) > 1
