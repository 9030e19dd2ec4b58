"""Dot products within a lane: the halves, bytes or nibbles of two words, and a number that is added."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.formats import from_bfloat
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction, operands_of, refuse_modifiers, rows_of
from kernbench.realrun.amdgcn.operands import lanes_writer, reader
from kernbench.realrun.amdgcn.state import Group
from kernbench.realrun.amdgcn.vector import base_name, flags

_NAME = re.compile(r"v_dot(?P<count>\d)(?P<adds>c?)_(?P<to>[fiu]32)_(?P<of>f16|bf16|[iu](?:16|8|4))$")


def _elements(words: Any, of: str, count: int) -> list[Any]:
    """Return the elements of words, as float32 or int64."""
    bits = 32 // count
    parts = [words >> np.uint32(bits * i) & np.uint32(2**bits - 1) for i in range(count)]
    if of == "f16":
        return [p.astype(np.uint16).view(np.float16).astype(np.float32) for p in parts]
    if of == "bf16":
        return [from_bfloat(p) for p in parts]
    wide = [p.astype(np.int64) for p in parts]
    return [w - (w >> (bits - 1) << bits) for w in wide] if of[0] == "i" else wide


def _decode(line: Line) -> Instruction:
    """Sums of floating-point products are rounded to float32 after each addition, the added number last."""
    found = _NAME.match(base_name(line.mnemonic))
    assert found is not None
    count, adds, of, floating = int(found["count"]), bool(found["adds"]), found["of"], found["to"] == "f32"
    signs = ("neg_lo", "neg_hi", "op_sel", "op_sel_hi") if floating and not adds else ()
    refuse_modifiers(line, (*signs, *(() if floating or adds else ("clamp",))))
    dest, *sources = operands_of(line, 3 if adds else 4)
    if adds:
        sources.append(dest)
    if any(o.file == "c" for o in sources[:2]):
        raise InputError(f"{line.place}: a number as a source is not supported")
    a, b = (reader(o, "u", line) for o in sources[:2])
    c, write = reader(sources[2], "f" if floating else found["to"][0], line), lanes_writer(dest, found["to"][0], line)
    picks = [flags(line, "op_sel", 3, 0)[:2], flags(line, "op_sel_hi", 3, 1)[:2]]
    negative = [flags(line, "neg_lo", 3, 0), flags(line, "neg_hi", 3, 0)]
    if (
        negative[0][2]
        or negative[1][2]
        or any(flags(line, n, 3, d)[2] != d for n, d in (("op_sel", 0), ("op_sel_hi", 1)))
    ):
        raise InputError(f"{line.place}: modifiers of the added number are not supported")
    limits = np.iinfo(np.int32 if found["to"] == "i32" else np.uint32)
    clamp = "clamp" in line.modifiers

    def floats(g: Group) -> None:
        sides = [_elements(np.asarray(read(g)), of, count) for read in (a, b)]
        products = []
        for pick, sign in zip(picks, negative, strict=True):
            left, right = (side[p] * np.float32(1 - 2 * s) for side, p, s in zip(sides, pick, sign[:2], strict=True))
            products.append(left * right)
        write(g, products[0] + products[1] + c(g))

    def integers(g: Group) -> None:
        sides = [_elements(np.asarray(read(g)), of, count) for read in (a, b)]
        total = np.asarray(c(g)).astype(np.int64) + sum(x * y for x, y in zip(*sides, strict=True))
        total = np.clip(total, limits.min, limits.max) if clamp else total
        write(g, total.astype(np.uint32).view(np.int32 if limits.min else np.uint32))

    run: Callable[[Group], None] = floats if floating else integers
    return Instruction(line, run, rows_of(sources), dest.rows)


DECODERS: dict[str, Decoder] = {
    f"v_dot{name}": _decode
    for name in (
        "2_f32_f16", "2_f32_bf16", "2_i32_i16", "2_u32_u16", "4_i32_i8", "4_u32_u8", "8_i32_i4", "8_u32_u4",
        "2c_f32_f16", "2c_f32_bf16", "2c_i32_i16", "4c_i32_i8", "8c_i32_i4",
    )
}  # fmt: skip
