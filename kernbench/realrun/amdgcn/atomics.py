"""Atomic instructions on global memory, buffers and LDS.

Lanes that share a word take their turns in the order of waves and lanes. The hardware's order is not known; sums of
integers do not depend on it, those of floating-point numbers do in the last places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.errors import KernelError
from kernbench.realrun.amdgcn import arithmetic as ar
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.formats import from_bfloat, to_bfloat
from kernbench.realrun.amdgcn.instruction import (
    Decoder,
    Instruction,
    immediate,
    operands_of,
    refuse_modifiers,
    rows_of,
)
from kernbench.realrun.amdgcn.lanes import vector_row, vector_words
from kernbench.realrun.amdgcn.memory import CACHE, buffer_address, check_local, global_address, lds_address
from kernbench.realrun.amdgcn.operands import Operand
from kernbench.realrun.amdgcn.state import LANES, Bools, Group

Update = Callable[..., Any]
SIGNED = {4: np.int32, 8: np.int64}
UNSIGNED = {4: np.uint32, 8: np.uint64}
FLOATS = {4: np.float32, 8: np.float64}


def _on(kinds: dict[int, Any], function: Update) -> Update:
    """Take the bits of a word as another type of its size."""

    def update(*words: Any) -> Any:
        kind = kinds[words[0].dtype.itemsize]
        return np.asarray(function(*(w.view(kind) for w in words)), kind).view(words[0].dtype)

    return update


def _add_halves(old: Any, data: Any) -> Any:
    return (old.view(np.float16) + data.view(np.float16)).view(np.uint32)


def _add_brain_floats(old: Any, data: Any) -> Any:
    halves = [from_bfloat(x.view(np.uint16).astype(np.uint32)) for x in (old, data)]
    return to_bfloat(halves[0] + halves[1]).astype(np.uint16).view(np.uint32)


def _increment(old: Any, limit: Any) -> Any:
    return np.where(old >= limit, 0, old + 1)


def _decrement(old: Any, limit: Any) -> Any:
    return np.where((old == 0) | (old > limit), limit, old - 1)


INTEGER: dict[str, Update] = {
    "add": _on(UNSIGNED, np.add), "sub": _on(UNSIGNED, np.subtract),
    "smin": _on(SIGNED, np.minimum), "smax": _on(SIGNED, np.maximum),
    "umin": _on(UNSIGNED, np.minimum), "umax": _on(UNSIGNED, np.maximum),
    "and": _on(UNSIGNED, np.bitwise_and), "or": _on(UNSIGNED, np.bitwise_or), "xor": _on(UNSIGNED, np.bitwise_xor),
    "inc": _on(UNSIGNED, _increment), "dec": _on(UNSIGNED, _decrement),
    "swap": lambda old, data: data,
    "cmpswap": lambda old, new, wanted: np.where(old == wanted, new, old),
}  # fmt: skip
"""The new word from the old one and the data; ``cmpswap`` has two words of data, the new one first."""
FLOATING: dict[str, tuple[Update, int]] = {
    "add_f32": (_on(FLOATS, np.add), 4), "add_f64": (_on(FLOATS, np.add), 8),
    "min_f64": (_on(FLOATS, ar.minimum), 8), "max_f64": (_on(FLOATS, ar.maximum), 8),
    "pk_add_f16": (_add_halves, 4), "pk_add_bf16": (_add_brain_floats, 4),
}  # fmt: skip
GLOBAL: dict[str, tuple[Update, int]] = {
    **{name: (function, 4) for name, function in INTEGER.items()},
    **{f"{name}_x2": (function, 8) for name, function in INTEGER.items()},
    **FLOATING,
}
"""By what follows ``global_atomic_``: the function and the bytes of a word."""
_LOCAL_INTEGER = {
    "add_u": INTEGER["add"], "sub_u": INTEGER["sub"], "rsub_u": _on(UNSIGNED, lambda old, data: data - old),
    "inc_u": INTEGER["inc"], "dec_u": INTEGER["dec"], "min_i": INTEGER["smin"], "max_i": INTEGER["smax"],
    "min_u": INTEGER["umin"], "max_u": INTEGER["umax"], "and_b": INTEGER["and"], "or_b": INTEGER["or"],
    "xor_b": INTEGER["xor"],
    "cmpst_b": lambda old, wanted, new: np.where(old == wanted, new, old),
    "min_f": _on(FLOATS, ar.minimum), "max_f": _on(FLOATS, ar.maximum), "add_f": _on(FLOATS, np.add),
}  # fmt: skip
LOCAL: dict[str, tuple[Update, int]] = {
    **{f"{name}{8 * size}": (function, size) for name, function in _LOCAL_INTEGER.items() for size in (4, 8)},
    "pk_add_f16": (_add_halves, 4), "pk_add_bf16": (_add_brain_floats, 4),
}  # fmt: skip
"""By what follows ``ds_``, without ``rtn``. The comparison of ``cmpst`` comes first."""


def update_words(words: NDArray[Any], index: NDArray[np.int64], data: list[Any], function: Update) -> Any:
    """Update words one lane after another; return the words that each lane met."""
    old = np.empty_like(data[0])
    order = np.argsort(index, kind="stable")
    ranked, turns = index[order], np.arange(len(index))
    starts = np.concatenate([[True], ranked[1:] != ranked[:-1]])
    turns -= np.maximum.accumulate(np.where(starts, turns, 0))
    for turn in range(int(turns.max(initial=-1)) + 1):
        lanes = order[turns == turn]
        old[lanes] = words[index[lanes]]
        words[index[lanes]] = function(old[lanes], *(d[lanes] for d in data))
    return old


def _data(g: Group, row: int, size: int, count: int) -> list[Any]:
    """Return ``count`` words of ``size`` bytes from consecutive registers, as ``[wave, lane]``."""
    registers = [g.u[row + i] for i in range(count * size // 4)]
    if size == 4:
        return registers
    pairs = zip(registers[0::2], registers[1::2], strict=True)
    return [low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32) for low, high in pairs]


def _place(g: Group, row: int, old: Any, active: Bools) -> None:
    """Write words that lanes met to registers."""
    for i in range(old.dtype.itemsize // 4):
        np.copyto(g.u[row + i], (old >> old.dtype.type(32 * i)).astype(np.uint32), where=active)


def _refuse_unaligned(at: Any, active: Bools, size: int, line: Line) -> None:
    bad = active & (at % at.dtype.type(size) != 0)
    if bad.any():
        wave, lane = (int(n) for n in np.argwhere(bad)[0])
        raise KernelError(f"{line.place}: lane {lane} updates {size} bytes at {int(at[wave, lane]):#x}, no multiple")


def _update_memory(
    g: Group, line: Line, at: Any, active: Bools, data: tuple[int, int, int], function: Update, dest: int | None
) -> None:
    """Update global memory at each lane's address; ``data`` are the first register, the size and the count."""
    row, size, count = data
    _refuse_unaligned(at, active, size, line)
    words, met = _data(g, row, size, count), np.zeros(at.shape, UNSIGNED[size])
    for region, lanes in g.state.memory.parts(at, active, size, line.place):
        if not region.writable:
            raise KernelError(f"{line.place}: writes to {region.name}, which is read-only")
        index = ((at[lanes] - np.uint64(region.base)) // np.uint64(size)).astype(np.int64)
        met[lanes] = update_words(region.words(size), index, [w[lanes] for w in words], function)
    g.state.tally.add_global(at, active, size, True)
    if dest is not None:
        g.state.tally.add_global(at, active, size, False)
        _place(g, dest, met, g.mask)


def _decode_global(line: Line) -> Instruction:
    """``global_atomic_*`` and ``flat_atomic_*``; ``sc0`` (``glc`` on gfx90a) returns the word that was met."""
    space, _, name = line.mnemonic.split("_", 2)
    function, size = GLOBAL[name]
    count, flat = 1 + name.startswith("cmpswap"), space == "flat"
    refuse_modifiers(line, ("offset", *CACHE))
    returns = _returns(line)
    operands = operands_of(line, 3 + returns - flat)
    dest = operands.pop(0) if returns else None
    vector, data, base = (*operands, Operand("off"))[:3]
    address = global_address(line, vector, base)
    source = (vector_row(data, line, count * size // 4), size, count)
    row = vector_row(dest, line, size // 4) if dest is not None else None

    def run(g: Group) -> None:
        at = np.broadcast_to(address(g), (g.count, LANES))
        _update_memory(g, line, at, g.mask, source, function, row)

    written = dest.rows if dest is not None else frozenset[int]()
    return Instruction(line, run, rows_of(operands), written, queue="flat" if flat else "vm")


def _decode_buffer(line: Line) -> Instruction:
    """``buffer_atomic_*``: the word that was met comes back in the first register of the data."""
    function, size = GLOBAL[line.mnemonic.removeprefix("buffer_atomic_")]
    count = 1 + ("cmpswap" in line.mnemonic)
    refuse_modifiers(line, ("offset", "offen", "idxen", *CACHE))
    data, *operands = operands_of(line, 4)
    offset, base, reads = buffer_address(line, operands)
    row = vector_row(data, line, count * size // 4)
    dest = row if _returns(line) else None

    def run(g: Group) -> None:
        buffer, at = base(g), np.broadcast_to(offset(g), (g.count, LANES))
        if buffer is None:
            raise KernelError(f"{line.place}: atomics on scratch are not supported")
        start, limit, scalar = buffer
        inside = g.mask & (at >= 0) & (at + size <= limit - scalar.astype(np.int64))
        addresses = np.broadcast_to(start + at.view(np.uint64) + scalar.astype(np.uint64), at.shape)
        _update_memory(g, line, addresses, inside, (row, size, count), function, dest)

    written = frozenset(range(row, row + size // 4)) if dest is not None else frozenset[int]()
    return Instruction(line, run, reads | data.rows, written, queue="vm")


def _returns(line: Line) -> bool:
    """Whether the instruction gives back the word that it met."""
    return ("glc" if line.arch == "gfx90a" else "sc0") in line.modifiers


def _decode_local(line: Line) -> Instruction:
    """``ds_*``: atomics on LDS; ``rtn`` returns the word that was met."""
    returns = "_rtn_" in line.mnemonic
    name = line.mnemonic.removeprefix("ds_").replace("rtn_", "")
    function, size = (INTEGER["swap"], int(name[-2:]) // 8) if name.startswith("wrxchg") else LOCAL[name]
    refuse_modifiers(line, ("offset",))
    count = 1 + name.startswith("cmpst")
    operands = operands_of(line, 1 + count + returns)
    dest = operands.pop(0) if returns else None
    address, *data = operands
    rows = [vector_row(d, line, size // 4) for d in data]
    at_of, fixed = vector_words(address, line), immediate(line, "offset", 0, 0xFFFF)
    row = vector_row(dest, line, size // 4) if dest is not None else None

    def run(g: Group) -> None:
        at = np.broadcast_to(at_of(g).astype(np.int64) + fixed, (g.count, LANES))
        span = check_local(at, g.mask, size, g.state.lds_bytes, "LDS", line)
        _refuse_unaligned(at, g.mask, size, line)
        g.state.tally.lds_bytes += size * int(np.count_nonzero(g.mask))
        places = lds_address(g, at)
        if g.state.hazards is not None:
            g.state.hazards.lds.write(g, places, g.mask, size, span, line, "lgkm")
        words = [_data(g, r, size, 1)[0][g.mask] for r in rows]
        met = np.zeros(at.shape, UNSIGNED[size])
        met[g.mask] = update_words(g.state.lds.view(UNSIGNED[size]), places[g.mask] // size, words, function)
        if row is not None:
            _place(g, row, met, g.mask)

    return Instruction(line, run, rows_of(operands), dest.rows if dest is not None else frozenset(), queue="lds")


def _with_return(name: str) -> str:
    """``add_u32`` becomes ``add_rtn_u32``."""
    head, tail = name.rsplit("_", 1)
    return f"{head}_rtn_{tail}"


DECODERS: dict[str, Decoder] = {
    **{f"{space}_atomic_{name}": _decode_global for space in ("global", "flat") for name in GLOBAL},
    **{f"buffer_atomic_{name}": _decode_buffer for name in GLOBAL},
    **{f"ds_{name}": _decode_local for name in LOCAL},
    **{f"ds_{_with_return(name)}": _decode_local for name in LOCAL},
    **{f"ds_wrxchg_rtn_b{bits}": _decode_local for bits in (32, 64)},
}
