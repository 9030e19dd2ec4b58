"""Operations of ``tl`` for narrow number formats: packed bytes, block scales, codebooks, rotations. See ADR 10."""

from __future__ import annotations

from typing import Any

from kernbench.dtypes import DTYPES, DType
from kernbench.errors import KernelError, nearest
from kernbench.packing import ORDERS
from kernbench.tl.arguments import Arguments, Shape
from kernbench.tl.tile import Tile

_SCALES = ("e8m0", "f32")


class Narrow(Arguments):
    """Operations for narrow formats, as part of :class:`~kernbench.tl.Language`."""

    # ------------------------------------------------------------------ other readings of a tile's bytes
    def bitcast(self, x: Tile, dtype: Any) -> Tile:
        """The same bits read as another format of the same width: a view, which costs nothing."""
        kind = self._dtype(dtype)
        self._tile(x, "bitcast")
        if kind.bits != x.dtype.bits:
            mend = "; tl.unpack reads two elements a byte" if kind.is_packed else ""
            raise self.error(KernelError, f"bitcast from {x.dtype} to {kind}: their widths differ{mend}")
        return x if kind is x.dtype else _reading(x, x.shape, kind)

    def unpack(self, x: Tile, dtype: Any, order: str = "low_first") -> Tile:
        """Read a u8 tile ``(..., n)`` as ``(..., 2 n)`` elements of a 4-bit format (``fp4e2m1`` or ``i4``).

        With ``low_first`` element 0 lies in the low half of byte 0: a view, which costs nothing, since engines read
        packed bytes as they are. ``high_first`` exchanges the halves first, in three vector operations.
        """
        kind = self._packed(dtype, order, "unpack")
        if self._tile(x, "unpack").dtype.name != "u8":
            raise self.error(KernelError, f'unpack reads bytes: u8, not {x.dtype}; say tl.bitcast(tile, "u8") first')
        ordered = x if order == "low_first" else _swapped(x)
        return _reading(ordered, (*x.shape[:-1], 2 * x.shape[-1]), kind)

    def pack(self, x: Tile, order: str = "low_first") -> Tile:
        """Read a tile ``(..., 2 n)`` of a 4-bit format as its ``(..., n)`` bytes; the inverse of unpack."""
        self._packed(self._tile(x, "pack").dtype, order, "pack")
        if x.shape[-1] % 2:
            raise self.error(KernelError, f"pack: a tile {x.shape} has an odd last axis: two elements make a byte")
        raw = _reading(x, (*x.shape[:-1], x.shape[-1] // 2), DTYPES["u8"])
        return raw if order == "low_first" else _swapped(raw)

    def _packed(self, dtype: Any, order: str, where: str) -> DType:
        kind = self._dtype(dtype)
        if not kind.is_packed:
            known = ", ".join(name for name, each in DTYPES.items() if each.is_packed)
            raise self.error(KernelError, f"{where}: {kind} is not packed; packed formats are {known}")
        if order not in ORDERS:
            raise self.error(KernelError, f"{where}: unknown order {order!r}{nearest(str(order), ORDERS)}")
        return kind

    # ------------------------------------------------------------------ mathematics
    def dot_scaled(
        self, a: Tile, a_scale: Tile | None, b: Tile, b_scale: Tile | None, block: int = 32, acc: Tile | None = None
    ) -> Tile:
        """Matrix product of narrow tiles with one scale for each ``block`` of k: the scaled matrix instruction.

        Parameters
        ----------
        a, b
            ``(m, k)`` and ``(k, n)``, or both with the same leading batch axis. Any two floats or two integers; the
            one with the lower matrix rate sets the time.
        a_scale, b_scale
            ``(m, k / block)`` and ``(n, k / block)`` (both row by row, as in Triton), ``e8m0`` or ``f32``; None: 1.
        block
            Elements along k that share a scale; divides k.
        acc
            Added to the product.

        Returns
        -------
        Tile
            ``(m, n)``: each block's product in float32, scaled, added up in float32 in the order of k, plus ``acc``,
            rounded once to ``dot_dtype``.
        """
        work = batch, m, n, k = self._dot_sizes(a, b, "dot_scaled")
        if not isinstance(block, int) or block < 1 or k % block:
            raise self.error(KernelError, f"dot_scaled: block={block!r} does not divide k = {k}")
        lead = (batch,) if a.ndim == 3 else ()
        self._scale("a_scale", a_scale, (*lead, m, k // block))
        self._scale("b_scale", b_scale, (*lead, n, k // block))
        self._dot_acc(acc, (*lead, m, n), "dot_scaled")
        srcs: list[Tile] = [a, b]
        attrs: dict[str, Any] = {"block": block}
        for name, tile in (("a_scale", a_scale), ("b_scale", b_scale), ("acc", acc)):
            attrs[name] = None if tile is None else len(srcs)
            srcs += [] if tile is None else [tile]
        return self._recorder.compute("dot", "dot_scaled", [((*lead, m, n), self._dot_dtype)], srcs, attrs, work)[0]

    def _scale(self, name: str, scale: Any, shape: Shape) -> None:
        if scale is None:
            return
        tile = self._tile(scale, f"dot_scaled({name}=)")
        if tile.shape != shape:
            raise self.error(KernelError, f"dot_scaled: {name} is {tile.shape}, not {shape} (rows, k / block)")
        if tile.dtype.name not in _SCALES:
            mend = '; say tl.bitcast(scale, "e8m0")' if tile.dtype.name == "u8" else ""
            raise self.error(KernelError, f"dot_scaled: {name} is {tile.dtype}; scales are e8m0 or f32{mend}")

    def lookup(self, table: Tile, index: Tile) -> Tile:
        """``table[index]``: for each element of an integer tile, that element of a 1-D tile (a codebook).

        An index outside the table is an error when the trace is executed.
        """
        self._tile(table, "lookup")
        self._tile(index, "lookup")
        if table.ndim != 1:
            raise self.error(KernelError, f"lookup: the table is {table.shape}; reshape it to one axis")
        if index.dtype.kind != "int":
            raise self.error(KernelError, f"lookup: the index is {index.dtype}, not of integers")
        outs = [(index.shape, table.dtype)]
        return self._recorder.compute("vector", "lookup", outs, (table, index), {}, (index.size,))[0]

    def hadamard(self, x: Tile, axis: int = -1, normalize: bool = True) -> Tile:
        """Walsh-Hadamard transform along an axis of a power of two: ``x @ H`` with Sylvester's ``H``, natural order.

        A butterfly of log2(n) passes (strides 1, 2, 4, ...; ``a + b`` and ``a - b``) in float32, rounded once to the
        tile's format; with ``normalize`` one more pass multiplies by ``1 / sqrt(n)``, and ``H`` is orthonormal. In time
        each pass counts as one vector operation over the tile.
        """
        self._tile(x, "hadamard")
        if not -x.ndim <= axis < x.ndim:
            raise self.error(KernelError, f"hadamard: a tile {x.shape} has no axis {axis}")
        n = x.shape[axis]
        if n & (n - 1):
            raise self.error(KernelError, f"hadamard: axis {axis} of a tile {x.shape} is {n}, not a power of two")
        if x.dtype.kind != "float":
            raise self.error(KernelError, f"hadamard of {x.dtype}: floats only; cast it first")
        passes = max(1, n.bit_length() - 1 + bool(normalize))
        attrs = {"axis": axis % x.ndim, "normalize": bool(normalize)}
        outs = [(x.shape, x.dtype)]
        return self._recorder.compute("vector", "hadamard", outs, (x,), attrs, (x.size, passes))[0]


def _reading(x: Tile, shape: Shape, kind: DType) -> Tile:
    return Tile(x.tl, x.index, shape, kind, x.buffer)


def _swapped(x: Tile) -> Tile:
    """Exchange the halves of each byte."""
    return (x << 4) | (x >> 4)
