"""Absorbed MLA decode: all query heads of a sequence share one latent cache of 512 + 64 elements a token."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["seqlen", "blocks", "split_len", "splits"])
def mla_partial(
    q, cache, o_part, m_part, l_part, seqlen, blocks, split_len, splits, qk_scale,
    BH: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Attend with ``BH`` heads to one split. Grid: (batch x head blocks, splits).

    Shapes: q (batch, heads, LATENT + ROPE), absorbed; cache (batch, token, LATENT + ROPE); the values are the latent
    part of the keys. o_part (batch x head blocks, splits, BH, LATENT), m_part and l_part (without the last axis) are
    float32.
    """
    pid = tl.program_id(0)
    split = tl.program_id(1)
    b = pid // blocks
    width: tl.constexpr = LATENT + ROPE
    rows = tl.arange(0, BH)
    c = tl.arange(0, LATENT)
    r = tl.arange(0, ROPE)
    n = tl.arange(0, BN)
    q_rows = q + (pid * BH + rows)[:, None] * width
    q_latent = tl.load(q_rows + c[None, :])
    q_rope = tl.load(q_rows + LATENT + r[None, :])
    first = split * split_len
    last = tl.minimum(first + split_len, seqlen)
    m = tl.full([BH], float("-inf"), tl.float32)
    l = tl.zeros([BH], tl.float32)
    acc = tl.zeros([BH, LATENT], tl.float32)
    for start in range(first, last, BN):
        at = cache + (b.to(tl.int64) * seqlen + start) * width
        ok = start + n < seqlen
        latent = tl.load(at + n[:, None] * width + c[None, :], mask=ok[:, None], other=0.0)
        rope = tl.load(at + LATENT + n[:, None] * width + r[None, :], mask=ok[:, None], other=0.0)
        s = tl.dot(q_latent, tl.trans(latent))
        s = tl.dot(q_rope, tl.trans(rope), s) * qk_scale
        s = tl.where(ok[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(latent.dtype), latent, acc)
        m = m_new
    out = (pid * splits + split) * BH + rows
    tl.store(o_part + out.to(tl.int64)[:, None] * LATENT + c[None, :], acc)
    tl.store(m_part + out, m)
    tl.store(l_part + out, l)
