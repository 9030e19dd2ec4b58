"""The bars of time by cause add up to the makespans."""

from __future__ import annotations

import pytest

from kernbench.bench import find_bench
from kernbench.errors import InputError
from kernbench.machine import load_machine
from kernbench.report.plots.causes import causes_data, causes_figure
from kernbench.report.plots.style import picture_bytes
from kernbench.run import RunResult, run_bench


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    places = [("gqa_decode_long", "row4_pe8"), ("decode_splitkv", "h200")]
    return [run_bench(find_bench(b), load_machine(t), mode="time") for b, t in places]


def test_parts_add_up_to_the_makespan_exactly(results: list[RunResult]) -> None:
    for bar, result in zip(causes_data(results).bars, results, strict=True):
        assert sum(ps for _, ps in bar.parts) == bar.makespan_ps == result.makespan_ps
        assert result.time_by_cause is not None
        for cause, ps in bar.parts:
            assert ps == pytest.approx(result.time_by_cause[cause] * bar.makespan_ps, abs=1)


def test_of_a_mesh_the_parts_are_those_of_the_critical_path(results: list[RunResult]) -> None:
    from kernbench.simulate.path import critical_path

    found: list[dict[str, int]] = []
    bench, machine = find_bench("gqa_decode_long"), load_machine("row4_pe8")
    run_bench(bench, machine, mode="time", look=lambda timeline: found.append(critical_path(timeline).time_by_cause()))
    assert dict(causes_data(results[:1]).bars[0].parts) == found[0]


def test_causes_are_those_of_any_bar(results: list[RunResult]) -> None:
    data = causes_data(results, ["mesh", "GPU"])
    assert set(data.causes) == {cause for bar in data.bars for cause, _ in bar.parts}
    assert [bar.label for bar in data.bars] == ["mesh", "GPU"]
    assert (data.of_meshes, data.of_grids) == (True, True)


def test_nothing_to_draw_is_told(results: list[RunResult]) -> None:
    untimed = results[0].model_copy(update={"makespan_ps": None, "time_by_cause": None})
    for nothing in ([], [untimed]):
        with pytest.raises(InputError, match="no run has a time to draw"):
            causes_data(nothing)
    with pytest.raises(InputError, match="1 labels for 2 runs"):
        causes_data(results, ["only one"])


def test_it_is_drawn_the_same_twice(results: list[RunResult]) -> None:
    data = causes_data(results)
    assert picture_bytes(causes_figure(data), "svg") == picture_bytes(causes_figure(data), "svg")
    assert picture_bytes(causes_figure(data), "png").startswith(b"\x89PNG")
