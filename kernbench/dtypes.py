"""Number formats by name: how wide each is in memory, and on which NumPy type its values are held.

``f16`` and ``bf16`` are *grids*, not storage types: their values are held as float32 numbers that lie on
the narrower format's grid (ADR 6). The seam for narrower formats is one more row in ``DTYPES`` and one more
rounding function in :mod:`kernbench.execute.rounding`.
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
    nbytes: int
    """Bytes of one element in memory and in scratch."""
    kind: str
    """``float``, ``int`` or ``bool``."""
    held_as: str
    """NumPy type that holds the values while executing."""

    def __str__(self) -> str:
        return self.name

    @property
    def external(self) -> np.dtype:
        """NumPy (or ``ml_dtypes``) type of the arrays that users pass in and get back."""
        if self.name == "bf16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype({"f16": "float16"}.get(self.name, self.held_as))


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f16", 2, "float", "float32"),
        DType("bf16", 2, "float", "float32"),
        DType("f32", 4, "float", "float32"),
        DType("i8", 1, "int", "int8"),
        DType("i16", 2, "int", "int16"),
        DType("i32", 4, "int", "int32"),
        DType("i64", 8, "int", "int64"),
        DType("u8", 1, "int", "uint8"),
        DType("u16", 2, "int", "uint16"),
        DType("u32", 4, "int", "uint32"),
        DType("b1", 1, "bool", "bool"),
    )
}

_BY_EXTERNAL = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "bool": "b1",
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

    The wider float wins; ``f16`` with ``bf16`` gives ``f32`` since neither grid holds the other; a float
    wins over any integer; integers follow NumPy.

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
