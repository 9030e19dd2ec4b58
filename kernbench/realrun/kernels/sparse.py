"""Block-sparse prefill: a mask of blocks says which tiles of keys a tile of queries sees."""

import triton
import triton.language as tl


@triton.jit
def _tile(q_tile, k, v, m, l, acc, start, keep, seqlen, qk_scale, D: tl.constexpr, BN: tl.constexpr):
    """One tile of keys; scores of a tile that is not kept are -inf."""
    n = start + tl.arange(0, BN)
    ok = n < seqlen
    at = n[:, None] * D + tl.arange(0, D)[None, :]
    k_tile = tl.load(k + at, mask=ok[:, None], other=0.0)
    s = tl.dot(q_tile, tl.trans(k_tile)) * qk_scale
    s = tl.where(ok[None, :] & keep, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    l = l * alpha + tl.sum(p, 1)
    v_tile = tl.load(v + at, mask=ok[:, None], other=0.0)
    acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * alpha[:, None])
    return m_new, l, acc


@triton.jit(do_not_specialize=["seqlen", "q_heads", "group", "mask_cols"])
def block_sparse(
    q, k, v, mask, o, seqlen, q_heads, group, mask_cols, qk_scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    """Attend with one tile of queries. Grid: (ceil(S / BM), batch x heads).

    Shapes: as of ``prefill.prefill``; mask int8 (ceil(S / BQ), mask_cols), the same for all heads. BQ is a multiple of
    BM, BK of BN. ``SKIP`` leaves a masked tile out; otherwise it is computed and masked. The first block of every row
    is kept, so that the running maximum is finite.
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
    mask += tile * BM // BQ * mask_cols
    row_ok = rows < seqlen
    q_tile = tl.load(q + at, mask=row_ok[:, None], other=0.0)
    m = tl.full([BM], float("-inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, seqlen, BN):
        keep = tl.load(mask + start // BK) != 0
        if SKIP:
            if keep:
                m, l, acc = _tile(q_tile, k, v, m, l, acc, start, keep, seqlen, qk_scale, D, BN)
        else:
            m, l, acc = _tile(q_tile, k, v, m, l, acc, start, keep, seqlen, qk_scale, D, BN)
    acc = acc / l[:, None]
    tl.store(o + at, acc.to(o.dtype.element_ty), mask=row_ok[:, None])
