"""Recorded kernels, executed: what a kernel's author writes gives the numbers that it should."""

from __future__ import annotations

import math

import numpy as np
import pytest
from by_hand import row, same_bits

from kernbench.collectives import reduce_to_root
from kernbench.errors import DeadlockError
from kernbench.execute import execute
from kernbench.machine import load_machine
from kernbench.placement import on, replicated, split
from kernbench.record import record
from kernbench.tensors import empty, tensor

GROUP, D = 4, 16
EVERYWHERE = ("sip", "cube", "pe")


def decode(q, k, v, o, tile, dtype, *, tl):
    """Decode attention of one KV head: every PE sweeps its rows, then the partials are chained to the root."""
    Q = tl.load(q, shape=(GROUP, D))
    m, l, acc = tl.full((GROUP, 1), -math.inf), tl.zeros((GROUP, 1)), tl.zeros((GROUP, D))
    for start in range(0, k.rows, tile):
        n = tl.minimum(tile, k.rows - start)
        with tl.scratch_scope(buffers=2):
            s = tl.dot(Q, tl.load(k.row(start), shape=(D, n), strides=(1, D))) * 0.25
            m_new = tl.maximum(m, tl.max(s, axis=-1))
            keep, p = tl.exp(m - m_new), tl.exp(s - m_new)
            tl.copy_to(l, l * keep + tl.sum(p, axis=-1))
            tl.copy_to(acc, acc * keep + tl.dot(tl.cast(p, dtype), tl.load(v.row(start), shape=(n, D))))
            tl.copy_to(m, m_new)

    def combine(a, b):
        m = tl.maximum(a[0], b[0])
        x, y = tl.exp(a[0] - m), tl.exp(b[0] - m)
        return m, a[1] * x + b[1] * y, a[2] * x + b[2] * y

    whole = reduce_to_root((m, l, acc), combine, EVERYWHERE, tl=tl)
    if whole is not None:
        tl.store(o, whole[2] / whole[1])


def softmax_attention(q, k, v):
    s = q.astype(np.float64) @ k.astype(np.float64).T * 0.25
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True) @ v.astype(np.float64)


@pytest.mark.parametrize("topology", ["pe1", "cube1_pe8", "row4_pe8", "sip4_grid4x4_pe8"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_decode_attention(topology, dtype):
    machine = load_machine(topology)
    rng = np.random.default_rng(machine.n_pes)
    rows = machine.n_pes * 5 + 3  # PEs of two lengths, and a last tile that is not full
    q = rng.standard_normal((GROUP, D)).astype(dtype)
    k, v = rng.standard_normal((2, rows, D)).astype(dtype)
    over = split(0, EVERYWHERE)
    outputs = []
    for batch in (1, 16):
        o = empty((GROUP, D), dtype, machine, on())
        args = (tensor(q, machine), tensor(k, machine, over), tensor(v, machine, over), o)
        trace = record(decode, machine, (*args, 2, "f16" if dtype == np.float16 else "f32"))
        report = execute(trace, batch=batch)
        assert report.commands == trace.n_commands
        outputs.append(o.numpy())
    assert same_bits(*outputs)
    wanted = softmax_attention(q, k, v)
    error = np.linalg.norm(outputs[0].astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert error < (1e-3 if dtype == np.float16 else 2e-6)


def test_composite_is_the_fused_first_half_of_decode():
    machine = row(4)
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((GROUP, D)).astype(np.float16), rng.standard_normal((4 * 12, D)).astype(np.float16)
    shift = rng.standard_normal((GROUP, 1)).astype(np.float32)
    p, top = (
        empty((4 * GROUP, 12), "f16", machine, split(0, "pe")),
        empty((4 * GROUP, 1), "f32", machine, split(0, "pe")),
    )

    def kernel(q, k, shift, p, top, *, tl):
        Q, less = tl.load(q, shape=(GROUP, D)), tl.load(shift, shape=(GROUP, 1))
        steps = [("scale", 0.25), ("max",), ("exp", less), ("cast", "f16")]
        e, row_max = tl.composite(Q, k, shape=(D, 12), strides=(1, D), epilogue=steps)
        tl.store(p, e)
        tl.store(top, row_max)

    tensors = (tensor(q, machine), tensor(k, machine, split(0, "pe")), tensor(shift, machine))
    execute(record(kernel, machine, (*tensors, p, top)))
    s = np.einsum("hd,pkd->phk", q.astype(np.float64), k.reshape(4, 12, D).astype(np.float64)) * 0.25
    np.testing.assert_allclose(p.numpy().reshape(4, GROUP, 12), np.exp(s - shift), rtol=2**-10)
    np.testing.assert_allclose(top.numpy().reshape(4, GROUP, 1), s.max(axis=2, keepdims=True), rtol=1e-5)


def test_paged_rows_found_through_a_table():
    machine = row(4)
    rng = np.random.default_rng(1)
    pages = rng.standard_normal((10, 3)).astype(np.float32)
    table = rng.permutation(10)[:8].astype(np.int32).reshape(4, 2)
    out = empty((8, 3), "f32", machine, split(0, "pe"))

    def kernel(pages, table, out, *, tl):
        for i in range(2):
            page = tl.load_scalar(table + 4 * i)
            tl.store(out.row(i), tl.load(pages.row(page), shape=(1, 3)))

    execute(
        record(kernel, machine, (tensor(pages, machine, replicated()), tensor(table, machine, split(0, "pe")), out))
    )
    np.testing.assert_array_equal(out.numpy(), pages[table.reshape(-1)])


def test_masks_conditions_and_program_ids_as_operands():
    machine = row(4)
    out = empty((4, 6), "f32", machine, split(0, "pe"))

    def kernel(out, *, tl):
        at = tl.arange(6)
        mine = tl.program_id(0)
        mask = (at >= mine) & ~(at == 4)
        tl.store(out, tl.where(mask, tl.cast(at, "f32") * 2.0 - mine, -math.inf))

    execute(record(kernel, machine, (out,)))
    wanted = [[2 * i - pe if i >= pe and i != 4 else -math.inf for i in range(6)] for pe in range(4)]
    np.testing.assert_array_equal(out.numpy(), wanted)


def test_a_dot_dtype_of_f16_rounds_products():
    machine = row(1)
    a, b = np.array([[1.0, 1.0]], np.float16), np.array([[2048.0], [1.0]], np.float16)

    def kernel(a, b, out, *, tl):
        tl.store(out, tl.cast(tl.dot(tl.load(a, shape=(1, 2)), tl.load(b, shape=(2, 1))), "f32"))

    for dot_dtype, wanted in (("f16", 2048.0), ("f32", 2049.0)):
        out = empty((1, 1), "f32", machine)
        execute(record(kernel, machine, (tensor(a, machine), tensor(b, machine), out), dot_dtype=dot_dtype))
        assert out.numpy().item() == wanted


def test_a_deadlock_shows_the_kernels_own_line():
    def kernel(out, *, tl):
        other = tl.recv(dir="intra_W" if tl.program_id(0) else "intra_E", shape=(1,), dtype="f32")
        tl.send(dir="intra_W" if tl.program_id(0) else "intra_E", src=other)

    machine = row(2)
    with pytest.raises(DeadlockError, match=r'test_end_to_end\.py:\d+: other = tl\.recv\(dir="intra_W"') as caught:
        execute(record(kernel, machine, (empty((2, 1), "f32", machine, split(0, "pe")),)))
    assert "both receive before they send" in str(caught.value)
