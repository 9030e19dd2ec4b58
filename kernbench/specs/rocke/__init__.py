"""The sage, Jenga and VSA attention kernels of the ``rocke`` package of ROCm: their specs and what they compute.

A user of such a kernel writes the same spec here, field by field, and gets the same values. The original is part of
``ROCm/rocm-libraries`` (``dnn-providers/hip-kernel-provider/rocke``); field names, rules, argument blocks and the
order of operations were read there. Nothing here imports it.

:mod:`~kernbench.specs.rocke.arch`
    What the architecture catalogue says of each GPU.
:mod:`~kernbench.specs.rocke.common`
    ``FmhaShape``, ``FmhaCommonSpec``, ``QkScaleSpec`` and the rules that all kernels share.
:mod:`~kernbench.specs.rocke.sage`, :mod:`~kernbench.specs.rocke.sparse`
    The three kernel specs.
:mod:`~kernbench.specs.rocke.layouts`, :mod:`~kernbench.specs.rocke.sparsity`
    Arrays as the kernels read them: token-major tensors, fp8 bytes, packed i4, scale buffers, bitmaps and LUTs.
:mod:`~kernbench.specs.rocke.reference`
    Each kernel in float64, and operation by operation.
"""

from kernbench.specs.rocke.arch import ARCHES, Arch, find_arch
from kernbench.specs.rocke.common import FmhaCommonSpec, FmhaShape, QkScaleSpec, RockeSpecError
from kernbench.specs.rocke.reference import (
    jenga_faithful,
    jenga_reference,
    sage_faithful,
    sage_reference,
    vsa_faithful,
    vsa_reference,
)
from kernbench.specs.rocke.sage import SageAttentionSpec
from kernbench.specs.rocke.sparse import JengaSparseSpec, VsaSparseSpec

__all__ = [
    "ARCHES",
    "Arch",
    "FmhaCommonSpec",
    "FmhaShape",
    "JengaSparseSpec",
    "QkScaleSpec",
    "RockeSpecError",
    "SageAttentionSpec",
    "VsaSparseSpec",
    "find_arch",
    "jenga_faithful",
    "jenga_reference",
    "sage_faithful",
    "sage_reference",
    "vsa_faithful",
    "vsa_reference",
]
