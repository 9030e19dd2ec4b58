"""Random inputs for a spec: the arrays and numbers of a launch, by the names of the kernel's signature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.realrun.rocke.payloads import Spec
from kernbench.specs.rocke import (
    JengaSparseSpec,
    QkScaleSpec,
    SageAttentionSpec,
    jenga_faithful,
    jenga_reference,
    sage_faithful,
    sage_reference,
    vsa_faithful,
    vsa_reference,
)
from kernbench.specs.rocke.layouts import ELEMENTS, encode_fp8, pack_i4, scale_offsets, stride_arguments
from kernbench.specs.rocke.sage import CODEBOOK_ENTRIES

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Launch:
    """What a kernel is launched with, and what kernbench says comes out."""

    spec: Spec
    arch: str
    arguments: dict[str, Any]
    """Arrays and numbers by name; ``O`` is written by the launch, and NaN before."""

    @property
    def faithful(self) -> Array:
        """The kernel's operations one by one, in its order and formats; what the original gets wrong included."""
        return self._follow(sage_faithful, jenga_faithful, vsa_faithful)

    @property
    def exact(self) -> Array:
        """The mathematics in float64."""
        return self._follow(sage_reference, jenga_reference, vsa_reference)

    def _follow(self, sage: Any, jenga: Any, vsa: Any) -> Array:
        given = self.arguments
        tensors = (self.spec, given["Q"], given["K"], given["V"])
        if isinstance(self.spec, SageAttentionSpec):
            books = {name: given.get(name) for name in ("codebook_k", "codebook_v")}
            scales = (given["q_scale"], given["k_scale"], given["scale_log2"])
            return sage(*tensors, *scales, **books, arch=self.arch, compat=True)
        if isinstance(self.spec, JengaSparseSpec):
            return jenga(*tensors, given["mask"], given["scale_log2"], arch=self.arch)
        lists = (given["block_lut"], given["block_count"])
        return vsa(*tensors, *lists, given["scale_log2"], arch=self.arch, compat=True)


def make_launch(spec: Spec, arch: str, rng: np.random.Generator) -> Launch:
    """Draw the inputs of a launch: contiguous tensors, and whatever the kernel is told to mask."""
    shape, element = spec.common.shape, ELEMENTS[spec.common.element]
    q = rng.standard_normal((spec.seqlen_q, shape.num_query_heads, shape.head_size)).astype(element)
    k, v = (_draw_cache(spec, arch, rng) for _ in range(2))
    o = np.full_like(q, np.nan)
    return Launch(spec, arch, {
        "Q": q, "K": k, "V": v, "O": o,
        **(_draw_scales(spec, rng) if isinstance(spec, SageAttentionSpec) else _draw_blocks(spec, rng)),
        "scale_log2": np.float32(math.log2(math.e) / math.sqrt(shape.head_size)),
        "seqlen_q": spec.seqlen_q, "seqlen_k": spec.seqlen_k,
        **stride_arguments(q, k, v, o),
    })  # fmt: skip


def _draw_cache(spec: Spec, arch: str, rng: np.random.Generator) -> Array:
    shape = spec.common.shape
    size = (spec.seqlen_k, shape.num_kv_heads, shape.head_size)
    mode = spec.quant_mode if isinstance(spec, SageAttentionSpec) else "fp16_bf16"
    if mode == "i8_fp8_bf16":
        return rng.integers(-128, 128, size, np.int8)
    if mode == "i4_fp8_bf16":
        return pack_i4(rng.integers(-8, 8, size))
    values = rng.standard_normal(size)
    return encode_fp8(values, arch) if mode == "fp8_bf16" else values.astype(ELEMENTS[spec.common.element])


def _draw_scales(spec: SageAttentionSpec, rng: np.random.Generator) -> dict[str, Any]:
    shape, entries = spec.common.shape, CODEBOOK_ENTRIES.get(spec.quant_mode, 0)
    books = {name: rng.standard_normal(entries).astype(np.float32) for name in ("codebook_k", "codebook_v")}
    return {
        "q_scale": _draw_scale(spec.q_scale, shape.num_query_heads, spec.seqlen_q, rng),
        "k_scale": _draw_scale(spec.k_scale, shape.num_kv_heads, spec.seqlen_k, rng),
        **(books if entries else {}),
    }


def _draw_scale(spec: QkScaleSpec, heads: int, tokens: int, rng: np.random.Generator) -> Array:
    return rng.uniform(0.5, 1.5, int(scale_offsets(spec, heads, tokens).max()) + 1).astype(np.float32)


def _draw_blocks(spec: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a bitmap or lists. Any byte but 0 keeps a block; lists repeat ids; counts go below 0 and above the list."""
    if isinstance(spec, JengaSparseSpec):
        kept = rng.random((spec.num_q_blocks, spec.num_k_blocks)) < 0.5
        return {"mask": np.where(kept, rng.choice([1, 2, -1, 127], kept.shape), 0).astype(np.int8)}
    size = (spec.num_q_blocks, spec.max_blocks_per_q)
    return {
        "block_lut": rng.integers(0, spec.num_k_blocks, size, np.int32),
        "block_count": rng.integers(-1, spec.max_blocks_per_q + 2, spec.num_q_blocks, np.int32),
    }
