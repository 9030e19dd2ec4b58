"""Comparison with the reference: what passes, what fails, and what is said."""

import math

import numpy as np
import pytest

from kernbench.specs.correctness import WORST_ROW_FACTOR, compare, tolerance


@pytest.fixture
def reference():
    return np.random.default_rng(0).normal(size=(2, 3, 5, 16))


def test_equal_values_pass_with_no_error(reference):
    found = compare(reference, reference, 1e-9)
    assert (found.max_abs, found.rel_l2, found.worst_row_rel_l2, found.nan_count, found.passed) == (0, 0, 0, 0, True)
    assert found.cosine == pytest.approx(1)


def test_errors_are_what_they_are_called(reference):
    actual = reference.copy()
    actual[1, 2, 3, 4] += 0.5
    found = compare(actual, reference, 1.0)
    assert found.max_abs == pytest.approx(0.5)
    assert found.rel_l2 == pytest.approx(0.5 / np.linalg.norm(reference))
    assert found.worst_row_rel_l2 == pytest.approx(0.5 / np.linalg.norm(reference[1, 2, 3]))


def test_the_tolerance_is_a_limit_on_the_relative_error(reference):
    actual = reference * (1 + 1e-3)
    assert compare(actual, reference, 1.01e-3).passed
    assert not compare(actual, reference, 0.99e-3).passed


def test_an_error_in_one_row_of_many_is_not_diluted():
    reference = np.ones((10_000, 8))
    actual = reference.copy()
    actual[77] *= 1 + 1.1 * WORST_ROW_FACTOR * 1e-3
    found = compare(actual, reference, 1e-3)
    assert found.rel_l2 < 1e-4
    assert not found.passed


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_never_pass(reference, bad):
    actual = reference.copy()
    actual[0, 0, 0, :2] = bad
    found = compare(actual, reference, 1e9)
    assert not found.passed
    assert found.nan_count == 2
    assert math.isnan(found.rel_l2)


def test_a_row_that_should_be_zero_must_be_zero():
    reference = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert compare(reference, reference, 1e-6).passed
    assert not compare(reference + np.array([[1e-9, 0], [0, 0]]), reference, 1e-6).passed


def test_nan_in_the_reference_never_passes(reference):
    wrong = reference.copy()
    wrong[0, 0, 0, 0] = math.nan
    assert not compare(reference, wrong, 1.0).passed


def test_shapes_must_agree(reference):
    with pytest.raises(ValueError, match="shape"):
        compare(reference[0], reference, 1.0)


def test_coarser_formats_have_larger_tolerances():
    assert tolerance("f32") < tolerance("f16") < tolerance("bf16")
