"""Random kernels, written as source in the ``tl`` language, so that one that fails can be read and run by itself.

Every statement is legal; receives match sends. Whether the whole deadlocks is left to chance: some programs fill
channels in a ring, or receive all round before anyone sends.
"""

from __future__ import annotations

import linecache
import pprint
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np

from kernbench.machine import DIRECTIONS, OPPOSITE, Machine, load_machine
from kernbench.placement import Placement, on, replicated, split
from kernbench.record.record import record
from kernbench.record.trace import Trace
from kernbench.tensors import Tensor, shape_only, tensor
from kernbench.testing.machines import random_document

PART = 4096
"""Elements of a tensor, or of each PE's part of it. No statement goes further than 3,400 elements."""
_SLOT = 1024
"""Elements of a PE's own slot in the shared result."""


@dataclass(frozen=True)
class RandomProgram:
    """A machine, tensors in it and a kernel, all drawn from a seed."""

    seed: int
    length: int
    """Statements of the kernel, not counting those inside loops and branches."""
    document: dict[str, Any]
    """The machine, as a file would hold it."""
    grid: tuple[int, int, int] | None
    placements: dict[str, Placement]
    """Where the kernel's tensors lie."""
    source: str
    """The kernel's source."""

    def __str__(self) -> str:
        machine = pprint.pformat(self.document, sort_dicts=False, width=120)
        places = pprint.pformat(self.placements, sort_dicts=False, width=120)
        return f"seed {self.seed}, length {self.length}, grid {self.grid}\n{machine}\n{places}\n\n{self.source}"

    def record(self) -> Trace:
        """Record the kernel."""
        machine = load_machine(self.document)
        name = f"<random program {self.seed}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": "random_program", "one_of": one_of}
        exec(compile(self.source, name, "exec"), space)
        tensors = [_tensor(name, placement, machine) for name, placement in self.placements.items()]
        try:
            return record(space["kernel"], machine, tensors, self.grid)
        finally:
            del linecache.cache[name]  # the trace has taken its lines


def random_program(seed: int, length: int = 12) -> RandomProgram:
    """Draw a machine and a kernel; the same seed and length give the same again."""
    random = Random(f"{seed}/{length}")  # not hash(): that of a string differs from run to run
    document = random_document(random)
    machine = load_machine(document)
    grid = None
    if random.random() < 0.2:
        pes, cubes, sips = (random.randint(1, n) for n in machine.shape)
        grid = (pes, cubes, sips)
    writer = _Writer(random, machine, grid or machine.shape)
    source = writer.kernel(length)
    return RandomProgram(seed, length, document, grid, _placements(random, machine), source)


def one_of(index: Any, members: tuple[int, ...]) -> Any:
    """Whether a per-PE integer is among ``members``: one answer per PE, which only ``if`` turns into a branch."""
    found = index == members[0]
    for member in members[1:]:
        found = found | (index == member)
    return found


# ---------------------------------------------------------------- tensors
_DTYPES = {"x": "f16", "y": "f32", "z": "bf16", "control": "i32", "own": "f32", "far": "f32"}
_NBYTES = {"f16": 2, "bf16": 2, "f32": 4}


def _placements(random: Random, machine: Machine) -> dict[str, Placement]:
    pes, cubes, sips = machine.shape

    def somewhere() -> Placement:
        return on(random.randrange(sips), random.randrange(cubes), random.randrange(pes))

    def anywhere() -> Placement:
        return random.choice((replicated(), somewhere(), somewhere()))

    each = split(0, over=("sip", "cube", "pe"))
    return {"x": each, "y": somewhere(), "z": anywhere(), "control": anywhere(), "own": each, "far": somewhere()}


def _tensor(name: str, placement: Placement, machine: Machine) -> Tensor:
    if name == "control":
        values = Random(machine.sha256).choices(range(4), k=8)
        return tensor(np.array(values, np.int32), machine, placement)
    ragged = machine.n_pes // 2  # the last PEs have one element less than the first
    size = {"x": PART * machine.n_pes - ragged, "own": PART * machine.n_pes, "far": _SLOT * machine.n_pes}
    return shape_only(size.get(name, PART), _DTYPES[name], machine, placement)


