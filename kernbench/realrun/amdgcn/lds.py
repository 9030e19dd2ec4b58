"""Instructions on LDS, the memory of a workgroup: reads, writes, pairs, and reads that transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

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
from kernbench.realrun.amdgcn.lanes import LANE, vector_row, vector_words
from kernbench.realrun.amdgcn.memory import load_lds, place_words, store_lds
from kernbench.realrun.amdgcn.state import Group, Words

READS = {
    "u8": (1, ""), "i8": (1, "signed byte"), "u16": (2, ""), "i16": (2, "signed"), "b32": (4, ""), "b64": (8, ""),
    "b96": (12, ""), "b128": (16, ""), "u16_d16": (2, "low"), "u16_d16_hi": (2, "high"), "u8_d16": (1, "low"),
    "u8_d16_hi": (1, "high"),
}  # fmt: skip
WRITES = {
    "b8": (1, ""), "b16": (2, ""), "b32": (4, ""), "b64": (8, ""), "b96": (12, ""), "b128": (16, ""),
    "b16_d16_hi": (2, "high"), "b8_d16_hi": (1, "high"),
}  # fmt: skip


def _address(base: Any, offset: int) -> Any:
    """Add as the hardware does, in 32 bits: compilers put an index's lower bound, which may be negative, into both."""
    return (base + np.uint32(offset)).astype(np.int64)


def _offset(line: Line) -> int:
    return immediate(line, "offset", 0, 0xFFFF)


def _decode_read(line: Line) -> Instruction:
    width, form = READS[line.mnemonic.removeprefix("ds_read_")]
    refuse_modifiers(line, ("offset",))
    dest, address = operands_of(line, 2)
    row, fixed, at = vector_row(dest, line, max(1, width // 4)), _offset(line), vector_words(address, line)

    def run(g: Group) -> None:
        values = load_lds(g, _address(at(g), fixed), g.mask, width, line)
        place_words(g, row, values, form, g.lanes())

    partial = dest.rows if form in ("low", "high") else frozenset()
    return Instruction(line, run, address.rows | partial, dest.rows, queue="lds")


def _decode_write(line: Line) -> Instruction:
    width, form = WRITES[line.mnemonic.removeprefix("ds_write_")]
    refuse_modifiers(line, ("offset",))
    address, data = operands_of(line, 2)
    count = max(1, width // 4)
    row, fixed, at = vector_row(data, line, count), _offset(line), vector_words(address, line)
    shift = np.uint32(16 * (form == "high"))

    def run(g: Group) -> None:
        values = [g.u[row + j] >> shift if shift else g.u[row + j] for j in range(count)]
        store_lds(g, _address(at(g), fixed), g.mask, width, values, line)

    return Instruction(line, run, rows_of((address, data)), queue="lds")


def _pair_offsets(line: Line) -> tuple[int, tuple[int, int]]:
    """Return the bytes of one element, and the offsets of both in bytes."""
    size = 8 if line.mnemonic.endswith("b64") else 4
    step = size * (64 if "st64" in line.mnemonic else 1)
    return size, (immediate(line, "offset0", 0, 255) * step, immediate(line, "offset1", 0, 255) * step)


def _decode_read_pair(line: Line) -> Instruction:
    refuse_modifiers(line, ("offset0", "offset1"))
    size, offsets = _pair_offsets(line)
    dest, address = operands_of(line, 2)
    row, at = vector_row(dest, line, size // 2), vector_words(address, line)

    def run(g: Group) -> None:
        base = at(g)
        values = [w for offset in offsets for w in load_lds(g, _address(base, offset), g.mask, size, line)]
        place_words(g, row, values, "", g.lanes())

    return Instruction(line, run, address.rows, dest.rows, queue="lds")


def _decode_write_pair(line: Line) -> Instruction:
    refuse_modifiers(line, ("offset0", "offset1"))
    size, offsets = _pair_offsets(line)
    address, *data = operands_of(line, 3)
    rows, at = [vector_row(o, line, size // 4) for o in data], vector_words(address, line)

    def run(g: Group) -> None:
        base = at(g)
        for offset, row in zip(offsets, rows, strict=True):
            store_lds(g, _address(base, offset), g.mask, size, [g.u[row + j] for j in range(size // 4)], line)

    return Instruction(line, run, rows_of((address, *data)), queue="lds")


def _decode_transpose(line: Line) -> Instruction:
    """``ds_read_b64_tr_*``: 16 lanes read 64 bits each, and lane i gets column i of what they read.

    The 16 lanes' data are rows of 16 elements, one row after the other; with 16-bit elements a row is the data of four
    lanes. Lane i receives element i of every row.
    """
    bits = int(line.mnemonic.rsplit("_b", 1)[1])
    if bits not in (4, 8, 16):
        raise InputError(f"{line.place}: elements of {bits} bits are not supported")
    refuse_modifiers(line, ("offset",))
    dest, address = operands_of(line, 2)
    row, fixed, at = vector_row(dest, line, 2), _offset(line), vector_words(address, line)

    def run(g: Group) -> None:
        words = load_lds(g, _address(at(g), fixed), g.mask, 8, line)
        place_words(g, row, transpose(np.stack(words, axis=-1), bits), "", g.lanes())

    return Instruction(line, run, address.rows, dest.rows, queue="lds")


def transpose(words: Words, bits: int) -> list[Any]:
    """Transpose the 16 x 64 bits of each row of 16 lanes; ``words`` is uint32[wave, lane, 2]."""
    waves = words.shape[0]
    octets: Any = np.ascontiguousarray(words).view(np.uint8).reshape(waves, 4, 16 * 8)
    if bits == 4:
        octets = np.stack([octets & 15, octets >> 4], axis=-1).reshape(waves, 4, -1)
    elements = octets.view(np.uint16) if bits == 16 else octets
    turned = np.ascontiguousarray(elements.reshape(waves, 4, -1, 16).transpose(0, 1, 3, 2))
    if bits == 4:
        turned = turned[..., 0::2] | turned[..., 1::2] << 4
    out = np.ascontiguousarray(turned).view(np.uint32).reshape(waves, len(LANE), 2)
    return [out[..., 0], out[..., 1]]


DECODERS: dict[str, Decoder] = {
    **{f"ds_read_{name}": _decode_read for name in READS},
    **{f"ds_write_{name}": _decode_write for name in WRITES},
    **{f"ds_read2{st}_b{bits}": _decode_read_pair for st in ("", "st64") for bits in (32, 64)},
    **{f"ds_write2{st}_b{bits}": _decode_write_pair for st in ("", "st64") for bits in (32, 64)},
    **{f"ds_read_b64_tr_b{bits}": _decode_transpose for bits in (4, 8, 16)},
}
