"""Bench specs of the rocke attention kernels: their fields, and what an architect chooses for a mesh.

Each is an :class:`~kernbench.specs.attention.AttentionSpec`, so that the command line can set its fields, and gives
the spec of the original by :meth:`FmhaSpec.rocke`. What that spec refuses is refused here, for its reason.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from kernbench.specs.attention import AttentionSpec, Level, Levels, Size, idle_levels
from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape, JengaSparseSpec, QkScaleSpec, SageAttentionSpec
from kernbench.specs.rocke.common import TILE_ROWS, MaskMode, ScaleLayout
from kernbench.specs.rocke.sage import QuantMode
from kernbench.specs.rocke.sparse import VsaSparseSpec


class FmhaSpec(AttentionSpec):
    """What the three families share.

    ``form="faithful"`` divides the work as the original does; ``form="spatial"`` as suits a mesh, by the fields from
    ``split_tiles`` on.
    """

    batch: int = Field(1, ge=1, le=1, description="a launch serves one sequence")
    T_q: Size = Field(256, description="query tokens (seqlen_q)")
    S_kv: Size = Field(1024, description="key/value tokens (seqlen_k)")
    dtype: Literal["f16", "bf16"] = Field("f16", description="format of q and o, and of k and v if not quantised")
    causal: Literal[False] = Field(False, description="not used: see mask_mode of sage attention")
    arch: Literal["gfx90a", "gfx942", "gfx950"] = Field("gfx950", description="whose rules and fp8 bytes hold")
    form: Literal["faithful", "spatial"] = Field(
        "spatial", description="faithful: the original's division of work; spatial: one for a mesh"
    )
    split_tiles: Levels = Field(("pe",), description="spatial: levels that tiles of queries are dealt to")
    split_S_kv: Levels = Field(("sip", "cube"), description="spatial: levels that keys and values are split over")
    TILE_Q: Size = Field(64, description="spatial: query tokens of a tile, at most")
    TILE_S_KV: Size = Field(128, description="spatial: keys that one step handles, at most")
    reduction: Literal["chain", "tree", "butterfly"] = Field(
        "chain", description="spatial: how the partial results of a tile come together"
    )
    buffers: int = Field(2, ge=1, le=4, description="copies of a step's scratch; 2 overlaps loads with compute")

    @model_validator(mode="after")
    def _check_rocke(self) -> Self:
        idle_levels(split_tiles=self.split_tiles, split_S_kv=self.split_S_kv)
        ok, reason = self.rocke().is_valid(self.arch)
        if not ok:
            raise ValueError(reason)
        return self

    def rocke(self) -> SageAttentionSpec | JengaSparseSpec | VsaSparseSpec:
        """The spec of the original."""
        raise NotImplementedError

    def common(self, mask_mode: MaskMode = "none", sliding_window: int = 0) -> FmhaCommonSpec:
        """The part of the original's spec that all three share."""
        shape = FmhaShape(self.d_head, self.h_q, self.h_kv)
        return FmhaCommonSpec(shape, self.dtype, mask_mode=mask_mode, sliding_window=sliding_window)

    @property
    def scale_log2(self) -> float:
        """Factor on the scores times log2(e), as the float32 number that the kernel is given."""
        return float(np.float32(self.scale * math.log2(math.e)))

    @property
    def idle_levels(self) -> tuple[Level, ...]:
        """Levels that the spatial form does not use: only their index 0 works."""
        return idle_levels(split_tiles=self.split_tiles, split_S_kv=self.split_S_kv)

    @property
    def query_tile(self) -> int:
        """Query tokens of one tile of the spatial form; the last one may be shorter."""
        return min(self.TILE_Q, self.T_q)

    @property
    def key_block(self) -> int:
        """Keys that lie together in the spatial form; a memory holds whole blocks."""
        return min(self.TILE_S_KV, self.S_kv)


