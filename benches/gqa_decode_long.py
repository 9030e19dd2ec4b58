"""Decode with grouped query heads over a long KV cache.

A few new tokens attend to a cache that is spread over the machine. Every PE sweeps the keys and values that it holds
with an online softmax; then the partial results come together, in a way that can be chosen, at one PE for each
key/value head, which stores the output.
"""

from __future__ import annotations

import kernbench as kb
from kernbench.bench import Arrays, Bench, Case
from kernbench.collectives import LEVELS
from kernbench.specs.attention import DecodeSpec
from kernbench.specs.correctness import tolerance
from kernbench.specs.reference import attention_reference
from kernbench.split_kv import LOWEST, finish, merged, result, stage


# ---------------------------------------------------------------- the kernel
def gqa_decode(q, k, v, o, spec, stage=None, *, tl):
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
                mine = (0, batch, head) if spec.reduction == "none" else (batch, head)
                finish(partial, o.at(*mine), stage, spec, tl=tl)


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


# ---------------------------------------------------------------- its tensors
def arguments(spec: DecodeSpec, machine: kb.Machine, arrays: Arrays | None):
    """Lay the tensors out over the machine as the spec says."""
    per_group = groups(spec)
    cache = per_group.split(2, over=spec.split_S_kv)
    q_shape = (spec.batch, spec.h_kv, spec.T_q * spec.group, spec.d_head)
    kv_shape = (spec.batch, spec.h_kv, spec.S_kv, spec.d_head)
    if arrays is None:
        q = kb.shape_only(q_shape, spec.dtype, machine, per_group)
        k, v = (kb.shape_only(kv_shape, spec.dtype, machine, cache) for _ in "kv")
    else:
        by_token = (spec.batch, spec.T_q, spec.h_kv, spec.group, spec.d_head)
        rows = arrays["q"].reshape(by_token).transpose(0, 2, 1, 3, 4).reshape(q_shape)
        q = kb.tensor(rows, machine, per_group)
        k, v = (kb.tensor(arrays[name].transpose(0, 2, 1, 3), machine, cache) for name in "kv")
    held = arrays is not None
    o = result(q_shape, lambda before: groups(spec, before), spec, machine, held)
    return (q, k, v, o, spec, *stage(q_shape[2], spec.d_head, spec, machine, held)), o


def groups(spec: DecodeSpec, before=0):
    """Placement of the batch and of the key/value heads, behind ``before`` other axes."""
    return kb.split(before, over=spec.split_batch).split(before + 1, over=spec.split_heads)


def output(spec: DecodeSpec, o: kb.Tensor):
    """Return the results as ``(batch, T_q, h_q, d)``; ``reduction="none"`` is merged on the host, in float64."""
    by_group = merged(o, spec).reshape(spec.batch, spec.h_kv, spec.T_q, spec.group, spec.d_head)
    return by_group.transpose(0, 2, 1, 3, 4).reshape(spec.batch, spec.T_q, spec.h_q, spec.d_head)


def reference(spec: DecodeSpec, arrays: Arrays):
    """The right result in float64."""
    return attention_reference(arrays["q"], arrays["k"], arrays["v"], spec.scale, spec.causal)


BENCHES = [
    Bench(
        name="gqa_decode_long",
        summary="decode with grouped query heads over a long KV cache that is split over the machine",
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
            Case(settings={"reduction": "tree"}, inputs="captured"),
            Case(settings={"reduction": "butterfly"}, inputs="captured"),
            Case(settings={"reduction": "ring_all_reduce"}, inputs="captured"),
            Case(settings={"reduction": "none"}, inputs="captured"),
            Case(settings={"S_kv": 300, "T_q": 3, "reduction": "tree"}, topology="sip4_grid4x4_pe8"),
            Case(
                settings={"S_kv": 25, "split_S_kv": "sip,cube", "reduction": "butterfly"},
                topology="sip4_grid4x4_pe8",
            ),
            Case(
                settings={"S_kv": 77, "split_heads": "sip", "split_S_kv": "pe,cube", "reduction": "ring_all_reduce"},
                topology="sip4_grid4x4_pe8",
            ),
            Case(settings={"batch": 2, "S_kv": 77, "split_batch": "sip", "split_S_kv": "cube", "reduction": "none"}),
        ),
    )
]
