"""Absorbed latent (MLA) decode: all query heads of a sequence share one row of latent elements a token.

Grid (batch x blocks of heads, splits), axis 0 fastest. The keys are the whole row, the values its first part, so that
a tile is loaded once for both products; the blocks of heads of a sequence read the same tiles.
"""

from __future__ import annotations

import numpy as np

from kernbench.machine import Machine
from kernbench.realrun.predict.decode import split_workgroups
from kernbench.realrun.predict.given import Kernel, Shape, element_bytes
from kernbench.realrun.predict.tiles import TileLoop
from kernbench.simulate.launch.costs import (
    across_waves_ps,
    latency_ps,
    load_cycles,
    rescale_cycles,
    score_cycles,
    vector_ps,
)
from kernbench.simulate.launch.places import workgroup_of
from kernbench.simulate.launch.steps import Launch


def mla_loop(shape: Shape, kernel: Kernel, machine: Machine) -> TileLoop:
    """Return the loop over tiles."""
    rows, n, waves = kernel.block_m, kernel.block_n, kernel.resources.waves
    tile_bytes = round(n * shape.d_qk * element_bytes(shape.kv_dtype))
    tail = shape.s_kv % n or n
    cycles = score_cycles(machine, rows * n, masked=True) + rescale_cycles(machine, rows * shape.d_v)
    fed = n * (shape.d_qk + shape.d_v)  # the tile is brought into registers once for each product
    cycles += load_cycles(machine, fed, shape.kv_dtype, shape.dtype, kernel.instruction.from_registers)
    costs = workgroup_of(machine)
    return TileLoop(
        q_bytes=round(rows * shape.d_qk * element_bytes(shape.dtype)),
        k_bytes=tile_bytes,
        v_bytes=0,
        last_bytes=(tile_bytes * tail // n, 0),
        scores_ps=kernel.dot_ps(machine, shape.dtype, rows, n, shape.d_qk),
        softmax_ps=vector_ps(machine, cycles),
        values_ps=kernel.dot_ps(machine, shape.dtype, rows, shape.d_v, n),
        barrier_ps=across_waves_ps(machine, waves) + latency_ps(machine, rows, waves, kernel.instruction),
        buffers=kernel.buffers(tile_bytes),
        overlaps=kernel.overlaps,
        shared=shape.h_q > rows,
        q_stream=1,
        out_bytes=rows * (shape.d_v + 2) * 4,
        prologue_ps=0,
        epilogue_ps=costs.end,
    )


def mla_launch(shape: Shape, kernel: Kernel, machine: Machine) -> Launch:
    """Return the launch of the split kernel."""
    blocks = -(-shape.h_q // kernel.block_m)
    columns = shape.batch * blocks
    loop = mla_loop(shape, kernel, machine)
    groups, of_split, tiles = split_workgroups(loop, shape.s_kv, kernel.splits, kernel.block_n)
    class_of = np.repeat(of_split, columns)
    first = np.concatenate([[0], np.cumsum(tiles)[:-1]]).astype(np.int64)
    sequence = np.arange(columns, dtype=np.int64) // blocks * sum(tiles)
    keys = shape.batch * sum(tiles)
    queries = keys + np.tile(np.arange(columns, dtype=np.int64), len(tiles))
    base = np.stack([(first[:, None] + sequence[None, :]).reshape(-1), queries], axis=1)
    return Launch(kernel.places(machine), groups, class_of, base, keys + columns)
