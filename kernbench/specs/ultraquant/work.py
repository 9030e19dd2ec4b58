"""What a launch of UltraQuant decode moves and computes, in bytes and instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.specs.ultraquant.layout import HEAD_SIZE, SLOT_BYTES
from kernbench.specs.ultraquant.spec import TILE_TOKENS, TILES_PER_GROUP, UltraQuantDecodeSpec

TILE_BYTES = TILE_TOKENS * SLOT_BYTES
"""Bytes of the cache that a tile is made of: 4352."""
TILE_GROUP_BYTES = TILES_PER_GROUP * TILE_BYTES
"""Bytes of the cache that a tile-group is made of: 69632."""
SCORE_DOTS_PER_TILE = HEAD_SIZE // 128
"""Scaled 16x16x128 matrix instructions of a tile's scores."""
VALUE_DOTS_PER_TILE = HEAD_SIZE // 16
"""bf16 16x16x16 matrix instructions of a tile's probabilities times values."""
EXPONENTIALS_PER_LANE = 5
"""Exponentials that each of 64 lanes issues for a tile: four scores and the factor on what was summed before."""
REDUCER_SPLITS = 4
"""Workgroups of the reducer to a query head, each for 64 elements; each reads all maxima and sums again."""


@dataclass(frozen=True)
class DecodeWork:
    """Totals over all workgroups of one decode launch and its reduction."""

    cache_bytes: int
    """Bytes of slots of tokens that exist: what would be read at best."""
    tiles: int
    """Tiles worked on, with those past the end of a sequence."""
    loaded_bytes: int
    """Bytes of slots that are loaded: ``tiles`` times 4352. Padding and over-fetch of lines are not in it."""
    query_bytes: int
    """Bytes of Q that workgroups load, empty ones as well."""
    partial_bytes: int
    """Bytes of outputs, sums and maxima that workgroups store, empty ones as well."""
    reducer_bytes: int
    """Bytes that the reducer reads: all outputs once, and sums and maxima once for each 64 elements."""
    empty_workgroups: int
    """Workgroups without a token."""

    @property
    def score_dots(self) -> int:
        """Scaled matrix instructions."""
        return self.tiles * SCORE_DOTS_PER_TILE

    @property
    def value_dots(self) -> int:
        """bf16 matrix instructions."""
        return self.tiles * VALUE_DOTS_PER_TILE


def decode_work(spec: UltraQuantDecodeSpec, seq_lens: Sequence[int] | np.ndarray, compat: bool = False) -> DecodeWork:
    """Count the work for sequences of these lengths.

    Parameters
    ----------
    seq_lens : integers, shape (num_seqs,)
    compat
        See :meth:`~kernbench.specs.ultraquant.spec.UltraQuantDecodeSpec.attended_lengths`.

    >>> spec = UltraQuantDecodeSpec(num_seqs=4, num_kv_heads=1, num_partitions=512, query_group_size=8,
    ...                             padded_slot=272, kv_block_size=64, max_blocks_per_seq=1172)
    >>> work = decode_work(spec, [75000] * 4)
    >>> work.cache_bytes, work.partial_bytes
    (81600000, 8519680)
    """
    spec.check()
    lengths = [int(length) for length in spec.attended_lengths(seq_lens, compat)]
    heads = spec.num_kv_heads
    trips = [spec.trips(length, part) for length in lengths for part in range(spec.num_partitions)]
    tiles = sum(trips) * TILES_PER_GROUP * heads
    rows = spec.num_seqs * heads * spec.num_partitions * spec.query_group_size
    return DecodeWork(
        cache_bytes=sum(lengths) * heads * SLOT_BYTES,
        tiles=tiles,
        loaded_bytes=tiles * TILE_BYTES,
        query_bytes=rows * HEAD_SIZE * 2,
        partial_bytes=rows * (HEAD_SIZE * 2 + 8),
        reducer_bytes=rows * (HEAD_SIZE * 2 + 8 * REDUCER_SPLITS),
        empty_workgroups=trips.count(0) * heads,
    )
