"""Placement: which PEs own which part of a tensor, and in which memory each part lies.

A machine has three levels, ``sip``, ``cube`` and ``pe``. For each level a placement says one of three things:
an axis of the tensor is *split* over it, the tensor is *pinned* to one index of it, or it is *replicated*.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kernbench.errors import InputError, nearest

if TYPE_CHECKING:
    from kernbench.machine import Machine

LEVELS = ("sip", "cube", "pe")
ALIGNMENT = 4096
"""Parts of tensors start at multiples of this many bytes (assumed: a page)."""
ADDRESS_BITS = 44
"""A global address is ``memory << ADDRESS_BITS | byte in that memory``: 16 TiB a memory."""


@dataclass(frozen=True)
class Placement:
    """Which levels split which axis, and which are pinned; levels that are not named are replicated."""

    splits: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """``(axis, levels)``, the first level being the slowest to vary."""
    pins: tuple[tuple[str, int], ...] = ()
    """``(level, index)``."""

    def split(self, axis: int, over: str | tuple[str, ...]) -> Placement:
        """Return this placement with ``axis`` split over the levels ``over`` as well."""
        levels = _levels(over)
        self._check_free(levels)
        if any(a == axis for a, _ in self.splits):
            raise InputError(f"axis {axis} is already split; name all its levels at once in `over`")
        return Placement((*self.splits, (axis, levels)), self.pins) if levels else self

    def on(self, **index: int) -> Placement:
        """Return this placement pinned to ``sip=``, ``cube=`` and/or ``pe=``."""
        self._check_free(_levels(tuple(index)))
        return Placement(self.splits, (*self.pins, *sorted(index.items())))

    def _check_free(self, levels: tuple[str, ...]) -> None:
        used = {level for _, ls in self.splits for level in ls} | {level for level, _ in self.pins}
        for level in levels:
            if level in used:
                raise InputError(f"level {level!r} already has a part in this placement: name each level once")


def replicated() -> Placement:
    """One copy in every memory; each PE's pointer is to the copy nearest to it."""
    return Placement()


def split(axis: int, over: str | tuple[str, ...]) -> Placement:
    """Split ``axis`` over levels of the machine; each PE's pointer is to its own part.

    Parts are as even as can be: with ``n`` rows over ``r`` ranks the first ``n % r`` ranks hold one row more.
    Ranks count through ``over`` with its last level the fastest.

    Parameters
    ----------
    axis
        Axis of the tensor.
    over
        A level or levels out of ``"sip"``, ``"cube"``, ``"pe"``.
    """
    return Placement().split(axis, over)


def on(sip: int = 0, cube: int = 0, pe: int = 0) -> Placement:
    """Place the whole tensor in the memory of one PE. Every PE's pointer leads there."""
    return Placement().on(sip=sip, cube=cube, pe=pe)


