"""Bit-faithful reference: what each partition of the decode kernel computes, in its order and with its roundings.

Fixed by the original, and followed here: Q rounded to E4M3; two products of 128 elements for a score, in float32; tiles
of 16 tokens with a running maximum; the exponentials rounded to bfloat16 before they meet the values, and summed in
float32: four by four (the tokens of a lane, in order) and then pairwise; one float32 rounding for 16 tokens' products;
a reciprocal at the end; bfloat16 outputs.

Not known for the hardware, and chosen here: a matrix instruction's sum is exact and then rounded once; ``exp2`` is
NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from threadpoolctl import threadpool_limits

from kernbench.errors import InputError
from kernbench.specs.ultraquant.cache import check_blocks
from kernbench.specs.ultraquant.layout import HEAD_SIZE, dequantise_slots
from kernbench.specs.ultraquant.rotation import Overflow, rotate_queries, to_e4m3
from kernbench.specs.ultraquant.sizing import TILE_GROUP_TOKENS
from kernbench.specs.ultraquant.spec import TILE_TOKENS, TILES_PER_GROUP, UltraQuantDecodeSpec

_LOG2E = np.float32(np.log2(np.e))
_PARTITIONS_AT_ONCE = 128
"""Partitions whose tiles are held at once, so that memory stays small."""


@dataclass(frozen=True)
class Partials:
    """What the partitions of a decode leave for the reducer; B sequences, P partitions, G query heads to a group."""

    out: np.ndarray
    """bfloat16 (B, num_kv_heads, P, G, 256): the attention over the partition's own tokens; 0 if it has none."""
    exp_sums: np.ndarray
    """float32 (B, num_kv_heads, P, G): sum of ``exp(logit - max_logit)``; 0 if the partition is empty."""
    max_logits: np.ndarray
    """float32 (B, num_kv_heads, P, G): largest scaled score, a natural-log logit; -inf if the partition is empty."""


@dataclass
class _State:
    """Running maximum, sum and weighted values of n partitions: (n, heads, G[, 256]) in float32."""

    m: np.ndarray
    l: np.ndarray
    acc: np.ndarray

    @classmethod
    def empty(cls, n: int, spec: UltraQuantDecodeSpec) -> _State:
        rows = (n, spec.num_kv_heads, spec.query_group_size)
        zeros = np.zeros(rows, np.float32)
        return cls(np.full(rows, -np.inf, np.float32), zeros, np.zeros((*rows, HEAD_SIZE), np.float32))


def decode_partitions(
    spec: UltraQuantDecodeSpec,
    query: np.ndarray,
    cache: np.ndarray,
    block_tables: np.ndarray,
    seq_lens: Sequence[int] | np.ndarray,
    *,
    overflow: Overflow = "saturate",
    compat: bool = False,
) -> Partials:
    """Compute what every partition stores.

    Parameters
    ----------
    query : array, shape (num_seqs, num_query_heads, 256)
        bfloat16 values, not rotated; if ``spec.fuse_qrot`` is off, rotated and on the grid of E4M3, in natural order.
    cache : array of uint8, shape (blocks, kv_block_size, num_kv_heads, padded_slot)
    block_tables : integers, shape (num_seqs, max_blocks_per_seq)
        Entries that no tile reads may be anything. A tile past the end reads entry 0.
    seq_lens : integers, shape (num_seqs,)
    overflow
        What becomes of a rotated query beyond 448; see :func:`~kernbench.specs.ultraquant.rotation.to_e4m3`.
    compat
        See :meth:`~kernbench.specs.ultraquant.spec.UltraQuantDecodeSpec.attended_lengths`.

    Raises
    ------
    SpecError
        If the spec is not valid or a length is out of range.
    InputError
        If shapes disagree or a block does not exist.

    Notes
    -----
    Slots of masked tokens are multiplied by 0, so a scale byte of 255 (NaN) there spoils the output, as it would on the
    hardware. The store never writes one.
    """
    lengths = spec.check().attended_lengths(seq_lens, compat)
    check_inputs(spec, query, cache, block_tables)
    rotated = encode_queries(spec, query, overflow)
    rows = (spec.num_seqs, spec.num_kv_heads, spec.num_partitions, spec.query_group_size)
    partials = Partials(
        np.zeros((*rows, HEAD_SIZE), ml_dtypes.bfloat16),
        np.zeros(rows, np.float32),
        np.full(rows, -np.inf, np.float32),
    )
    with threadpool_limits(1, user_api="blas"):
        for seq, parts in _batches(spec, lengths):
            state = _sweep(spec, rotated[seq], cache, block_tables[seq], int(lengths[seq]), parts)
            _finish(partials, seq, parts, state)
    return partials


