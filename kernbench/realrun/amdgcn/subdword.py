"""The encoding SDWA: sources are bytes or halves of words, and so is the place of the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.operands import DTYPES, Operand, Read, parse_operand, reader
from kernbench.realrun.amdgcn.state import Group

PARTS = {
    "DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8),
}  # fmt: skip
"""First bit and number of bits of each part."""
MODIFIERS = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")


def _part(line: Line, name: str) -> tuple[int, int]:
    written = line.modifiers.get(name, "DWORD")
    if written not in PARTS:
        raise InputError(f"{line.place}: {name}:{written} is not one of {', '.join(PARTS)}")
    return PARTS[written]


def part_reader(text: str, index: int, kind: str, line: Line) -> tuple[Operand, Read]:
    """Return a source, ``sext(...)`` or plain, and a reader of the part that the modifiers select."""
    signed = re.match(r"sext\((.*)\)$", text)
    operand = parse_operand(signed[1] if signed else text, line)
    first, bits = _part(line, f"src{index}_sel")
    if bits == 32:
        return operand, reader(operand, kind, line)
    if operand.negate or operand.absolute or kind not in "uifhHG":
        raise InputError(f"{line.place}: a sign modifier on a part of a word is not supported")
    word, left = reader(operand, "i" if signed else "u", line), 32 - bits - first
    dtype = DTYPES[kind]

    def read(g: Group) -> Any:
        value = word(g)
        whole = value.dtype.type
        value = (value << whole(left)) >> whole(32 - bits)
        return (value.astype(np.uint16) if kind in "hHG" else value).view(dtype)

    return operand, read


def part_writer(dest: Operand, line: Line) -> Callable[[Group, Any], None]:
    """Return a writer of results to the selected part; the rest becomes zero, the sign, or stays."""
    first, bits = _part(line, "dst_sel")
    unused, row = line.modifiers.get("dst_unused", "UNUSED_PAD"), dest.row
    mask = np.uint32((2**bits - 1) << first)
    if dest.file != "v" or dest.count != 1 or dest.negate or dest.absolute:
        raise InputError(f"{line.place}: {dest.text} is not 1 vector register")
    if unused not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise InputError(f"{line.place}: dst_unused:{unused} is not supported")

    def write(g: Group, value: Any) -> None:
        value = np.asarray(value)
        word = value.view(np.uint32) if value.itemsize == 4 else value.view(np.uint16).astype(np.uint32)
        old = g.u[row]
        placed = word << np.uint32(first) & mask
        np.copyto(old, placed | old & ~mask if unused == "UNUSED_PRESERVE" else placed, where=g.lanes())

    return write
