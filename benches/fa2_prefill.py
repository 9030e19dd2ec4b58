"""Prefill on a grid of workgroups, as a GPU runs it: FlashAttention-2, forward only.

A workgroup keeps one tile of queries of one head and walks the keys that these may see, with an online softmax in base
2. The workgroups of the heads that share one key/value head read the same keys and values: caches see that.
"""

from __future__ import annotations

import kernbench as kb
from kernbench.bench import Arrays, Case, GridBench, GridLaunch
from kernbench.specs.correctness import tolerance
from kernbench.specs.grid import FlashPrefillSpec
from kernbench.specs.implementation import PrefillImplementation
from kernbench.specs.reference import attention_reference


# ---------------------------------------------------------------- the kernel
def fa2_prefill(q, k, v, o, spec, chosen, *, tl):
    """Attend with one tile of queries of one head. Grid: (ceil(T_q / BLOCK_M), batch x h_q).

    ``q`` and ``o`` are (batch x h_q, T_q, d), ``k`` and ``v`` are (batch x h_kv, S_kv, d).
    """
    block, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // spec.h_q * spec.h_kv + head % spec.h_q // spec.group
    rows, tile, d = chosen.BLOCK_M, chosen.BLOCK_N, spec.d_head
    there = int(tl.minimum(spec.T_q - block * rows, rows))  # queries of this tile; the last one may be ragged
    Q = tl.load(q.at(head, block * rows), shape=(rows, d), valid=(there,))
    m, l, acc = tl.full((rows, 1), float("-inf")), tl.zeros((rows, 1)), tl.zeros((rows, d))
    first_query = spec.S_kv - spec.T_q + block * rows  # its place in the sequence
    keys = tl.minimum(first_query + rows, spec.S_kv) if spec.causal else spec.S_kv
    columns = {"shape": (d, tile), "strides": (1, d)}  # a true transpose
    start = 0
    # tiles of queries part in these loops one by one, so that each run of the kernel repeats the one before
    while spec.causal and chosen.diagonal_only and start + tile <= first_query + 1:  # all queries see all of its keys
        with tl.scratch_scope(buffers=chosen.stages):
            K = tl.load(k.at(kv_head, start), **columns)
            one_tile(Q, K, v, m, l, acc, kv_head, first_query, start, False, spec, chosen, tl=tl)
        start += tile
    while start < keys:
        with tl.scratch_scope(buffers=chosen.stages):
            K = tl.load(k.at(kv_head, start), valid=(d, min(tile, spec.S_kv - start)), **columns)
            one_tile(Q, K, v, m, l, acc, kv_head, first_query, start, spec.causal, spec, chosen, tl=tl)
        start += tile
    tl.store(o.at(head, block * rows), acc / l, valid=(there,))


def one_tile(Q, K, v, m, l, acc, kv_head, first_query, start, is_causal, spec, chosen, *, tl):
    """Attend to one tile of keys, those behind the last one masked."""
    rows, tile, d = chosen.BLOCK_M, chosen.BLOCK_N, spec.d_head
    n = min(tile, spec.S_kv - start)
    s = tl.dot(Q, K) * spec.qk_scale
    if is_causal:
        s = tl.where(sees(first_query, start, rows, tile, tl=tl), s, float("-inf"))
    elif spec.S_kv % tile and not spec.causal:
        s = tl.where(tl.reshape(tl.arange(0, tile), (1, tile)) < n, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, axis=-1))
    p, keep = tl.exp2(s - m_new), tl.exp2(m - m_new)
    tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
    V = tl.load(v.at(kv_head, start), shape=(tile, d), valid=(n,))
    tl.copy_to(acc, tl.dot(tl.cast(p, spec.dtype), V, acc=acc * keep))
    tl.copy_to(m, m_new)


def sees(first_query, first_key, rows, tile, *, tl):
    """Whether each of ``rows`` queries sees each key of a tile."""
    query = tl.reshape(tl.arange(0, rows), (rows, 1)) + first_query
    key = tl.reshape(tl.arange(0, tile), (1, tile)) + first_key
    return key <= query


# ---------------------------------------------------------------- its launch
def launches(spec: FlashPrefillSpec, chosen: PrefillImplementation, machine: kb.Machine, arrays: Arrays | None):
    """Return the one launch, and the tensor of results (batch x h_q, T_q, d)."""
    shapes = {"q": (spec.batch * spec.h_q, spec.T_q, spec.d_head)}
    shapes["k"] = shapes["v"] = (spec.batch * spec.h_kv, spec.S_kv, spec.d_head)
    if arrays is None:
        q, k, v = (kb.shape_only(shape, spec.dtype, machine) for shape in shapes.values())
        o = kb.shape_only(shapes["q"], spec.dtype, machine)
    else:
        by_head = {name: arrays[name].transpose(0, 2, 1, 3).reshape(shape) for name, shape in shapes.items()}
        q, k, v = (kb.tensor(array, machine) for array in by_head.values())
        o = kb.empty(shapes["q"], spec.dtype, machine)
    grid = (-(-spec.T_q // chosen.BLOCK_M), spec.batch * spec.h_q)
    args = (q, k, v, o, spec, chosen)
    return [GridLaunch(kernel=fa2_prefill, grid=grid, args=args, implementation=chosen)], o


def output(spec: FlashPrefillSpec, o: kb.Tensor):
    """Return the results as ``(batch, T_q, h_q, d)``."""
    return o.numpy().reshape(spec.batch, spec.h_q, spec.T_q, spec.d_head).transpose(0, 2, 1, 3)


def reference(spec: FlashPrefillSpec, arrays: Arrays):
    """The right result in float64."""
    return attention_reference(arrays["q"], arrays["k"], arrays["v"], spec.scale, spec.causal)


def case(inputs="random", **settings):
    """One check, on the machine that these kernels are for."""
    return Case(settings=settings, topology="h200", inputs=inputs)


SMALL = {"BLOCK_M": 32, "BLOCK_N": 16}
BENCHES = [
    GridBench(
        name="fa2_prefill",
        summary="prefill (FlashAttention-2, forward) as one launch of workgroups, for GPU-like machines",
        spec=FlashPrefillSpec,
        implementation=PrefillImplementation,
        launches=launches,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        family="prefill",
        cases=(
            case(),
            case(inputs="captured", dtype="f16"),
            case(causal=False),
            case(diagonal_only=True, T_q=300, S_kv=300),
            case(T_q=1, S_kv=1, **SMALL),
            case(T_q=77, S_kv=77, h_q=8, h_kv=1, d_head=128, **SMALL),
            case(T_q=77, S_kv=203, h_q=10, h_kv=2, batch=2, **SMALL),
            case(T_q=77, S_kv=203, h_q=14, h_kv=2, diagonal_only=True, dtype="f16", **SMALL),
            case(T_q=130, S_kv=65, causal=False, h_q=1, h_kv=1, BLOCK_N=128),
            case(T_q=200, S_kv=200, BLOCK_M=16, BLOCK_N=64, stages=3),
        ),
    )
]
