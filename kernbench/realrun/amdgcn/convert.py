"""Conversions to and from bfloat16 and the formats of 8 and 4 bits, with and without a scale."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.formats import NARROW, from_bfloat, scale_of, to_bfloat, to_narrow, values_of
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction, operands_of, refuse_modifiers, rows_of
from kernbench.realrun.amdgcn.lanes import vector_row
from kernbench.realrun.amdgcn.operands import lanes_writer, reader
from kernbench.realrun.amdgcn.state import Group
from kernbench.realrun.amdgcn.vector import base_name, flags

HALF, SIXTEEN = np.uint32(0xFFFF), np.uint32(16)
SELECTED = {"DWORD": 0, "WORD_0": 0, "WORD_1": 2, "BYTE_0": 0, "BYTE_1": 1, "BYTE_2": 2, "BYTE_3": 3}
"""First byte of the part of a word that SDWA selects."""
_NAME = re.compile(
    r"v_cvt_(?P<scaled>scalef32_)?(?P<pair>pk_)?(?P<to>f32|f16|bf16|fp8|bf8|fp4)_(?P<of>f32|f16|bf16|fp8|bf8|fp4)$"
)


def half_bits(x: Any, kind: str) -> Any:
    """Round float32 to a format of 16 bits; return the bits in the low half of words."""
    return to_bfloat(x) if kind == "bf16" else x.astype(np.float16).view(np.uint16).astype(np.uint32)


def _first_byte(line: Line, kind: str, pair: bool) -> int:
    """Return the byte of the source that holds the first element."""
    if selected := line.modifiers.get("src0_sel"):
        return SELECTED[selected]
    low, high = flags(line, "op_sel", 2, 0)[:2]
    if kind == "fp4":
        return low + 2 * high
    return 2 * low if pair else 2 * high + low


def _decode_widen(line: Line) -> Instruction:
    """From 8 or 4 bits: one element to float32, or two to float32, float16 or bfloat16."""
    base = base_name(line.mnemonic)
    found = _NAME.match(base)
    assert found is not None
    scaled, pair, to, of = bool(found["scaled"]), bool(found["pair"]), found["to"], found["of"]
    refuse_modifiers(line, ("op_sel", "src0_sel"))
    dest, source, *rest = operands_of(line, 2 + scaled)
    table, at = values_of(of, line.arch), np.uint32(8 * _first_byte(line, of, pair))
    word, factor = reader(source, "u", line), reader(rest[0], "f", line) if rest else None
    row = vector_row(dest, line, 2 if pair and to == "f32" else 1)
    step, mask = (np.uint32(4), np.uint32(15)) if of == "fp4" else (np.uint32(8), np.uint32(255))

    def run(g: Group) -> None:
        bits = word(g) >> at
        values = [table[bits & mask], table[bits >> step & mask]] if pair else [table[bits & mask]]
        if factor is not None:
            scale = scale_of(factor(g))
            values = [v * scale for v in values]
        if to == "f32":
            for j, value in enumerate(values):
                np.copyto(g.f[row + j], value, where=g.lanes())
        else:
            low, high = (half_bits(v, to) for v in values)
            np.copyto(g.u[row], low | high << SIXTEEN, where=g.lanes())

    return Instruction(line, run, rows_of((source, *rest)), dest.rows)


def _decode_narrow(line: Line) -> Instruction:
    """Two numbers to bytes of one half of a word; the other half is kept. ``op_sel`` picks the half."""
    base = base_name(line.mnemonic)
    found = _NAME.match(base)
    assert found is not None
    scaled, to, of = bool(found["scaled"]), found["to"], found["of"]
    refuse_modifiers(line, ("op_sel",))
    inputs = 2 if of == "f32" else 1
    dest, *sources = operands_of(line, 1 + inputs + scaled)
    picks = flags(line, "op_sel", 4, 0)
    place = picks[inputs + scaled]
    if to == "fp4":
        place, width = picks[2] + 2 * picks[3], 8
    else:
        width = 16
    if any(picks[:inputs]):
        raise InputError(f"{line.place}: op_sel of a source is not supported")
    numbers = [reader(o, "f" if of == "f32" else "u", line) for o in sources[:inputs]]
    factor = reader(sources[-1], "f", line) if scaled else None
    row, shift = vector_row(dest, line), np.uint32(place * width)
    keep = ~np.uint32((2**width - 1) << int(shift))
    bits = np.uint32(width // 2)

    def run(g: Group) -> None:
        values = [read(g) for read in numbers]
        if of != "f32":
            (word,) = values
            values = [_widen(word & HALF, of), _widen(word >> SIXTEEN, of)]
        if factor is not None:
            scale = scale_of(factor(g))
            values = [v / scale for v in values]
        low, high = (to_narrow(v, to, line.arch) for v in values)
        old = g.u[row]
        np.copyto(old, old & keep | (low | high << bits) << shift, where=g.lanes())

    return Instruction(line, run, rows_of(sources) | dest.rows, dest.rows)


def _widen(bits: Any, kind: str) -> Any:
    if kind == "bf16":
        return from_bfloat(bits)
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


def _decode_to_bfloat(line: Line) -> Instruction:
    """``v_cvt_pk_bf16_f32``."""
    refuse_modifiers(line)
    dest, *sources = operands_of(line, 3)
    low, high = (reader(o, "f", line) for o in sources)
    write = lanes_writer(dest, "u", line)
    run: Callable[[Group], None] = lambda g: write(g, to_bfloat(low(g)) | to_bfloat(high(g)) << SIXTEEN)  # noqa: E731
    return Instruction(line, run, rows_of(sources), dest.rows)


DECODERS: dict[str, Decoder] = {
    **{f"v_cvt_f32_{of}": _decode_widen for of in ("fp8", "bf8")},
    **{f"v_cvt_pk_f32_{of}": _decode_widen for of in ("fp8", "bf8")},
    **{f"v_cvt_scalef32_pk_{to}_{of}": _decode_widen for to in ("f32", "f16", "bf16") for of in NARROW},
    **{f"v_cvt_pk_{to}_f32": _decode_narrow for to in ("fp8", "bf8")},
    **{f"v_cvt_scalef32_pk_{to}_{of}": _decode_narrow for to in NARROW for of in ("f32", "f16", "bf16")},
    "v_cvt_pk_bf16_f32": _decode_to_bfloat,
}
