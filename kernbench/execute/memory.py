"""Loads and stores: tiles out of, and into, the parts of device tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from kernbench.dtypes import DTYPES, DType
from kernbench.errors import InputError, KernelError
from kernbench.execute.rounding import round_to
from kernbench.execute.values import Batch, Value, held, is_exact, settle
from kernbench.packing import from_bytes, to_bytes
from kernbench.record.trace import Access, Command, Lane, Trace


class Memory:
    """The tensors of one trace.

    A tile that is loaded from a tensor which no command stores to is a view of it. Loads from the others are copies.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        for name, tensor in zip(trace.tensor_names, trace.tensors, strict=True):
            if not tensor.is_held:
                raise InputError(
                    f"parameter {name!r} of kernel {trace.kernel!r} has a shape but no values (kernbench.shape_only): "
                    "it can be timed, not executed; pass a tensor made by kernbench.tensor or run in mode 'time'"
                )
        # The same tensor may be passed for two parameters, so that identity counts and not the parameter.
        self._stored = {id(trace.tensors[tensor]) for tensor in _stored_tensors(trace)}
        self._bitcasts: dict[tuple[int, int, str], np.ndarray] = {}

    def load(self, batch: Batch, command: Command, access: Access) -> Value:
        """Return the tile that ``access`` reads in each lane of the batch."""
        dtype = DTYPES[access.dtype]
        lanes = self._regions(batch, command, access, dtype)
        if lanes[0].shape != access.shape:
            return Value.of_stack(_filled(lanes, access, dtype))
        if self._is_stored(access.tensor):
            return Value.of_stack(_copied(lanes))
        return Value(lanes)

    def store(self, batch: Batch, command: Command, access: Access) -> None:
        """Write a tile to the region that ``access`` describes, in the tensor's own format."""
        (source,) = command.srcs
        dtype = self._trace.tensors[access.tensor].dtype
        values = held(batch.operand(source, len(access.shape)), dtype)
        if dtype.kind == "float" and not is_exact(batch.dtype_of(source), dtype):
            values = round_to(values, dtype)
        region = tuple(slice(n) for n in _extents(access))
        for lane, target in enumerate(self._regions(batch, command, access, dtype)):
            target[...] = values[lane][region]

    def _is_stored(self, tensor: int) -> bool:
        return id(self._trace.tensors[tensor]) in self._stored

    def _regions(self, batch: Batch, command: Command, access: Access, dtype: DType) -> list[np.ndarray]:
        """Return a view of the elements that each lane touches: those inside ``access.valid``."""
        tensor = self._trace.tensors[access.tensor]
        element = access.element
        elements = batch.integers(element).tolist() if isinstance(element, Lane) else [element] * len(batch)
        flats = [self._flat(access.tensor, part, dtype) for part in tensor.layout.part_of_pe[batch.pes].tolist()]
        shape, held_as = _extents(access), flats[0].dtype
        if 0 in shape:
            return [np.empty(shape, held_as)] * len(batch)
        size = held_as.itemsize
        strides = tuple([stride * size for stride in access.strides])
        lanes = []
        for lane, (flat, first) in enumerate(zip(flats, elements, strict=True)):
            try:
                # The constructor checks the bounds, and is ten times faster than as_strided.
                lanes.append(np.ndarray(shape, held_as, flat, first * size, strides))
            except (ValueError, TypeError):
                self._out_of_bounds(command, access, int(batch.pes[lane]), first, len(flat))
        return lanes

    def _flat(self, index: int, part: int, dtype: DType) -> np.ndarray:
        """Return a part of a tensor, flat, its bytes read as ``dtype``."""
        tensor = self._trace.tensors[index]
        values = tensor.parts()[part]
        if dtype is tensor.dtype:
            return values
        if self._is_stored(index):
            return _bitcast(values, tensor.dtype, dtype)
        key = (index, part, dtype.name)
        if key not in self._bitcasts:
            self._bitcasts[key] = _bitcast(values, tensor.dtype, dtype)
        return self._bitcasts[key]

    def _out_of_bounds(self, command: Command, access: Access, pe: int, element: int, length: int) -> NoReturn:
        trace = self._trace
        raise KernelError(
            f"{command.op} of shape {access.shape} with strides {access.strides} from element {element} leaves "
            f"parameter {trace.tensor_names[access.tensor]!r}, whose part at {trace.machine.pe_name(pe)} has "
            f"{length:,} elements of {access.dtype}\n  at {trace.lines[command.line]}"
        )


def _stored_tensors(trace: Trace) -> set[int]:
    return {c.access.tensor for cls in trace.classes for c in cls.commands if c.op == "store" and c.access is not None}


def _extents(access: Access) -> tuple[int, ...]:
    """Return the shape of the region that is really touched."""
    if access.valid is None:
        return access.shape
    return tuple([max(0, min(n, size)) for n, size in zip(access.valid, access.shape, strict=True)])


def _copied(lanes: Sequence[np.ndarray]) -> np.ndarray:
    stack = np.empty((len(lanes), *lanes[0].shape), lanes[0].dtype)
    for target, lane in zip(stack, lanes, strict=True):
        target[...] = lane
    return stack


def _filled(lanes: Sequence[np.ndarray], access: Access, dtype: DType) -> np.ndarray:
    """Return whole tiles: the valid elements of each lane, and ``other`` around them."""
    other = settle(held(np.array([access.other]), dtype), dtype)
    stack = np.full((len(lanes), *access.shape), other[0], dtype.held_as)
    region = tuple(slice(n) for n in _extents(access))
    for target, lane in zip(stack, lanes, strict=True):
        target[region] = lane
    return stack


def _bitcast(values: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """Read the bytes that ``values`` have in memory as numbers of another format."""
    raw = to_bytes(values, source)
    return from_bytes(raw[: len(raw) // target.nbytes * target.nbytes], target)
