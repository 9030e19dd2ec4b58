"""Attention of many queries: a workgroup for each block of queries and head, full, causal or with a block mask.

Grid (blocks of queries, batch x heads), axis 0 fastest. The workgroups of a head, and the heads of a group, read the
same tiles of keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernbench.machine import Machine
from kernbench.realrun.predict.estimate import Repeats
from kernbench.realrun.predict.given import Kernel, Shape, element_bytes
from kernbench.realrun.predict.tiles import TileLoop
from kernbench.simulate.launch.costs import (
    latency_ps,
    load_cycles,
    rescale_cycles,
    score_cycles,
    vector_ps,
)
from kernbench.simulate.launch.places import workgroup_of
from kernbench.simulate.launch.steps import Launch


@dataclass(frozen=True)
class BlockMask:
    """Which blocks of a sparse kernel are computed, for each block of queries."""

    kept: np.ndarray
    """bool[blocks of queries, blocks of keys]"""
    skips: bool
    """Whether a masked block is skipped, or computed and masked."""


def prefill_loop(shape: Shape, kernel: Kernel, machine: Machine, masked: bool, prefetches: bool) -> TileLoop:
    """Return the loop over tiles."""
    rows, n = kernel.block_m, kernel.block_n
    stored = element_bytes(shape.kv_dtype)
    k_bytes, v_bytes = round(n * shape.d_qk * stored), round(n * shape.d_v * stored)
    tail = shape.s_kv % n or n
    cycles = score_cycles(machine, rows * n, masked) + rescale_cycles(machine, rows * shape.d_v)
    cycles += load_cycles(
        machine, n * (shape.d_qk + shape.d_v), shape.kv_dtype, shape.dtype, kernel.instruction.from_registers
    )
    costs = workgroup_of(machine)
    return TileLoop(
        q_bytes=round(rows * shape.d_qk * element_bytes(shape.dtype)),
        k_bytes=k_bytes,
        v_bytes=v_bytes,
        last_bytes=(k_bytes * tail // n, v_bytes * tail // n),
        scores_ps=kernel.dot_ps(machine, shape.dtype, rows, n, shape.d_qk),
        softmax_ps=vector_ps(machine, cycles),
        values_ps=kernel.dot_ps(machine, shape.dtype, rows, shape.d_v, n),
        barrier_ps=latency_ps(machine, rows, kernel.resources.waves, kernel.instruction),
        buffers=kernel.buffers(k_bytes + v_bytes) if prefetches else 0,
        overlaps=kernel.overlaps,
        shared=True,
        out_bytes=round(rows * shape.d_v * element_bytes(shape.dtype)),
        prologue_ps=costs.end,
        epilogue_ps=costs.end,
        look_ps=0 if prefetches else machine.pe.load.hit,
    )


def visible_tiles(shape: Shape, kernel: Kernel) -> list[int]:
    """Tiles that each block of queries goes through: up to the diagonal if causal (the last query sees all keys)."""
    m, n = kernel.block_m, kernel.block_n
    before = shape.s_kv - shape.s_q
    ends = [min(shape.s_kv, before + (b + 1) * m) if shape.causal else shape.s_kv for b in range(-(-shape.s_q // m))]
    return [-(-max(end, 0) // n) for end in ends]


def prefill_launch(
    shape: Shape, kernel: Kernel, machine: Machine, mask: BlockMask | None = None, diagonal_only: bool = False
) -> tuple[Launch, Repeats]:
    """Return the launch, and after how many workgroups its work repeats itself.

    With ``diagonal_only`` a causal kernel masks only the tiles that the diagonal crosses, in a loop of their own.
    """
    blocks = -(-shape.s_q // kernel.block_m)
    heads = shape.batch * shape.h_q
    n_k = -(-shape.s_kv // kernel.block_n)
    skips = mask is not None and mask.skips
    bounds = shape.s_kv % kernel.block_n != 0
    masked = not skips and (shape.causal or mask is not None or bounds)
    loop = prefill_loop(shape, kernel, machine, masked, prefetches=not skips)
    work: list[tuple[int, int]]
    if mask is not None and skips:
        kept = mask.kept.sum(axis=1).tolist()
        work = [(int(k), mask.kept.shape[1] - int(k)) for k in kept]
    else:
        work = [(t, 0) for t in visible_tiles(shape, kernel)]
    assert len(work) == blocks
    kinds = sorted(set(work))
    if diagonal_only:
        free = prefill_loop(shape, kernel, machine, False, prefetches=True)
        free = replace(free, last_bytes=(free.k_bytes, free.v_bytes))
        crossed = -(-kernel.block_m // kernel.block_n)
        classes = tuple(free.followed_by(max(t - crossed, 0), loop, min(crossed, t)) for t, _ in kinds)
    else:
        even = replace(loop, last_bytes=(loop.k_bytes, loop.v_bytes))  # for what ends at the diagonal
        ends = loop if mask is not None else even
        classes = tuple((loop if t == n_k else ends).workgroup(t, skipped) for t, skipped in kinds)
    of_block = np.array([kinds.index(w) for w in work], np.int32)
    if kernel.heads_first:
        class_of = np.repeat(of_block[::-1], heads)
        head = np.tile(np.arange(heads, dtype=np.int64), blocks) // shape.group
    else:
        class_of = np.tile(of_block, heads)
        head = np.repeat(np.arange(heads, dtype=np.int64), blocks) // shape.group
    base = np.stack([head * 2 * n_k, head * 2 * n_k + n_k], axis=1)
    launch = Launch(kernel.places(machine), classes, class_of, base, int(base.max()) + n_k)
    return launch, Repeats(columns=heads) if kernel.heads_first else Repeats(blocks * shape.group)
