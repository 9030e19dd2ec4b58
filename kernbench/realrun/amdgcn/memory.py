"""Loads and stores: scalar, global and flat, buffers, and scratch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import InputError, KernelError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import (
    Decoder,
    Instruction,
    immediate,
    nothing,
    operands_of,
    refuse_modifiers,
    rows_of,
)
from kernbench.realrun.amdgcn.lanes import LANE, vector_row, vector_words
from kernbench.realrun.amdgcn.operands import SCALAR_ROW, Operand, Read, join, read_words, reader
from kernbench.realrun.amdgcn.scalar import scalar_reader
from kernbench.realrun.amdgcn.state import LANES, M0, Bools, Group

CACHE = ("glc", "slc", "dlc", "scc", "sc0", "sc1", "nt")
"""Modifiers that only steer caches."""
WIDTHS = {
    "ubyte": (1, ""), "sbyte": (1, "signed"), "ushort": (2, ""), "sshort": (2, "signed"), "byte": (1, ""),
    "short": (2, ""), "dword": (4, ""), "dwordx2": (8, ""), "dwordx3": (12, ""), "dwordx4": (16, ""),
    "ubyte_d16": (1, "low"), "ubyte_d16_hi": (1, "high"), "short_d16": (2, "low"), "short_d16_hi": (2, "high"),
    "sbyte_d16": (1, "signed low"), "sbyte_d16_hi": (1, "signed high"), "byte_d16_hi": (1, "high"),
}  # fmt: skip
"""Bytes of each load or store, and what becomes of a part of a register."""
SWIZZLES = np.uint32(1 << 31)
"""Bit of a descriptor's second word: consecutive elements belong to consecutive lanes."""
Address = Callable[[Group], Any]
M0_ROWS = frozenset({SCALAR_ROW + M0})
SCALAR_COUNTS = {"dword": 1, "dwordx2": 2, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}


def place_words(g: Group, row: int, values: list[Any], form: str, lanes: Any) -> None:
    """Write loaded words to registers, a part of a word as ``form`` says."""
    if form == "":
        for j, value in enumerate(values):
            np.copyto(g.u[row + j], value, where=lanes)
        return
    (value,) = values
    if "signed" in form:
        bits = 8 if form.endswith("8") or "byte" in form else 16
        value = value.astype(np.int8 if bits == 8 else np.int16).astype(np.int32).view(np.uint32)
    old = g.u[row]
    if "low" in form:
        value = (old & np.uint32(0xFFFF0000)) | (value & np.uint32(0xFFFF))
    elif "high" in form:
        value = (old & np.uint32(0xFFFF)) | (value << np.uint32(16))
    np.copyto(old, value, where=lanes)


def form_of(name: str) -> tuple[int, str]:
    """Return the bytes and the form of a load or a store by the end of its name."""
    width, form = WIDTHS[name]
    return width, f"{form} byte" if width == 1 and "signed" in form else form


def _decode_scalar_load(line: Line) -> Instruction:
    refuse_modifiers(line, ("offset", *CACHE))
    dest, base, *rest = operands_of(line, 2, 3)
    count = SCALAR_COUNTS[line.mnemonic.rsplit("_", 1)[1]]
    if dest.file != "s" or dest.count != count:
        raise InputError(f"{line.place}: {dest.text} is not {count} scalar registers")
    start = scalar_reader(base, "U", line)
    more: Read = lambda g: np.uint32(0)  # noqa: E731
    if rest and rest[0].file == "c":
        written = int(rest[0].text, 0)
        if rest[0].negate or rest[0].absolute or not -(1 << 20) <= written < 1 << 20:
            raise InputError(f"{line.place}: {rest[0].text} is no offset of 21 bits")
        displacement = np.uint64(written % 2**64)
        more = lambda g: displacement  # noqa: E731
    elif rest:
        more = scalar_reader(rest[0], "u", line)
    fixed, row = np.uint64(immediate(line, "offset", -(1 << 20), (1 << 20) - 1) % 2**64), dest.row

    def run(g: Group) -> None:
        at = (start(g) + more(g).astype(np.uint64) + fixed) & np.uint64(2**64 - 4)
        at = np.broadcast_to(at, (g.count,))
        uniform = bool((at == at[0]).all())
        some = at[:1, None] if uniform else at[:, None]
        values = g.state.memory.load(some, np.ones(some.shape, np.bool_), 4 * count, line.place)
        for j, value in enumerate(values):
            g.s[row + j] = value[:, 0]
        g.state.tally.scalar_bytes += 4 * count * g.count
        g.state.tally.scalar_array_bytes += 4 * count * int(np.count_nonzero(at < g.state.memory.arrays_end))

    return Instruction(line, run, rows_of((base, *rest)), dest.rows, queue="smem")


