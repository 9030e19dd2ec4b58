"""Number formats narrower than float32: every value by its bits, and rounding to them.

``fp8`` and ``bf8`` are E4M3 and E5M2. On gfx942 they have no negative zero and no infinity (FNUZ); on gfx950 they are
those of the Open Compute Project.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kernbench.errors import InputError

NARROW = ("fp8", "bf8", "fp4")
"""Formats that conversions know; matrix instructions know ``fp6`` (E2M3) and ``bf6`` (E3M2) too."""
_FNUZ: dict[str, Any] = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}
_OPEN: dict[str, Any] = {
    "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn,
    "fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn,
}  # fmt: skip


def dtype_of(name: str, arch: str) -> Any:
    """Return the type of ml_dtypes that an architecture means by a format's name.

    Raises
    ------
    InputError
        The architecture does not have the format.
    """
    known = {"gfx942": _FNUZ, "gfx950": _OPEN}.get(arch, {})
    if name not in known:
        raise InputError(f"{arch} does not have the format {name}")
    return known[name]


@cache
def values_of(name: str, arch: str) -> NDArray[np.float32]:
    """Return the 256 values of a format by their bits; of one narrower than a byte, repeated."""
    kind = dtype_of(name, arch)
    bits = np.arange(256, dtype=np.uint8)
    bits &= {"fp4": 0x0F, "fp6": 0x3F, "bf6": 0x3F}.get(name, 0xFF)
    return bits.view(kind).astype(np.float32)


def to_narrow(x: Any, name: str, arch: str) -> Any:
    """Round float32 to the nearest value of a format, ties to even; return the bits as uint32."""
    return np.asarray(x, np.float32).astype(dtype_of(name, arch)).view(np.uint8).astype(np.uint32)


def from_bfloat(bits: Any) -> Any:
    """Widen bfloat16, in the low half of words, to float32."""
    return (bits << np.uint32(16)).view(np.float32)


def to_bfloat(x: Any) -> Any:
    """Round float32 to bfloat16, ties to even; return the bits in the low half of words."""
    bits = np.asarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), bits >> np.uint32(16) | np.uint32(0x40), rounded)


def scale_of(x: Any) -> Any:
    """Return the power of two that a float32 scale stands for: its exponent alone counts."""
    exponent = (np.asarray(x).view(np.uint32) >> np.uint32(23) & np.uint32(255)).astype(np.int32)
    return np.ldexp(np.float32(1), exponent - 127)
