"""Scalar instructions: arithmetic on registers ``[wave]``, and compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import (
    EXEC_ROWS,
    Decoder,
    Instruction,
    Run,
    operands_of,
    refuse_modifiers,
    rows_of,
)
from kernbench.realrun.amdgcn.integers import (
    count_bits,
    field,
    first_bit,
    high_product,
    leading_signs,
    leading_zeros,
    reverse,
    shift_left,
    shift_right,
)
from kernbench.realrun.amdgcn.operands import DTYPES, WIDE, Operand, Read, constant, join, scalar_row
from kernbench.realrun.amdgcn.state import EXEC, Group

Write = Callable[[Group, Any], None]


def scalar_reader(operand: Operand, kind: str, line: Line) -> Read:
    """Return a function that reads an operand as a number or an array ``[wave]``."""
    row, dtype = operand.row, DTYPES[kind]
    if operand.file == "c" and not (operand.negate or operand.absolute):
        value = constant(operand.text, kind)
        return lambda g: value
    if operand.file == "scc":
        return lambda g: g.scc.astype(np.uint32)
    if operand.file != "s" or operand.negate or operand.absolute:
        raise InputError(f"{line.place}: {operand.text} is not a scalar")
    if kind in WIDE:
        if operand.count != 2:
            raise InputError(f"{line.place}: {operand.text} must be a pair of registers")
        return lambda g: join(g.s[row], g.s[row + 1]).view(dtype)
    if operand.count != 1:
        raise InputError(f"{line.place}: {operand.text} must be one register")
    return lambda g: g.s[row].view(dtype)


def scalar_writer(operand: Operand, kind: str, line: Line) -> Write:
    """Return a function that writes a number or an array ``[wave]`` to a scalar destination."""
    wide = kind in WIDE
    row = scalar_row(operand, line, 2 if wide else 1)
    dtype = DTYPES[kind]

    def write(g: Group, value: Any) -> None:
        if wide:
            halves = np.ascontiguousarray(value, dtype).view(np.uint32).reshape(-1, 2)
            g.s[row], g.s[row + 1] = halves[:, 0], halves[:, 1]
        else:
            g.s[row] = np.asarray(value, dtype).view(np.uint32)
        if row + wide >= EXEC:
            g.refresh_mask()

    return write


PLAIN: dict[str, tuple[str, str, Callable[..., Any], bool]] = {
    "s_mov_b32": ("u", "u", lambda a: a, False),
    "s_mov_b64": ("U", "U", lambda a: a, False),
    "s_movk_i32": ("u", "k", lambda a: a, False),
    "s_not_b32": ("u", "u", np.invert, True),
    "s_not_b64": ("U", "U", np.invert, True),
    "s_brev_b32": ("u", "u", reverse, False),
    "s_brev_b64": ("U", "U", reverse, False),
    "s_bcnt0_i32_b32": ("u", "u", lambda a: count_bits(~a), True),
    "s_bcnt0_i32_b64": ("u", "U", lambda a: count_bits(~a), True),
    "s_bcnt1_i32_b32": ("u", "u", count_bits, True),
    "s_bcnt1_i32_b64": ("u", "U", count_bits, True),
    "s_ff1_i32_b32": ("i", "u", first_bit, False),
    "s_ff1_i32_b64": ("i", "U", first_bit, False),
    "s_flbit_i32_b32": ("i", "u", leading_zeros, False),
    "s_flbit_i32_b64": ("i", "U", leading_zeros, False),
    "s_flbit_i32": ("i", "i", leading_signs, False),
    "s_sext_i32_i8": ("i", "i", lambda a: a.astype(np.int8).astype(np.int32), False),
    "s_sext_i32_i16": ("i", "i", lambda a: a.astype(np.int16).astype(np.int32), False),
    "s_abs_i32": ("i", "i", np.abs, True),
    "s_absdiff_i32": ("i", "ii", lambda a, b: np.abs(a - b), True),
    "s_mul_i32": ("u", "uu", np.multiply, False),
    "s_mul_hi_u32": ("u", "uu", high_product, False),
    "s_mul_hi_i32": ("i", "ii", high_product, False),
    "s_lshl_b32": ("u", "uu", shift_left, True),
    "s_lshl_b64": ("U", "Uu", lambda a, n: shift_left(a, n.astype(np.uint64)), True),
    "s_lshr_b32": ("u", "uu", shift_right, True),
    "s_lshr_b64": ("U", "Uu", shift_right, True),
    "s_ashr_i32": ("i", "iu", shift_right, True),
    "s_ashr_i64": ("I", "Iu", shift_right, True),
    "s_bfe_u32": ("u", "uu", field, True),
    "s_bfe_i32": ("i", "iu", field, True),
    "s_bfe_u64": ("U", "Uu", field, True),
    "s_bfe_i64": ("I", "Iu", field, True),
    "s_bfm_b32": ("u", "uu", lambda w, at: ((np.uint32(1) << (w & 31)) - np.uint32(1)) << (at & 31), False),
    "s_bfm_b64": (
        "U",
        "uu",
        lambda w, at: ((np.uint64(1) << (w & 63).astype(np.uint64)) - np.uint64(1)) << (at & 63).astype(np.uint64),
        False,
    ),
    "s_pack_ll_b32_b16": ("u", "uu", lambda a, b: (a & 0xFFFF) | (b << np.uint32(16)), False),
    "s_pack_lh_b32_b16": ("u", "uu", lambda a, b: (a & 0xFFFF) | (b & np.uint32(0xFFFF0000)), False),
    "s_pack_hh_b32_b16": ("u", "uu", lambda a, b: (a >> np.uint32(16)) | (b & np.uint32(0xFFFF0000)), False),
}
"""By name: type of the result, types of the sources, the function, and whether SCC says that the result is not 0."""
BITWISE: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b),
}  # fmt: skip
for _name, _fn in BITWISE.items():
    PLAIN[f"s_{_name}_b32"] = ("u", "uu", _fn, True)
    PLAIN[f"s_{_name}_b64"] = ("U", "UU", _fn, True)
COMPARE = {
    "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def _decode_plain(line: Line) -> Instruction:
    to, kinds, function, sets_scc = PLAIN[line.mnemonic]
    refuse_modifiers(line)
    dest, *sources = operands_of(line, 1 + len(kinds))
    if kinds == "k":
        value = np.int32(_small(line.operands[1], line)).view(np.uint32)
        reads: list[Read] = [lambda g: value]
    else:
        reads = [scalar_reader(o, kind, line) for o, kind in zip(sources, kinds, strict=True)]
    write = scalar_writer(dest, to, line)
    if len(reads) == 1:
        read = reads[0]
        compute: Read = lambda g: function(read(g))  # noqa: E731
    else:
        left, right = reads
        compute = lambda g: function(left(g), right(g))  # noqa: E731

    def run(g: Group) -> None:
        value = compute(g)
        write(g, value)
        if sets_scc:
            g.scc[...] = value != 0

    return Instruction(line, run, rows_of(sources), dest.rows)


def _small(text: str, line: Line) -> int:
    """Return a 16-bit literal, sign-extended."""
    try:
        bits = int(text, 0)
    except ValueError:
        raise InputError(f"{line.place}: {text!r} is not a 16-bit number") from None
    if not -0x8000 <= bits < 0x10000:
        raise InputError(f"{line.place}: {text!r} has more than 16 bits")
    return (bits + 0x8000) % 0x10000 - 0x8000


def _add_unsigned(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    total = a.astype(np.uint64) + b + carry
    return total.astype(np.uint32), total >> np.uint64(32) != 0


def _subtract_unsigned(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    taken = b.astype(np.uint64) + carry
    return (a.astype(np.uint64) - taken).astype(np.uint32), taken > a


def _add_signed(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    total = a.astype(np.int64) + b
    return total.astype(np.int32), total != total.astype(np.int32)


def _subtract_signed(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    total = a.astype(np.int64) - b
    return total.astype(np.int32), total != total.astype(np.int32)


def _lowest(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    return np.minimum(a, b), a < b


def _highest(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    return np.maximum(a, b), a > b


def _lshl_add(shift: int) -> Callable[..., tuple[Any, Any]]:
    return lambda a, b, carry: _add_unsigned(a.astype(np.uint64) << np.uint64(shift), b, np.uint64(0))


CARRY: dict[str, tuple[str, Callable[..., tuple[Any, Any]], bool]] = {
    "s_add_u32": ("u", _add_unsigned, False),
    "s_addc_u32": ("u", _add_unsigned, True),
    "s_sub_u32": ("u", _subtract_unsigned, False),
    "s_subb_u32": ("u", _subtract_unsigned, True),
    "s_add_i32": ("i", _add_signed, False),
    "s_sub_i32": ("i", _subtract_signed, False),
    "s_min_u32": ("u", _lowest, False),
    "s_min_i32": ("i", _lowest, False),
    "s_max_u32": ("u", _highest, False),
    "s_max_i32": ("i", _highest, False),
    **{f"s_lshl{n}_add_u32": ("u", _lshl_add(n), False) for n in (1, 2, 3, 4)},
}
"""By name: the type, the function that returns the result and SCC, and whether SCC goes in."""


def _decode_carry(line: Line) -> Instruction:
    kind, function, takes_scc = CARRY[line.mnemonic]
    dest, *sources = operands_of(line, 3)
    left, right = (scalar_reader(o, kind, line) for o in sources)
    write = scalar_writer(dest, kind, line)

    def run(g: Group) -> None:
        carry = g.scc.astype(np.uint64) if takes_scc else np.uint64(0)
        value, scc = function(left(g), right(g), carry)
        write(g, value)
        g.scc[...] = scc

    return Instruction(line, run, rows_of(sources), dest.rows)


def _decode_with_literal(line: Line) -> Instruction:
    """``s_addk_i32`` and ``s_mulk_i32``: the destination is a source too."""
    (dest,) = operands_of(replace(line, operands=line.operands[:1]), 1)
    if len(line.operands) != 2:
        raise InputError(f"{line.place}: has {len(line.operands)} operands, takes 2")
    value = np.int32(_small(line.operands[1], line))
    read, write = scalar_reader(dest, "i", line), scalar_writer(dest, "i", line)
    adds = line.mnemonic == "s_addk_i32"

    def run(g: Group) -> None:
        if adds:
            total, g.scc[...] = _add_signed(read(g), value, None)
        else:
            total = read(g) * value
        write(g, total)

    return Instruction(line, run, dest.rows, dest.rows)


def _decode_select(line: Line) -> Instruction:
    kind = "U" if line.mnemonic.endswith("64") else "u"
    dest, *sources = operands_of(line, 3)
    yes, no = (scalar_reader(o, kind, line) for o in sources)
    write = scalar_writer(dest, kind, line)
    return Instruction(line, lambda g: write(g, np.where(g.scc, yes(g), no(g))), rows_of(sources), dest.rows)


def _decode_conditional_move(line: Line) -> Instruction:
    kind = "U" if line.mnemonic.endswith("64") else "u"
    dest, source = operands_of(line, 2)
    new, old, write = (
        scalar_reader(source, kind, line),
        scalar_reader(dest, kind, line),
        scalar_writer(dest, kind, line),
    )
    run: Run = lambda g: write(g, np.where(g.scc, new(g), old(g)))  # noqa: E731
    return Instruction(line, run, source.rows | dest.rows, dest.rows)


def _decode_compare(line: Line) -> Instruction:
    _, _, name, kind = line.mnemonic.split("_")
    compare, letter = COMPARE[name], {"i32": "i", "u32": "u", "u64": "U"}[kind]
    sources = operands_of(line, 2)
    left, right = (scalar_reader(o, letter, line) for o in sources)

    def run(g: Group) -> None:
        g.scc[...] = compare(left(g), right(g))

    return Instruction(line, run, rows_of(sources))


def _decode_compare_literal(line: Line) -> Instruction:
    _, _, name, kind = line.mnemonic.split("_")
    sources = operands_of(line, 2)
    left = scalar_reader(sources[0], kind[0], line)
    small = _small(line.operands[1], line)
    value = np.int32(small) if kind == "i32" else np.uint32(small % 0x10000)
    compare = COMPARE[name]

    def run(g: Group) -> None:
        g.scc[...] = compare(left(g), value)

    return Instruction(line, run, rows_of(sources))


def _decode_bit_compare(line: Line) -> Instruction:
    wanted, kind = int(line.mnemonic[8]), "U" if line.mnemonic.endswith("64") else "u"
    sources = operands_of(line, 2)
    left, at = scalar_reader(sources[0], kind, line), scalar_reader(sources[1], "u", line)

    def run(g: Group) -> None:
        g.scc[...] = (shift_right(left(g), at(g)) & 1) == wanted

    return Instruction(line, run, rows_of(sources))


def _decode_bit_set(line: Line) -> Instruction:
    value, kind = line.mnemonic[8] == "1", "U" if line.mnemonic.endswith("64") else "u"
    dest, source = operands_of(line, 2)
    read, at, write = scalar_reader(dest, kind, line), scalar_reader(source, "u", line), scalar_writer(dest, kind, line)
    one = DTYPES[kind](1)

    def run(g: Group) -> None:
        bit = shift_left(np.broadcast_to(one, g.scc.shape), at(g).astype(DTYPES[kind]))
        write(g, read(g) | bit if value else read(g) & ~bit)

    return Instruction(line, run, source.rows | dest.rows, dest.rows)


def _decode_save_exec(line: Line) -> Instruction:
    """``s_OP_saveexec_b64 D, S``: D = EXEC, EXEC = S op EXEC, SCC = EXEC is not 0."""
    function = SAVE_EXEC[line.mnemonic]
    dest, source = operands_of(line, 2)
    read, write = scalar_reader(source, "U", line), scalar_writer(dest, "U", line)

    def run(g: Group) -> None:
        old = join(g.s[EXEC], g.s[EXEC + 1])
        new = function(read(g), old)
        write(g, old)
        halves = np.ascontiguousarray(new).view(np.uint32).reshape(-1, 2)
        g.s[EXEC], g.s[EXEC + 1] = halves[:, 0], halves[:, 1]
        g.refresh_mask()
        g.scc[...] = new != 0

    return Instruction(line, run, source.rows | EXEC_ROWS, dest.rows | EXEC_ROWS)


SAVE_EXEC = {f"s_{name}_saveexec_b64": fn for name, fn in BITWISE.items()} | {
    "s_andn1_saveexec_b64": lambda a, b: ~a & b,
    "s_orn1_saveexec_b64": lambda a, b: ~a | b,
}


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(PLAIN, _decode_plain),
    **dict.fromkeys(CARRY, _decode_carry),
    **dict.fromkeys(SAVE_EXEC, _decode_save_exec),
    **dict.fromkeys(("s_addk_i32", "s_mulk_i32"), _decode_with_literal),
    **dict.fromkeys(("s_cselect_b32", "s_cselect_b64"), _decode_select),
    **dict.fromkeys(("s_cmov_b32", "s_cmov_b64"), _decode_conditional_move),
    **{f"s_cmp_{name}_{kind}": _decode_compare for name in COMPARE for kind in ("i32", "u32")},
    **{f"s_cmpk_{name}_{kind}": _decode_compare_literal for name in COMPARE for kind in ("i32", "u32")},
    **dict.fromkeys(("s_cmp_eq_u64", "s_cmp_lg_u64"), _decode_compare),
    **{f"s_bitcmp{n}_b{bits}": _decode_bit_compare for n in (0, 1) for bits in (32, 64)},
    **{f"s_bitset{n}_b{bits}": _decode_bit_set for n in (0, 1) for bits in (32, 64)},
}
