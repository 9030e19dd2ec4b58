"""Lanes cover the window without a gap, and merging loses no picosecond."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from kernbench.errors import InputError
from kernbench.report.plots import gantt
from kernbench.report.plots.gantt import GanttData, gantt_data, gantt_figure
from kernbench.report.plots.style import picture_bytes
from kernbench.simulate.engine_lanes import BUSY, engine_lanes
from kernbench.simulate.engine_time import engine_time


def _sums(data: GanttData, lane: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for segment in data.lanes[lane].segments:
        found.update(dict(segment.parts))
    return found


def _check_cover(data: GanttData) -> None:
    for lane in data.lanes:
        assert lane.segments[0].start_ps == data.start_ps
        assert lane.segments[-1].end_ps == data.end_ps
        assert all(a.end_ps == b.start_ps for a, b in pairwise(lane.segments))
        for segment in lane.segments:
            assert sum(ps for _, ps in segment.parts) == segment.end_ps - segment.start_ps > 0


@pytest.mark.parametrize("changes", [{}, {"TILE_S_KV": 16}])
def test_lanes_of_a_pe_have_the_time_of_its_engines(timeline_of, changes) -> None:
    timeline = timeline_of("row4_pe8", **changes)
    data = gantt_data(timeline, [9])
    expected = engine_time(timeline).of_pe(9)
    _check_cover(data)
    assert data.by_engine
    assert [lane.label for lane in data.lanes] == list(expected)
    for i, lane in enumerate(data.lanes):
        assert _sums(data, i) == {what: ps for what, ps in expected[lane.label].items() if ps}


def test_lanes_of_pes_show_each_engine_for_no_longer_than_it_works(timeline_of) -> None:
    timeline = timeline_of("row4_pe8")
    data = gantt_data(timeline, range(8))
    _check_cover(data)
    assert len(data.lanes) == 8
    for pe in range(8):
        shown, working = _sums(data, pe), Counter()
        starts, ends = [], []
        for lane in engine_lanes(timeline, pe):
            length = np.diff(np.append(lane.begin_ps, timeline.makespan_ps))
            working[gantt.kind_of(lane.engine)] += int(length[lane.state == BUSY].sum())
            busy = np.flatnonzero(lane.state == BUSY)
            starts += lane.begin_ps[busy].tolist()
            ends += (lane.begin_ps[busy] + length[busy]).tolist()
        assert all(shown[kind] <= working[kind] for kind in data.ranking)
        assert shown[data.ranking[0]] == working[data.ranking[0]]  # the first is never hidden
        assert sum(shown[kind] for kind in data.ranking) == _union(starts, ends)


def _union(starts: list[int], ends: list[int]) -> int:
    """Time covered by any of these intervals."""
    covered, reach = 0, 0
    for start, end in sorted(zip(starts, ends, strict=True)):
        covered += max(0, end - max(start, reach))
        reach = max(reach, end)
    return covered


def test_windows_add_up_to_the_run(timeline_of) -> None:
    timeline = timeline_of("row4_pe8")
    middle = timeline.makespan_ps // 3
    parts = [gantt_data(timeline, [0], w) for w in ((0, middle), (middle, timeline.makespan_ps))]
    whole = gantt_data(timeline, [0])
    for i in range(len(whole.lanes)):
        assert _sums(parts[0], i) + _sums(parts[1], i) == _sums(whole, i)


def test_a_picture_of_much_stays_small(timeline_of, monkeypatch) -> None:
    timeline = timeline_of("row4_pe8", TILE_S_KV=16)
    whole = gantt_data(timeline, range(32))
    monkeypatch.setattr(gantt, "MOST_SEGMENTS", 300)
    data = gantt_data(timeline, range(32))
    _check_cover(data)
    assert sum(len(s.parts) for lane in data.lanes for s in lane.segments) <= 300
    assert data.merged_below_ps > whole.merged_below_ps
    assert data.n_merged > whole.n_merged > 0
    assert [_sums(data, i) for i in range(32)] == [_sums(whole, i) for i in range(32)]


def test_what_cannot_be_drawn_is_told(timeline_of) -> None:
    timeline = timeline_of("row4_pe8", split_S_kv=("cube",))
    without = next(pe for pe in range(32) if not len(timeline.of_pe(pe)[0]))
    with pytest.raises(InputError, match="none of the selected PEs has anything to do"):
        gantt_data(timeline, [without])
    with pytest.raises(InputError, match="holds nothing of the run"):
        gantt_data(timeline, [0], (timeline.makespan_ps, timeline.makespan_ps + 5))
    with pytest.raises(InputError, match="512 PEs are too many lanes"):
        gantt_data(timeline_of("grid8x8_pe8"), range(512))


@pytest.mark.parametrize("pes", [[7], range(8)])
def test_it_is_drawn_the_same_twice(timeline_of, pes) -> None:
    data = gantt_data(timeline_of("row4_pe8"), pes)
    assert picture_bytes(gantt_figure(data), "svg") == picture_bytes(gantt_figure(data), "svg")
    assert picture_bytes(gantt_figure(data), "png").startswith(b"\x89PNG")
