"""The commands of a class as flat columns: what timing needs of them, without any machine's figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from kernbench.record.trace import Command, PEClass, TileInfo

N_DIRECTIONS = 12


class Op(IntEnum):
    """Kinds of command."""

    LOAD = 0
    STORE = 1
    DOT = 2
    VECTOR = 3
    SEND = 4
    RECV = 5
    COMPOSITE = 6
    SCALAR = 7
    """A LOAD that issue waits for (``tl.load_scalar``)."""


class Engine(IntEnum):
    """Engines of a PE. There is one SEND and one RECV engine for each direction."""

    LOAD = 0
    STORE = 1
    MATRIX = 2
    VECTOR = 3
    SEND = 4
    RECV = 4 + N_DIRECTIONS


N_ENGINES = 4 + 2 * N_DIRECTIONS

CostKey = tuple[Op, str, tuple[int, ...], str]
"""(op, name of the operation, size of the arithmetic, format). The format is that of a vector operation's result; of a
product's two operands, joined by a comma where they differ."""


@dataclass(frozen=True)
class Stream:
    """Columns of one class's commands; all arrays have one entry a command unless said otherwise."""

    op: np.ndarray
    """int8: an :class:`Op`."""
    nbytes: np.ndarray
    """int64: bytes moved."""
    direction: np.ndarray
    """int8: channel direction of SEND and RECV, else -1."""
    message: np.ndarray
    """int64: for SEND and RECV, how many went before in the same direction."""
    column: np.ndarray
    """int32: lane column of the address, -1 if there is none."""
    offset: np.ndarray
    """int64: added to the lane column."""
    line: np.ndarray
    """int32: index into the trace's source lines."""
    cost: np.ndarray
    """int32: index into :attr:`cost_keys`, -1 for commands whose time is all in moving bytes."""
    cost_keys: tuple[CostKey, ...]
    dep_start: np.ndarray
    """int64[n + 1]: dependencies of command i are ``dep_start[i]:dep_start[i + 1]``."""
    dep_command: np.ndarray
    """int32: index of an earlier command."""
    dep_kind: np.ndarray
    """int8: OPERAND or REUSE."""
    by_engine: dict[int, np.ndarray]
    """For each engine in use, the indices of its commands, in order."""
    flops: int
    """Floating-point operations of the matrix engine in one PE (2 a multiply-add)."""

    def __len__(self) -> int:
        return len(self.op)


def build_stream(cls: PEClass) -> Stream:
    """Write the commands of a class as columns."""
    commands = cls.commands
    n = len(commands)
    op = np.fromiter((_op(c) for c in commands), np.int8, n)
    direction = np.fromiter((c.direction for c in commands), np.int8, n)
    column = np.fromiter((c.access.address.column if c.access else -1 for c in commands), np.int32, n)
    counts = np.fromiter((len(c.deps) for c in commands), np.int64, n)
    deps = np.array([d for c in commands for d in c.deps], np.int32).reshape(-1, 2)
    keys: dict[CostKey, int] = {}
    cost = np.fromiter((_cost(c, cls.tiles, keys) for c in commands), np.int32, n)
    message = np.zeros(n, np.int64)
    by_engine: dict[int, np.ndarray] = {}
    for engine in range(N_ENGINES):
        mine = _on_engine(engine, op, direction, column)
        if len(mine):
            by_engine[engine] = mine
            if engine >= Engine.SEND:
                message[mine] = np.arange(len(mine))
    return Stream(
        op,
        np.fromiter((c.nbytes for c in commands), np.int64, n),
        direction,
        message,
        column,
        np.fromiter((c.access.address.offset if c.access else 0 for c in commands), np.int64, n),
        np.fromiter((c.line for c in commands), np.int32, n),
        cost,
        tuple(keys),
        np.concatenate([[0], np.cumsum(counts)]),
        deps[:, 0].copy(),
        deps[:, 1].astype(np.int8),
        by_engine,
        sum(flops_of(c) for c in commands),
    )


_OPS = {"load": Op.LOAD, "store": Op.STORE, "dot": Op.DOT, "vector": Op.VECTOR, "send": Op.SEND, "recv": Op.RECV}


def _op(command: Command) -> Op:
    if command.name == "load_scalar":
        return Op.SCALAR
    return Op.COMPOSITE if command.op == "composite" else _OPS[command.op]


def _cost(command: Command, tiles: tuple[TileInfo, ...], keys: dict[CostKey, int]) -> int:
    if not command.work:
        return -1
    name = command.name
    if command.op == "vector":
        kind = tiles[command.dst[0]].dtype
    else:
        kind = _formats(command, tiles)
        if command.op == "composite":
            name = ",".join(step[0] for step in command.attrs["epilogue"])
    return keys.setdefault((_op(command), name, command.work, kind), len(keys))


def _formats(command: Command, tiles: tuple[TileInfo, ...]) -> str:
    """Formats of the two factors of a product."""
    factors = command.srcs[: 1 if command.access else 2]
    kinds = [source.dtype or tiles[source.tile].dtype for source in factors]
    if command.access:
        kinds.append(command.access.dtype)
    return ",".join(dict.fromkeys(kinds))


def flops_of(command: Command) -> int:
    """Return the floating-point operations of a command's product, a multiply-add is two; 0 for other commands."""
    if command.op not in ("dot", "composite"):
        return 0
    batch, m, n, k = command.work[:4]
    return 2 * batch * m * n * k


def _on_engine(engine: int, op: np.ndarray, direction: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Indices of the commands that occupy an engine. A composite occupies all that it streams through."""
    if engine == Engine.LOAD:
        mask = (op == Op.LOAD) | (op == Op.SCALAR) | ((op == Op.COMPOSITE) & (column >= 0))
    elif engine == Engine.STORE:
        mask = op == Op.STORE
    elif engine == Engine.MATRIX:
        mask = (op == Op.DOT) | (op == Op.COMPOSITE)
    elif engine == Engine.VECTOR:
        mask = (op == Op.VECTOR) | (op == Op.COMPOSITE)
    elif engine < Engine.RECV:
        mask = (op == Op.SEND) & (direction == engine - Engine.SEND)
    else:
        mask = (op == Op.RECV) & (direction == engine - Engine.RECV)
    return np.flatnonzero(mask)
