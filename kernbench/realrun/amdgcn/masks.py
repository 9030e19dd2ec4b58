"""Vector instructions that read or write one bit a lane: compares, selects, carries, the steps of a division."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn import arithmetic as ar
from kernbench.realrun.amdgcn import subdword
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import (
    EXEC_ROWS,
    VCC_ROWS,
    Decoder,
    Instruction,
    operands_of,
    refuse_modifiers,
    rows_of,
)
from kernbench.realrun.amdgcn.operands import Operand, Read, lanes_writer, reader, scalar_row
from kernbench.realrun.amdgcn.state import EXEC, LANES, VCC, Bools, Group, bits_of, pair_of
from kernbench.realrun.amdgcn.vector import base_name

COMPARE: dict[str, Callable[..., Any]] = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ne": np.not_equal, "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b), "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b), "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b), "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b), "nlt": lambda a, b: ~(a < b),
}  # fmt: skip
KINDS = {"i32": "i", "u32": "u", "f32": "f", "i64": "I", "u64": "U", "f16": "h", "u16": "H", "i16": "G", "f64": "d"}


def write_bits(g: Group, row: int, bits: Any) -> None:
    """Write a 64-bit mask; inactive lanes get 0."""
    wide = np.broadcast_to(bits, (g.count, LANES))
    g.s[row : row + 2] = pair_of(wide if g.full else wide & g.mask)
    if row >= EXEC:
        g.refresh_mask()


def read_bits(g: Group, row: int) -> Bools:
    """Read a 64-bit mask as ``bool[wave, lane]``."""
    return bits_of(g.s[row : row + 2])


def _class_of(a: Any) -> Any:
    """Bit number of the class of each floating-point number, as ``v_cmp_class_f32`` and its kin have them."""
    kind, word = np.finfo(a.dtype), {2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    negative = np.signbit(a)
    small = np.abs(a) < kind.smallest_normal
    quiet = a.view(word) >> word(kind.nmant - 1) & word(1) != 0
    order = [np.isnan(a) & ~quiet, np.isnan(a), np.isinf(a), a == 0, small]
    place = np.select(order, [0, 1, np.where(negative, 2, 9), np.where(negative, 5, 6), np.where(negative, 4, 7)], 0)
    normal = ~np.isnan(a) & ~np.isinf(a) & ~small
    return np.where(normal, np.where(negative, 3, 8), place).astype(np.uint32)


def _decode_compare(line: Line) -> Instruction:
    base = base_name(line.mnemonic)
    to_exec = base.startswith("v_cmpx_")
    name, kind_name = base.removeprefix("v_cmpx_").removeprefix("v_cmp_").rsplit("_", 1)
    is_subdword = line.mnemonic.endswith("_sdwa")
    refuse_modifiers(line, subdword.MODIFIERS if is_subdword else ())
    dest, *sources = operands_of(line, 3)
    row = scalar_row(dest, line, 2)
    rows = dest.rows | (EXEC_ROWS if to_exec else frozenset())
    if name == "class":
        number, wanted = reader(sources[0], KINDS[kind_name], line), reader(sources[1], "u", line)
        if is_subdword:
            raise InputError(f"{line.place}: the encoding SDWA is not supported for {base}")
        compute: Read = lambda g: wanted(g) >> _class_of(number(g)) & np.uint32(1) != 0  # noqa: E731
    else:
        compare = COMPARE[name]
        kind = KINDS[kind_name]
        if is_subdword:
            left, right = (subdword.part_reader(line.operands[1 + i], i, kind, line)[1] for i in (0, 1))
        else:
            left, right = (reader(o, kind, line) for o in sources)
        compute = lambda g: compare(left(g), right(g))  # noqa: E731

    def run(g: Group) -> None:
        bits = compute(g)
        write_bits(g, row, bits)
        if to_exec:
            write_bits(g, EXEC, bits)

    return Instruction(line, run, rows_of(sources), rows)


def _decode_select(line: Line) -> Instruction:
    """``v_cndmask_b32``: the second source where the mask has a bit, otherwise the first."""
    is_subdword = line.mnemonic.endswith("_sdwa")
    refuse_modifiers(line, subdword.MODIFIERS if is_subdword else ())
    dest, no, yes, mask = _with_vcc(line, 4)
    kept: frozenset[int] = frozenset()
    if is_subdword:
        otherwise, chosen = (subdword.part_reader(line.operands[1 + i], i, "u", line)[1] for i in (0, 1))
        write = subdword.part_writer(dest, line)
        kept = dest.rows if line.modifiers.get("dst_unused") == "UNUSED_PRESERVE" else kept
    else:
        otherwise, chosen, write = reader(no, "u", line), reader(yes, "u", line), lanes_writer(dest, "u", line)
    row = scalar_row(mask, line, 2)
    return Instruction(
        line,
        lambda g: write(g, np.where(read_bits(g, row), chosen(g), otherwise(g))),
        rows_of((no, yes, mask)) | kept,
        dest.rows,
    )


def _with_vcc(line: Line, count: int) -> list[Operand]:
    found = operands_of(line, count - (not line.mnemonic.endswith("_e64")), count)
    return found if len(found) == count else [*found, Operand("s", VCC, 2, "vcc")]


def _decode_carry(line: Line) -> Instruction:
    """``v_add_co_u32`` and its kin: a result, a carry out, and for some a carry in."""
    base = base_name(line.mnemonic)
    refuse_modifiers(line)
    takes = base.startswith(("v_addc", "v_subb"))
    dest, out, *sources = operands_of(line, 4 + takes)
    row, carry = scalar_row(out, line, 2), scalar_row(sources[2], line, 2) if takes else 0
    left, right = (reader(o, "u", line) for o in sources[:2])
    if "rev" in base:
        left, right = right, left
    adds, write = base.startswith("v_add"), lanes_writer(dest, "u", line)

    def run(g: Group) -> None:
        a, b = left(g).astype(np.uint64), right(g).astype(np.uint64)
        if takes:
            b = b + read_bits(g, carry)
        total = a + b if adds else a - b
        write(g, total.astype(np.uint32))
        write_bits(g, row, total >> np.uint64(32) != 0)

    return Instruction(line, run, rows_of(sources), dest.rows | out.rows)


def _decode_wide_multiply(line: Line) -> Instruction:
    """``v_mad_u64_u32`` and ``v_mad_i64_i32``: 32 x 32 + 64 bits, and a carry."""
    kinds = "uuU" if "u64" in line.mnemonic else "iiI"
    refuse_modifiers(line)
    dest, out, *sources = operands_of(line, 5)
    row, write = scalar_row(out, line, 2), lanes_writer(dest, kinds[2], line)
    left, right, added = (reader(o, kind, line) for o, kind in zip(sources, kinds, strict=True))
    wide = np.uint64 if kinds[0] == "u" else np.int64

    def run(g: Group) -> None:
        base = added(g)
        product = left(g).astype(wide) * right(g).astype(wide)
        total = np.asarray(product + base)
        # The carry is bit 64 of the exact sum: of a signed one its sign.
        alike = (product < 0) == (base < 0)
        carry = total < base if kinds[0] == "u" else np.where(alike, product < 0, total < 0)
        write(g, total)
        write_bits(g, row, carry)

    return Instruction(line, run, rows_of(sources), dest.rows | out.rows)


def _decode_division_scale(line: Line) -> Instruction:
    refuse_modifiers(line)
    dest, out, *sources = operands_of(line, 5)
    row, write = scalar_row(out, line, 2), lanes_writer(dest, "f", line)
    scaled, below, above = (reader(o, "f", line) for o in sources)

    def run(g: Group) -> None:
        value, flag = ar.scale_for_division(scaled(g), below(g), above(g))
        write(g, value)
        write_bits(g, row, flag)

    return Instruction(line, run, rows_of(sources), dest.rows | out.rows)


def _decode_division_step(line: Line) -> Instruction:
    refuse_modifiers(line)
    dest, *sources = operands_of(line, 4)
    first, second, third = (reader(o, "f", line) for o in sources)
    write = lanes_writer(dest, "f", line)

    def run(g: Group) -> None:
        write(g, ar.fma_for_division(first(g), second(g), third(g), read_bits(g, VCC)))

    return Instruction(line, run, rows_of(sources) | VCC_ROWS, dest.rows)


_INTEGER = ("lt", "eq", "le", "gt", "ne", "ge")
DECODERS: dict[str, Decoder] = {
    **{
        f"v_cmp{x}_{name}_{kind}": _decode_compare
        for x in ("", "x")
        for kind, letter in KINDS.items()
        for name in COMPARE
        if (letter in "fhd" and name != "ne") or (letter not in "fhd" and name in _INTEGER)
    },
    **{f"v_cmp{x}_class_{kind}": _decode_compare for x in ("", "x") for kind in ("f16", "f32", "f64")},
    "v_cndmask_b32": _decode_select,
    **{
        f"v_{name}_u32": _decode_carry for name in ("add_co", "sub_co", "subrev_co", "addc_co", "subb_co", "subbrev_co")
    },
    "v_mad_u64_u32": _decode_wide_multiply,
    "v_mad_i64_i32": _decode_wide_multiply,
    "v_div_scale_f32": _decode_division_scale,
    "v_div_fmas_f32": _decode_division_step,
}
