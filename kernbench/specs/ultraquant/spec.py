"""UltraQuantDecodeSpec: one build of the UltraQuant decode kernel, and what follows from its parameters.

Source: the FlyDSL builder ``build_ultraquant_decode_hd256_module`` and its launcher in vLLM 0.33.0.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from kernbench.errors import SpecError, nearest
from kernbench.specs.ultraquant.layout import HEAD_SIZE, SLOT_BYTES
from kernbench.specs.ultraquant.sizing import DEFAULT_SPLITS, TILE_GROUP_TOKENS, launch_sizes

TILE_TOKENS = 16
"""Tokens of one tile: the rows of one matrix instruction."""
TILES_PER_GROUP = TILE_GROUP_TOKENS // TILE_TOKENS
"""Tiles of a tile-group. All are worked on, even those past the end of the sequence."""
QUERY_GROUP_SIZES = (6, 8, 16)
"""Query heads to a key/value head that the kernel can be built for."""
KV_BLOCK_SIZES = (16, 32, 64, 128, 256)
"""Tokens of a cache block that the kernel can be built for."""
ARCHES = {
    "gfx90a": False, "gfx942": False, "gfx950": True, "gfx1151": False, "gfx1201": False, "gfx1250": False,
    "gfx11-generic": False,
}  # fmt: skip
"""Known arches, and whether they have what the kernel is made of: the scaled 16x16x128 matrix instruction for FP4 and
FP8, conversion of scaled FP4, and the transposing read from LDS."""
LDS_LIMIT = 163840
"""Bytes of LDS of a gfx950 compute unit."""
_LDS_KV = 16 * 528  # K rows of 144 bytes share it with V rows
_LDS_SCALES = 512
_LDS_CENTROIDS = 64


class UpstreamDefectWarning(UserWarning):
    """``compat=True`` reproduces something that the original does wrong, and this is what."""


class Argument(NamedTuple):
    """One argument of the kernel."""

    name: str
    dtype: str
    """kernbench's name of the format."""
    shape: tuple[int | str, ...]
    """Extents; ``num_blocks`` is free, and the query may have gaps (:meth:`UltraQuantDecodeSpec.query_offset`)."""


class Tile(NamedTuple):
    """16 tokens that a partition works on."""

    start: int
    """First token."""
    valid: int
    """Tokens before the end of the sequence: 16, fewer in its last tile, 0 past it. The rest is masked."""
    block_index: int
    """Entry of the sequence's block table that is read: 0 past the end, whatever lies there."""
    position: int
    """Token within that block that the tile starts at."""


