"""Sequence-parallel decode: the keys and values of each sequence are split over the GPUs (SIPs) of a machine.

Each GPU attends to its own keys with split-KV decode and merges its splits to one partial result (O, m and l in
float32) a query head. Then either every GPU gathers the partial results of all and merges them, so that each has the
output, or GPUs send theirs to one another in pairs until GPU 0 has the output. On one GPU nothing is sent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

import kernbench as kb
from kernbench.bench import Arrays, Case, Collective, GridBench, GridLaunch, GridStep, SideBySide
from kernbench.errors import SpecError
from kernbench.specs.correctness import tolerance
from kernbench.specs.grid import CachedDecodeSpec, as_stored, stored
from kernbench.specs.implementation import DecodeImplementation
from kernbench.specs.reference import attention_reference

CHUNK = 16
"""Partial results that the merging kernel reads at a time."""
Parts = tuple[kb.Tensor, kb.Tensor, kb.Tensor]
"""Of some (GPUs or splits): O (some, heads, rows, width), m and l (some, heads, rows); of one without that axis."""


class MultiGpuDecodeSpec(CachedDecodeSpec):
    """One new token of each sequence attends to a KV cache that is spread over GPUs.

    >>> MultiGpuDecodeSpec(reduction="reduce_to_root").kv_dtype
    'bf16'
    """

    kv_dtype: Literal["bf16", "f16"] = Field("bf16", description="format of the cache")
    reduction: Literal["gather", "reduce_to_root"] = Field(
        "gather", description="each GPU gathers all partial results, or GPU 0 gets them merged pair by pair"
    )


# ---------------------------------------------------------------- the kernels
def decode_share(q, k, v, o_part, m_part, l_part, keys, spec, chosen, *, tl):
    """Attend to one split of a GPU's keys for one key/value head; store O (not divided), m and l.

    Grid: (batch x h_kv, splits). ``q`` is (batch x h_kv, group, d), ``k`` and ``v`` are (batch, keys, h_kv, d).
    """
    pid, split = tl.program_id(0), tl.program_id(1)
    b, h = pid // spec.h_kv, pid % spec.h_kv
    rows, d, tile, token = spec.padded_group, spec.d_head, chosen.BLOCK_N, spec.h_kv * spec.d_head
    Q = tl.load(q.at(pid), shape=(rows, d), valid=(spec.group,))
    length = chosen.split_length(keys)
    first = split * length
    mine = tl.maximum(tl.minimum(first + length, keys) - first, 0)  # none in a trailing split that is empty
    m, l, acc = tl.full((rows, 1), float("-inf")), tl.zeros((rows, 1)), tl.zeros((rows, d))
    for start in range(0, mine, tile):
        n = min(tile, int(mine) - start)
        with tl.scratch_scope(buffers=chosen.stages):
            K = tl.load(k.at(b, first + start, h), shape=(d, tile), strides=(1, token), valid=(d, n))  # transposed
            V = tl.load(v.at(b, first + start, h), shape=(tile, d), strides=(token, 1), valid=(n,))
            s = tl.dot(Q, tl.cast(K, spec.dtype)) * spec.qk_scale
            s = tl.where(tl.reshape(tl.arange(0, tile), (1, tile)) < n, s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            p, keep = tl.exp2(s - m_new), tl.exp2(m - m_new)
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            tl.copy_to(acc, tl.dot(tl.cast(p, spec.dtype), tl.cast(V, spec.dtype), acc=acc * keep))
            tl.copy_to(m, m_new)
    tl.store(o_part.at(split, pid), acc, valid=(spec.group,))
    tl.store(m_part.at(split, pid), m, valid=(spec.group,))
    tl.store(l_part.at(split, pid), l, valid=(spec.group,))


def merge_partials(o_part, m_part, l_part, o, m, l, buffers, *, tl):
    """Merge the partial results of one row. Grid: (heads, rows).

    Stores a partial result again, or with ``m`` None the output, divided.
    """
    head, row = tl.program_id(0), tl.program_id(1)
    parts, heads, rows = m_part.shape
    width, apart, padded = o.shape[-1], heads * rows, 1 << (parts - 1).bit_length()
    every = {"shape": (padded, 1), "strides": (apart, 1), "valid": (parts,)}
    m_all = tl.load(m_part.at(0, head, row), other=float("-inf"), **every)
    l_all = tl.load(l_part.at(0, head, row), other=0.0, **every)
    top = tl.max(m_all, axis=0)
    total = tl.sum(tl.exp2(m_all - top) * l_all, axis=0)
    acc = tl.zeros((1, width), "f32")
    chunk = min(CHUNK, padded)
    for first in range(0, parts, chunk):
        some = {"valid": (min(chunk, parts - first),)}
        with tl.scratch_scope(buffers=buffers):
            ms = tl.load(m_part.at(first, head, row), shape=(chunk, 1), strides=(apart, 1), other=float("-inf"), **some)
            os = tl.load(
                o_part.at(first, head, row), shape=(chunk, width), strides=(apart * width, 1), other=0.0, **some
            )
            tl.copy_to(acc, acc + tl.sum(os * tl.exp2(ms - top), axis=0))
    if m is None:
        tl.store(o.at(head, row), acc / total)
    else:
        tl.store(o.at(head, row), acc)
        tl.store(m.at(head, row), top)
        tl.store(l.at(head, row), total)


# ---------------------------------------------------------------- their launches
def launches(spec: MultiGpuDecodeSpec, chosen: DecodeImplementation, machine: kb.Machine, arrays: Arrays | None):
    """Return launches and collectives in order, and the tensor of results (batch x h_kv, group, d)."""
    world, heads = machine.n_sips, spec.batch * spec.h_kv
    if spec.S_kv < world:
        raise SpecError(f"S_kv={spec.S_kv} must be at least {world}: each GPU of {machine.name} needs a key")
    make = kb.shape_only if arrays is None else kb.empty
    shape = (heads, spec.group, spec.d_head)

    def partial(*some: int) -> Parts:
        sizes = ((*some, *shape), (*some, *shape[:2]), (*some, *shape[:2]))
        o, m, l = (make(size, "f32", machine) for size in sizes)
        return o, m, l

    def merging(parts: Parts, o: kb.Tensor, m: kb.Tensor | None = None, l: kb.Tensor | None = None) -> GridLaunch:
        small = chosen.reduction()
        args = (*parts, o, m, l, small.stages)
        return GridLaunch(
            kernel=merge_partials, grid=shape[:2], args=args, implementation=small, reads_results=True
        )  # fmt: skip

    out = make(shape, spec.dtype, machine)
    split = [partial(chosen.splits) for _ in range(world)]
    steps: list[GridStep] = [
        SideBySide(tuple(attending(spec, chosen, machine, arrays, gpu, split[gpu]) for gpu in range(world)))
    ]
    if world == 1:
        return [*steps, merging(split[0], out)], out
    own = [partial() for _ in range(world)]
    steps.append(SideBySide(tuple(merging(parts, *one) for parts, one in zip(split, own, strict=True))))
    if spec.reduction == "gather":
        everyone = partial(world)
        steps.append(moving("all_gather", [(own, everyone)], world))
        return [*steps, SideBySide((merging(everyone, out),), alike=world)], out
    stride = 1
    while stride < world:
        pairs = [(i, i + stride) for i in range(0, world - stride, 2 * stride)]
        both = [partial(2) for _ in pairs]
        moved = [([own[a], own[b]], target) for (a, b), target in zip(pairs, both, strict=True)]
        near = machine.spec.system.sips.arrangement == "fully_connected"
        steps.append(moving("send_recv", moved, len(pairs), 1 if near else stride))
        stride *= 2
        if stride >= world:
            return [*steps, merging(both[0], out)], out
        merged = [partial() for _ in pairs]
        steps.append(SideBySide(tuple(merging(two, *one) for two, one in zip(both, merged, strict=True))))
        for (a, _), one in zip(pairs, merged, strict=True):
            own[a] = one
    raise AssertionError("two GPUs or more take at least one round")


def attending(
    spec: MultiGpuDecodeSpec,
    chosen: DecodeImplementation,
    machine: kb.Machine,
    arrays: Arrays | None,
    gpu: int,
    parts: Parts,
) -> GridLaunch:
    """Return the launch of one GPU on its keys: as even a share as whole tokens allow."""
    first, end = (spec.S_kv * i // machine.n_sips for i in (gpu, gpu + 1))
    heads, cache = spec.batch * spec.h_kv, (spec.batch, end - first, spec.h_kv, spec.d_head)
    q_shape = (heads, spec.group, spec.d_head)
    if arrays is None:
        q = kb.shape_only(q_shape, spec.dtype, machine)
        k, v = (kb.shape_only(cache, spec.kv_dtype, machine) for _ in "kv")
    else:
        q = kb.tensor(arrays["q"].reshape(q_shape), machine)
        k, v = (kb.tensor(stored(arrays[n][:, first:end], spec.kv_dtype)[0], machine) for n in "kv")
    return GridLaunch(
        kernel=decode_share,
        grid=(heads, chosen.splits),
        args=(q, k, v, *parts, end - first, spec, chosen),
        implementation=chosen,
    )


def moving(operation: str, moves: list[tuple[list[Parts], Parts]], senders: int, distance: int = 1) -> Collective:
    """Return the collective that brings partial results together: (of some GPUs, where they lie in order)."""
    nbytes = sum(tensor.nbytes for tensor in moves[0][0][0])
    flat = tuple(
        (source, target, i)
        for sources, targets in moves
        for i, parts in enumerate(sources)
        for source, target in zip(parts, targets, strict=True)
    )
    return Collective(operation=operation, nbytes=nbytes, senders=senders, distance=distance, moves=flat)


def output(spec: MultiGpuDecodeSpec, o: kb.Tensor):
    """Return the results as ``(batch, 1, h_q, d)``."""
    return o.numpy().reshape(spec.batch, 1, spec.h_q, spec.d_head)


def reference(spec: MultiGpuDecodeSpec, arrays: Arrays):
    """The right result for the values that the cache holds, in float64."""
    k, v = (as_stored(arrays[name], spec.kv_dtype) for name in "kv")
    return attention_reference(arrays["q"], k, v, spec.scale)


def case(topology="h200x2", inputs="random", **settings):
    """One check."""
    return Case(settings=settings, topology=topology, inputs=inputs)


BENCHES = [
    GridBench(
        name="decode_multi_gpu",
        summary="sequence-parallel decode: keys split over the GPUs of a machine, partial results gathered and merged",
        spec=MultiGpuDecodeSpec,
        implementation=DecodeImplementation,
        launches=launches,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        family="sequence_parallel_decode",
        cases=(
            case(),
            case(topology="h200", S_kv=300),
            case(inputs="captured", dtype="f16", kv_dtype="f16"),
            case(reduction="reduce_to_root", S_kv=333, h_q=14, h_kv=2, d_head=128, batch=2),
            case(S_kv=2, splits=3),
            case(topology="mi300x8", S_kv=1001, splits=4),
            case(topology="mi300x8", S_kv=777, splits=2, reduction="reduce_to_root"),
        ),
    )
]
