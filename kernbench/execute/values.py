"""Values of tiles: one array per lane of a batch, seen lane by lane or stacked into one array.

A value never changes once it is made: a command that writes a tile gives it a new :class:`Value`. So a
loaded tile may be a view into a tensor, a message may be the sender's own array, and ``copy_to`` moves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.dtypes import DTYPES, DType
from kernbench.execute.rounding import round_to
from kernbench.packing import from_bytes, to_bytes
from kernbench.record.trace import Lane, PEClass, Ref

FLOAT32 = DTYPES["f32"]
INT4 = DTYPES["i4"]


class Value:
    """What a tile holds in each lane of a batch.

    Both views are kept since they serve different readers. A GEMM reads lane by lane, with the strides that
    the kernel asked for; these must not depend on the batch, or BLAS would take another path and give other last bits.
    An elementwise operation reads one C-contiguous stack, which is built when first asked for.
    """

    __slots__ = ("_lanes", "_stack")

    def __init__(self, lanes: Sequence[np.ndarray] | np.ndarray, stack: np.ndarray | None = None) -> None:
        self._lanes = lanes
        self._stack = stack

    @classmethod
    def of_stack(cls, stack: np.ndarray) -> Value:
        """Wrap a C-contiguous array whose first axis counts the lanes."""
        return cls(stack, stack)

    def lanes(self, shape: tuple[int, ...]) -> Sequence[np.ndarray] | np.ndarray:
        """Return each lane's array, seen in ``shape``, with its own strides."""
        if self._lanes[0].shape == shape:
            return self._lanes
        return [lane.reshape(shape) for lane in self._lanes]

    def stack(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return all lanes as one C-contiguous array of ``(lanes, *shape)``."""
        if self._stack is None:
            self._stack = _stack(self._lanes)
        return self._stack.reshape(len(self._stack), *shape)

    def take(self, lanes: Sequence[int]) -> Value:
        """Return the value of some of the lanes. Nothing is copied, and the strides stay as they are."""
        return Value([self._lanes[i] for i in lanes])

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self._lanes)


def _stack(lanes: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    if isinstance(lanes, np.ndarray):
        return np.ascontiguousarray(lanes)
    if len(lanes) == 1:
        return np.ascontiguousarray(lanes[0]).reshape(1, *lanes[0].shape)
    stack = np.empty((len(lanes), *lanes[0].shape), lanes[0].dtype)
    for target, lane in zip(stack, lanes, strict=True):
        target[...] = lane
    return stack


@dataclass
class Batch:
    """Some PEs of one class that execute in lockstep."""

    cls: PEClass
    lanes: np.ndarray
    """Positions of the PEs in :attr:`PEClass.pes`."""
    tiles: dict[int, Value]
    """The live tiles."""
    next_command: int = 0
    """Index of the command to execute next."""

    def __post_init__(self) -> None:
        self.pes = self.cls.pes[self.lanes]

    def __len__(self) -> int:
        return len(self.lanes)

    def take(self, positions: Sequence[int]) -> Batch:
        """Return a batch of some of the lanes, at the same command."""
        tiles = {tile: value.take(positions) for tile, value in self.tiles.items()}
        return Batch(self.cls, self.lanes[list(positions)], tiles, self.next_command)

    def value(self, ref: Ref) -> Value:
        """Return the value of a tile; floats that nothing has written are NaN, integers 0."""
        if ref.tile not in self.tiles:
            info = self.cls.tiles[ref.tile]
            kind = DTYPES[info.dtype]
            fill = np.nan if kind.kind == "float" else 0
            self.tiles[ref.tile] = Value.of_stack(np.full((len(self), *info.shape), fill, kind.held_as))
        return self.tiles[ref.tile]

    def lanes_of(self, ref: Ref) -> Sequence[np.ndarray] | np.ndarray:
        """Return a tile's array of each lane, in the shape and format that the command sees it in."""
        if ref.dtype is not None:
            return self._reading(ref)
        return self.value(ref).lanes(ref.shape)

    def _reading(self, ref: Ref) -> np.ndarray:
        """Return a tile's bytes, read as another format."""
        info = self.cls.tiles[ref.tile]
        assert ref.dtype is not None
        values = self.value(ref).stack(info.shape).reshape(len(self), -1)
        count = int(np.prod(ref.shape))
        read = from_bytes(to_bytes(values, DTYPES[info.dtype]), DTYPES[ref.dtype])[:, :count]
        return np.ascontiguousarray(read).reshape(len(self), *ref.shape)

    def integers(self, lane: Lane) -> np.ndarray:
        """Return the integer that a lane field stands for in each lane, int64[lanes]."""
        values: np.ndarray = self.cls.columns[lane.column][self.lanes] + lane.offset
        return values

    def operand(self, source: Ref | Lane | float, rank: int) -> np.ndarray:
        """Return an operand as an array whose first axis counts the lanes and that broadcasts to ``rank`` more axes."""
        if isinstance(source, Ref):
            seen = self._reading(source) if source.dtype is not None else None
            stack = self.value(source).stack(source.shape) if seen is None else seen
            return stack.reshape(len(stack), *(1,) * (rank - len(source.shape)), *source.shape)
        if isinstance(source, Lane):
            return self.integers(source).reshape(-1, *(1,) * rank)
        return np.asarray(source)

    def dtype_of(self, source: Ref | Lane | float) -> DType | None:
        """Return the format of an operand that is a tile, else None."""
        if not isinstance(source, Ref):
            return None
        return DTYPES[source.dtype or self.cls.tiles[source.tile].dtype]


def held(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert numbers to the NumPy type that holds ``dtype``, without moving floats to its grid.

    Floats become integers as in Triton: truncated towards zero. What is out of range saturates and NaN
    becomes 0, as GPUs do, so that the result does not depend on the host. Integers wrap.
    """
    if dtype.kind == "int" and array.dtype.kind == "f":
        return _truncated(array, dtype)
    values = array.astype(dtype.held_as, copy=False)
    return _wrapped(values) if dtype is INT4 and array.dtype.kind != "f" else values


def _wrapped(values: np.ndarray) -> np.ndarray:
    """Keep the low four bits of int8 numbers, as signed ones."""
    return ((values & 15) ^ 8) - 8


def _truncated(array: np.ndarray, dtype: DType) -> np.ndarray:
    smallest, largest = dtype.limits
    result = np.zeros(array.shape, dtype.held_as)
    whole = np.trunc(array.astype(np.float64))  # float64 holds every float32 and every bound up to 32 bits
    low, high = float(smallest), float(largest)  # 2**63 - 1 becomes 2**63: nothing below it is cut off
    inside = (whole >= low) & (whole < high)
    np.copyto(result, whole.astype(dtype.held_as), where=inside)
    result[whole >= high] = largest
    result[whole < low] = smallest
    return result


def is_exact(source: DType | None, target: DType) -> bool:
    """Whether every value of format ``source`` is held the same way in format ``target``."""
    return source is not None and (source is target or (source.kind == "float" and target is FLOAT32))


def settle(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Move freshly computed numbers, in place, to the grid of ``dtype``; integers that fill their type are on it."""
    if dtype is INT4:
        array[...] = _wrapped(array)
    return round_to(array, dtype, out=array) if dtype.kind == "float" and dtype is not FLOAT32 else array
