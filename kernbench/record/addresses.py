"""Addresses of one run: from pointers to lane columns, within bounds, and after what came before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.dtypes import DType
from kernbench.errors import KernelError
from kernbench.record.order import MemoryOrder, Touch
from kernbench.record.runs import Stretch, covers, meets, runs_of_access
from kernbench.record.trace import OPERAND, REUSE, Access, Lane
from kernbench.tl import Binding, Group, LaneInt, Pointer

Error = Callable[[type[KernelError], str, np.ndarray], KernelError]
"""Makes an error for some PEs."""


class Columns:
    """Lane columns of a class: arrays with one number per PE, each content once."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._by_id: dict[int, int] = {}
        self._by_content: dict[bytes, int] = {}

    def find(self, array: np.ndarray) -> int:
        """Return the index of the column with this content, a new one if need be."""
        index = self._by_id.get(id(array))
        if index is None:
            index = self._by_content.setdefault(array.tobytes(), len(self.arrays))
            if index == len(self.arrays):
                self.arrays.append(array)
                self._by_id[id(array)] = index  # the column keeps the array alive, so that its id stays taken
        return index

    def take(self, positions: np.ndarray) -> Columns:
        """Return the columns of some of the PEs."""
        other = Columns()
        other.arrays = [array[positions] for array in self.arrays]
        for i, array in enumerate(other.arrays):
            other._by_content.setdefault(array.tobytes(), i)
        return other


class Addresses:
    """Where the commands of a run touch memory."""

    def __init__(self, group: Group, error: Error) -> None:
        self.columns = Columns()
        self._group = group
        self._error = error
        self._order = MemoryOrder()

    def fork(self, group: Group, error: Error) -> Addresses:
        """Return the addresses of some of the PEs, as they are now."""
        other = Addresses(group, error)
        other.columns = self.columns.take(np.searchsorted(self._group.pes, group.pes))
        other._order = self._order.copy()
        return other

    def lane(self, value: LaneInt) -> Lane:
        """Return the value as a lane column and an offset."""
        return Lane(self.columns.find(value.root), value.offset)

    def access(
        self,
        index: int,
        ptr: Pointer,
        shape: tuple[int, ...],
        kind: DType,
        strides: tuple[int, ...],
        valid: tuple[int, ...] | None,
        other: float,
        is_store: bool = False,
    ) -> tuple[Access, int, dict[int, int]]:
        """Return the access of command ``index``, its bytes, and this PE's earlier commands that must come first."""
        binding, byte = ptr.binding, ptr.byte
        element: Any = byte // kind.nbytes
        if isinstance(element, LaneInt):
            element = self.lane(element)
        address = self.lane(LaneInt(self._group, binding.base) + byte)
        access = Access(binding.index, address, element, shape, strides, valid, other, kind.name)
        stretch = runs_of_access(access).stretch()
        self._check_bounds(ptr, stretch.low, stretch.high)
        nbytes = kind.nbytes
        for n in valid or shape:
            nbytes *= n
        offset = address.offset
        stretch = stretch._replace(low=stretch.low + offset, high=stretch.high + offset)
        touch = Touch(index, address.column, stretch)
        earlier = self._order.before(binding.index, touch, is_store, self._ask(meets))
        if is_store and earlier:
            covered = self._ask(covers)
            self._order.forget(binding.index, [other for other in earlier if covered(touch, other)])
        self._order.note(binding.index, touch, is_store)
        return access, nbytes, {other.command: REUSE if is_store else OPERAND for other in earlier}

    def _check_bounds(self, ptr: Pointer, low: int, high: int) -> None:
        """Check that bytes ``low`` to ``high`` from the pointer lie in each PE's part, at a multiple of an element."""
        binding, byte, group = ptr.binding, ptr.byte, self._group
        itemsize = binding.dtype.nbytes
        room = group.extremes(binding.part_nbytes).low
        if isinstance(byte, LaneInt):
            all_of = group.extremes(byte.root)
            first, last, step = all_of.low + byte.offset, all_of.high + byte.offset, all_of.divisor
            fits = step % itemsize == 0 and byte.offset % itemsize == 0
        else:
            first = last = byte
            fits = byte % itemsize == 0
        if fits and first + low >= 0 and last + high <= room:
            return  # on every PE of the run, those included that were put aside
        begin = byte.active_values if isinstance(byte, LaneInt) else np.full(len(group.active), byte)
        outside = (begin + low < 0) | (begin + high > binding.part_nbytes[group.active])
        if outside.any():
            raise self._outside(binding, begin, low, high, outside)
        uneven = begin % itemsize != 0
        if uneven.any():
            raise self._error(
                KernelError,
                f"byte {int(begin[uneven][0]):,} of {binding.name} is not the first of an element: "
                f"{binding.dtype} takes {itemsize} bytes, and pointer arithmetic is in bytes",
                group.active_pes[uneven],
            )

    def _outside(self, binding: Binding, begin: np.ndarray, low: int, high: int, outside: np.ndarray) -> KernelError:
        at = int(np.flatnonzero(outside)[0])
        lane = int(self._group.active[at])
        shape = tuple(binding.extents[lane].tolist())
        what = "this PE's part of it" if binding.is_cut else "it"
        return self._error(
            KernelError,
            f"bytes {begin[at] + low:,} to {begin[at] + high:,} of {binding.name} are touched, but {what} is "
            f"{shape} {binding.dtype} and ends at byte {binding.part_nbytes[lane]:,}"
            f"\n  addresses count in bytes from the start of {what}: keep within {binding.name}.shape, "
            "or give valid= the rows that are there",
            self._group.active_pes[outside],
        )

    def _ask(self, question: Callable[[Stretch, Stretch, Any], Any]) -> Callable[[Touch, Touch], bool]:
        """Make a question about two accesses of one PE of it; PEs that answer otherwise are put aside."""

        def ask(a: Touch, b: Touch) -> bool:
            if a.column == b.column:
                return bool(question(a.stretch, b.stretch, 0))
            shift = self.columns.arrays[b.column] - self.columns.arrays[a.column]
            return bool(self._group.agree(np.broadcast_to(question(a.stretch, b.stretch, shift), shift.shape)))

        return ask
