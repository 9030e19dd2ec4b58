"""Our own Triton kernels, as they come compiled with kernbench, launched on the CPU."""

import math
from functools import cache

import ml_dtypes
import numpy as np

from kernbench.realrun import amdgcn
from kernbench.realrun.compiled import shipped_code, shipped_kernels

LAUNCHES = {
    name: made["recipe"] | {"lds_bytes": made["lds_bytes"], "constants": dict(made["recipe"]["constants"])}
    for name, made in shipped_kernels().items()
}
"""How each is launched, by ``name.arch``."""
SCRATCH_POINTERS = (None, None)
"""Triton's kernels take two pointers behind their own arguments, for buffers that these do not use."""
FP8 = {
    "gfx90a": ml_dtypes.float8_e4m3fnuz,
    "gfx942": ml_dtypes.float8_e4m3fnuz,
    "gfx950": ml_dtypes.float8_e4m3fn,
}


@cache
def load(name, arch):
    launch = LAUNCHES[f"{name}.{arch}"]
    return amdgcn.load(shipped_code(f"{name}.{arch}").text, arch)[launch["kernel"]], launch


def launch(name, arch, grid, args):
    """Launch a fixture on a grid of workgroups; return the result."""
    kernel, made = load(name, arch)
    return kernel.launch(grid, 64 * made["waves"], [*args, *SCRATCH_POINTERS], lds_bytes=made["lds_bytes"])


def scale(d):
    """Scale of the scores, in base 2."""
    return math.log2(math.e) / math.sqrt(d)


