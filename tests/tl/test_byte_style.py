"""Kernels in the style of a flat instruction stream run unchanged: addresses are integers, loads conserve bytes.

``tl.load(ptr + bytes, shape=(d, n))`` reads the next ``d * n`` elements row by row, whatever the tensor's own shape is:
of an ``(n, d)`` tensor that is no transpose. The float64 reference here does the same to the same bytes.
"""

import numpy as np
import pytest

import kernbench as kb
from kernbench.errors import ChannelError

MACHINE = kb.load_machine("row4_pe8")  # 4 CUBEs in a row, each of 2 x 4 PEs
F16 = 2
TILE = 16


# ---------------------------------------------------------------- what all of them share
def merge(m, l, O, m_in, l_in, O_in, tl):
    m_new = tl.maximum(m, m_in)
    a, b = tl.exp(m - m_new), tl.exp(m_in - m_new)
    return m_new, l * a + l_in * b, O * a + O_in * b


def step(Q, k_at, v_at, n, d_head, tl):
    K = tl.load(k_at, shape=(d_head, n), dtype="f16")
    V = tl.load(v_at, shape=(n, d_head), dtype="f16")
    scores = tl.dot(Q, K)
    m = tl.max(scores, axis=-1)
    p = tl.exp(scores - m)
    return m, tl.sum(p, axis=-1), tl.dot(p, V)


