"""``tl``: what a kernel may say. An object of :class:`Language` is handed to the kernel as its ``tl``.

Names and meanings are Triton's where Triton has the thing; ``docs/language.md`` lists every deviation. Each
method appends one command to the recorder behind it and returns a handle; nothing is computed and nothing
waits while a kernel is recorded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.dtypes import DTYPES, DType
from kernbench.errors import KernelError
from kernbench.machine.network import DIRECTIONS
from kernbench.tl.arguments import common_shape
from kernbench.tl.lanes import LaneInt
from kernbench.tl.narrow import Narrow
from kernbench.tl.pointer import Pointer
from kernbench.tl.tile import Tile

if TYPE_CHECKING:
    from kernbench.record.recorder import Recorder

__all__ = ["DIRECTIONS", "Language"]


class Language(Narrow):
    """The ``tl`` of one recording."""

    # ------------------------------------------------------------------ programs
    def program_id(self, axis: int) -> LaneInt:
        """Index of this program: axis 0 = PE in its CUBE, 1 = CUBE in its SIP, 2 = SIP."""
        return self._recorder.program_id(self._axis(axis))

    def num_programs(self, axis: int) -> int:
        """Number of programs along ``axis``."""
        return self._recorder.grid[self._axis(axis)]

    def columns(self, axis: int) -> int:
        """Columns of the grid of PEs (0), CUBEs (1) or SIPs (2); index = row * columns + column."""
        return self._recorder.columns[self._axis(axis)]

    def rows(self, axis: int) -> int:
        """Rows of the grid of PEs (0), CUBEs (1) or SIPs (2) that take part."""
        return -(-self.num_programs(axis) // self.columns(axis))

    def wraps(self, axis: int) -> tuple[bool, bool]:
        """Whether channels lead round from the last column to the first, and from the last row to the first."""
        grid = self._recorder.machine.grids[2 - self._axis(axis)]
        whole = self.num_programs(axis) == grid.count
        return grid.wraps[0] and whole, grid.wraps[1] and whole

    def cdiv(self, a: Any, b: Any) -> Any:
        """``ceil(a / b)`` of integers."""
        return -(-a // b)

    # ------------------------------------------------------------------ memory
    def load(
        self,
        ptr: Pointer,
        shape: Sequence[Any] | int,
        dtype: Any = None,
        strides: Sequence[int] | None = None,
        valid: Any = None,
        other: float = 0,
        bitcast: bool = False,
    ) -> Tile:
        """Read a tile from memory into scratch.

        Parameters
        ----------
        ptr
            Byte address of the first element.
        shape
            Shape of the tile.
        dtype
            Format of the elements; must be the tensor's own (the default) unless ``bitcast`` is set.
        strides
            Elements from one index to the next, per axis. Default: contiguous, the last axis fastest.
            ``shape=(d, n), strides=(1, d)`` on an ``(n, d)`` tensor is its true transpose.
        valid
            How many indices of each axis are really read: an int for axis 0, or one per axis. The rest of the
            tile is ``other`` and costs no bytes.

        Raises
        ------
        KernelError
            If the read leaves this PE's part of the tensor, or ``dtype`` is not the tensor's.
        """
        self._pointer(ptr, "load")
        sizes = self._shape(shape)
        kind = self._element(ptr, dtype, "load", bitcast)
        bounds = self._valid(valid, sizes)
        fill = self._number(other, "load(other=)")
        fill = int(fill) if isinstance(fill, LaneInt) else fill
        if bounds is not None and 0 in bounds:
            return self.full(sizes, fill, kind)
        return self._recorder.load(ptr, sizes, kind, self._strides(strides, sizes), bounds, fill)[0]

    def load_scalar(self, ptr: Pointer, dtype: Any = None) -> LaneInt:
        """Read one integer of a *control tensor*, now: branches, loops and addresses may depend on it.

        The tensor must have values (not :func:`~kernbench.shape_only`) and must not be written by the kernel.
        In time, the PE waits for the element before it issues anything else.
        """
        binding = self._pointer(ptr, "load_scalar").binding
        kind = self._element(ptr, dtype, "load_scalar")
        if kind.kind != "int":
            raise self.error(KernelError, f"load_scalar reads integers; {binding.name} holds {kind}")
        if binding.control is None:
            raise self.error(
                KernelError,
                f"{binding.name} has no values (kb.shape_only), so it cannot steer the kernel: use kb.tensor(...)",
            )
        return self._recorder.load_scalar(ptr)

    def store(self, ptr: Pointer, tile: Tile, strides: Sequence[int] | None = None, valid: Any = None) -> None:
        """Write a tile to memory, cast to the tensor's dtype. ``strides`` and ``valid`` as in :meth:`load`."""
        binding = self._pointer(ptr, "store").binding
        self._tile(tile, "store")
        if binding.is_copied:
            raise self.error(
                KernelError,
                f"store into {binding.name}, of which every memory holds its own copy: they would differ; "
                "place the tensor with kb.split(...) or kb.on(...)",
            )
        bounds = self._valid(valid, tile.shape)
        if bounds is not None and 0 in bounds:
            return
        self._recorder.store(ptr, tile, self._strides(strides, tile.shape), bounds)

    # ------------------------------------------------------------------ making tiles
    def zeros(self, shape: Sequence[Any] | int, dtype: Any = "f32") -> Tile:
        """A tile of zeros, which :meth:`copy_to` may write to."""
        return self.full(shape, 0, dtype)

    def full(self, shape: Sequence[Any] | int, value: Any, dtype: Any = "f32") -> Tile:
        """A tile with ``value`` everywhere, which :meth:`copy_to` may write to."""
        return self._vector("fill", self._shape(shape), self._dtype(dtype), (self._number(value, "full"),))

    def empty(self, shape: Sequence[Any] | int, dtype: Any = "f32") -> Tile:
        """A tile that nothing has written: NaN. Reading it before :meth:`copy_to` has written it is reported."""
        return self._recorder.empty(self._shape(shape), self._dtype(dtype))[0]

    def arange(self, start: Any, stop: Any = None) -> Tile:
        """The integers ``start ... stop - 1`` as a 1-D i32 tile (``arange(n)`` starts at 0)."""
        first, last = (0, start) if stop is None else (start, stop)
        first, last = operator.index(first), operator.index(last)
        if last <= first:
            raise self.error(KernelError, f"arange({first}, {last}) is empty")
        return self._vector("arange", (last - first,), DTYPES["i32"], (), start=first, stop=last)

    def cast(self, x: Tile, dtype: Any) -> Tile:
        """The same values rounded to another format."""
        kind = self._dtype(dtype)
        self._tile(x, "cast")
        return x if kind is x.dtype else self._vector("cast", x.shape, kind, (x,))

    def reshape(self, x: Tile, shape: Sequence[Any] | int) -> Tile:
        """The same values in row-major order under another shape: a view, which costs nothing."""
        self._tile(x, "reshape")
        sizes = self._shape(shape, known=x.size)
        if math.prod(sizes) != x.size:
            raise self.error(KernelError, f"a tile {x.shape} of {x.size} elements cannot be reshaped to {sizes}")
        return Tile(self, x.index, sizes, x.dtype, x.buffer)

    def broadcast_to(self, x: Tile, shape: Sequence[Any] | int) -> Tile:
        """The tile repeated along axes of size 1 to ``shape``."""
        self._tile(x, "broadcast_to")
        sizes = self._shape(shape)
        if common_shape(x.shape, sizes) != sizes:
            raise self.error(KernelError, f"a tile {x.shape} cannot be broadcast to {sizes}")
        return x if sizes == x.shape else self._vector("broadcast", sizes, x.dtype, (x,))

    def trans(self, x: Tile, axes: Sequence[int] | None = None) -> Tile:
        """The tile with its axes permuted; by default the last two are exchanged."""
        self._tile(x, "trans")
        if x.ndim < 2:
            raise self.error(KernelError, f"trans needs two axes; the tile is {x.shape}")
        order = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2) if axes is None else tuple(a % x.ndim for a in axes)
        if sorted(order) != list(range(x.ndim)):
            raise self.error(KernelError, f"trans axes {axes} do not permute the {x.ndim} axes of a tile {x.shape}")
        return self._vector("trans", tuple(x.shape[a] for a in order), x.dtype, (x,), axes=order)

    # ------------------------------------------------------------------ mathematics
    def dot(self, a: Tile, b: Tile, acc: Tile | None = None) -> Tile:
        """Matrix product ``a @ b`` (+ ``acc``) with float32 accumulation, rounded once to ``dot_dtype``.

        ``a`` is ``(m, k)`` and ``b`` ``(k, n)``, or both have the same leading batch axis. Integers give i32. Of two
        formats, the one with the lower matrix rate sets the time.
        """
        batch, m, n, k = self._dot_sizes(a, b)
        shape = (m, n) if a.ndim == 2 else (batch, m, n)
        srcs = (a, b, *self._dot_acc(acc, shape))
        kind = self._dot_dtype if a.dtype.kind == "float" else DTYPES["i32"]
        return self._recorder.compute("dot", "dot", [(shape, kind)], srcs, {}, (batch, m, n, k))[0]

    def max(self, x: Tile, axis: int | None = None, keep_dims: bool = True) -> Tile:
        """Largest element along ``axis`` (``None``: of the tile); the axis stays, with size 1."""
        return self._reduce("max", x, axis, keep_dims)

    def min(self, x: Tile, axis: int | None = None, keep_dims: bool = True) -> Tile:
        """Smallest element along ``axis`` (``None``: of the tile); the axis stays, with size 1."""
        return self._reduce("min", x, axis, keep_dims)

    def sum(self, x: Tile, axis: int | None = None, keep_dims: bool = True) -> Tile:
        """Sum along ``axis`` (``None``: of the tile), accumulated in float32; the axis stays, with size 1."""
        return self._reduce("sum", x, axis, keep_dims)

    def maximum(self, x: Any, y: Any) -> Any:
        """Elementwise larger; NaN if either is. Of two integers (per-PE or plain) it is an integer."""
        if not isinstance(x, Tile) and not isinstance(y, Tile):
            return self._of_integers(np.maximum, x, y, "maximum")
        return self.elementwise("maximum", x, y)

    def minimum(self, x: Any, y: Any) -> Any:
        """Elementwise smaller; NaN if either is. Of two integers (per-PE or plain) it is an integer."""
        if not isinstance(x, Tile) and not isinstance(y, Tile):
            return self._of_integers(np.minimum, x, y, "minimum")
        return self.elementwise("minimum", x, y)

    def where(self, condition: Tile, x: Any, y: Any) -> Tile:
        """``x`` where ``condition`` holds, else ``y``."""
        self._tile(condition, "where")
        kind = self._result_dtype("where", (x, y))
        shape = self._broadcast("where", (condition, x, y))
        return self._vector("where", shape, kind, (condition, x, y))

    def exp(self, x: Tile) -> Tile:
        """e to the power of ``x``."""
        return self.elementwise("exp", x)

    def exp2(self, x: Tile) -> Tile:
        """2 to the power of ``x``."""
        return self.elementwise("exp2", x)

    def log(self, x: Tile) -> Tile:
        """Natural logarithm."""
        return self.elementwise("log", x)

    def log2(self, x: Tile) -> Tile:
        """Logarithm to base 2."""
        return self.elementwise("log2", x)

    def sqrt(self, x: Tile) -> Tile:
        """Square root."""
        return self.elementwise("sqrt", x)

    def rsqrt(self, x: Tile) -> Tile:
        """One over the square root."""
        return self.elementwise("rsqrt", x)

    def abs(self, x: Tile) -> Tile:
        """Absolute value."""
        return self.elementwise("abs", x)

    def elementwise(self, name: str, *operands: Any, **attrs: Any) -> Tile:
        """Apply the vector operation ``name`` with broadcasting; what the operators of a tile call."""
        kind = DTYPES["b1"] if name == "compare" else self._result_dtype(name, operands, attrs.get("function"))
        return self._vector(name, self._broadcast(name, operands), kind, operands, **attrs)

    def composite(
        self,
        a: Tile,
        b: Tile | Pointer,
        shape: Sequence[Any] | None = None,
        dtype: Any = None,
        strides: Sequence[int] | None = None,
        epilogue: Sequence[tuple[Any, ...]] = (),
        chunk: int = 128,
    ) -> Any:
        """One fused command: ``epilogue(a @ b)``, with ``b`` streamed from memory past the scratch.

        Parameters
        ----------
        a
            ``(m, k)`` tile.
        b
            ``(k, n)`` tile, or a pointer, with ``shape``, ``dtype`` and ``strides`` as for :meth:`load`.
        epilogue
            Steps applied in order to the float32 product: ``("scale", x)``; ``("max",)``, which also returns the
            ``(m, 1)`` row maxima of the value so far; ``("exp",)``, the exponential of the value less those maxima, or
            ``("exp", t)`` less the ``(m, 1)`` tile or number ``t``; ``("cast", dtype)``, last.
        chunk
            Columns of ``b`` that the engines pass on at a time; sets how long the pipeline takes to drain.

        Returns
        -------
        Tile, or (Tile, Tile) with the row maxima if there is a ``("max",)`` step.
        """
        self._tile(a, "composite")
        streamed = None
        if isinstance(b, Tile):
            size_b, kind_b = self._tile(b, "composite").shape, b.dtype
        else:
            pointer = self._pointer(b, "composite")
            if shape is None:
                raise self.error(KernelError, "composite with a pointer needs the shape of what it points to")
            size_b, kind_b = self._shape(shape), self._element(pointer, dtype, "composite")
            streamed = (pointer, size_b, kind_b, self._strides(strides, size_b))
        if a.ndim != 2 or len(size_b) != 2 or a.shape[1] != size_b[0]:
            raise self.error(KernelError, f"composite: shapes {a.shape} and {size_b} do not match: (m, k) and (k, n)")
        if a.dtype.kind != "float" or kind_b.kind != "float":
            raise self.error(KernelError, f"composite of {a.dtype} and {kind_b}: floats only")
        if chunk < 1:
            raise self.error(KernelError, f"composite: chunk must be 1 or more, not {chunk}")
        (m, k), n = a.shape, size_b[1]
        first = (a,) if streamed else (a, b)
        steps, operands, kind = self._epilogue(epilogue, m, before=len(first))
        outs = [((m, n), kind)] + ([((m, 1), DTYPES["f32"])] if ("max",) in steps else [])
        work, attrs = (1, m, n, k, -(-n // chunk)), {"epilogue": steps}
        tiles = self._recorder.compute("composite", "composite", outs, (*first, *operands), attrs, work, streamed)
        return tuple(tiles) if len(tiles) > 1 else tiles[0]

    # ------------------------------------------------------------------ scratch
    def scratch_scope(self, buffers: int = 1) -> ScratchScope:
        """Free, at the end of the ``with`` block, every tile made inside it.

        With ``buffers=2`` successive passes through the block use two copies of the scratch in turn, so that the
        loads of one pass need not wait for the readers of the last.
        """
        if not isinstance(buffers, int) or buffers < 1:
            raise self.error(KernelError, f"scratch_scope(buffers={buffers}): 1 or more")
        return ScratchScope(self._recorder, buffers)

    def copy_to(self, dst: Tile, src: Tile) -> None:
        """Write the values of ``src`` into the existing tile ``dst``, cast to its dtype."""
        self._tile(dst, "copy_to")
        self._tile(src, "copy_to")
        if dst.dtype is not self._recorder.dtype_of(dst):
            raise self.error(KernelError, f"copy_to: {dst!r} is another reading of a tile's bytes: copy into the tile")
        if dst.shape != src.shape:
            raise self.error(KernelError, f"copy_to: the destination is {dst.shape}, the source {src.shape}")
        self._recorder.copy_to(dst, src)

    # ------------------------------------------------------------------ channels
    def send(self, dir: str, src: Tile) -> None:
        """Send a tile to the neighbour in direction ``dir``. Waits while the channel is full."""
        self._tile(src, "send")
        self._recorder.send(self._direction(dir, "send"), src)

    def recv(self, dir: str, shape: Sequence[Any], dtype: Any) -> Tile:
        """Receive the next tile from the neighbour in direction ``dir``. Waits until it has come."""
        return self._recorder.recv(self._direction(dir, "recv"), self._shape(shape), self._dtype(dtype))[0]

    # ------------------------------------------------------------------ making commands
    def _vector(self, name: str, shape: tuple[int, ...], kind: DType, operands: Sequence[Any], **attrs: Any) -> Tile:
        srcs = []
        elements = math.prod(shape)
        for x in operands:
            if isinstance(x, Tile):
                self._recorder.check_alive(x)
                elements = max(elements, x.size)
                srcs.append(x)
            else:
                srcs.append(self._number(x, name))
        return self._recorder.compute("vector", name, [(shape, kind)], srcs, attrs, (elements,))[0]

    def _reduce(self, name: str, x: Tile, axis: int | None, keep_dims: bool) -> Tile:
        self._tile(x, name)
        if axis is not None and not -x.ndim <= axis < x.ndim:
            raise self.error(KernelError, f"{name}: a tile {x.shape} has no axis {axis}")
        where = None if axis is None else axis % x.ndim
        kept = tuple(1 if where is None or i == where else n for i, n in enumerate(x.shape))
        kind = DTYPES["i32"] if x.dtype.kind == "bool" else x.dtype
        result = self._vector(name, kept, kind, (x,), axis=where)
        if keep_dims:
            return result
        dropped = tuple(n for i, n in enumerate(kept) if where is not None and i != where)
        return self.reshape(result, dropped or (1,))


class ScratchScope:
    """A ``with`` block of :meth:`Language.scratch_scope`."""

    def __init__(self, recorder: Recorder, buffers: int) -> None:
        self._recorder = recorder
        self._buffers = buffers

    def __enter__(self) -> None:
        self._recorder.open_scope(self._buffers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._recorder.close_scope()
