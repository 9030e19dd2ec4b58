"""Pointers: byte addresses that know their tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernbench.dtypes import DType
from kernbench.errors import KernelError
from kernbench.tl.lanes import Group, LaneInt


@dataclass(frozen=True)
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

    @cached_property
    def part_nbytes(self) -> np.ndarray:
        """int64[pe of the run]: bytes of the PE's part."""
        return self.extents.prod(axis=1) * self.dtype.nbytes

    @cached_property
    def strides(self) -> np.ndarray:
        """int64[pe of the run, axis]: bytes from one index to the next; parts are packed, last axis fastest."""
        after = np.cumprod(self.extents[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([after[:, 1:], np.ones_like(after[:, :1])], axis=1) * self.dtype.nbytes

    def lane_or_int(self, values: np.ndarray) -> Any:
        """Return a plain int where all PEs of the run agree, else a per-PE integer."""
        first = int(values[0])
        return first if bool((values == first).all()) else LaneInt(self.group, values)


class Pointer:
    """A byte address into a tensor: ``pointer + n`` is ``n`` bytes further on.

    A pointer starts at this PE's own part of the tensor. Its parts are packed: the last axis is contiguous.
    """

    __slots__ = ("binding", "byte")

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
        return tuple(self.binding.lane_or_int(column) for column in self.binding.extents.T)

    @property
    def origin(self) -> tuple[Any, ...]:
        """Index, in the whole tensor, of the first element of this PE's part."""
        return tuple(self.binding.lane_or_int(column) for column in self.binding.starts.T)

    @property
    def strides(self) -> tuple[Any, ...]:
        """Bytes from one index to the next, for each axis of this PE's part."""
        return tuple(self.binding.lane_or_int(column) for column in self.binding.strides.T)

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
        byte: Any = self.byte
        for i, stride in zip(index, strides, strict=False):
            byte = byte + i * stride
        return Pointer(self.binding, byte)

    def __add__(self, nbytes: Any) -> Pointer:
        if not isinstance(nbytes, (int, np.integer, LaneInt)) or isinstance(nbytes, bool):
            return NotImplemented
        return Pointer(self.binding, self.byte + (nbytes if isinstance(nbytes, LaneInt) else int(nbytes)))

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