def attention(q, k, v, keep=None):
    """Attention in float64: q (heads, rows, d), k and v (heads, keys, d)."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


class Split:
    """The numbers and buffers of a split-KV decode of one sequence after another."""

    def __init__(self, d, seqlen, batch=1, kv_heads=2, group=4, splits=3, tile=64):
        self.d, self.seqlen, self.batch = d, seqlen, batch
        self.kv_heads, self.group, self.splits = kv_heads, group, splits
        self.rng = np.random.default_rng(seqlen)
        self.split_len = -(-seqlen // (splits * tile)) * tile
        self.grid = (batch * kv_heads, splits)
        self.parts = np.full((*self.grid, group, d), np.nan, np.float32)
        self.m, self.l = np.full((2, *self.grid, group), np.nan, np.float32)
        self.numbers = [seqlen, kv_heads, group, self.split_len, splits]

    def draw(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float16)

    def queries(self):
        return self.draw(self.batch, self.kv_heads * self.group, self.d)

    def cache(self):
        return self.draw(self.batch, self.seqlen, self.kv_heads, self.d)

    def merged(self):
        """Merge the partial results in float64."""
        m, l = self.m.astype(np.float64), self.l.astype(np.float64)
        weight = np.where(np.isfinite(m), np.exp2(m - m.max(1, keepdims=True)), 0)
        total = (self.parts * weight[..., None]).sum(1) / (l * weight).sum(1)[..., None]
        return total.reshape(self.batch, -1, self.d)

    def expected(self, q, k, v):
        k, v = (x.astype(np.float64).swapaxes(1, 2).reshape(-1, self.seqlen, self.d) for x in (k, v))
        return attention(q.reshape(-1, self.group, self.d), k, v).reshape(self.batch, -1, self.d)


def decode(arch, d, seqlen, name="", **shape):
    """Run split-KV decode and its reduction; return the output, the reference and both results."""
    case = Split(d, seqlen, **shape)
    q, k, v = case.queries(), case.cache(), case.cache()
    k_scale = v_scale = None
    reference = case.expected(q, k, v)
    if name == "_bf16":
        q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (q, k, v))
        reference = case.expected(q, k, v)
    elif name == "_fp8":
        k, v = k.astype(FP8[arch]), v.astype(FP8[arch])
        k_scale, v_scale = np.array([0.5], np.float32), np.array([1.5], np.float32)
        reference = case.expected(q, k.astype(np.float64) * 0.5, v.astype(np.float64) * 1.5)
    elif name == "_i8":
        k, v = (case.rng.integers(-128, 128, x.shape).astype(np.int8) for x in (k, v))
        k_scale, v_scale = case.rng.random((2, *k.shape[:3]), np.float32) / 64
        reference = case.expected(q, k * k_scale[..., None].astype(np.float64), v * v_scale[..., None])
    numbers = [*case.numbers, case.kv_heads * d, scale(d)]
    pointers = [q, k, v, k_scale, v_scale, case.parts, case.m, case.l]
    partial = launch(f"decode_d{d}{name}", arch, case.grid, [*pointers, *numbers])
    o = np.zeros(q.shape, np.float16)
    grid = (case.grid[0], case.group)
    reduced = launch(f"reduce_d{d}", arch, grid, [case.parts, case.m, case.l, o, case.group, case.splits])
    return o, reference, partial, reduced


def prefill(arch, d, seqlen, causal, heads=2, group=2, name="", kind=np.float16):
    """Run prefill; return the output, the reference and the result."""
    rng = np.random.default_rng(seqlen)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float16).astype(kind)  # noqa: E731
    q, k, v = draw(heads, seqlen, d), draw(heads // group, seqlen, d), draw(heads // group, seqlen, d)
    o = np.zeros_like(q)
    name = f"prefill_d{d}" + "_causal" * causal + name
    rows = LAUNCHES[f"{name}.{arch}"]["constants"]["BM"]
    done = launch(name, arch, (-(-seqlen // rows), heads), [q, k, v, o, seqlen, heads, group, scale(d)])
    keep = np.tri(seqlen, dtype=bool) if causal else None
    return o, attention(q, np.repeat(k, group, 0), np.repeat(v, group, 0), keep), done


def paged(arch, seqlen, **shape):
    """Decode through a block table whose pages lie in random order."""
    d, page = 64, 16
    case = Split(d, seqlen, tile=32, **shape)
    q, k, v = case.queries(), case.cache(), case.cache()
    pages = -(-seqlen // page)
    used = case.batch * pages
    table = case.rng.permutation(used + 3)[:used].astype(np.int32).reshape(case.batch, pages)
    stored = []
    for x in (k, v):
        padded = np.zeros((case.batch, pages * page, case.kv_heads, d), np.float16)
        padded[:, :seqlen] = x
        pool = np.full((used + 3, page, case.kv_heads, d), np.nan, np.float16)
        pool[table] = padded.reshape(case.batch, pages, page, case.kv_heads, d)
        stored.append(pool)
    args = [q, *stored, table, case.parts, case.m, case.l, *case.numbers, pages, case.kv_heads * d, scale(d)]
    done = launch("paged_d64", arch, case.grid, args)
    return case.merged(), case.expected(q, k, v), done


def latent(arch, seqlen, batch=2, heads=32, splits=2):
    """Absorbed decode over a latent cache that all heads share."""
    width, rope, block = 128, 64, 16
    rng = np.random.default_rng(seqlen)
    q = rng.standard_normal((batch, heads, width + rope)).astype(np.float16)
    stored = rng.standard_normal((batch, seqlen, width + rope)).astype(np.float16)
    grid = (batch * heads // block, splits)
    parts = np.zeros((*grid, block, width), np.float32)
    m, l = np.zeros((2, *grid, block), np.float32)
    split_len = -(-seqlen // (splits * 32)) * 32
    numbers = [seqlen, heads // block, split_len, splits, scale(width + rope)]
    done = launch("mla", arch, grid, [q, stored, parts, m, l, *numbers])
    weight = np.exp2(m.astype(np.float64) - m.max(1, keepdims=True))
    merged = (parts * weight[..., None]).sum(1) / (l * weight).sum(1)[..., None]
    return merged.reshape(batch, heads, width), attention(q, stored, stored[..., :width]), done


def sparse(arch, seqlen, heads=2, group=2, block=64):
    """Prefill under a mask of blocks; the first block of each row is kept."""
    d = 64
    rng = np.random.default_rng(seqlen)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float16)  # noqa: E731
    q, k, v = draw(heads, seqlen, d), draw(heads // group, seqlen, d), draw(heads // group, seqlen, d)
    o = np.zeros_like(q)
    blocks = -(-seqlen // block)
    mask = rng.integers(0, 2, (blocks, blocks)).astype(np.int8)
    mask[:, 0] = 1
    args = [q, k, v, mask, o, seqlen, heads, group, blocks, scale(d)]
    done = launch("sparse_d64", arch, (-(-seqlen // 64), heads), args)
    keep = np.kron(mask, np.ones((block, block), np.int8))[:seqlen, :seqlen] != 0
    return o, attention(q, np.repeat(k, group, 0), np.repeat(v, group, 0), keep), done, mask


def ultraquant(arch, seqlen, **shape):
    """Decode over slots of 4-bit codes with a scale byte for 32 elements."""
    d = 128
    case = Split(d, seqlen, tile=32, **shape)
    q = case.queries().astype(ml_dtypes.bfloat16)
    shape = (case.batch, seqlen, case.kv_heads)
    codes = case.rng.integers(0, 256, (2, *shape, d // 2)).astype(np.uint8)
    scales = case.rng.integers(122, 130, (2, *shape, d // 32)).astype(np.uint8)
    slots = np.concatenate([codes[0], scales[0], codes[1], scales[1]], axis=-1)
    nibbles = np.stack([codes & 15, codes >> 4], axis=-1).reshape(2, *shape, d)
    values = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    k, v = values * np.repeat(2.0 ** (scales.astype(np.float64) - 127), 32, axis=-1)
    numbers = [*case.numbers, case.kv_heads * slots.shape[-1], scale(d)]
    done = launch("ultraquant_d128", arch, case.grid, [q, slots, case.parts, case.m, case.l, *numbers])
    return case.merged(), case.expected(q, k, v), done
