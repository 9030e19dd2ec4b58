"""Prefill: every query tile against the keys, forward only. Grid: (ceil(S / BM), batch x heads)."""

import triton
import triton.language as tl


@triton.jit
def _tile(q_tile, k, v, m, l, acc, start, rows, seqlen, qk_scale,
          D: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, BOUND: tl.constexpr):  # fmt: skip
    """One tile of keys: scores, online softmax in base 2, values. ``BOUND`` checks the end of the sequence."""
    n = start + tl.arange(0, BN)
    at = n[:, None] * D + tl.arange(0, D)[None, :]
    ok = n < seqlen
    k_tile = tl.load(k + at, mask=ok[:, None], other=0.0) if BOUND else tl.load(k + at)
    s = tl.dot(q_tile, tl.trans(k_tile)) * qk_scale
    if CAUSAL:
        s = tl.where(rows[:, None] >= n[None, :], s, float("-inf"))
    if BOUND:
        s = tl.where(ok[None, :], s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    l = l * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None]
    v_tile = tl.load(v + at, mask=ok[:, None], other=0.0) if BOUND else tl.load(v + at)
    acc = tl.dot(p.to(v_tile.dtype), v_tile, acc)
    return m_new, l, acc


@triton.jit(do_not_specialize=["seqlen", "q_heads", "group"])
def prefill(
    q, k, v, o, seqlen, q_heads, group, qk_scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, BOUND: tl.constexpr,
    DIAGONAL_ONLY: tl.constexpr,
):  # fmt: skip
    """Attend with one tile of queries; a causal one stops at the diagonal.

    Shapes: q, o (batch, q heads, S, D); k, v (batch, kv heads, S, D). ``DIAGONAL_ONLY`` masks only the tiles that the
    diagonal crosses, in a loop of their own; without it a causal kernel masks every tile.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // q_heads * (q_heads // group) + head % q_heads // group
    rows = tile * BM + tl.arange(0, BM)
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    q += head.to(tl.int64) * seqlen * D
    o += head.to(tl.int64) * seqlen * D
    k += kv_head.to(tl.int64) * seqlen * D
    v += kv_head.to(tl.int64) * seqlen * D
    q_tile = tl.load(q + at, mask=(rows < seqlen)[:, None], other=0.0) if BOUND else tl.load(q + at)
    m = tl.full([BM], float("-inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    end = seqlen
    if CAUSAL:
        end = tl.minimum((tile + 1) * BM, seqlen)
    start = 0
    if DIAGONAL_ONLY:
        start = tile * BM // BN * BN
        for free in range(0, start, BN):
            m, l, acc = _tile(q_tile, k, v, m, l, acc, free, rows, seqlen, qk_scale, D, BN, False, False)
    for n in range(start, end, BN):
        m, l, acc = _tile(q_tile, k, v, m, l, acc, n, rows, seqlen, qk_scale, D, BN, CAUSAL, BOUND)
    acc = acc / l[:, None]
    if BOUND:
        tl.store(o + at, acc.to(o.dtype.element_ty), mask=(rows < seqlen)[:, None])
    else:
        tl.store(o + at, acc.to(o.dtype.element_ty))
