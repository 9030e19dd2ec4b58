"""Registers of the waves that are executed together, and the part of them that stands at one program counter.

Registers are arrays over waves: vector registers ``uint32[register, wave, lane]``, scalar ones
``uint32[register, wave]``. A group of waves at the same program counter is seen through :class:`Group`: views of the
arrays where the waves are evenly spaced, otherwise copies that :meth:`Group.close` writes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kernbench.realrun.amdgcn.address_space import AddressSpace
    from kernbench.realrun.amdgcn.counters import Tally
    from kernbench.realrun.amdgcn.hazards import Hazards

LANES = 64
SCALARS = 128
"""Rows of the scalar file, by hardware encoding."""
VCC, M0, EXEC = 106, 124, 126
AGPR = 256
"""Row of ``a0`` in the vector file; ``v0`` is row 0."""
NAMED_SCALARS = {"flat_scratch": 102, "xnack_mask": 104, "vcc": VCC, "m0": M0, "exec": EXEC}

Words = NDArray[np.uint32]
Bools = NDArray[np.bool_]
Selection = slice | NDArray[np.int64]


class Rows(Protocol):
    """Vector registers by number; each row is an array ``[wave, lane]`` that may be written in place."""

    def __getitem__(self, register: int) -> Any: ...


class Waves:
    """State of a batch of whole workgroups. Wave w of workgroup g is number ``w * groups + g``."""

    def __init__(
        self, waves_per_group: int, groups: int, vector_rows: int, lds_bytes: int, scratch_bytes: int,
        memory: AddressSpace, tally: Tally,
    ) -> None:  # fmt: skip
        self.memory, self.tally = memory, tally
        self.hazards: Hazards | None = None
        """Outstanding loads, where they are checked."""
        self.per_group = waves_per_group
        self.groups = groups
        self.count = count = waves_per_group * groups
        self.vectors: Words = np.zeros((vector_rows, count, LANES), np.uint32)
        self.scalars: Words = np.zeros((SCALARS, count), np.uint32)
        self.scc: Bools = np.zeros(count, np.bool_)
        self.group_of: NDArray[np.int64] = np.tile(np.arange(groups, dtype=np.int64), waves_per_group)
        self.lds_bytes = lds_bytes
        self.lds_stride = -(-lds_bytes // 16) * 16
        self.lds: NDArray[np.uint8] = np.zeros(groups * self.lds_stride, np.uint8)
        self.scratch_bytes = -(-scratch_bytes // 16) * 16
        self.scratch: NDArray[np.uint8] = np.zeros(count * LANES * self.scratch_bytes, np.uint8)


class _CopiedRows:
    """Rows of waves that are not evenly spaced: copied when first used, written back at the end."""

    def __init__(self, base: Words, index: NDArray[np.int64]) -> None:
        self.base, self.index = base, index
        self.copies: dict[int, Words] = {}

    def __getitem__(self, register: int) -> Words:
        if register not in self.copies:
            self.copies[register] = self.base[register][self.index]
        return self.copies[register]

    def write_back(self) -> None:
        for register, copy in self.copies.items():
            self.base[register][self.index] = copy


class _TypedRows:
    """The same rows, seen as numbers of another type of 32 bits."""

    def __init__(self, rows: _CopiedRows, dtype: type) -> None:
        self.rows, self.dtype = rows, dtype

    def __getitem__(self, register: int) -> Any:
        return self.rows[register].view(self.dtype)


def selection_of(waves: NDArray[np.int64]) -> Selection:
    """Return sorted wave numbers as a slice where they are evenly spaced."""
    if len(waves) == 1:
        return slice(int(waves[0]), int(waves[0]) + 1)
    steps = np.diff(waves)
    if (steps == steps[0]).all():
        return slice(int(waves[0]), int(waves[-1]) + 1, int(steps[0]))
    return waves


class Group:
    """Waves at one program counter, as instructions see them."""

    u: Rows
    """Vector registers as uint32."""
    i: Rows
    """... as int32."""
    f: Rows
    """... as float32."""

    def __init__(self, state: Waves, waves: NDArray[np.int64]) -> None:
        self.state = state
        self.waves = waves
        self.count = len(waves)
        self.at = at = selection_of(waves)
        self.copied: _CopiedRows | None = None
        if isinstance(at, slice):
            self.u = state.vectors[:, at]
            self.i = self.u.view(np.int32)
            self.f = self.u.view(np.float32)
        else:
            self.copied = _CopiedRows(state.vectors, at)
            self.u, self.i, self.f = self.copied, _TypedRows(self.copied, np.int32), _TypedRows(self.copied, np.float32)
        self.s: Words = state.scalars[:, at]
        self.su: Any = self.s[:, :, None]
        self.si: Any = self.su.view(np.int32)
        self.sf: Any = self.su.view(np.float32)
        self.scc: Bools = state.scc[at]
        self.group_of = state.group_of[at]
        self.refresh_mask()

    def close(self) -> None:
        """Write back what was copied."""
        if self.copied is not None:
            self.copied.write_back()
            self.state.scalars[:, self.at] = self.s
            self.state.scc[self.at] = self.scc

    def refresh_mask(self) -> None:
        """Follow a change of EXEC."""
        pair = self.s[EXEC : EXEC + 2]
        self.full: bool = bool((pair == 0xFFFFFFFF).all())
        self.mask: Bools = bits_of(pair)

    def lanes(self) -> Any:
        """Return the mask for writes: True where every lane is active, which NumPy takes as no mask."""
        return True if self.full else self.mask


def bits_of(pair: Words) -> Bools:
    """Expand 64-bit masks ``uint32[2, wave]`` to ``bool[wave, lane]``."""
    words = np.ascontiguousarray(pair.T)
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(np.bool_)


def pair_of(bits: Bools) -> Words:
    """Pack ``bool[wave, lane]`` to 64-bit masks ``uint32[2, wave]``."""
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint32).T