def global_address(line: Line, vector: Operand, base: Operand) -> Address:
    """``v[0:1], off`` is a 64-bit address; ``v0, s[0:1]`` is an offset of 32 bits from a scalar base."""
    signed = not line.mnemonic.startswith("flat_")
    fixed = np.uint64(immediate(line, "offset", -4096 * signed, 4095) % 2**64)
    if base.file == "off":
        vector_row(vector, line, 2)
        low, high = read_words(vector), read_words(vector, 1)
        return lambda g: join(low(g), high(g)) + fixed
    if base.file != "s" or base.count != 2:
        raise InputError(f"{line.place}: {base.text} must be a pair of scalar registers")
    offset, low, high = vector_words(vector, line), read_words(base), read_words(base, 1)
    return lambda g: join(low(g), high(g)) + offset(g).astype(np.uint64) + fixed


def _decode_global(line: Line) -> Instruction:
    """``global_load_*``, ``global_store_*`` and their ``flat_`` forms, which here must mean global addresses."""
    space, action, name = line.mnemonic.split("_", 2)
    width, form = form_of(name)
    refuse_modifiers(line, ("offset", *CACHE))
    flat = space == "flat"
    operands = operands_of(line, 2 if flat else 3)
    base = Operand("off") if flat else operands[-1]
    first, second = operands[:2]
    stores = action == "store"
    address = global_address(line, first if stores else second, base)
    queue = "flat" if flat else "vm"
    if stores:
        return _store(line, address, second, width, form, rows_of(operands), queue)
    return _load(line, address, first, width, form, rows_of(operands[1:]), queue)


