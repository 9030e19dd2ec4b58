"""What a kernel is given, checked against its spec and widened: the numbers that the float arithmetic starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernbench.errors import InputError
from kernbench.specs.rocke.arch import find_arch
from kernbench.specs.rocke.common import TILE_KEYS, WARP_LANES, FmhaCommonSpec, RockeSpecError
from kernbench.specs.rocke.layouts import ELEMENTS, decode_fp8, fp8_dtype, read_scales, unpack_i4
from kernbench.specs.rocke.sage import CODEBOOK_ENTRIES, SageAttentionSpec
from kernbench.specs.rocke.sparse import JengaSparseSpec, VsaSparseSpec

Spec = SageAttentionSpec | JengaSparseSpec | VsaSparseSpec


@dataclass(frozen=True)
class Operands:
    """The tensors of a launch in float32, head-major, cut to the keys that the kernel visits."""

    q: np.ndarray
    """Shape (query heads, rows, d)."""
    k: np.ndarray
    """Shape (query heads, keys, d): repeated for the query heads that share it."""
    v: np.ndarray
    """The same."""


def check_launch(spec: Spec, arch: str, compat: bool, waves: bool) -> None:
    """Raise if the kernel cannot be had, or (``waves``) has a body that is not followed here."""
    ok, reason = spec.is_valid(arch, compat=compat)
    if not ok:
        raise RockeSpecError(f"{spec.kernel_name()} on {arch}: {reason}")
    error = spec.build_error(arch)
    if error is not None:
        raise RockeSpecError(f"{spec.kernel_name()} on {arch} cannot be built: {error}")
    if waves and find_arch(arch).wave_size != WARP_LANES:
        raise InputError(f"{arch} has waves of {find_arch(arch).wave_size} lanes: only bodies for 64 are followed")


def visited_keys(spec: Spec, seqlen_k: int | None) -> int:
    """Return how many keys the kernel visits, given its run-time argument ``seqlen_k``: whole tiles, or all.

    Raises
    ------
    InputError
        If the argument is negative or above the spec's value: the LDS of the kernel is sized by the spec.
    """
    keys = spec.seqlen_k if seqlen_k is None else seqlen_k
    if not 0 <= keys <= spec.seqlen_k:
        raise InputError(f"the argument seqlen_k={keys} must lie in 0 ... {spec.seqlen_k}, the spec's value")
    return keys // TILE_KEYS * TILE_KEYS if spec.route() == "mfma" else keys


def read_queries(spec: Spec, q: np.ndarray) -> np.ndarray:
    """Check Q, and return it as float32 of shape (heads, rows, d)."""
    shape = spec.common.shape
    check_tensor("q", q, (spec.seqlen_q, shape.num_query_heads, shape.head_size), ELEMENTS[spec.common.element])
    return q.astype(np.float32).swapaxes(0, 1)


def dense_operands(spec: JengaSparseSpec | VsaSparseSpec, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Operands:
    """Check and widen the tensors of a sparse kernel; ``k`` and ``v`` hold all keys of the spec."""
    shape = spec.common.shape
    for name, tensor in (("k", k), ("v", v)):
        expected = (spec.seqlen_k, shape.num_kv_heads, shape.head_size)
        check_tensor(name, tensor, expected, ELEMENTS[spec.common.element])
    return Operands(
        read_queries(spec, q), by_query_head(spec.common, k.astype(np.float32)),
        by_query_head(spec.common, v.astype(np.float32)),
    )  # fmt: skip


def sage_operands(
    spec: SageAttentionSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    codebook_k: np.ndarray | None,
    codebook_v: np.ndarray | None,
    arch: str,
) -> Operands:
    """Check, dequantise and widen the tensors of a sage kernel."""
    keys = dequantise(spec, "k", k, codebook_k, arch)
    values = dequantise(spec, "v", v, codebook_v, arch)
    return Operands(read_queries(spec, q), by_query_head(spec.common, keys), by_query_head(spec.common, values))


def dequantise(
    spec: SageAttentionSpec, name: str, tensor: np.ndarray, codebook: np.ndarray | None, arch: str
) -> np.ndarray:
    """Return K or V of a sage kernel as the float32 numbers that the kernel makes of it.

    Parameters
    ----------
    spec
        Gives the format.
    name
        ``k`` or ``v``, for messages.
    tensor : array, shape (keys, kv heads, d), packed i4: (keys, kv heads, d / 2)
        See :mod:`kernbench.specs.rocke.layouts` for the formats.
    codebook : array of float32, shape (256,) for i8, (16,) for i4
    arch
        Decides how fp8 bytes are read.

    Returns
    -------
    array of float32, shape (keys, kv heads, d)
    """
    shape = spec.common.shape
    expected = (spec.seqlen_k, shape.num_kv_heads, shape.head_size)
    if spec.quant_mode == "fp16_bf16":
        check_tensor(name, tensor, expected, ELEMENTS[spec.common.element])
        return tensor.astype(np.float32)
    if spec.quant_mode == "fp8_bf16":
        check_tensor(name, tensor, expected, np.dtype(np.uint8), fp8_dtype(arch))
        return decode_fp8(tensor, arch)
    entries = CODEBOOK_ENTRIES[spec.quant_mode]
    if codebook is None or codebook.shape != (entries,) or codebook.dtype != np.float32:
        raise InputError(f"{spec.quant_mode} needs codebook_{name}: float32 of shape ({entries},)")
    if spec.quant_mode == "i8_fp8_bf16":
        check_tensor(name, tensor, expected, np.dtype(np.int8))
        return codebook[tensor.astype(np.int64) + 128]
    check_tensor(name, tensor, (*expected[:2], expected[2] // 2), np.dtype(np.uint8), np.dtype(np.int8))
    return codebook[unpack_i4(tensor).astype(np.int64) + 8]


def sage_scales(
    spec: SageAttentionSpec, q_scale: np.ndarray, k_scale: np.ndarray, keys: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales of each row and of each visited key: float32, (query heads, rows) and (query heads, keys)."""
    shape = spec.common.shape
    rows = read_scales(spec.q_scale, q_scale, shape.num_query_heads, spec.seqlen_q)
    columns = read_scales(spec.k_scale, k_scale, shape.num_kv_heads, keys)
    return rows, np.repeat(columns, shape.num_queries_per_kv, axis=0)


def kept_positions(spec: SageAttentionSpec, keys: int) -> np.ndarray | None:
    """Return which keys each row sees by position, shape (rows, keys); None if all.

    ``causal`` is aligned top-left; ``sliding_window`` keeps all later keys. ``alibi`` and ``custom`` mask nothing.
    """
    q_pos, k_pos = np.arange(spec.seqlen_q)[:, None], np.arange(keys)
    if spec.common.mask_mode == "causal":
        return k_pos <= q_pos
    if spec.common.mask_mode == "sliding_window":
        return q_pos - k_pos < spec.common.sliding_window
    return None


def by_query_head(common: FmhaCommonSpec, tensor: np.ndarray) -> np.ndarray:
    """Turn ``(token, kv head, d)`` into ``(query head, token, d)``."""
    return np.repeat(tensor.swapaxes(0, 1), common.shape.num_queries_per_kv, axis=0)


def check_tensor(name: str, tensor: np.ndarray, shape: tuple[int, ...], *dtypes: np.dtype) -> None:
    """Raise InputError unless a tensor has the shape and one of the formats that the spec asks for."""
    if tensor.shape != shape or tensor.dtype not in dtypes:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise InputError(f"{name} must be {wanted} of shape {shape}, not {tensor.dtype} of {tensor.shape}")
