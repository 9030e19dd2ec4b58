"""Absorbed MLA decode on a grid of workgroups, as a GPU runs it: split over the keys, in two launches.

All query heads attend to one cache row a token: a latent vector, which is key and value at once, and a rotary part,
which is only key. A workgroup serves a block of heads and one split of the keys; the workgroups of the blocks of one
sequence read the same rows. ``mla_decode`` is the same call for a mesh.
"""

from __future__ import annotations

import numpy as np

import kernbench as kb
from kernbench.bench import Arrays, Case, GridBench, GridLaunch
from kernbench.specs.correctness import tolerance
from kernbench.specs.grid import LatentDecodeSpec
from kernbench.specs.implementation import MlaImplementation
from kernbench.specs.reference import attention_reference
from kernbench.split_grid import merge_splits, merging, partials


# ---------------------------------------------------------------- the kernels
def mla_partial(q, kv, o_part, m_part, l_part, spec, chosen, *, tl):
    """Attend with a block of heads to one split; store O (not divided), m and l. Grid: (batch x blocks, splits).

    ``q`` is (batch x blocks, BLOCK_H, d) with the last block of a sequence padded, ``kv`` is (batch, token, d).
    """
    pid, split = tl.program_id(0), tl.program_id(1)
    blocks = -(-spec.h_q // chosen.BLOCK_H)
    b = pid // blocks
    rows, d, latent, rope, tile = chosen.BLOCK_H, spec.d_head, spec.d_latent, spec.d_rope, chosen.BLOCK_N
    rotary = latent * q.dtype.nbytes  # where the rotary part of a row begins
    Q_latent = tl.load(q.at(pid), shape=(rows, latent), strides=(d, 1))
    Q_rope = tl.load(q.at(pid) + rotary, shape=(rows, rope), strides=(d, 1))
    length = chosen.split_length(spec.S_kv)
    first = split * length
    keys = tl.maximum(tl.minimum(first + length, spec.S_kv) - first, 0)  # none in a trailing split that is empty
    m, l, acc = tl.full((rows, 1), float("-inf")), tl.zeros((rows, 1)), tl.zeros((rows, latent))
    for start in range(0, keys, tile):
        n = min(tile, int(keys) - start)
        row = kv.at(b, first + start)
        with tl.scratch_scope(buffers=chosen.stages):
            C = tl.load(row, shape=(tile, latent), strides=(d, 1), valid=(n,))
            R = tl.load(row + rotary, shape=(rope, tile), strides=(1, d), valid=(rope, n))  # a true transpose
            s = tl.dot(Q_rope, R, acc=tl.dot(Q_latent, tl.trans(C))) * spec.qk_scale
            s = tl.where(tl.reshape(tl.arange(0, tile), (1, tile)) < n, s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            p, keep = tl.exp2(s - m_new), tl.exp2(m - m_new)
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            tl.copy_to(acc, tl.dot(tl.cast(p, spec.dtype), C, acc=acc * keep))
            tl.copy_to(m, m_new)
    tl.store(o_part.at(pid, split), acc)
    tl.store(m_part.at(pid, split), m)
    tl.store(l_part.at(pid, split), l)


def reduce_splits(o_part, m_part, l_part, o, buffers, *, tl):
    """Merge the splits of one query head. Grid: (batch x blocks, BLOCK_H)."""
    merge_splits(o_part, m_part, l_part, o, buffers, tl=tl)


# ---------------------------------------------------------------- its launches
def launches(spec: LatentDecodeSpec, chosen: MlaImplementation, machine: kb.Machine, arrays: Arrays | None):
    """Return the two launches, and the tensor of results (batch x blocks, BLOCK_H, d_latent)."""
    blocks, held = -(-spec.h_q // chosen.BLOCK_H), arrays is not None
    heads, rows = spec.batch * blocks, chosen.BLOCK_H
    if held:
        padded = np.zeros((spec.batch, blocks * rows, spec.d_head), arrays["q"].dtype)
        padded[:, : spec.h_q] = arrays["q"][:, 0]
        q = kb.tensor(padded.reshape(heads, rows, spec.d_head), machine)
        kv = kb.tensor(arrays["kv"], machine)
        o = kb.empty((heads, rows, spec.d_latent), spec.dtype, machine)
    else:
        q = kb.shape_only((heads, rows, spec.d_head), spec.dtype, machine)
        kv = kb.shape_only(spec.input_shapes["kv"], spec.dtype, machine)
        o = kb.shape_only((heads, rows, spec.d_latent), spec.dtype, machine)
    parts = partials(heads, rows, spec.d_latent, chosen.splits, machine, held)
    first = GridLaunch(
        kernel=mla_partial, grid=(heads, chosen.splits), args=(q, kv, *parts, spec, chosen), implementation=chosen
    )
    return [first, merging(reduce_splits, parts, o, chosen)], o


def output(spec: LatentDecodeSpec, o: kb.Tensor):
    """Return the results as ``(batch, 1, h_q, d_latent)``, without the rows of padding."""
    return o.numpy().reshape(spec.batch, 1, -1, spec.d_latent)[:, :, : spec.h_q]


def reference(spec: LatentDecodeSpec, arrays: Arrays):
    """The right result in float64: attention with one key/value head, whose values are the latents."""
    kv = arrays["kv"][:, :, None]
    return attention_reference(arrays["q"], kv, kv[..., : spec.d_latent], spec.scale)


def case(inputs="random", **settings):
    """One check, on the machine that these kernels are for."""
    return Case(settings=settings, topology="h200", inputs=inputs)


SMALL = {"h_q": 3, "d_head": 40, "d_rope": 8, "BLOCK_N": 16}
BENCHES = [
    GridBench(
        name="mla_decode_grid",
        summary="absorbed MLA decode, split over the keys, as two launches of workgroups, for GPU-like machines",
        spec=LatentDecodeSpec,
        implementation=MlaImplementation,
        launches=launches,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        family="mla_decode",
        cases=(
            case(),
            case(S_kv=700, h_q=128, splits=3),
            case(S_kv=500, h_q=20, batch=2, dtype="f16", BLOCK_N=64),
            case(S_kv=1, **SMALL),
            case(S_kv=77, splits=5, **SMALL),
            case(S_kv=77, splits=9, BLOCK_H=32, batch=3, **SMALL),
        ),
    )
]
