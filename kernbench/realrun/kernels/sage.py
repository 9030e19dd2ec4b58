"""Sage, Jenga and VSA attention, as rocke's kernels divide it: one wave for 16 query rows of a head, or for one row.

A masked score is -1e30, so that a row without a kept key comes out as the mean of V. All keys are multiplied, kept or
not. Shapes: q, o (token, q heads, D); k, v (token, kv heads, D); factors float32, a row of them for each head.
"""

import triton
import triton.language as tl

NO_MASK, CAUSAL, WINDOW, BITMAP, LIST = 0, 1, 2, 3, 4
"""Values of the constexpr ``MASK``."""
NO_FACTORS, OF_HEAD, OF_BLOCK = 0, 1, 2
"""Values of the constexpr ``FACTORS``: k's scales are one a head, or one for each ``k_block`` keys."""


@triton.jit(do_not_specialize=["seqlen", "q_heads", "group", "q_blocks", "q_block", "k_blocks", "k_block", "window",
                               "listed", "block_q", "block_k"])  # fmt: skip
def sage_tile(
    q, k, v, o, q_scale, k_scale, kept, count, scale_log2, seqlen, q_heads, group, q_blocks, q_block, k_blocks, k_block,
    window, listed, block_q, block_k,
    D: tl.constexpr, FACTORS: tl.constexpr, MASK: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Attend with 16 rows of one head, 16 keys at a time. Grid: (queries / 16, q heads); seqlen is a multiple of 16.

    ``kept`` is the bitmap int8 (blocks of queries, ``listed``) or the list int32 of the same shape, of which ``count``
    entries of a row hold. ``LISTED`` is ``listed``, padded to a power of two.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    kv_heads = q_heads // group
    kv_head = head // group
    d = tl.arange(0, D)
    sixteen = tl.arange(0, 16)
    rows = tile * 16 + sixteen
    at = (rows[:, None] * q_heads + head) * D + d[None, :]
    q_tile = tl.load(q + at)
    factor = scale_log2
    if FACTORS > 0:
        factor = tl.load(q_scale + head * q_blocks + tile * 16 // q_block)
        if FACTORS == 1:
            factor = factor * tl.load(k_scale + kv_head)
        factor = factor * scale_log2
    row = tile * 16 // block_q
    if MASK == 4:
        j = tl.arange(0, LISTED)
        ids = tl.load(kept + row * listed + j, mask=j < listed, other=-1)
        ids = tl.where(j < tl.load(count + row), ids, -1)
    m = tl.full([16], -1e30, tl.float32)
    l = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for start in range(0, seqlen, 16):
        n = start + sixteen
        tile_at = (n[:, None] * kv_heads + kv_head) * D + d[None, :]
        k_tile = tl.load(k + tile_at).to(q_tile.dtype)
        s = tl.dot(q_tile, tl.trans(k_tile)) * factor
        if FACTORS == 2:
            s = s * tl.load(k_scale + kv_head * k_blocks + start // k_block)
        if MASK == 1:
            s = tl.where(n[None, :] <= rows[:, None], s, -1e30)
        if MASK == 2:
            s = tl.where(rows[:, None] - n[None, :] < window, s, -1e30)
        if MASK == 3:
            s = tl.where(tl.load(kept + row * listed + start // block_k) != 0, s, -1e30)
        if MASK == 4:
            s = tl.where(tl.sum((ids == start // block_k).to(tl.int32), 0) > 0, s, -1e30)
        m_new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(s - m_new[:, None])
        l = l * alpha + tl.sum(p, 1)
        v_tile = tl.load(v + tile_at).to(q_tile.dtype)
        acc = tl.dot(p.to(q_tile.dtype), v_tile, acc * alpha[:, None])
        m = m_new
    acc = acc * tl.where(l == 0, 0.0, 1 / l)[:, None]
    tl.store(o + at, acc.to(o.dtype.element_ty))


@triton.jit
def _dequantised(codes, table, KIND: tl.constexpr):
    """Float32 of codes: fp8 or float as they are, int8 and 4-bit integers (-8 ... 7) by their codebook."""
    if KIND == 0:
        value = codes.to(tl.float32)
    else:
        places = codes.to(tl.int32) + 128 if KIND == 1 else (codes ^ 8).to(tl.int32)  # -8 is place 0
        value = tl.reshape(tl.gather(table, tl.reshape(places, [places.numel]), 0), places.shape)
    return value


@triton.jit(do_not_specialize=["seqlen", "q_heads", "group", "q_blocks", "q_block", "k_blocks", "k_block", "window"])
def sage_row(
    q, k, v, o, q_scale, k_scale, k_table, v_table, scale_log2, seqlen, q_heads, group, q_blocks, q_block, k_blocks,
    k_block, window,
    D: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Attend with one row of one head by vector operations, ``BN`` keys at a time. Grid: (queries, q heads).

    ``KIND``: 0 for keys and values that are floats, 1 for int8 codes, 2 for two 4-bit codes a byte, even elements in
    the low bits (uint8, D / 2 bytes a key). Codebooks float32 (256) or (16). Products, sums and probabilities are
    float32.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    kv_heads = q_heads // group
    kv_head = head // group
    width: tl.constexpr = D // 2 if KIND == 2 else D
    d = tl.arange(0, width)
    at = (row * q_heads + head) * D
    step: tl.constexpr = 2 if KIND == 2 else 1
    none: tl.constexpr = 0.0 if KIND == 0 else 0
    q_row = tl.load(q + at + step * d).to(tl.float32)
    if KIND == 2:
        q_odd = tl.load(q + at + 2 * d + 1).to(tl.float32)
    q_factor = tl.load(q_scale + head * q_blocks + row // q_block)
    if KIND > 0:  # a wave reads its codebooks once
        entry = tl.arange(0, 256 if KIND == 1 else 16)
        k_codes = tl.load(k_table + entry)
        v_codes = tl.load(v_table + entry)
    else:
        k_codes = q_row
        v_codes = q_row
    m = -1e30
    l = 0.0
    acc = tl.zeros([width], tl.float32)
    odd = tl.zeros([width], tl.float32)
    for start in range(0, seqlen, BN):
        n = start + tl.arange(0, BN)
        ok = n < seqlen
        tile_at = (n[:, None] * kv_heads + kv_head) * width + d[None, :]
        codes = tl.load(k + tile_at, mask=ok[:, None], other=none)
        if KIND == 2:
            products = q_row[None, :] * _dequantised(codes & 15, k_codes, 2)
            products += q_odd[None, :] * _dequantised(codes >> 4, k_codes, 2)
        else:
            products = q_row[None, :] * _dequantised(codes, k_codes, KIND)
        k_factor = tl.load(k_scale + kv_head * k_blocks + n // k_block, mask=ok, other=0.0)
        s = tl.sum(products, 1) * scale_log2 * (q_factor * k_factor)
        if MASK == 1:
            s = tl.where(n <= row, s, -1e30)
        if MASK == 2:
            s = tl.where(row - n < window, s, -1e30)
        s = tl.where(ok, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(s - m_new)
        l = l * alpha + tl.sum(p, 0)
        codes = tl.load(v + tile_at, mask=ok[:, None], other=none)
        if KIND == 2:
            acc = acc * alpha + tl.sum(p[:, None] * _dequantised(codes & 15, v_codes, 2), 0)
            odd = odd * alpha + tl.sum(p[:, None] * _dequantised(codes >> 4, v_codes, 2), 0)
        else:
            acc = acc * alpha + tl.sum(p[:, None] * _dequantised(codes, v_codes, KIND), 0)
        m = m_new
    tl.store(o + at + step * d, (acc * (1 / l)).to(o.dtype.element_ty))
    if KIND == 2:
        tl.store(o + at + 2 * d + 1, (odd * (1 / l)).to(o.dtype.element_ty))
