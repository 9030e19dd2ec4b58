"""A difference between charged and counted work is explained by what adds up to it exactly, or not at all."""

from dataclasses import fields

import pytest

from kernbench.realrun.verify.charged import Charged
from kernbench.realrun.verify.counted import Counted, differences


def note(kind, charged, counted, waves=4, groups=2):
    """Return the note on one kind of work of a launch that does nothing but what is named."""
    nothing = [dict.fromkeys((field.name for field in fields(one)), 0) for one in (Charged, Counted)]
    sides = Charged(**nothing[0] | charged), Counted(**nothing[1] | counted)
    return differences(*sides, waves, groups)[kind].note


@pytest.mark.parametrize(
    ("more", "said"),
    [(0, ""), (8 * 16, "one a row, in 8 lanes, is not charged"), (8 * 16 + 1, ""), (3 * 16, ""), (-16, "")],
)
def test_exponentials_of_rows(more, said):
    charged = {"tile_exponentials": 1024, "row_exponentials": 16, "tiles": 4}
    assert note("exponentials", charged, {"exponentials": 1024 + more}) == said


def test_exponentials_of_tiles_that_are_thrown_away():
    charged = {"tile_exponentials": 1024, "tiles": 4, "empty_groups": 2}
    said = note("exponentials", charged, {"exponentials": 1024 + 512})
    assert said == "2 workgroups without keys compute a tile and throw it away"
    assert note("exponentials", charged, {"exponentials": 1024 + 511}) == ""


def test_reciprocals_of_indices_and_of_rows():
    counted = {"other_transcendentals": 256 + 4 * 16, "lone_reciprocals": 256}
    said = note("other transcendentals", {"row_divisions": 16}, counted)
    assert said == "256 are for divisions of indices; one a row, in 4 lanes, is not charged"


@pytest.mark.parametrize(
    ("repeated", "rest", "said"),
    [
        (0, 0, ""),
        (96, 0, "96 are read by several lanes at once"),
        (96, 3 * 2 * 8, "96 are read by several lanes at once; 8 of a workgroup are read by each of its 4 waves"),
        (96, 3 * 2 * 8 + 1, "96 are read by several lanes at once; +49 is not explained"),
        (96, -4, "96 are read by several lanes at once; -4 is not explained"),
    ],
)
def test_bytes_that_are_read_more_than_once(repeated, rest, said):
    counted = {"read_bytes": 1000 + repeated + rest, "repeated_bytes": repeated}
    assert note("global bytes read", {"read_bytes": 1000}, counted) == said


def test_single_numbers_that_all_lanes_read():
    counted = {"read_bytes": 1000 + 256, "uniform_bytes": 256, "scalar_bytes": 8}
    said = note("global bytes read", {"read_bytes": 1004, "single_bytes": 4}, counted)
    assert said == "tiles are equal; single numbers 264 by all lanes and waves, charged 4"
