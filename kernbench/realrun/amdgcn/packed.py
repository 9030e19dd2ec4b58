"""Vector instructions on pairs: two float32 in a pair of registers, two halves in a word, and mixes of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn import arithmetic as ar
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction, operands_of, refuse_modifiers, rows_of
from kernbench.realrun.amdgcn.lanes import vector_row
from kernbench.realrun.amdgcn.operands import DTYPES, Operand, Read, lanes_writer, reader
from kernbench.realrun.amdgcn.state import Group
from kernbench.realrun.amdgcn.vector import base_name, finish, flags, half_reader

LOW_HALF = np.uint32(0xFFFF)
PACKED: dict[str, Callable[..., Any]] = {"v_pk_mul_f32": np.multiply, "v_pk_add_f32": np.add, "v_pk_fma_f32": ar.fma}
PACKED_HALVES: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "v_pk_add_f16": ("h", "hh", np.add),
    "v_pk_mul_f16": ("h", "hh", np.multiply),
    "v_pk_max_f16": ("h", "hh", ar.maximum),
    "v_pk_min_f16": ("h", "hh", ar.minimum),
    "v_pk_fma_f16": ("h", "hhh", ar.fma_f16),
    "v_pk_add_u16": ("H", "HH", np.add),
    "v_pk_sub_i16": ("G", "GG", np.subtract),
    "v_pk_mul_lo_u16": ("H", "HH", np.multiply),
    "v_pk_lshlrev_b16": ("H", "HH", lambda n, a: a << (n & np.uint16(15))),
    "v_pk_lshrrev_b16": ("H", "HH", lambda n, a: a >> (n & np.uint16(15))),
}
CONVERT_PAIR: dict[str, Callable[[Any], Any]] = {
    "v_cvt_pk_f16_f32": lambda a: a.astype(np.float16),
    "v_cvt_pkrtz_f16_f32": ar.round_to_zero_f16,
}


def _element(operand: Operand, which: int, line: Line) -> Operand:
    """Return one register of a pair; a number stands for both."""
    if operand.file == "c":
        return operand
    if operand.count != 2:
        raise InputError(f"{line.place}: {operand.text} must be a pair of registers")
    return Operand(operand.file, operand.row + which, 1, operand.text)


def _decode_packed(line: Line) -> Instruction:
    """Two float32 operations; op_sel picks the element of each source for the low one, op_sel_hi for the high one."""
    base = base_name(line.mnemonic)
    refuse_modifiers(line, ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"))
    count = 3 if base == "v_pk_fma_f32" else 2
    dest, *sources = operands_of(line, 1 + count)
    function, row = PACKED[base], vector_row(dest, line, 2)
    halves = []
    for chosen, signs in (("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi")):
        picks = flags(line, chosen, count, int(chosen == "op_sel_hi"))
        negative = flags(line, signs, count, 0)
        elements = [_element(o, p, line) for o, p in zip(sources, picks, strict=True)]
        halves.append(
            [
                reader(Operand(e.file, e.row, 1, e.text, negate=bool(n)), "f", line)
                for e, n in zip(elements, negative, strict=True)
            ]
        )
    low, high = halves

    def run(g: Group) -> None:
        first = function(*(read(g) for read in low))
        second = function(*(read(g) for read in high))
        np.copyto(g.f[row], first, where=g.lanes())
        np.copyto(g.f[row + 1], second, where=g.lanes())

    return Instruction(line, run, rows_of(sources), dest.rows)


def _decode_packed_move(line: Line) -> Instruction:
    """``v_pk_mov_b32``: low word from the first source, high word from the second."""
    dest, *sources = operands_of(line, 3)
    picks = flags(line, "op_sel", 2, 0)
    row = vector_row(dest, line, 2)
    low, high = (reader(_element(o, p, line), "u", line) for o, p in zip(sources, picks, strict=True))

    def run(g: Group) -> None:
        first, second = np.array(low(g)), np.array(high(g))
        np.copyto(g.u[row], first, where=g.lanes())
        np.copyto(g.u[row + 1], second, where=g.lanes())

    return Instruction(line, run, rows_of(sources), dest.rows)


def _decode_packed_halves(line: Line) -> Instruction:
    to, kinds, function = PACKED_HALVES[line.mnemonic]
    refuse_modifiers(line, ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"))
    dest, *sources = operands_of(line, 1 + len(kinds))
    row, count = vector_row(dest, line), len(kinds)
    halves = []
    for chosen, signs in (("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi")):
        picks = flags(line, chosen, count, int(chosen == "op_sel_hi"))
        negative = flags(line, signs, count, 0)
        for o, p in zip(sources, picks, strict=True):
            if o.file == "c" and p and o.text != "0":
                raise InputError(f"{line.place}: the high half of the number {o.text} is not supported")
        halves.append(
            [
                half_reader(Operand(o.file, o.row, o.count, o.text, negate=bool(n)), kind, bool(p), line)
                for o, kind, p, n in zip(sources, kinds, picks, negative, strict=True)
            ]
        )

    def run(g: Group) -> None:
        low, high = (
            np.asarray(function(*(read(g) for read in half)), DTYPES[to]).view(np.uint16).astype(np.uint32)
            for half in halves
        )
        np.copyto(g.u[row], low | high << np.uint32(16), where=g.lanes())

    return Instruction(line, run, rows_of(sources), dest.rows)


def _decode_convert_pair(line: Line) -> Instruction:
    """Two float32 numbers to the halves of one word."""
    convert = CONVERT_PAIR[base_name(line.mnemonic)]
    refuse_modifiers(line)
    dest, *sources = operands_of(line, 3)
    low, high = (reader(o, "f", line) for o in sources)
    write = lanes_writer(dest, "u", line)

    def half(value: Any) -> Any:
        return convert(np.asarray(value)).view(np.uint16).astype(np.uint32)

    return Instruction(
        line, lambda g: write(g, half(low(g)) | half(high(g)) << np.uint32(16)), rows_of(sources), dest.rows
    )


def _mixed_reader(operand: Operand, half: int, from_f16: int, line: Line) -> Read:
    if not from_f16:
        return reader(operand, "f", line)
    read = half_reader(operand, "h", bool(half), line)
    return lambda g: read(g).astype(np.float32)


def _decode_mixed(line: Line) -> Instruction:
    """``v_fma_mix_f32``, ``v_fma_mixlo_f16``, ``v_fma_mixhi_f16``: sources of float32 or of halves."""
    refuse_modifiers(line, ("op_sel", "op_sel_hi", "clamp"))
    dest, *sources = operands_of(line, 4)
    halves, narrow = flags(line, "op_sel", 3, 0), flags(line, "op_sel_hi", 3, 0)
    first, second, third = (_mixed_reader(o, h, n, line) for o, h, n in zip(sources, halves, narrow, strict=True))
    after, row, base = finish(line, "f"), vector_row(dest, line), line.mnemonic

    def run(g: Group) -> None:
        value = ar.fma(first(g), second(g), third(g))
        value = value if after is None else after(value)
        if base == "v_fma_mix_f32":
            np.copyto(g.f[row], value, where=g.lanes())
            return
        bits = value.astype(np.float16).view(np.uint16).astype(np.uint32)
        old = g.u[row]
        high = base == "v_fma_mixhi_f16"
        np.copyto(old, old & LOW_HALF | bits << np.uint32(16) if high else old & ~LOW_HALF | bits, where=g.lanes())

    return Instruction(line, run, rows_of(sources) | dest.rows, dest.rows)


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(PACKED, _decode_packed),
    **dict.fromkeys(PACKED_HALVES, _decode_packed_halves),
    **dict.fromkeys(CONVERT_PAIR, _decode_convert_pair),
    **dict.fromkeys(("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"), _decode_mixed),
    "v_pk_mov_b32": _decode_packed_move,
}
