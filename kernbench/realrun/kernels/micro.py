"""Microbenchmarks: one property of the machine each."""

import triton
import triton.language as tl


@triton.jit
def empty(out, never):
    """Do nothing. ``never`` is 0; the store keeps the arguments in use."""
    if never != 0:
        tl.store(out, 0.0)


@triton.jit(do_not_specialize=["count", "stride"])
def read(x, out, count, stride, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Read int32 x of ``count`` elements and write one sum a workgroup to out.

    A workgroup starts at its own block of BLOCK x UNROLL elements and goes on by ``stride`` elements. UNROLL blocks are
    loaded before the first is used, so BLOCK x UNROLL x 4 bytes are in flight. ``count`` is a multiple of both.
    """
    pid = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.int32)
    start = pid.to(tl.int64) * (BLOCK * UNROLL)
    while start < count:
        for i in tl.static_range(UNROLL):
            acc += tl.load(x + start + i * BLOCK + lane)
        start += stride
    tl.store(out + pid, tl.sum(acc, 0))


@triton.jit
def copy(x, y, BLOCK: tl.constexpr):
    """Copy one block of BLOCK int32 elements a workgroup."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))


@triton.jit(do_not_specialize=["steps"])
def chase(links, out, steps):
    """Follow ``steps`` links from element 0, each an index into int32 links; write the last to out."""
    at = 0
    for _ in range(steps):
        at = tl.load(links + at)
    tl.store(out, at)


@triton.jit(do_not_specialize=["steps"])
def exp2_rate(out, steps, BLOCK: tl.constexpr):
    """Take ``steps`` chained base-2 exponentials in each of BLOCK lanes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = (at % 64).to(tl.float32) * 0.015625
    for _ in range(steps):
        x = tl.exp2(-x)
    tl.store(out + at, x)


@triton.jit(do_not_specialize=["steps"])
def fma_rate(out, steps, BLOCK: tl.constexpr):
    """Do 8 x ``steps`` chained float32 multiply-adds in each of BLOCK lanes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = (at % 64).to(tl.float32) * 0.015625
    for _ in range(steps):
        for _ in tl.static_range(8):
            x = x * 0.75 + 0.25
    tl.store(out + at, x)


@triton.jit(do_not_specialize=["steps"])
def dot_rate(a, b, out, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Multiply the same tiles a (M, K) and b (K, N) ``steps`` times; write the sum of the products to out.

    out is float32 (workgroup, M, N). Nothing is loaded inside the loop.
    """
    rows = tl.arange(0, M)
    cols = tl.arange(0, N)
    inner = tl.arange(0, K)
    a_tile = tl.load(a + rows[:, None] * K + inner[None, :])
    b_tile = tl.load(b + inner[:, None] * N + cols[None, :])
    acc = tl.zeros([M, N], tl.float32)
    for _ in range(steps):
        acc = tl.dot(a_tile, b_tile, acc)
    at = tl.program_id(0) * (M * N) + rows[:, None] * N + cols[None, :]
    tl.store(out + at, acc)
