"""Each line is the least of its points, and says over what."""

from __future__ import annotations

import pandas as pd
import pytest

from kernbench.errors import InputError
from kernbench.report.plots.latency import latency_data, latency_figure
from kernbench.report.plots.style import picture_bytes
from tests.report.plots.sweeps import sweep


@pytest.fixture
def points() -> pd.DataFrame:
    return sweep(S_kv=[1024, 4096, 16384], sharding=["S_kv=pe", "heads=pe"], TILE_S_KV=[64, 128], batch=[1])


def test_values_are_minima_of_the_points_that_share_x_and_line(points: pd.DataFrame) -> None:
    data = latency_data(points, "S_kv")
    assert [line.label for line in data.lines] == ["S_kv=pe", "heads=pe"]
    for line in data.lines:
        assert line.x == (1024, 4096, 16384)
        for x, y, count in zip(line.x, line.y, line.counts, strict=True):
            mine = points[(points["S_kv"] == x) & (points["sharding"] == line.label)]["makespan_ps"]
            assert (y, count) == (mine.min(), 2)
    assert data.least_over == ("TILE_S_KV",)


def test_every_point_is_in_one_line(points: pd.DataFrame) -> None:
    for lines in ([], "sharding", ["sharding", "TILE_S_KV"]):
        data = latency_data(points, "S_kv", lines)
        assert sum(sum(line.counts) for line in data.lines) == len(points)
    assert data.least_over == ()
    assert data.lines[0].label == "S_kv=pe, TILE_S_KV=64"


def test_failed_and_infeasible_points_are_left_out(points: pd.DataFrame) -> None:
    best = points["makespan_ps"].idxmin()
    line = points.loc[best, "sharding"]
    for spoilt in ({"status": "failed", "makespan_ps": pd.NA}, {"feasible": False}):
        changed = points.astype({"makespan_ps": "Int64"})
        for name, value in spoilt.items():
            changed.loc[best, name] = value
        data = latency_data(changed, "S_kv")
        assert sum(sum(one.counts) for one in data.lines) == len(points) - 1
        assert all(y > points.loc[best, "makespan_ps"] for one in data.lines if one.label == line for y in one.y)


def test_quantities_of_a_machine_file_are_numbers() -> None:
    points = sweep(**{"cube.memory.bandwidth": ["1.2 TB/s", "800 GB/s"], "sharding": ["S_kv=pe"]})
    assert latency_data(points, "cube.memory.bandwidth").lines[0].x == (8e11, 1.2e12)


def test_what_cannot_be_drawn_is_told(points: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"no column 'S_vk' \(did you mean 'S_kv'\?\)"):
        latency_data(points, "S_vk")
    with pytest.raises(InputError, match="column 'sharding' holds 'S_kv=pe', which is no number"):
        latency_data(points, "sharding", [])
    with pytest.raises(InputError, match="none of 12 points can be drawn: 0 are done"):
        latency_data(points.assign(status="failed"), "S_kv")
    with pytest.raises(InputError, match="none of 12 points can be drawn: 12 are done, 0 of these feasible"):
        latency_data(points.assign(feasible=False), "S_kv")
    with pytest.raises(InputError, match="not above 0"):
        latency_data(points.assign(batch=0), "batch")
    with pytest.raises(InputError, match="30 lines are too many"):
        latency_data(sweep(S_kv=[1, 2], other=list(range(30))), "S_kv", "other")


def test_it_is_drawn_the_same_twice(points: pd.DataFrame) -> None:
    data = latency_data(points, "S_kv")
    assert picture_bytes(latency_figure(data), "svg") == picture_bytes(latency_figure(data), "svg")
    assert picture_bytes(latency_figure(data), "png").startswith(b"\x89PNG")