class SageSpec(FmhaSpec):
    """Sage attention: keys and values f16/bf16, fp8, i8 or packed i4; scales for Q and K.

    >>> spec = SageSpec(quant_mode="fp8_bf16", k_scale="per_block", k_scale_block=64, arch="gfx942")
    >>> spec.rocke().route(), spec.rocke().kernel_name()
    ('mfma', 'rocke_sage_attention_fp8_bf16_H64_HQ9_HK3_f16_Q256_K1024')
    """

    quant_mode: QuantMode = Field("fp8_bf16", description="format of k and v: f16 or bf16, fp8, i8, i4")
    q_scale: ScaleLayout = Field("per_head", description="one scale of q for each head, or for each block of tokens")
    q_scale_block: Size = Field(64, description="tokens of a block of q_scale=per_block")
    k_scale: ScaleLayout = Field("per_block", description="the same for k")
    k_scale_block: Size = Field(64, description="tokens of a block of k_scale=per_block")
    mask_mode: Literal["none", "causal", "sliding_window"] = Field(
        "none", description="causal: query t sees keys 0 ... t; sliding_window: keys after t - window, later ones too"
    )
    sliding_window: int = Field(0, ge=0, description="window of mask_mode=sliding_window")

    def rocke(self) -> SageAttentionSpec:
        """The spec of the original; each head has its own scales, block after block."""
        q_scale = scale_spec(self.q_scale, self.q_scale_block, self.T_q)
        k_scale = scale_spec(self.k_scale, self.k_scale_block, self.S_kv)
        common = self.common(self.mask_mode, self.sliding_window)
        return SageAttentionSpec(common, self.quant_mode, q_scale, k_scale, self.T_q, self.S_kv)


class SparseSpec(FmhaSpec):
    """What the block-sparse families share. Which blocks are kept comes from the spec, or from the scores."""

    block_q: Size = Field(64, description="query tokens of a block of the mask")
    block_k: Size = Field(64, description="keys of a block of the mask")
    density: float = Field(0.25, gt=0, le=1, description="share of the blocks of keys that are kept")
    mask: Literal["random", "scores"] = Field(
        "random", description="scores: for each block of queries the blocks of keys that have the most weight"
    )
    mask_seed: int = Field(0, ge=0, description="of mask=random")

    @property
    def query_tile(self) -> int:
        """Query tokens that share a row of the mask, up to ``TILE_Q``; the first token of 16 decides for all of them.

        >>> JengaSpec(block_q=48, TILE_Q=64).query_tile, JengaSpec(block_q=1).query_tile
        (48, 16)
        """
        sizes = range(TILE_ROWS, min(self.TILE_Q, self.block_q, self.T_q) + 1, TILE_ROWS)
        return max((n for n in sizes if self.block_q % n == 0), default=TILE_ROWS)

    @property
    def key_block(self) -> int:
        """Keys that lie together in the spatial form: a block of the mask."""
        return self.block_k

    @property
    def kept_blocks(self) -> int:
        """Blocks of keys that each block of queries keeps."""
        return max(1, round(self.density * (self.S_kv // self.block_k)))


class JengaSpec(SparseSpec):
    """Jenga: a bitmap of blocks.

    >>> JengaSpec().rocke().kernel_name()
    'rocke_jenga_sparse_attn_H64_HQ9_HK3_f16_Q256_K1024_BQ64_BK64'
    """

    def rocke(self) -> JengaSparseSpec:
        """The spec of the original."""
        return JengaSparseSpec(self.common(), self.T_q, self.S_kv, self.block_q, self.block_k)


class VsaSpec(SparseSpec):
    """VSA: a list of blocks.

    >>> VsaSpec(max_blocks_per_q=3).kept_blocks
    3
    """

    max_blocks_per_q: Annotated[int, Field(ge=1)] = Field(32, description="columns of the list of blocks")

    def rocke(self) -> VsaSparseSpec:
        """The spec of the original."""
        return VsaSparseSpec(
            self.common(), self.T_q, self.S_kv, self.block_q, self.block_k, max_blocks_per_q=self.max_blocks_per_q
        )

    @property
    def kept_blocks(self) -> int:
        """Blocks of keys that each block of queries keeps: no more than the list has room for."""
        return min(super().kept_blocks, self.max_blocks_per_q)


def scale_spec(layout: ScaleLayout, block: int, tokens: int) -> QkScaleSpec:
    """Return the addressing of a scale buffer in which the heads follow one another."""
    if layout == "per_head":
        return QkScaleSpec("per_head", stride_head=1)
    return QkScaleSpec("per_block", scale_block=block, stride_head=-(-tokens // block))
