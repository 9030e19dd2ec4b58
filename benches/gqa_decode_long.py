"""Decode with grouped query heads over a long KV cache.

A few new tokens attend to a cache that is spread over the machine. Every PE sweeps the keys and values that it holds
with an online softmax; then the partial results are chained to one PE for each key/value head, which stores the output.
"""

from __future__ import annotations

import kernbench as kb
from kernbench.bench import Arrays, Bench, Case
from kernbench.collectives import LEVELS, reduce_to_root
from kernbench.specs.attention import DecodeSpec
from kernbench.specs.correctness import tolerance
from kernbench.specs.reference import attention_reference

LOWEST = -1e30
"""Where running maxima start: finite, so that a part without keys gives exp(LOWEST - m) = 0 and never inf - inf."""


# ---------------------------------------------------------------- the kernel
def gqa_decode(q, k, v, o, spec, *, tl):
    """Attend with all query heads that share a key/value head at once, one such group after the other.

    ``q`` and ``o`` are ``(batch, h_kv, T_q * group, d)``, ``k`` and ``v`` are ``(batch, h_kv, S_kv, d)``; each PE's
    pointers lead to its own part of each.
    """
    if any(tl.program_id(LEVELS[level][0]) > 0 for level in spec.idle_levels):
        return
    for batch in range(k.shape[0]):
        for head in range(k.shape[1]):
            with tl.scratch_scope():
                partial = attend(q.at(batch, head), k, v, batch, head, spec, tl=tl)
                whole = reduce_to_root(
                    partial, lambda a, b: merge(a, b, tl=tl), spec.split_S_kv, spec.reduction, tl=tl
                )
                if whole is not None:  # the last query sees every key and each query at least one, so l > 0 here
                    _, l, acc = whole
                    tl.store(o.at(batch, head), acc / l)


def attend(q_rows, k, v, batch, head, spec, *, tl):
    """Sweep this PE's own keys: return the running maximum, sum and weighted values of each query row."""
    rows, d, keys = spec.T_q * spec.group, spec.d_head, k.shape[2]
    Q = tl.load(q_rows, shape=(rows, d), dtype=spec.dtype)
    m, l, acc = tl.full((rows, 1), LOWEST, "f32"), tl.zeros((rows, 1), "f32"), tl.zeros((rows, d), "f32")
    for start in range(0, keys, spec.TILE_S_KV):
        n = min(spec.TILE_S_KV, keys - start)
        with tl.scratch_scope(buffers=spec.buffers):
            K = tl.load(k.at(batch, head, start), shape=(d, n), strides=(1, d), dtype=spec.dtype)  # a true transpose
            V = tl.load(v.at(batch, head, start), shape=(n, d), dtype=spec.dtype)
            s = tl.dot(Q, K) * spec.scale
            first = k.origin[2] + start
            masked = spec.causal and first + n - 1 > spec.S_kv - spec.T_q  # some query may not see this tile's last key
            if masked:
                seen = visible(first, n, spec, tl=tl)
                s = tl.where(seen, s, LOWEST)
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            keep, p = tl.exp(m - m_new), tl.exp(s - m_new)
            if masked:
                p = tl.where(seen, p, 0.0)  # a row that has seen no key yet has m_new = LOWEST, and exp(0) = 1
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            tl.copy_to(acc, acc * keep + tl.dot(tl.cast(p, spec.dtype), V))
            tl.copy_to(m, m_new)
    return m, l, acc


def visible(first_key, n, spec, *, tl):
    """Whether each query row (query token, head of the group) may see each of ``n`` keys from ``first_key`` on."""
    rows = spec.T_q * spec.group
    token = tl.reshape(tl.arange(0, rows), (rows, 1)) // spec.group
    key = tl.reshape(tl.arange(0, n), (1, n)) + first_key
    return key <= token + (spec.S_kv - spec.T_q)


