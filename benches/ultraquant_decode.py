"""Decode attention over UltraQuant's paged 4-bit cache, as its GPU kernel divides the work and as a mesh would.

``form="faithful"`` is the original: workgroups of (sequence, key/value head, partition), dealt round robin to the PEs;
tiles of 16 tokens, each found through the block table; a result stored for every partition, empty ones too. As in the
original a second launch merges them, bench ``ultraquant_reduce``: one launch may not hand data from PE to PE through
memory. The values of ``ultraquant_decode`` are merged on the host.

``form="spatial"`` splits the tokens over the PEs, each with its blocks in the memory next to it; takes all key/value
heads at once and as many neighbouring blocks as fill ``tile_tokens``; stops at the end of the sequence; never makes
dequantised values (their scales go to the probabilities); and merges by messages.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import kernbench as kb
from kernbench.bench import Arrays, Bench, Case
from kernbench.collectives import LEVELS, programs_over, rank_over, reduce_to_root
from kernbench.on_grid import refuse_spatial
from kernbench.specs import ultraquant as uq
from kernbench.specs.correctness import tolerance
from kernbench.specs.implementation import MergeImplementation, UltraQuantImplementation
from kernbench.specs.ultraquant.bench_spec import UltraQuantBenchSpec, place_blocks
from kernbench.split_kv import LOWEST, merge

D, HALF = uq.HEAD_SIZE, uq.HEAD_SIZE // 2
SCALES = D // uq.SCALE_GROUP
K_SCALES, V_CODES, V_SCALES = HALF, HALF + SCALES, D + SCALES  # where they begin in a slot
LOG2E = float(np.float32(math.log2(math.e)))
REDUCED_AT_ONCE = 64  # elements of a head that one workgroup of the reducer merges


# ---------------------------------------------------------------- the original's kernel
def decode(query, cache, block_tables, seq_lens, spec, out, exp_sums=None, max_logits=None, *, tl):
    """Either form. ``out`` is the output; in the faithful form the partitions', beside their sums and maxima."""
    if spec.form == "spatial":
        decode_spatial(query, cache, block_tables, seq_lens, spec, out, tl=tl)
        return
    seqs, heads, partitions = spec.decode.grid()
    for workgroup in dealt(seqs * heads * partitions, tl=tl):
        seq, head, part = workgroup % seqs, workgroup // seqs % heads, workgroup // (seqs * heads)
        with tl.scratch_scope():
            m, l, acc = attend_partition(query, cache, block_tables.at(seq), seq_lens.at(seq), seq, head, part, spec,
                                         tl=tl)  # fmt: skip
            inverse = 1 / tl.where(l > 0, l, 1.0)
            tl.store(out.at(seq, head, part), tl.cast(acc * tl.reshape(inverse, (-1, 1)), "bf16"))
            tl.store(exp_sums.at(seq, head, part), l)
            tl.store(max_logits.at(seq, head, part), m)


def dealt(workgroups, *, tl):
    """Go through this PE's workgroups: in the order of their numbers, one to each PE in turn."""
    pes = programs_over(LEVELS, tl=tl)
    for workgroup in range(0, workgroups, pes):
        mine = workgroup + rank_over(LEVELS, tl=tl)
        if mine >= workgroups:
            return
        yield mine


