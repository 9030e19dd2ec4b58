"""Split-KV decode over a contiguous cache, and the reduction of its partial results.

Grid of the partial kernel: (batch x kv heads, splits). A workgroup holds a padded group of query heads that share one
kv head, and walks its split of the cache in tiles of ``BN`` tokens.
"""

import triton
import triton.language as tl

NO_SCALE, TENSOR_SCALE, TOKEN_SCALE = 0, 1, 2
"""Values of the constexpr ``SCALE``: none, one factor for the cache, one for each token and head."""


@triton.jit(do_not_specialize=["seqlen", "kv_heads", "group", "split_len", "splits"])
def decode_partial(
    q, k, v, k_scale, v_scale, o_part, m_part, l_part,
    seqlen, kv_heads, group, split_len, splits, stride_t, qk_scale,
    GP: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Attend to one split of one kv head; write O (not divided), m and l in float32.

    Shapes: q (batch, q heads, D); k, v (batch, token, kv heads, D) of bf16, f16, fp8 or i8, ``stride_t`` elements from
    token to token; scales float32, one value or (batch, token, kv heads); o_part (batch x kv heads, splits, group, D);
    m_part and l_part (batch x kv heads, splits, group). ``GP`` >= max(16, group) rows are computed.
    """
    pid = tl.program_id(0)
    split = tl.program_id(1)
    b = pid // kv_heads
    h = pid % kv_heads
    rows = tl.arange(0, GP)
    d = tl.arange(0, D)
    n = tl.arange(0, BN)
    row_ok = rows < group
    q_tile = tl.load(q + (pid * group + rows)[:, None] * D + d[None, :], mask=row_ok[:, None], other=0.0)
    first = split * split_len
    last = tl.minimum(first + split_len, seqlen)
    at = (b.to(tl.int64) * seqlen + first) * stride_t + h * D  # 64 bits: caches hold more than 2**31 elements
    tile = n[:, None] * stride_t + d[None, :]
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for start in range(first, last, BN):
        ok = start + n < seqlen
        k_tile = tl.load(k + at + tile, mask=ok[:, None], other=0.0)
        s = tl.dot(q_tile, tl.trans(k_tile.to(q_tile.dtype))) * qk_scale
        if SCALE == 1:
            s = s * tl.load(k_scale)
        if SCALE == 2:
            scale_at = (b.to(tl.int64) * seqlen + start) * kv_heads + h + n * kv_heads
            s = s * tl.load(k_scale + scale_at, mask=ok, other=0.0)[None, :]
        s = tl.where(ok[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        if SCALE == 2:
            p = p * tl.load(v_scale + scale_at, mask=ok, other=0.0)[None, :]
        v_tile = tl.load(v + at + tile, mask=ok[:, None], other=0.0)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(q_tile.dtype), v_tile.to(q_tile.dtype), acc)
        m = m_new
        at += BN * stride_t
    if SCALE == 1:
        acc = acc * tl.load(v_scale)
    out = (pid * splits + split) * group + rows
    tl.store(o_part + out.to(tl.int64)[:, None] * D + d[None, :], acc, mask=row_ok[:, None])
    tl.store(m_part + out, m, mask=row_ok)
    tl.store(l_part + out, l, mask=row_ok)


@triton.jit(do_not_specialize=["group", "splits"])
def reduce_splits(o_part, m_part, l_part, o, group, splits, D: tl.constexpr, SP: tl.constexpr, CHUNK: tl.constexpr):
    """Merge the partial results of one query head. Grid: (batch x kv heads, group).

    Shapes as :func:`decode_partial` writes them; o (batch x kv heads, group, D). ``SP`` is ``splits`` padded to a power
    of two; ``CHUNK`` rows are read at a time. A split with m = -inf counts for nothing.
    """
    pid = tl.program_id(0)
    g = tl.program_id(1)
    d = tl.arange(0, D)
    every = tl.arange(0, SP)
    m_all = tl.load(m_part + (pid * splits + every) * group + g, mask=every < splits, other=float("-inf"))
    l_all = tl.load(l_part + (pid * splits + every) * group + g, mask=every < splits, other=0.0)
    top = tl.max(m_all, 0)
    total = tl.sum(tl.exp2(m_all - top) * l_all, 0)
    acc = tl.zeros([D], tl.float32)
    some = tl.arange(0, CHUNK)
    for start in range(0, splits, CHUNK):
        split = start + some
        ok = split < splits
        row = (pid * splits + split) * group + g
        w = tl.exp2(tl.load(m_part + row, mask=ok, other=float("-inf")) - top)
        part = tl.load(o_part + row.to(tl.int64)[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        acc += tl.sum(part * w[:, None], 0)
    tl.store(o + (pid * group + g).to(tl.int64) * D + d, (acc / total).to(o.dtype.element_ty))
