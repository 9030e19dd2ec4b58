"""Multi-head latent attention in its absorbed form, as decoding runs it: one cache row a token, shared by all heads."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from kernbench.specs.attention import DecodeSpec, Size, parse_none


class MlaDecodeSpec(DecodeSpec):
    """Decode with absorbed projections (DeepSeek-V2 and later), and what an architect chooses for it.

    A cache row holds a latent vector and a rotary part, ``d_head`` elements together. Keys are whole rows, values their
    latent part; a query has been multiplied with the key's up-projection, so that it is as long as a row.
    ``split_heads`` splits the query heads, each part of which reads the cache for itself.

    >>> spec = MlaDecodeSpec()
    >>> spec.d_head, spec.d_latent, spec.input_shapes["kv"]
    (576, 512, (1, 1024, 576))
    """

    h_q: Size = Field(16, description="query heads")
    h_kv: int = Field(1, ge=1, le=1, description="key/value heads: all query heads share the cache rows")
    d_head: int = Field(576, ge=2, description="elements of a query head and of a cache row: latent and rotary part")
    d_rope: Size = Field(64, description="elements of the rotary part, which the values do not have")
    softmax_scale: Annotated[float | None, BeforeValidator(parse_none)] = Field(
        192**-0.5,
        gt=0,
        allow_inf_nan=False,
        description="factor on the scores; 192 is DeepSeek's head before absorption; none: 1 / sqrt(d_head)",
    )
    TILE_S_KV: Size = Field(256, description="keys that one step of the kernel handles")

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
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input: q (batch, T_q, h_q, d_head) and the cache kv (batch, S_kv, d_head)."""
        return {"q": (self.batch, self.T_q, self.h_q, self.d_head), "kv": (self.batch, self.S_kv, self.d_head)}