def merge(a, b, *, tl):
    """Combine two partial results over different keys."""
    (m_a, l_a, acc_a), (m_b, l_b, acc_b) = a, b
    m = tl.maximum(m_a, m_b)
    keep_a, keep_b = tl.exp(m_a - m), tl.exp(m_b - m)
    return m, l_a * keep_a + l_b * keep_b, acc_a * keep_a + acc_b * keep_b


# ---------------------------------------------------------------- its tensors
def arguments(spec: DecodeSpec, machine: kb.Machine, arrays: Arrays | None):
    """Lay the tensors out over the machine as the spec says."""
    per_group = kb.split(0, over=spec.split_batch).split(1, over=spec.split_heads)
    cache = per_group.split(2, over=spec.split_S_kv)
    root = per_group.on(**dict.fromkeys(spec.split_S_kv + spec.idle_levels, 0))
    q_shape = (spec.batch, spec.h_kv, spec.T_q * spec.group, spec.d_head)
    kv_shape = (spec.batch, spec.h_kv, spec.S_kv, spec.d_head)
    if arrays is None:
        q = kb.shape_only(q_shape, spec.dtype, machine, per_group)
        k, v = (kb.shape_only(kv_shape, spec.dtype, machine, cache) for _ in "kv")
        o = kb.shape_only(q_shape, spec.dtype, machine, root)
    else:
        by_token = (spec.batch, spec.T_q, spec.h_kv, spec.group, spec.d_head)
        rows = arrays["q"].reshape(by_token).transpose(0, 2, 1, 3, 4).reshape(q_shape)
        q = kb.tensor(rows, machine, per_group)
        k, v = (kb.tensor(arrays[name].transpose(0, 2, 1, 3), machine, cache) for name in "kv")
        o = kb.empty(q_shape, spec.dtype, machine, root)
    return (q, k, v, o, spec), o


def output(spec: DecodeSpec, o: kb.Tensor):
    """Return the results as ``(batch, T_q, h_q, d)``."""
    by_group = o.numpy().reshape(spec.batch, spec.h_kv, spec.T_q, spec.group, spec.d_head)
    return by_group.transpose(0, 2, 1, 3, 4).reshape(spec.batch, spec.T_q, spec.h_q, spec.d_head)


def reference(spec: DecodeSpec, arrays: Arrays):
    """The right result in float64."""
    return attention_reference(arrays["q"], arrays["k"], arrays["v"], spec.scale, spec.causal)


BENCHES = [
    Bench(
        name="gqa_decode_long",
        summary="decode with grouped query heads over a long KV cache, split over the machine and chained to a root",
        spec=DecodeSpec,
        kernel=gqa_decode,
        arguments=arguments,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        cases=(
            Case(settings={}, inputs="captured"),
            Case(settings={"T_q": 4, "S_kv": 1000, "TILE_S_KV": 16, "buffers": 2}, inputs="captured"),
            Case(settings={"split_heads": "cube", "split_S_kv": "pe"}, inputs="captured"),
            Case(settings={"S_kv": 1}),
            Case(settings={"S_kv": 7, "T_q": 7}),
            Case(settings={"S_kv": 1025, "h_q": 8, "h_kv": 1, "d_head": 128}),
            Case(settings={"S_kv": 8192, "h_q": 8, "h_kv": 1, "d_head": 128, "TILE_S_KV": 128, "buffers": 2}),
            Case(settings={"batch": 4, "S_kv": 300, "split_batch": "cube", "split_S_kv": "pe", "dtype": "bf16"}),
            Case(settings={"S_kv": 500, "dtype": "f32", "h_q": 10, "h_kv": 2}),
            Case(settings={"S_kv": 1000, "T_q": 3}, topology="sip4_grid4x4_pe8"),
            Case(settings={"S_kv": 1000, "split_heads": "sip", "split_S_kv": "cube,pe"}, topology="sip4_grid4x4_pe8"),
            Case(settings={"S_kv": 2048}, topology="grid8x8_pe8"),
            Case(settings={"S_kv": 64}, topology="pe1"),
        ),
    )
]
