"""Split-KV decode through a block table, as vLLM's kernels do it: the cache lies in pages, in any order.

The block table is a control tensor: the kernel reads which page comes next, and loads from there. Otherwise it is
``decode_splitkv``, whose merging launch it shares.
"""

from __future__ import annotations

import numpy as np

import kernbench as kb
from kernbench.bench import Arrays, Case, GridBench, GridLaunch
from kernbench.specs.correctness import tolerance
from kernbench.specs.grid import PagedDecodeSpec, as_stored, stored
from kernbench.specs.implementation import DecodeImplementation
from kernbench.specs.reference import attention_reference
from kernbench.split_grid import merge_splits, merging, partials


# ---------------------------------------------------------------- the kernels
def paged_partial(q, k, v, table, k_scale, v_scale, o_part, m_part, l_part, spec, chosen, *, tl):
    """Attend to one split of one key/value head; store O (not divided), m and l. Grid: (batch x h_kv, splits).

    ``k`` and ``v`` are (page, PAGE, h_kv, d), ``table`` is (batch, pages of a sequence). A tile never crosses a page:
    if pages are shorter than ``BLOCK_N``, a tile is one page.
    """
    pid, split = tl.program_id(0), tl.program_id(1)
    b, h = pid // spec.h_kv, pid % spec.h_kv
    rows, d, token = spec.padded_group, spec.d_head, spec.h_kv * spec.d_head
    tile = min(chosen.BLOCK_N, spec.PAGE)
    Q = tl.load(q.at(pid), shape=(rows, d), valid=(spec.group,))
    qk_scale, v_factor = spec.qk_scale, None
    if k_scale is not None:  # loaded before the loop, as compilers do it
        k_factor, v_factor = tl.load(k_scale, shape=(1, 1)), tl.load(v_scale, shape=(1, 1))
        qk_scale = k_factor * spec.qk_scale
    length = split_length(spec, chosen)
    first = split * length
    keys = tl.maximum(tl.minimum(first + length, spec.S_kv) - first, 0)  # none in a trailing split that is empty
    m, l, acc = tl.full((rows, 1), float("-inf")), tl.zeros((rows, 1)), tl.zeros((rows, d))
    for start in range(0, keys, tile):
        n = min(tile, int(keys) - start)
        page = tl.load_scalar(table.at(b, (first + start) // spec.PAGE))
        inside = start % spec.PAGE  # splits begin at pages
        with tl.scratch_scope(buffers=chosen.stages):
            K = tl.load(k.at(page, inside, h), shape=(d, tile), strides=(1, token), valid=(d, n))  # a true transpose
            s = tl.dot(Q, tl.cast(K, spec.dtype)) * qk_scale
            s = tl.where(tl.reshape(tl.arange(0, tile), (1, tile)) < n, s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            p, keep = tl.exp2(s - m_new), tl.exp2(m - m_new)
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            V = tl.load(v.at(page, inside, h), shape=(tile, d), strides=(token, 1), valid=(n,))
            tl.copy_to(acc, tl.dot(tl.cast(p, spec.dtype), tl.cast(V, spec.dtype), acc=acc * keep))
            tl.copy_to(m, m_new)
    if v_factor is not None:
        acc = acc * v_factor
    tl.store(o_part.at(pid, split), acc, valid=(spec.group,))
    tl.store(m_part.at(pid, split), m, valid=(spec.group,))
    tl.store(l_part.at(pid, split), l, valid=(spec.group,))


def reduce_splits(o_part, m_part, l_part, o, buffers, *, tl):
    """Merge the splits of one query head. Grid: (batch x h_kv, group)."""
    merge_splits(o_part, m_part, l_part, o, buffers, tl=tl)


def split_length(spec, chosen):
    """Keys of a split: whole tiles, and whole pages."""
    keys = chosen.split_length(spec.S_kv)
    return -(-keys // spec.PAGE) * spec.PAGE


# ---------------------------------------------------------------- its launches
def launches(spec: PagedDecodeSpec, chosen: DecodeImplementation, machine: kb.Machine, arrays: Arrays | None):
    """Return the two launches, and the tensor of results (batch x h_kv, group, d)."""
    heads, held = spec.batch * spec.h_kv, arrays is not None
    q_shape = (heads, spec.group, spec.d_head)
    table = block_table(spec)
    k, k_scale = pages(spec, "k", table, machine, arrays)
    v, v_scale = pages(spec, "v", table, machine, arrays)
    if held:
        q = kb.tensor(arrays["q"].reshape(q_shape), machine)
        o = kb.empty(q_shape, spec.dtype, machine)
    else:
        q, o = (kb.shape_only(q_shape, spec.dtype, machine) for _ in "qo")
    parts = partials(heads, spec.group, spec.d_head, chosen.splits, machine, held)
    first = GridLaunch(
        kernel=paged_partial,
        grid=(heads, chosen.splits),
        args=(q, k, v, kb.tensor(table, machine), k_scale, v_scale, *parts, spec, chosen),
        implementation=chosen,
    )
    return [first, merging(reduce_splits, parts, o, chosen)], o


def block_table(spec: PagedDecodeSpec):
    """Return which page each part of each sequence lies in: all pages of the pool, shuffled, int32 (batch, pages)."""
    each = -(-spec.S_kv // spec.PAGE)
    pool = np.random.default_rng(0).permutation(spec.batch * each)
    return pool.astype(np.int32).reshape(spec.batch, each)


def pages(spec: PagedDecodeSpec, name: str, table, machine: kb.Machine, arrays: Arrays | None):
    """Return the keys or the values as pages in the order of the pool, and their factor (None where it has none)."""
    scaled = spec.kv_dtype in ("fp8e4m3", "i8")
    shape = (table.size, spec.PAGE, spec.h_kv, spec.d_head)
    if arrays is None:
        made = kb.shape_only(shape, spec.kv_dtype, machine)
        return made, kb.shape_only((1,), "f32", machine) if scaled else None
    values, factor = stored(arrays[name], spec.kv_dtype)
    padded = np.zeros((spec.batch, table.shape[1] * spec.PAGE, *shape[2:]), values.dtype)
    padded[:, : spec.S_kv] = values
    pool = np.empty(shape, values.dtype)
    pool[table.reshape(-1)] = padded.reshape(shape)
    return kb.tensor(pool, machine), kb.tensor(np.array([factor], np.float32), machine) if scaled else None


def output(spec: PagedDecodeSpec, o: kb.Tensor):
    """Return the results as ``(batch, 1, h_q, d)``."""
    return o.numpy().reshape(spec.batch, 1, spec.h_q, spec.d_head)


def reference(spec: PagedDecodeSpec, arrays: Arrays):
    """The right result for the values that the cache holds, in float64."""
    k, v = (as_stored(arrays[name], spec.kv_dtype) for name in "kv")
    return attention_reference(arrays["q"], k, v, spec.scale)


def case(inputs="random", **settings):
    """One check, on the machine that these kernels are for."""
    return Case(settings=settings, topology="h200", inputs=inputs)


BENCHES = [
    GridBench(
        name="paged_decode",
        summary="split-KV decode through a block table, as two launches of workgroups, for GPU-like machines",
        spec=PagedDecodeSpec,
        implementation=DecodeImplementation,
        launches=launches,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        family="paged_decode",
        cases=(
            case(),
            case(inputs="captured", dtype="f16", kv_dtype="f16", PAGE=16),
            case(S_kv=1, PAGE=16),
            case(S_kv=100, PAGE=16, splits=5, batch=3),
            case(S_kv=700, PAGE=256, splits=4, batch=2, h_q=8, h_kv=1, d_head=128),
            case(S_kv=333, PAGE=32, splits=16, h_q=14, h_kv=2, BLOCK_N=16),
            case(S_kv=513, PAGE=128, splits=3, kv_dtype="fp8e4m3"),
            case(S_kv=513, PAGE=64, splits=9, kv_dtype="i8", stages=3),
        ),
    )
]
