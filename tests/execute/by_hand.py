"""Traces built command by command, so that executing is tested without recording."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from kernbench.dtypes import DTYPES
from kernbench.execute import ExecutionReport, execute
from kernbench.machine import DIRECTIONS, Machine, load_machine
from kernbench.placement import split
from kernbench.record.trace import Access, Command, Lane, PEClass, Ref, SourceLine, TileInfo, Trace
from kernbench.tensors import Tensor, empty, tensor

FLOATS = ("f16", "bf16", "f32")
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32")


@functools.cache
def row(n_pes: int = 8, depth: int = 2) -> Machine:
    """Make a machine of one CUBE whose PEs stand in a row: channels ``intra_E`` and ``intra_W``."""
    changes = {"cube.pes.columns": n_pes, "cube.pes.rows": 1, "pe.channel.depth": depth}
    return load_machine("cube1_pe8").with_overrides(changes)


@functools.cache
def ring(n_pes: int = 8, depth: int = 2) -> Machine:
    """Make a machine of a ring of CUBEs with one PE each: channels ``E`` and ``W``."""
    changes = {
        "sip.cubes.arrangement": "ring", "sip.cubes.columns": n_pes, "sip.cubes.rows": 1,
        "cube.pes.columns": 1, "cube.pes.rows": 1, "pe.channel.depth": depth,
    }  # fmt: skip
    return load_machine("row4_pe8").with_overrides(changes)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))


class Program:
    """Commands of one class of PEs."""

    def __init__(self, *pes: int) -> None:
        self.pes = np.array(pes, np.int64)
        self.commands: list[Command] = []
        self.tiles: list[TileInfo] = []
        self.columns: list[np.ndarray] = []

    def lane(self, *values: int, offset: int = 0) -> Lane:
        self.columns.append(np.array(values, np.int64))
        return Lane(len(self.columns) - 1, offset)

    def tile(self, shape: tuple[int, ...], dtype: str) -> Ref:
        self.tiles.append(TileInfo(shape, dtype, 0, 0, 0))
        return Ref(len(self.tiles) - 1, shape)

    def add(
        self, op: str, name: str, dst: tuple[Ref, ...] = (), srcs: tuple[Any, ...] = (),
        access: Access | None = None, **attrs: Any
    ) -> None:  # fmt: skip
        direction = DIRECTIONS.index(name) if op in ("send", "recv") else -1
        line = len(self.commands)
        tiles = tuple(ref.tile for ref in dst)
        self.commands.append(Command(op, name, tiles, srcs, attrs, access, direction, 0, (), (), line))

    def vector(self, name: str, shape: tuple[int, ...], dtype: str, *srcs: Any, **attrs: Any) -> Ref:
        out = self.tile(shape, dtype)
        self.add("vector", name, (out,), srcs, **attrs)
        return out

    def copy(self, dst: Ref, src: Any) -> None:
        self.add("vector", "copy", (dst,), (src,))

    def dot(self, shape: tuple[int, ...], dtype: str, *srcs: Ref) -> Ref:
        out = self.tile(shape, dtype)
        self.add("dot", "dot", (out,), srcs)
        return out

    def load(
        self, tensor: int, shape: tuple[int, ...], dtype: str, element: Lane | int = 0,
        strides: tuple[int, ...] | None = None, valid: tuple[int, ...] | None = None, other: float = 0,
    ) -> Ref:  # fmt: skip
        out = self.tile(shape, dtype)
        access = Access(tensor, Lane(0, 0), element, shape, strides or contiguous(shape), valid, other, dtype)
        self.add("load", "load", (out,), access=access)
        return out

    def store(
        self, tensor: int, src: Ref, dtype: str = "f32", element: Lane | int = 0,
        strides: tuple[int, ...] | None = None, valid: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        access = Access(tensor, Lane(0, 0), element, src.shape, strides or contiguous(src.shape), valid, 0, dtype)
        self.add("store", "store", srcs=(src,), access=access)

    def send(self, direction: str, src: Ref) -> None:
        self.add("send", direction, srcs=(src,))

    def recv(self, direction: str, shape: tuple[int, ...], dtype: str) -> Ref:
        out = self.tile(shape, dtype)
        self.add("recv", direction, (out,))
        return out


def trace_of(machine: Machine, tensors: dict[str, Tensor], *programs: Program) -> Trace:
    """Make a trace; command i of every program stands at line i + 1 of ``kernel.py``."""
    longest = max(len(p.commands) for p in programs)
    lines = tuple(SourceLine("kernel.py", i + 1, f"command {i}") for i in range(longest))
    classes = tuple(
        PEClass(p.pes, tuple(p.commands), tuple(p.tiles), tuple(p.columns), 0, {}) for p in programs
    )  # fmt: skip
    return Trace("kernel", machine, machine.shape, "f32", tuple(tensors.values()), tuple(tensors), lines, classes)


def run(machine: Machine, tensors: dict[str, Tensor], *programs: Program, batch: int = 16) -> ExecutionReport:
    return execute(trace_of(machine, tensors, *programs), batch=batch)


def values(tensor: Tensor) -> np.ndarray:
    """Return a tensor's values, having checked that what is held is on the grid of its format.

    Without the check, a result that was never rounded would look right: reading a tensor rounds it.
    """
    if tensor.dtype.name in ("f16", "bf16"):
        for part in tensor.parts():
            np.testing.assert_array_equal(part, rounded(part, tensor.dtype.name))
    return tensor.numpy()


def compute(operands: list[np.ndarray], add: Any, shape: tuple[int, ...], dtype: str, batch: int = 16) -> np.ndarray:
    """Execute one command on every PE of a row.

    Parameters
    ----------
    operands
        One array per tile operand: ``operands[i][pe]`` is what the PE loads.
    add
        Called with the program and the loaded tiles; returns the tile to store.
    shape, dtype
        Of the result.

    Returns
    -------
    array of (PEs, *shape), of the dtype's own NumPy type.
    """
    n_pes = len(operands[0]) if operands else 8
    machine = row(n_pes)
    tensors = {f"x{i}": tensor(a.reshape(n_pes, -1), machine, split(0, "pe")) for i, a in enumerate(operands)}
    size = int(np.prod(shape))
    tensors["out"] = empty((n_pes, size), dtype, machine, split(0, "pe"))
    program = Program(*range(n_pes))
    tiles = [
        program.load(i, a.shape[1:], tensors[f"x{i}"].dtype.name) for i, a in enumerate(operands)
    ]  # fmt: skip
    program.store(len(operands), add(program, *tiles), dtype)
    run(machine, tensors, program, batch=batch)
    return values(tensors["out"]).reshape(n_pes, *shape)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, special: bool = False) -> np.ndarray:
    """Return random numbers of many magnitudes; with ``special`` also infinities, NaN, zeros and subnormals."""
    kind = DTYPES[dtype]
    if kind.kind == "bool":
        return rng.random(shape) < 0.5
    if kind.kind == "int":
        limits = np.iinfo(kind.held_as)
        return rng.integers(limits.min, limits.max, shape, kind.held_as, endpoint=True)
    sample = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)
    if special:
        odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 6e-8, -3e-6, 60000.0])
        sample = np.where(rng.random(shape) < 0.3, rng.choice(odd, shape), sample)
    with np.errstate(over="ignore"):
        return sample.astype(np.float32).astype(kind.external)


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """Round float numbers to a format by NumPy's or ml_dtypes' own conversion, and widen again to float32."""
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[dtype]
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(kind).astype(np.float32)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
