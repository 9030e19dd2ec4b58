"""Specs of kernels for grids of workgroups: one call each, and the format that its cache is stored in."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from kernbench.dtypes import dtype as to_dtype
from kernbench.specs.attention import AttentionSpec, BenchSpec, Size, parse_none

Arrays = dict[str, np.ndarray]
LARGEST = {"fp8e4m3": 448.0, "i8": 127.0}
"""Largest magnitude of the formats that are stored with a factor for the tensor."""


class CachedDecodeSpec(AttentionSpec):
    """One new token of each sequence attends to a KV cache.

    >>> CachedDecodeSpec(S_kv=100, kv_dtype="i8").input_shapes["k"]
    (1, 100, 3, 64)
    """

    T_q: int = Field(1, ge=1, le=1, description="query tokens of each sequence: one")
    dtype: Literal["bf16", "f16"] = Field("bf16", description="format of q and o, and of the matrix products")
    kv_dtype: Literal["bf16", "f16", "fp8e4m3", "i8"] = Field(
        "bf16", description="format of the cache; fp8e4m3 and i8 have one factor for all keys and one for all values"
    )

    @property
    def padded_group(self) -> int:
        """Rows of a tile of queries: the group, padded to a power of two, at least 16."""
        return max(16, 1 << (self.group - 1).bit_length())

    @property
    def qk_scale(self) -> float:
        """Factor on the scores of a softmax in base 2."""
        return self.scale * math.log2(math.e)


class PagedDecodeSpec(CachedDecodeSpec):
    """The same over a cache that lies in pages, which a block table names in any order."""

    PAGE: int = Field(64, ge=16, le=1024, description="tokens of a page, a power of two")

    @model_validator(mode="after")
    def _check_page(self) -> Self:
        if self.PAGE & (self.PAGE - 1):
            raise ValueError(f"PAGE={self.PAGE} must be a power of two from 16 to 1024")
        return self


class LatentDecodeSpec(BenchSpec):
    """One new token of each sequence attends to latent cache rows (absorbed MLA, as in DeepSeek-V2 and later).

    A cache row holds a latent vector and a rotary part, ``d_head`` elements together. Keys are whole rows, values their
    latent part; a query has been multiplied with the key's up-projection, so that it is as long as a row.

    >>> spec = LatentDecodeSpec()
    >>> spec.d_latent, spec.input_shapes["kv"]
    (512, (1, 1024, 576))
    """

    batch: Size = Field(1, description="independent sequences")
    S_kv: Size = Field(1024, description="cache rows of each sequence")
    h_q: Size = Field(16, description="query heads: all of them share the cache rows")
    d_head: int = Field(576, ge=2, description="elements of a query head and of a cache row: latent and rotary part")
    d_rope: Size = Field(64, description="elements of the rotary part, which the values do not have")
    dtype: Literal["bf16", "f16"] = Field("bf16", description="format of q, the cache and o")
    softmax_scale: Annotated[float | None, BeforeValidator(parse_none)] = Field(
        192**-0.5,
        gt=0,
        allow_inf_nan=False,
        description="factor on the scores; 192 is DeepSeek's head before absorption; none: 1 / sqrt(d_head)",
    )

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.d_rope >= self.d_head:
            raise ValueError(f"d_rope={self.d_rope} leaves nothing of d_head={self.d_head} for the latent part")
        return self

    @property
    def d_latent(self) -> int:
        """Elements of the latent part, and of an output head."""
        return self.d_head - self.d_rope

    @property
    def scale(self) -> float:
        """Factor on the scores before the softmax."""
        return 1 / math.sqrt(self.d_head) if self.softmax_scale is None else self.softmax_scale

    @property
    def qk_scale(self) -> float:
        """Factor on the scores of a softmax in base 2."""
        return self.scale * math.log2(math.e)

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input: q (batch, 1, h_q, d_head) and the cache kv (batch, S_kv, d_head)."""
        return {"q": (self.batch, 1, self.h_q, self.d_head), "kv": (self.batch, self.S_kv, self.d_head)}


class FlashPrefillSpec(AttentionSpec):
    """Many query tokens at once: the last ``T_q`` of ``S_kv``."""

    T_q: Size = Field(512, description="query tokens of each sequence, the last ones of S_kv")
    S_kv: Size = Field(512, description="key/value tokens of each sequence")
    dtype: Literal["bf16", "f16"] = Field("bf16", description="format of q, k, v and o")
    causal: bool = Field(True, description="query t sees keys 0 ... S_kv - T_q + t only")

    @property
    def qk_scale(self) -> float:
        """Factor on the scores of a softmax in base 2."""
        return self.scale * math.log2(math.e)


def stored(x: np.ndarray, kv_dtype: str) -> tuple[np.ndarray, float]:
    """Return an array in the format of the cache, and the factor that gives its values back.

    Formats of 8 bits are scaled so that the largest magnitude of the array is the largest that they hold.

    >>> values, factor = stored(np.array([0.5, -2.0]), "i8")
    >>> values.tolist(), round(factor * 127, 6)
    ([32, -127], 2.0)
    """
    kind = to_dtype(kv_dtype).external
    if kv_dtype not in LARGEST:
        return x.astype(kind), 1.0
    wide = x.astype(np.float32)
    factor = float(np.float32(np.max(np.abs(wide), initial=0.0) / LARGEST[kv_dtype])) or 1.0
    scaled = wide / np.float32(factor)
    return (np.rint(scaled) if kv_dtype == "i8" else scaled).astype(kind), factor


def as_stored(x: np.ndarray, kv_dtype: str) -> np.ndarray:
    """Return the values that a cache in this format holds, in float64."""
    values, factor = stored(x, kv_dtype)
    return values.astype(np.float64) * factor