def attend_partition(query, cache, block_table, seq_len, seq, head, part, spec, *, tl):
    """Work on the tile-groups ``part``, ``part + P``, ...: return maximum (1, G), sum (1, G) and values (G, 256)."""
    group, scheme = spec.query_group_size, spec.decode
    length = tl.load_scalar(seq_len)
    Q = rotated(tl.load(query.at(seq, head * group), shape=(group, D)), tl=tl)
    m, l, acc = tl.full((1, group), -math.inf), tl.zeros((1, group)), tl.zeros((group, D))
    tokens = tl.reshape(tl.arange(uq.TILE_TOKENS), (uq.TILE_TOKENS, 1))
    left = tl.maximum(tl.cdiv(length, uq.TILE_GROUP_TOKENS) - part, 0)
    trips = tl.minimum(tl.cdiv(left, scheme.num_partitions), scheme.tile_groups_per_partition)
    for trip in range(trips):
        first = (part + trip * scheme.num_partitions) * uq.TILE_GROUP_TOKENS
        for start in [first + uq.TILE_TOKENS * i for i in range(uq.TILES_PER_GROUP)]:
            entry = start // spec.kv_block_size * (start < length)  # past the end the first block is read, and masked
            block = tl.load_scalar(block_table + 4 * entry)
            slot = cache.at(block, start % spec.kv_block_size, head)
            with tl.scratch_scope(buffers=spec.buffers):
                add_tile(m, l, acc, Q, slot, tokens + start < length, spec, tl=tl)
    return m, l, acc


def rotated(query, *, tl):
    """Rotate (..., G, 256) queries, round them to E4M3 and turn them round: the right operand of keys times queries."""
    return tl.trans(tl.cast(tl.hadamard(tl.cast(query, "f32")), "fp8e4m3"))


def add_tile(m, l, acc, Q, slot, seen, spec, *, tl):
    """Add 16 tokens to the running maximum, sum and values."""
    tokens, pitch = uq.TILE_TOKENS, spec.num_kv_heads * spec.padded_slot
    K = tl.unpack(tl.load(slot, shape=(tokens, HALF), strides=(pitch, 1)), "fp4e2m1")
    k_scale = tl.load(slot + K_SCALES, shape=(tokens, SCALES), strides=(pitch, 1), dtype="e8m0", bitcast=True)
    codes = tl.unpack(tl.load(slot + V_CODES, shape=(tokens, HALF), strides=(pitch, 1)), "fp4e2m1")
    v_scale = tl.load(slot + V_SCALES, shape=(tokens, SCALES), strides=(pitch, 1), dtype="e8m0", bitcast=True)
    s = tl.dot_scaled(K, k_scale, Q, None, block=uq.SCALE_GROUP) * spec.decode.scale
    s = tl.where(seen, s, -math.inf)
    m_new = tl.maximum(m, tl.max(s, axis=0))
    keep, p = tl.exp2((m - m_new) * LOG2E), tl.exp2((s - m_new) * LOG2E)
    V = tl.reshape(codes, (tokens, SCALES, uq.SCALE_GROUP)) * tl.reshape(v_scale, (tokens, SCALES, 1))
    V = tl.reshape(tl.cast(V, "bf16"), (tokens, D))  # exact
    tl.copy_to(l, l * keep + tl.sum(p, axis=0))
    tl.copy_to(acc, tl.dot(tl.trans(tl.cast(p, "bf16")), V, acc=acc * tl.reshape(keep, (-1, 1))))
    tl.copy_to(m, m_new)


def reduce(out, exp_sums, max_logits, o, spec, *, tl):
    """Merge the partitions of 64 elements of one query head at a time: the original's second launch."""
    seqs, heads, partitions = spec.decode.grid()
    group, parts = spec.query_group_size, D // REDUCED_AT_ONCE
    for workgroup in dealt(seqs * heads * group * parts, tl=tl):
        seq, query_head, part = (
            workgroup % seqs, workgroup // seqs % (heads * group), workgroup // (seqs * heads * group)
        )  # fmt: skip
        head, row, column = query_head // group, query_head % group, part * REDUCED_AT_ONCE
        with tl.scratch_scope():
            l, m = (tl.load(x.at(seq, head, 0, row), shape=(partitions, 1), strides=(group, 1))
                    for x in (exp_sums, max_logits))  # fmt: skip
            values = tl.load(out.at(seq, head, 0, row, column), shape=(partitions, REDUCED_AT_ONCE),
                             strides=(group * D, 1))  # fmt: skip
            weight = tl.where(m > -math.inf, tl.exp(m - tl.max(m)) * l, 0.0)
            total = tl.sum(weight)
            summed = tl.sum(weight * values, axis=0) / tl.where(total == 0, 1.0, total)
            tl.store(o.at(seq, query_head, column), summed)


