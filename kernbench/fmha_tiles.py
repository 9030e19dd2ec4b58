"""What the sage, Jenga and VSA benches share: two ways to divide attention into tiles.

*Faithful*, as the originals do it: a program is 16 query rows of one head (:func:`mfma_program`); programs are dealt to
the PEs, and each goes through all keys, 16 at a time, whether they are kept or not. A masked score is -1e30, so a row
with no kept key comes out as the mean of V. K, V and Q lie in every memory, as near as they can be.

*Spatial*, for a mesh: a tile is more query tokens, with all heads that share a key/value head; tiles are dealt to the
PEs of a CUBE, and each CUBE holds a part of the keys and values (:func:`tiles_of_queries`, :class:`Softmax`). Only keys
that are kept are loaded. The partial results come together over the CUBEs. A row with no kept key is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.collectives import LEVELS, Partial, programs_over, rank_over, reduce_to_root
from kernbench.on_grid import refuse_spatial
from kernbench.placement import Placement, on, replicated, split
from kernbench.specs.rocke.common import TILE_KEYS, TILE_ROWS
from kernbench.split_kv import LOWEST
from kernbench.tensors import Tensor, empty, shape_only, tensor
from kernbench.tl import Language, Pointer, Tile

if TYPE_CHECKING:
    from kernbench.machine import Machine
    from kernbench.specs.fmha import FmhaSpec

ALL_LEVELS = ("sip", "cube", "pe")
Scores = Callable[[Tile, int], Tile]
"""``(product of Q and 16 keys, first key)`` → scaled and masked scores."""


# ---------------------------------------------------------------- as the originals divide it
def programs(rows: int, spec: FmhaSpec, *, tl: Language) -> Iterator[tuple[Any, Any]]:
    """Yield (row of the grid, query head) of each program of this PE: the grid, rows first, is dealt to the PEs."""
    count, ranks, rank = rows * spec.h_q, programs_over(ALL_LEVELS, tl=tl), rank_over(ALL_LEVELS, tl=tl)
    for first in range(0, count, ranks):
        program = rank + first
        if first + ranks > count and program >= count:
            return
        with tl.scratch_scope():
            yield program % rows, program // rows


def grid_of(spec: FmhaSpec) -> tuple[int, ...]:
    """Return the original's grid: (tiles of 16 rows, or rows, query heads). Raises InputError for the spatial form."""
    refuse_spatial(spec)
    return spec.rocke().grid()


