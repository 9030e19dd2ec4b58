"""Prefill with grouped query heads, in the style of FlashAttention-2.

Every PE keeps some query tokens and sweeps, with an online softmax, all the keys that these may see. How keys and
values reach it is the spec's ``kv``: each PE loads all of them from their home memories; one PE loads for others and
passes tiles on over channels; or each PE loads a part, and the parts go round a ring of PEs (ring attention).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import kernbench as kb
from kernbench.bench import Arrays, Bench, Case
from kernbench.collectives import LEVELS, Like, Rings, broadcast, programs_over, rank_over
from kernbench.specs.correctness import tolerance
from kernbench.specs.prefill import PrefillSpec
from kernbench.specs.reference import attention_reference
from kernbench.split_kv import LOWEST


# ---------------------------------------------------------------- the kernel
def gqa_prefill(q, o, spec, *kv, tl):
    """Attend with this PE's query tokens, for one key/value head of one sequence after the other.

    ``q`` and ``o`` are ``(batch, h_kv, T_q, group, d)``. ``kv`` holds the keys, then as many tensors with the values:
    of each home memory the rows that lie there, ``(batch, h_kv, rows, d)``; for the ring each PE's own rows.
    """
    if any(tl.program_id(LEVELS[level][0]) > 0 for level in spec.idle_levels):
        return
    k, v = kv[: len(kv) // 2], kv[len(kv) // 2 :]
    sweep = {"home": from_home, "multicast": from_one_loader, "ring": round_the_ring}[spec.kv]
    for batch in range(q.shape[0]):
        for head in range(q.shape[1]):
            with tl.scratch_scope():
                parts = (parts_of_head(x, batch, head) for x in ((q,), (o,), k, v))
                sweep(*parts, spec, tl=tl)


def from_home(q, o, k, v, spec, *, tl):
    """Load every tile from where it lies, the nearest memory first."""
    (q,), (o,) = q, o
    for start in range(0, q.rows, spec.TILE_Q):
        with tl.scratch_scope():
            mine = load_queries(q, start, spec, tl=tl)
            for home, first, n in tiles_seen(k, mine.last_key, rank_over(spec.home_levels, tl=tl), spec, tl=tl):
                with tl.scratch_scope(buffers=spec.buffers):
                    K, V = load_tile(k[home], v[home], first - k[home].first, n, n, spec, tl=tl)
                    absorb(mine, K, V, Keys(first, 1, n), spec, tl=tl)
            store(mine, o, start, tl=tl)


def from_one_loader(q, o, k, v, spec, *, tl):
    """Do as many steps on every PE that shares a loader: all pass tiles on, also those that do not need them."""
    (q,), (o,), levels = q, o, spec.multicast_over
    near = rank_over(spec.home_levels, dict.fromkeys(levels, 0), tl=tl)
    is_loader = all(tl.program_id(LEVELS[level][0]) == 0 for level in levels)
    for start in range(0, most_queries(spec, tl), spec.TILE_Q):
        with tl.scratch_scope():
            mine = load_queries(q, start, spec, tl=tl) if start < q.rows else None
            for home, first, n in tiles_seen(k, last_key_of_any(start, spec, tl=tl), near, spec, tl=tl):
                with tl.scratch_scope(buffers=spec.buffers):
                    tile = None
                    if is_loader:
                        tile = load_tile(k[home], v[home], first - k[home].first, n, n, spec, tl=tl)
                    like = (Like((spec.d_head, n), spec.dtype), Like((n, spec.d_head), spec.dtype))
                    K, V = broadcast(tile, like, levels, tl=tl)
                    if mine is not None:
                        absorb(mine, K, V, Keys(first, 1, n), spec, tl=tl)
            if mine is not None:
                store(mine, o, start, tl=tl)


def round_the_ring(q, o, k, v, spec, *, tl):
    """Let the first tile of each PE's rows go all the way round, then the second, and so on."""
    (q,), (o,), (k,), (v,) = q, o, k, v
    queries = [(start, load_queries(q, start, spec, tl=tl)) for start in range(0, q.rows, spec.TILE_Q)]
    rows = tl.cdiv(spec.S_kv, programs_over(spec.query_levels, tl=tl))  # at most; some PEs may have one less
    for start in range(0, rows, spec.TILE_S_KV):
        n = min(spec.TILE_S_KV, rows - start)
        rings = Rings(spec.query_levels, tl)
        valid = tl.minimum(n, tl.maximum(0, k.rows - start))
        travel = pass_on_first if spec.overlap else compute_first
        travel(queries, k, v, start, n, valid, rings, spec, tl=tl)
    for start, mine in queries:
        store(mine, o, start, tl=tl)


