"""Moving values between lanes: DPP, swizzles, permutes, swaps of rows, reads and writes of one lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import (
    Decoder,
    Instruction,
    immediate,
    operands_of,
    refuse_modifiers,
    rows_of,
)
from kernbench.realrun.amdgcn.operands import Operand, Read, reader
from kernbench.realrun.amdgcn.scalar import scalar_reader, scalar_writer
from kernbench.realrun.amdgcn.state import LANES, Group

LANE = np.arange(LANES)
DPP_MODIFIERS = (
    "quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_bcast", "wave_shl", "wave_rol",
    "wave_shr", "wave_ror", "row_newbcast", "row_mask", "bank_mask", "bound_ctrl",
)  # fmt: skip


def dpp_source(line: Line) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return, for each lane: the lane that it reads, whether that lane exists, and whether it may be written."""
    modifiers = line.modifiers
    source = LANE.copy()
    row, within = LANE & ~15, LANE & 15
    if "quad_perm" in modifiers:
        chosen = [int(n) for n in modifiers["quad_perm"].strip("[]").split(",")]
        if len(chosen) != 4 or not set(chosen) <= {0, 1, 2, 3}:
            raise InputError(f"{line.place}: quad_perm takes four numbers to 3")
        source = (LANE & ~3) + np.array(chosen)[LANE & 3]
    elif "row_shl" in modifiers:
        source = _inside(within + immediate(line, "row_shl", 1, 15), row)
    elif "row_shr" in modifiers:
        source = _inside(within - immediate(line, "row_shr", 1, 15), row)
    elif "row_ror" in modifiers:
        source = row + (within - immediate(line, "row_ror", 1, 15)) % 16
    elif "row_mirror" in modifiers:
        source = row + 15 - within
    elif "row_half_mirror" in modifiers:
        source = (LANE & ~7) + 7 - (LANE & 7)
    elif "row_newbcast" in modifiers:
        source = row + immediate(line, "row_newbcast", 0, 15)
    elif "row_bcast" in modifiers:
        width = immediate(line, "row_bcast", 15, 31) + 1
        if width not in (16, 32):
            raise InputError(f"{line.place}: row_bcast is 15 or 31")
        source = np.where(width <= LANE, (LANE // width) * width - 1, -1)
        if width == 16:  # only odd rows take the last lane of the row before
            source = np.where(LANE // 16 % 2 == 1, source, -1)
    elif "wave_shr" in modifiers:
        source = LANE - 1
    elif "wave_shl" in modifiers:
        source = np.where(LANE < LANES - 1, LANE + 1, -1)
    else:
        raise InputError(f"{line.place}: this form of DPP is not supported")
    if sum(name not in ("row_mask", "bank_mask", "bound_ctrl") for name in modifiers) != 1:
        raise InputError(f"{line.place}: takes one form of DPP")
    rows, banks = (immediate(line, name, 0, 15, 15) for name in ("row_mask", "bank_mask"))
    enabled = ((rows >> (LANE // 16)) & (banks >> (LANE // 4 % 4)) & 1).astype(np.bool_)
    return np.maximum(source, 0), source >= 0, enabled


def _inside(within: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where((within >= 0) & (within < 16), row + within, -1)


def dpp_reader(operand: Operand, kind: str, line: Line) -> tuple[Callable[[Group], Any], Callable[[Group], Any]]:
    """Return a reader of the moved operand, and one of the lanes that are written.

    A lane whose source does not exist or is not active reads 0 under ``bound_ctrl``, otherwise it is not written.
    """
    read = reader(operand, kind, line)
    source, exists, enabled = dpp_source(line)
    zeroes = "bound_ctrl" in line.modifiers

    def moved(g: Group) -> Any:
        values = np.broadcast_to(read(g), (g.count, LANES))[:, source]
        legal = exists & g.mask[:, source]
        return values if legal.all() else np.where(legal, values, values.dtype.type(0))

    def written(g: Group) -> Any:
        lanes = g.mask & enabled
        return lanes if zeroes else lanes & exists & g.mask[:, source]

    return moved, written


def _decode_read_first(line: Line) -> Instruction:
    dest, source = operands_of(line, 2)
    read, write = vector_words(source, line), scalar_writer(dest, "u", line)

    def run(g: Group) -> None:
        values = np.broadcast_to(read(g), (g.count, LANES))
        write(g, values[np.arange(g.count), g.mask.argmax(axis=1)])

    return Instruction(line, run, source.rows, dest.rows)


def _decode_read_lane(line: Line) -> Instruction:
    dest, source, which = operands_of(line, 3)
    read, lane, write = vector_words(source, line), scalar_reader(which, "u", line), scalar_writer(dest, "u", line)

    def run(g: Group) -> None:
        values = np.broadcast_to(read(g), (g.count, LANES))
        write(g, values[np.arange(g.count), lane(g) & 63])

    return Instruction(line, run, source.rows | which.rows, dest.rows)


def _decode_write_lane(line: Line) -> Instruction:
    dest, source, which = operands_of(line, 3)
    value, lane = scalar_reader(source, "u", line), scalar_reader(which, "u", line)
    row = vector_row(dest, line)

    def run(g: Group) -> None:
        g.u[row][np.arange(g.count), lane(g) & 63] = value(g)

    return Instruction(line, run, source.rows | which.rows, dest.rows)


def _decode_swap_rows(line: Line) -> Instruction:
    """``v_permlane{16,32}_swap_b32``: odd rows of the first register change places with even rows of the second."""
    width = 32 if "32_swap" in line.mnemonic else 16
    first, second = operands_of(line, 2)
    odd = (LANE // width % 2).astype(np.bool_)
    a, b = vector_row(first, line), vector_row(second, line)

    def run(g: Group) -> None:
        x, y = g.u[a].copy(), g.u[b].copy()
        new_x, new_y = x.copy(), y.copy()
        new_x[:, odd], new_y[:, ~odd] = y[:, ~odd], x[:, odd]
        np.copyto(g.u[a], new_x, where=g.lanes())
        np.copyto(g.u[b], new_y, where=g.lanes())

    return Instruction(line, run, rows_of((first, second)), rows_of((first, second)))


def _decode_permute(line: Line) -> Instruction:
    """``ds_bpermute_b32``: read the lane that an address / 4 names. ``ds_permute_b32``: send to it."""
    refuse_modifiers(line, ("offset",))
    dest, address, data = operands_of(line, 3)
    at, read, row = vector_words(address, line), vector_words(data, line), vector_row(dest, line)
    offset = np.uint32(immediate(line, "offset", 0, 0xFFFF))
    sends = line.mnemonic == "ds_permute_b32"

    def run(g: Group) -> None:
        lane = np.broadcast_to((at(g) + offset) >> np.uint32(2) & np.uint32(63), (g.count, LANES)).astype(np.int64)
        values = np.where(g.mask, np.broadcast_to(read(g), lane.shape), np.uint32(0))
        if sends:
            out = np.zeros_like(values)
            waves, lanes = np.nonzero(g.mask)
            out[waves, lane[waves, lanes]] = values[waves, lanes]
        else:
            out = np.take_along_axis(values, lane, 1)
        np.copyto(g.u[row], out, where=g.lanes())

    return Instruction(line, run, rows_of((address, data)), dest.rows, queue="lds")


def swizzle_source(text: str, line: Line) -> NDArray[np.int64]:
    """Return the lane that each lane reads under the offset of ``ds_swizzle_b32``."""
    if text.startswith("swizzle("):
        parts = [p.strip().strip('"') for p in text[8:-1].split(",")]
        kind, rest = parts[0], parts[1:]
        if kind == "QUAD_PERM":
            return (LANE & ~3) + np.array([int(p) for p in rest])[LANE & 3]
        if kind == "SWAP":
            return LANE ^ int(rest[0])
        if kind == "REVERSE":
            return LANE ^ (int(rest[0]) - 1)
        if kind == "BROADCAST":
            return (LANE & ~(int(rest[0]) - 1)) + int(rest[1])
        if kind == "BITMASK_PERM":
            keep = sum(1 << (4 - i) for i, c in enumerate(rest[0]) if c in "pi")
            ones = sum(1 << (4 - i) for i, c in enumerate(rest[0]) if c == "1")
            flip = sum(1 << (4 - i) for i, c in enumerate(rest[0]) if c == "i")
            return (LANE & 32) | (((LANE & 31) & keep | ones) ^ flip)
        raise InputError(f"{line.place}: {text} is not supported")
    bits = immediate(line, "offset", 0, 0xFFFF)
    if bits & 0x8000:
        return (LANE & ~3) + np.array([bits >> 2 * i & 3 for i in range(4)])[LANE & 3]
    return (LANE & 32) | (((LANE & 31) & (bits & 31) | (bits >> 5 & 31)) ^ (bits >> 10 & 31))


def _decode_swizzle(line: Line) -> Instruction:
    refuse_modifiers(line, ("offset",))
    dest, data = operands_of(line, 2)
    source = swizzle_source(line.modifiers.get("offset", "0"), line)
    read, row = vector_words(data, line), vector_row(dest, line)

    def run(g: Group) -> None:
        values = np.broadcast_to(read(g), (g.count, LANES))
        out = np.where(g.mask, values, np.uint32(0))[:, source]
        np.copyto(g.u[row], out, where=g.lanes())

    return Instruction(line, run, data.rows, dest.rows, queue="lds")


def vector_row(operand: Operand, line: Line, count: int = 1) -> int:
    """Return the row of a vector operand of ``count`` registers."""
    if operand.file != "v" or operand.count != count or operand.negate or operand.absolute:
        raise InputError(f"{line.place}: {operand.text} is not {count} vector register{'s' * (count > 1)}")
    return operand.row


def vector_words(operand: Operand, line: Line) -> Read:
    """Return a reader of one vector register."""
    row = vector_row(operand, line)
    return lambda g: g.u[row]


DECODERS: dict[str, Decoder] = {
    "v_readfirstlane_b32": _decode_read_first,
    "v_readlane_b32": _decode_read_lane,
    "v_writelane_b32": _decode_write_lane,
    "v_permlane16_swap_b32": _decode_swap_rows,
    "v_permlane32_swap_b32": _decode_swap_rows,
    "ds_bpermute_b32": _decode_permute,
    "ds_permute_b32": _decode_permute,
    "ds_swizzle_b32": _decode_swizzle,
}
