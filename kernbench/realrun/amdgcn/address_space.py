"""The 64-bit addresses that a kernel sees: every argument array at a base of its own, with gaps that are nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.errors import KernelError
from kernbench.realrun.amdgcn.state import Bools, Words

FIRST = 0x7_0000_0000
GAP = 1 << 20
ALIGNMENT = 4096
Addresses = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of one array."""

    name: str
    base: int
    bytes: NDArray[np.uint8]
    writable: bool

    @property
    def end(self) -> int:
        """First address behind it."""
        return self.base + self.bytes.size

    def words(self, width: int) -> Any:
        """Return the whole words of ``width`` bytes."""
        whole = self.bytes.size // width * width
        return self.bytes[:whole].view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[width])


class AddressSpace:
    """Regions in ascending order, and reads and writes by lane."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self._bases = np.zeros(0, np.uint64)
        self.arrays_end = np.uint64(0)
        """Regions from here on are not the caller's."""

    def add(self, name: str, octets: NDArray[np.uint8], writable: bool) -> int:
        """Give an array a base address; return it."""
        last = self.regions[-1].end + GAP if self.regions else FIRST
        base = -(-last // ALIGNMENT) * ALIGNMENT
        self.regions.append(Region(name, base, octets, writable))
        self._bases = np.array([r.base for r in self.regions], np.uint64)
        return base

    def parts(self, at: Addresses, active: Bools, width: int, place: str) -> Iterator[tuple[Region, Bools]]:
        """Yield the regions that active lanes touch, with the lanes that touch each.

        Raises
        ------
        KernelError
            A lane is outside every region.
        """
        some = at[active]
        if not some.size:
            return
        index = int(np.searchsorted(self._bases, some[0], "right")) - 1
        region = self.regions[index] if index >= 0 else None
        if region is not None and some.min() >= region.base and int(some.max()) + width <= region.end:
            yield region, active
            return
        where = np.searchsorted(self._bases, at, "right") - 1
        for index in np.unique(where[active]):
            lanes = active & (where == index)
            region = self.regions[index] if index >= 0 else None
            good = lanes & (at <= np.uint64(max(region.end - width, 0))) if region is not None else np.zeros_like(lanes)
            if not good.any() or (good != lanes).any() or region is None:
                self._refuse(at, lanes & ~good, width, place)
            else:
                yield region, lanes

    def _refuse(self, at: Addresses, lanes: Bools, width: int, place: str) -> None:
        wave, lane = (int(n) for n in np.argwhere(lanes)[0])
        address = int(at[wave, lane])
        near = [r for r in self.regions if r.base - GAP // 2 <= address < r.end + GAP // 2]
        beside = f": {near[0].name} is {near[0].base:#x} to {near[0].end:#x}" if near else ": no array is near"
        raise KernelError(f"{place}: lane {lane} touches {width} bytes at {address:#x}, out of bounds{beside}")

    def load(self, at: Addresses, active: Bools, width: int, place: str) -> list[Words]:
        """Read ``width`` bytes a lane as words; a part of a word is extended with zeros. Inactive lanes are 0."""
        step, count = (4, width // 4) if width >= 4 else (width, 1)
        out = [np.zeros(at.shape, np.uint32) for _ in range(count)]
        for region, lanes in self.parts(at, active, width, place):
            every = bool(lanes.all())
            offsets = at - np.uint64(region.base)
            if not every:
                offsets = np.where(lanes, offsets, np.uint64(0))
            if (offsets & np.uint64(step - 1)).any():
                values = _gather_bytes(region.bytes, offsets[lanes], step, count)
                for row, value in zip(out, values, strict=True):
                    row[lanes] = value
                continue
            words, index = region.words(step), (offsets // np.uint64(step)).astype(np.int64)
            for j, row in enumerate(out):
                if every:
                    row[...] = words.take(index + j if j else index)
                else:
                    row[lanes] = words.take(index[lanes] + j)
        return out

    def store(self, at: Addresses, active: Bools, width: int, values: list[Any], place: str) -> None:
        """Write ``width`` bytes a lane from words; of two lanes at one address the last wins."""
        step, count = (4, width // 4) if width >= 4 else (width, 1)
        dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32}[step]
        for region, lanes in self.parts(at, active, width, place):
            if not region.writable:
                raise KernelError(f"{place}: writes to {region.name}, which is read-only")
            offsets = at[lanes] - np.uint64(region.base)
            data = [np.broadcast_to(v, at.shape)[lanes].astype(dtype) for v in values]
            if (offsets & np.uint64(step - 1)).any():
                for j in range(count):
                    octets = data[j].view(np.uint8).reshape(-1, step)
                    for i in range(step):
                        region.bytes[offsets + np.uint64(j * step + i)] = octets[:, i]
                continue
            words, index = region.words(step), (offsets // np.uint64(step)).astype(np.int64)
            for j in range(count):
                words[index + j] = data[j]


def _gather_bytes(octets: NDArray[np.uint8], offsets: Addresses, step: int, count: int) -> list[Words]:
    """Read words at addresses that are not multiples of their size."""
    out = []
    for j in range(count):
        word = np.zeros(offsets.shape, np.uint32)
        for i in range(step):
            word |= octets[offsets + np.uint64(j * step + i)].astype(np.uint32) << np.uint32(8 * i)
        out.append(word)
    return out