@dataclass(frozen=True, kw_only=True)
class UltraQuantDecodeSpec:
    """Decode attention of one query token a sequence over a paged 4-bit cache, heads of 256 elements.

    Fields have the names of the original builder. Construction checks nothing; :meth:`is_valid` says whether the kernel
    could be built. There is no causal mask, sliding window, sink or soft cap: the query sees the whole sequence.

    Examples
    --------
    >>> spec = UltraQuantDecodeSpec(num_seqs=4, num_kv_heads=1, num_partitions=512, query_group_size=8, padded_slot=272)
    >>> spec.is_valid("gfx950"), spec.grid(), spec.lds_bytes
    ((True, 'ok'), (4, 1, 512), 13120)
    """

    num_seqs: int
    """Sequences: the batch."""
    num_kv_heads: int
    num_partitions: int
    """Workgroups that share one sequence and key/value head. Partition p owns tile-groups p, p + P, p + 2 P ..."""
    padded_slot: int
    """Bytes from one slot to the next; 272 of them mean something."""
    max_blocks_per_seq: int = 512
    """Entries in a row of the block table."""
    softmax_scale: float | None = None
    """Factor on the scores; None: 1/16."""
    query_group_size: int = 16
    """Query heads to a key/value head."""
    kv_block_size: int = 16
    """Tokens of a cache block."""
    tile_groups_per_partition: int = 1
    """Most tile-groups of 256 tokens that a partition handles."""
    fuse_qrot: bool = True
    """Whether the kernel rotates Q; if not, Q comes rotated and rounded to E4M3."""
    stride_q_seq: int | None = None
    """Elements from one sequence's query to the next; None: all query heads, without gaps."""
    stride_q_head: int | None = None
    """Elements from one query head to the next; None: 256."""

    @classmethod
    def launched(
        cls,
        *,
        num_seqs: int,
        num_kv_heads: int,
        query_group_size: int,
        kv_block_size: int,
        max_blocks_per_seq: int,
        splits: int = DEFAULT_SPLITS,
        padded_slot: int = SLOT_BYTES,
        softmax_scale: float | None = None,
    ) -> Self:
        """Return the spec that the launcher would build: partitions from the block table's width, not the lengths.

        See :func:`~kernbench.specs.ultraquant.sizing.launch_sizes`.

        >>> spec = UltraQuantDecodeSpec.launched(
        ...     num_seqs=16, num_kv_heads=1, query_group_size=8, kv_block_size=64, max_blocks_per_seq=4096
        ... )
        >>> spec.num_partitions, spec.tile_groups_per_partition
        (256, 4)
        """
        sizes = launch_sizes(num_seqs, max_blocks_per_seq * kv_block_size, splits)
        return cls(
            num_seqs=num_seqs,
            num_kv_heads=num_kv_heads,
            num_partitions=sizes.num_partitions,
            padded_slot=padded_slot,
            max_blocks_per_seq=max_blocks_per_seq,
            softmax_scale=softmax_scale,
            query_group_size=query_group_size,
            kv_block_size=kv_block_size,
            tile_groups_per_partition=sizes.tile_groups_per_partition,
        )

    def replace(self, **changes: object) -> Self:
        """Return this spec with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    # --- whether the kernel can be built -------------------------------------------------------------------------

    def is_valid(self, arch: str = "gfx950") -> tuple[bool, str]:
        """Return ``(True, "ok")``, or False and the first reason why the kernel cannot be built for ``arch``.

        The builder's own conditions are those on ``query_group_size``, ``kv_block_size``, ``tile_groups_per_partition``
        and ``padded_slot``. kernbench adds that sizes are at least 1 and the scale is finite.
        """
        if arch not in ARCHES:
            return False, f"unknown arch {arch!r}{nearest(arch, ARCHES)}"
        if not ARCHES[arch]:
            return False, f"{arch} has no scaled 16x16x128 matrix instruction for FP4 and FP8; gfx950 has"
        return next(((False, reason) for reason in self._faults()), (True, "ok"))

    def check(self, arch: str = "gfx950") -> Self:
        """Return this spec, or raise SpecError with the reason that :meth:`is_valid` gives."""
        ok, reason = self.is_valid(arch)
        if not ok:
            raise SpecError(reason)
        return self

    def _faults(self) -> Iterator[str]:
        if self.query_group_size not in QUERY_GROUP_SIZES:
            yield f"query_group_size={self.query_group_size} must be one of {_listed(QUERY_GROUP_SIZES)}"
        if self.kv_block_size not in KV_BLOCK_SIZES:
            yield f"kv_block_size={self.kv_block_size} must be one of {_listed(KV_BLOCK_SIZES)}"
        if self.tile_groups_per_partition < 1:
            yield f"tile_groups_per_partition={self.tile_groups_per_partition} must be at least 1"
        if self.padded_slot < SLOT_BYTES or self.padded_slot % 4:
            yield f"padded_slot={self.padded_slot} must be a multiple of 4 and at least {SLOT_BYTES}"
        for name in ("num_seqs", "num_kv_heads", "num_partitions", "max_blocks_per_seq"):
            if getattr(self, name) < 1:
                yield f"{name}={getattr(self, name)} must be at least 1"
        if not math.isfinite(self.scale):
            yield f"softmax_scale={self.softmax_scale} must be finite"

    # --- how it is launched --------------------------------------------------------------------------------------

    @property
    def num_query_heads(self) -> int:
        """All query heads; query head h reads key/value head ``h // query_group_size``."""
        return self.num_kv_heads * self.query_group_size

    @property
    def scale(self) -> float:
        """Factor on the scores."""
        return 1 / math.sqrt(HEAD_SIZE) if self.softmax_scale is None else self.softmax_scale

    def grid(self) -> tuple[int, int, int]:
        """Workgroups: (sequence, key/value head, partition)."""
        return self.num_seqs, self.num_kv_heads, self.num_partitions

    def block(self) -> tuple[int, int, int]:
        """Threads of a workgroup: one wave."""
        return 64, 1, 1

    def signature(self) -> tuple[Argument, ...]:
        """Arguments in order. Mind that the sums come before the maxima, and that ``centroids`` is never used.

        >>> spec = UltraQuantDecodeSpec(num_seqs=1, num_kv_heads=1, num_partitions=2, padded_slot=272)
        >>> [argument.name for argument in spec.signature()][:4]
        ['out', 'exp_sums', 'max_logits', 'query']
        """
        partial = (self.num_seqs, self.num_kv_heads, self.num_partitions, self.query_group_size)
        return (
            Argument("out", "bf16", (*partial, HEAD_SIZE)),
            Argument("exp_sums", "f32", partial),
            Argument("max_logits", "f32", partial),
            Argument("query", "bf16", (self.num_seqs, self.num_query_heads, HEAD_SIZE)),
            Argument("kv_cache", "u8", ("num_blocks", self.kv_block_size, self.num_kv_heads, self.padded_slot)),
            Argument("centroids", "f32", (16,)),
            Argument("block_tables", "i32", (self.num_seqs, self.max_blocks_per_seq)),
            Argument("seq_lens", "i32", (self.num_seqs,)),
        )

    @property
    def lds_bytes(self) -> int:
        """Bytes of LDS of a workgroup: 12096, 13120 or 17216 for 6, 8 or 16 query heads to a key/value head."""
        return sum(size for _, size in self.lds_regions().values())

    def lds_regions(self) -> dict[str, tuple[int, int]]:
        """Return (offset, bytes) of each region of LDS, in the order of vLLM 0.33.0.

        The first revision of the pull request had the centroids first; sizes are the same. K and V share a region.
        """
        sizes = {
            "q": self.query_group_size * HEAD_SIZE * 2, "kv": _LDS_KV, "scale": _LDS_SCALES, "centroids": _LDS_CENTROIDS
        }  # fmt: skip
        regions, offset = {}, 0
        for name, size in sizes.items():
            regions[name] = (offset, size)
            offset += size
        return regions

    # --- where things are ----------------------------------------------------------------------------------------

    def cache_shape(self, num_blocks: int) -> tuple[int, int, int, int]:
        """Shape of the uint8 cache: (blocks, tokens of a block, key/value heads, bytes of a slot)."""
        return num_blocks, self.kv_block_size, self.num_kv_heads, self.padded_slot

    def slot_address(self, block: int, position: int, head: int) -> int:
        """Byte offset in the cache of the slot of token ``position`` of ``block`` and of key/value head ``head``."""
        return ((block * self.kv_block_size + position) * self.num_kv_heads + head) * self.padded_slot

    def query_offset(self, seq: int, query_head: int) -> int:
        """Element offset of a query head's 256 elements in the query buffer."""
        by_seq = self.num_query_heads * HEAD_SIZE if self.stride_q_seq is None else self.stride_q_seq
        by_head = HEAD_SIZE if self.stride_q_head is None else self.stride_q_head
        return seq * by_seq + query_head * by_head

    def gather_queries(self, buffer: np.ndarray) -> np.ndarray:
        """Return the queries (sequence, query head, 256) that lie in a flat buffer with this spec's strides."""
        offsets = [[self.query_offset(b, h) for h in range(self.num_query_heads)] for b in range(self.num_seqs)]
        return buffer[np.array(offsets)[..., None] + np.arange(HEAD_SIZE)]

    # --- which partition works on what ---------------------------------------------------------------------------

    @property
    def max_tokens(self) -> int:
        """Longest sequence that the partitions cover; the kernel drops what lies beyond."""
        return self.num_partitions * self.tile_groups_per_partition * TILE_GROUP_TOKENS

    def check_lengths(self, seq_lens: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the lengths as int64 of shape (num_seqs,); raise SpecError if the block table cannot hold them."""
        lengths = np.asarray(seq_lens, dtype=np.int64)
        if lengths.shape != (self.num_seqs,):
            raise SpecError(f"seq_lens has shape {lengths.shape}; num_seqs={self.num_seqs} asks for ({self.num_seqs},)")
        held = self.max_blocks_per_seq * self.kv_block_size
        for seq in np.flatnonzero((lengths < 0) | (lengths > held)):
            raise SpecError(
                f"sequence {seq} has {lengths[seq]} tokens; "
                f"0 to max_blocks_per_seq * kv_block_size = {held} are possible"
            )
        return lengths

    def attended_lengths(self, seq_lens: Sequence[int] | np.ndarray, compat: bool = False) -> np.ndarray:
        """Return how many tokens of each sequence the kernel attends to, after checking the lengths.

        Parameters
        ----------
        seq_lens
            Tokens of each sequence; 0 is allowed.
        compat
            The original silently drops the tokens from :attr:`max_tokens` on. By default that is an error; with
            ``compat=True`` it is reproduced, with an :class:`UpstreamDefectWarning`.

        Returns
        -------
        array of int64, shape (num_seqs,)

        Raises
        ------
        SpecError
            For a wrong number of lengths, one below 0, or one beyond the block table or the partitions.
        """
        lengths = self.check_lengths(seq_lens)
        for seq in np.flatnonzero(lengths > self.max_tokens):
            self._report_dropped(int(seq), int(lengths[seq]), compat)
        return np.minimum(lengths, self.max_tokens)

    def _report_dropped(self, seq: int, length: int, compat: bool) -> None:
        covers = (
            f"num_partitions={self.num_partitions} * tile_groups_per_partition={self.tile_groups_per_partition} * "
            f"{TILE_GROUP_TOKENS} = {self.max_tokens}"
        )
        if not compat:
            raise SpecError(
                f"sequence {seq} has {length} tokens, but {covers} are covered; the original kernel would silently "
                f"drop {length - self.max_tokens}: use more partitions, or compat=True for what it does"
            )
        warnings.warn(
            f"the last {length - self.max_tokens} tokens of sequence {seq} are dropped, as upstream does: {covers}",
            UpstreamDefectWarning,
            stacklevel=3,
        )

    def trips(self, length: int, partition: int) -> int:
        """Tile-groups that ``partition`` handles of a sequence of ``length`` tokens; 0: it is empty."""
        left = -(-length // TILE_GROUP_TOKENS) - partition
        return min(-(-left // self.num_partitions), self.tile_groups_per_partition) if left > 0 else 0

    def tile_groups(self, length: int, partition: int) -> range:
        """Tile-groups that ``partition`` handles, in order; group g begins at token 256 g.

        >>> spec = UltraQuantDecodeSpec(
        ...     num_seqs=1, num_kv_heads=1, num_partitions=2, padded_slot=272, tile_groups_per_partition=2
        ... )
        >>> list(spec.tile_groups(700, 0)), list(spec.tile_groups(700, 1)), list(spec.tile_groups(9, 1))
        ([0, 2], [1], [])
        """
        stop = partition + self.trips(length, partition) * self.num_partitions
        return range(partition, stop, self.num_partitions)

    def tile(self, length: int, start: int) -> Tile:
        """Return the tile that begins at token ``start`` (a multiple of 16) of a sequence of ``length`` tokens."""
        valid = min(max(length - start, 0), TILE_TOKENS)
        block_index, position = divmod(start, self.kv_block_size)
        return Tile(start, valid, block_index if valid else 0, position)

    def tiles(self, length: int, partition: int) -> Iterator[Tile]:
        """Go through the tiles of ``partition``, in order: always 16 to a tile-group."""
        for group in self.tile_groups(length, partition):
            for index in range(TILES_PER_GROUP):
                yield self.tile(length, group * TILE_GROUP_TOKENS + index * TILE_TOKENS)


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))
