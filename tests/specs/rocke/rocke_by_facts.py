"""The rocke kernels once more, written from the description of the originals and sharing nothing with the product.

Bodies are followed lane by lane for one workgroup at a time, in float32 scalars and short vectors.
"""

import itertools

import ml_dtypes
import numpy as np

F32 = np.float32
LANES = np.arange(64)
ROUND = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def fp8_value(byte, arch):
    """One fp8 byte as a float: gfx942 has bias 8 and one NaN at 0x80, gfx950 bias 7 and NaNs at s1111111."""
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    if arch == "gfx942":
        if byte == 0x80:
            return float("nan")
        bias = 8
    else:
        if byte & 0x7F == 0x7F:
            return float("nan")
        bias = 7
    if exponent == 0:
        return sign * mantissa / 8 * 2.0 ** (1 - bias)
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - bias)


def exp2(x):
    return np.array([F32(2.0 ** float(e)) for e in np.ravel(x)], F32).reshape(np.shape(x))


def butterfly(x, masks, combine):
    """Exchange along the last axis, lane with lane XOR mask."""
    lanes = np.arange(x.shape[-1])
    for mask in masks:
        x = combine(x, x[..., lanes ^ mask])
    return x


def atom(a, b, c):
    """One 16x16x16 instruction: the products join the accumulator in ascending k."""
    for k in range(16):
        c = (c + (a[:, k : k + 1] * b[k : k + 1, :]).astype(F32)).astype(F32)
    return c


def scale_at(spec, buffer, head, pos):
    block = pos // spec.scale_block if spec.layout == "per_block" else 0
    index = head * spec.stride_head + (block * spec.stride_block if spec.layout == "per_block" else 0)
    return F32(buffer[index])


