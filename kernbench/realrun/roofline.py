"""The plain roofline: what no kernel can beat, and what a model of kernels must be better than.

Conventions: causal attention counts the scores at or below the diagonal (half of a square); latent (MLA) keys and
values are read once; sparse attention counts the blocks that its mask keeps; each input is read once and each output
written once (outputs at least two bytes wide).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from kernbench.dtypes import DTYPES
from kernbench.realrun.prediction import NotModelled
from kernbench.realrun.records import RunRecord, RunSpec

_T = TypeVar("_T")

_ATTENTION = frozenset({
    "decode_splitkv", "prefill", "block_sparse", "ultraquant_decode", "paged_decode", "mla_decode", "sdpa_flash",
    "sdpa_cudnn", "sequence_parallel_decode",
})  # fmt: skip
_BACKWARD = 2.5
"""Matrix work of a backward pass over that of its forward pass: five products instead of two."""
_SCALE_BYTES = {"fp4e2m1": 1 / 32}
"""Bytes of scales per element: a block of 32 shares one E8M0."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a machine's data sheet promises of one GPU."""

    matrix_tflops: Mapping[str, float]
    """Dense matrix peak by element type of queries, as ``{"bf16": 989.0}``; 1e12 flop a second."""
    hbm_gbps: float
    """Peak memory bandwidth, 1e9 bytes a second."""
    link_gbps: float | None = None
    """Peak bandwidth of a GPU to its peers, one direction, 1e9 bytes a second; None if it has none."""


def roofline_us(record: RunRecord, peaks: Peaks) -> float:
    """Return max(flops / matrix peak, compulsory bytes / memory bandwidth) in microseconds.

    A collective is its bytes over a GPU's link. An empty launch is 0.

    Raises
    ------
    NotModelled
        If the record does not say enough, or needs a peak that is not given.
    """
    spec = record.spec
    if record.family == "collective":
        return _collective_us(spec, peaks)
    if record.family == "micro":
        return _micro_us(spec, peaks)
    if record.family not in _ATTENTION and spec.mode != "backward":
        raise NotModelled(f"no roofline for {record.family} {spec.mode or record.implementation.name}")
    share = (spec.world or 1) if record.family == "sequence_parallel_decode" else 1
    dtype = _queries(spec)
    compute = attention_flops(record) / share / _matrix_peak(peaks, dtype)
    return max(compute, attention_bytes(record, share) / (peaks.hbm_gbps * 1e3))


def attention_flops(record: RunRecord) -> float:
    """Count the flops of both matrix products, of all scores that count.

    Raises
    ------
    NotModelled
        If a size is not known.
    """
    spec = record.spec
    s_q, s_kv = _known("query length", spec.s_q), _known("key length", spec.s_kv)
    scores = float(s_q * s_kv)
    if spec.causal and s_q > 1:  # queries are the last of the sequence; of a square this is half
        scores = s_q * (s_kv - s_q / 2) if s_q <= s_kv else s_kv * s_kv / 2
    if record.family == "block_sparse":
        scores *= _known("density of the mask", spec.density)
    heads = _known("batch", spec.batch) * _known("query heads", spec.h_q)
    flops = 2.0 * heads * scores * sum(_dims(spec))
    return flops * _BACKWARD if spec.mode == "backward" else flops


def attention_bytes(record: RunRecord, share: int = 1) -> float:
    """Count the bytes that must cross the memory interface, keys and values divided over ``share`` GPUs.

    Raises
    ------
    NotModelled
        If a size or element type is not known.
    """
    spec = record.spec
    d_qk, d_v = _dims(spec)
    batch, h_q, h_kv = _known("batch", spec.batch), _known("query heads", spec.h_q), _known("KV heads", spec.h_kv)
    dtype = _queries(spec)
    wide = _width(dtype)
    latent = record.family == "mla_decode" or (h_kv == 1 and (d_qk, d_v) == (576, 512))
    s_q, s_kv = _known("query length", spec.s_q), _known("key length", spec.s_kv)
    keys = batch * s_kv * (d_qk if latent else h_kv * (d_qk + d_v)) * _width(spec.kv_dtype or dtype)
    queries = batch * h_q * s_q * (d_qk * wide + d_v * max(wide, 2.0))
    if spec.mode == "backward":  # reads Q, K, V, O and dO, writes dQ, dK and dV: all twice, and O's gradient
        return 2 * (keys + queries) / share
    return keys / share + queries


def _collective_us(spec: RunSpec, peaks: Peaks) -> float:
    if peaks.link_gbps is None:
        raise NotModelled("no peak bandwidth between GPUs is given")
    nbytes, world = _known("bytes", spec.nbytes), spec.world or 2
    # what each GPU sends: nbytes is the input of each
    sent = {"all_reduce": 2 * (world - 1) / world, "all_gather": world - 1, "reduce_scatter": (world - 1) / world}
    return nbytes * sent.get(spec.mode or "", 1.0) / (peaks.link_gbps * 1e3)


def _micro_us(spec: RunSpec, peaks: Peaks) -> float:
    if spec.m is not None:
        dtype = spec.dtype or "bf16"
        compute = 2.0 * spec.m**3 / _matrix_peak(peaks, dtype)
        return max(compute, 3 * spec.m**2 * _width(dtype) / (peaks.hbm_gbps * 1e3))
    return (spec.nbytes or 0) / (peaks.hbm_gbps * 1e3)


def _dims(spec: RunSpec) -> tuple[int, int]:
    d_qk = _known("head dimension", spec.d_qk)
    return d_qk, spec.d_v or d_qk


def _queries(spec: RunSpec) -> str:
    """Element type of queries: bf16 if only that of keys and values is given."""
    if spec.dtype is None and spec.kv_dtype is not None:
        return "bf16"
    return _known("element type", spec.dtype)


def _matrix_peak(peaks: Peaks, dtype: str) -> float:
    """Peak in flop per microsecond."""
    try:
        return peaks.matrix_tflops[dtype] * 1e6
    except KeyError:
        raise NotModelled(f"no matrix peak is given for {dtype}") from None


def _width(dtype: str) -> float:
    """Bytes of an element, its share of block scales included."""
    if dtype not in DTYPES:
        raise NotModelled(f"element type {dtype!r} is not known")
    return DTYPES[dtype].bits / 8 + _SCALE_BYTES.get(dtype, 0.0)


def _known(what: str, value: _T | None) -> _T:
    if value is None:
        raise NotModelled(f"the source does not give the {what}")
    return value