def pass_on_first(queries, k, v, start, n, valid, rings, spec, *, tl):
    """Send each tile on as soon as it has come; it travels while this PE computes."""
    for step in range(rings.count):
        with tl.scratch_scope(buffers=spec.buffers):
            if step == 0:
                tile = load_tile(k, v, start, n, valid, spec, tl=tl)
            else:
                tile = rings.take((Like((spec.d_head, n), spec.dtype), Like((n, spec.d_head), spec.dtype)))
            keys = keys_of(rings.owner, start, n, spec, tl=tl)
            if step < rings.count - 1:
                rings.post(tile)
            for _, mine in queries:
                with tl.scratch_scope():
                    absorb(mine, *tile, keys, spec, tl=tl)


def compute_first(queries, k, v, start, n, valid, rings, spec, *, tl):
    """Exchange tiles between two steps: with channels that hold one message, at the cost of waiting and of a copy."""
    with tl.scratch_scope():
        tile = load_tile(k, v, start, n, valid, spec, tl=tl)
        for step in range(rings.count):
            for _, mine in queries:
                with tl.scratch_scope():
                    absorb(mine, *tile, keys_of(rings.owner, start, n, spec, tl=tl), spec, tl=tl)
            if step < rings.count - 1:
                with tl.scratch_scope():
                    for old, new in zip(tile, rings.shift(tile), strict=True):
                        tl.copy_to(old, new)


# ---------------------------------------------------------------- the mathematics
@dataclass
class Queries:
    """A tile of queries and what is known of their outputs so far. Rows are (query token, head of the group)."""

    Q: Any
    m: Any
    l: Any
    acc: Any
    last: Any
    """(rows, 1): the last key that each row may see; None if all may see all."""
    first_key: Any
    """The last key that the first token may see: up to it, nothing is hidden from anybody."""
    last_key: Any
    """The last key that the last token may see."""


@dataclass
class Keys:
    """Which keys a tile holds: ``first``, ``first + step`` ..., of which the first ``valid`` are real."""

    first: Any
    step: int
    valid: Any


def load_queries(q, start, spec, *, tl):
    """Load a tile of queries and begin their statistics."""
    n = min(spec.TILE_Q, q.rows - start)
    rows = n * spec.group
    Q = tl.load(q.at(start), shape=(rows, spec.d_head), dtype=spec.dtype)
    m, l = tl.full((rows, 1), LOWEST, "f32"), tl.zeros((rows, 1), "f32")
    acc = tl.zeros((rows, spec.d_head), "f32")
    if not spec.causal:
        return Queries(Q, m, l, acc, None, spec.S_kv - 1, spec.S_kv - 1)
    step = programs_over(spec.query_levels, tl=tl) if spec.deal == "striped" else 1
    origin = rank_over(spec.query_levels, tl=tl) if spec.deal == "striped" else q.first
    first = origin + start * step + (spec.S_kv - spec.T_q)
    last = tl.reshape(tl.arange(0, rows), (rows, 1)) // spec.group * step + first
    return Queries(Q, m, l, acc, last, first, first + (n - 1) * step)


def load_tile(k, v, start, n, valid, spec, *, tl):
    """Load ``n`` keys, transposed, and values, of which ``valid`` exist; the others are 0."""
    K = tl.load(k.at(start), (spec.d_head, n), spec.dtype, strides=(1, spec.d_head), valid=(spec.d_head, valid))
    return K, tl.load(v.at(start), shape=(n, spec.d_head), dtype=spec.dtype, valid=valid)


def absorb(mine, K, V, keys, spec, *, tl):
    """Take a tile of keys and values into the online softmax, unless none of the queries may see any of it."""
    n = K.shape[1]
    if keys.valid == 0 or keys.first > mine.last_key:
        return
    s = tl.dot(mine.Q, K) * spec.scale
    seen = None
    if keys.valid < n or keys.first + (n - 1) * keys.step > mine.first_key:
        seen = visible(mine, keys, n, tl=tl)
        s = tl.where(seen, s, LOWEST)
    m_new = tl.maximum(mine.m, tl.max(s, axis=-1))
    keep, p = tl.exp(mine.m - m_new), tl.exp(s - m_new)
    if seen is not None:
        p = tl.where(seen, p, 0.0)  # a row that has seen no key yet has m_new = LOWEST, and exp(0) = 1
    tl.copy_to(mine.l, mine.l * keep + tl.sum(p, axis=-1))
    tl.copy_to(mine.acc, mine.acc * keep + tl.dot(tl.cast(p, spec.dtype), V))
    tl.copy_to(mine.m, m_new)


