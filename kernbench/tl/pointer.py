"""Pointers: byte addresses that know their tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kernbench.dtypes import DType
from kernbench.errors import KernelError
from kernbench.tl.lanes import Group, LaneInt


@dataclass(frozen=True, eq=False)
class Binding:
    """A tensor as one run of the kernel sees it: per PE, where its part is and how large."""

    index: int
    """Index into ``Trace.tensors``."""
    name: str
    """The kernel's own parameter name."""
    group: Group
    dtype: DType
    base: np.ndarray
    """int64[pe of the run]: byte address of the PE's part."""
    extents: np.ndarray
    """int64[pe of the run, axis]: shape of the PE's part."""
    starts: np.ndarray
    """int64[pe of the run, axis]: global index of the part's first element."""
    control: tuple[list[np.ndarray], np.ndarray] | None
    """Values of each part and the part of each PE, if the tensor can be read while recording."""
    is_copied: bool
    """Whether PEs hold copies of one part in several memories, so that a store would make them differ."""
    is_cut: bool
    """Whether the tensor has several parts."""
    _known: dict[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)

    @cached_property
    def part_nbytes(self) -> np.ndarray:
        """int64[pe of the run]: bytes of the PE's part."""
        return self.extents.prod(axis=1) * self.dtype.nbytes

    @cached_property
    def strides(self) -> np.ndarray:
        """int64[pe of the run, axis]: bytes from one index to the next; parts are packed, last axis fastest."""
        after = np.cumprod(self.extents[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([after[:, 1:], np.ones_like(after[:, :1])], axis=1) * self.dtype.nbytes

    def elements(self, index: np.ndarray) -> np.ndarray:
        """Return the values of a control tensor, for each active PE that of the element ``index`` of its part."""
        values, first = self._flat
        found: np.ndarray = values[first[self.group.active] + index]
        return found

    @cached_property
    def _flat(self) -> tuple[np.ndarray, np.ndarray]:
        """All parts, one after the other, and where each PE's begins."""
        assert self.control is not None
        parts, part_of_pe = self.control
        return np.concatenate(parts), np.cumsum([0, *(len(part) for part in parts)])[part_of_pe]

    def by_axis(self, what: str) -> tuple[Any, ...]:
        """Return ``extents``, ``starts`` or ``strides`` for each axis: a plain int where all active PEs agree."""
        columns = self._known.get((what, 0))
        if columns is None:
            columns = self._known[what, 0] = tuple(np.ascontiguousarray(column) for column in getattr(self, what).T)
        key = (what, len(self.group.active))
        if key not in self._known:
            self._known[key] = tuple(self._lane_or_int(column) for column in columns)
        return self._known[key]

    def _lane_or_int(self, column: np.ndarray) -> Any:
        mine = column[self.group.active]
        first = int(mine[0])
        return first if bool((mine == first).all()) else LaneInt(self.group, column)


class Pointer:
    """A byte address into a tensor: ``pointer + n`` is ``n`` bytes further on.

    A pointer starts at this PE's own part of the tensor. Its parts are packed: the last axis is contiguous.
    """

    __slots__ = ("binding", "byte")
    __array_ufunc__ = None  # so that a NumPy integer on the left leaves the operation to this class

    def __init__(self, binding: Binding, byte: Any = 0) -> None:
        self.binding = binding
        self.byte = byte
        """Bytes behind the start of this PE's part: an int, or one per PE."""

    @property
    def dtype(self) -> DType:
        """Format of the tensor."""
        return self.binding.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of this PE's part. An extent on which PEs differ is a per-PE integer."""
        return self.binding.by_axis("extents")

    @property
    def origin(self) -> tuple[Any, ...]:
        """Index, in the whole tensor, of the first element of this PE's part."""
        return self.binding.by_axis("starts")

    @property
    def strides(self) -> tuple[Any, ...]:
        """Bytes from one index to the next, for each axis of this PE's part."""
        return self.binding.by_axis("strides")

    @property
    def rows(self) -> Any:
        """Length of the first axis of this PE's part."""
        return self.shape[0]

    def row(self, i: Any) -> Pointer:
        """Pointer to row ``i`` of this PE's part."""
        return self.at(i)

    def at(self, *index: Any) -> Pointer:
        """Pointer to the element at ``index`` of this PE's part; axes left out are 0."""
        strides = self.strides
        if len(index) > len(strides):
            raise KernelError(f"{len(index)} indices into {self.binding.name}, which has {len(strides)} axes")
        byte: Any = 0
        for i, stride in zip(index, strides, strict=False):
            byte = byte + i * stride
        return self + byte

    def __add__(self, nbytes: Any) -> Pointer:
        if isinstance(nbytes, LaneInt):
            return Pointer(self.binding, nbytes + self.byte)
        if isinstance(nbytes, (int, np.integer)):
            return Pointer(self.binding, self.byte + int(nbytes))
        raise KernelError(
            f"{self.binding.name} + {nbytes!r}: to a pointer, bytes are added: a plain or per-PE integer. There are no "
            "pointers of many elements: give tl.load a shape and strides"
        )

    __radd__ = __add__

    def __sub__(self, nbytes: Any) -> Any:
        if isinstance(nbytes, Pointer):
            if nbytes.binding is not self.binding:
                raise KernelError(f"the distance between {self.binding.name} and {nbytes.binding.name} has no meaning")
            return self.byte - nbytes.byte
        return self + -nbytes

    def __repr__(self) -> str:
        return f"<pointer {self.binding.name} + {self.byte}>"

    def __int__(self) -> int:
        return int(LaneInt(self.binding.group, self.binding.base) + self.byte)

    __index__ = __int__
