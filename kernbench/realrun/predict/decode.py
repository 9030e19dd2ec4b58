"""Split-KV decode: a workgroup for each (sequence, key/value head) and part of the keys, then one that reduces.

Grid (batch x key/value heads, splits), axis 0 fastest. A workgroup holds the query heads of a group, padded to 16 rows
or the next power of two, and goes through its part of the keys tile by tile; it writes its partial results as float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from kernbench.machine import Machine
from kernbench.realrun.predict.costs import (
    cost_of,
    dot_ps,
    latency_ps,
    load_cycles,
    rescale_cycles,
    score_cycles,
    vector_ps,
)
from kernbench.realrun.predict.given import Kernel, Shape, element_bytes
from kernbench.realrun.predict.tiles import TileLoop
from kernbench.simulate.launch.places import Resources, places_of, workgroup_of
from kernbench.simulate.launch.steps import START, VECTOR, Engines, Launch, Workgroup, load, pause, store, wait, work

REDUCE_ROWS = 16
"""Partial results that the merging kernel takes at a time."""


def split_tiles(keys: int, splits: int, block: int) -> list[int]:
    """Return how many tiles each split has; trailing splits may be empty.

    >>> split_tiles(300, 4, 64)
    [2, 2, 1, 0]
    """
    each = -(-keys // splits)
    length = -(-each // block) * block
    return [-(-max(0, min(at + length, keys) - at) // block) for at in range(0, splits * length, length)]


def padded_rows(group: int) -> int:
    """Rows of a tile of queries: at least 16, a power of two."""
    return max(16, 1 << (group - 1).bit_length())


def warm(launch: Launch, footprint: int) -> Launch:
    """Return the launch as it goes when it was just run before: what fits into the last cache is there."""
    caches = launch.places.levels[:-1]
    fits = [i for i, level in enumerate(caches) if not level.per_cube and footprint <= level.capacity]
    return replace(launch, first_level=fits[0]) if fits else launch


def flushed(launch: Launch) -> Launch:
    """Return the launch as it goes after the caches were flushed by writing: each byte that comes in drives one out."""
    caches = launch.places.levels[:-1]
    return replace(launch, dirty_bytes=caches[-1].capacity) if caches else launch


def decode_loop(shape: Shape, kernel: Kernel, machine: Machine, extra_bytes: float = 0.0) -> TileLoop:
    """Return the loop over tiles; ``extra_bytes`` an element are stored beside it (scales)."""
    rows, n, waves = padded_rows(shape.group * shape.s_q), kernel.block_n, kernel.resources.waves
    stored = element_bytes(shape.kv_dtype) + extra_bytes
    k_bytes, v_bytes = round(n * shape.d_qk * stored), round(n * shape.d_v * stored)
    tail = shape.s_kv % n or n
    elements = n * (shape.d_qk + shape.d_v)
    cycles = score_cycles(machine, rows * n, masked=True) + rescale_cycles(machine, rows * shape.d_v)
    cycles += load_cycles(machine, elements, shape.kv_dtype, shape.dtype, kernel.instruction.from_registers)
    costs = workgroup_of(machine)
    return TileLoop(
        q_bytes=round(rows * shape.d_qk * element_bytes(shape.dtype)),
        k_bytes=k_bytes,
        v_bytes=v_bytes,
        last_bytes=(k_bytes * tail // n, v_bytes * tail // n),
        scores_ps=dot_ps(machine, shape.dtype, kernel.instruction, rows, n, shape.d_qk),
        softmax_ps=vector_ps(machine, cycles),
        values_ps=dot_ps(machine, shape.dtype, kernel.instruction, rows, shape.d_v, n),
        barrier_ps=across_waves_ps(machine, kernel) + latency_ps(machine, rows, waves, kernel.instruction),
        buffers=buffers_of(kernel, k_bytes + v_bytes),
        overlaps=kernel.overlaps,
        shared=False,
        out_bytes=rows * (shape.d_v + 2) * 4,
        prologue_ps=0,
        epilogue_ps=costs.end,
        out_ps=0,
    )


def paged_loop(shape: Shape, kernel: Kernel, machine: Machine) -> TileLoop:
    """Return the loop over a paged cache: as over a contiguous one."""
    return decode_loop(shape, kernel, machine)


def ultraquant_loop(shape: Shape, kernel: Kernel, machine: Machine) -> TileLoop:
    """Return the loop over a 4-bit cache: a scale byte for each 32 elements beside them."""
    return decode_loop(replace(shape, kv_dtype="fp4e2m1"), kernel, machine, extra_bytes=1 / 32)


def across_waves_ps(machine: Machine, kernel: Kernel) -> int:
    """Latency of the reductions of a tile whose keys are spread over the waves: more waves, more to combine."""
    return workgroup_of(machine).barrier * max(kernel.resources.waves // 4, 1)


def buffers_of(kernel: Kernel, tile_bytes: int) -> int:
    """Tiles that are asked for ahead of the loop.

    A software pipeline of ``stages`` asks for tile ``j`` when it is done with tile ``j - (stages - 1)``: two stages
    hide nothing of a tile's load behind the same workgroup's work, three do (measured: prefill of 128 x 64 tiles by
    one workgroup a PE takes 1.96, 1.57 and 1.16 us a tile with one, two and three stages, h200_live.jsonl). Where the
    shared memory does not hold so many, the compiler did not build such a pipeline (a load under a condition, say).
    """
    return min(kernel.stages - 1, (kernel.resources.lds_bytes + tile_bytes // 8) // tile_bytes)


def decode_launch(
    shape: Shape, kernel: Kernel, machine: Machine, loop: Callable[[Shape, Kernel, Machine], TileLoop] = decode_loop
) -> Launch:
    """Return the launch of the split-KV kernel."""
    heads = shape.batch * shape.h_kv
    tiles = split_tiles(shape.s_kv, kernel.splits, kernel.block_n)
    kinds = sorted(set(tiles))
    one = loop(shape, kernel, machine)
    of_split = np.array([kinds.index(t) for t in tiles], np.int32)
    class_of = np.repeat(of_split, heads)
    return Launch(
        kernel.places(machine), tuple(one.workgroup(t) for t in kinds), class_of,
        np.zeros((len(class_of), 1), np.int64), 0,
    )  # fmt: skip


def reduce_launch(shape: Shape, splits: int, machine: Machine) -> Launch:
    """Return the launch that merges the partial results: a workgroup for each sequence and query head."""
    workgroups, width = shape.batch * shape.h_q * shape.s_q, shape.d_v
    rows = min(REDUCE_ROWS, 1 << (splits - 1).bit_length())
    cycles = Fraction(rows * width * 2) * cost_of(machine, "default")
    costs = workgroup_of(machine)
    sums = [load(0, splits * 4), load(1, splits * 4), wait(0), wait(1), *pause(2 * costs.barrier)]
    # each round asks for its maxima, then for its rows, and sums them across waves: nothing is asked for ahead
    one = [load(0, rows * 4), wait(0), load(1, rows * width * 4), wait(1)]
    one += [*work(2, vector_ps(machine, cycles), Engines.BOTH, VECTOR), *pause(costs.barrier)]
    end = [store(width * 2), *pause(costs.end, START)]
    places = places_of(machine, Resources(waves=4, registers=32, lds_bytes=2048))
    merge = Workgroup(tuple(sums), tuple(one), tuple(end), -(-splits // rows))
    written = Launch(places, (merge,), np.zeros(workgroups, np.int32), np.zeros((workgroups, 1), np.int64), 0)
    return warm(written, shape.batch * shape.h_q * splits * (width + 2) * 4)  # the partial results were just written
