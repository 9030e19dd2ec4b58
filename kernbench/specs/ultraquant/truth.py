"""UltraQuant decode in float64: over what the cache holds, and over what it was made from."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from kernbench.errors import InputError
from kernbench.specs.reference import attention_reference
from kernbench.specs.ultraquant.cache import read_tokens
from kernbench.specs.ultraquant.faithful import check_inputs, encode_queries
from kernbench.specs.ultraquant.layout import HEAD_SIZE
from kernbench.specs.ultraquant.rotation import hadamard
from kernbench.specs.ultraquant.spec import UltraQuantDecodeSpec


def decode_over_cache(
    spec: UltraQuantDecodeSpec,
    query: np.ndarray,
    cache: np.ndarray,
    block_tables: np.ndarray,
    seq_lens: Sequence[int] | np.ndarray,
    *,
    round_query: bool = True,
) -> np.ndarray:
    """Attend over the dequantised cache in float64; every token counts, whatever the partitions cover.

    Parameters
    ----------
    query, cache, block_tables, seq_lens
        As for :func:`~kernbench.specs.ultraquant.faithful.decode_partitions`.
    round_query
        Whether Q is rounded to E4M3 after its rotation, as the kernel does: its arithmetic is then all that differs.
        False shows what that rounding costs.

    Returns
    -------
    array of float64, shape (num_seqs, num_query_heads, 256)
        0 for a sequence without tokens.
    """
    lengths = spec.check().check_lengths(seq_lens)
    check_inputs(spec, query, cache, block_tables)
    if round_query:
        rotated = encode_queries(spec, query).reshape(query.shape).astype(np.float64)
    elif spec.fuse_qrot:
        rotated = query.astype(ml_dtypes.bfloat16).astype(np.float64) @ hadamard(HEAD_SIZE)
    else:
        rotated = query.astype(np.float64)
    pairs = [read_tokens(spec, cache, row, int(n)) for row, n in zip(block_tables, lengths, strict=True)]
    return _attend(spec, rotated, [k for k, _ in pairs], [v for _, v in pairs])


def decode_unquantised(
    spec: UltraQuantDecodeSpec, query: np.ndarray, keys: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> np.ndarray:
    """Attend over the original K and V in float64: what the format is held against.

    Parameters
    ----------
    query : array, shape (num_seqs, num_query_heads, 256)
        Not rotated.
    keys, values : one array for each sequence, shape (tokens, num_kv_heads, 256)
        Not rotated.

    Returns
    -------
    array of float64, shape (num_seqs, num_query_heads, 256)
    """
    if len(keys) != spec.num_seqs or len(values) != spec.num_seqs:
        raise InputError(f"{len(keys)} keys and {len(values)} values for num_seqs={spec.num_seqs} sequences")
    return _attend(spec, query, keys, values)


def _attend(
    spec: UltraQuantDecodeSpec, query: np.ndarray, keys: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> np.ndarray:
    out = np.zeros((spec.num_seqs, spec.num_query_heads, HEAD_SIZE))
    for seq, (k, v) in enumerate(zip(keys, values, strict=True)):
        if len(k):
            out[seq] = attention_reference(query[None, None, seq], k[None], v[None], spec.scale)[0, 0]
    return out