def _levels(over: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    levels = (over,) if isinstance(over, str) else tuple(over)
    for level in levels:
        if level not in LEVELS:
            raise InputError(f"unknown level {level!r}{nearest(level, LEVELS)}")
    if len(set(levels)) != len(levels):
        raise InputError(f"level named twice in {levels}")
    return levels


@dataclass(frozen=True)
class Layout:
    """Where the parts of one tensor are: placement applied to a shape and a machine."""

    starts: np.ndarray
    """int64[part, axis]: index of the first element of each part."""
    extents: np.ndarray
    """int64[part, axis]: shape of each part."""
    part_of_pe: np.ndarray
    """int64[pe]: the part that each PE's pointer leads to."""
    memory_of_pe: np.ndarray
    """int64[pe]: the memory that holds it."""

    @property
    def n_parts(self) -> int:
        """Number of parts that the tensor is cut into."""
        return len(self.starts)

    @cached_property
    def is_copied(self) -> bool:
        """Whether a part lies in several memories."""
        copies = np.unique(self.memory_of_pe * self.n_parts + self.part_of_pe)
        return len(copies) > len(np.unique(self.part_of_pe))


def lay_out(shape: tuple[int, ...], placement: Placement, machine: Machine) -> Layout:
    """Apply ``placement`` to a tensor of ``shape`` on ``machine``.

    Raises
    ------
    InputError
        If an axis or a pinned index does not exist.
    """
    sizes = {"sip": machine.n_sips, "cube": machine.cubes_per_sip, "pe": machine.pes_per_cube}
    pe = np.arange(machine.n_pes)
    place = {
        "sip": pe // (sizes["cube"] * sizes["pe"]),
        "cube": pe // sizes["pe"] % sizes["cube"],
        "pe": pe % sizes["pe"],
    }
    for level, index in placement.pins:
        if not 0 <= index < sizes[level]:
            raise InputError(f"{level} {index} does not exist: {machine.name} has {level} 0-{sizes[level] - 1}")
        place[level] = np.full_like(pe, index)

    part = np.zeros_like(pe)
    starts = np.zeros((1, len(shape)), np.int64)
    extents = np.array([shape], np.int64)
    for axis, levels in _splits(placement, shape):
        rank, ranks = np.zeros_like(pe), 1
        for level in levels:
            rank, ranks = rank * sizes[level] + place[level], ranks * sizes[level]
        length, more = divmod(shape[axis], ranks)
        r = np.arange(ranks)
        part = part * ranks + rank
        starts, extents = np.repeat(starts, ranks, 0), np.repeat(extents, ranks, 0)
        copies = len(starts) // ranks
        starts[:, axis] = np.tile(r * length + np.minimum(r, more), copies)
        extents[:, axis] = np.tile(length + (r < more), copies)

    home = (place["sip"] * sizes["cube"] + place["cube"]) * sizes["pe"] + place["pe"]
    network = machine.network
    memory = network.memory_of_node[network.node_of_pe[home]].astype(np.int64)
    return Layout(starts, extents, part, memory)


def _splits(placement: Placement, shape: tuple[int, ...]) -> list[tuple[int, tuple[str, ...]]]:
    """Return the splits with axes counted from 0, each at most once."""
    found: list[tuple[int, tuple[str, ...]]] = []
    for axis, levels in placement.splits:
        if not -len(shape) <= axis < len(shape):
            raise InputError(f"axis {axis} does not exist in a tensor of shape {shape}")
        if any(other == axis % len(shape) for other, _ in found):
            raise InputError(f"axis {axis} of a tensor of shape {shape} is split twice; name all its levels at once")
        found.append((axis % len(shape), levels))
    return found


def assign_addresses(layouts: list[tuple[Layout, int]], machine: Machine) -> list[np.ndarray]:
    """Give every part of every tensor a byte address, memory by memory, in the order of the list.

    Parameters
    ----------
    layouts
        ``(layout, bytes of one element)`` of each tensor.

    Returns
    -------
    list of int64[pe]
        For each tensor the global address of each PE's part.

    Raises
    ------
    InputError
        If a memory is too small.
    """
    used = np.zeros(int(machine.network.n_memories), np.int64)
    addresses = []
    for layout, itemsize in layouts:
        nbytes = layout.extents.prod(axis=1) * itemsize
        room = -(-nbytes // ALIGNMENT) * ALIGNMENT
        key = layout.memory_of_pe * layout.n_parts + layout.part_of_pe
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        memory, size = layout.memory_of_pe[first], room[layout.part_of_pe[first]]
        before = np.cumsum(size) - size
        begins = np.r_[True, memory[1:] != memory[:-1]]
        in_memory = before - np.maximum.accumulate(np.where(begins, before, 0)) + used[memory]
        addresses.append(((memory << ADDRESS_BITS) | in_memory)[inverse.reshape(-1)])
        np.add.at(used, memory, size)
    full = np.flatnonzero(used > machine.memory.capacity)
    if len(full):
        raise InputError(
            f"memory {int(full[0])} of {machine.name} is too small: the kernel's tensors need {int(used[full[0]]):,} "
            f"bytes there, its capacity is {machine.memory.capacity:,}; split the tensors over more "
            f"{machine.memory_scope.upper()}s or raise `memory.capacity`"
        )
    return addresses
