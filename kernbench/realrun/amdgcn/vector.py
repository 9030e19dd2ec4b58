"""Vector instructions: a table of those that compute lane by lane, and the decoders that read it.

A row of the table is the type of the result, the types of the sources (see :mod:`~.operands`), and the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn import arithmetic as ar
from kernbench.realrun.amdgcn import subdword
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction, Run, operands_of, refuse_modifiers, rows_of
from kernbench.realrun.amdgcn.integers import (
    count_bits,
    field,
    first_bit,
    high_product,
    leading_signs,
    leading_zeros,
    reverse,
)
from kernbench.realrun.amdgcn.lanes import DPP_MODIFIERS, dpp_reader, vector_row
from kernbench.realrun.amdgcn.operands import DTYPES, Operand, Read, join, lanes_writer, parse_operand, reader
from kernbench.realrun.amdgcn.state import LANES, Group

Row = tuple[str, str, Callable[..., Any]]
U8, U31 = np.uint32(0xFF), np.uint32(31)
LOW24 = np.uint32(0xFFFFFF)


def _shift(function: Callable[..., Any], bits: int) -> Callable[..., Any]:
    """Reversed operands, as the hardware has them: the amount comes first."""
    mask = np.uint32(bits - 1)
    return lambda n, a: function(a, (n & mask).astype(a.dtype))


def _signed24(a: Any) -> Any:
    return np.right_shift(np.left_shift(a, np.int32(8)), np.int32(8))


def _median(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _align(bits: int) -> Callable[..., Any]:
    def shift(a: Any, b: Any, n: Any) -> Any:
        amount = (n & (U31 if bits == 1 else np.uint32(3))).astype(np.uint64) * np.uint64(bits)
        return (join(b, a) >> amount).astype(np.uint32)

    return shift


def _lane_count(word: int) -> Callable[..., Any]:
    """``v_mbcnt``: count mask bits of the lanes below one's own in one half of the wave."""
    below = np.clip(np.arange(LANES) - 32 * word, 0, 32)
    masks = ((np.uint64(1) << below.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    return lambda mask, base: (
        count_bits(np.broadcast_to(mask, np.broadcast_shapes(np.shape(mask), (LANES,))) & masks) + base
    )


def _float_fraction(a: Any) -> Any:
    return np.minimum(a - np.floor(a), np.nextafter(np.float32(1), np.float32(0)))


def _scale(a: Any, n: Any) -> Any:
    return np.ldexp(a, np.clip(n, -300, 300))


TABLE: dict[str, Row] = {
    "v_mov_b32": ("u", "u", lambda a: a),
    "v_mov_b64": ("U", "U", lambda a: a),
    "v_accvgpr_read_b32": ("u", "u", lambda a: a),
    "v_accvgpr_write_b32": ("u", "u", lambda a: a),
    "v_accvgpr_mov_b32": ("u", "u", lambda a: a),
    "v_not_b32": ("u", "u", np.invert),
    "v_bfrev_b32": ("u", "u", lambda a: reverse(np.asarray(a))),
    "v_ffbh_u32": ("i", "u", leading_zeros),
    "v_ffbh_i32": ("i", "i", leading_signs),
    "v_ffbl_b32": ("i", "u", first_bit),
    "v_bcnt_u32_b32": ("u", "uu", lambda a, b: count_bits(a) + b),
    "v_mbcnt_lo_u32_b32": ("u", "uu", _lane_count(0)),
    "v_mbcnt_hi_u32_b32": ("u", "uu", _lane_count(1)),
    # integers
    "v_add_u32": ("u", "uu", np.add),
    "v_add_i32": ("i", "ii", np.add),
    "v_sub_u32": ("u", "uu", np.subtract),
    "v_sub_i32": ("i", "ii", np.subtract),
    "v_subrev_u32": ("u", "uu", lambda a, b: b - a),
    "v_mul_lo_u32": ("u", "uu", np.multiply),
    "v_mul_hi_u32": ("u", "uu", high_product),
    "v_mul_hi_i32": ("i", "ii", high_product),
    "v_mul_u32_u24": ("u", "uu", lambda a, b: (a & LOW24) * (b & LOW24)),
    "v_mul_i32_i24": ("i", "ii", lambda a, b: _signed24(a) * _signed24(b)),
    "v_mul_hi_u32_u24": ("u", "uu", lambda a, b: high_product(a & LOW24, b & LOW24)),
    "v_mad_u32_u24": ("u", "uuu", lambda a, b, c: (a & LOW24) * (b & LOW24) + c),
    "v_mad_i32_i24": ("i", "iii", lambda a, b, c: _signed24(a) * _signed24(b) + c),
    "v_min_u32": ("u", "uu", np.minimum),
    "v_max_u32": ("u", "uu", np.maximum),
    "v_min_i32": ("i", "ii", np.minimum),
    "v_max_i32": ("i", "ii", np.maximum),
    "v_min3_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_min3_i32": ("i", "iii", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_med3_i32": ("i", "iii", _median),
    "v_med3_u32": ("u", "uuu", _median),
    "v_sad_u32": ("u", "uuu", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c),
    "v_add3_u32": ("u", "uuu", lambda a, b, c: a + b + c),
    "v_add_lshl_u32": ("u", "uuu", lambda a, b, n: (a + b) << (n & U31)),
    "v_lshl_add_u32": ("u", "uuu", lambda a, n, b: (a << (n & U31)) + b),
    "v_lshl_or_b32": ("u", "uuu", lambda a, n, b: (a << (n & U31)) | b),
    "v_lshl_add_u64": ("U", "UuU", lambda a, n, b: (a << (n & U31).astype(np.uint64)) + b),
    "v_xad_u32": ("u", "uuu", lambda a, b, c: (a ^ b) + c),
    # bits
    "v_and_b32": ("u", "uu", np.bitwise_and),
    "v_or_b32": ("u", "uu", np.bitwise_or),
    "v_xor_b32": ("u", "uu", np.bitwise_xor),
    "v_xnor_b32": ("u", "uu", lambda a, b: ~(a ^ b)),
    "v_and_or_b32": ("u", "uuu", lambda a, b, c: (a & b) | c),
    "v_or3_b32": ("u", "uuu", lambda a, b, c: a | b | c),
    "v_bfi_b32": ("u", "uuu", lambda a, b, c: (a & b) | (~a & c)),
    "v_bfm_b32": ("u", "uu", lambda w, at: ((np.uint32(1) << (w & U31)) - np.uint32(1)) << (at & U31)),
    "v_bfe_u32": ("u", "uuu", lambda a, at, w: field(np.asarray(a), (at & U31) | (w & U31) << np.uint32(16))),
    "v_bfe_i32": ("i", "iuu", lambda a, at, w: field(np.asarray(a), (at & U31) | (w & U31) << np.uint32(16))),
    "v_lshlrev_b32": ("u", "uu", _shift(np.left_shift, 32)),
    "v_lshrrev_b32": ("u", "uu", _shift(np.right_shift, 32)),
    "v_ashrrev_i32": ("i", "ui", _shift(np.right_shift, 32)),
    "v_lshlrev_b64": ("U", "uU", _shift(np.left_shift, 64)),
    "v_lshrrev_b64": ("U", "uU", _shift(np.right_shift, 64)),
    "v_ashrrev_i64": ("I", "uI", _shift(np.right_shift, 64)),
    "v_alignbit_b32": ("u", "uuu", _align(1)),
    "v_alignbyte_b32": ("u", "uuu", _align(8)),
    "v_perm_b32": ("u", "uuu", ar.permute_bytes),
    # 16 bits
    "v_add_u16": ("H", "HH", np.add),
    "v_sub_u16": ("H", "HH", np.subtract),
    "v_mul_lo_u16": ("H", "HH", np.multiply),
    "v_lshlrev_b16": ("H", "HH", lambda n, a: a << (n & np.uint16(15))),
    "v_lshrrev_b16": ("H", "HH", lambda n, a: a >> (n & np.uint16(15))),
    "v_ashrrev_i16": ("G", "HG", lambda n, a: a >> (n & np.uint16(15)).astype(np.int16)),
    "v_min_u16": ("H", "HH", np.minimum),
    "v_max_u16": ("H", "HH", np.maximum),
    "v_pack_b32_f16": ("u", "HH", lambda a, b: a.astype(np.uint32) | b.astype(np.uint32) << np.uint32(16)),
    # float16
    "v_add_f16": ("h", "hh", np.add),
    "v_sub_f16": ("h", "hh", np.subtract),
    "v_mul_f16": ("h", "hh", np.multiply),
    "v_max_f16": ("h", "hh", ar.maximum),
    "v_min_f16": ("h", "hh", ar.minimum),
    # float32
    "v_add_f32": ("f", "ff", np.add),
    "v_sub_f32": ("f", "ff", np.subtract),
    "v_subrev_f32": ("f", "ff", lambda a, b: b - a),
    "v_mul_f32": ("f", "ff", np.multiply),
    "v_mul_legacy_f32": ("f", "ff", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)),
    "v_max_f32": ("f", "ff", ar.maximum),
    "v_min_f32": ("f", "ff", ar.minimum),
    "v_max3_f32": ("f", "fff", lambda a, b, c: ar.maximum(ar.maximum(a, b), c)),
    "v_min3_f32": ("f", "fff", lambda a, b, c: ar.minimum(ar.minimum(a, b), c)),
    "v_med3_f32": ("f", "fff", ar.median),
    "v_fma_f32": ("f", "fff", ar.fma),
    "v_fmaak_f32": ("f", "fff", ar.fma),
    "v_fmamk_f32": ("f", "fff", ar.fma),
    "v_div_fixup_f32": ("f", "fff", ar.fix_division),
    "v_maximum3_f32": ("f", "fff", lambda a, b, c: ar.ieee_maximum(ar.ieee_maximum(a, b), c)),
    "v_minimum3_f32": ("f", "fff", lambda a, b, c: ar.ieee_minimum(ar.ieee_minimum(a, b), c)),
    "v_ldexp_f32": ("f", "fi", _scale),
    "v_frexp_mant_f32": ("f", "f", lambda a: np.frexp(a)[0]),
    "v_frexp_exp_i32_f32": ("i", "f", lambda a: np.frexp(a)[1].astype(np.int32)),
    "v_fract_f32": ("f", "f", _float_fraction),
    "v_trunc_f32": ("f", "f", np.trunc),
    "v_floor_f32": ("f", "f", np.floor),
    "v_ceil_f32": ("f", "f", np.ceil),
    "v_rndne_f32": ("f", "f", np.rint),
    "v_exp_f32": ("f", "f", ar.exp2),
    "v_log_f32": ("f", "f", ar.log2),
    "v_rcp_f32": ("f", "f", ar.reciprocal),
    "v_rcp_iflag_f32": ("f", "f", ar.reciprocal),
    "v_rsq_f32": ("f", "f", ar.inverse_root),
    "v_sqrt_f32": ("f", "f", lambda a: np.sqrt(ar.flush(a))),
    # float64
    "v_add_f64": ("d", "dd", np.add),
    "v_mul_f64": ("d", "dd", np.multiply),
    "v_max_f64": ("d", "dd", ar.maximum),
    "v_min_f64": ("d", "dd", ar.minimum),
    # conversions between plain numbers
    "v_cvt_f32_u32": ("f", "u", lambda a: a.astype(np.float32)),
    "v_cvt_f32_i32": ("f", "i", lambda a: a.astype(np.float32)),
    "v_cvt_u32_f32": ("u", "f", lambda a: ar.to_integer(a, np.uint32)),
    "v_cvt_i32_f32": ("i", "f", lambda a: ar.to_integer(a, np.int32)),
    "v_cvt_f16_f32": ("h", "f", lambda a: a.astype(np.float16)),
    "v_cvt_f16_i16": ("h", "G", lambda a: a.astype(np.float16)),
    "v_cvt_f16_u16": ("h", "H", lambda a: a.astype(np.float16)),
    "v_cvt_f32_f16": ("f", "h", lambda a: a.astype(np.float32)),
    "v_cvt_i32_f64": ("i", "d", lambda a: ar.to_integer(a, np.int32)),
    "v_cvt_u32_f64": ("u", "d", lambda a: ar.to_integer(a, np.uint32)),
    "v_cvt_f64_f32": ("d", "f", lambda a: a.astype(np.float64)),
    "v_cvt_f32_f64": ("f", "d", lambda a: a.astype(np.float32)),
    "v_cvt_f64_i32": ("d", "i", lambda a: a.astype(np.float64)),
    "v_cvt_f64_u32": ("d", "u", lambda a: a.astype(np.float64)),
    **{
        f"v_cvt_f32_ubyte{n}": ("f", "u", lambda a, n=n: (a >> np.uint32(8 * n) & U8).astype(np.float32))
        for n in range(4)
    },
}
ACCUMULATING: dict[str, Row] = {
    "v_fmac_f32": ("f", "fff", ar.fma),
}
"""The destination is the last source."""
SATURATING: dict[str, Callable[..., Any]] = {
    "v_add_u32": lambda a, b: a + np.minimum(b, ~a),
    "v_sub_u32": lambda a, b: a - np.minimum(a, b),
    "v_subrev_u32": lambda a, b: b - np.minimum(a, b),
}
"""What these do with ``clamp``: they stop at the ends of the unsigned range."""


def base_name(mnemonic: str) -> str:
    """Drop the encoding from a mnemonic: ``v_add_u32_e32`` is ``v_add_u32``."""
    for ending in ("_e32", "_e64_dpp", "_e64", "_dpp", "_sdwa"):
        if mnemonic.endswith(ending):
            return mnemonic.removesuffix(ending)
    return mnemonic


def finish(line: Line, kind: str) -> Callable[[Any], Any] | None:
    """Return what output modifiers do to a result, or None without any."""
    clamp = "clamp" in line.modifiers
    factor = {"2": 2.0, "4": 4.0}.get(line.modifiers.get("mul", ""), 1.0)
    factor = 0.5 if line.modifiers.get("div") == "2" else factor
    if (not clamp and factor == 1.0) or (clamp and base_name(line.mnemonic) in SATURATING):
        return None
    if kind not in "fdh":
        raise InputError(f"{line.place}: clamp of integers is not supported")
    one, scale = DTYPES[kind](1), DTYPES[kind](factor)

    def apply(value: Any) -> Any:
        value = value if factor == 1.0 else value * scale
        return np.fmin(np.fmax(value, DTYPES[kind](0)), one) if clamp else value

    return apply


def half_reader(operand: Operand, kind: str, high: bool, line: Line) -> Read:
    """Return a reader of the low or the high half of a word."""
    if operand.file == "c" or not high:
        return reader(operand, kind, line)
    word = reader(Operand(operand.file, operand.row, operand.count, operand.text), "u", line)
    dtype = DTYPES[kind]
    if operand.absolute:
        raise InputError(f"{line.place}: |x| of a high half is not supported")
    if operand.negate:
        return lambda g: -(word(g) >> np.uint32(16)).astype(np.uint16).view(dtype)
    return lambda g: (word(g) >> np.uint32(16)).astype(np.uint16).view(dtype)


def flags(line: Line, name: str, count: int, default: int) -> list[int]:
    """Return the numbers of a modifier such as ``op_sel:[0,1]``."""
    written = line.modifiers.get(name)
    if written is None:
        return [default] * count
    values = [int(n) for n in written.strip("[]").split(",")]
    return (values + [default] * count)[: max(count, len(values))]


def _decode_table(line: Line) -> Instruction:
    base = base_name(line.mnemonic)
    accumulates = base in ACCUMULATING
    to, kinds, function = ACCUMULATING[base] if accumulates else TABLE[base]
    if line.mnemonic.endswith("_sdwa"):
        return _decode_subdword(line, to, kinds, function)
    if "clamp" in line.modifiers:
        function = SATURATING.get(base, function)
    is_dpp = line.mnemonic.endswith("_dpp")
    refuse_modifiers(line, DPP_MODIFIERS if is_dpp else ("clamp", "mul", "div", "op_sel"))
    dest, *sources = operands_of(line, len(kinds) + (not accumulates))
    if accumulates:
        sources.append(dest)
    halves = flags(line, "op_sel", len(kinds), 0)
    if len(halves) > len(kinds) and halves[len(kinds)]:
        raise InputError(f"{line.place}: writing a high half is not supported")
    if any(high and kind not in "hHG" for high, kind in zip(halves, kinds, strict=False)):
        raise InputError(f"{line.place}: op_sel of a source that is no half")
    reads = [
        half_reader(o, kind, bool(high), line) if kind in "hHG" else reader(o, kind, line)
        for o, kind, high in zip(sources, kinds, halves, strict=False)
    ]
    rows = rows_of(sources)
    if is_dpp:
        reads[0], lanes = dpp_reader(sources[0], kinds[0], line)
        return Instruction(line, _dpp_run(dest, to, function, reads, lanes, line), rows | dest.rows, dest.rows)
    return Instruction(line, _table_run(dest, to, kinds, function, reads, line), rows, dest.rows)


def _decode_subdword(line: Line, to: str, kinds: str, function: Any) -> Instruction:
    refuse_modifiers(line, subdword.MODIFIERS)
    if len(line.operands) != 1 + len(kinds):
        raise InputError(f"{line.place}: has {len(line.operands)} operands, takes {1 + len(kinds)}")
    dest = parse_operand(line.operands[0], line)
    sources = [subdword.part_reader(text, i, kinds[i], line) for i, text in enumerate(line.operands[1:])]
    write, reads = subdword.part_writer(dest, line), [read for _, read in sources]
    kept = dest.rows if line.modifiers.get("dst_unused") == "UNUSED_PRESERVE" else frozenset()
    run: Run = lambda g: write(g, function(*(read(g) for read in reads)))  # noqa: E731
    return Instruction(line, run, rows_of(o for o, _ in sources) | kept, dest.rows)


def _table_run(dest: Operand, to: str, kinds: str, function: Any, reads: list[Read], line: Line) -> Run:
    after, write = finish(line, to), lanes_writer(dest, to, line)
    if isinstance(function, np.ufunc) and to in "uif" and after is None:
        return _in_place_run(dest.row, to, function, reads)
    if after is not None:
        plain = function
        function = lambda *values: after(plain(*values))  # noqa: E731
    if len(reads) == 1:
        first = reads[0]
        return lambda g: write(g, function(first(g)))
    if len(reads) == 2:
        first, second = reads
        return lambda g: write(g, function(first(g), second(g)))
    first, second, third = reads
    return lambda g: write(g, function(first(g), second(g), third(g)))


def _in_place_run(row: int, to: str, function: np.ufunc, reads: list[Read]) -> Run:
    """Let NumPy write straight into the register."""
    name = to
    if len(reads) == 1:
        only = reads[0]
        return lambda g: function(only(g), out=getattr(g, name)[row], where=g.lanes())
    first, second = reads
    return lambda g: function(first(g), second(g), out=getattr(g, name)[row], where=g.lanes())


def _dpp_run(dest: Operand, to: str, function: Any, reads: list[Read], lanes: Read, line: Line) -> Run:
    row, dtype = vector_row(dest, line), DTYPES[to]
    if to not in "uif":
        raise InputError(f"{line.place}: DPP of this type is not supported")

    def run(g: Group) -> None:
        where = lanes(g)
        np.copyto(g.u[row].view(dtype), function(*(read(g) for read in reads)), where=where)

    return run


def _decode_truth_table(line: Line) -> Instruction:
    refuse_modifiers(line, ("bitop3",))
    dest, *sources = operands_of(line, 4)
    table = int(line.modifiers.get("bitop3", "0"), 0)
    first, second, third = (reader(o, "u", line) for o in sources)
    write, kept = lanes_writer(dest, "u", line), np.uint32(0xFFFF if line.mnemonic.endswith("b16") else 0xFFFFFFFF)
    run: Run = lambda g: write(g, ar.truth_table(first(g), second(g), third(g), table) & kept)  # noqa: E731
    return Instruction(line, run, rows_of(sources), dest.rows)


def _decode_swap(line: Line) -> Instruction:
    first, second = operands_of(line, 2)
    a, b = vector_row(first, line), vector_row(second, line)

    def run(g: Group) -> None:
        x, y = g.u[a].copy(), g.u[b].copy()
        np.copyto(g.u[a], y, where=g.lanes())
        np.copyto(g.u[b], x, where=g.lanes())

    return Instruction(line, run, rows_of((first, second)), rows_of((first, second)))


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(TABLE, _decode_table),
    **dict.fromkeys(ACCUMULATING, _decode_table),
    "v_bitop3_b16": _decode_truth_table,
    "v_bitop3_b32": _decode_truth_table,
    "v_swap_b32": _decode_swap,
    "v_nop": lambda line: Instruction(line, lambda g: None),
}
