"""Attention in float64: the truth that kernels are held against. It shares no code with any kernel.

The mathematics is that of the definition, ``softmax(scale * Q K^T) V``: every score of a row is computed before
the softmax, and nothing is rescaled along the way. Only the widening to float64 goes in blocks of keys, so that
memory stays small for long sequences.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

_SCORES_AT_ONCE = 1 << 22
"""Scores that are held at once: 32 MiB of float64."""
_KEYS_AT_ONCE = 1 << 12
"""Keys or values that are widened to float64 at once."""


def attention_reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool = False) -> np.ndarray:
    """Attention with grouped heads, in float64.

    Parameters
    ----------
    q : array, shape (batch, T_q, h_q, d)
        Queries; query head ``h`` reads key/value head ``h // (h_q / h_kv)``.
    k, v : array, shape (batch, S_kv, h_kv, d)
        Keys and values.
    scale
        Factor on the scores.
    causal
        Whether query ``t`` sees keys ``0 ... S_kv - T_q + t`` only.

    Returns
    -------
    array of float64, shape (batch, T_q, h_q, d)
        A row that sees no key is 0.

    Examples
    --------
    One key: the output is its value, whatever the query.

    >>> one = np.ones((1, 1, 1, 2))
    >>> attention_reference(one, one, 3 * one, scale=0.5)
    array([[[[3., 3.]]]])
    """
    batch, n_queries, h_q, d = q.shape
    n_keys, h_kv = k.shape[1:3]
    group = h_q // h_kv
    out = np.empty((batch, n_queries, h_q, v.shape[3]))
    queries_at_once = max(1, _SCORES_AT_ONCE // max(1, n_keys * group))
    with threadpool_limits(1, user_api="blas"):  # products this thin only lose by being spread over threads
        for b in range(batch):
            for head in range(h_kv):
                heads = slice(head * group, (head + 1) * group)
                for first in range(0, n_queries, queries_at_once):
                    rows = slice(first, min(first + queries_at_once, n_queries))
                    last_key = np.arange(rows.start, rows.stop) + n_keys - n_queries if causal else None
                    block = q[b, rows, heads].astype(np.float64).reshape(-1, d)
                    found = _head(block, k[b, :, head], v[b, :, head], scale, last_key)
                    out[b, rows, heads] = found.reshape(-1, group, v.shape[3])
    return out


def _head(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, last_key: np.ndarray | None
) -> np.ndarray:
    """Attend with ``(rows, d)`` queries to the keys of one head; ``last_key`` holds one limit per query token."""
    blocks = [slice(i, i + _KEYS_AT_ONCE) for i in range(0, len(keys), _KEYS_AT_ONCE)]
    scores = np.empty((len(queries), len(keys)))
    for block in blocks:
        scores[:, block] = queries @ keys[block].astype(np.float64).T
    scores *= scale
    if last_key is not None:
        by_token = scores.reshape(len(last_key), -1, len(keys))  # a view: rows are (token, head of the group)
        by_token[np.broadcast_to(np.arange(len(keys)) > last_key[:, None, None], by_token.shape)] = -np.inf
    probabilities = _softmax(scores)
    out = np.zeros((len(queries), values.shape[1]))
    for block in blocks:
        out += probabilities[:, block] @ values[block].astype(np.float64)
    return out


def _softmax(scores: np.ndarray) -> np.ndarray:
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total == 0, 1, total)
