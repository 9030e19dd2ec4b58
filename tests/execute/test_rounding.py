"""Rounding: against the conversions of NumPy and ml_dtypes, on every float16 and around it."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import InputError
from kernbench.execute import round_to

NARROW = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def reference(values: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(NARROW[dtype]).astype(np.float32)


def assert_rounds_like_reference(values: np.ndarray, dtype: str) -> None:
    wanted, got = reference(values, dtype), round_to(values, dtype)
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_number_and_the_float32_numbers_beside_it_and_beside_each_tie(dtype):
    grid = np.arange(2**16, dtype=np.uint16).view(NARROW[dtype]).astype(np.float32)
    bits = grid.view(np.uint32).astype(np.int64)
    half = {"f16": 2**12, "bf16": 2**15}[dtype]
    for step in (-1, 0, 1, -half, half, half - 1, half + 1, 1 - half, -1 - half):
        near = np.clip(bits + step, 0, 2**32 - 1).astype(np.uint32).view(np.float32)
        assert_rounds_like_reference(near, dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_ties_between_subnormals_go_to_even(dtype):
    smallest = np.float32(np.arange(1, 2, dtype=np.uint16).view(NARROW[dtype])[0])
    ties = (np.arange(1024, dtype=np.float64) + 0.5) * float(smallest)
    assert_rounds_like_reference(np.concatenate([ties, -ties]).astype(np.float32), dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_random_bit_patterns(dtype):
    bits = np.random.default_rng(1).integers(0, 2**32, 2_000_000, np.uint32)
    assert_rounds_like_reference(bits.view(np.float32), dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_exponent_with_random_fractions(dtype):
    rng = np.random.default_rng(2)
    bits = (np.arange(256, dtype=np.uint32) << 23)[:, None] | rng.integers(0, 2**23, (256, 4000), np.uint32)
    assert_rounds_like_reference(bits.view(np.float32), dtype)
    assert_rounds_like_reference(-bits.view(np.float32), dtype)


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from(sorted(NARROW)))
def test_rounding_twice_changes_nothing(values, dtype):
    once = round_to(np.array(values, np.float32), dtype)
    np.testing.assert_array_equal(round_to(once, dtype), once)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_result_goes_to_out_in_place_or_not_and_whatever_its_strides(dtype):
    values = np.random.default_rng(3).standard_normal((6, 10)).astype(np.float32)
    wanted = round_to(values, dtype)
    fresh = np.empty_like(values)
    assert round_to(values, dtype, out=fresh) is fresh
    transposed = np.empty((10, 6), np.float32).T
    round_to(values, dtype, out=transposed)
    round_to(values.T.copy().T, dtype, out=values)
    for got in (fresh, transposed, values):
        np.testing.assert_array_equal(got, wanted)


def test_source_is_left_alone_without_out():
    values = np.array([[1.0003, 2.0007]], np.float32)
    before = values.copy()
    assert round_to(values, "f16") is not values
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_any_shape(shape):
    assert round_to(np.zeros(shape, np.float32), "f16").shape == shape


def test_integers_are_refused():
    with pytest.raises(InputError, match="cannot be rounded to i32: only to f32, f16, bf16"):
        round_to(np.zeros(3, np.float32), "i32")


def test_importing_kernbench_does_not_import_numba():
    code = "import sys, kernbench; kernbench.execute; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
