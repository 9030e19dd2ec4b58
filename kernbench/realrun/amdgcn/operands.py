"""Turns the operands of an instruction into functions that read and write them.

A type letter says how an operand's bits are taken: ``u`` uint32, ``i`` int32, ``f`` float32, ``h`` float16 and ``H``
uint16 in the low half, ``U`` uint64, ``I`` int64, ``d`` float64 (a pair of registers).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.state import AGPR, NAMED_SCALARS, Group

Read = Callable[[Group], Any]
DTYPES: dict[str, type] = {
    "u": np.uint32, "i": np.int32, "f": np.float32, "h": np.float16, "H": np.uint16, "G": np.int16,
    "U": np.uint64, "I": np.int64, "d": np.float64,
}  # fmt: skip
WIDE = "UId"
INLINE = (0.0, 0.5, 1.0, 2.0, 4.0, 0.15915494309189532)
"""Numbers, of either sign, that instructions hold without a literal; the last is 1 / (2 pi)."""
SCALAR_ROW = 512
"""Rows of scalars in the numbering of hazards: vector registers come before them."""
_REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])$", re.ASCII)
_WRAPPED = re.compile(r"(neg|abs)\((.*)\)$")


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: a row of registers and how many, or a number."""

    file: str
    """``v`` (vector, accumulation registers included), ``s`` (scalar), ``c`` (constant), ``scc``, ``off``."""
    row: int = 0
    count: int = 1
    text: str = ""
    negate: bool = False
    absolute: bool = False

    @property
    def rows(self) -> frozenset[int]:
        """Registers in the numbering of hazards."""
        if self.file not in ("v", "s"):
            return frozenset()
        first = self.row + (SCALAR_ROW if self.file == "s" else 0)
        return frozenset(range(first, first + self.count))


def parse_operand(text: str, line: Line) -> Operand:
    """Parse one operand of ``line``.

    Raises
    ------
    InputError
        It is neither a register nor a number.
    """
    bare, negate, absolute = text, False, False
    while True:
        if found := _WRAPPED.match(bare):
            negate, absolute = negate or found[1] == "neg", absolute or found[1] == "abs"
            bare = found[2]
        elif len(bare) > 2 and bare[0] == bare[-1] == "|":
            bare, absolute = bare[1:-1], True
        elif bare.startswith("-") and not re.match(r"-[\d.]", bare):
            bare, negate = bare[1:], True
        else:
            break
    if found := _REGISTER.match(bare):
        first, last = int(found[2] or found[3]), int(found[2] or found[4])
        limit = 102 if found[1] == "s" else 256
        if not first <= last < limit:
            raise InputError(f"{line.place}: {bare} is outside the {limit} registers")
        count = last - first + 1
        step = 2 if count == 2 or found[1] != "s" else 4
        if count > 1 and first % step:
            raise InputError(f"{line.place}: {bare}: {count} registers begin at a multiple of {step}")
        row = first + (AGPR if found[1] == "a" else 0)
        return Operand("s" if found[1] == "s" else "v", row, count, bare, negate, absolute)
    name, _, half = bare.partition("_") if bare.endswith(("_lo", "_hi")) else (bare, "", "")
    if bare.endswith(("_lo", "_hi")):
        name, half = bare[:-3], bare[-2:]
    if name in NAMED_SCALARS:
        row = NAMED_SCALARS[name]
        return Operand("s", row + (half == "hi"), 1 if half or name == "m0" else 2, bare, negate, absolute)
    if bare in ("scc", "off"):
        return Operand(bare, text=bare)
    if re.match(r"-?(0x[0-9a-f]+|\d+(\.\d*)?(e[-+]?\d+)?)$", bare, re.ASCII):
        return Operand("c", text=bare, negate=negate, absolute=absolute)
    raise InputError(f"{line.place}: operand {text!r} is not understood")


def constant(text: str, kind: str) -> Any:
    """Return a number of the text as type ``kind``, as the hardware extends it.

    >>> hex(constant("1.0", "u")), hex(constant("-1", "U")), float(constant("0x3f800000", "f"))
    ('0x3f800000', '0xffffffffffffffff', 1.0)

    Raises
    ------
    ValueError
        The number needs more bits than an instruction holds.
    """
    if "." in text or ("e" in text and not text.startswith(("0x", "-0x"))):
        number = float(text)
        if kind == "d":  # all but the inline numbers keep only their high half
            whole = np.float64(number).view(np.uint64)
            return np.float64(number) if abs(number) in INLINE else (whole >> 32 << 32).view(np.float64)
        if kind in "hHG":
            return np.frombuffer(struct.pack("<e", number), DTYPES[kind])[0]
        bits = struct.unpack("<I", struct.pack("<f", number))[0]
        return np.float32(number) if kind == "f" else DTYPES[kind](bits if kind != "i" else bits - (bits >> 31 << 32))
    bits = int(text, 0)
    size = 2 if kind in "hHG" else 4
    if not -(2 ** (8 * size - 1)) <= bits < 2 ** (8 * size):
        raise ValueError(f"{text} has more than {8 * size} bits")
    if kind == "d":  # a literal is the high half; a small integer is taken as it is
        return np.frombuffer(struct.pack("<Q", (bits if -16 <= bits <= 64 else bits << 32) % 2**64), np.float64)[0]
    wide = kind in WIDE
    if wide and "x" in text and 2**31 <= bits < 2**32 and kind == "I":
        bits -= 2**32
    size = 8 if wide else size
    return np.frombuffer((bits % 2 ** (8 * size)).to_bytes(size, "little"), DTYPES[kind])[0]


