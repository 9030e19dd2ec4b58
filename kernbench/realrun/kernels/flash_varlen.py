"""Causal prefill of sequences of different lengths, packed one behind another.

Grid: (ceil(longest sequence / BM), heads, sequences).
"""

import triton
import triton.language as tl


@triton.jit
def _attend(q_tile, k, v, m, l, acc, start, end, rows, seqlen, stride_t, qk_scale,
            D: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Walk the keys from ``start`` to ``end`` in tiles; ``MASKED`` ones may cross the diagonal and the end."""
    d = tl.arange(0, D)
    for first in range(start, end, BN):
        n = first + tl.arange(0, BN)
        at = n[:, None] * stride_t + d[None, :]
        if MASKED:
            bias = tl.where(n[None, :] <= rows[:, None], 0.0, float("-inf"))
            k_tile = tl.load(k + at, mask=(n < seqlen)[:, None], other=0.0)
        else:
            bias = tl.zeros([rows.shape[0], BN], tl.float32)
            k_tile = tl.load(k + at)
        s = bias + tl.dot(q_tile, tl.trans(k_tile)) * qk_scale  # one fused multiply-add for each score
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v_tile = tl.load(v + at, mask=(n < seqlen)[:, None], other=0.0) if MASKED else tl.load(v + at)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc)
        m = m_new
    return m, l, acc


@triton.jit
def flash_varlen(
    q, k, v, o, lse, starts, longest, stride_t, qk_scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Attend with one tile of queries of one head of one sequence; write O, and log2 of the sum of exponentials.

    Shapes: q, k, v, o (token, heads, D) with ``stride_t`` elements from token to token; lse (sequences, heads,
    ``longest``) in float32; starts (sequences + 1): where each sequence begins. Workgroups behind the end of their
    sequence do nothing. Tiles of keys that lie before the tile of queries need no mask and have a loop of their own.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    begin = tl.load(starts + sequence)
    seqlen = tl.load(starts + sequence + 1) - begin
    if tile * BM < seqlen:
        rows = tile * BM + tl.arange(0, BM)
        at = begin.to(tl.int64) * stride_t + head * D
        mine = rows[:, None] * stride_t + tl.arange(0, D)[None, :]
        ok = rows < seqlen
        q_tile = tl.load(q + at + mine, mask=ok[:, None], other=0.0)
        m = tl.full([BM], float("-inf"), tl.float32)
        l = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, D], tl.float32)
        free = tile * BM // BN * BN
        end = tl.minimum((tile + 1) * BM, seqlen)
        m, l, acc = _attend(q_tile, k + at, v + at, m, l, acc, 0, free, rows, seqlen, stride_t, qk_scale, D, BN, False)
        m, l, acc = _attend(q_tile, k + at, v + at, m, l, acc, free, end, rows, seqlen, stride_t, qk_scale, D, BN, True)
        acc = acc * (1.0 / l)[:, None]  # one division for each row
        out = acc.to(o.dtype.element_ty)
        sums = lse + (sequence * tl.num_programs(1) + head) * longest + rows
        if (tile + 1) * BM <= seqlen:
            tl.store(o + at + mine, out)
            tl.store(sums, m + tl.log2(l))
        else:
            tl.store(o + at + mine, out, mask=ok[:, None])
            tl.store(sums, m + tl.log2(l), mask=ok)
