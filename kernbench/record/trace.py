"""A Trace: what every PE does, written down once per class of PEs that do the same.

A :class:`Trace` is plain data. :mod:`kernbench.execute` turns it into values, :mod:`kernbench.simulate` turns
it into time, and neither knows of the other. PEs that issue the same commands form a :class:`PEClass`; what
differs between them (addresses, program ids) stands in *lane columns*: one array per class, with one number
per PE, that commands refer to as ``(column, offset)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from kernbench.machine import Machine
    from kernbench.record.stream import Stream
    from kernbench.tensors import Tensor

OPERAND, REUSE = 0, 1
"""Kinds of dependency: a value is needed; a scratch buffer is still in use."""


class Lane(NamedTuple):
    """An integer that may differ between the PEs of a class: ``columns[column] + offset``."""

    column: int
    """Index into :attr:`PEClass.columns`."""
    offset: int


class Ref(NamedTuple):
    """A tile read by a command, seen in ``shape`` (a reshape is only another view of the same tile)."""

    tile: int
    """Index into :attr:`PEClass.tiles`."""
    shape: tuple[int, ...]
    dtype: str | None = None
    """Format that its bytes are read as, if not its own (``tl.bitcast``, ``tl.unpack``, ``tl.pack``)."""


class TileInfo(NamedTuple):
    """A tile of one class: where it lies in scratch and what it holds."""

    shape: tuple[int, ...]
    dtype: str
    address: int
    """Byte offset in the PE's scratch."""
    nbytes: int
    line: int
    """Index into :attr:`Trace.lines`: where the kernel made it."""


class Access(NamedTuple):
    """The part of a device tensor that a LOAD, STORE or streamed COMPOSITE touches.

    The element at index ``(i, j, ...)`` lies ``sum(index * strides)`` elements behind ``element``. ``valid``
    bounds the indices that are really touched (``None``: all); the rest of a loaded tile holds ``other``.
    """

    tensor: int
    """Index into :attr:`Trace.tensors`."""
    address: Lane
    """Global byte address: ``memory << ADDRESS_BITS | offset``."""
    element: Lane | int
    """Element index of the first element inside this PE's part of the tensor."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    valid: tuple[int, ...] | None
    other: float
    dtype: str
    """Format that the elements are read as: the tensor's own, or that of a bitcast."""


