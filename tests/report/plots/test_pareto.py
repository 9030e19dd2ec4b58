"""The front is the set that no point dominates."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.errors import InputError
from kernbench.report.plots.pareto import pareto_data, pareto_figure
from kernbench.report.plots.style import picture_bytes, svg_text
from tests.report.plots.sweeps import sweep

COORDINATE = st.integers(1, 12)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=40))
def test_the_front_is_what_no_point_dominates(values: list[tuple[int, int]]) -> None:
    frame = sweep(S_kv=list(range(len(values)))).assign(
        makespan_ps=[x for x, _ in values], cost=[float(y) for _, y in values]
    )
    data = pareto_data(frame)
    for point in data.points:
        beaten = any(x <= point.x and y <= point.y and (x, y) != (point.x, point.y) for x, y in values)
        assert point.on_front is not beaten
    front = data.front
    assert all(a.x <= b.x and a.y >= b.y for a, b in pairwise(front))
    assert data.points[data.least_x].x == min(x for x, _ in values)
    assert data.points[data.least_y].y == min(y for _, y in values)
    assert all(data.points[i].on_front for i in (data.least_x, data.least_y, data.balanced))


def test_points_are_told_by_the_settings_in_which_they_differ() -> None:
    data = pareto_data(sweep(S_kv=[64, 128], sharding=["heads=pe"], TILE_S_KV=[8, 16]))
    assert data.points[1].settings == (("S_kv", "64"), ("TILE_S_KV", "16"))
    only = pareto_data(sweep(S_kv=[64, 128], TILE_S_KV=[8, 16]), settings=["TILE_S_KV"])
    assert only.points[1].settings == (("TILE_S_KV", "16"),)


def test_what_cannot_be_drawn_is_told() -> None:
    with pytest.raises(InputError, match=r"no column 'costs' \(did you mean 'cost'\?\)"):
        pareto_data(sweep(S_kv=[1]), ("makespan_ps", "costs"))
    with pytest.raises(InputError, match="none with a number in makespan_ps and cost"):
        pareto_data(sweep(S_kv=[1]).assign(cost=float("nan")))


@pytest.mark.parametrize("count", [1, 12])
def test_it_is_drawn_the_same_twice(count: int) -> None:
    data = pareto_data(sweep(S_kv=list(range(count)), sharding=["heads=pe"]))
    assert picture_bytes(pareto_figure(data), "svg") == picture_bytes(pareto_figure(data), "svg")
    assert picture_bytes(pareto_figure(data), "png").startswith(b"\x89PNG")


def test_a_crowd_of_beaten_points_is_one_image_in_a_page() -> None:
    frame = sweep(S_kv=list(range(1, 3001))).assign(
        makespan_ps=[1 + 7919 * i % 3001 for i in range(3000)], cost=[1.0 + 104729 * i % 2999 for i in range(3000)]
    )
    data = pareto_data(frame)
    text = svg_text(pareto_figure(data), "pareto")
    assert text.count("<use") < 1000  # letters are such elements, too
    assert text.count("<image") == 1
    assert text == svg_text(pareto_figure(data), "pareto")
