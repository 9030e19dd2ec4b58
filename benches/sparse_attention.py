"""Block-sparse attention: Jenga (a bitmap of blocks of keys for each block of queries) and VSA (a list of them).

``form="faithful"`` is the division of work of the rocke kernels: 16 query rows of a head, 16 keys at a time, *all*
keys; the mask only replaces scores. ``form="spatial"`` is one for a mesh, which loads the kept blocks alone: the
launcher makes, for each part of the keys, a list of the blocks that a tile of queries keeps there.
"""

from __future__ import annotations

import numpy as np

import kernbench as kb
from kernbench.bench import Arrays, Bench, Case
from kernbench.fmha_tiles import (
    Softmax,
    Tensors,
    grid_of,
    mfma_program,
    parts_of_keys,
    programs,
    result_of,
    tiles_of_queries,
)
from kernbench.specs.correctness import tolerance
from kernbench.specs.fmha import JengaSpec, SparseSpec, VsaSpec
from kernbench.specs.fmha_inputs import jenga_mask, kept_rows, vsa_lists
from kernbench.specs.implementation import WaveImplementation
from kernbench.specs.rocke import jenga_reference, vsa_reference
from kernbench.specs.rocke.sparsity import lut_from_bitmap
from kernbench.split_kv import LOWEST


