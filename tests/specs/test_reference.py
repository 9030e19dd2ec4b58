"""The float64 reference against the definition, written out element by element."""

import math

import numpy as np
import pytest

from kernbench.specs import reference
from kernbench.specs.reference import attention_reference


def by_definition(q, k, v, scale, causal):
    """Attention in plain Python loops."""
    batch, n_queries, h_q, d = q.shape
    n_keys, h_kv = k.shape[1:3]
    out = np.zeros((batch, n_queries, h_q, d))
    for b in range(batch):
        for t in range(n_queries):
            for h in range(h_q):
                kv = h // (h_q // h_kv)
                seen = [j for j in range(n_keys) if not causal or j <= n_keys - n_queries + t]
                weights = [math.exp(scale * math.fsum(q[b, t, h] * k[b, j, kv])) for j in seen]
                for j, weight in zip(seen, weights, strict=True):
                    out[b, t, h] += weight / math.fsum(weights) * v[b, j, kv]
    return out


def random_qkv(seed, batch, n_queries, n_keys, h_q, h_kv, d):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(batch, n, h, d)) for n, h in ((n_queries, h_q), (n_keys, h_kv), (n_keys, h_kv)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (2, 3, 7, 6, 2, 5), (1, 5, 5, 3, 3, 4), (3, 2, 11, 4, 1, 8)])
def test_it_is_the_definition(sizes, causal):
    q, k, v = random_qkv(0, *sizes)
    np.testing.assert_allclose(
        attention_reference(q, k, v, 0.3, causal), by_definition(q, k, v, 0.3, causal), rtol=1e-12, atol=1e-14
    )


def test_blocks_of_keys_and_queries_do_not_change_it(monkeypatch):
    q, k, v = random_qkv(1, 2, 7, 23, 6, 3, 4)
    whole = attention_reference(q, k, v, 0.5, causal=True)
    monkeypatch.setattr(reference, "_KEYS_AT_ONCE", 5)
    monkeypatch.setattr(reference, "_SCORES_AT_ONCE", 2 * 23 * 2)
    np.testing.assert_allclose(attention_reference(q, k, v, 0.5, causal=True), whole, rtol=1e-13)


def test_a_query_that_sees_no_key_gives_zero():
    q, k, v = random_qkv(2, 1, 3, 2, 1, 1, 4)  # query 0 would see keys up to -1
    out = attention_reference(q, k, v, 1.0, causal=True)
    assert (out[0, 0] == 0).all()
    np.testing.assert_allclose(out[0, 1, 0], v[0, 0, 0])


def test_large_scores_do_not_overflow():
    q, k, v = random_qkv(3, 1, 1, 9, 1, 1, 4)
    assert np.isfinite(attention_reference(1e4 * q, k, v, 1.0)).all()


def test_equal_keys_give_the_mean_of_the_values():
    q, k, v = random_qkv(4, 1, 2, 50, 2, 1, 8)
    out = attention_reference(q, np.ones_like(k), v, 1.0)
    np.testing.assert_allclose(out, np.broadcast_to(v.mean(axis=1, keepdims=True), out.shape), atol=1e-14)
