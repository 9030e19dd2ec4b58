"""Vector operations on the stacked tiles of a batch.

Floats are computed in float32 and rounded to the format of the result; integers are computed in it. All
results are written to new C-contiguous arrays, so that what a later command sees does not depend on
the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.dtypes import DTYPES, DType
from kernbench.errors import KernelError
from kernbench.execute.rounding import round_to
from kernbench.execute.values import FLOAT32, Batch, Value, held, is_exact, settle
from kernbench.record.trace import Command, Ref


def vector(batch: Batch, command: Command) -> Value:
    """Execute one vector command; the names are those that :class:`~kernbench.record.trace.Command` lists."""
    info = batch.cls.tiles[command.dst[0]]
    return _OPERATIONS[command.name](batch, command, info.shape, DTYPES[info.dtype])


Shape = tuple[int, ...]
Operation = Callable[[Batch, Command, Shape, DType], Value]


def _operands(batch: Batch, command: Command, rank: int, dtype: DType) -> list[np.ndarray]:
    return [held(batch.operand(source, rank), dtype) for source in command.srcs]


def _new(batch: Batch, shape: Shape, dtype: DType) -> np.ndarray:
    return np.empty((len(batch), *shape), dtype.held_as)


def _stays_on_grid(batch: Batch, command: Command, dtype: DType) -> bool:
    """Whether an operation that only selects among its operands needs no rounding."""
    values = command.srcs[1:] if command.name == "where" else command.srcs
    return all(is_exact(batch.dtype_of(source), dtype) for source in values)


def _by(ufunc: Callable[..., Any], selects: bool = False) -> Operation:
    """Make an operation out of a NumPy function.

    One that ``selects`` gives back one of its operands (or its negative), so that most often nothing is to round.
    """

    def operation(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
        out = _new(batch, shape, dtype)
        ufunc(*_operands(batch, command, len(shape), dtype), out=out)
        on_grid = selects and _stays_on_grid(batch, command, dtype)
        return Value.of_stack(out if on_grid else settle(out, dtype))

    return operation


def _divide(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    ufunc = {"true": np.true_divide, "floor": np.floor_divide, "mod": np.remainder}[command.attrs["function"]]
    return _by(ufunc)(batch, command, shape, dtype)


def _reciprocal_root(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    out = _new(batch, shape, dtype)
    (operand,) = _operands(batch, command, len(shape), dtype)
    np.sqrt(operand, out=out)
    np.divide(np.float32(1), out, out=out)
    return Value.of_stack(settle(out, dtype))


def _where(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    condition = batch.operand(command.srcs[0], len(shape)).astype(bool, copy=False)
    chosen, otherwise = (held(batch.operand(source, len(shape)), dtype) for source in command.srcs[1:])
    out = _new(batch, shape, dtype)
    np.copyto(out, otherwise)
    np.copyto(out, chosen, where=condition)
    return Value.of_stack(out if _stays_on_grid(batch, command, dtype) else settle(out, dtype))


_RELATIONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal
}  # fmt: skip


def _compare(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    operands = [batch.operand(source, len(shape)) for source in command.srcs]
    if any(operand.dtype.kind == "f" for operand in operands):
        operands = [held(operand, FLOAT32) for operand in operands]
    out = np.empty((len(batch), *shape), bool)
    _RELATIONS[command.attrs["relation"]](*operands, out=out)
    return Value.of_stack(held(out, dtype))


_LOGICAL: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip


def _logical(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    return _by(_LOGICAL[command.attrs["function"]])(batch, command, shape, dtype)


def _reduce(ufunc: np.ufunc, of_nothing: dict[str, float]) -> Operation:
    """Make a reduction over one axis, or all; the axis stays, with size 1."""

    def operation(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
        (source,) = command.srcs
        # Always (outer, reduced, inner): the order of additions must not depend on the number of lanes.
        outer, reduced, inner = _fold(source.shape, command.attrs["axis"])
        values = held(batch.operand(source, len(source.shape)), dtype).reshape(len(batch) * outer, reduced, inner)
        if reduced:
            out = ufunc.reduce(values, axis=1, dtype=dtype.held_as)
        else:
            empty = held(np.array(of_nothing[dtype.kind]), dtype)
            out = np.full((len(batch) * outer, inner), empty)
        out = np.ascontiguousarray(out).reshape(len(batch), *shape)
        return Value.of_stack(settle(out, dtype))

    return operation


def _fold(shape: Shape, axis: int | None) -> tuple[int, int, int]:
    """Return the number of elements before, along and behind the reduced axis."""
    if axis is None:
        return 1, int(np.prod(shape)), 1
    axis %= len(shape)
    return int(np.prod(shape[:axis])), shape[axis], int(np.prod(shape[axis + 1 :]))


def _convert(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    """Give the operand's value in another format and, where it is smaller, broadcast."""
    (source,) = command.srcs
    exact = is_exact(batch.dtype_of(source), dtype)
    if exact and isinstance(source, Ref) and source.shape == shape:
        return Value(batch.lanes_of(source))
    operand = batch.operand(source, len(shape))
    values = held(operand, dtype)
    if values.shape != (len(batch), *shape) or (values is operand and dtype.kind != "float"):
        out = _new(batch, shape, dtype)
        np.copyto(out, values)
        return Value.of_stack(out if exact else settle(out, dtype))
    if values is operand:
        return Value.of_stack(round_to(values, dtype))
    return Value.of_stack(settle(values, dtype))


