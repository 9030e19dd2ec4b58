"""What the rocke attention kernels compute: in float64, and operation by operation.

For each kernel there are two functions.

``*_reference``
    The mathematics in float64, from the numbers that the kernel is given. It keeps the kernel's meaning: which keys
    a row sees, which scale a key has, that a row without a kept key is the mean of V.
``*_faithful``
    The kernel's own operations, in its order and with its roundings (:mod:`~kernbench.specs.rocke.bodies`), so that
    a real run can be compared tightly. What is assumed and not known: how a matrix instruction adds
    (:mod:`~kernbench.specs.rocke.mfma`), and the last bit of ``exp2``.

Tensors are ``(token, head, d)``, formats as in :mod:`~kernbench.specs.rocke.layouts`. ``scale_log2`` is the factor on
the scores, times log2(e): a kernel that computes ``softmax(x * scale)`` is given ``scale * log2(e)``; it is rounded to
float32. ``seqlen_k`` is the run-time argument of that name: the MFMA body drops what does not fill a tile of 16.

``compat=True`` does what the original does where the default refuses or mends:

* sage, ``fp8_bf16`` with bf16 on the MFMA route: bits of Q are read, and those of O written, as f16 (faithful only);
* sage, ``alibi`` or ``custom`` on the warp route: nothing is masked;
* VSA, block ids out of range: dropped, with a warning.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from kernbench.errors import InputError
from kernbench.specs.rocke.bodies import mfma_body, warp_body
from kernbench.specs.rocke.layouts import ELEMENTS
from kernbench.specs.rocke.mfma import ACCUMULATE, Accumulate
from kernbench.specs.rocke.operands import (
    Operands,
    check_launch,
    dense_operands,
    kept_positions,
    sage_operands,
    sage_scales,
    visited_keys,
)
from kernbench.specs.rocke.sage import SageAttentionSpec
from kernbench.specs.rocke.sparse import JengaSparseSpec, VsaSparseSpec
from kernbench.specs.rocke.sparsity import kept_by_jenga, kept_by_vsa

EmptyRows = Literal["mean", "zero"]
"""What a row with no kept key is: the mean of V, as in these kernels, or 0."""

_SCORES_AT_ONCE = 1 << 22


def sage_reference(
    spec: SageAttentionSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    q_scale: np.ndarray,
    k_scale: np.ndarray,
    scale_log2: float,
    *,
    codebook_k: np.ndarray | None = None,
    codebook_v: np.ndarray | None = None,
    arch: str = "gfx950",
    seqlen_k: int | None = None,
    compat: bool = False,
    empty_rows: EmptyRows = "mean",
) -> np.ndarray:
    """Sage attention in float64.

    Parameters
    ----------
    spec
        The kernel.
    q : array of f16 or bf16, shape (seqlen_q, num_query_heads, head_size)
    k, v : array, shape (seqlen_k, num_kv_heads, head_size), packed i4: (..., head_size / 2)
    q_scale, k_scale : array of float32
        Scale buffers, addressed by ``spec.q_scale`` and ``spec.k_scale``.
    scale_log2
        Factor on the scores, times log2(e).
    codebook_k, codebook_v : array of float32, shape (256,) for i8, (16,) for i4
    arch
        Decides how fp8 bytes are read.
    seqlen_k
        Run-time length; the spec's by default.
    compat
        See the module.
    empty_rows
        What a row with no kept key is.

    Returns
    -------
    array of float64, shape (seqlen_q, num_query_heads, head_size)

    Raises
    ------
    RockeSpecError
        If the kernel cannot be had on ``arch``.
    InputError
        If a tensor does not fit the spec.
    """
    check_launch(spec, arch, compat, waves=False)
    keys = visited_keys(spec, seqlen_k)
    operands = sage_operands(spec, q, k, v, codebook_k, codebook_v, arch)
    row_scale, key_scale = sage_scales(spec, q_scale, k_scale, keys)
    row_scale = row_scale * np.float64(np.float32(scale_log2))
    out = _attend(operands, row_scale, key_scale, kept_positions(spec, keys), keys, empty_rows)
    return np.full_like(out, np.nan) if keys == 0 and spec.route() == "warp" else out


def sage_faithful(
    spec: SageAttentionSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    q_scale: np.ndarray,
    k_scale: np.ndarray,
    scale_log2: float,
    *,
    codebook_k: np.ndarray | None = None,
    codebook_v: np.ndarray | None = None,
    arch: str = "gfx950",
    seqlen_k: int | None = None,
    compat: bool = False,
    accumulate: Accumulate = "k_order",
) -> np.ndarray:
    """Sage attention, operation by operation, on the route that ``spec.route()`` names.

    Parameters are those of :func:`sage_reference`; ``accumulate`` says how matrix instructions add
    (:mod:`~kernbench.specs.rocke.mfma`). Only architectures with waves of 64 lanes are followed.

    Returns
    -------
    array of f16 or bf16, shape (seqlen_q, num_query_heads, head_size)
    """
    check_launch(spec, arch, compat, waves=True)
    _check_accumulate(accumulate)
    keys = visited_keys(spec, seqlen_k)
    element = spec.common.element
    broken = compat and element == "bf16" and spec.quant_mode == "fp8_bf16" and spec.route() == "mfma"
    operands = sage_operands(spec, q, k, v, codebook_k, codebook_v, arch)
    if broken:
        bits = np.ascontiguousarray(q).view(np.float16).astype(np.float32).swapaxes(0, 1)
        operands, element = Operands(bits, operands.k, operands.v), "f16"
    scales = sage_scales(spec, q_scale, k_scale, keys)
    keep = kept_positions(spec, keys)
    if spec.route() == "mfma":
        out = _sage_mfma(spec, operands, scales, np.float32(scale_log2), keep, keys, element, accumulate)
    else:
        factor = scales[0][:, :, None] * scales[1][:, None, :]
        out = warp_body(
            operands.q, operands.k[:, :keys], operands.v[:, :keys], np.float32(scale_log2), factor, keep, element
        )
    out = np.ascontiguousarray(out.swapaxes(0, 1))
    return out.view(ELEMENTS["bf16"]) if broken else out


def _sage_mfma(
    spec: SageAttentionSpec,
    operands: Operands,
    scales: tuple[np.ndarray, np.ndarray],
    scale_log2: np.float32,
    keep: np.ndarray | None,
    keys: int,
    element: str,
    accumulate: Accumulate,
) -> np.ndarray:
    """Fold the scales as the kernel does: those of a head into the first factor, those of a block behind it."""
    row_scale, key_scale = scales
    second: np.ndarray | None = key_scale
    if spec.k_scale.layout == "per_head":
        row_scale, second = row_scale * key_scale[:, :1] if keys else row_scale, None
    return mfma_body(
        operands.q, operands.k[:, :keys], operands.v[:, :keys], scale_log2 * row_scale, second, keep, element,
        accumulate,
    )  # fmt: skip


def jenga_reference(
    spec: JengaSparseSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray,
    scale_log2: float,
    *,
    arch: str = "gfx950",
    seqlen_k: int | None = None,
    empty_rows: EmptyRows = "mean",
) -> np.ndarray:
    """Jenga attention in float64.

    Parameters
    ----------
    spec
        The kernel.
    q : array of f16 or bf16, shape (seqlen_q, num_query_heads, head_size)
    k, v : array of f16 or bf16, shape (seqlen_k, num_kv_heads, head_size)
    mask : array of bytes, shape (num_q_blocks, num_k_blocks)
        Not 0 keeps a block.
    scale_log2
        Factor on the scores, times log2(e).
    arch, seqlen_k, empty_rows
        As for :func:`sage_reference`.

    Returns
    -------
    array of float64, shape (seqlen_q, num_query_heads, head_size)
    """
    check_launch(spec, arch, False, waves=False)
    return _sparse_reference(spec, q, k, v, kept_by_jenga(spec, mask), scale_log2, seqlen_k, empty_rows)


def jenga_faithful(
    spec: JengaSparseSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray,
    scale_log2: float,
    *,
    arch: str = "gfx950",
    seqlen_k: int | None = None,
    accumulate: Accumulate = "k_order",
) -> np.ndarray:
    """Jenga attention, operation by operation; see :func:`jenga_reference` and :func:`sage_faithful`."""
    check_launch(spec, arch, False, waves=True)
    return _sparse_faithful(spec, q, k, v, kept_by_jenga(spec, mask), scale_log2, seqlen_k, accumulate)


def vsa_reference(
    spec: VsaSparseSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    block_lut: np.ndarray,
    block_count: np.ndarray,
    scale_log2: float,
    *,
    arch: str = "gfx950",
    seqlen_k: int | None = None,
    compat: bool = False,
    empty_rows: EmptyRows = "mean",
) -> np.ndarray:
    """VSA attention in float64; see :func:`jenga_reference`.

    ``block_lut`` is int32 of shape (num_q_blocks, max_blocks_per_q), ``block_count`` int32 of shape (num_q_blocks,).

    Raises
    ------
    InputError
        For a block id that is out of range in the part of a row that counts, unless ``compat``.
    """
    check_launch(spec, arch, compat, waves=False)
    keep = kept_by_vsa(spec, block_lut, block_count, compat=compat)
    return _sparse_reference(spec, q, k, v, keep, scale_log2, seqlen_k, empty_rows)


def vsa_faithful(
    spec: VsaSparseSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    block_lut: np.ndarray,
    block_count: np.ndarray,
    scale_log2: float,
    *,
    arch: str = "gfx950",
    seqlen_k: int | None = None,
    compat: bool = False,
    accumulate: Accumulate = "k_order",
) -> np.ndarray:
    """VSA attention, operation by operation; see :func:`vsa_reference` and :func:`sage_faithful`."""
    check_launch(spec, arch, compat, waves=True)
    keep = kept_by_vsa(spec, block_lut, block_count, compat=compat)
    return _sparse_faithful(spec, q, k, v, keep, scale_log2, seqlen_k, accumulate)


def _sparse_reference(
    spec: JengaSparseSpec | VsaSparseSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    keep: np.ndarray,
    scale_log2: float,
    seqlen_k: int | None,
    empty_rows: EmptyRows,
) -> np.ndarray:
    keys = visited_keys(spec, seqlen_k)
    operands = dense_operands(spec, q, k, v)
    row_scale = np.full(operands.q.shape[:2], np.float64(np.float32(scale_log2)))
    return _attend(operands, row_scale, np.ones((len(operands.q), keys)), keep[:, :keys], keys, empty_rows)


def _sparse_faithful(
    spec: JengaSparseSpec | VsaSparseSpec,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    keep: np.ndarray,
    scale_log2: float,
    seqlen_k: int | None,
    accumulate: Accumulate,
) -> np.ndarray:
    _check_accumulate(accumulate)
    keys = visited_keys(spec, seqlen_k)
    operands = dense_operands(spec, q, k, v)
    scale = np.full(operands.q.shape[:2], np.float32(scale_log2))
    out = mfma_body(
        operands.q, operands.k[:, :keys], operands.v[:, :keys], scale, None, keep[:, :keys], spec.common.element,
        accumulate,
    )  # fmt: skip
    return np.ascontiguousarray(out.swapaxes(0, 1))


def _attend(
    operands: Operands,
    row_scale: np.ndarray,
    key_scale: np.ndarray,
    keep: np.ndarray | None,
    keys: int,
    empty_rows: EmptyRows,
) -> np.ndarray:
    """Attend in float64, head by head and some rows at a time; the result is ``(rows, heads, d)``."""
    heads, rows, d = operands.q.shape
    out = np.zeros((rows, heads, d))
    step = max(1, _SCORES_AT_ONCE // max(1, keys))
    with np.errstate(all="ignore"), threadpool_limits(1, user_api="blas"):
        for head in range(heads) if keys else ():
            k, v = (x[head, :keys].astype(np.float64) for x in (operands.k, operands.v))
            for first in range(0, rows, step):
                some = slice(first, first + step)
                scores = operands.q[head, some].astype(np.float64) @ k.T
                scores *= row_scale[head, some, None] * key_scale[head].astype(np.float64)
                out[some, head] = _weights(scores, None if keep is None else keep[some], empty_rows) @ v
    return out


def _weights(scores: np.ndarray, keep: np.ndarray | None, empty_rows: EmptyRows) -> np.ndarray:
    """Return the base-2 softmax of each row over its kept keys."""
    if keep is not None:
        scores = np.where(keep, scores, -np.inf)
        empty = ~keep.any(axis=1)
        scores[empty] = 0
    weights = np.exp2(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    if keep is not None and empty_rows == "zero":
        weights[empty] = 0
    return weights


def _check_accumulate(accumulate: str) -> None:
    if accumulate not in ACCUMULATE:
        raise InputError(f"accumulate cannot be {accumulate!r}: it must be one of {', '.join(ACCUMULATE)}")