class Command(NamedTuple):
    """One command of a PE.

    ``op`` and ``name`` together say what is computed:

    ============ ======================= ============================================================
    ``op``       ``name``                ``srcs`` → ``dst``
    ============ ======================= ============================================================
    ``load``     ``load``                ``access`` → tile
    ``load``     ``load_scalar``         a control tensor's element; issue waits for it; no tile
    ``store``    ``store``               tile → ``access`` (cast to the tensor's dtype)
    ``dot``      ``dot``                 a, b[, acc] → tile
    ``dot``      ``dot_scaled``          a, b[, scale of a][, scale of b][, acc] → tile; ``attrs``: see below
    ``vector``   name of the operation   operands → tile; ``attrs``: see below
    ``send``     direction               tile → message
    ``recv``     direction               message → tile
    ``composite````composite``           a[, b] or ``access`` → tile[, row maxima]; ``attrs["epilogue"]``
    ============ ======================= ============================================================

    Attributes of vector operations: ``axis`` of a reduction (None: the whole tile), ``axes`` of ``trans``,
    ``function`` of ``divide`` (true, floor, mod) and ``logical`` (and, or, xor, not, lshift, rshift), ``relation`` of
    ``compare``, ``start`` and ``stop`` of ``arange``, ``axis`` and ``normalize`` of ``hadamard``. Those of
    ``dot_scaled``: ``block`` along k, and ``a_scale``, ``b_scale``, ``acc``: where they stand in ``srcs`` (or None). A
    message's are its ``shape`` and ``dtype``.
    """

    op: str
    name: str
    dst: tuple[int, ...]
    """Tiles written (indices into :attr:`PEClass.tiles`)."""
    srcs: tuple[Any, ...]
    """Operands: :class:`Ref`, :class:`Lane` or a plain number."""
    attrs: dict[str, Any]
    """What else the operation needs, as plain data (axis, dtype, ...)."""
    access: Access | None
    direction: int
    """Index into ``DIRECTIONS`` for send and recv, else -1."""
    nbytes: int
    """Bytes moved: of the access, or of the message."""
    work: tuple[int, ...]
    """Size of the arithmetic: ``(elements,)`` or ``(elements, passes)`` for vector, ``(batch, m, n, k)`` for dot; for
    composite ``(batch, m, n, k, chunks)``."""
    deps: tuple[tuple[int, int], ...]
    """Earlier commands of this PE that must have ended: ``(index, OPERAND or REUSE)``."""
    line: int
    """Index into :attr:`Trace.lines`."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the kernel's source."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True)
class PEClass:
    """PEs that issue the same commands."""

    pes: np.ndarray
    """Global indices of the PEs, ascending, int64[n]."""
    commands: tuple[Command, ...]
    tiles: tuple[TileInfo, ...]
    columns: tuple[np.ndarray, ...]
    """Lane columns, each int64[n] in the order of :attr:`pes`."""
    scratch_peak_bytes: int
    scratch_by_line: dict[int, int]
    """Bytes that tiles made at each line hold at the moment of the peak."""

    @cached_property
    def stream(self) -> Stream:
        """The commands as flat columns, for timing."""
        from kernbench.record.stream import build_stream

        return build_stream(self)

    @cached_property
    def last_use(self) -> list[int]:
        """For each tile the index of the last command that reads or writes it (-1: none)."""
        last = [-1] * len(self.tiles)
        for i, command in enumerate(self.commands):
            for tile in command.dst:
                last[tile] = i
            for src in command.srcs:
                if isinstance(src, Ref):
                    last[src.tile] = i
        return last


@dataclass(frozen=True)
class Trace:
    """What all PEs do: the result of :func:`kernbench.record`."""

    kernel: str
    """Name of the kernel function."""
    machine: Machine
    """The machine that was recorded for; any machine with the same ``signature`` can time the trace."""
    grid: tuple[int, int, int]
    """Programs along (PE in CUBE, CUBE in SIP, SIP)."""
    dot_dtype: str
    tensors: tuple[Tensor, ...]
    tensor_names: tuple[str, ...]
    """The kernel's own parameter name for each tensor."""
    lines: tuple[SourceLine, ...]
    classes: tuple[PEClass, ...]
    warnings: tuple[str, ...] = field(default=())
    """What is allowed but hardly meant, such as reading scratch that nothing has written."""

    @property
    def n_pes(self) -> int:
        """Number of PEs that take part."""
        return sum(len(c.pes) for c in self.classes)

    @property
    def n_commands(self) -> int:
        """Number of commands over all PEs."""
        return sum(len(c.pes) * len(c.commands) for c in self.classes)

    @property
    def scratch_peak_bytes(self) -> int:
        """Largest scratch footprint of any PE."""
        return max((c.scratch_peak_bytes for c in self.classes), default=0)

    def commands_of(self, pe: int) -> Iterator[Command]:
        """Yield the commands of one PE with its own numbers in place of lane columns.

        Two recordings describe the same behaviour exactly if this yields the same for every PE.
        """
        for cls in self.classes:
            where = np.flatnonzero(cls.pes == pe)
            if len(where):
                break
        else:
            raise KeyError(f"PE {pe} takes no part in this trace")
        lane = int(where[0])

        def concrete(value: Any) -> Any:
            return int(cls.columns[value.column][lane]) + value.offset if isinstance(value, Lane) else value

        for command in cls.commands:
            access = command.access
            if access is not None:
                access = access._replace(address=concrete(access.address), element=concrete(access.element))
            yield command._replace(srcs=tuple(concrete(s) for s in command.srcs), access=access)