# ---------------------------------------------------------------- the kernel for a mesh
def decode_spatial(query, cache, block_tables, seq_lens, spec, o, *, tl):
    """Attend with this PE's sequences to the tokens whose blocks lie next to it, one sequence after the other."""
    if any(tl.program_id(LEVELS[level][0]) > 0 for level in spec.idle_levels):
        return
    for i in range(o.shape[0]):
        seq = o.origin[0] + i
        with tl.scratch_scope():
            partial = attend_share(query.at(i), cache, block_tables.at(seq), seq_lens.at(seq), spec, tl=tl)
            whole = reduce_to_root(partial, lambda a, b: merge(a, b, tl=tl), spec.split_tokens, spec.reduction, tl=tl)
            if whole is not None:
                _, l, acc = whole
                group = spec.query_group_size
                strides = (group * D, uq.SCALE_GROUP, D, 1)
                tl.store(o.at(i), acc / tl.where(l > 0, l, 1.0), strides=strides)


def attend_share(query, cache, block_table, seq_len, spec, *, tl):
    """Sweep this PE's share of one sequence, all H key/value heads at once.

    Return maxima and sums (H, 1, G, 1) and values (H, 8, G, 32), in groups of 32 elements with one scale.
    """
    heads, group = spec.num_kv_heads, spec.query_group_size
    Q = rotated(tl.load(query, shape=(heads, group, D)), tl=tl)
    m, l = tl.full((heads, 1, group), LOWEST), tl.zeros((heads, 1, group))
    acc = tl.zeros((heads, SCALES, group, uq.SCALE_GROUP))
    length = tl.load_scalar(seq_len)
    blocks = tl.cdiv(length, spec.kv_block_size)
    rank, ranks = rank_over(spec.split_tokens, tl=tl), programs_over(spec.split_tokens, tl=tl)
    token = blocks * rank // ranks * spec.kv_block_size
    stop = tl.minimum(blocks * (rank + 1) // ranks * spec.kv_block_size, length)
    while token < stop:
        block, n = next_run(block_table, token, stop, spec, tl=tl)
        slot = cache.at(block - cache.origin[0], token % spec.kv_block_size)
        with tl.scratch_scope(buffers=spec.buffers):
            add_tokens(m, l, acc, Q, slot, n, spec, tl=tl)
        token = token + n
    return tl.reshape(m, (heads, 1, group, 1)), tl.reshape(l, (heads, 1, group, 1)), acc


def next_run(block_table, token, stop, spec, *, tl):
    """Return the block of ``token``, and how many tokens from there on, at most a tile, lie in a row in the cache."""
    size = spec.kv_block_size
    entry = token // size
    block = tl.load_scalar(block_table + 4 * entry)
    stop = tl.minimum(stop, token + spec.tile_tokens)
    blocks = 1
    while (entry + blocks) * size < stop and tl.load_scalar(block_table + 4 * (entry + blocks)) == block + blocks:
        blocks += 1
    return block, int(tl.minimum((entry + blocks) * size, stop) - token)


def add_tokens(m, l, acc, Q, slot, n, spec, *, tl):
    """Add ``n`` tokens. V's scales, powers of two, go to the probabilities: exact, and V's codes are multiplied as they
    come from memory."""
    heads, group, pitch = spec.num_kv_heads, spec.query_group_size, spec.num_kv_heads * spec.padded_slot
    K = tl.unpack(tl.load(slot, shape=(heads, n, HALF), strides=(spec.padded_slot, pitch, 1)), "fp4e2m1")
    k_scale = tl.load(slot + K_SCALES, shape=(heads, n, SCALES), strides=(spec.padded_slot, pitch, 1), dtype="e8m0",
                      bitcast=True)  # fmt: skip
    v_scale = tl.load(slot + V_SCALES, shape=(heads, SCALES, 1, n), strides=(spec.padded_slot, 1, 1, pitch),
                      dtype="e8m0", bitcast=True)  # fmt: skip
    width = uq.SCALE_GROUP // 2
    codes = tl.load(slot + V_CODES, shape=(heads, SCALES, n, width), strides=(spec.padded_slot, width, pitch, 1))
    V = tl.unpack(tl.reshape(codes, (heads * SCALES, n, width)), "fp4e2m1")
    s = tl.dot_scaled(K, k_scale, Q, None, block=uq.SCALE_GROUP) * spec.decode.scale
    m_new = tl.maximum(m, tl.max(s, axis=1))
    keep, p = tl.exp2((m - m_new) * LOG2E), tl.exp2((s - m_new) * LOG2E)
    weight = tl.reshape(tl.trans(tl.cast(p, "bf16")), (heads, 1, group, n)) * tl.cast(v_scale, "bf16")
    kept = acc * tl.reshape(keep, (heads, 1, group, 1))
    products = tl.dot(tl.reshape(weight, (heads * SCALES, group, n)), V, acc=tl.reshape(kept, (-1, *acc.shape[2:])))
    tl.copy_to(l, l * keep + tl.sum(p, axis=1))
    tl.copy_to(acc, tl.reshape(products, acc.shape))
    tl.copy_to(m, m_new)


# ---------------------------------------------------------------- the original's launches
def decode_grid(spec: UltraQuantBenchSpec):
    """Return (sequences, key/value heads, partitions)."""
    refuse_spatial(spec)
    return spec.decode.grid()


def reduce_grid(spec: UltraQuantBenchSpec):
    """Return (sequences, query heads, parts of a head)."""
    refuse_spatial(spec)
    seqs, heads, _ = spec.decode.grid()
    return seqs, heads * spec.query_group_size, D // REDUCED_AT_ONCE


# ---------------------------------------------------------------- tensors
class Results(NamedTuple):
    """What the partitions store; layouts are the original's."""

    out: kb.Tensor
    exp_sums: kb.Tensor
    max_logits: kb.Tensor


def arguments(spec: UltraQuantBenchSpec, machine: kb.Machine, arrays: Arrays | None):
    """Lay out the tensors: of the faithful form one in each memory, to its favour; of the spatial one as it splits."""
    parts = (1, 1) if spec.form == "faithful" else (size(spec.split_seqs, machine), size(spec.split_tokens, machine))
    tables, num_blocks = place_blocks(spec, *parts)
    by_seq, by_block = kb.replicated(), kb.replicated()
    if spec.form == "spatial":
        by_seq = kb.split(0, over=spec.split_seqs)
        by_block = kb.split(0, over=(*spec.split_seqs, *spec.split_tokens))
    if arrays is None:
        query = kb.shape_only(spec.input_shapes["query"], "bf16", machine, by_seq)
        cache = kb.shape_only(spec.decode.cache_shape(num_blocks), "u8", machine, by_block)
    else:
        query = kb.tensor(arrays["query"], machine, by_seq)
        cache = kb.tensor(filled(spec, arrays, tables, num_blocks), machine, by_block)
    lengths, held = np.array(spec.lengths, np.int32), arrays is not None
    first = dict.fromkeys((*spec.split_tokens, *spec.idle_levels), 0)
    results = partials(spec, machine, held)
    if spec.form == "spatial":
        results = (result(spec, machine, held, by_seq.on(**first)),)
    return (query, cache, kb.tensor(tables, machine), kb.tensor(lengths, machine), spec, *results), results


def size(levels, machine: kb.Machine):
    """Parts that a split over ``levels`` makes."""
    sizes = {"sip": machine.n_sips, "cube": machine.cubes_per_sip, "pe": machine.pes_per_cube}
    return math.prod(sizes[level] for level in levels)


def filled(spec: UltraQuantBenchSpec, arrays: Arrays, tables, num_blocks):
    """Quantise the tokens into a cache."""
    cache = uq.empty_cache(spec.decode, num_blocks)
    ends = np.cumsum(spec.lengths)
    for row, n, end in zip(tables, spec.lengths, ends, strict=True):
        k, v = (arrays[name][end - n : end] for name in ("keys", "values"))
        uq.store_tokens(spec.decode, cache, k, v, uq.slot_mapping(spec.decode, row, n))
    return cache


def partials(spec: UltraQuantBenchSpec, machine: kb.Machine, held: bool):
    """Make the tensors of the partitions' results."""
    make = kb.empty if held else kb.shape_only
    return Results(*(make(a.shape, a.dtype, machine, kb.on()) for a in spec.decode.signature()[:3]))


def result(spec: UltraQuantBenchSpec, machine: kb.Machine, held: bool, placement):
    """Make the tensor of the output."""
    return (kb.empty if held else kb.shape_only)(spec.input_shapes["query"], "bf16", machine, placement)


def stored(results: Results):
    """Return what the partitions have stored."""
    return uq.Partials(*(results[i].numpy() for i in range(3)))


def output(spec: UltraQuantBenchSpec, results):
    """Return the output; that of the faithful form is merged here as the original's reducer does."""
    return uq.reduce_partitions(stored(results)) if spec.form == "faithful" else results[0].numpy()


def reference(spec: UltraQuantBenchSpec, arrays: Arrays):
    """Attention in float64 over what the cache holds, with the queries that the kernel rounds."""
    tables, num_blocks = place_blocks(spec)
    cache = filled(spec, arrays, tables, num_blocks)
    return uq.decode_over_cache(spec.decode, arrays["query"], cache, tables, spec.lengths)


def reduce_arguments(spec: UltraQuantBenchSpec, machine: kb.Machine, arrays: Arrays | None):
    """Lay out what the decode kernel leaves, computed by the bit-faithful reference, and the output."""
    results = partials(spec, machine, False)
    if arrays is not None:
        tables, num_blocks = place_blocks(spec)
        cache = filled(spec, arrays, tables, num_blocks)
        left = uq.decode_partitions(spec.decode, arrays["query"], cache, tables, spec.lengths)
        values = (left.out, left.exp_sums, left.max_logits)
        results = Results(*(kb.tensor(array, machine, kb.on()) for array in values))
    o = result(spec, machine, arrays is not None, kb.on())
    return (*results, o, spec), o


LENGTHS = {"num_seqs": 7, "seq_lens": "1,15,16,17,255,256,257"}
SPATIAL = {"form": "spatial"}
BENCHES = [
    Bench(
        name="ultraquant_decode",
        summary="decode over UltraQuant's paged 4-bit cache, as the original does it or spread over a mesh",
        spec=UltraQuantBenchSpec,
        kernel=decode,
        arguments=arguments,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance("bf16"),
        cases=(
            Case(settings={}),
            Case(settings={**SPATIAL}),
            Case(settings={**LENGTHS, "query_group_size": 6, "num_kv_heads": 2, "block_order": "shuffled"}),
            Case(settings={**LENGTHS, **SPATIAL, "query_group_size": 6, "num_kv_heads": 2, "kv_block_size": 16}),
            Case(settings={**LENGTHS, **SPATIAL, "split_seqs": "cube", "split_tokens": "pe", "reduction": "tree"}),
            Case(settings={"seq_lens": 2000, "num_partitions": 4, "tile_groups_per_partition": 2}, topology="pe1"),
            Case(settings=LENGTHS, topology="mi355x"),
        ),
        grid=decode_grid,
        implementation=UltraQuantImplementation,
    ),
    Bench(
        name="ultraquant_reduce",
        summary="the second launch of UltraQuant decode: merging the partitions",
        spec=UltraQuantBenchSpec,
        kernel=reduce,
        arguments=reduce_arguments,
        reference=reference,
        output=lambda spec, o: o.numpy(),
        tolerance=lambda spec: tolerance("bf16"),
        cases=(
            Case(settings={}),
            Case(settings={**LENGTHS, "query_group_size": 16}),
            Case(settings=LENGTHS, topology="mi355x"),
        ),
        grid=reduce_grid,
        implementation=MergeImplementation,
    ),
]
