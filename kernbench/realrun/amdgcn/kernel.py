"""Kernels of an assembly file, ready to launch on NumPy arrays."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.address_space import AddressSpace
from kernbench.realrun.amdgcn.assembly import Assembly
from kernbench.realrun.amdgcn.counters import Tally, counters_of
from kernbench.realrun.amdgcn.execute import Execution, Program
from kernbench.realrun.amdgcn.hazards import register_name
from kernbench.realrun.amdgcn.memory import SWIZZLES
from kernbench.realrun.amdgcn.metadata import LDS_POINTER, POINTER, Argument, KernelText
from kernbench.realrun.amdgcn.operands import SCALAR_ROW
from kernbench.realrun.amdgcn.state import AGPR, EXEC, LANES, Waves

MAX_INSTRUCTIONS = 100_000_000
BATCH_BYTES = 32 << 20
"""Vector registers of the waves that run together; more would leave the caches."""
BATCH_WAVES = 256
SCRATCH_BYTES = 256 << 20
"""Of the waves that run together."""
LDS_BYTES = {"gfx90a": 64 << 10, "gfx942": 64 << 10, "gfx950": 160 << 10}
LANE_SCRATCH_BYTES = 8191 * 1024 // LANES
"""The hardware counts a wave's scratch in 13 bits of 1 KiB."""
FIXED_MODES = {"float_round_mode_32": 0, "float_round_mode_16_64": 0, "float_denorm_mode_32": 3,
               "float_denorm_mode_16_64": 3, "uses_dynamic_stack": 0}  # fmt: skip
