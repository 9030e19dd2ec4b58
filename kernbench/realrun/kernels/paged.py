"""Split-KV decode through a block table: the cache is pages of ``PAGE`` tokens in any order."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["seqlen", "kv_heads", "group", "split_len", "splits", "pages"])
def paged_partial(
    q, k, v, table, o_part, m_part, l_part,
    seqlen, kv_heads, group, split_len, splits, pages, stride_t, qk_scale,
    GP: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Attend to one split of one kv head; grid and results as of ``splitkv.decode_partial``.

    Shapes: k, v (page, PAGE, kv heads, D); table int32 (batch, pages). A tile inside one page reads one entry of the
    table; a tile over several pages reads an entry for each token.
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
    entries = table + b * pages
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for start in range(first, last, BN):
        ok = start + n < seqlen
        if PAGE % BN == 0:
            page = tl.load(entries + start // PAGE).to(tl.int64)
            at = (page * PAGE + start % PAGE) * stride_t + h * D
            tile = at + (n[:, None] * stride_t + d[None, :])
        else:
            page = tl.load(entries + (start + n) // PAGE, mask=ok, other=0).to(tl.int64)
            tile = ((page * PAGE + (start + n) % PAGE) * stride_t + h * D)[:, None] + d[None, :]
        k_tile = tl.load(k + tile, mask=ok[:, None], other=0.0)
        s = tl.dot(q_tile, tl.trans(k_tile)) * qk_scale
        s = tl.where(ok[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        v_tile = tl.load(v + tile, mask=ok[:, None], other=0.0)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc)
        m = m_new
    out = (pid * splits + split) * group + rows
    tl.store(o_part + out.to(tl.int64)[:, None] * D + d[None, :], acc, mask=row_ok[:, None])
    tl.store(m_part + out, m, mask=row_ok)
    tl.store(l_part + out, l, mask=row_ok)
