"""Pictures are the same bytes every time, and several can stand in one page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.dom import minidom

import pytest

from kernbench.errors import InputError
from kernbench.report.plots import style
from kernbench.simulate.engine_time import COLUMNS
from kernbench.simulate.launch.steps import CAUSES
from kernbench.simulate.path import Cause

BEGINS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


def _line(title: str = "a line"):
    with style.settings():
        figure = style.new_figure(2)
        axes = figure.subplots()
        axes.bar([1, 2], [3, 4], hatch="//")
        axes.set_title(title)
    return figure


@pytest.mark.parametrize("kind", style.FORMATS)
def test_a_file_begins_as_its_format_does_and_is_the_same_twice(kind: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        style.save(_line(), tmp_path / f"{name}.{kind}")
    first, second = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("a", "b"))
    assert first.startswith(BEGINS[kind])
    assert first == second


@pytest.mark.parametrize("name", ["picture.jpg", "picture"])
def test_another_format_is_refused_and_nothing_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"written as \.svg, \.png or \.pdf"):
        style.save(_line(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_a_user_has_set_changes_nothing() -> None:
    import matplotlib

    expected = style.picture_bytes(_line(), "svg")
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "none", "svg.hashsalt": None}):
        assert style.picture_bytes(_line(), "svg") == expected


def test_ids_of_two_pictures_in_one_page_differ_and_every_reference_has_its_target() -> None:
    first, second = (style.svg_text(_line(), prefix, "two bars") for prefix in ("one", "two"))
    assert first.startswith("<svg")
    assert 'aria-label="two bars"' in first
    assert "<style" not in first  # it would be the whole page's
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    page = minidom.parseString(f"<div>{first}{second}</div>")  # a page's parser sees both
    assert len(page.getElementsByTagName("svg")) == 2
    references = set(re.findall(r'(?:href="#|url\(#)([^")]+)', first))
    assert references
    assert references <= ids[0]


def test_a_prefix_that_is_no_id_is_refused() -> None:
    with pytest.raises(InputError, match="cannot begin an id"):
        style.svg_text(_line(), "1 2")


def test_every_cause_has_a_look_of_its_own() -> None:
    causes = {*COLUMNS, *CAUSES, *(c.name.lower() for c in Cause), "launch", "collective", "store", "send"}
    looks = {style.look_of(cause)[:2] for cause in causes}
    assert len(looks) == len(causes)
    with pytest.raises(InputError, match="did you mean 'memory'"):
        style.look_of("memry")


@pytest.mark.parametrize(
    ("ps", "text"), [(0, "0 s"), (1, "1 ps"), (999, "999 ps"), (5_329_589, "5.33 µs"), (2 * 10**12, "2 s")]
)
def test_times_are_written_with_three_digits(ps: int, text: str) -> None:
    assert style.time_text(ps) == text