"""Settings of the descriptor that the executor assumes."""
Size = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What a launch did."""

    counters: dict[str, int]
    """By rocprof's names; see :mod:`~kernbench.realrun.amdgcn.counters`."""
    opcodes: dict[str, int]
    """How often each opcode was executed by a wave."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a file."""

    text: KernelText
    assembly: Assembly
    program: Program

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return self.text.name

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What :meth:`launch` takes as ``args``, in this order."""
        return tuple(a for a in self.text.arguments if not a.kind.startswith("hidden_"))

    @property
    def registers(self) -> int:
        """Vector registers of a lane that the kernel reserves, accumulation registers included."""
        return self._descriptor("next_free_vgpr")

    @property
    def entry(self) -> int:
        """Index of the first instruction.

        Code whose arguments are preloaded into registers begins with 256 bytes that load them, for firmware that cannot
        preload; execution begins behind.
        """
        start = self.assembly.labels[self.name]
        if self._descriptor("user_sgpr_kernarg_preload_length"):
            return min((at for at in self.assembly.aligned if at > start), default=start)
        return start

    def _descriptor(self, name: str) -> int:
        return self.text.descriptor.get(name, 0)

    def launch(
        self,
        grid: Size,
        block: Size,
        args: Sequence[Any],
        lds_bytes: int | None = None,
        strict: bool = True,
        max_instructions: int = MAX_INSTRUCTIONS,
    ) -> LaunchResult:
        """Execute the kernel; arrays are changed in place, as device buffers would be.

        Parameters
        ----------
        grid, block
            Workgroups, and work-items of a workgroup: up to three numbers each, x first.
        args
            One value for each entry of :attr:`arguments`: C-contiguous arrays or None for pointers, numbers otherwise.
            Metadata do not tell integers from floats: pass what the kernel takes, ``3.0`` for a float.
        lds_bytes
            LDS of a workgroup on top of what the descriptor has.
        strict
            Check that every register is waited for before it is touched.
        max_instructions
            Instructions that all waves together may execute.

        Raises
        ------
        InputError
            The arguments do not fit the kernel.
        KernelError
            The kernel touches memory that is not its own, breaks a hazard, or does not end; names the line.
        """
        groups, items = _size_of("grid", grid), _size_of("block", block)
        if math.prod(items) > 1024:
            raise InputError(f"{self.name}: block {items} has {math.prod(items)} work-items, at most 1024 are possible")
        if lds_bytes is not None and lds_bytes < 0:
            raise InputError(f"{self.name}: lds_bytes is {lds_bytes}, expected 0 or more")
        self._check_modes()
        self._check_registers()
        memory, tally = AddressSpace(), Tally()
        block_bytes = self._argument_block(args, memory, groups, items, lds_bytes or 0)
        memory.arrays_end = np.uint64(memory.regions[-1].end if memory.regions else 0)
        kernarg = memory.add("the argument block", block_bytes, False)
        packet = memory.add("the dispatch packet", self._packet(groups, items, lds_bytes or 0, kernarg), False)
        execution = Execution(self.program, strict, max_instructions)
        waves = -(-math.prod(items) // LANES)
        total = math.prod(groups)
        lds = self._descriptor("group_segment_fixed_size") + (lds_bytes or 0)
        scratch = self._descriptor("private_segment_fixed_size")
        self._check_sizes(lds, scratch)
        fitting = min(BATCH_BYTES // (self._vector_rows() * LANES * 4), SCRATCH_BYTES // max(1, scratch * LANES))
        at_once = max(1, min(BATCH_WAVES, fitting) // waves)
        for first in range(0, total, at_once):
            numbers = np.arange(first, min(first + at_once, total))
            state = Waves(waves, len(numbers), self._vector_rows(), lds, scratch, memory, tally)
            self._set_registers(state, numbers, groups, items, (kernarg, packet), block_bytes)
            execution.run(state, self.entry)
        return _result(execution, total * waves, tally)

    def _check_modes(self) -> None:
        place = f"{self.assembly.file}:{self.text.line}: {self.name}"
        for name, wanted in FIXED_MODES.items():
            if self.text.descriptor.get(name, wanted) != wanted:
                raise InputError(f"{place}: {name} is {self._descriptor(name)}; only {wanted} is supported")

    def _check_sizes(self, lds: int, scratch: int) -> None:
        """Refuse more LDS or scratch than the hardware has."""
        most = LDS_BYTES[self.assembly.arch]
        if not 0 <= lds <= most:
            raise InputError(f"{self.name}: {lds} bytes of LDS, a workgroup on {self.assembly.arch} has {most}")
        if scratch > LANE_SCRATCH_BYTES:
            raise InputError(f"{self.name}: {scratch} bytes of scratch a lane, at most {LANE_SCRATCH_BYTES}")

    def _vector_rows(self) -> int:
        """Rows of the vector file: up to the last register that the descriptor reserves."""
        total = self._descriptor("next_free_vgpr") or 512
        ordinary = self._descriptor("accum_offset") or 256
        return min(AGPR + total - ordinary, 512) if total > ordinary else min(total, 256)

    def _check_registers(self) -> None:
        """Refuse vector registers beyond those that the descriptor reserves."""
        start = self.assembly.labels[self.name]
        others = [at for name, at in self.assembly.labels.items() if name in self.assembly.kernels and at > start]
        total = self._descriptor("next_free_vgpr") or 512
        ordinary = min(self._descriptor("accum_offset") or 256, total)
        for instruction in self.program.instructions[start : min(others, default=None)]:
            for row in instruction.reads | instruction.writes:
                if ordinary <= row < AGPR or AGPR + total - ordinary <= row < SCALAR_ROW:
                    reserved = ordinary if row < AGPR else total - ordinary
                    place, name = instruction.line.place, register_name(row)
                    raise InputError(f"{place}: touches {name}, the kernel reserves {reserved} registers")

    def _argument_block(
        self, args: Sequence[Any], memory: AddressSpace, groups: tuple[int, ...], items: tuple[int, ...], lds: int
    ) -> NDArray[np.uint8]:
        wanted = self.arguments
        if len(args) != len(wanted):
            names = ", ".join(a.name for a in wanted)
            raise InputError(f"{self.name}: {len(args)} arguments given, takes {len(wanted)}: {names}")
        out = bytearray(self.text.kernarg_size)
        known: dict[tuple[int, int], int] = {}
        for argument, value in zip(wanted, args, strict=True):
            field = _pack(self.name, argument, value, memory, known)
            out[argument.offset : argument.offset + argument.size] = field
        hidden = _hidden_values(groups, items, lds)
        for argument in self.text.arguments:
            if argument.kind.startswith("hidden_"):
                number = hidden.get(argument.kind, 0)
                if number >= 1 << 8 * argument.size:
                    raise InputError(f"{self.name}: {argument.kind} of {argument.size} bytes cannot be {number}")
                out[argument.offset : argument.offset + argument.size] = number.to_bytes(argument.size, "little")
        return np.frombuffer(bytes(out), np.uint8)

    def _packet(self, groups: tuple[int, ...], items: tuple[int, ...], lds: int, kernarg: int) -> NDArray[np.uint8]:
        """Return the dispatch packet of HSA that ``dispatch_ptr`` points to."""
        sizes = [g * b for g, b in zip(groups, items, strict=True)]
        private, shared = self._descriptor("private_segment_fixed_size"), self._descriptor("group_segment_fixed_size")
        packed = struct.pack("<HH3HH3III QQQQ", 2, 3, *items, 0, *sizes, private, shared + lds, 0, kernarg, 0, 0)
        return np.frombuffer(packed, np.uint8)

    def _set_registers(
        self, state: Waves, numbers: NDArray[np.int64], groups: tuple[int, ...], items: tuple[int, ...],
        pointers: tuple[int, int], block: NDArray[np.uint8],
    ) -> None:  # fmt: skip
        """Set the registers that the hardware sets before the first instruction."""
        values: list[Any] = []
        kernarg, packet = pointers
        has = self._descriptor
        if has("user_sgpr_private_segment_buffer"):
            values += [0, int(SWIZZLES), 0xFFFFFFFF, 0]
        for name, pointer in (("dispatch_ptr", packet), ("queue_ptr", 0), ("kernarg_segment_ptr", kernarg),
                              ("dispatch_id", 0), ("flat_scratch_init", 0)):  # fmt: skip
            if has(f"user_sgpr_{name}"):
                values += [pointer & 0xFFFFFFFF, pointer >> 32]
        if has("user_sgpr_private_segment_size"):
            values.append(has("private_segment_fixed_size"))
        words = block[: block.size // 4 * 4].view(np.uint32)
        first, preloaded = has("user_sgpr_kernarg_preload_offset"), has("user_sgpr_kernarg_preload_length")
        values += [int(w) for w in words[first : first + preloaded]]
        count = self.text.descriptor.get("user_sgpr_count", len(values))  # a disassembled descriptor has no count
        if not len(values) <= count <= 16:
            place = f"{self.assembly.file}:{self.text.line}: {self.name}"
            raise InputError(f"{place}: user_sgpr_count is {count}, its parts take {len(values)}")
        values += [0] * (count - len(values))
        place_of = np.tile(numbers, state.per_group)
        for axis, number in zip("xyz", np.unravel_index(place_of, groups[::-1])[::-1], strict=True):
            if self.text.descriptor.get(f"system_sgpr_workgroup_id_{axis}", int(axis == "x")):
                values.append(number.astype(np.uint32))
        values += [0] * (has("system_sgpr_workgroup_info") + has("system_sgpr_private_segment_wavefront_offset"))
        for row, value in enumerate(values):
            state.scalars[row] = value
        _set_lanes(state, items, self._descriptor("system_vgpr_workitem_id"))


def _set_lanes(state: Waves, items: tuple[int, ...], axes: int) -> None:
    """Put work-item numbers into v0, 10 bits an axis, and switch off lanes beyond the workgroup."""
    wave = np.repeat(np.arange(state.per_group), state.groups)
    item = wave[:, None] * LANES + np.arange(LANES)
    x, y, z = item % items[0], item // items[0] % items[1], item // (items[0] * items[1])
    packed = x | (y << 10 if axes > 0 else 0) | (z << 20 if axes > 1 else 0)
    state.vectors[0] = packed.astype(np.uint32)
    octets = np.packbits(item < math.prod(items), axis=1, bitorder="little")
    state.scalars[EXEC : EXEC + 2] = octets.view(np.uint32).T


def _size_of(name: str, size: Size) -> tuple[int, ...]:
    numbers = (size,) if isinstance(size, int | np.integer) else tuple(size)
    if not 1 <= len(numbers) <= 3 or any(n < 1 for n in numbers):
        raise InputError(f"{name} is {size!r}: expected one to three numbers from 1")
    return tuple(int(n) for n in (*numbers, 1, 1)[:3])


def _hidden_values(groups: tuple[int, ...], items: tuple[int, ...], lds: int) -> dict[str, int]:
    found = {"hidden_grid_dims": max([1] + [i + 1 for i in range(3) if groups[i] * items[i] > 1])}
    for i, axis in enumerate("xyz"):
        found[f"hidden_block_count_{axis}"] = groups[i]
        found[f"hidden_group_size_{axis}"] = items[i]
    return found | {"hidden_dynamic_lds_size": lds}


def _pack(
    kernel: str, argument: Argument, value: Any, memory: AddressSpace, known: dict[tuple[int, int], int]
) -> bytes:
    """Return the bytes of one argument; give an array its address."""
    place = f"{kernel}: {argument.name}"
    if argument.kind == LDS_POINTER and value is None:
        return bytes(argument.size)
    if argument.kind == POINTER:
        if value is None:
            return bytes(argument.size)
        if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
            raise InputError(f"{place} is a pointer: expected a C-contiguous array or None, got {type(value).__name__}")
        place_of = (value.__array_interface__["data"][0], value.nbytes)  # one array may be two arguments
        if place_of not in known:
            known[place_of] = memory.add(argument.name, value.reshape(-1).view(np.uint8), bool(value.flags.writeable))
        return known[place_of].to_bytes(8, "little")
    if isinstance(value, np.generic) and value.nbytes == argument.size:
        return value.tobytes()
    try:
        if isinstance(value, float | np.floating):
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[argument.size], value)
        if isinstance(value, int | np.integer):
            number = int(value)
            return number.to_bytes(argument.size, "little", signed=number < 0)
    except (KeyError, OverflowError):
        pass
    raise InputError(f"{place} is a number of {argument.size} bytes: {value!r} of {type(value).__name__} does not fit")


def _result(execution: Execution, waves: int, tally: Tally) -> LaunchResult:
    opcodes: dict[str, int] = {}
    for instruction, count in zip(execution.program.instructions, execution.counts.tolist(), strict=False):
        if count:
            opcodes[instruction.line.mnemonic] = opcodes.get(instruction.line.mnemonic, 0) + count
    opcodes = dict(sorted(opcodes.items()))
    return LaunchResult(counters_of(opcodes.items(), waves, tally), opcodes)