def mfma_program(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, spec: FmhaSpec, tile: Any, head: Any, scores: Scores, *,
    tl: Language
) -> None:  # fmt: skip
    """Attend with 16 query rows of one head, in steps of 16 keys: the MFMA body of the originals.

    ``q``, ``k``, ``v`` and ``o`` are ``(token, head, d)``.
    """
    d, element = spec.d_head, spec.dtype
    Q = tl.load(q.at(TILE_ROWS * tile, head), shape=(TILE_ROWS, d), strides=(spec.h_q * d, 1))
    m, l = tl.full((TILE_ROWS, 1), LOWEST), tl.zeros((TILE_ROWS, 1))
    acc, step = tl.zeros((TILE_ROWS, d)), spec.h_kv * d
    for key in range(0, spec.S_kv, TILE_KEYS):
        with tl.scratch_scope(buffers=spec.buffers):
            K = tl.load(k.at(key, head // spec.group), shape=(d, TILE_KEYS), strides=(1, step))
            V = tl.load(v.at(key, head // spec.group), shape=(TILE_KEYS, d), strides=(step, 1))
            s = scores(tl.dot(Q, tl.cast(K, element)), key)
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            keep, p = tl.exp2(m - m_new), tl.exp2(s - m_new)
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            tl.copy_to(acc, tl.dot(tl.cast(p, element), tl.cast(V, element), acc=acc * keep))
            tl.copy_to(m, m_new)
    out = acc * tl.where(l == 0, 0.0, 1 / l)
    tl.store(o.at(TILE_ROWS * tile, head), out, strides=(spec.h_q * d, 1))


# ---------------------------------------------------------------- as suits a mesh
def tiles_of_queries(spec: FmhaSpec, *, tl: Language) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (key/value head, first query token, tokens) of each tile of this PE."""
    runs = -(-spec.T_q // spec.query_tile)
    count, ranks, rank = runs * spec.h_kv, programs_over(spec.split_tiles, tl=tl), rank_over(spec.split_tiles, tl=tl)
    if any(tl.program_id(LEVELS[level][0]) > 0 for level in spec.idle_levels):
        return
    for first in range(0, count, ranks):
        unit = rank + first
        if first + ranks > count and unit >= count:
            return
        token = unit % runs * spec.query_tile
        tokens: Any = spec.query_tile
        if spec.T_q % spec.query_tile:
            tokens = int(tl.minimum(tokens, spec.T_q - token))
        with tl.scratch_scope():
            yield unit // runs, token, tokens


class Softmax:
    """The online softmax of one tile of queries: rows are (query token, head of the group), powers are of 2."""

    def __init__(self, rows: int, width: int, spec: FmhaSpec, tl: Language) -> None:
        self.tl, self.spec = tl, spec
        self.m, self.l, self.acc = tl.full((rows, 1), LOWEST), tl.zeros((rows, 1)), tl.zeros((rows, width))

    def absorb(self, s: Tile, V: Tile, seen: Tile | None = None) -> None:
        """Take in scaled scores ``(rows, n)`` and values ``(n, width)``; of the scores only those that are ``seen``."""
        tl = self.tl
        if seen is not None:
            s = tl.where(seen, s, LOWEST)
        m_new = tl.maximum(self.m, tl.max(s, axis=-1))
        keep, p = tl.exp2(self.m - m_new), tl.exp2(s - m_new)
        if seen is not None:
            p = tl.where(seen, p, 0.0)  # a row that has seen no key yet has m_new = LOWEST, and exp2(0) = 1
        tl.copy_to(self.l, self.l * keep + tl.sum(p, axis=-1))
        tl.copy_to(self.acc, tl.dot(tl.cast(p, self.spec.dtype), V, acc=self.acc * keep))
        tl.copy_to(self.m, m_new)

    def finish(self, o: Pointer) -> None:
        """Bring the partial results of the programs that hold keys together; the first of them stores the rows."""
        tl, spec = self.tl, self.spec
        mine = (self.m, self.l, self.acc)
        whole = reduce_to_root(mine, lambda a, b: merge(a, b, tl=tl), spec.split_S_kv, spec.reduction, tl=tl)
        if whole is not None:
            _, l, acc = whole
            tl.store(o, acc * tl.where(l == 0, 0.0, 1 / l))


def merge(a: Partial, b: Partial, *, tl: Language) -> Partial:
    """Combine two partial results over different keys."""
    m = tl.maximum(a[0], b[0])
    keep_a, keep_b = tl.exp2(a[0] - m), tl.exp2(b[0] - m)
    return m, a[1] * keep_a + b[1] * keep_b, a[2] * keep_a + b[2] * keep_b


# ---------------------------------------------------------------- tensors
class Tensors:
    """Makes the tensors of a launch: with values, or of shapes only."""

    def __init__(self, spec: FmhaSpec, machine: Machine, held: bool) -> None:
        self.spec, self.machine, self.held = spec, machine, held

    def place(self, array: np.ndarray | None, shape: Sequence[int], dtype: Any, placement: Placement) -> Tensor:
        """Place an array, or a tensor of this shape without values."""
        if array is None:
            return shape_only(tuple(shape), dtype, self.machine, placement)
        return tensor(np.ascontiguousarray(array.reshape(shape)), self.machine, placement)

    def near(self, array: np.ndarray | None, shape: Sequence[int], dtype: Any) -> Tensor:
        """Place a copy in every memory."""
        return self.place(array, shape, dtype, replicated())

    def result(self) -> Tensor:
        """Make the tensor of results, in the first memory."""
        spec, make = self.spec, empty if self.held else shape_only
        by_token = (spec.T_q, spec.h_q, spec.d_head)
        by_head = (spec.h_kv, spec.T_q, spec.group, spec.d_head)
        return make(by_token if spec.form == "faithful" else by_head, spec.dtype, self.machine, on())

    def queries(self, q: np.ndarray | None, width: int, dtype: Any) -> Tensor:
        """Place what belongs to queries, ``(token, query head, width)``, by key/value head, in every memory."""
        spec = self.spec
        shape = (spec.h_kv, spec.T_q, spec.group, width)
        if q is not None:
            q = q.reshape(spec.T_q, spec.h_kv, spec.group, width).transpose(1, 0, 2, 3)
        return self.near(q, shape, dtype)

    def blocks_of_keys(self, x: np.ndarray | None, width: int, dtype: Any) -> Tensor:
        """Deal what belongs to keys, ``(token, head, width)``, to the memories by blocks of ``spec.key_block``.

        The tensor is (block, key/value head, key of the block, width); the last block is filled up with zeros. Of n
        memories, number r holds the blocks r, r + n, r + 2 n, ..., so that causal and local masks load all of them.
        """
        spec = self.spec
        n = spec.key_block
        count = -(-spec.S_kv // n)
        if x is not None:
            x = np.concatenate([x, np.zeros((count * n - len(x), *x.shape[1:]), x.dtype)])
            x = x.reshape(count, n, spec.h_kv, width).transpose(0, 2, 1, 3)
            parts = parts_of_keys(spec, self.machine)
            x = x[np.concatenate([np.arange(part, count, parts) for part in range(parts)])]
        return self.place(x, (count, spec.h_kv, n, width), dtype, split(0, over=spec.split_S_kv))


def parts_of_keys(spec: FmhaSpec, machine: Machine) -> int:
    """Return how many parts the keys are split into."""
    sizes = {"sip": machine.n_sips, "cube": machine.cubes_per_sip, "pe": machine.pes_per_cube}
    return math.prod(sizes[level] for level in spec.split_S_kv)


def result_of(spec: FmhaSpec, o: Tensor) -> np.ndarray:
    """Return the results as ``(1, token, query head, d)``."""
    values = o.numpy()
    if spec.form == "spatial":
        values = values.transpose(1, 0, 2, 3).reshape(spec.T_q, spec.h_q, spec.d_head)
    return values[None]
