"""UltraQuantBenchSpec: what the bench ``ultraquant_decode`` is asked for, and where the tokens' blocks lie."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from kernbench.errors import SpecError
from kernbench.specs.attention import BenchSpec, Level, Levels, Size, idle_levels, parse_none
from kernbench.specs.ultraquant.layout import HEAD_SIZE, SLOT_BYTES
from kernbench.specs.ultraquant.sizing import DEFAULT_SPLITS, launch_sizes
from kernbench.specs.ultraquant.spec import UltraQuantDecodeSpec

_SEED = 57057
"""Of the order of blocks where it is shuffled."""


def _parse_lengths(value: Any) -> Any:
    """Read ``"600,17"`` or one length, as the command line writes them."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return (value,) if isinstance(value, int) else value


OptionalSize = Annotated[int | None, BeforeValidator(parse_none)]


class UltraQuantBenchSpec(BenchSpec):
    """One decode over an UltraQuant cache, in one of two forms, and what an architect chooses for it.

    Fields of the original kernel have its names (:class:`UltraQuantDecodeSpec`, which :attr:`decode` gives). The last
    five fields are for ``form="spatial"`` alone, except ``buffers``.

    >>> spec = UltraQuantBenchSpec(num_seqs=2, seq_lens="600,17")
    >>> spec.lengths, spec.decode.num_partitions, spec.dtype
    ((600, 17), 4, 'bf16')
    """

    form: Literal["faithful", "spatial"] = Field(
        "faithful", description="the original's division of work, or what one would build on a mesh"
    )
    num_seqs: Size = Field(1, description="sequences")
    num_kv_heads: Size = Field(1, description="key/value heads")
    query_group_size: int = Field(8, description="query heads to a key/value head: 6, 8 or 16")
    kv_block_size: int = Field(64, description="tokens of a cache block: 16, 32, 64, 128 or 256")
    seq_lens: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_parse_lengths)] = Field(
        (4096,), min_length=1, description="tokens of each sequence, as 600,17; one number: of all"
    )
    padded_slot: int = Field(SLOT_BYTES, description="bytes from one slot of the cache to the next")
    max_blocks_per_seq: OptionalSize = Field(
        None, ge=1, description="width of the block table, from which the launcher sizes; none: the longest sequence's"
    )
    splits: Size = Field(DEFAULT_SPLITS, description="partitions that the launcher wants at least")
    num_partitions: OptionalSize = Field(None, ge=1, description="partitions; none: as the launcher chooses")
    tile_groups_per_partition: OptionalSize = Field(
        None, ge=1, description="most tile-groups of a partition; none: as the launcher chooses"
    )
    softmax_scale: Annotated[float | None, BeforeValidator(parse_none)] = Field(
        None, gt=0, allow_inf_nan=False, description="factor on the scores; none: 1/16"
    )
    block_order: Literal["in_a_row", "shuffled"] = Field(
        "in_a_row", description="where a sequence's blocks lie: one after the other, or anywhere in their memory"
    )
    buffers: int = Field(2, ge=1, le=4, description="copies of a tile's scratch; 2 overlaps loads with compute")
    tile_tokens: Size = Field(256, description="most tokens of one step (spatial)")
    split_seqs: Levels = Field((), description="levels that the sequences are split over (spatial)")
    split_tokens: Levels = Field(
        ("sip", "cube", "pe"), description="levels that the tokens of a sequence are split over (spatial)"
    )
    reduction: Literal["chain", "tree", "butterfly"] = Field(
        "chain", description="how partial results come together (spatial)"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.seq_lens) not in (1, self.num_seqs):
            raise ValueError(f"seq_lens has {len(self.seq_lens)} lengths for num_seqs={self.num_seqs} sequences")
        ok, reason = self.decode.is_valid()
        if not ok:
            raise ValueError(reason)
        try:
            lengths = self.decode.check_lengths(self.lengths)
            if self.form == "faithful":
                self.decode.attended_lengths(lengths)
        except SpecError as error:
            raise ValueError(str(error)) from None
        small, large = sorted((self.tile_tokens, self.kv_block_size))
        if large % small:
            raise ValueError(f"tile_tokens={self.tile_tokens} and kv_block_size={self.kv_block_size}: one must divide "
                             "the other")  # fmt: skip
        idle_levels(split_seqs=self.split_seqs, split_tokens=self.split_tokens)
        return self

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return self.seq_lens * self.num_seqs if len(self.seq_lens) == 1 else self.seq_lens

    @property
    def decode(self) -> UltraQuantDecodeSpec:
        """The original's spec."""
        size = max(self.kv_block_size, 1)
        width = self.max_blocks_per_seq or max(1, -(-max(self.lengths) // size))
        sizes = launch_sizes(self.num_seqs, width * size, self.splits)
        return UltraQuantDecodeSpec(
            num_seqs=self.num_seqs,
            num_kv_heads=self.num_kv_heads,
            num_partitions=self.num_partitions or sizes.num_partitions,
            padded_slot=self.padded_slot,
            max_blocks_per_seq=width,
            softmax_scale=self.softmax_scale,
            query_group_size=self.query_group_size,
            kv_block_size=self.kv_block_size,
            tile_groups_per_partition=self.tile_groups_per_partition or sizes.tile_groups_per_partition,
        )

    @property
    def dtype(self) -> str:
        """Format of the inputs and the output."""
        return "bf16"

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input; the tokens of all sequences stand one after the other, and are quantised by the bench.

        query (num_seqs, query heads, 256), keys and values (tokens, num_kv_heads, 256)
        """
        tokens = (sum(self.lengths), self.num_kv_heads, HEAD_SIZE)
        return {"query": (self.num_seqs, self.decode.num_query_heads, HEAD_SIZE), "keys": tokens, "values": tokens}

    @property
    def idle_levels(self) -> tuple[Level, ...]:
        """Levels that nothing is split over: only their index 0 works."""
        return idle_levels(split_seqs=self.split_seqs, split_tokens=self.split_tokens)

    def blocks_of(self, seq: int) -> int:
        """Return how many blocks the tokens of a sequence fill."""
        return -(-self.lengths[seq] // self.kv_block_size)


def place_blocks(spec: UltraQuantBenchSpec, seq_parts: int = 1, token_parts: int = 1) -> tuple[np.ndarray, int]:
    """Choose a block of the cache for each entry of the block tables.

    The cache has ``seq_parts * token_parts`` parts of equally many blocks, one after the other. Sequences go to
    ``seq_parts`` in order, as evenly as can be, and the first ones get more; of a sequence of n blocks, the part
    ``r`` of ``token_parts`` gets those from ``n r // token_parts`` up to ``n (r + 1) // token_parts``.

    Returns
    -------
    block_tables : array of int32, shape (num_seqs, max_blocks_per_seq)
        -1 where a sequence has no block.
    num_blocks : int
        Of the whole cache.

    >>> place_blocks(UltraQuantBenchSpec(seq_lens=300), token_parts=2)
    (array([[0, 1, 3, 4, 5]], dtype=int32), 6)
    """
    part_of: list[tuple[int, int, int]] = []  # (part, sequence, entry)
    for seq in range(spec.num_seqs):
        n, which = spec.blocks_of(seq), _part_of_sequence(seq, spec.num_seqs, seq_parts)
        for r in range(token_parts):
            entries = range(n * r // token_parts, n * (r + 1) // token_parts)
            part_of += [(which * token_parts + r, seq, entry) for entry in entries]
    held = np.bincount([part for part, *_ in part_of], minlength=seq_parts * token_parts)
    room = max(1, int(held.max()))
    free = [list(_order(spec, part, room)) for part in range(len(held))]
    tables = np.full((spec.num_seqs, spec.decode.max_blocks_per_seq), -1, np.int32)
    for part, seq, entry in part_of:
        tables[seq, entry] = free[part].pop(0)
    return tables, room * len(held)


def _part_of_sequence(seq: int, num_seqs: int, parts: int) -> int:
    each, more = divmod(num_seqs, parts)
    return seq // (each + 1) if seq < more * (each + 1) else more + (seq - more * (each + 1)) // each


def _order(spec: UltraQuantBenchSpec, part: int, room: int) -> np.ndarray:
    """Return the blocks of one part in the order in which they are given out."""
    blocks = np.arange(room) + part * room
    return blocks if spec.block_order == "in_a_row" else np.random.default_rng([_SEED, part]).permutation(blocks)