def _transpose(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    """Permute the axes: only a view, so that a transposed operand of a dot goes to BLAS as it is."""
    (source,) = command.srcs
    axes = command.attrs["axes"]
    lanes = batch.lanes_of(source)
    if isinstance(lanes, np.ndarray):
        return Value(lanes.transpose(0, *(axis % len(shape) + 1 for axis in axes)))
    return Value([lane.transpose(axes) for lane in lanes])


def _arange(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    row = np.arange(command.attrs["start"], command.attrs["stop"], dtype=dtype.held_as)
    return Value.of_stack(np.repeat(row[None], len(batch), axis=0))


def _lookup(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    """Take, for each index, the element of a table."""
    table, index = (batch.operand(source, len(source.shape)) for source in command.srcs)
    flat = index.reshape(len(batch), -1).astype(np.int64)
    outside = (flat < 0) | (flat >= table.shape[1])
    if outside.any():
        pe = int(batch.pes[np.flatnonzero(outside.any(axis=1))[0]])
        raise KernelError(
            f"lookup: index {int(flat[outside][0])} is outside a table of {table.shape[1]} on PE {pe}; integers keep "
            "their format, so add an offset to an i8 or i4 tile only after tl.cast(index, 'i32')"
        )
    return Value.of_stack(np.take_along_axis(table, flat, axis=1).reshape(len(batch), *shape))


def _hadamard(batch: Batch, command: Command, shape: Shape, dtype: DType) -> Value:
    """Walsh-Hadamard transform in natural order: in float32, strides 1, 2, 4, ..., rounded once at the end."""
    (source,) = command.srcs
    _, n, inner = _fold(source.shape, command.attrs["axis"])
    values = np.array(batch.operand(source, len(source.shape)), np.float32).reshape(-1, n, inner)
    stride = 1
    while stride < n:
        pairs = values.reshape(-1, n // (2 * stride), 2, stride, inner)
        first, second = pairs[:, :, 0].copy(), pairs[:, :, 1].copy()
        np.add(first, second, out=pairs[:, :, 0])
        np.subtract(first, second, out=pairs[:, :, 1])
        stride *= 2
    if command.attrs["normalize"]:
        values *= np.float32(n**-0.5)
    return Value.of_stack(settle(values.reshape(len(batch), *shape), dtype))


_LEAST = {"float": -np.inf, "int": -np.inf, "bool": 0.0}
_LARGEST = {"float": np.inf, "int": np.inf, "bool": 1.0}
_NOTHING = {"float": 0.0, "int": 0.0, "bool": 0.0}

_OPERATIONS: dict[str, Operation] = {
    "copy": _convert,
    "fill": _convert,
    "cast": _convert,
    "broadcast": _convert,
    "add": _by(np.add),
    "subtract": _by(np.subtract),
    "multiply": _by(np.multiply),
    "divide": _divide,
    "maximum": _by(np.maximum, selects=True),
    "minimum": _by(np.minimum, selects=True),
    "where": _where,
    "compare": _compare,
    "logical": _logical,
    "exp": _by(np.exp),
    "exp2": _by(np.exp2),
    "log": _by(np.log),
    "log2": _by(np.log2),
    "sqrt": _by(np.sqrt),
    "rsqrt": _reciprocal_root,
    "abs": _by(np.absolute, selects=True),
    "negate": _by(np.negative, selects=True),
    "max": _reduce(np.maximum, _LEAST),
    "min": _reduce(np.minimum, _LARGEST),
    "sum": _reduce(np.add, _NOTHING),
    "trans": _transpose,
    "arange": _arange,
    "lookup": _lookup,
    "hadamard": _hadamard,
}
