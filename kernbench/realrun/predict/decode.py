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
from kernbench.realrun.predict.given import Kernel, Shape, element_bytes
from kernbench.realrun.predict.tiles import TileLoop
from kernbench.simulate.launch.costs import (
    across_waves_ps,
    cost_of,
    latency_ps,
    load_cycles,
    rescale_cycles,
    score_cycles,
    vector_ps,
)
from kernbench.simulate.launch.places import Resources, places_of, residency_of, workgroup_of
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


def split_workgroups(
    loop: TileLoop, keys: int, splits: int, block: int
) -> tuple[tuple[Workgroup, ...], np.ndarray, list[int]]:
    """Return the workgroups by class, the class of each split, and its tiles; only the last tile of all is ragged."""
    tiles = split_tiles(keys, splits, block)
    last = max(i for i, t in enumerate(tiles) if t) if keys % block else -1
    kinds = sorted({(t, i == last) for i, t in enumerate(tiles)})
    even = replace(loop, last_bytes=(loop.k_bytes, loop.v_bytes))
    groups = tuple((loop if is_ragged else even).workgroup(t) for t, is_ragged in kinds)
    return groups, np.array([kinds.index((t, i == last)) for i, t in enumerate(tiles)], np.int32), tiles


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
    """Return the loop over tiles, of a contiguous cache or a paged one.

    ``extra_bytes`` an element are stored beside it (scales).
    """
    held = shape.group * shape.s_q  # rows of padding are neither loaded nor stored
    rows, n, waves = padded_rows(held), kernel.block_n, kernel.resources.waves
    stored = element_bytes(shape.kv_dtype) + extra_bytes
    k_bytes, v_bytes = round(n * shape.d_qk * stored), round(n * shape.d_v * stored)
    tail = shape.s_kv % n or n
    elements = n * (shape.d_qk + shape.d_v)
    cycles = score_cycles(machine, rows * n, masked=True) + rescale_cycles(machine, rows * shape.d_v)
    cycles += load_cycles(machine, elements, shape.kv_dtype, shape.dtype, kernel.instruction.from_registers)
    costs = workgroup_of(machine)
    return TileLoop(
        q_bytes=round(held * shape.d_qk * element_bytes(shape.dtype)),
        k_bytes=k_bytes,
        v_bytes=v_bytes,
        last_bytes=(k_bytes * tail // n, v_bytes * tail // n),
        scores_ps=kernel.dot_ps(machine, shape.dtype, rows, n, shape.d_qk),
        softmax_ps=vector_ps(machine, cycles),
        values_ps=kernel.dot_ps(machine, shape.dtype, rows, shape.d_v, n),
        barrier_ps=across_waves_ps(machine, waves) + latency_ps(machine, rows, waves, kernel.instruction),
        buffers=kernel.buffers(k_bytes + v_bytes),
        overlaps=kernel.overlaps,
        shared=False,
        q_stream=0,
        out_bytes=held * (shape.d_v + 2) * 4,
        prologue_ps=0,
        epilogue_ps=costs.end,
    )


def ultraquant_loop(shape: Shape, kernel: Kernel, machine: Machine) -> TileLoop:
    """Return the loop over a 4-bit cache: a scale byte for each 32 elements beside them."""
    return decode_loop(replace(shape, kv_dtype="fp4e2m1"), kernel, machine, extra_bytes=1 / 32)


def decode_launch(
    shape: Shape, kernel: Kernel, machine: Machine, loop: Callable[[Shape, Kernel, Machine], TileLoop] = decode_loop
) -> Launch:
    """Return the launch of the split-KV kernel."""
    heads = shape.batch * shape.h_kv
    groups, of_split, _ = split_workgroups(loop(shape, kernel, machine), shape.s_kv, kernel.splits, kernel.block_n)
    class_of = np.repeat(of_split, heads)
    queries = np.tile(np.arange(heads, dtype=np.int64), len(of_split)).reshape(-1, 1)
    return Launch(kernel.places(machine), groups, class_of, queries, heads)


def reduce_launch(shape: Shape, splits: int, machine: Machine, written: bool = True) -> Launch:
    """Return the launch that merges the partial results: a workgroup for each sequence and query head.

    ``written``: they were just written, so that caches have what fits into them.
    """
    workgroups, width = shape.batch * shape.h_q * shape.s_q, shape.d_v
    rows = min(REDUCE_ROWS, 1 << (splits - 1).bit_length())
    cycles = Fraction(rows * width * 2) * cost_of(machine, "default")
    costs = workgroup_of(machine)
    again = 0 if splits <= rows else -1  # one round reads the very maxima that were read before: they are in a cache
    sums = [load(0, splits * 4, stream=again), load(1, splits * 4), wait(0), wait(1)]
    if 1 << (splits - 1).bit_length() > residency_of(machine).wave_size:  # fewer lie in one wave
        sums += pause(2 * costs.barrier)
    # each round asks for its maxima, then for its rows, and sums them across waves: nothing is asked for ahead
    rest = splits % rows or rows
    one = [load(0, rows * 4, last=rest * 4, stream=again), wait(0)]
    one += [load(1, rows * width * 4, last=rest * width * 4), wait(1)]
    one += [*work(2, vector_ps(machine, cycles), Engines.BOTH, VECTOR), *pause(costs.barrier)]
    end = [store(width * 2), *pause(costs.end, START)]
    places = places_of(machine, Resources(waves=4, registers=32, lds_bytes=2048))
    merge = Workgroup(tuple(sums), tuple(one), tuple(end), -(-splits // rows))
    each = np.arange(workgroups, dtype=np.int64)
    launch = Launch(places, (merge,), np.zeros(workgroups, np.int32), each.reshape(-1, 1), workgroups)
    return warm(launch, shape.batch * shape.h_q * splits * (width + 2) * 4) if written else launch