def visible(mine, keys, n, *, tl):
    """Whether each row may see each key of a tile, and the key is a real one."""
    place = tl.reshape(tl.arange(0, n), (1, n))
    if mine.last is None:
        return place < keys.valid
    seen = place * keys.step + keys.first <= mine.last
    return seen & (place < keys.valid) if keys.valid < n else seen


def store(mine, o, start, *, tl):
    """Store a tile of outputs."""
    tl.store(o.at(start), mine.acc / mine.l)


# ---------------------------------------------------------------- who holds and needs what
@dataclass
class Part:
    """This PE's part of a tensor for one head of one sequence: rows of tokens."""

    pointer: Any
    rows: Any
    first: Any
    """Token of the first row."""

    def at(self, row):
        """Pointer to a row."""
        return self.pointer + row * self.pointer.strides[2]


def parts_of_head(tensors, batch, head):
    """Return the parts of one head; the tokens of one tensor follow on those of the tensor before."""
    parts, before = [], 0
    for tensor in tensors:
        parts.append(Part(tensor.at(batch, head), tensor.shape[2], tensor.origin[2] + before))
        before = before + tensor.shape[2]
    return parts


def tiles_seen(k, last_key, near, spec, *, tl):
    """Yield (home, first key, keys) of the tiles up to ``last_key``, beginning with the home ``near``."""
    near = int(near) if len(k) > 1 else 0
    for i in range(len(k)):
        home = (near + i) % len(k)
        first, rows = k[home].first, k[home].rows
        count = tl.cdiv(rows, spec.TILE_S_KV)
        if spec.causal:
            count = tl.minimum(count, tl.maximum(0, (last_key - first) // spec.TILE_S_KV + 1))
        for t in range(count):
            start = t * spec.TILE_S_KV
            yield home, first + start, min(spec.TILE_S_KV, rows - start)


def most_queries(spec, tl):
    """Largest number of query tokens of any PE."""
    return tl.cdiv(spec.T_q, programs_over(spec.query_levels, tl=tl))


def last_key_of_any(start, spec, *, tl):
    """Last key that any PE with the same loader may see with its tile of queries from ``start`` on, or a later one."""
    levels = spec.query_levels
    ranks, end = programs_over(levels, tl=tl), min(start + spec.TILE_Q, most_queries(spec, tl))
    if spec.deal == "striped":
        last = min(end * ranks, spec.T_q) - 1
    else:
        ends = {level: tl.num_programs(LEVELS[level][0]) - 1 for level in spec.multicast_over}
        last = tl.minimum(first_row(spec.T_q, rank_over(levels, ends, tl=tl), ranks, tl) + end, spec.T_q) - 1
    return last + (spec.S_kv - spec.T_q)


def first_row(rows, rank, ranks, tl):
    """First row of a part where ``kb.split`` cuts rows into parts."""
    length, more = divmod(rows, ranks)
    return rank * length + tl.minimum(rank, more)


def keys_of(owner, start, n, spec, *, tl):
    """Which keys a tile holds that set out from PE ``owner`` of the ring, as ``n`` of its rows from ``start`` on."""
    ranks = programs_over(spec.query_levels, tl=tl)
    length, more = divmod(spec.S_kv, ranks)
    valid = tl.minimum(n, tl.maximum(0, length + (owner < more) - start)) if more else n
    if spec.deal == "striped":
        return Keys(owner + start * ranks, ranks, valid)
    return Keys(first_row(spec.S_kv, owner, ranks, tl) + start, 1, valid)


# ---------------------------------------------------------------- its tensors
def arguments(spec: PrefillSpec, machine: kb.Machine, arrays: Arrays | None):
    """Lay the tensors out over the machine as the spec says."""
    groups = kb.split(0, over=spec.split_batch).split(1, over=spec.split_heads)
    groups = groups.on(**dict.fromkeys(spec.idle_levels, 0))
    queries = groups.split(2, over=spec.query_levels)
    q_shape = (spec.batch, spec.h_kv, spec.T_q, spec.group, spec.d_head)
    kv_shape = (spec.batch, spec.h_kv, spec.S_kv, spec.d_head)
    cuts = [(slice(0, spec.S_kv), queries)] if spec.kv == "ring" else homes(spec, groups, machine)
    if arrays is None:
        q, o = (kb.shape_only(q_shape, spec.dtype, machine, queries) for _ in "qo")
        shapes = [(*kv_shape[:2], len(range(spec.S_kv)[rows]), spec.d_head) for rows, _ in cuts]
        kv = [kb.shape_only(s, spec.dtype, machine, p) for _ in "kv" for s, (_, p) in zip(shapes, cuts, strict=True)]
    else:
        by_token = (spec.batch, spec.T_q, spec.h_kv, spec.group, spec.d_head)
        rows = arrays["q"].reshape(by_token).transpose(0, 2, 1, 3, 4)
        sizes = {"sip": machine.n_sips, "cube": machine.cubes_per_sip, "pe": machine.pes_per_cube}
        ranks = int(np.prod([sizes[level] for level in spec.query_levels], dtype=np.int64))
        q = kb.tensor(rows[:, :, dealt(spec.T_q, ranks, spec)], machine, queries)
        o = kb.empty(q_shape, spec.dtype, machine, queries)
        order = dealt(spec.S_kv, ranks, spec) if spec.kv == "ring" else np.arange(spec.S_kv)
        by_head = [arrays[name].transpose(0, 2, 1, 3)[:, :, order] for name in "kv"]
        kv = [kb.tensor(whole[:, :, rows], machine, placement) for whole in by_head for rows, placement in cuts]
    return (q, o, spec, *kv), o


def homes(spec: PrefillSpec, groups, machine: kb.Machine):
    """Return for each home memory the keys that lie there, and the placement."""
    if spec.kv_rows == "copied":
        return [(slice(0, spec.S_kv), groups)]
    sizes = {"sip": machine.n_sips, "cube": machine.cubes_per_sip}
    first = dict.fromkeys([level for level in spec.query_levels if level != "pe"], 0)
    places = list(product(*(range(sizes[level]) for level in spec.home_levels)))
    cuts = np.array_split(np.arange(spec.S_kv), len(places))
    ends = np.cumsum([len(cut) for cut in cuts])
    return [
        (slice(int(end) - len(cut), int(end)), groups.on(**(first | dict(zip(spec.home_levels, place, strict=True)))))
        for place, cut, end in zip(places, cuts, ends, strict=True)
    ]


def dealt(rows: int, ranks: int, spec: PrefillSpec):
    """Return the order in which tokens lie in memory, PE after PE."""
    if spec.deal == "blocks":
        return np.arange(rows)
    return np.concatenate([np.arange(rank, rows, ranks) for rank in range(ranks)])


def output(spec: PrefillSpec, o: kb.Tensor):
    """Return the results as ``(batch, T_q, h_q, d)``, the tokens in their own order again."""
    ranks = o.layout.n_parts // np.count_nonzero(o.layout.starts[:, 2] == 0)
    by_head = np.empty_like(rows := o.numpy())
    by_head[:, :, dealt(spec.T_q, ranks, spec)] = rows
    return by_head.transpose(0, 2, 1, 3, 4).reshape(spec.batch, spec.T_q, spec.h_q, spec.d_head)


def reference(spec: PrefillSpec, arrays: Arrays):
    """The right result in float64."""
    return attention_reference(arrays["q"], arrays["k"], arrays["v"], spec.scale, spec.causal)


ODD = {"T_q": 37, "S_kv": 61, "TILE_Q": 2, "TILE_S_KV": 8}
SIP4 = "sip4_grid4x4_pe8"
BENCHES = [
    Bench(
        name="gqa_prefill",
        summary="prefill with grouped query heads: each PE loads keys and values, or they are multicast or go round",
        spec=PrefillSpec,
        kernel=gqa_prefill,
        arguments=arguments,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        cases=(
            Case(settings={}, inputs="captured"),
            Case(settings={"kv": "multicast"}, inputs="captured"),
            Case(settings={"kv": "ring"}, inputs="captured"),
            Case(settings={"T_q": 100, "deal": "blocks", "kv_rows": "one"}, inputs="captured"),
            Case(settings={"T_q": 300, "S_kv": 300, "kv": "multicast", "deal": "blocks"}, inputs="captured"),
            Case(
                settings={"T_q": 300, "S_kv": 300, "kv": "ring", "deal": "blocks", "overlap": False}, inputs="captured"
            ),
            Case(settings={"T_q": 1, "S_kv": 1}),
            Case(settings={"T_q": 1, "S_kv": 1, "kv": "ring"}),
            Case(settings={**ODD, "causal": False, "h_q": 10, "h_kv": 2, "dtype": "f32"}),
            Case(settings={**ODD, "kv": "ring", "causal": False, "dtype": "bf16"}),
            Case(settings={**ODD, "kv": "multicast", "multicast_over": "cube,pe"}),
            Case(
                settings={**ODD, "kv": "ring", "split_heads": "sip", "split_Q": "cube,pe"}, topology="sip4_grid4x4_pe8"
            ),
            Case(settings={**ODD, "batch": 5, "split_batch": "cube", "split_Q": "sip,pe"}, topology=SIP4),
            Case(settings={**ODD, "kv_rows": "copied", "split_batch": "sip", "split_Q": "cube,pe"}, topology=SIP4),
            Case(settings={"T_q": 64, "S_kv": 64, "kv": "ring"}, topology="pe1"),
        ),
    )
]