def mfma_workgroup(q, k, v, sl, k_factor, keep, element):
    """16 rows of one head: ``q (16, d)``, ``k, v (keys, d)``, ``k_factor(tile)`` or None, ``keep (16, keys)``."""
    d, keys = q.shape[1], len(k)
    m, l = np.full(16, -1e30, F32), np.zeros(16, F32)
    acc = np.zeros((16, d), F32)
    for tile in range(keys // 16):
        at = slice(16 * tile, 16 * tile + 16)
        s = np.zeros((16, 16), F32)
        for part in range(d // 16):
            dims = slice(16 * part, 16 * part + 16)
            s = atom(q[:, dims], k[at, dims].T, s)
        s = (s * sl).astype(F32)
        if k_factor is not None:
            s = (s * k_factor(tile)).astype(F32)
        s = np.where(keep[:, at], s, F32(-1e30))
        row_max = butterfly(s, (1, 2, 4, 8), np.maximum)
        new = np.maximum(m, row_max[:, 0])
        a, p = exp2(m - new), exp2(s - new[:, None])
        row_sum = butterfly(p, (1, 2, 4, 8), np.add)
        assert (row_sum == row_sum[:, :1]).all(), "all lanes agree"
        l = (l * a).astype(F32) + row_sum[:, 0]
        acc = acc * a[:, None]
        rounded = p.astype(ROUND[element]).astype(F32)
        for part in range(d // 16):
            dims = slice(16 * part, 16 * part + 16)
            acc[:, dims] = atom(rounded, v[at, dims], acc[:, dims])
        m = new
    inverse = np.array([F32(0) if total == 0 else F32(1) / total for total in l], F32)
    return (acc * inverse[:, None]).astype(ROUND[element])


def warp_workgroup(q, k, v, scale_log2, qk_factor, keep, element):
    """One row of one head: ``q (d,)``, ``k, v (keys, d)``, ``qk_factor(key)``, ``keep (keys,)``."""
    per_lane = len(q) // 64
    mine = [LANES * per_lane + i for i in range(per_lane)]
    m, l = F32(-1e30), F32(0)
    acc = [np.zeros(64, F32) for _ in mine]
    for key in range(len(k)):
        partial = np.zeros(64, F32)
        for dims in mine:
            partial = partial + q[dims] * k[key, dims]
        dot = butterfly(partial, (1, 2, 4, 8, 16, 32), np.add)[0]
        s = F32(F32(dot * scale_log2) * qk_factor(key))
        s = s if keep[key] else F32(-1e30)
        new = max(m, s)
        a, p = exp2(F32(m - new)).reshape(())[()], exp2(F32(s - new)).reshape(())[()]
        l = F32(F32(l * a) + p)
        acc = [x * a + p * v[key, dims] for x, dims in zip(acc, mine, strict=True)]
        m = new
    out = np.zeros(len(q), F32)
    for x, dims in zip(acc, mine, strict=True):
        out[dims] = x * (F32(1) / l)
    return out.astype(ROUND[element])


def keep_by_position(mode, window, rows, keys):
    keep = np.ones((rows, keys), bool)
    for row, key in itertools.product(range(rows), range(keys)):
        if mode == "causal":
            keep[row, key] = key <= row
        elif mode == "sliding_window":
            keep[row, key] = row - key < window
    return keep


def keep_by_blocks(rows, keys, block_q, block_k, is_kept):
    """``is_kept(q_block, k_block)``; the first of 16 rows decides for all of them."""
    keep = np.zeros((rows, keys), bool)
    for tile, step in itertools.product(range(rows // 16), range(keys // 16)):
        kept = is_kept(16 * tile // block_q, step // (block_k // 16))
        keep[16 * tile : 16 * tile + 16, 16 * step : 16 * step + 16] = kept
    return keep


def widen_kv(spec, tensor, codebook, arch):
    """K or V of a sage kernel in float32, element by element."""
    if spec.quant_mode == "fp16_bf16":
        return tensor.astype(F32)
    if spec.quant_mode == "fp8_bf16":
        table = np.array([fp8_value(byte, arch) for byte in range(256)], F32)
        return table[tensor]
    if spec.quant_mode == "i8_fp8_bf16":
        return np.array([codebook[int(x) + 128] for x in tensor.ravel()], F32).reshape(tensor.shape)
    out = np.zeros((*tensor.shape[:2], 2 * tensor.shape[2]), F32)
    for t in range(tensor.shape[2]):
        byte = tensor[..., t].astype(int)
        for half, nibble in ((0, byte % 16), (1, byte // 16)):
            out[..., 2 * t + half] = codebook[np.where(nibble > 7, nibble - 16, nibble) + 8]
    return out


def sage(spec, q, k, v, q_scale, k_scale, scale_log2, arch="gfx950", codebook_k=None, codebook_v=None):
    """A sage kernel, on the route that its own rule names."""
    element = "bf16" if spec.common.dtype == "bf16" else "f16"
    rows, heads, d = q.shape
    group = heads // k.shape[1]
    keep = keep_by_position(spec.common.mask_mode, spec.common.sliding_window, rows, len(k))
    q32, k32, v32 = q.astype(F32), widen_kv(spec, k, codebook_k, arch), widen_kv(spec, v, codebook_v, arch)
    out = np.zeros((rows, heads, d), ROUND[element])
    for head in range(heads):
        kv, sl = head // group, F32(scale_log2)
        kh, vh = k32[:, kv], v32[:, kv]
        if mfma_route(spec):
            for first in range(0, rows, 16):
                q_s = scale_at(spec.q_scale, q_scale, head, first)
                factor = None
                if spec.k_scale.layout == "per_head":
                    scale = F32(sl * F32(q_s * scale_at(spec.k_scale, k_scale, kv, 0)))
                else:
                    scale = F32(sl * q_s)
                    factor = lambda tile, kv=kv: scale_at(spec.k_scale, k_scale, kv, 16 * tile)  # noqa: E731
                at = slice(first, first + 16)
                out[at, head] = mfma_workgroup(q32[at, head], kh, vh, scale, factor, keep[at], element)
        else:
            for row in range(rows):
                q_s = scale_at(spec.q_scale, q_scale, head, row)
                both = lambda key, q_s=q_s, kv=kv: F32(q_s * scale_at(spec.k_scale, k_scale, kv, key))  # noqa: E731
                out[row, head] = warp_workgroup(q32[row, head], kh, vh, sl, both, keep[row], element)
    return out


def mfma_route(spec):
    def fits(scale):
        return scale.layout == "per_head" or scale.scale_block % 16 == 0

    return (
        spec.quant_mode in ("fp16_bf16", "fp8_bf16")
        and spec.seqlen_q % 16 == 0
        and spec.seqlen_k % 16 == 0
        and spec.common.shape.head_size % 16 == 0
        and fits(spec.q_scale)
        and fits(spec.k_scale)
    )


def sparse(spec, q, k, v, is_kept, scale_log2):
    """A Jenga or VSA kernel, given which blocks are kept."""
    element = "bf16" if spec.common.dtype == "bf16" else "f16"
    rows, heads, _ = q.shape
    keep = keep_by_blocks(rows, len(k), spec.block_q, spec.block_k, is_kept)
    out = np.zeros(q.shape, ROUND[element])
    for head, first in itertools.product(range(heads), range(0, rows, 16)):
        kv, at = head // (heads // k.shape[1]), slice(first, first + 16)
        tensors = (x.astype(F32) for x in (q[at, head], k[:, kv], v[:, kv]))
        out[at, head] = mfma_workgroup(*tensors, F32(scale_log2), None, keep[at], element)
    return out


def softmax_attention(q, k, v, scores_factor, keep):
    """Attention in float64 with base-2 weights; ``scores_factor (rows, heads, keys)``; an empty row is mean(V)."""
    rows, heads, _ = q.shape
    out = np.zeros(q.shape)
    for row, head in itertools.product(range(rows), range(heads)):
        kv = head // (heads // k.shape[1])
        s = (q[row, head].astype(float) @ k[:, kv].astype(float).T) * scores_factor[row, head]
        s = np.where(keep[row], s, -np.inf) if keep[row].any() else np.zeros(len(s))
        weights = np.exp2(s - s.max())
        out[row, head] = weights @ v[:, kv].astype(float) / weights.sum()
    return out
