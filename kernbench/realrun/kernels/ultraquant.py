"""Split-KV decode over a 4-bit cache in UltraQuant's slot format, dequantised to bf16 in the kernel.

A slot holds one token of one kv head: K codes (D / 2 bytes, E2M1, even element in the low nibble), K scales (E8M0, one
for 32 elements), V codes, V scales. It is vLLM's format for D = 256 (272 bytes), and the same with half of each for
D = 128. Slots are contiguous here, (batch, token, kv head). Not included: the rotation of the query and its rounding
to E4M3.
"""

import triton
import triton.language as tl


@triton.jit
def _expand(codes, scales, BN: tl.constexpr, BYTES: tl.constexpr):
    """Expand nibbles (BN, BYTES) of values 0 ... 15, with scale bytes (BN, BYTES / 16), to bf16."""
    magnitude = (codes & 7).to(tl.int16)
    # A code of 2 or more is e e m: the low bits of a bf16 whose exponent is e + 126. Codes 0 and 1 stand for 0 and 0.5.
    bits = tl.where(magnitude >= 2, (magnitude << 6) + (126 << 7), tl.where(magnitude == 1, 126 << 7, 0).to(tl.int16))
    bits = bits.to(tl.int16) | ((codes & 8).to(tl.int16) << 12)
    factor = (scales.to(tl.int16) << 7).to(tl.bfloat16, bitcast=True)  # an E8M0 byte is a bf16's exponent
    value = bits.to(tl.bfloat16, bitcast=True)
    value = tl.reshape(value, [BN, BYTES // 16, 16]) * factor[:, :, None]
    return tl.reshape(value, [BN, BYTES])


@triton.jit(do_not_specialize=["seqlen", "kv_heads", "group", "split_len", "splits"])
def ultraquant_partial(
    q, cache, o_part, m_part, l_part, seqlen, kv_heads, group, split_len, splits, stride_t, qk_scale,
    GP: tl.constexpr, D: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Attend to one split of one kv head; grid and results as of ``splitkv.decode_partial``.

    Shapes: q (batch, q heads, D) bf16; cache uint8 (batch, token, kv heads, slot), ``stride_t`` bytes from token to
    token. Even and odd elements are kept apart, so that nibbles need no interleaving.
    """
    half: tl.constexpr = D // 2
    groups: tl.constexpr = D // 32
    slot: tl.constexpr = 2 * (half + groups)
    pid = tl.program_id(0)
    split = tl.program_id(1)
    b = pid // kv_heads
    h = pid % kv_heads
    rows = tl.arange(0, GP)
    j = tl.arange(0, half)
    e = tl.arange(0, groups)
    n = tl.arange(0, BN)
    row_ok = rows < group
    q_rows = q + (pid * group + rows)[:, None] * D + 2 * j[None, :]
    q_even = tl.load(q_rows, mask=row_ok[:, None], other=0.0)
    q_odd = tl.load(q_rows + 1, mask=row_ok[:, None], other=0.0)
    first = split * split_len
    last = tl.minimum(first + split_len, seqlen)
    keys = cache + (b.to(tl.int64) * seqlen + first) * stride_t + h * slot
    codes_at = n[:, None] * stride_t + j[None, :]
    scales_at = n[:, None] * stride_t + half + e[None, :]
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    even = tl.zeros([GP, half], tl.float32)
    odd = tl.zeros([GP, half], tl.float32)
    for start in range(first, last, BN):
        values = keys + half + groups
        ok = start + n < seqlen
        codes = tl.load(keys + codes_at, mask=ok[:, None], other=0)
        scales = tl.load(keys + scales_at, mask=ok[:, None], other=0)
        s = tl.dot(q_even, tl.trans(_expand(codes & 15, scales, BN, half)))
        s = tl.dot(q_odd, tl.trans(_expand(codes >> 4, scales, BN, half)), s) * qk_scale
        s = tl.where(ok[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        codes = tl.load(values + codes_at, mask=ok[:, None], other=0)
        scales = tl.load(values + scales_at, mask=ok[:, None], other=0)
        p16 = p.to(tl.bfloat16)
        even = tl.dot(p16, _expand(codes & 15, scales, BN, half), even * alpha[:, None])
        odd = tl.dot(p16, _expand(codes >> 4, scales, BN, half), odd * alpha[:, None])
        m = m_new
        keys += BN * stride_t
    out = (pid * splits + split) * group + rows
    o_rows = o_part + out.to(tl.int64)[:, None] * D + 2 * j[None, :]
    tl.store(o_rows, even, mask=row_ok[:, None])
    tl.store(o_rows + 1, odd, mask=row_ok[:, None])
    tl.store(m_part + out, m, mask=row_ok)
    tl.store(l_part + out, l, mask=row_ok)