def read_words(operand: Operand, offset: int = 0) -> Read:
    """Return a reader of one 32-bit word of a register operand, ready to meet arrays ``[wave, lane]``.

    Raises
    ------
    ValueError
        It is no register without a sign, or has not as many words.
    """
    if operand.file not in ("v", "s") or operand.negate or operand.absolute or offset >= operand.count:
        raise ValueError(f"{operand.text} is not a register" + " of two words" * offset)
    row = operand.row + offset
    if operand.file == "v":
        return lambda g: g.u[row]
    return lambda g: g.su[row]


def reader(operand: Operand, kind: str, line: Line) -> Read:
    """Return a function that reads an operand as type ``kind``, with its sign modifiers.

    The result is a number, an array ``[wave, 1]`` for a scalar register or ``[wave, lane]`` for a vector register.
    """
    read = _plain_reader(operand, kind, line)
    if operand.file == "c" and (operand.negate or operand.absolute):
        value = read(None)  # type: ignore[arg-type]
        value = abs(value) if operand.absolute else value
        value = -value if operand.negate else value
        return lambda g: value
    if not (operand.negate or operand.absolute):
        return read
    if kind not in "fhd":
        raise InputError(f"{line.place}: {operand.text} has a sign modifier, and is not a floating-point number")
    if operand.absolute and operand.negate:
        return lambda g: -np.abs(read(g))
    return (lambda g: np.abs(read(g))) if operand.absolute else (lambda g: -read(g))


def _plain_reader(operand: Operand, kind: str, line: Line) -> Read:
    row = operand.row
    if operand.file == "c":
        value = constant(operand.text, kind)
        return lambda g: value
    if operand.file == "scc":
        return lambda g: g.scc.astype(np.uint32)[:, None]
    if operand.file == "off":
        raise InputError(f"{line.place}: 'off' where a value is needed")
    if kind in WIDE:
        if operand.count != 2:
            raise InputError(f"{line.place}: {operand.text} must be a pair of registers")
        low, high, dtype = *(read_words(Operand(operand.file, row + i)) for i in (0, 1)), DTYPES[kind]
        return lambda g: join(low(g), high(g)).view(dtype)
    if operand.count != 1:
        raise InputError(f"{line.place}: {operand.text} must be one register")
    if kind in "hHG":
        word, dtype = read_words(Operand(operand.file, row)), DTYPES[kind]
        return lambda g: word(g).astype(np.uint16).view(dtype)
    if operand.file == "v":
        return {"u": lambda g: g.u[row], "i": lambda g: g.i[row], "f": lambda g: g.f[row]}[kind]
    return {"u": lambda g: g.su[row], "i": lambda g: g.si[row], "f": lambda g: g.sf[row]}[kind]


def join(low: Any, high: Any) -> Any:
    """Make uint64 of two uint32 words."""
    out = np.empty(np.broadcast_shapes(np.shape(low), np.shape(high)), np.uint64)
    halves = out.view(np.uint32).reshape(*out.shape, 2)
    halves[..., 0] = low
    halves[..., 1] = high
    return out


def lanes_writer(operand: Operand, kind: str, line: Line) -> Callable[[Group, Any], None]:
    """Return a function that writes ``[wave, lane]`` values of type ``kind`` to active lanes of a vector register."""
    row = operand.row
    if operand.file != "v" or operand.negate or operand.absolute:
        raise InputError(f"{line.place}: {operand.text} cannot be written by lanes")
    if kind in WIDE:
        if operand.count != 2:
            raise InputError(f"{line.place}: {operand.text} must be a pair of registers")

        def write_pair(g: Group, value: Any) -> None:
            halves = np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2)
            np.copyto(g.u[row], halves[..., 0], where=g.lanes())
            np.copyto(g.u[row + 1], halves[..., 1], where=g.lanes())

        return write_pair
    if operand.count != 1:
        raise InputError(f"{line.place}: {operand.text} must be one register")
    if kind in "hHG":
        return lambda g, value: np.copyto(g.u[row], value.view(np.uint16), where=g.lanes())
    if kind == "f":
        return lambda g, value: np.copyto(g.f[row], value, where=g.lanes())
    if kind == "i":
        return lambda g, value: np.copyto(g.i[row], value, where=g.lanes())
    return lambda g, value: np.copyto(g.u[row], value, where=g.lanes(), casting="unsafe")


def scalar_row(operand: Operand, line: Line, count: int = 1) -> int:
    """Return the row of a scalar destination of ``count`` registers."""
    if operand.file != "s" or operand.count != count or operand.negate or operand.absolute:
        raise InputError(f"{line.place}: {operand.text} is not {count} scalar register{'s' * (count > 1)}")
    return operand.row
