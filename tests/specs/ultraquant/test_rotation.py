"""Rotation of K and Q, the rounding to E4M3, and the order of Q in registers."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import InputError
from kernbench.specs import ultraquant as uq
from kernbench.specs.ultraquant import rotation

from . import independent as by_hand


def random_bf16(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(ml_dtypes.bfloat16)


def test_the_matrix_is_sylvesters_and_its_own_inverse():
    h = uq.hadamard()
    np.testing.assert_array_equal(h, by_hand.HADAMARD)
    np.testing.assert_array_equal(h, h.T)
    np.testing.assert_array_equal(h @ h, np.eye(256))


def test_the_butterfly_is_the_matrix():
    x = random_bf16(0, 7, 256)
    np.testing.assert_allclose(rotation.butterfly(x) / 16, x.astype(float) @ by_hand.HADAMARD, atol=2e-6)
    np.testing.assert_array_equal(rotation.butterfly(x)[0], by_hand.wht_float32(x[0]))


def test_rotating_both_sides_leaves_the_scores():
    q, k = random_bf16(1, 5, 256).astype(float), random_bf16(2, 9, 256).astype(float)
    np.testing.assert_allclose(uq.rotate_keys(q).astype(float) @ uq.rotate_keys(k).T.astype(float), q @ k.T, atol=1e-4)


def test_queries_are_rotated_and_rounded_to_e4m3():
    q = random_bf16(3, 4, 256)
    found = uq.rotate_queries(q)
    np.testing.assert_array_equal(found, by_hand.rotated_query(q))
    np.testing.assert_array_equal(found, found.astype(ml_dtypes.bfloat16).astype(np.float32))  # bf16 holds E4M3
    np.testing.assert_array_equal(found, uq.to_e4m3(found))


@given(st.floats(-447, 447, width=32))
def test_rounding_to_e4m3_is_to_nearest_even(x):
    assert uq.to_e4m3(np.array([x]))[0] == by_hand.e4m3(np.array([x], np.float32))[0]


def test_rounding_to_e4m3_at_every_tie():
    grid = by_hand.e4m3_grid()
    ties = (grid[1:] + grid[:-1]) / 2
    np.testing.assert_array_equal(uq.to_e4m3(ties), by_hand.e4m3(ties))
    assert len(grid) == 127
    assert grid[-1] == 448


def test_beyond_448_it_saturates_or_becomes_nan_as_asked():
    x = np.array([448.0, 464.0, 464.1, -1e6, np.inf])
    assert uq.to_e4m3(x).tolist() == [448, 448, 448, -448, 448]
    assert np.isnan(uq.to_e4m3(x, "nan")).tolist() == [False, False, True, True, True]
    with pytest.raises(InputError, match="'saturate' or 'nan'"):
        uq.to_e4m3(x, "wrap")


def test_the_permutation_puts_each_byte_where_the_instruction_reads_its_element():
    """Lane group g reads bytes 32 g ... of a half; byte j of it is element 64 (j >> 4) + 16 g + (j & 15)."""
    perm = uq.query_permutation()
    assert sorted(perm) == list(range(256))
    for half in (0, 128):
        for g in range(4):
            for j in range(32):
                assert perm[half + 32 * g + j] == half + 64 * (j >> 4) + 16 * g + (j & 15)


def test_the_inverse_permutation_moves_bits():
    perm, dims = uq.query_permutation(), np.arange(256)
    np.testing.assert_array_equal(perm[rotation.inverse_permutation(dims)], dims)
    np.testing.assert_array_equal(rotation.inverse_permutation(perm), dims)


@given(st.integers(0, 2**32 - 1))
def test_the_permutation_cancels(seed):
    """Scores from operands in register order are the plain dot products of natural order."""
    rng = np.random.default_rng(seed)
    q, k = rng.integers(-9, 9, 256), rng.integers(-9, 9, 256)
    shared = q[uq.query_permutation()]  # as it lies in shared memory
    score = 0
    for half in (slice(0, 128), slice(128, 256)):
        fp8, fp4 = np.empty(128, int), np.empty(128, int)
        fp8[rotation.fp8_elements()] = shared[half].reshape(4, 32)  # lane group g takes 32 bytes in a row
        fp4[rotation.fp4_elements()] = k[half].reshape(4, 32)  # K is never permuted
        score += fp8 @ fp4
    assert score == q @ k
