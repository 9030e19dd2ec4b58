"""Split-KV decode on a grid of workgroups, as a GPU runs it: FlashDecoding in two launches.

A workgroup of the first launch serves the query heads that share one key/value head, and walks one split of the keys
with an online softmax in base 2. The second launch merges the splits, one workgroup for each query head.
"""

from __future__ import annotations

import numpy as np

import kernbench as kb
from kernbench.bench import Arrays, Case, GridBench, GridLaunch
from kernbench.specs.correctness import tolerance
from kernbench.specs.grid import CachedDecodeSpec, as_stored, stored
from kernbench.specs.implementation import DecodeImplementation
from kernbench.specs.reference import attention_reference
from kernbench.split_grid import merge_splits, merging, partials


# ---------------------------------------------------------------- the kernels
def decode_partial(q, k, v, k_scale, v_scale, o_part, m_part, l_part, spec, chosen, *, tl):
    """Attend to one split of one key/value head; store O (not divided), m and l. Grid: (batch x h_kv, splits).

    ``q`` is (batch x h_kv, group, d), ``k`` and ``v`` are (batch, token, h_kv, d), the factors are one number each and
    there only if the cache has them; results as :mod:`kernbench.split_grid` has them.
    """
    pid, split = tl.program_id(0), tl.program_id(1)
    b, h = pid // spec.h_kv, pid % spec.h_kv
    rows, d, tile, token = spec.padded_group, spec.d_head, chosen.BLOCK_N, spec.h_kv * spec.d_head
    Q = tl.load(q.at(pid), shape=(rows, d), valid=(spec.group,))
    qk_scale, v_factor = spec.qk_scale, None
    if k_scale is not None:  # loaded before the loop, as compilers do it
        k_factor, v_factor = tl.load(k_scale, shape=(1, 1)), tl.load(v_scale, shape=(1, 1))
        qk_scale = k_factor * spec.qk_scale
    length = chosen.split_length(spec.S_kv)
    first = split * length
    keys = tl.maximum(tl.minimum(first + length, spec.S_kv) - first, 0)  # none in a trailing split that is empty
    m, l, acc = tl.full((rows, 1), float("-inf")), tl.zeros((rows, 1)), tl.zeros((rows, d))
    for start in range(0, keys, tile):
        n = min(tile, int(keys) - start)
        with tl.scratch_scope(buffers=chosen.stages):
            K = tl.load(k.at(b, first + start, h), shape=(d, tile), strides=(1, token), valid=(d, n))  # transposed
            s = tl.dot(Q, tl.cast(K, spec.dtype)) * qk_scale
            s = tl.where(tl.reshape(tl.arange(0, tile), (1, tile)) < n, s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            p, keep = tl.exp2(s - m_new), tl.exp2(m - m_new)
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            V = tl.load(v.at(b, first + start, h), shape=(tile, d), strides=(token, 1), valid=(n,))
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


# ---------------------------------------------------------------- its launches
def launches(spec: CachedDecodeSpec, chosen: DecodeImplementation, machine: kb.Machine, arrays: Arrays | None):
    """Return the two launches, and the tensor of results (batch x h_kv, group, d)."""
    heads, held = spec.batch * spec.h_kv, arrays is not None
    q_shape = (heads, spec.group, spec.d_head)
    k, k_scale = cache(spec, "k", machine, arrays)
    v, v_scale = cache(spec, "v", machine, arrays)
    if held:
        q = kb.tensor(arrays["q"].reshape(q_shape), machine)
        o = kb.empty(q_shape, spec.dtype, machine)
    else:
        q, o = (kb.shape_only(q_shape, spec.dtype, machine) for _ in "qo")
    parts = partials(heads, spec.group, spec.d_head, chosen.splits, machine, held)
    first = GridLaunch(
        kernel=decode_partial,
        grid=(heads, chosen.splits),
        args=(q, k, v, k_scale, v_scale, *parts, spec, chosen),
        implementation=chosen,
    )
    return [first, merging(reduce_splits, parts, o, chosen)], o


def cache(spec: CachedDecodeSpec, name: str, machine: kb.Machine, arrays: Arrays | None):
    """Return the keys or the values in the format of the cache, and their factor (None where it has none)."""
    scaled = spec.kv_dtype in ("fp8e4m3", "i8")
    if arrays is None:
        made = kb.shape_only(spec.input_shapes[name], spec.kv_dtype, machine)
        return made, kb.shape_only((1,), "f32", machine) if scaled else None
    values, factor = stored(arrays[name], spec.kv_dtype)
    return kb.tensor(values, machine), kb.tensor(np.array([factor], np.float32), machine) if scaled else None


def output(spec: CachedDecodeSpec, o: kb.Tensor):
    """Return the results as ``(batch, 1, h_q, d)``."""
    return o.numpy().reshape(spec.batch, 1, spec.h_q, spec.d_head)


def reference(spec: CachedDecodeSpec, arrays: Arrays):
    """The right result for the values that the cache holds, in float64."""
    k, v = (as_stored(arrays[name], spec.kv_dtype) for name in "kv")
    return attention_reference(arrays["q"], k, v, spec.scale)


def case(inputs="random", **settings):
    """One check, on the machine that these kernels are for."""
    return Case(settings=settings, topology="h200", inputs=inputs)


BENCHES = [
    GridBench(
        name="decode_splitkv",
        summary="split-KV decode (FlashDecoding) as two launches of workgroups, for GPU-like machines",
        spec=CachedDecodeSpec,
        implementation=DecodeImplementation,
        launches=launches,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        family="decode_splitkv",
        cases=(
            case(),
            case(inputs="captured", dtype="f16", kv_dtype="f16"),
            case(inputs="captured", kv_dtype="fp8e4m3"),
            case(S_kv=1),
            case(S_kv=77, splits=5, BLOCK_N=16),
            case(S_kv=100, splits=7, BLOCK_N=32),
            case(S_kv=1025, h_q=8, h_kv=1, d_head=128, splits=1),
            case(S_kv=640, h_q=1, h_kv=1, splits=3),
            case(S_kv=500, h_q=10, h_kv=2, batch=3, splits=4),
            case(S_kv=333, h_q=14, h_kv=2, d_head=128, splits=16, stages=3),
            case(S_kv=2000, h_q=32, h_kv=1, splits=40, kv_dtype="i8"),
            case(S_kv=130, dtype="f16", kv_dtype="i8", splits=64, BLOCK_N=16),
            case(S_kv=999, kv_dtype="fp8e4m3", softmax_scale=0.3, splits=6),
        ),
    )
]