def jenga_sparse(q, k, v, o, spec, *structure, tl):
    """Attend as ``spec.form`` says; the tensors are those of :func:`arguments`."""
    if spec.form == "spatial":
        spatial(q, k, v, o, spec, *structure, tl=tl)
        return
    (mask,) = structure
    for tile, head in programs(spec.T_q // 16, spec, tl=tl):

        def scores(s, key, row=16 * tile // spec.block_q):
            kept = tl.load(mask.at(row, key // spec.block_k), shape=(1, 1)) != 0
            return tl.where(kept, s * spec.scale_log2, LOWEST)

        mfma_program(q, k, v, o, spec, tile, head, scores, tl=tl)


def vsa_sparse(q, k, v, o, spec, *structure, tl):
    """Attend as ``spec.form`` says; the tensors are those of :func:`arguments`."""
    if spec.form == "spatial":
        spatial(q, k, v, o, spec, *structure, tl=tl)
        return
    lut, count = structure
    for tile, head in programs(spec.T_q // 16, spec, tl=tl):
        kept = blocks_kept(lut, count, 16 * tile // spec.block_q, spec, tl=tl)
        nothing = tl.zeros((1, 1), "i32")

        def scores(s, key, kept=kept, nothing=nothing):
            return tl.where(nothing < kept[key // spec.block_k], s * spec.scale_log2, LOWEST)

        mfma_program(q, k, v, o, spec, tile, head, scores, tl=tl)


def blocks_kept(lut, count, row, spec, *, tl):
    """Read a row of the list; return, for each block of keys, a per-PE integer that is above 0 if it is kept."""
    listed = tl.load_scalar(count.at(row))
    kept = [0] * (spec.S_kv // spec.block_k)
    for j in range(lut.shape[1]):
        block = tl.load_scalar(lut.at(row, j))
        counts = listed > j
        kept = [is_kept | counts & (block == b) for b, is_kept in enumerate(kept)]
    return kept


def spatial(q, k, v, o, spec, lists, counts, *, tl):
    """Go through this PE's tiles of queries, and for each through the blocks of this CUBE that it keeps."""
    n = min(spec.TILE_S_KV, spec.block_k)
    for head, token, tokens in tiles_of_queries(spec, tl=tl):
        rows, tile = tokens * spec.group, token // spec.query_tile
        Q = tl.load(q.at(head, token), shape=(rows, spec.d_head))
        softmax = Softmax(rows, spec.d_head, spec, tl)
        for j in range(tl.load_scalar(counts.at(0, tile))):
            block = tl.load_scalar(lists.at(0, tile, j))
            for start in range(0, spec.block_k, n):
                absorb_keys(softmax, Q, k, v, block, head, start, min(n, spec.block_k - start), spec, tl=tl)
        softmax.finish(o.at(head, token))


def absorb_keys(softmax, Q, k, v, block, head, start, n, spec, *, tl):
    """Take ``n`` keys of a block into the softmax."""
    with tl.scratch_scope(buffers=spec.buffers):
        K = tl.load(k.at(block, head, start), shape=(spec.d_head, n), strides=(1, spec.d_head))
        V = tl.load(v.at(block, head, start), shape=(n, spec.d_head))
        softmax.absorb(tl.dot(Q, K) * spec.scale_log2, V)


# ---------------------------------------------------------------- its tensors
def arguments(spec: SparseSpec, machine: kb.Machine, arrays: Arrays | None):
    """Lay out; ``arrays`` may also hold ``mask``, or ``block_lut`` and ``block_count``, instead of the spec's own."""
    made = Tensors(spec, machine, arrays is not None)
    q, k, v = (None if arrays is None else arrays[name][0] for name in "qkv")
    o = made.result()
    if spec.form == "spatial":
        q = made.queries(q, spec.d_head, spec.dtype)
        k, v = (made.blocks_of_keys(x, spec.d_head, spec.dtype) for x in (k, v))
        return (q, k, v, o, spec, *lists_by_part(kept_rows(spec, arrays), spec, machine)), o
    q = made.near(q, (spec.T_q, spec.h_q, spec.d_head), spec.dtype)
    k, v = (made.near(x, (spec.S_kv, spec.h_kv, spec.d_head), spec.dtype) for x in (k, v))
    structure = vsa_lists(spec, arrays) if isinstance(spec, VsaSpec) else (jenga_mask(spec, arrays),)
    return (q, k, v, o, spec, *(kb.tensor(x, machine) for x in structure)), o


def lists_by_part(kept, spec, machine):
    """Make, for each part of the keys, the list of its blocks that each tile of queries keeps, and their numbers."""
    count = parts_of_keys(spec, machine)
    parts = [kept[:, part::count] for part in range(count)]
    width = max(1, int(max(part.sum(axis=1).max(initial=0) for part in parts)))
    lists, counts = zip(*(lut_from_bitmap(part, width) for part in parts), strict=True)
    placement = kb.split(0, over=spec.split_S_kv)
    return kb.tensor(np.stack(lists), machine, placement), kb.tensor(np.stack(counts), machine, placement)


def reference(spec: SparseSpec, arrays: Arrays):
    """The right result in float64."""
    qkv = (arrays[name][0] for name in "qkv")
    empty = "zero" if spec.form == "spatial" else "mean"
    if isinstance(spec, VsaSpec):
        structure, function = vsa_lists(spec, arrays), vsa_reference
    else:
        structure, function = (jenga_mask(spec, arrays),), jenga_reference
    return function(spec.rocke(), *qkv, *structure, spec.scale_log2, arch=spec.arch, empty_rows=empty)[None]


SETTINGS = (
    {},
    {"T_q": 64, "S_kv": 512, "mask": "scores", "block_k": 32},
    {"T_q": 48, "S_kv": 256, "block_q": 1, "block_k": 16, "dtype": "bf16"},
)
FORMS = ("faithful", "spatial")
CASES = tuple(Case(settings={**some, "form": form}) for some in SETTINGS for form in FORMS) + tuple(
    Case(settings={"T_q": 32, "S_kv": 80, "h_q": 2, "h_kv": 1, "block_k": 16, "form": form}, topology=topology)
    for topology in ("pe1", "sip4_grid4x4_pe8")
    for form in FORMS
)
ON_GPU = {"T_q": 32, "S_kv": 80, "h_q": 2, "h_kv": 1, "block_k": 16, "form": "faithful"}
CASES += (Case(settings=ON_GPU, topology="mi355x"),)


def bench(name, summary, spec, kernel):
    """Make a bench of either family."""
    return Bench(
        name=name,
        summary=summary,
        spec=spec,
        kernel=kernel,
        arguments=arguments,
        reference=reference,
        output=result_of,
        tolerance=lambda spec: tolerance(spec.dtype),
        cases=CASES,
        grid=grid_of,
        implementation=WaveImplementation,
    )


BENCHES = [
    bench("jenga_sparse", "attention to blocks of keys, by a bitmap, as on a GPU or a mesh", JengaSpec, jenga_sparse),
    bench("vsa_sparse", "attention to blocks of keys, by a list, as on a GPU or a mesh", VsaSpec, vsa_sparse),
]
