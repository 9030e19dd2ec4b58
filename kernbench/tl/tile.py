"""Tiles: values in a PE's scratch, as a kernel sees them. A tile is a handle; it holds no numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernbench.dtypes import DType
from kernbench.errors import KernelError

if TYPE_CHECKING:
    from kernbench.record.scratch import Buffer
    from kernbench.tl.language import Language


class Tile:
    """A value in scratch. Operators are those of :class:`~kernbench.tl.Language`, with NumPy broadcasting.

    Attributes
    ----------
    shape : tuple of int
    dtype : DType
    """

    __slots__ = ("buffer", "dtype", "index", "shape", "tl")
    __array_ufunc__ = None  # so that a NumPy scalar on the left leaves the operation to the tile

    def __init__(self, tl: Language, index: int, shape: tuple[int, ...], dtype: DType, buffer: Buffer) -> None:
        self.tl = tl
        self.index = index
        self.shape = shape
        self.dtype = dtype
        self.buffer = buffer

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def nbytes(self) -> int:
        """Bytes in scratch."""
        return self.dtype.size_of(self.size)

    @property
    def T(self) -> Tile:
        """The transpose, as :meth:`~kernbench.tl.Language.trans` gives it."""
        return self.tl.trans(self)

    def to(self, dtype: Any) -> Tile:
        """The same values in another format, as :meth:`~kernbench.tl.Language.cast` gives them."""
        return self.tl.cast(self, dtype)

    def __repr__(self) -> str:
        return f"Tile(shape={self.shape}, dtype={self.dtype})"

    def __add__(self, other: Any) -> Tile:
        return self.tl.elementwise("add", self, other)

    def __radd__(self, other: Any) -> Tile:
        return self.tl.elementwise("add", other, self)

    def __sub__(self, other: Any) -> Tile:
        return self.tl.elementwise("subtract", self, other)

    def __rsub__(self, other: Any) -> Tile:
        return self.tl.elementwise("subtract", other, self)

    def __mul__(self, other: Any) -> Tile:
        return self.tl.elementwise("multiply", self, other)

    def __rmul__(self, other: Any) -> Tile:
        return self.tl.elementwise("multiply", other, self)

    def __truediv__(self, other: Any) -> Tile:
        return self.tl.elementwise("divide", self, other, function="true")

    def __rtruediv__(self, other: Any) -> Tile:
        return self.tl.elementwise("divide", other, self, function="true")

    def __floordiv__(self, other: Any) -> Tile:
        return self.tl.elementwise("divide", self, other, function="floor")

    def __rfloordiv__(self, other: Any) -> Tile:
        return self.tl.elementwise("divide", other, self, function="floor")

    def __mod__(self, other: Any) -> Tile:
        return self.tl.elementwise("divide", self, other, function="mod")

    def __rmod__(self, other: Any) -> Tile:
        return self.tl.elementwise("divide", other, self, function="mod")

    def __neg__(self) -> Tile:
        return self.tl.elementwise("negate", self)

    def __abs__(self) -> Tile:
        return self.tl.elementwise("abs", self)

    def __lt__(self, other: Any) -> Tile:
        return self.tl.elementwise("compare", self, other, relation="lt")

    def __le__(self, other: Any) -> Tile:
        return self.tl.elementwise("compare", self, other, relation="le")

    def __gt__(self, other: Any) -> Tile:
        return self.tl.elementwise("compare", self, other, relation="gt")

    def __ge__(self, other: Any) -> Tile:
        return self.tl.elementwise("compare", self, other, relation="ge")

    def __eq__(self, other: Any) -> Tile:  # type: ignore[override]
        return self.tl.elementwise("compare", self, other, relation="eq")

    def __ne__(self, other: Any) -> Tile:  # type: ignore[override]
        return self.tl.elementwise("compare", self, other, relation="ne")

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Tile:
        return self.tl.elementwise("logical", self, other, function="and")

    __rand__ = __and__

    def __or__(self, other: Any) -> Tile:
        return self.tl.elementwise("logical", self, other, function="or")

    __ror__ = __or__

    def __xor__(self, other: Any) -> Tile:
        return self.tl.elementwise("logical", self, other, function="xor")

    __rxor__ = __xor__

    def __invert__(self) -> Tile:
        return self.tl.elementwise("logical", self, function="not")

    def __lshift__(self, other: Any) -> Tile:
        return self.tl.elementwise("logical", self, other, function="lshift")

    def __rshift__(self, other: Any) -> Tile:
        return self.tl.elementwise("logical", self, other, function="rshift")

    def _no_value(self) -> KernelError:
        return self.tl.error(
            KernelError,
            f"this needs the value of a tile {self.shape} {self.dtype}, but a kernel is recorded before it has data: "
            "use tl.where, or read control data with tl.load_scalar",
        )

    def __bool__(self) -> bool:
        raise self._no_value()

    def __int__(self) -> int:
        raise self._no_value()

    def __index__(self) -> int:
        raise self._no_value()

    def __float__(self) -> float:
        raise self._no_value()

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        raise self.tl.error(KernelError, "a tile cannot be iterated over or indexed; load the part that you need")

    def __getitem__(self, key: Any) -> Any:
        raise self.tl.error(KernelError, "a tile cannot be iterated over or indexed; load the part that you need")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self.tl.error(KernelError, "a tile cannot be indexed; carry values out with tl.copy_to(tile, value)")
