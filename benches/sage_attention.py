"""Sage attention: f16 or bf16 queries against keys and values in f16/bf16, fp8, i8 or packed i4.

``form="faithful"`` is the division of work of the rocke kernel: 16 query rows of a head with matrix instructions, 16
keys at a time, or one row of a head with vector operations. ``form="spatial"`` is one for a mesh; it loads narrow keys
and values and, where they are fp8, hands them to the matrix engine as they are.
"""

from __future__ import annotations

import numpy as np

import kernbench as kb
from kernbench.bench import Arrays, Bench, Case
from kernbench.collectives import programs_over, rank_over
from kernbench.fmha_tiles import Softmax, Tensors, grid_of, mfma_program, programs, result_of, tiles_of_queries
from kernbench.specs.correctness import tolerance
from kernbench.specs.fmha import SageSpec
from kernbench.specs.fmha_inputs import sage_inputs
from kernbench.specs.implementation import WaveImplementation
from kernbench.specs.rocke import sage_reference
from kernbench.specs.rocke.arch import find_arch
from kernbench.specs.rocke.layouts import fp8_dtype, read_scales
from kernbench.specs.rocke.sage import CODEBOOK_ENTRIES
from kernbench.split_kv import LOWEST

WARP_KEYS = 128
"""Keys that the vector operations of a row handle at once; the original takes one after the other."""


def sage_attention(q, k, v, o, spec, q_scale, k_scale, *codebooks, tl):
    """Attend as ``spec.form`` says; the tensors are those of :func:`arguments`."""
    if spec.form == "spatial":
        spatial(q, k, v, o, spec, q_scale, k_scale, codebooks, tl=tl)
    elif spec.rocke().route() == "mfma":
        by_tile(q, k, v, o, spec, q_scale, k_scale, tl=tl)
    else:
        by_row(q, k, v, o, spec, q_scale, k_scale, codebooks, tl=tl)


