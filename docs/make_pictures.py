"""Make the pictures of ``docs/pictures.md``: the same bytes each time, with the same matplotlib.

Run ``python docs/make_pictures.py`` after a change of what they show, look at them, and commit them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

import kernbench as kb
from kernbench.bench import apply_settings, find_bench
from kernbench.machine import Machine
from kernbench.realrun.compare import of_gpu
from kernbench.realrun.sources import read_records, shipped_records
from kernbench.report.plots.causes import causes_data, causes_figure
from kernbench.report.plots.gantt import gantt_data, gantt_figure
from kernbench.report.plots.heat import heat_data, heat_figure
from kernbench.report.plots.latency import latency_data, latency_figure
from kernbench.report.plots.pareto import pareto_data, pareto_figure
from kernbench.report.plots.roofline import measured_points, roofline_data, roofline_figure
from kernbench.report.plots.scaling import scaling_data, scaling_figure
from kernbench.report.plots.style import FORMATS, save
from kernbench.report.selection import select_pes
from kernbench.run import RunResult, run_bench
from kernbench.simulate.timeline import Timeline

DECODE = {"S_kv": 65536, "h_q": 8, "h_kv": 1, "d_head": 128}


def run(bench: str, machine: Machine, look: Callable[[Timeline], None] | None = None, **settings: Any) -> RunResult:
    """Time a bench."""
    found = find_bench(bench)
    spec, implementation = apply_settings(found, settings)
    return run_bench(found, machine, spec, implementation=implementation, mode="time", look=look)


def timeline_of(bench: str, machine: Machine, **settings: Any) -> Timeline:
    """Time a bench of a mesh, and keep when each command ran."""
    seen: list[Timeline] = []
    run(bench, machine, seen.append, **settings)
    return seen[0]


def sweep() -> pd.DataFrame:
    """Time a decode of 64 heads with several lengths, tiles, shardings and sizes of the machine."""
    rows: list[dict[str, Any]] = []
    shardings = {
        "heads=none S_kv=cube,pe": {"split_S_kv": ["cube", "pe"]},
        "heads=pe S_kv=cube": {"split_heads": ["pe"], "split_S_kv": ["cube"]},
    }
    grid = product((1, 2, 4, 8, 16), (4096, 16384, 65536), (64, 256), shardings)
    for cubes, keys, tile, sharding in grid:
        machine = kb.load_machine("row4_pe8").with_overrides({"sip.cubes.columns": cubes})
        chosen = {"S_kv": keys, "TILE_S_KV": tile, "h_q": 64, "h_kv": 8, "d_head": 128, **shardings[sharding]}
        result = run("gqa_decode_long", machine, **chosen)
        rows.append({
            "key": f"point{len(rows)}", "topology": machine.name, "S_kv": keys, "TILE_S_KV": tile, "sharding": sharding,
            "sip.cubes.columns": cubes, "pes": machine.n_pes, "status": "done", "error": None, "feasible": True,
            "makespan_ps": result.makespan_ps, "scratch_peak_bytes": result.scratch_peak_bytes,
            "hbm_bytes": result.hbm_bytes, "link_bytes": result.link_bytes, "flops": result.flops,
            "cost": float(cubes),
        })  # fmt: skip
    return pd.DataFrame(rows)


def runs() -> Iterator[tuple[str, Figure]]:
    """Yield the pictures of single runs."""
    row, grid, gpu = (kb.load_machine(name) for name in ("row4_pe8", "grid8x8_pe8", "h200"))
    system = kb.load_machine("sip4_grid4x4_pe8")
    splitkv = {"S_kv": 8192, "batch": 4, "h_q": 32, "h_kv": 8, "d_head": 128, "splits": 4}
    results = {
        "decode, 4 CUBEs": run("gqa_decode_long", row, **DECODE),
        "decode, 64 CUBEs": run("gqa_decode_long", grid, **DECODE),
        "decode, 4 SIPs": run("gqa_decode_long", system, **DECODE),
        "prefill, 4 CUBEs": run("gqa_prefill", row),
    }
    yield "causes", causes_figure(causes_data(list(results.values()), list(results)))

    decode = timeline_of("gqa_decode_long", row, **DECODE)
    yield "gantt-pe", gantt_figure(gantt_data(decode, select_pes("cube0.pe7", row)))
    yield "gantt-cube", gantt_figure(gantt_data(decode, select_pes("cube0", row)))
    yield "heat-row4", heat_figure(heat_data(timeline_of("gqa_prefill", row)))
    yield "heat-sip4", heat_figure(heat_data(timeline_of("gqa_prefill", system)))
    yield "heat-grid8x8", heat_figure(heat_data(timeline_of("gqa_prefill", grid)))

    kernels = {
        "decode of 4,096 keys": run("gqa_decode_long", row, **{**DECODE, "S_kv": 4096}),
        "decode of 65,536 keys": results["decode, 4 CUBEs"],
        "prefill of 1,024 tokens": results["prefill, 4 CUBEs"],
    }
    under = roofline_data(list(kernels.values()), row, labels=list(kernels), engines=True)
    yield "roofline-mesh", roofline_figure(under)
    records = [record for path in shipped_records() for record in read_records(path).records]
    measured = measured_points(of_gpu(records, "h200"))
    simulated = [run("decode_splitkv", gpu, **splitkv), run("fa2_prefill", gpu)]
    yield "roofline-h200", roofline_figure(roofline_data(simulated, gpu, measured=measured))


def sweeps() -> Iterator[tuple[str, Figure]]:
    """Yield the pictures of a sweep."""
    points = sweep()
    yield "latency", latency_figure(latency_data(points[points["pes"].isin([8, 128])], "S_kv", ["sharding", "pes"]))
    yield "pareto", pareto_figure(pareto_data(points[points["S_kv"] == 65536]))
    yield "scaling-strong", scaling_figure(scaling_data(points))
    yield "scaling-weak", scaling_figure(scaling_data(points, "weak"))


def shrink(path: Path) -> None:
    """Write a PNG with 256 colours: a third of the bytes, and no difference that is seen."""
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / "pictures")
    parser.add_argument("--format", choices=FORMATS, default="png")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for make in (runs, sweeps):
        for name, figure in make():
            path = chosen.folder / f"{name}.{chosen.format}"
            save(figure, path)
            if chosen.format == "png":
                shrink(path)
            print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
