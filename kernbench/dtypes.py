"""Number formats by name: how wide each is in memory, and on which NumPy type its values are held.

Floats narrower than float32 are *grids*, not storage types: their values are held as float32 numbers that lie on
the narrower format's grid (ADR 6, ADR 10). A new format is one more row in ``DTYPES`` and one more rounding function
in :mod:`kernbench.execute.rounding`. Formats of 4 bits are *packed*: they exist in scratch, two a byte, and in memory
only as the bytes of a ``u8`` tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernbench.errors import KernbenchError, nearest


@dataclass(frozen=True, slots=True)
class DType:
    """One number format."""

    name: str
    """The name that kernels and specs use, as ``f16``."""
    bits: int
    """Bits of one element in memory and in scratch."""
    kind: str
    """``float``, ``int`` or ``bool``."""
    held_as: str
    """NumPy type that holds the values while executing."""

    def __str__(self) -> str:
        return self.name

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte."""
        return self.bits < 8

    @property
    def nbytes(self) -> int:
        """Bytes of one element. A packed element has none: see :meth:`size_of`."""
        if self.is_packed:
            raise KernbenchError(f"one element of {self} is {self.bits} bits, not whole bytes")
        return self.bits // 8

    def size_of(self, count: int) -> int:
        """Bytes that ``count`` elements take, packed ones rounded up to a whole byte.

        >>> DTYPES["f16"].size_of(3), DTYPES["i4"].size_of(3)
        (6, 2)
        """
        return -(-count * self.bits // 8)

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer format."""
        if self.is_packed:
            return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        known = np.iinfo(self.held_as)
        return int(known.min), int(known.max)

    @property
    def external(self) -> np.dtype:
        """NumPy (or ``ml_dtypes``) type of the arrays that users pass in and get back."""
        if self.name in _ML_DTYPES:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
        return np.dtype({"f16": "float16"}.get(self.name, self.held_as))


_ML_DTYPES = {
    "bf16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e4m3fnuz": "float8_e4m3fnuz", "fp8e5m2": "float8_e5m2",
    "e8m0": "float8_e8m0fnu", "fp4e2m1": "float4_e2m1fn", "i4": "int4",
}  # fmt: skip
"""Formats that NumPy lacks, and their names in ``ml_dtypes``."""


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f16", 16, "float", "float32"),
        DType("bf16", 16, "float", "float32"),
        DType("f32", 32, "float", "float32"),
        DType("fp8e4m3", 8, "float", "float32"),  # OCP E4M3: bias 7, no infinity
        DType("fp8e4m3fnuz", 8, "float", "float32"),  # gfx942's E4M3: bias 8, neither infinity nor -0
        DType("fp8e5m2", 8, "float", "float32"),
        DType("fp4e2m1", 4, "float", "float32"),  # 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives
        DType("e8m0", 8, "float", "float32"),  # powers of two, 2**(byte - 127); 255 is NaN
        DType("i4", 4, "int", "int8"),
        DType("i8", 8, "int", "int8"),
        DType("i16", 16, "int", "int16"),
        DType("i32", 32, "int", "int32"),
        DType("i64", 64, "int", "int64"),
        DType("u8", 8, "int", "uint8"),
        DType("u16", 16, "int", "uint16"),
        DType("u32", 32, "int", "uint32"),
        DType("b1", 8, "bool", "bool"),
    )
}

_BY_EXTERNAL = {external: name for name, external in _ML_DTYPES.items()} | {
    "float16": "f16", "float32": "f32", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "bool": "b1",
}  # fmt: skip


def dtype(name: object) -> DType:
    """Return the format called ``name`` (a kernbench name, a NumPy name or a NumPy dtype).

    Raises
    ------
    KernbenchError
        If no such format exists; the message gives the nearest name.

    >>> dtype("f16").nbytes, dtype(np.float16).name
    (2, 'f16')
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, str) and name in DTYPES:
        return DTYPES[name]
    text = name if isinstance(name, str) else _numpy_name(name)
    if text in _BY_EXTERNAL:
        return DTYPES[_BY_EXTERNAL[text]]
    raise KernbenchError(f"unknown dtype {text!r}{nearest(text, DTYPES)}")


def _numpy_name(name: object) -> str:
    try:
        return np.dtype(name).name  # type: ignore[call-overload]
    except TypeError:
        return str(name)


def promote(a: DType, b: DType) -> DType:
    """Format of the result of an elementwise operation on tiles of formats ``a`` and ``b``.

    Two different floats give ``f32``, since most grids do not hold each other's values; a float wins over any
    integer; integers follow NumPy.

    >>> promote(DTYPES["f16"], DTYPES["bf16"]).name, promote(DTYPES["i32"], DTYPES["f16"]).name
    ('f32', 'f16')
    """
    if a is b:
        return a
    if a.kind == "float" and b.kind == "float":
        return DTYPES["f32"]
    if a.kind == "float":
        return a
    if b.kind == "float":
        return b
    result = np.promote_types(a.held_as, b.held_as).name
    if result == "float64":
        result = "int64"
    return DTYPES[_BY_EXTERNAL[result]]