def sweep(q_ptr, k_ptr, v_ptr, T_q, h_q, d_head, rows, tl):
    """Online softmax over this PE's rows: the first tile outside the loop, later ones in a scope."""
    Q = tl.load(q_ptr, shape=(T_q * h_q, d_head), dtype="f16")
    m, l, O = step(Q, k_ptr, v_ptr, min(TILE, rows), d_head, tl)
    for t in range(1, (rows + TILE - 1) // TILE):
        offset = t * TILE * d_head * F16
        with tl.scratch_scope():
            n = min(TILE, rows - t * TILE)
            m_new, l_new, O_new = merge(m, l, O, *step(Q, k_ptr + offset, v_ptr + offset, n, d_head, tl), tl)
            tl.copy_to(m, m_new)
            tl.copy_to(l, l_new)
            tl.copy_to(O, O_new)
    return m, l, O


def take(tiles, direction, tl):
    with tl.scratch_scope():
        received = [tl.recv(dir=direction, shape=tile.shape, dtype="f16") for tile in tiles]
        for old, new in zip(tiles, merge(*tiles, *received, tl), strict=True):
            tl.copy_to(old, new)


def give(tiles, direction, tl):
    for tile in tiles:
        tl.send(dir=direction, src=tile)


# ---------------------------------------------------------------- variants
def corner(q_ptr, k_ptr, v_ptr, o_ptr, T_q, S_kv, h_q, h_kv, d_head, C, P, *, tl):
    """Rows west, column north, CUBEs west: root at PE 0 of CUBE 0."""
    pe, cube = tl.program_id(axis=0), tl.program_id(axis=1)
    tiles = sweep(q_ptr, k_ptr, v_ptr, T_q, h_q, d_head, S_kv // (C * P), tl)
    if pe % 4 < 3:
        take(tiles, "intra_E", tl)
    if pe % 4 > 0:
        give(tiles, "intra_W", tl)
    if pe % 4 == 0:
        if pe // 4 == 0:
            take(tiles, "intra_S", tl)
        else:
            give(tiles, "intra_N", tl)
    if pe == 0:
        if cube < C - 1:
            take(tiles, "E", tl)
        if cube > 0:
            give(tiles, "W", tl)
        if cube == 0:
            _, l, O = tiles
            tl.store(o_ptr, O / l)


def center(q_ptr, k_ptr, v_ptr, o_ptr, T_q, S_kv, h_q, h_kv, d_head, C, P, *, tl):
    """From both ends to the middle, among PEs and among CUBEs: root at PE 6 of CUBE 2."""
    pe, cube = tl.program_id(axis=0), tl.program_id(axis=1)
    m, l, O = sweep(q_ptr, k_ptr, v_ptr, T_q, h_q, d_head, S_kv // (C * P), tl)
    row, col = pe // 4, pe % 4
    middle, C_mid = 2, C // 2
    if col < middle:
        if col > 0:
            take((m, l, O), "intra_W", tl)
        give((m, l, O), "intra_E", tl)
        return
    if col > middle:
        give((m, l, O), "intra_W", tl)
        return
    take((m, l, O), "intra_W", tl)
    take((m, l, O), "intra_E", tl)
    if row == 0:
        give((m, l, O), "intra_S", tl)
        return
    take((m, l, O), "intra_N", tl)
    if cube < C_mid:
        if cube > 0:
            take((m, l, O), "W", tl)
        give((m, l, O), "E", tl)
    elif cube > C_mid:
        if cube < C - 1:
            take((m, l, O), "E", tl)
        give((m, l, O), "W", tl)
    else:
        if C_mid > 0:
            take((m, l, O), "W", tl)
        if C_mid < C - 1:
            take((m, l, O), "E", tl)
        tl.store(o_ptr, O / l)


def snake(q_ptr, k_ptr, v_ptr, o_ptr, T_q, S_kv, h_q, h_kv, d_head, C, P, *, tl):
    """One path through all PEs of a CUBE, 0-3 then 7-4, and CUBEs eastward: root at PE 4 of the last CUBE."""
    pe, cube = tl.program_id(axis=0), tl.program_id(axis=1)
    tiles = sweep(q_ptr, k_ptr, v_ptr, T_q, h_q, d_head, S_kv // (C * P), tl)
    position = pe if pe < 4 else 11 - pe
    if position > 0:
        take(tiles, "intra_W" if position < 4 else "intra_N" if position == 4 else "intra_E", tl)
    if position < 7:
        give(tiles, "intra_E" if position < 3 else "intra_S" if position == 3 else "intra_W", tl)
        return
    if cube != 0:
        take(tiles, "W", tl)
    if cube != C - 1:
        give(tiles, "E", tl)
    else:
        tl.store(o_ptr, tiles[2] / tiles[1])


def cubes_first(q_ptr, k_ptr, v_ptr, o_ptr, T_q, S_kv, h_q, h_kv, d_head, C, P, *, tl):
    """Every PE chains with its like in the other CUBEs first; in CUBE 0 columns go south, then east: root at PE 7."""
    pe, cube = tl.program_id(axis=0), tl.program_id(axis=1)
    tiles = sweep(q_ptr, k_ptr, v_ptr, T_q, h_q, d_head, S_kv // (C * P), tl)
    has_east, has_west = cube + 1 < C, cube >= 1
    if has_east:
        take(tiles, "E", tl)
    if has_west:
        give(tiles, "W", tl)
    else:
        if pe in (0, 1, 2, 3):
            give(tiles, "intra_S", tl)
        else:
            take(tiles, "intra_N", tl)
            if pe != 4:
                take(tiles, "intra_W", tl)
            if pe != P - 1:
                give(tiles, "intra_E", tl)
            else:
                tl.store(o_ptr, tiles[2] / tiles[1])


def ragged(q_ptr, k_ptr, v_ptr, o_ptr, T_q, S_kv, h_q, h_kv, d_head, C, P, *, tl):
    """Global addresses into whole tensors, a ragged split by hand, and the corner's reduction."""
    rank, ranks = tl.program_id(axis=1) * P + tl.program_id(axis=0), C * P
    rows = S_kv // ranks + (rank < S_kv % ranks)
    first = rank * (S_kv // ranks) + min(rank, S_kv % ranks)
    begin = first * d_head * F16
    Q = tl.load(q_ptr, shape=(T_q * h_q, d_head), dtype="f16")
    tiles = (
        tl.full((T_q * h_q, 1), -60000, "f16"),
        tl.zeros((T_q * h_q, 1), "f16"),
        tl.zeros((T_q * h_q, d_head), "f16"),
    )
    for start in range(0, rows, TILE):
        with tl.scratch_scope(buffers=2):
            at = begin + start * d_head * F16
            new = merge(*tiles, *step(Q, k_ptr + at, v_ptr + at, min(TILE, rows - start), d_head, tl), tl)
            for old, value in zip(tiles, new, strict=True):
                tl.copy_to(old, value)
    row, col = divmod(tl.program_id(axis=0), 4)
    for here, last, toward, source in ((col, 3, "intra_W", "intra_E"), (row, 1, "intra_N", "intra_S"),
                                       (tl.program_id(axis=1), C - 1, "W", "E")):  # fmt: skip
        if here < last:
            take(tiles, source, tl)
        if here:
            return give(tiles, toward, tl)
    tl.store(o_ptr, tiles[2] / tiles[1])
    return None


# ---------------------------------------------------------------- the float64 reference
def reference(q, k, v, parts):
    """Softmax attention in which each tile of keys is read row by row as ``(d, n)``."""
    d = q.shape[1]
    scores = []
    for first, rows in parts:
        for start in range(first, first + rows, TILE):
            n = min(TILE, first + rows - start)
            scores.append(q.astype(np.float64) @ k[start : start + n].astype(np.float64).reshape(d, n))
    s = np.concatenate(scores, axis=1)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True) @ v.astype(np.float64)


def parts_of(S_kv, ranks):
    sizes = [S_kv // ranks + (r < S_kv % ranks) for r in range(ranks)]
    return [(sum(sizes[:r]), size) for r, size in enumerate(sizes)]


def sizes_and_arrays(S_kv, seed, T_q=2, h_q=4, d_head=32):
    random = np.random.default_rng(seed)
    q, k, v = ((random.standard_normal((n, d_head)) * 0.5).astype(np.float16) for n in (T_q * h_q, S_kv, S_kv))
    return (T_q, S_kv, h_q, 1, d_head, 4, 8), q, k, v


def error_of(kernel, S_kv, root, placement, seed=0, **options):
    sizes, q, k, v = sizes_and_arrays(S_kv, seed)
    o = kb.empty(q.shape, "f16", MACHINE, kb.on(**root))
    args = (kb.tensor(q, MACHINE), kb.tensor(k, MACHINE, placement), kb.tensor(v, MACHINE, placement), o, *sizes)
    result = kb.launch(kernel, MACHINE, args, **options)
    expected = reference(q, k, v, parts_of(S_kv, 32))
    return np.linalg.norm(o.numpy() - expected) / np.linalg.norm(expected), result


OWN_ROWS = kb.split(axis=0, over=("cube", "pe"))


@pytest.mark.parametrize("S_kv", [32 * 48, 32 * 40, 32 * 7])
@pytest.mark.parametrize(
    ("kernel", "root"),
    [
        (corner, {"cube": 0, "pe": 0}),
        (center, {"cube": 2, "pe": 6}),
        (snake, {"cube": 3, "pe": 4}),
        (cubes_first, {"cube": 0, "pe": 7}),
    ],
)
def test_chains_to_any_root_give_the_reference(kernel, root, S_kv):
    error, result = error_of(kernel, S_kv, root, OWN_ROWS, dot_dtype="f16")
    assert error < 5e-3
    assert result.makespan_ps > 0
    assert len(result.trace.classes) <= 24
    storing = [cls.pes.tolist() for cls in result.trace.classes if any(c.op == "store" for c in cls.commands)]
    assert storing == [[root["cube"] * 8 + root["pe"]]]


@pytest.mark.parametrize("S_kv", [32, 33, 1000, 1025, 1061])
def test_a_ragged_split_by_hand_gives_the_reference(S_kv):
    error, _ = error_of(ragged, S_kv, {"cube": 0, "pe": 0}, kb.replicated(), seed=S_kv, dot_dtype="f16")
    assert error < 5e-3


def test_the_reference_would_notice_a_true_transpose_and_a_dropped_tile():
    _, q, k, v = sizes_and_arrays(32 * 48, 0)
    right = reference(q, k, v, parts_of(len(k), 32))
    flat = k.reshape(-1, TILE, 32).transpose(0, 2, 1).reshape(len(k), 32)
    for wrong in (reference(q, flat, v, parts_of(len(k), 32)), reference(q, k[16:], v[16:], parts_of(len(k) - 16, 32))):
        assert np.linalg.norm(wrong - right) / np.linalg.norm(right) > 2e-2


def test_without_dot_dtype_the_error_says_what_to_do():
    with pytest.raises(ChannelError) as caught:
        error_of(corner, 32 * 48, {"cube": 0, "pe": 0}, OWN_ROWS)
    text = str(caught.value)
    assert "is (8, 1) f32, but" in text
    assert "receives it as (8, 1) f16" in text
    assert 'receive it as "f32", or send tl.cast(tile, "f16")' in text
    assert 'record with dot_dtype="f16"' in text
    assert "tl.send(dir=direction, src=tile)" in text
    assert "tl.recv(dir=direction" in text


def test_a_load_conserves_bytes_and_only_strides_transpose():
    machine = kb.load_machine("pe1")
    values = np.arange(24, dtype=np.float32).reshape(6, 4)

    def kernel(x, o, *, tl):
        tl.store(o, tl.load(x, shape=(4, 6), dtype="f32"))
        tl.store(o + 96, tl.load(x, shape=(4, 6), strides=(1, 4), dtype="f32"))

    o = kb.empty((8, 6), "f32", machine)
    kb.launch(kernel, machine, (kb.tensor(values, machine), o))
    np.testing.assert_array_equal(o.numpy()[:4], values.reshape(4, 6))
    np.testing.assert_array_equal(o.numpy()[4:], values.T)
