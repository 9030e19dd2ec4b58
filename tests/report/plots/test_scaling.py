"""Speed-up and efficiency are 1 where they begin, and ideal where the time is."""

from __future__ import annotations

import pandas as pd
import pytest

from kernbench.errors import InputError
from kernbench.report.plots.scaling import scaling_data, scaling_figure
from kernbench.report.plots.style import picture_bytes
from tests.report.plots.sweeps import sweep

PES = [8, 16, 32, 64]


def timed(time_ps) -> pd.DataFrame:
    """Points of four amounts of work on four numbers of PEs that take ``time_ps(work, pes)``."""
    frame = sweep(S_kv=[1024, 2048, 4096, 8192], pes=PES, TILE_S_KV=[64, 128])
    times = [
        int(time_ps(s, p) * (1 + t // 128)) for s, p, t in zip(frame.S_kv, frame.pes, frame.TILE_S_KV, strict=True)
    ]
    return frame.assign(makespan_ps=times)


def test_ideal_times_scale_ideally() -> None:
    points = timed(lambda work, pes: 10**6 * work / pes)
    strong, weak = scaling_data(points), scaling_data(points, "weak")
    assert [line.label for line in strong.lines] == ["S_kv 1,024", "S_kv 2,048", "S_kv 4,096", "S_kv 8,192"]
    for line in strong.lines:
        assert line.pes == tuple(PES)
        assert line.speed_up == pytest.approx([pes / 8 for pes in PES])
        assert line.efficiency == pytest.approx([1] * 4)
    for line in weak.lines:
        assert len(set(line.makespan_ps)) == 1
        assert line.efficiency == pytest.approx([1] * len(line.pes))
        assert len({work / pes for work, pes in zip(line.work, line.pes, strict=True)}) == 1


def test_time_that_does_not_fall_is_no_speed_up() -> None:
    for line in scaling_data(timed(lambda work, pes: 10**6 * work)).lines:
        assert line.speed_up == pytest.approx([1] * 4)
        assert line.efficiency == pytest.approx([8 / pes for pes in PES])


def test_speed_up_is_the_efficiency_times_the_pes() -> None:
    points = sweep(3, S_kv=[1024, 4096], pes=PES, sharding=["heads=pe", "S_kv=pe"])
    data = scaling_data(points, lines="sharding")
    assert len(data.lines) == 4
    for line in data.lines:
        assert line.speed_up[0] == line.efficiency[0] == 1
        for pes, speed_up, efficiency in zip(line.pes, line.speed_up, line.efficiency, strict=True):
            assert speed_up == pytest.approx(efficiency * pes / line.pes[0])


def test_the_quickest_of_alike_points_counts() -> None:
    points = timed(lambda work, pes: 10**6 * work / pes)
    best = points[(points.S_kv == 1024) & (points.pes == 8)].makespan_ps.min()
    assert scaling_data(points).lines[0].makespan_ps[0] == best


def test_what_cannot_be_drawn_is_told() -> None:
    with pytest.raises(InputError, match="no points with the same S_kv and several numbers of PEs"):
        scaling_data(sweep(S_kv=[1024, 2048]))
    with pytest.raises(InputError, match="no points with the same S_kv a PE"):
        scaling_data(sweep(S_kv=[1024], pes=PES), "weak")
    with pytest.raises(InputError, match=r"unknown kind of scaling 'week' \(did you mean 'weak'"):
        scaling_data(sweep(S_kv=[1024]), "week")
    with pytest.raises(InputError, match="no column 'flops'"):
        scaling_data(sweep(S_kv=[1024]), work="flops")


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_it_is_drawn_the_same_twice(kind) -> None:
    data = scaling_data(timed(lambda work, pes: 10**6 * work / pes**0.9), kind)
    assert picture_bytes(scaling_figure(data), "svg") == picture_bytes(scaling_figure(data), "svg")
    assert picture_bytes(scaling_figure(data), "png").startswith(b"\x89PNG")