def check_inputs(spec: UltraQuantDecodeSpec, query: np.ndarray, cache: np.ndarray, block_tables: np.ndarray) -> None:
    """Raise InputError if a shape is not the spec's."""
    for name, array, expected in (
        ("query", query, (spec.num_seqs, spec.num_query_heads, HEAD_SIZE)),
        ("cache", cache, spec.cache_shape(len(cache))),
        ("block_tables", block_tables, (spec.num_seqs, spec.max_blocks_per_seq)),
    ):
        if array.shape != expected:
            raise InputError(f"{name} has shape {array.shape}; the spec asks for {expected}")
    if cache.dtype != np.uint8:
        raise InputError(f"the cache holds {cache.dtype}; it must be uint8")


def encode_queries(spec: UltraQuantDecodeSpec, query: np.ndarray, overflow: Overflow = "saturate") -> np.ndarray:
    """Return the rotated Q on the grid of E4M3: float32 (num_seqs, num_kv_heads, G, 256)."""
    rotated = rotate_queries(query, overflow) if spec.fuse_qrot else to_e4m3(query, overflow)
    return rotated.reshape(spec.num_seqs, spec.num_kv_heads, spec.query_group_size, HEAD_SIZE)


def _batches(spec: UltraQuantDecodeSpec, lengths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Go through the partitions with work: a sequence, and some of its partitions."""
    for seq, length in enumerate(lengths):
        groups = -(-int(length) // TILE_GROUP_TOKENS)
        working = np.arange(min(groups, spec.num_partitions))
        for first in range(0, len(working), _PARTITIONS_AT_ONCE):
            yield seq, working[first : first + _PARTITIONS_AT_ONCE]


def _sweep(
    spec: UltraQuantDecodeSpec, query: np.ndarray, cache: np.ndarray, table: np.ndarray, length: int, parts: np.ndarray
) -> _State:
    """Take partitions ``parts`` of one sequence through their tiles, side by side; ``query`` is (heads, G, 256)."""
    state = _State.empty(len(parts), spec)
    for trip in range(spec.tile_groups_per_partition):
        active = sum(spec.trips(length, int(part)) > trip for part in parts)  # later partitions run out first
        if not active:
            break
        starts = (parts[:active] + trip * spec.num_partitions) * TILE_GROUP_TOKENS
        for first in starts + np.arange(TILES_PER_GROUP)[:, None] * TILE_TOKENS:
            keys, values = _load_tiles(spec, cache, table, length, first)
            masked = first[:, None] + np.arange(TILE_TOKENS) >= length
            scores = _scores(query, keys, np.float32(spec.scale))
            scores = np.where(masked[:, None, None], np.float32(-np.inf), scores)
            _accumulate(state, active, scores, values)
    return state


def _load_tiles(
    spec: UltraQuantDecodeSpec, cache: np.ndarray, table: np.ndarray, length: int, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Load the tiles that begin at ``starts``: K and V as float32 (n, heads, 16, 256)."""
    index, position = np.divmod(starts, spec.kv_block_size)
    blocks = table[np.where(starts < length, index, 0)]
    check_blocks(blocks, cache)
    slots = cache[blocks[:, None], position[:, None] + np.arange(TILE_TOKENS)]
    keys, values = dequantise_slots(np.swapaxes(slots, 1, 2))
    with np.errstate(over="ignore"):
        return keys, values.astype(ml_dtypes.bfloat16).astype(np.float32)


def _scores(query: np.ndarray, keys: np.ndarray, scale: np.float32) -> np.ndarray:
    """Return scaled scores (n, heads, G, 16): two matrix instructions of 128 elements, each rounded once."""
    q, k = query.astype(np.float64), np.swapaxes(keys, -1, -2).astype(np.float64)
    half = HEAD_SIZE // 2
    first = (q[..., :half] @ k[..., :half, :]).astype(np.float32)
    return (first + q[..., half:] @ k[..., half:, :]).astype(np.float32) * scale


def _accumulate(state: _State, active: int, scores: np.ndarray, values: np.ndarray) -> None:
    """Add one tile to the first ``active`` partitions: scores (n, heads, G, 16), values (n, heads, 16, 256)."""
    m, l, acc = state.m[:active], state.l[:active], state.acc[:active]
    m_new = np.maximum(m, scores.max(axis=-1))
    with np.errstate(invalid="ignore"):  # -inf - -inf, replaced
        keep = np.where(np.isneginf(m), np.float32(1), np.exp2((m - m_new) * _LOG2E))
        p = np.where(np.isneginf(scores), np.float32(0), np.exp2((scores - m_new[..., None]) * _LOG2E))
        rounded = p.astype(ml_dtypes.bfloat16).astype(np.float64)
        products = rounded @ values.astype(np.float64)
    l[:] = l * keep + _sum_tile(p)
    acc[:] = (acc * keep[..., None] + products).astype(np.float32)
    m[:] = m_new


def _sum_tile(p: np.ndarray) -> np.ndarray:
    """Sum (..., 16) in float32: the four tokens of each of four lanes in order, then the lanes pairwise."""
    lanes = p.reshape(*p.shape[:-1], 4, 4)
    lanes = lanes[..., 0] + lanes[..., 1] + lanes[..., 2] + lanes[..., 3]
    return (lanes[..., 0] + lanes[..., 1]) + (lanes[..., 2] + lanes[..., 3])


def _finish(partials: Partials, seq: int, parts: np.ndarray, state: _State) -> None:
    """Divide by the sums and store the partitions' results."""
    inverse = np.float32(1) / np.where(state.l > 0, state.l, np.float32(1))
    out = (state.acc * inverse[..., None]).astype(ml_dtypes.bfloat16)
    partials.out[seq][:, parts] = np.swapaxes(out, 0, 1)
    partials.exp_sums[seq][:, parts] = np.swapaxes(state.l, 0, 1)
    partials.max_logits[seq][:, parts] = np.swapaxes(state.m, 0, 1)


def reduce_partitions(partials: Partials) -> np.ndarray:
    """Combine the partitions as the reducer does: float32 throughout, then bfloat16.

    Returns
    -------
    array of bfloat16, shape (B, num_query_heads, 256)
        0 for a sequence without tokens.
    """
    m, out = partials.max_logits, partials.out.astype(np.float32)
    largest = m.max(axis=2, keepdims=True)
    with np.errstate(invalid="ignore"):  # -inf - -inf, replaced
        weights = np.where(m > -np.inf, np.exp(m - largest) * partials.exp_sums, np.float32(0))
    total = weights.sum(axis=2, dtype=np.float32)[..., None]
    summed = (weights[..., None] * out).sum(axis=2, dtype=np.float32)
    result = np.where(total == 0, np.float32(0), summed / np.where(total == 0, np.float32(1), total))
    return result.astype(ml_dtypes.bfloat16).reshape(m.shape[0], -1, out.shape[-1])


def decode_faithful(
    spec: UltraQuantDecodeSpec,
    query: np.ndarray,
    cache: np.ndarray,
    block_tables: np.ndarray,
    seq_lens: Sequence[int] | np.ndarray,
    *,
    overflow: Overflow = "saturate",
    compat: bool = False,
) -> np.ndarray:
    """Return the decode's output, bfloat16 (num_seqs, num_query_heads, 256).

    It is :func:`reduce_partitions` of :func:`decode_partitions`, which says what the parameters are.
    """
    return reduce_partitions(
        decode_partitions(spec, query, cache, block_tables, seq_lens, overflow=overflow, compat=compat)
    )
