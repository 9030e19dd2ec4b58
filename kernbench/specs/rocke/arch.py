"""The architecture catalogue: what each GPU offers, as far as these kernels ask.

The numbers are those of ``arch_specs.json`` of rocke (``ROCm/rocm-libraries`` @08b7fe1). The byte format of fp8 is
not in that file: gfx942 has E4M3FNUZ (bias 8, ``0x80`` is NaN), gfx950 OCP E4M3FN (bias 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kernbench.errors import InputError, nearest

Fp8Format = Literal["e4m3fn", "e4m3fnuz"]


@dataclass(frozen=True, slots=True)
class Atom:
    """One matrix instruction: ``C[m, n] += A[m, k] B[k, n]``."""

    a: str
    """Format of A and B."""
    c: str
    """Format of C."""
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Arch:
    """What the catalogue says of one GPU architecture."""

    name: str
    family: Literal["cdna", "rdna"]
    wave_size: int
    """Lanes of one wave."""
    lds_bytes: int
    """LDS that one workgroup may use, in bytes."""
    vgprs: int
    agprs: int
    sgprs: int
    atoms: frozenset[Atom]
    """Matrix instructions without block scales."""
    fp8_format: Fp8Format | None = None
    """Byte format of fp8 values; None where these kernels have no fp8."""
    async_lds: bool = False
    """Whether global memory can be loaded straight into LDS, in the gfx9 way."""
    ds_read_tr: bool = False
    """Whether LDS can be read transposed, in the gfx950 way."""

    def has_atom(self, a: str, m: int, n: int, k: int, c: str = "fp32") -> bool:
        """Whether the catalogue lists this matrix instruction."""
        return Atom(a, c, m, n, k) in self.atoms


def _atoms(*groups: tuple[str, str]) -> frozenset[Atom]:
    """Read atoms from ``(formats, shapes)``; ``:c`` after a format names the accumulator if it is not fp32."""
    found = set()
    for formats, shapes in groups:
        for name in formats.split():
            a, _, c = name.partition(":")
            for shape in shapes.split():
                m, n, k = (int(size) for size in shape.split("x"))
                found.add(Atom(a, c or "fp32", m, n, k))
    return frozenset(found)


_NARROW = ("f16 bf16", "16x16x16 32x32x8")
_FP32 = ("fp32", "16x16x4 32x32x2")
_FP8 = ("fp8 bf8", "16x16x32 32x32x16")
_WIDE = ("f16 bf16", "16x16x32 32x32x16")
_WMMA = ("f16 bf16", "16x16x16")
_WMMA_INT = ("iu8:i32 iu4:i32", "16x16x16")

_CATALOGUE = (
    Arch("gfx90a", "cdna", 64, 65536, 512, 256, 102, _atoms(_NARROW)),
    Arch(
        "gfx942", "cdna", 64, 65536, 512, 256, 102,
        _atoms(_NARROW, _FP32, ("xf32", "16x16x8 32x32x4"), _FP8), "e4m3fnuz", async_lds=True,
    ),
    Arch(
        "gfx950", "cdna", 64, 163840, 512, 256, 102,
        _atoms(_NARROW, _WIDE, _FP32, _FP8, ("fp4", "16x16x128"), ("fp6", "16x16x96")),
        "e4m3fn", async_lds=True, ds_read_tr=True,
    ),
    Arch("gfx1151", "rdna", 32, 65536, 256, 0, 106, _atoms(_WMMA, _WMMA_INT)),
    Arch("gfx1201", "rdna", 32, 65536, 256, 0, 106, _atoms(_WMMA)),
    Arch(
        "gfx1250", "cdna", 32, 163840, 256, 0, 106,
        _atoms(("fp32", "16x16x4"), ("f16 bf16", "16x16x32"), ("fp8 bf8", "16x16x64")),
    ),
    Arch("gfx11-generic", "rdna", 32, 65536, 256, 0, 106, _atoms(_WMMA, _WMMA_INT)),
)  # fmt: skip

ARCHES: Mapping[str, Arch] = MappingProxyType({arch.name: arch for arch in _CATALOGUE})
"""The architectures of the catalogue by name."""


def find_arch(name: str) -> Arch:
    """Return the catalogue's entry for an architecture.

    Raises
    ------
    InputError
        If the catalogue has no such architecture; the message gives the nearest name.

    >>> find_arch("gfx942").fp8_format, find_arch("gfx1250").has_atom("f16", 16, 16, 16)
    ('e4m3fnuz', False)
    """
    if name not in ARCHES:
        raise InputError(f"unknown architecture {name!r}{nearest(name, ARCHES)}")
    return ARCHES[name]


def check_narrow_atom(dtype: str, arch: str) -> tuple[bool, str]:
    """Whether an architecture has the one matrix instruction that these kernels use: 16x16x16 into fp32.

    Parameters
    ----------
    dtype
        ``f16``, ``fp16`` or ``bf16``.
    arch
        Name of an architecture; an unknown one is a refusal, not an error.
    """
    if arch not in ARCHES:
        return False, f"unknown architecture {arch!r}{nearest(arch, ARCHES)}"
    name = "f16" if dtype == "fp16" else dtype
    if not ARCHES[arch].has_atom(name, 16, 16, 16):
        return False, f"{arch} has no {name} 16x16x16 matrix instruction"
    return True, "ok"