def _load(line: Line, address: Address, dest: Operand, width: int, form: str, reads: Any, queue: str) -> Instruction:
    row = vector_row(dest, line, max(1, width // 4))
    partial = dest.rows if form in ("low", "high") else frozenset()

    def run(g: Group) -> None:
        at = np.broadcast_to(address(g), (g.count, LANES))
        values = g.state.memory.load(at, g.mask, width, line.place)
        place_words(g, row, values, form, g.lanes())
        g.state.tally.add_global(at, g.mask, width, False)

    return Instruction(line, run, reads | partial, dest.rows, queue=queue)


def _store(line: Line, address: Address, data: Operand, width: int, form: str, reads: Any, queue: str) -> Instruction:
    row, count = vector_row(data, line, max(1, width // 4)), max(1, width // 4)

    def run(g: Group) -> None:
        at = np.broadcast_to(address(g), (g.count, LANES))
        values = [g.u[row + j] for j in range(count)]
        if form == "high":
            values = [values[0] >> np.uint32(16)]
        g.state.memory.store(at, g.mask, width, values, line.place)
        g.state.tally.add_global(at, g.mask, width, True)

    return Instruction(line, run, reads, queue=queue)


def _decode_global_to_lds(line: Line) -> Instruction:
    """``global_load_lds_*``: lane i's data go to LDS at M0 + offset + i * width."""
    width, form = form_of(line.mnemonic.removeprefix("global_load_lds_"))
    refuse_modifiers(line, ("offset", *CACHE))
    vector, base = operands_of(line, 2)
    address = global_address(line, vector, base)

    def run(g: Group) -> None:
        at = np.broadcast_to(address(g), (g.count, LANES))
        values = g.state.memory.load(at, g.mask, width, line.place)
        _to_lds(g, line, values, width, form)
        g.state.tally.add_global(at, g.mask, width, False)

    return Instruction(line, run, rows_of((vector, base)) | M0_ROWS, queue="vm")


def _to_lds(g: Group, line: Line, values: list[Any], width: int, form: str) -> None:
    step = max(width, 4)
    at = g.su[M0] + np.uint32(immediate(line, "offset", -4096, 4095) % 2**32) + (LANE * step).astype(np.uint32)
    if "signed" in form:
        raise InputError(f"{line.place}: sign extension on the way to LDS is not supported")
    at = np.broadcast_to(at.astype(np.int64), (g.count, LANES))
    store_lds(g, at, g.mask, step, values, line, "vm")


def buffer_address(line: Line, operands: list[Operand]) -> tuple[Address, Callable[[Group], Any], Any]:
    """Return functions of a lane's offset and of the descriptor's base and size, and the registers read.

    The second gives None for the descriptor of scratch that gfx90a hands to kernels that spill: it alone swizzles.
    """
    vector, descriptor, scalar = operands
    if descriptor.file != "s" or descriptor.count != 4:
        raise InputError(f"{line.place}: {descriptor.text} is not a descriptor of 4 scalar registers")
    if "idxen" in line.modifiers:
        raise InputError(f"{line.place}: modifier 'idxen' is not supported: buffers are raw here")
    if ("offen" in line.modifiers) == (vector.file == "off"):
        raise InputError(f"{line.place}: an offset in a register is said by 'offen', none by 'off'")
    by_lane = vector_words(vector, line) if "offen" in line.modifiers else lambda g: np.uint32(0)
    if scalar.file == "v":
        raise InputError(f"{line.place}: {scalar.text} is not a scalar")
    soffset, row, fixed = reader(scalar, "u", line), descriptor.row, np.int64(immediate(line, "offset", 0, 4095))

    def offset(g: Group) -> Any:
        return by_lane(g).astype(np.int64) + fixed

    def base(g: Group) -> tuple[Any, Any, Any] | None:
        words = g.su[row : row + 4]
        if (words[1] & SWIZZLES).any():
            if not (words[1] & SWIZZLES).all() or soffset(g).any():
                raise KernelError(f"{line.place}: a descriptor of scratch is used in a way that is not supported")
            return None
        return join(words[0], words[1] & np.uint32(0xFFFF)), words[2].astype(np.int64), soffset(g)

    return offset, base, rows_of(operands)


def _parted(g: Group, at: Any, width: int, limit: Any) -> bool:
    """Whether the end of a buffer parts the words of some lane."""
    return width > 4 and bool((g.mask & (at < limit) & (at + width > limit)).any())


def _decode_buffer(line: Line) -> Instruction:
    """Raw buffers: a word beyond the descriptor's size reads 0 and is not written, as the hardware defines."""
    _, action, name = line.mnemonic.split("_", 2)
    width, form = form_of(name)
    refuse_modifiers(line, ("offset", "offen", "idxen", "lds", *CACHE))
    to_lds, stores = "lds" in line.modifiers, action == "store"
    if to_lds and stores:
        raise InputError(f"{line.place}: a store from LDS is not supported")
    if to_lds and width > 4 and line.arch != "gfx950":
        raise InputError(f"{line.place}: only gfx950 loads more than 4 bytes a lane to LDS")
    operands = operands_of(line, 3 if to_lds else 4)
    data = None if to_lds else operands.pop(0)
    count = max(1, width // 4)
    row = 0 if data is None else vector_row(data, line, count)
    offset, base, reads = buffer_address(line, operands)
    reads |= M0_ROWS if to_lds else frozenset()

    def run(g: Group) -> None:
        buffer, at = base(g), np.broadcast_to(offset(g), (g.count, LANES))
        if buffer is None:
            access_scratch(g, line, at, None if to_lds else row, width, form, stores)
            return
        start, size, scalar = buffer
        limit = size - scalar.astype(np.int64)
        addresses = np.broadcast_to(start + at.view(np.uint64) + scalar.astype(np.uint64), at.shape)
        values = [g.u[row + j] >> np.uint32(16 * (form == "high")) for j in range(count)] if stores else []
        for first, step in [(0, width)] if not _parted(g, at, width, limit) else [(4 * j, 4) for j in range(count)]:
            inside = g.mask & (at >= 0) & (at + (first + step) <= limit)
            place = addresses + np.uint64(first)
            if stores:
                g.state.memory.store(place, inside, step, values[first // 4 : (first + step + 3) // 4], line.place)
            else:
                values += g.state.memory.load(place, inside, step, line.place)
            g.state.tally.add_global(place, inside, step, stores)
        if to_lds:
            _to_lds(g, line, values, width, form)
        elif not stores:
            place_words(g, row, values, form, g.lanes())

    rows = frozenset() if data is None else data.rows
    return Instruction(line, run, reads | rows if stores else reads, frozenset() if stores else rows, queue="vm")


def _decode_scratch(line: Line) -> Instruction:
    """Private memory of each lane: ``off`` or a register of offsets, and ``off`` or a scalar base."""
    _, action, name = line.mnemonic.split("_", 2)
    width, form = form_of(name)
    refuse_modifiers(line, ("offset", *CACHE))
    first, second, scalar = operands_of(line, 3)
    stores = action == "store"
    data, vector = (second, first) if stores else (first, second)
    row, fixed = vector_row(data, line, max(1, width // 4)), immediate(line, "offset", -4096, 4095)
    by_lane = vector_words(vector, line) if vector.file != "off" else lambda g: np.uint32(0)
    by_wave = reader(scalar, "u", line) if scalar.file != "off" else lambda g: np.uint32(0)
    if scalar.file not in ("s", "off"):
        raise InputError(f"{line.place}: {scalar.text} is neither a scalar register nor 'off'")

    def run(g: Group) -> None:
        offset = by_lane(g).astype(np.int64) + by_wave(g).astype(np.int64) + fixed
        access_scratch(g, line, np.broadcast_to(offset, (g.count, LANES)), row, width, form, stores)

    reads = rows_of((vector, scalar)) | (data.rows if stores else frozenset())
    return Instruction(line, run, reads, frozenset() if stores else data.rows, queue="vm")


def access_scratch(g: Group, line: Line, offset: Any, row: int | None, width: int, form: str, stores: bool) -> None:
    """Load or store registers from ``row`` on, at each lane's offset into its private memory."""
    if row is None:
        raise KernelError(f"{line.place}: a load from scratch to LDS is not supported")
    state = g.state
    check_local(offset, g.mask, width, state.scratch_bytes, "scratch", line)
    at = (g.waves[:, None] * LANES + LANE) * state.scratch_bytes + offset
    if stores:
        values = [g.u[row + j] >> np.uint32(16 * (form == "high")) for j in range(max(1, width // 4))]
        store_local(state.scratch, at, g.mask, width, values)
    else:
        place_words(g, row, load_local(state.scratch, at, g.mask, width), form, g.lanes())
    state.tally.scratch_bytes += width * int(np.count_nonzero(g.mask))


def check_local(offset: Any, active: Bools, width: int, size: int, name: str, line: Line) -> tuple[int, int]:
    """Refuse lanes that are outside LDS or scratch; return a range that holds the bytes of the others."""
    first, behind = int(offset.min()), int(offset.max()) + width
    if first >= 0 and behind <= size:
        return first, behind
    bad = active & ((offset < 0) | (offset + width > size))
    if bad.any():
        wave, lane = (int(n) for n in np.argwhere(bad)[0])
        hint = "; kernels with dynamic LDS need lds_bytes" if name == "LDS" else ""
        raise KernelError(
            f"{line.place}: lane {lane} touches {width} bytes of {name} at {int(offset[wave, lane]):#x}, "
            f"out of bounds: there are {size}{hint}"
        )
    return 0, size


def load_local(octets: Any, at: Any, active: Bools, width: int) -> list[Any]:
    """Read ``width`` bytes a lane; inactive lanes read whatever is at 0."""
    step, count = (4, width // 4) if width >= 4 else (width, 1)
    if not active.all():
        at = np.where(active, at, 0)
    if (at & (step - 1)).any():
        words = [np.zeros(at.shape, np.uint32) for _ in range(count)]
        for j in range(count):
            for i in range(step):
                words[j] |= octets.take(at + j * step + i).astype(np.uint32) << np.uint32(8 * i)
        return words
    if octets.size == 0:
        return [np.zeros(at.shape, np.uint32) for _ in range(count)]
    view = octets.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[step])
    index = at // step
    return [view.take(index + j if j else index).astype(np.uint32, copy=False) for j in range(count)]


def store_local(octets: Any, at: Any, active: Bools, width: int, values: list[Any]) -> None:
    """Write ``width`` bytes a lane; of two lanes at one address the last wins."""
    step, count = (4, width // 4) if width >= 4 else (width, 1)
    dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32}[step]
    every = bool(active.all())
    some = at if every else at[active]
    for j in range(count):
        value = np.broadcast_to(values[j], at.shape)
        value = (value if every else value[active]).astype(dtype, copy=False)
        if (some & (step - 1)).any():
            octet = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, step)
            for i in range(step):
                octets[some + j * step + i] = octet[..., i]
        else:
            octets.view(dtype)[some // step + j] = value


def store_lds(
    g: Group, at: Any, active: Bools, width: int, values: list[Any], line: Line, counter: str = "lgkm"
) -> None:
    """Write to the LDS of each wave's workgroup; ``at`` is relative to it, ``counter`` what ``s_waitcnt`` calls it."""
    at = np.broadcast_to(at, (g.count, LANES))
    span = check_local(at, active, width, g.state.lds_bytes, "LDS", line)
    at = lds_address(g, at)
    if g.state.hazards is not None:
        g.state.hazards.lds.write(g, at, active, width, span, line, counter)
    store_local(g.state.lds, at, active, width, values)
    nbytes = width * int(np.count_nonzero(active))
    g.state.tally.lds_bytes += nbytes
    g.state.tally.lds_write_bytes += nbytes


def load_lds(g: Group, at: Any, active: Bools, width: int, line: Line) -> list[Any]:
    """Read from the LDS of each wave's workgroup; ``at`` is relative to it."""
    at = np.broadcast_to(at, (g.count, LANES))
    span = check_local(at, active, width, g.state.lds_bytes, "LDS", line)
    g.state.tally.lds_bytes += width * int(np.count_nonzero(active))
    at = lds_address(g, at)
    if g.state.hazards is not None:
        g.state.hazards.lds.read(g, at, active, width, span, line)
    return load_local(g.state.lds, at, active, width)


def lds_address(g: Group, at: Any) -> Any:
    """Turn addresses in a workgroup's LDS to places in that of all workgroups."""
    return at + (g.group_of * g.state.lds_stride)[:, None]


_LOADS = [n for n in WIDTHS if n not in ("byte", "short", "byte_d16_hi")]
_STORES = ["byte", "short", "dword", "dwordx2", "dwordx3", "dwordx4", "byte_d16_hi", "short_d16_hi"]


def _both(space: str, decode: Decoder) -> dict[str, Decoder]:
    loads = {f"{space}_load_{n}": decode for n in _LOADS}
    return loads | {f"{space}_store_{n}": decode for n in _STORES}


DECODERS: dict[str, Decoder] = {
    **{f"s_load_{n}": _decode_scalar_load for n in SCALAR_COUNTS},
    **_both("global", _decode_global),
    **_both("flat", _decode_global),
    **_both("buffer", _decode_buffer),
    **_both("scratch", _decode_scratch),
    **{f"global_load_lds_{n}": _decode_global_to_lds for n in ("ubyte", "ushort", "dword", "dwordx3", "dwordx4")},
    **{
        # The compilers do not count these among what vmcnt waits for.
        name: lambda line: Instruction(line, nothing)
        for name in ("buffer_wbl2", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_invl2")
    },
}
