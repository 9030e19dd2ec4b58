"""Decode with multi-head latent attention in its absorbed form (DeepSeek-V2 and later).

All query heads attend to one cache row a token: a latent vector, which is key and value at once, and a rotary part,
which is only key. The cache is split over the machine; each PE loads its rows once and uses them for the scores and for
the output. The partial results come together as in ``gqa_decode_long``. Inputs are random: those captured from a model
are q, k and v of grouped heads, which do not fit.
"""

from __future__ import annotations

import kernbench as kb
from kernbench.bench import Arrays, Bench, Case
from kernbench.collectives import LEVELS
from kernbench.specs.correctness import tolerance
from kernbench.specs.mla import MlaDecodeSpec
from kernbench.specs.reference import attention_reference
from kernbench.split_kv import LOWEST, finish, merged, result, stage


# ---------------------------------------------------------------- the kernel
def mla_decode(q, kv, o, spec, stage=None, *, tl):
    """Attend with this PE's query heads to this PE's cache rows, one sequence after the other.

    ``q`` is ``(batch, T_q, h_q, d_head)``, ``kv`` ``(batch, S_kv, d_head)`` and ``o`` ``(batch, T_q, h_q, d_latent)``.
    """
    heads = q.shape[2]
    if heads == 0 or any(tl.program_id(LEVELS[level][0]) > 0 for level in spec.idle_levels):
        return
    for batch in range(kv.shape[0]):
        with tl.scratch_scope():
            partial = attend(q.at(batch), kv, batch, spec.T_q * heads, heads, spec, tl=tl)
            finish(partial, o.at(0, batch) if spec.reduction == "none" else o.at(batch), stage, spec, tl=tl)


def attend(q_rows, kv, batch, rows, heads, spec, *, tl):
    """Sweep this PE's own cache rows: return the running maximum, sum and weighted latents of each query row."""
    d, latent, rope = spec.d_head, spec.d_latent, spec.d_rope
    rotary = latent * q_rows.dtype.nbytes  # where the rotary part of a row begins
    Q_latent = tl.load(q_rows, shape=(latent, rows), dtype=spec.dtype, strides=(1, d))  # true transposes
    Q_rope = tl.load(q_rows + rotary, shape=(rope, rows), dtype=spec.dtype, strides=(1, d))
    m, l, acc = tl.full((rows, 1), LOWEST, "f32"), tl.zeros((rows, 1), "f32"), tl.zeros((rows, latent), "f32")
    for start in range(0, kv.shape[1], spec.TILE_S_KV):
        n = min(spec.TILE_S_KV, kv.shape[1] - start)
        with tl.scratch_scope(buffers=spec.buffers):
            C = tl.load(kv.at(batch, start), shape=(n, latent), dtype=spec.dtype, strides=(d, 1))
            R = tl.load(kv.at(batch, start) + rotary, shape=(n, rope), dtype=spec.dtype, strides=(d, 1))
            # Keys times queries: turning round the scores is cheaper than turning round the keys, and C stays a value.
            s = tl.trans(tl.dot(R, Q_rope, acc=tl.dot(C, Q_latent))) * spec.scale
            first = kv.origin[1] + start
            masked = spec.causal and first + n - 1 > spec.S_kv - spec.T_q  # some query may not see this tile's last key
            if masked:
                seen = visible(first, n, rows, heads, spec, tl=tl)
                s = tl.where(seen, s, LOWEST)
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            keep, p = tl.exp(m - m_new), tl.exp(s - m_new)
            if masked:
                p = tl.where(seen, p, 0.0)  # a row that has seen no key yet has m_new = LOWEST, and exp(0) = 1
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            tl.copy_to(acc, acc * keep + tl.dot(tl.cast(p, spec.dtype), C))
            tl.copy_to(m, m_new)
    return m, l, acc


def visible(first_key, n, rows, heads, spec, *, tl):
    """Whether each query row (query token, head) may see each of ``n`` keys from ``first_key`` on."""
    token = tl.reshape(tl.arange(0, rows), (rows, 1)) // heads
    key = tl.reshape(tl.arange(0, n), (1, n)) + first_key
    return key <= token + (spec.S_kv - spec.T_q)


# ---------------------------------------------------------------- its tensors
def arguments(spec: MlaDecodeSpec, machine: kb.Machine, arrays: Arrays | None):
    """Lay the tensors out over the machine as the spec says."""
    heads = placement(spec)
    cache = kb.split(0, over=spec.split_batch).split(1, over=spec.split_S_kv)
    held = arrays is not None
    if held:
        q, kv = kb.tensor(arrays["q"], machine, heads), kb.tensor(arrays["kv"], machine, cache)
    else:
        shapes = spec.input_shapes
        q = kb.shape_only(shapes["q"], spec.dtype, machine, heads)
        kv = kb.shape_only(shapes["kv"], spec.dtype, machine, cache)
    o_shape = (spec.batch, spec.T_q, spec.h_q, spec.d_latent)
    o = result(o_shape, lambda before: placement(spec, before), spec, machine, held)
    return (q, kv, o, spec, *stage(spec.T_q * spec.h_q, spec.d_latent, spec, machine, held)), o


def placement(spec: MlaDecodeSpec, before=0):
    """Placement of the batch and of the query heads, behind ``before`` other axes."""
    return kb.split(before, over=spec.split_batch).split(before + 2, over=spec.split_heads)


def output(spec: MlaDecodeSpec, o: kb.Tensor):
    """Return the results as ``(batch, T_q, h_q, d_latent)``; ``reduction="none"`` is merged on the host, in float64."""
    return merged(o, spec)


def reference(spec: MlaDecodeSpec, arrays: Arrays):
    """The right result in float64: attention with one key/value head, whose values are the latents."""
    kv = arrays["kv"][:, :, None]
    return attention_reference(arrays["q"], kv, kv[..., : spec.d_latent], spec.scale, spec.causal)


SMALL = {"h_q": 3, "d_head": 40, "d_rope": 8, "TILE_S_KV": 8}
SIP4 = "sip4_grid4x4_pe8"
BENCHES = [
    Bench(
        name="mla_decode",
        summary="decode with absorbed multi-head latent attention over a cache that is split over the machine",
        spec=MlaDecodeSpec,
        kernel=mla_decode,
        arguments=arguments,
        reference=reference,
        output=output,
        tolerance=lambda spec: tolerance(spec.dtype),
        cases=(
            Case(settings={}),
            Case(settings={"S_kv": 2000, "h_q": 128, "split_heads": "pe", "split_S_kv": "cube", "buffers": 2}),
            Case(settings={"reduction": "tree", "T_q": 2, "dtype": "bf16"}),
            Case(settings={"reduction": "butterfly", "dtype": "f32"}),
            Case(settings={"reduction": "ring_all_reduce"}),
            Case(settings={"reduction": "none"}),
            Case(settings={**SMALL, "S_kv": 1}),
            Case(settings={**SMALL, "S_kv": 77, "T_q": 5, "split_heads": "cube", "split_S_kv": "pe"}),
            Case(settings={**SMALL, "S_kv": 77, "T_q": 5, "batch": 3, "split_batch": "pe", "split_S_kv": "cube"}),
            Case(settings={**SMALL, "S_kv": 300, "reduction": "butterfly"}, topology=SIP4),
            Case(settings={**SMALL, "S_kv": 64}, topology="pe1"),
        ),
    )
]
