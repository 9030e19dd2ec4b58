"""No simulated kernel stands above the roofs, and what was measured is told from what was simulated."""

from __future__ import annotations

import pytest

from kernbench.bench import apply_settings, find_bench
from kernbench.errors import InputError
from kernbench.machine import Machine, load_machine
from kernbench.realrun.records import Device, Implementation, Quantiles, RunRecord, RunSpec, Times
from kernbench.report.plots.roofline import Point, measured_points, roofline_data, roofline_figure
from kernbench.report.plots.style import picture_bytes
from kernbench.run import RunResult, run_bench


def run(name: str, machine: Machine, **settings: object) -> RunResult:
    bench = find_bench(name)
    spec, implementation = apply_settings(bench, settings)
    return run_bench(bench, machine, spec, implementation=implementation, mode="time")


@pytest.mark.parametrize(
    ("bench", "machine", "settings"),
    [
        ("gqa_decode_long", "row4_pe8", [{"S_kv": 16384, "h_q": h, "h_kv": 1, "d_head": 128} for h in (1, 8, 32)]),
        ("gqa_prefill", "cube1_pe8", [{"T_q": 256, "S_kv": 256}]),
        ("decode_splitkv", "h200", [{}, {"S_kv": 8192, "batch": 4}]),
    ],
)
def test_no_simulated_kernel_is_above_the_roofs(bench: str, machine: str, settings: list[dict[str, int]]) -> None:
    loaded = load_machine(machine)
    data = roofline_data([run(bench, loaded, **chosen) for chosen in settings], loaded)
    assert len(data.points) == len(settings)
    for point in data.points:
        assert 0 < point.flops_per_s <= data.attainable(point.flops_per_byte) * (1 + 1e-6)
        assert point.evidence == "simulated"


def test_roofs_are_the_machine_file_times_the_places() -> None:
    machine = load_machine("row4_pe8")
    data = roofline_data([run("gqa_decode_long", machine)], machine)
    assert {c.name: c.flops_per_s for c in data.ceilings}["f16, bf16"] == 32 * 8 * 10**12
    assert {s.name: s.bytes_per_s for s in data.slopes} == {
        "memory": 4 * 1200 * 10**9,
        "load ports": 32 * 2 * 256 * 10**9,  # two queues, each with the port's bandwidth
        "links into CUBEs": 6 * 256 * 10**9,
    }
    assert data.memory_bytes_per_s == 4 * 1200 * 10**9


def test_an_engine_works_for_no_longer_than_the_run() -> None:
    machine = load_machine("row4_pe8")
    result = run("gqa_decode_long", machine)
    data = roofline_data([result], machine, engines=True)
    whole, *parts = data.points
    assert result.engines is not None
    assert {p.engine for p in parts} == {"load", "matrix", "vector"}
    for part in parts:
        assert part.flops_per_byte == whole.flops_per_byte
        assert part.flops_per_s * result.engines[part.engine] == pytest.approx(whole.flops_per_s)
        assert part.flops_per_s >= whole.flops_per_s
    matrix = next(p for p in parts if p.engine == "matrix")
    assert matrix.flops_per_s <= data.ceilings[0].flops_per_s


def record(**changes: object) -> RunRecord:
    spec = RunSpec(batch=2, h_q=8, h_kv=2, s_q=1, s_kv=1024, d_qk=128, dtype="bf16")
    fields = {
        "id": "a", "family": "decode_splitkv", "spec": spec, "implementation": Implementation(name="triton"),
        "device": Device(gpu="NVIDIA H200", arch="sm_90"), "times": Times(cold=Quantiles(median=10.0)),
        "evidence": "live", "source": "here",
    }  # fmt: skip
    return RunRecord(**(fields | changes))


def test_a_measured_run_is_its_arithmetic_over_its_bytes_and_time() -> None:
    (point,) = measured_points([record()])
    flops = 2 * 2 * 8 * 1024 * (128 + 128)
    nbytes = 2 * 1024 * 2 * (128 + 128) * 2 + 2 * 8 * (128 + 128) * 2
    assert point == Point("decode_splitkv", flops / nbytes, pytest.approx(flops / 10e-6), "measured (cold)")


def test_only_runs_with_this_time_on_so_many_gpus_are_points() -> None:
    two = record(device=Device(gpu="NVIDIA H200", arch="sm_90", count=2))
    warm = record(times=Times(warm=Quantiles(median=5.0)))
    copy = record(spec=RunSpec(nbytes=100), family="micro")
    assert len(measured_points([record(), two, warm, copy])) == 1
    with pytest.raises(InputError, match="no real run has a time 'hot' and counted arithmetic"):
        measured_points([record(), warm], "hot")


def test_what_cannot_be_drawn_is_told() -> None:
    machine = load_machine("row4_pe8")
    result = run("gqa_decode_long", machine)
    with pytest.raises(InputError, match="there is no point to draw"):
        roofline_data([result.model_copy(update={"makespan_ps": None})], machine)
    with pytest.raises(InputError, match="a run on row4_pe8 has no place under the roofs of grid8x8_pe8"):
        roofline_data([result], load_machine("grid8x8_pe8"))


@pytest.mark.parametrize("count", [2, 12])
def test_it_is_drawn_the_same_twice(count: int) -> None:
    machine = load_machine("h200")
    result = run("decode_splitkv", machine)
    data = roofline_data(
        [result] * count, machine, labels=[f"run {i}" for i in range(count)], engines=True,
        measured=measured_points([record()]),
    )  # fmt: skip
    assert picture_bytes(roofline_figure(data), "svg") == picture_bytes(roofline_figure(data), "svg")
    assert picture_bytes(roofline_figure(data), "png").startswith(b"\x89PNG")
