"""Matrix instructions: how lanes hold the operands, and the product.

For a shape M x N x K every lane holds K * M / 64 consecutive elements of one row of A and of one column of B: lane l
has row ``l % M`` and elements from ``(l // M) * (K * M / 64)``. Of C and D it holds column ``l % N``; register r is row
``4 * (l // 16) + r`` of a 16 x 16 result and row ``8 * (r // 4) + 4 * (l // 32) + r % 4`` of a 32 x 32 one.
The order in which the hardware adds products is not published; here it is NumPy's, in float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction, operands_of, refuse_modifiers, rows_of
from kernbench.realrun.amdgcn.operands import Operand, reader
from kernbench.realrun.amdgcn.state import LANES, Group

Unpack = Callable[[Any], Any]


def _bfloat(words: Any) -> Any:
    return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""Every float16 by its bits; faster than NumPy's conversion."""
UNPACK: dict[str, tuple[int, Unpack]] = {
    "f16": (16, lambda words: HALVES.take(words.view(np.uint16))),
    "bf16": (16, _bfloat),
    "f32": (32, lambda words: words.view(np.float32)),
    "i8": (8, lambda words: words.view(np.int8).astype(np.float64)),
}
"""Bits of one element, and how words ``uint32[..., words]`` become numbers ``[..., elements]``."""
SHAPES: dict[str, tuple[int, int, str]] = {
    "v_mfma_f32_16x16x16_f16": (16, 16, "f16"),
    "v_mfma_f32_32x32x8_f16": (32, 8, "f16"),
    "v_mfma_f32_16x16x32_f16": (16, 32, "f16"),
    "v_mfma_f32_32x32x16_f16": (32, 16, "f16"),
    "v_mfma_f32_16x16x16_bf16": (16, 16, "bf16"),
    "v_mfma_f32_16x16x16_bf16_1k": (16, 16, "bf16"),
    "v_mfma_f32_32x32x8_bf16": (32, 8, "bf16"),
    "v_mfma_f32_32x32x8_bf16_1k": (32, 8, "bf16"),
    "v_mfma_f32_16x16x32_bf16": (16, 32, "bf16"),
    "v_mfma_f32_32x32x16_bf16": (32, 16, "bf16"),
    "v_mfma_f32_16x16x4_f32": (16, 4, "f32"),
    "v_mfma_f32_32x32x2_f32": (32, 2, "f32"),
    "v_mfma_i32_16x16x16_i8": (16, 16, "i8"),
    "v_mfma_i32_32x32x8_i8": (32, 8, "i8"),
    "v_mfma_i32_16x16x32_i8": (16, 32, "i8"),
    "v_mfma_i32_32x32x16_i8": (32, 16, "i8"),
    "v_mfma_i32_16x16x64_i8": (16, 64, "i8"),
    "v_mfma_i32_32x32x32_i8": (32, 32, "i8"),
}
"""By name: M = N, K, and the type of A and B."""


def by_register(product: Any) -> Iterator[Any]:
    """Yield what each register holds of D ``[wave, row, column]``, as ``[wave, lane // side, lane % side]``."""
    waves, side = product.shape[:2]
    parts = product.reshape(waves, side * side // (4 * LANES), LANES // side, 4, side)
    for r in range(side * side // LANES):
        yield parts[:, r // 4, :, r % 4, :]


def _decode(line: Line) -> Instruction:
    base = line.mnemonic.removesuffix("_e64")
    side, depth, kind = SHAPES[base if base in SHAPES else _with_underscores(base)]
    refuse_modifiers(line, ("cbsz", "abid", "blgp"))
    for name in ("cbsz", "abid", "blgp"):
        if int(line.modifiers.get(name, "0"), 0):
            raise InputError(f"{line.place}: modifier {name!r} is not supported for {line.mnemonic}")
    dest, a, b, c = operands_of(line, 4)
    bits, unpack = UNPACK[kind]
    held = depth * side // LANES
    words, results = held * bits // 32, side * side // LANES
    for operand, count in ((dest, results), (a, words), (b, words), (c, results)):
        if operand.file != "c" and (operand.file != "v" or operand.count != count):
            raise InputError(f"{line.place}: {operand.text} must be {count} vector registers")
    number = np.int32 if kind == "i8" else np.float32

    def matrix(g: Group, operand: Operand) -> Any:
        """Return ``[wave, row, k]``."""
        packed = np.empty((g.count, side, LANES // side, words), np.uint32)
        for j in range(words):
            packed[..., j] = g.u[operand.row + j].reshape(g.count, LANES // side, side).transpose(0, 2, 1)
        return unpack(packed).reshape(g.count, side, depth)

    added = reader(c, "i" if kind == "i8" else "f", line) if c.file == "c" else None

    def run(g: Group) -> None:
        product = np.matmul(matrix(g, a), matrix(g, b).transpose(0, 2, 1))
        if dest.row == c.row and added is None:  # the usual case, without copies
            for r, value in enumerate(by_register(product)):
                row = g.u[dest.row + r].view(number).reshape(value.shape)
                np.add(row, value, out=row, casting="unsafe")
            return
        sums = []
        for r, value in enumerate(by_register(product)):
            addend = g.u[c.row + r].view(number).reshape(value.shape) if added is None else added(g)
            sums.append(value.astype(number, copy=False) + addend)
        for r, total in enumerate(sums):
            g.u[dest.row + r].view(number)[...] = total.reshape(g.count, LANES)

    return Instruction(line, run, rows_of((a, b, c)), dest.rows)


def _with_underscores(name: str) -> str:
    """Return the newer spelling of a name such as ``v_mfma_f32_16x16x16f16``."""
    return re.sub(r"(x\d+)_?(f16|f32|i8|bf16)_?(1k)?$", lambda m: f"{m[1]}_{m[2]}" + (f"_{m[3]}" if m[3] else ""), name)


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(SHAPES, _decode),
    **{re.sub(r"(x\d+)_", r"\1", name): _decode for name in SHAPES},
}
