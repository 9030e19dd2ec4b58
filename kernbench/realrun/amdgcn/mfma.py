"""Matrix instructions: how lanes hold the operands, and the product.

For a shape M x N x K every lane holds K * M / 64 consecutive elements of one row of A and of one column of B: lane l
has row ``l % M`` and elements from ``(l // M) * (K * M / 64)``. Elements of 8 bits of the ``f8f6f4`` instructions are
held in two parts of 16, half of K apart; those of 6 and of 4 bits are consecutive. Of C and D a lane holds column
``l % N``; register r is row ``4 * (l // 16) + r`` of a 16 x 16 result and row ``8 * (r // 4) + 4 * (l // 32) + r % 4``
of a 32 x 32 one.

A scaled instruction multiplies each 32 elements along K by a power of two: lane l holds, in one byte, that of row
``l % M`` and elements from ``32 * (l // M)``.

The order in which the hardware adds products is not published; here it is NumPy's, in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.formats import values_of
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction, operands_of, refuse_modifiers, rows_of
from kernbench.realrun.amdgcn.operands import Operand, Read, reader
from kernbench.realrun.amdgcn.state import LANES, Group, Words
from kernbench.realrun.amdgcn.vector import flags

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
SHAPES: dict[str, tuple[int, int, str, str]] = {
    **{f"v_mfma_f32_16x16x{k}_{kind}": (16, k, kind, kind) for kind in ("f16", "bf16") for k in (16, 32)},
    **{f"v_mfma_f32_32x32x{k}_{kind}": (32, k, kind, kind) for kind in ("f16", "bf16") for k in (8, 16)},
    "v_mfma_f32_16x16x4_f32": (16, 4, "f32", "f32"),
    "v_mfma_f32_32x32x2_f32": (32, 2, "f32", "f32"),
    **{f"v_mfma_i32_16x16x{k}_i8": (16, k, "i8", "i8") for k in (32, 64)},
    **{f"v_mfma_i32_32x32x{k}_i8": (32, k, "i8", "i8") for k in (16, 32)},
    **{f"v_mfma_f32_16x16x32_{a}_{b}": (16, 32, a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    **{f"v_mfma_f32_32x32x16_{a}_{b}": (32, 16, a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    # as gfx90a spells them
    "v_mfma_f32_16x16x16f16": (16, 16, "f16", "f16"),
    "v_mfma_f32_32x32x8f16": (32, 8, "f16", "f16"),
    "v_mfma_f32_16x16x16bf16_1k": (16, 16, "bf16", "bf16"),
    "v_mfma_f32_32x32x8bf16_1k": (32, 8, "bf16", "bf16"),
    "v_mfma_f32_16x16x4f32": (16, 4, "f32", "f32"),
    "v_mfma_f32_32x32x2f32": (32, 2, "f32", "f32"),
    "v_mfma_i32_16x16x16i8": (16, 16, "i8", "i8"),
    "v_mfma_i32_32x32x8i8": (32, 8, "i8", "i8"),
}
"""By name: M = N, K, and the types of A and B."""
MIXED = {"16x16x128_f8f6f4": (16, 128), "32x32x64_f8f6f4": (32, 64)}
MIXED_KINDS = {0: "fp8", 1: "bf8", 2: "fp6", 3: "bf6", 4: "fp4"}
"""Types of A and B by ``cbsz`` and ``blgp``."""
BLOCK = 32
"""Elements along K that share a scale."""


def by_register(product: Any) -> Iterator[Any]:
    """Yield what each register holds of D ``[wave, row, column]``, as ``[wave, lane // side, lane % side]``."""
    waves, side = product.shape[:2]
    parts = product.reshape(waves, side * side // (4 * LANES), LANES // side, 4, side)
    for r in range(side * side // LANES):
        yield parts[:, r // 4, :, r % 4, :]


def by_row(lanes: Any, side: int) -> Any:
    """Turn ``[wave, lane]`` to ``[wave, row, lane // side]``."""
    return lanes.reshape(len(lanes), LANES // side, side).transpose(0, 2, 1)


def gather(g: Group, operand: Operand, side: int) -> Words:
    """Return the words of an operand as ``[wave, row, lane // side, word]``."""
    packed = np.empty((g.count, side, LANES // side, operand.count), np.uint32)
    for j in range(operand.count):
        packed[..., j] = by_row(g.u[operand.row + j], side)
    return packed


def accumulator(line: Line, dest: Operand, c: Operand, number: type) -> Callable[[Group, Any], None]:
    """Return a function that adds C to a product ``[wave, row, column]`` and writes D."""
    added = reader(c, "i" if number is np.int32 else "f", line) if c.file == "c" else None

    def write(g: Group, product: Any) -> None:
        product = product.astype(number, copy=False)
        if dest.row == c.row and added is None:  # the usual case, without copies
            for r, value in enumerate(by_register(product)):
                row = g.u[dest.row + r].view(number).reshape(value.shape)
                np.add(row, value, out=row)
            return
        sums = []
        for r, value in enumerate(by_register(product)):
            sums.append(value + (g.u[c.row + r].view(number).reshape(value.shape) if added is None else added(g)))
        for r, total in enumerate(sums):
            g.u[dest.row + r].view(number)[...] = total.reshape(g.count, LANES)

    return write


def _check_operands(line: Line, side: int, depth: int, operands: list[Operand], bits: tuple[int, int]) -> None:
    dest, a, b, c = operands
    results, held = side * side // LANES, depth * side // LANES
    wanted = [(dest, results), (a, held * bits[0] // 32), (b, held * bits[1] // 32)]
    if c.file != "c":
        wanted.append((c, results))
    for operand, count in wanted:
        if operand.file != "v" or operand.count != count:
            raise InputError(f"{line.place}: {operand.text} must be {count} vector registers")


def _unpack(kind: str, line: Line) -> tuple[int, Unpack]:
    if kind in UNPACK:
        return UNPACK[kind]
    table = values_of(kind, line.arch)
    if kind == "fp4":
        return 4, lambda words: _nibbles(table, words.view(np.uint8))
    if kind in ("fp6", "bf6"):
        return 6, lambda words: table.take(_six_bits(words.view(np.uint8)))
    return 8, lambda words: table.take(words.view(np.uint8))


def _nibbles(table: Any, octets: Any) -> Any:
    return np.stack([table.take(octets & 15), table.take(octets >> 4)], axis=-1)


def _six_bits(octets: Any) -> Any:
    """Return the codes of 6 bits that lie one behind the other, four in three bytes."""
    three = octets.reshape(*octets.shape[:-1], -1, 3).astype(np.uint32)
    whole = three[..., 0] | three[..., 1] << np.uint32(8) | three[..., 2] << np.uint32(16)
    codes = np.stack([whole >> np.uint32(6 * i) & np.uint32(63) for i in range(4)], axis=-1)
    return codes.reshape(*octets.shape[:-1], -1)


def _decode(line: Line) -> Instruction:
    side, depth, a_kind, b_kind = SHAPES[line.mnemonic.removesuffix("_e64")]
    refuse_modifiers(line, ("cbsz", "abid", "blgp"))
    for name in ("cbsz", "abid", "blgp"):
        if int(line.modifiers.get(name, "0"), 0):
            raise InputError(f"{line.place}: modifier {name!r} is not supported for {line.mnemonic}")
    operands = operands_of(line, 4)
    (a_bits, a_unpack), (b_bits, b_unpack) = _unpack(a_kind, line), _unpack(b_kind, line)
    _check_operands(line, side, depth, operands, (a_bits, b_bits))
    dest, a, b, c = operands
    write = accumulator(line, dest, c, np.int32 if a_kind == "i8" else np.float32)

    def run(g: Group) -> None:
        left = a_unpack(gather(g, a, side)).reshape(g.count, side, depth)
        right = b_unpack(gather(g, b, side)).reshape(g.count, side, depth)
        write(g, np.matmul(left, right.transpose(0, 2, 1)))

    return Instruction(line, run, rows_of((a, b, c)), dest.rows)


def _mixed_reader(line: Line, operand: Operand, kind: str, side: int, depth: int) -> Read:
    """Return a reader of an operand of an ``f8f6f4`` instruction as ``[wave, row, k]``."""
    bits, unpack = _unpack(kind, line)
    groups = LANES // side

    def read(g: Group) -> Any:
        values = unpack(gather(g, operand, side))
        if bits == 8:
            values = values.reshape(g.count, side, groups, 2, 16).transpose(0, 1, 3, 2, 4)
        return values.reshape(g.count, side, depth)

    return read


def _scale_reader(line: Line, operand: Operand, byte: int, side: int) -> Read:
    """Return a reader of scales as ``[wave, row, k]``; E8M0 bytes are exponents with a bias of 127, 255 is NaN."""
    word, shift = reader(operand, "u", line), np.uint32(8 * byte)

    def read(g: Group) -> Any:
        octets = np.broadcast_to(word(g) >> shift & np.uint32(255), (g.count, LANES))
        powers = np.where(octets == 255, np.float32(np.nan), np.ldexp(np.float32(1), octets.astype(np.int32) - 127))
        return np.repeat(by_row(powers, side), BLOCK, axis=2)

    return read


def _decode_mixed(line: Line) -> Instruction:
    """``v_mfma_f32_*_f8f6f4`` and ``v_mfma_scale_f32_*_f8f6f4``: A and B of formats of their own."""
    scaled = "_scale_" in line.mnemonic
    side, depth = MIXED[line.mnemonic.removesuffix("_e64").split("_f32_")[1]]
    refuse_modifiers(line, ("cbsz", "blgp", "op_sel", "op_sel_hi") if scaled else ("cbsz", "blgp"))
    kinds = []
    for name in ("cbsz", "blgp"):
        number = int(line.modifiers.get(name, "0"), 0)
        if number not in MIXED_KINDS:
            raise InputError(f"{line.place}: {name}:{number} is no format; {MIXED_KINDS} are")
        kinds.append(MIXED_KINDS[number])
    operands = operands_of(line, 6 if scaled else 4)
    bits = tuple(_unpack(kind, line)[0] for kind in kinds)
    _check_operands(line, side, depth, operands[:4], (bits[0], bits[1]))
    dest, a, b, c, *scales = operands
    left, right = (_mixed_reader(line, o, kind, side, depth) for o, kind in zip((a, b), kinds, strict=True))
    low, high = flags(line, "op_sel", 2, 0), flags(line, "op_sel_hi", 2, 0)
    factors = [_scale_reader(line, o, low[i] + 2 * high[i], side) for i, o in enumerate(scales)]
    write = accumulator(line, dest, c, np.float32)

    def run(g: Group) -> None:
        sides = [left(g), right(g)]
        if factors:
            sides = [x * factor(g) for x, factor in zip(sides, factors, strict=True)]
        write(g, np.matmul(sides[0], sides[1].transpose(0, 2, 1)))

    return Instruction(line, run, rows_of((a, b, c, *scales)), dest.rows)


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(SHAPES, _decode),
    **{f"v_mfma_{scale}f32_{shape}": _decode_mixed for scale in ("", "scale_") for shape in MIXED},
}
