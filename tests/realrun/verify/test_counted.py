"""A difference between charged and counted work is explained by what adds up to it exactly, or not at all."""

from dataclasses import fields

import pytest

from kernbench.realrun.verify.charged import Charged
from kernbench.realrun.verify.counted import Counted, differences


def note(kind, charged, counted, waves=4, stages=2, groups=2):
    """Return the note on one kind of work of a launch that does nothing but what is named."""
    nothing = [dict.fromkeys((field.name for field in fields(one)), 0) for one in (Charged, Counted)]
    nothing[0] |= {"groups_by_tiles": {}, "line_loads": ()}
    sides = Charged(**nothing[0] | charged), Counted(**nothing[1] | counted)
    return differences(*sides, waves, stages, groups)[kind].note


@pytest.mark.parametrize("kind", ["matrix operations", "global bytes written"])
def test_what_nothing_explains(kind):
    name = kind.replace("global bytes written", "written_bytes").replace(" ", "_")
    assert note(kind, {name: 100}, {name: 100}) == ""
    assert note(kind, {name: 100}, {name: 70}) == "-30 is not explained"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (0, ""),
        (8 * 16, "one a row, in 8 lanes, is not charged"),
        (256 * 16, "one a row, in 256 lanes, is not charged"),
        (512 * 16, "+8,192 is not explained"),
        (8 * 16 + 1, "+129 is not explained"),
        (3 * 16, "+48 is not explained"),
        (-16, "-16 is not explained"),
    ],
)
def test_exponentials_of_rows(more, said):
    charged = {"tile_exponentials": 1024, "row_exponentials": 16, "tiles": 4}
    assert note("exponentials", charged, {"exponentials": 1024 + more}) == said


@pytest.mark.parametrize(("stages", "passes"), [(2, 2), (3, 2 * 2 + 4)])
def test_exponentials_of_tiles_that_nothing_needs(stages, passes):
    charged = {"tile_exponentials": 1024, "tiles": 4, "groups_by_tiles": {0: 2, 1: 4}}
    said = note("exponentials", charged, {"exponentials": 1024 + passes * 256}, stages=stages)
    assert said == f"{passes} passes of pipelines compute a tile that nothing needs"
    assert "not explained" in note("exponentials", charged, {"exponentials": 1023 + passes * 256}, stages=stages)


def test_kernels_of_single_rows():
    assert note("exponentials", {"row_exponentials": 7}, {"exponentials": 9}) == "rows and columns are not charged"


def test_reciprocals_of_indices_and_of_rows():
    counted = {"other_transcendentals": 256 + 4 * 16, "lone_reciprocals": 256}
    said = note("other transcendentals", {"row_divisions": 16}, counted)
    assert said == "256 are reciprocals alone, as of indices; one a row, in 4 lanes, is not charged"
    counted["other_transcendentals"] = 256 + 3 * 16
    said = note("other transcendentals", {"row_divisions": 16}, counted)
    assert said == "256 are reciprocals alone, as of indices; +48 is not explained"


def test_waves_without_rows_divide_nothing():
    charged = {"tile_divisions": 8 * 128}
    assert note("other transcendentals", charged, {"other_transcendentals": 6 * 128}) == (
        "2 waves have no rows and make none"
    )
    assert note("other transcendentals", charged, {"other_transcendentals": 6 * 128 + 1}) == "-255 is not explained"


@pytest.mark.parametrize(
    ("repeated", "rest", "said"),
    [
        (0, 0, ""),
        (96, 0, "96 by several lanes at once"),
        (96, 3 * 64, "96 by several lanes at once; 192 by other waves of the workgroup again"),
        (0, 3 * (64 + 40), "312 by other waves of the workgroup again"),
        (96, 3 * 64 + 1, "96 by several lanes at once; +193 is not explained"),
        (96, -4, "96 by several lanes at once; -4 is not explained"),
    ],
)
def test_bytes_that_are_read_more_than_once(repeated, rest, said):
    counted = {"read_bytes": 1000 + repeated + rest, "repeated_bytes": repeated}
    assert note("global bytes read", {"read_bytes": 1000, "line_loads": (64, 40)}, counted) == said


def test_single_numbers_that_all_lanes_read():
    counted = {"read_bytes": 1000 + 256, "uniform_bytes": 256, "scalar_bytes": 8}
    said = note("global bytes read", {"read_bytes": 1004, "single_bytes": 4}, counted)
    assert said == "tiles are equal; single numbers 264 by all lanes and waves, charged 4"