# ---------------------------------------------------------------- faithful, MFMA body
def by_tile(q, k, v, o, spec, q_scale, k_scale, *, tl):
    """Go through this PE's programs of 16 rows."""
    rocke = spec.rocke()
    for tile, head in programs(spec.T_q // 16, spec, tl=tl):
        factor = scale_at(q_scale, rocke.q_scale, head, 16 * tile, tl=tl)
        if spec.k_scale == "per_head":
            factor = factor * scale_at(k_scale, rocke.k_scale, head // spec.group, 0, tl=tl)
        factor = factor * spec.scale_log2
        query = tl.reshape(tl.arange(0, 16), (16, 1)) + 16 * tile
        place = tl.reshape(tl.arange(0, 16), (1, 16))

        def scores(s, key, factor=factor, head=head, query=query, place=place):
            s = s * factor
            if spec.k_scale == "per_block":
                s = s * scale_at(k_scale, rocke.k_scale, head // spec.group, key, tl=tl)
            return s if spec.mask_mode == "none" else tl.where(visible(query, place + key, spec), s, LOWEST)

        mfma_program(q, k, v, o, spec, tile, head, scores, tl=tl)


def scale_at(scales, layout, head, token, *, tl):
    """Load the one scale of a token of a head."""
    block = token // layout.scale_block * layout.stride_block if layout.layout == "per_block" else 0
    return tl.load(scales.at(head * layout.stride_head + block), shape=(1, 1))


def visible(query, key, spec):
    """Whether queries may see keys, by position."""
    return key <= query if spec.mask_mode == "causal" else query - key < spec.sliding_window


# ---------------------------------------------------------------- faithful, warp body
def by_row(q, k, v, o, spec, q_scale, k_scale, codebooks, *, tl):
    """Go through this PE's programs of one row."""
    layouts, d = spec.rocke(), spec.d_head
    for row, head in programs(spec.T_q, spec, tl=tl):
        tables = [tl.load(table, shape=(table.rows,)) for table in codebooks] or (None, None)
        Q = tl.cast(tl.load(q.at(row, head), shape=(1, d)), "f32")
        row_scale = scale_at(q_scale, layouts.q_scale, head, row, tl=tl)
        m, l, acc = tl.full((1, 1), LOWEST), tl.zeros((1, 1)), tl.zeros((1, d))
        for key, n in runs_of_keys(layouts.k_scale, spec):
            with tl.scratch_scope(buffers=spec.buffers):
                K = load_keys(k, key, n, head // spec.group, tables[0], spec, tl=tl)
                V = load_keys(v, key, n, head // spec.group, tables[1], spec, tl=tl)
                factor = row_scale * scales_of(k_scale, layouts.k_scale, head // spec.group, key, n, tl=tl)
                s = tl.sum(Q * K, axis=1) * spec.scale_log2 * factor
                if spec.mask_mode != "none":
                    keys = tl.reshape(tl.arange(0, n), (n, 1)) + key
                    s = tl.where(visible(tl.full((1, 1), row, "i32"), keys, spec), s, LOWEST)
                m_new = tl.maximum(m, tl.max(s, axis=0))
                keep, p = tl.exp2(m - m_new), tl.exp2(s - m_new)
                tl.copy_to(l, l * keep + tl.sum(p, axis=0))
                tl.copy_to(acc, acc * keep + tl.sum(p * V, axis=0))
                tl.copy_to(m, m_new)
        tl.store(o.at(row, head), acc * (1 / l))


def runs_of_keys(layout, spec):
    """Yield (first key, keys) of runs that hold whole blocks of scales, or a part of one."""
    block = layout.scale_block if layout.layout == "per_block" else spec.S_kv
    start = 0
    while start < spec.S_kv:
        n = min(WARP_KEYS, spec.S_kv - start)
        n = n // block * block or min(n, block - start % block)
        yield start, n
        start += n


def load_keys(x, key, n, head, table, spec, *, tl):
    """Load the keys or values of a run, dequantised."""
    width = x.shape[2]
    codes = tl.load(x.at(key, head), shape=(n, width), strides=(spec.h_kv * width, 1))
    return tl.cast(codes, "f32") if table is None else tl.lookup(table, index_of(codes, tl=tl))


def index_of(codes, *, tl):
    """Turn codes into places of the codebook: i8 from -128 on, bytes of packed i4 from -8 on."""
    if codes.dtype.name == "i8":
        return tl.cast(codes, "i16") + 128
    return tl.cast(tl.unpack(codes, "i4"), "i8") + 8


def scales_of(scales, layout, head, key, n, *, tl):
    """Load the scales of a run of keys: (keys, 1), or (1, 1) if they share one."""
    if layout.layout == "per_head" or n <= layout.scale_block:
        return scale_at(scales, layout, head, key, tl=tl)
    first = scales.at(head * layout.stride_head + key // layout.scale_block * layout.stride_block)
    blocks = n // layout.scale_block
    tile = tl.load(first, shape=(blocks, layout.scale_block), strides=(layout.stride_block, 0))
    return tl.reshape(tile, (n, 1))


# ---------------------------------------------------------------- spatial
def spatial(q, k, v, o, spec, row_scale, key_scale, codebooks, *, tl):
    """Go through this PE's tiles of queries, and for each through the keys of this CUBE that some query may see."""
    tables = [tl.cast(tl.load(table, shape=(table.rows,)), spec.dtype) for table in codebooks] or (None, None)
    for head, token, tokens in tiles_of_queries(spec, tl=tl):
        rows = tokens * spec.group
        Q = tl.load(q.at(head, token), shape=(rows, spec.d_head))
        factor = tl.load(row_scale.at(head, token), shape=(rows, 1))
        query = tl.reshape(tl.arange(0, rows), (rows, 1)) // spec.group + token
        softmax = Softmax(rows, spec.d_head, spec, tl)
        for block, first, n, is_whole in blocks_seen(k, token, tokens, spec, tl=tl):
            with tl.scratch_scope(buffers=spec.buffers):
                s = tl.dot(Q, transposed_keys(k.at(block, head), n, tables[0], spec, tl=tl)) * factor
                if spec.k_scale == "per_block":
                    s = s * tl.load(key_scale.at(block, head), shape=(1, n))
                seen = None if is_whole else visible(query, tl.reshape(tl.arange(0, n), (1, n)) + first, spec)
                softmax.absorb(s, values(v.at(block, head), n, tables[1], spec, tl=tl), seen)
        softmax.finish(o.at(head, token))


def blocks_seen(k, token, tokens, spec, *, tl):
    """Yield (block, first key, keys, whether all queries see all of them) of the blocks that some query may see."""
    parts, part = programs_over(spec.split_S_kv, tl=tl), rank_over(spec.split_S_kv, tl=tl)
    for block in range(k.shape[0]):
        first = (block * parts + part) * spec.key_block
        n = spec.key_block
        if spec.S_kv % n and first + n > spec.S_kv:
            n = spec.S_kv % n
        last_token, last = token + tokens - 1, first + n - 1
        if spec.mask_mode == "causal":
            if first > last_token:
                return
            yield block, first, n, last <= token
        elif spec.mask_mode == "sliding_window":
            if token - last < spec.sliding_window:
                yield block, first, n, last_token - first < spec.sliding_window
        else:
            yield block, first, n, True


def transposed_keys(pointer, n, table, spec, *, tl):
    """Load keys as (d, n); i8 is dequantised here, fp8 by the matrix engine."""
    if table is None:
        return tl.load(pointer, shape=(spec.d_head, n), strides=(1, spec.d_head))
    if spec.quant_mode == "i8_fp8_bf16":
        codes = tl.load(pointer, shape=(spec.d_head, n), strides=(1, spec.d_head))
        return tl.lookup(table, tl.bitcast(codes, "u8"))
    return values(pointer, n, table, spec, tl=tl).T


def values(pointer, n, table, spec, *, tl):
    """Load values as (n, d); the codebook of i8 is turned so that the bytes are places in it."""
    if table is None:
        return tl.load(pointer, shape=(n, spec.d_head))
    if spec.quant_mode == "i8_fp8_bf16":
        return tl.lookup(table, tl.bitcast(tl.load(pointer, shape=(n, spec.d_head)), "u8"))
    return tl.lookup(table, index_of(tl.load(pointer, shape=(n, spec.d_head // 2)), tl=tl))


# ---------------------------------------------------------------- its tensors
def arguments(spec: SageSpec, machine: kb.Machine, arrays: Arrays | None):
    """Quantise and lay out; ``arrays`` may also hold ``q_scale``, ``k_scale``, ``codebook_k`` and ``codebook_v``."""
    made = Tensors(spec, machine, arrays is not None)
    given = {} if arrays is None else sage_inputs(spec, arrays)
    k, v = (as_held(given.get(name), spec) for name in "kv")
    width, kind = spec.d_head, {"fp16_bf16": spec.dtype, "i8_fp8_bf16": "i8", "i4_fp8_bf16": "u8"}.get(spec.quant_mode)
    kind = kind or ("fp8e4m3fnuz" if find_arch(spec.arch).fp8_format == "e4m3fnuz" else "fp8e4m3")
    width = width // 2 if kind == "u8" else width
    place = faithful_tensors if spec.form == "faithful" else spatial_tensors
    q, k, v, scales = place(made, given, k, v, width, kind)
    o = made.result()
    return (q, k, v, o, spec, *scales, *codebooks(made, given)), o


def as_held(x, spec):
    """Give fp8 bytes their format."""
    return x if x is None or spec.quant_mode != "fp8_bf16" else x.view(fp8_dtype(spec.arch))


def codebooks(made, given):
    """Place the two codebooks; for the spatial form those of i8 are turned by half."""
    spec = made.spec
    entries = CODEBOOK_ENTRIES.get(spec.quant_mode)
    turn = 128 if spec.form == "spatial" and entries == 256 else 0
    tables = [given.get(name) for name in ("codebook_k", "codebook_v")] if entries else []
    return [made.near(None if t is None else np.roll(t, turn), (entries,), "f32") for t in tables]


def faithful_tensors(made, given, k, v, width, kind):
    """Place everything as the original reads it, ``(token, head, d)`` and flat scales, in every memory."""
    spec = made.spec
    rocke, keys = spec.rocke(), (spec.S_kv, spec.h_kv, width)
    q = made.near(given.get("q"), (spec.T_q, spec.h_q, spec.d_head), spec.dtype)
    sizes = (spec.h_q * rocke.q_scale.blocks(spec.T_q), spec.h_kv * rocke.k_scale.blocks(spec.S_kv))
    names = ("q_scale", "k_scale")
    scales = [made.near(given.get(name), (size,), "f32") for name, size in zip(names, sizes, strict=True)]
    return q, made.near(k, keys, kind), made.near(v, keys, kind), scales


def spatial_tensors(made, given, k, v, width, kind):
    """Split keys and values; all factors of a row's scores become one, those of a key lie with the key."""
    spec = made.spec
    rocke, rows, keys = spec.rocke(), None, None
    if given:
        rows = read_scales(rocke.q_scale, given["q_scale"], spec.h_q, spec.T_q) * np.float32(spec.scale_log2)
        keys = read_scales(rocke.k_scale, given["k_scale"], spec.h_kv, spec.S_kv).T[:, :, None]
        rows = (rows * np.repeat(keys[0], spec.group, 0) if spec.k_scale == "per_head" else rows).T[:, :, None]
    q = made.queries(given.get("q"), spec.d_head, spec.dtype)
    scales = [made.queries(rows, 1, "f32"), made.blocks_of_keys(keys, 1, "f32")]
    return q, made.blocks_of_keys(k, width, kind), made.blocks_of_keys(v, width, kind), scales


def reference(spec: SageSpec, arrays: Arrays):
    """The right result in float64, of the quantised numbers."""
    given = sage_inputs(spec, arrays)
    empty = "zero" if spec.form == "spatial" else "mean"
    return sage_reference(spec.rocke(), **given, scale_log2=spec.scale_log2, arch=spec.arch, empty_rows=empty)[None]


def allowed(spec: SageSpec):
    """As for any attention; twice that where the spatial form rounds codebooks to the format of q."""
    rounds = spec.form == "spatial" and spec.quant_mode in CODEBOOK_ENTRIES
    return tolerance(spec.dtype) * (2 if rounds else 1)


FORMS = ("faithful", "spatial")
OTHER_MACHINES = tuple(
    Case(settings={"T_q": 32, "S_kv": 80, "h_q": 2, "h_kv": 1, "TILE_S_KV": 16, "form": form}, topology=topology)
    for topology in ("pe1", "sip4_grid4x4_pe8")
    for form in FORMS
)
I4 = {"quant_mode": "i4_fp8_bf16", "d_head": 128, "h_q": 2, "h_kv": 1, "T_q": 16, "S_kv": 256}
CASES = (
    {"quant_mode": "fp16_bf16", "mask_mode": "causal"},
    {"quant_mode": "fp8_bf16", "arch": "gfx942", "k_scale": "per_head"},
    {"quant_mode": "fp8_bf16", "dtype": "bf16", "mask_mode": "sliding_window", "sliding_window": 60, "T_q": 64},
    {"quant_mode": "i8_fp8_bf16", "T_q": 24, "S_kv": 200, "q_scale": "per_block", "q_scale_block": 8},
    {**I4, "mask_mode": "causal"},
)
ON_GPUS = tuple(
    Case(settings={"form": "faithful", "T_q": 32, "S_kv": 80, **settings}, topology="mi355x")
    for settings in ({"mask_mode": "causal"}, {"quant_mode": "i8_fp8_bf16", "T_q": 5, "h_q": 2, "h_kv": 1})
)
BENCHES = [
    Bench(
        name="sage_attention",
        summary="attention with keys and values in f16, fp8, i8 or i4, as on a GPU or a mesh",
        spec=SageSpec,
        kernel=sage_attention,
        arguments=arguments,
        reference=reference,
        output=result_of,
        tolerance=allowed,
        cases=(
            *(Case(settings={**settings, "form": form}) for settings in CASES for form in FORMS),
            *OTHER_MACHINES,
            *ON_GPUS,
        ),
        grid=grid_of,
        implementation=WaveImplementation,
    )
]