# ---------------------------------------------------------------- kernels
class _Tile(NamedTuple):
    name: str
    shape: tuple[int, int]
    dtype: str


class _Writer:
    """Writes the source of one kernel."""

    def __init__(self, random: Random, machine: Machine, grid: tuple[int, int, int]) -> None:
        self.random = random
        self.machine = machine
        per_cube, per_sip = machine.pes_per_cube, machine.cubes_per_sip
        self.everyone = frozenset(
            pe
            for pe in range(machine.n_pes)
            if pe % per_cube < grid[0] and pe // per_cube % per_sip < grid[1] and pe // (per_cube * per_sip) < grid[2]
        )
        self.members: frozenset[int] = self.everyone
        """PEs that come to the present line."""
        self.is_known = True
        """Whether ``members`` is exact: under a branch on control data it is not, and nobody may send."""
        self.lines: list[str] = []
        self.indent = 1
        self.tiles: list[_Tile] = []
        """Tiles that exist on all members."""
        self.terms: list[str] = ["me * 8"]
        """Expressions of at most 512 that an address may add."""
        self.counted = 0
        self.busy: set[int] = set()
        """Directions with messages that are yet to be received."""
        self.later: list[Callable[[], None]] = []
        """Receives that the present block has put off."""

    def kernel(self, length: int) -> str:
        """Return the source of a kernel of so many statements."""
        pes, cubes, _ = self.machine.shape
        self.line("def kernel(x, y, z, control, own, far, *, tl):", indent=0)
        self.line(f"me = tl.program_id(0) + {pes} * (tl.program_id(1) + {cubes} * tl.program_id(2))")
        if self.random.random() < 0.15 and len(self.everyone) > 1:
            idle = self.some(self.everyone, at_most=len(self.everyone) - 1)
            self.line(f"if {self.asks(idle)}: return")
            self.members = self.everyone - set(idle)
        self.load()
        self.block(length, depth=0)
        return "\n".join(self.lines) + "\n"

    # ------------------------------------------------------------------ lines and blocks
    def line(self, text: str, indent: int | None = None) -> None:
        """Write a line."""
        self.lines.append("    " * (self.indent if indent is None else indent) + text)

    @contextmanager
    def inside(self, *heads: str) -> Iterator[None]:
        """Write lines one step further in behind each of ``heads``; what they name is forgotten afterwards."""
        tiles, terms, members, is_known = list(self.tiles), list(self.terms), self.members, self.is_known
        for head in heads:
            self.line(head)
            self.indent += 1
        first = len(self.lines)
        yield
        if len(self.lines) == first:
            self.line("pass")
        self.indent -= len(heads)
        self.tiles, self.terms, self.members, self.is_known = tiles, terms, members, is_known

    def block(self, length: int, depth: int) -> None:
        """Write statements, and every receive that they put off."""
        outer, self.later = self.later, []
        statements: dict[Callable[[], object], float] = {
            self.load: 4, self.fill: 1, self.vector: 5, self.dot: 2, self.composite: 1.5, self.store: 2, self.copy: 1,
            self.message: 4 if self.is_known else 0, self.scalar: 0.7,
        }  # fmt: skip
        if depth < 2:
            statements[lambda: self.loop(depth)] = 1.2
            statements[lambda: self.branch(depth)] = 0.8
            statements[lambda: self.data_branch(depth)] = 0.4
        for _ in range(length):
            if self.later and self.random.random() < 0.4:
                self.later.pop(0)()
            self.random.choices(list(statements), list(statements.values()))[0]()
        for receive in self.later:
            receive()
        self.later = outer

    def loop(self, depth: int) -> None:
        """Write a loop of scratch scopes."""
        counter = f"i{depth}"
        buffers = self.random.randint(1, 3)
        with self.inside(
            f"for {counter} in range({self.random.randint(1, 4)}):", f"with tl.scratch_scope(buffers={buffers}):"
        ):
            self.terms.append(f"{counter} * 128")
            self.block(self.random.randint(1, 5), depth + 1)

    def branch(self, depth: int) -> None:
        """Write a branch that some PEs take."""
        taken = self.some(self.members)
        with self.inside(f"if {self.asks(taken)}:"):
            self.members = frozenset(taken)
            self.block(self.random.randint(1, 4), depth + 1)

    def data_branch(self, depth: int) -> None:
        """Write a branch on control data."""
        name = self.scalar()
        with self.inside(f"if {name} > {self.random.randint(0, 2)}:"):
            self.is_known = False
            self.block(self.random.randint(1, 3), depth + 1)

    def some(self, pes: frozenset[int], at_most: int | None = None) -> tuple[int, ...]:
        """Draw some PEs: at least one."""
        ordered = sorted(pes)
        return tuple(sorted(self.random.sample(ordered, self.random.randint(1, at_most or len(ordered)))))

    def asks(self, pes: tuple[int, ...]) -> str:
        """Return the condition that holds on ``pes`` among the members."""
        return "True" if set(pes) == self.members else f"one_of(me, {pes})"

    # ------------------------------------------------------------------ single statements
    def new(self, expression: str, shape: tuple[int, int], dtype: str) -> _Tile:
        """Write the making of a tile."""
        self.counted += 1
        tile = _Tile(f"t{self.counted}", shape, dtype)
        self.line(f"{tile.name} = {expression}")
        self.tiles.append(tile)
        return tile

    def shape(self) -> tuple[int, int]:
        return self.random.choice((1, 2, 3, 8, 16)), self.random.choice((1, 5, 16, 64))

    def tile(self) -> _Tile:
        return self.random.choice(self.tiles[-8:])

    def address(self, name: str, elements: int = 1024) -> str:
        """Return a pointer into a tensor."""
        terms = self.random.sample(self.terms, self.random.randint(0, min(2, len(self.terms))))
        where = " + ".join([str(self.random.choice((0, 0, 64, self.random.randrange(elements)))), *terms])
        return f"{name} + {_NBYTES[_DTYPES[name]]} * ({where})"

    def load(self, shape: tuple[int, int] | None = None, dtype: str | None = None) -> _Tile:
        """Write a load: packed, transposed or strided, sometimes only in part."""
        names = [n for n in ("x", "y", "z", "own") if dtype in (None, _DTYPES[n])]
        name = self.random.choice(names)
        shape = shape or self.shape()
        more = self.random.choice(("", "", f", strides=(1, {shape[0]})", f", strides=({shape[1] + 1}, 1)"))
        if self.random.random() < 0.2:
            more += f", valid={self.random.randint(1, shape[0])}"
        return self.new(f"tl.load({self.address(name)}, shape={shape}{more})", shape, _DTYPES[name])

    def fill(self) -> None:
        shape, dtype = self.shape(), self.random.choice(("f16", "f32"))
        self.new(f'tl.full({shape}, 0.5, "{dtype}")', shape, dtype)

    def vector(self) -> None:
        """Write an operation of the vector engine."""
        x = self.tile()
        n = x.name
        kind = self.random.randrange(7)
        if kind == 0:
            self.new(f"tl.exp({n})", x.shape, x.dtype)
        elif kind == 1:
            self.new(f"{n} * 2.0 + {n}", x.shape, x.dtype)
        elif kind == 2:
            self.new(f"tl.max({n}, axis=-1)", (x.shape[0], 1), x.dtype)
        elif kind == 3:
            self.new(f"tl.sum({n}, axis=0)", (1, x.shape[1]), x.dtype)
        elif kind == 4:
            self.new(f'tl.cast({n}, "f32")', x.shape, "f32")
        elif kind == 5:
            self.new(f"{n} / (1.0 + {n} * {n})", x.shape, x.dtype)
        else:
            self.new(f"tl.trans({n})", (x.shape[1], x.shape[0]), x.dtype)

    def dot(self) -> None:
        a = self.tile()
        n = self.random.choice((1, 5, 16))
        b = self.load((a.shape[1], n))
        acc = [t.name for t in self.tiles if t.shape == (a.shape[0], n)]
        more = f", {self.random.choice(acc)}" if acc and self.random.random() < 0.5 else ""
        self.new(f"tl.dot({a.name}, {b.name}{more})", (a.shape[0], n), "f32")

    def composite(self) -> None:
        """Write a fused product, streamed or not."""
        a = self.tile()
        shape = (a.shape[1], self.random.choice((1, 5, 16)))
        if self.random.random() < 0.6:
            b = f"{self.address(self.random.choice(('x', 'y', 'z', 'own')))}, shape={shape}"
        else:
            b = self.load(shape).name
        steps = self.random.choice(("", '("scale", 0.5)', '("scale", 0.5), ("max",), ("exp",)', '("cast", "f16")'))
        chunk = self.random.choice((1, 4, 128))
        call = f"tl.composite({a.name}, {b}, epilogue=[{steps}], chunk={chunk})"
        self.new(call + ("[0]" if "max" in steps else ""), (a.shape[0], shape[1]), "f16" if "cast" in steps else "f32")

    def store(self) -> None:
        """Write a store into this PE's own bytes, here or in some other memory."""
        tile = self.tile()
        size = tile.shape[0] * tile.shape[1]
        if self.random.random() < 0.5:
            pointer = self.address("own")
        else:
            pointer = f"far + 4 * ({self.random.randint(0, _SLOT - size)} + {_SLOT} * me)"
        more = f", valid={self.random.randint(1, tile.shape[0])}" if self.random.random() < 0.2 else ""
        self.line(f"tl.store({pointer}, {tile.name}{more})")

    def copy(self) -> None:
        source = self.tile()
        alike = [t for t in self.tiles if t.shape == source.shape and t is not source]
        if alike:
            self.line(f"tl.copy_to({self.random.choice(alike).name}, {source.name})")

    def scalar(self) -> str:
        """Write a read of control data; return the name of the value, which may then be part of addresses."""
        self.counted += 1
        name = f"s{self.counted}"
        where = self.random.choice(("me % 8", str(self.random.randrange(8))))
        self.line(f"{name} = tl.load_scalar(control + 4 * ({where}))")
        self.terms.append(f"{name} * 64")
        return name

    # ------------------------------------------------------------------ messages
    def message(self) -> None:
        """Write messages in one direction: some PEs send, and their peers receive, before, after or much later."""
        peer = self.machine.network.peer
        free = [d for d in range(12) if d not in self.busy]
        ways = [d for d in free if any(int(peer[pe, d]) in self.members for pe in self.members)]
        if not ways:
            return
        d = self.random.choice(ways)
        able = frozenset(pe for pe in self.members if int(peer[pe, d]) in self.members)
        senders = self.some(able) if self.random.random() < 0.4 else tuple(sorted(able))
        receivers = tuple(sorted(int(peer[pe, d]) for pe in senders))
        tile, count = self.tile(), self.random.choice((1, 1, 1, 2, 3, 5))
        back = int(OPPOSITE[d])

        def send() -> None:
            with self.inside(f"if {self.asks(senders)}:", f"for _ in range({count}):"):
                self.line(f'tl.send(dir="{DIRECTIONS[d]}", src={tile.name})')

        def receive() -> None:
            with self.inside(f"if {self.asks(receivers)}:", f"for _ in range({count}):"):
                call = f'tl.recv(dir="{DIRECTIONS[back]}", shape={tile.shape}, dtype="{tile.dtype}")'
                got = self.new(call, tile.shape, tile.dtype)
                use = self.random.choice(("", f"{got.name} + {tile.name}", f"tl.copy_to({tile.name}, {got.name})"))
                if use:
                    self.line(use)
            self.busy.discard(d)

        when = self.random.random()
        if when < 0.5:
            send()
            receive()
        elif when < 0.58:
            receive()
            send()
        else:
            send()
            self.busy.add(d)
            self.later.append(receive)
