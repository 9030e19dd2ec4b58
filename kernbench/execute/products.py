"""Matrix products: ``dot``, and ``composite`` with its epilogue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernbench.dtypes import DTYPES, DType
from kernbench.execute.memory import Memory
from kernbench.execute.values import FLOAT32, Batch, Value, held, settle
from kernbench.record.trace import Command

Lanes = Sequence[np.ndarray] | np.ndarray


def dot(batch: Batch, command: Command) -> Value:
    """Execute ``a @ b`` or ``a @ b + acc``: floats accumulate in float32, integers exactly in 32 bits."""
    if command.name == "dot_scaled":
        return _dot_scaled(batch, command)
    info = batch.cls.tiles[command.dst[0]]
    dtype = DTYPES[info.dtype]
    a, b = (batch.lanes_of(source) for source in command.srcs[:2])
    out = multiply(a, b, dtype)
    for acc in command.srcs[2:]:
        out += held(batch.operand(acc, len(info.shape)), dtype)
    return Value.of_stack(settle(out, dtype))


def multiply(a: Lanes, b: Lanes, dtype: DType) -> np.ndarray:
    """Multiply the matrices, or stacks of matrices, of each lane; the result is stacked and not yet rounded."""
    if dtype.kind != "float":
        return _multiply_integers(a, b).astype(dtype.held_as)
    shape = (*a[0].shape[:-1], b[0].shape[-1])
    out = np.empty((len(a), *shape), np.float32)
    for left, right, target in zip(a, b, out, strict=True):
        _matmul(held(left, FLOAT32), held(right, FLOAT32), target)
    return out


def _matmul(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    # One call of BLAS for each matrix: np.dot takes a transposed view as it is, and copies what BLAS cannot take.
    if left.ndim == 2:
        np.dot(left, right, out=out)
        return
    for one, other, target in zip(left, right, out, strict=True):
        _matmul(one, other, target)


def _multiply_integers(a: Lanes, b: Lanes) -> np.ndarray:
    """Multiply integers modulo 2**64. Narrow ones go through float64, exact up to 2**53, since BLAS has no integers."""
    narrow = a[0].dtype.itemsize <= 2 and b[0].dtype.itemsize <= 2 and a[0].shape[-1] <= 2**20
    wide = np.float64 if narrow else np.int64
    products = [np.matmul(left.astype(wide), right.astype(wide)) for left, right in zip(a, b, strict=True)]
    return np.stack(products).astype(np.int64)


def _dot_scaled(batch: Batch, command: Command) -> Value:
    """Execute a product with one scale for each block of k.

    Each block's product is a float32 number; it is scaled (the two scales multiply exactly), rounded to float32 and
    added to the sum of the blocks before it.
    """
    info = batch.cls.tiles[command.dst[0]]
    dtype, attrs = DTYPES[info.dtype], command.attrs
    a, b = (batch.lanes_of(source) for source in command.srcs[:2])
    nothing = [None] * len(batch)
    a_scales, b_scales = (
        nothing if where is None else batch.lanes_of(command.srcs[where])
        for where in (attrs["a_scale"], attrs["b_scale"])
    )
    out = np.zeros((len(batch), *info.shape), np.float32)
    for left, right, a_scale, b_scale, target in zip(a, b, a_scales, b_scales, out, strict=True):
        _add_blocks(held(left, FLOAT32), held(right, FLOAT32), a_scale, b_scale, attrs["block"], target)
    if attrs["acc"] is not None:
        out += held(batch.operand(command.srcs[attrs["acc"]], len(info.shape)), FLOAT32)
    return Value.of_stack(settle(out, dtype))


def _add_blocks(
    a: np.ndarray, b: np.ndarray, a_scale: np.ndarray | None, b_scale: np.ndarray | None, block: int, out: np.ndarray
) -> None:
    part = np.empty_like(out)
    for i, start in enumerate(range(0, a.shape[-1], block)):
        _matmul(a[..., start : start + block], b[..., start : start + block, :], part)
        scaled: np.ndarray = part
        # float64: neither the product of two E8M0 scales nor what it scales leaves its range on the way
        if a_scale is not None:
            scaled = scaled * a_scale[..., :, i, None].astype(np.float64)
        if b_scale is not None:
            scaled = scaled * b_scale[..., None, :, i].astype(np.float64)
        out += scaled.astype(np.float32)


def composite(batch: Batch, command: Command, memory: Memory) -> list[Value]:
    """Execute a fused product: the values of ``command.dst``, in its order.

    The epilogue works on float32 numbers; only what is written to a tile is rounded.
    """
    tiles = [batch.cls.tiles[tile] for tile in command.dst]
    a = batch.lanes_of(command.srcs[0])
    if command.access is not None:
        b = memory.load(batch, command, command.access).lanes(command.access.shape)
    else:
        b = batch.lanes_of(command.srcs[1])
    current, row_max = _epilogue(batch, command, multiply(a, b, FLOAT32))
    arrays = [current] if row_max is None else [current, row_max]
    return [Value.of_stack(_in_format(array, DTYPES[tile.dtype])) for array, tile in zip(arrays, tiles, strict=True)]


def _epilogue(batch: Batch, command: Command, current: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Apply the steps after the product; return the result and the row maxima, if a step took them.

    A step names its operand by the index in ``command.srcs``. ``cast`` comes last and is what the result's tile does.
    """
    row_max: np.ndarray | None = None
    for name, *indices in command.attrs["epilogue"]:
        operands = [held(batch.operand(command.srcs[i], current.ndim - 1), FLOAT32) for i in indices if name != "cast"]
        if name == "scale":
            current *= operands[0]
        elif name == "max":
            row_max = np.max(current, axis=-1, keepdims=True, initial=-np.inf)
        elif name == "exp":
            current -= operands[0] if operands else row_max
            np.exp(current, out=current)
        elif name != "cast":
            raise ValueError(f"a composite has no epilogue {name!r}")
    return current, row_max


def _in_format(array: np.ndarray, dtype: DType) -> np.ndarray:
    return settle(array, dtype) if dtype.kind == "float" else held(array, dtype)
