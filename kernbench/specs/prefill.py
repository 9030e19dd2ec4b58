"""Prefill: many query tokens at once, spread over the machine, and what an architect chooses for it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from kernbench.specs.attention import LEVELS, AttentionSpec, Level, Levels, Size, idle_levels


class PrefillSpec(AttentionSpec):
    """Prefill in the style of FlashAttention-2: each PE keeps some queries and sees all the keys that these may see.

    ``split_batch``, ``split_heads`` and ``split_Q`` say which levels of the machine each of these is spread over; a
    level serves at most one of them. PEs of a level that serves none stay idle.

    >>> PrefillSpec(split_heads="cube", split_Q="pe").query_levels
    ('pe',)
    """

    T_q: Size = Field(1024, description="query tokens of each sequence, the last ones of S_kv")
    causal: bool = Field(True, description="query t sees keys 0 ... S_kv - T_q + t only")
    split_batch: Levels = Field((), description="levels that the batch is split over, as cube,pe or none")
    split_heads: Levels = Field((), description="levels that the key/value heads are split over")
    split_Q: Levels = Field(("sip", "cube", "pe"), description="levels that the query tokens are split over")
    deal: Literal["striped", "blocks"] = Field(
        "striped", description="striped: token t goes to PE t mod PEs, so that causal work is even; blocks: in order"
    )
    kv: Literal["home", "multicast", "ring"] = Field(
        "home",
        description="home: every PE loads all keys and values; multicast: one PE loads and passes them on; "
        "ring: every PE loads a part and passes it round",
    )
    kv_rows: Literal["spread", "one", "copied"] = Field(
        "spread",
        description="where home and multicast load from: rows spread over the memories of the PEs that share them, all "
        "in the first memory, or a copy in each",
    )
    multicast_over: Levels = Field(("pe",), description="levels, out of split_Q, that one PE loads for")
    overlap: bool = Field(
        True, description="ring: pass a tile on before computing with it; the channels must hold two messages"
    )
    TILE_Q: Size = Field(64, description="query tokens that a PE handles at once, for all heads of a group")
    TILE_S_KV: Size = Field(128, description="keys that one step of the kernel handles")
    buffers: int = Field(2, ge=1, le=4, description="copies of a step's scratch; 2 overlaps loads with compute")

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        idle_levels(split_batch=self.split_batch, split_heads=self.split_heads, split_Q=self.split_Q)
        wrong = [level for level in self.multicast_over if level not in self.split_Q]
        if self.kv == "multicast" and (wrong or not self.multicast_over):
            raise ValueError(
                f"kv=multicast: multicast_over={','.join(self.multicast_over) or 'none'} must name levels out of "
                f"split_Q={','.join(self.split_Q) or 'none'}: only these PEs need the same keys and values"
            )
        return self

    @property
    def idle_levels(self) -> tuple[Level, ...]:
        """Levels that nothing is split over: only their index 0 works."""
        return idle_levels(split_batch=self.split_batch, split_heads=self.split_heads, split_Q=self.split_Q)

    @property
    def query_levels(self) -> tuple[Level, ...]:
        """The levels of ``split_Q``, outermost first."""
        return tuple(level for level in LEVELS if level in self.split_Q)

    @property
    def home_levels(self) -> tuple[Level, ...]:
        """Levels over whose memories the rows of keys and values are spread."""
        return tuple(level for level in self.query_levels if level != "pe") if self.kv_rows == "spread" else ()
