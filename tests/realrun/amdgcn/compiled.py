"""Our own Triton kernels, compiled (see benchmarks/compile_amdgcn_fixtures.py), and launched on the CPU."""

import json
import math
from functools import cache

import numpy as np

from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import FIXTURES

LAUNCHES = json.loads((FIXTURES / "kernels.json").read_text())["kernels"]
SCRATCH_POINTERS = (None, None)
"""Triton's kernels take two pointers behind their own arguments, for buffers that these do not use."""


@cache
def load(name, arch):
    launch = LAUNCHES[f"{name}.{arch}"]
    return amdgcn.load(FIXTURES / f"{name}.{arch}.s.gz", arch)[launch["kernel"]], launch


def launch(name, arch, grid, args):
    """Launch a fixture on a grid of workgroups; return the result."""
    kernel, made = load(name, arch)
    return kernel.launch(grid, 64 * made["waves"], [*args, *SCRATCH_POINTERS], lds_bytes=made["lds_bytes"])


def scale(d):
    """Scale of the scores, in base 2."""
    return math.log2(math.e) / math.sqrt(d)


def attention(q, k, v, causal=False):
    """Attention in float64: q (heads, rows, d), k and v (heads, keys, d)."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(*s.shape[1:], dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


def decode(arch, d, seqlen, batch=1, kv_heads=2, group=4, splits=3):
    """Run split-KV decode and its reduction; return the output, the reference and both results."""
    rng = np.random.default_rng(seqlen)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float16)  # noqa: E731
    q, k, v = draw(batch, kv_heads * group, d), draw(batch, seqlen, kv_heads, d), draw(batch, seqlen, kv_heads, d)
    o = np.zeros_like(q)
    parts = np.full((batch * kv_heads, splits, group, d), np.nan, np.float32)
    m, l = np.full((2, batch * kv_heads, splits, group), np.nan, np.float32)
    split_len = -(-seqlen // (splits * 64)) * 64
    numbers = [seqlen, kv_heads, group, split_len, splits, kv_heads * d, scale(d)]
    partial = launch(f"decode_d{d}", arch, (batch * kv_heads, splits), [q, k, v, None, None, parts, m, l, *numbers])
    reduced = launch(f"reduce_d{d}", arch, (batch * kv_heads, group), [parts, m, l, o, group, splits])
    by_head = (x.swapaxes(1, 2).reshape(-1, seqlen, d) for x in (k, v))
    return o, attention(q.reshape(-1, group, d), *by_head).reshape(q.shape), partial, reduced


def prefill(arch, d, seqlen, causal, heads=2, group=2):
    """Run prefill; return the output, the reference and the result."""
    rng = np.random.default_rng(seqlen)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float16)  # noqa: E731
    q, k, v = draw(heads, seqlen, d), draw(heads // group, seqlen, d), draw(heads // group, seqlen, d)
    o = np.zeros_like(q)
    name = f"prefill_d{d}" + "_causal" * causal
    rows = LAUNCHES[f"{name}.{arch}"]["constants"]["BM"]
    done = launch(name, arch, (-(-seqlen // rows), heads), [q, k, v, o, seqlen, heads, group, scale(d)])
    return o, attention(q, np.repeat(k, group, 0), np.repeat(v, group, 0), causal), done
