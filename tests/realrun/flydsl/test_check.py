"""Launching the kernel and comparing what it stores, with one written by hand that does an empty partition's work."""

import dataclasses

import numpy as np
import pytest

from kernbench.errors import InputError
from kernbench.realrun import amdgcn
from kernbench.realrun.flydsl import check
from tests.realrun.flydsl.standin import RANKS, kernel_text


def checked(lengths, **text):
    spec = check.make_spec(8, 1, 64, lengths, partitions=2, tile_groups=1)
    kernel = amdgcn.load(kernel_text(**text))["empty_partition"]
    return check.check_launch(kernel, spec, check.make_inputs(spec, lengths, 0))


@pytest.fixture(scope="module")
def good():
    return checked([0])


def test_the_work_of_empty_partitions_is_counted_and_right(good):
    assert good.passed
    assert (good.max_relative, good.sum_relative, good.out_equal) == (0, 0, 1)
    counted = {c.name: c.counted for c in good.counts}
    assert counted["bytes stored"] == 2 * 8 * (512 + 4 * 8)
    assert counted["bytes loaded"] == 2 * (8 * 512 + 2 * 256)
    assert counted["bytes of LDS"] == 2 * (8 * 512 + 256)
    assert counted[check.SCALED] == 0


def test_tokens_that_are_not_attended_to_show(good):
    found = checked([5])
    assert not found.passed
    assert (found.max_relative, found.sum_relative) == (np.inf, 1)
    assert {c.name for c in found.unequal} >= {check.SCALED, check.BF16, "bytes loaded", "bytes of LDS"}


@pytest.mark.parametrize(
    "change",
    [{"max_relative": 2e-5}, {"sum_relative": 2e-3}, {"out_ulps": 2.5}, {"sum_relative": np.nan},
     {"lds": check.Count("LDS of a workgroup", 1, 2)}, {"counts": (check.Count("exponentials", 1, 2),)}],
)  # fmt: skip
def test_each_limit_counts(good, change):
    assert not dataclasses.replace(good, **change).passed


def test_the_merged_output_counts(good):
    assert not dataclasses.replace(good, merged=dataclasses.replace(good.merged, cosine=0.9998)).passed


def test_another_lds_size_shows():
    assert [c.counted for c in checked([0], lds=16384).unequal] == [16384]


def test_another_argument_block_is_refused():
    with pytest.raises(InputError, match=r"takes pointer, 40 bytes, .* expected pointer, 52 bytes"):
        checked([0], ranks=(4, *RANKS[1:]))


def test_an_ulp_is_bfloat16s():
    expected = np.array([1.0, -1.0, 0.9921875])
    one = expected + np.array([2.0**-7, -(2.0**-7), 2.0**-8])
    ulps, absolute = check.compare_outputs(one, expected)
    assert absolute == 2.0**-7
    assert 0.97 < ulps < 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_is_infinitely_far(wrong):
    assert check.compare_outputs(np.array([wrong, 0.0]), np.zeros(2)) == (np.inf, np.inf)
    assert check.compare_numbers(np.array([wrong, 1.0]), np.ones(2)) == np.inf


def test_blocks_lie_anywhere_and_belong_to_one_sequence():
    lengths = [600, 0, 65]
    spec = check.make_spec(8, 1, 64, lengths, partitions=3, tile_groups=1)
    inputs = check.make_inputs(spec, lengths, 0)
    used = [row[: -(-n // 64)].tolist() for row, n in zip(inputs.block_tables, lengths, strict=True)]
    blocks = [block for row in used for block in row]
    assert len(set(blocks)) == len(blocks) == 12
    assert blocks != sorted(blocks)
    assert (inputs.cache[..., 128:136] > 0).all()  # stale tokens where no sequence has any
    assert np.isnan(inputs.qkv[:, 8:].astype(np.float32)).all()


def test_the_simulator_is_asked_for_the_same_launch():
    spec = check.make_spec(16, 1, 64, [40], partitions=1, tile_groups=1)
    flops, nbytes = check.charged(spec, [40])
    assert flops == 16 * 2 * 16 * 16 * 256 * 2  # 16 tiles of two products
    assert nbytes >= 40 * 272 + 16 * 520
