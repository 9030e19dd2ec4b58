"""``kernbench plot``: one picture of runs or of a sweep. Everything heavy is imported inside the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernbench.commandline import DEFAULT_STORE, GOOD, StoreOption, reports_errors
from kernbench.errors import InputError, nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from kernbench.run import RunResult

OF_RUNS = ("causes", "gantt", "heat", "roofline")
OF_SWEEPS = ("latency", "pareto", "scaling")


@reports_errors
def plot(
    kind: Annotated[str, typer.Argument(help=f"{', '.join(OF_RUNS)} of runs; {', '.join(OF_SWEEPS)} of a sweep.")],
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Files from `kernbench run --json`, or a sweep's name.")
    ],
    out: Annotated[Path, typer.Option(help="Picture to write: .svg, .png or .pdf.")],
    title: Annotated[str, typer.Option(help="Default: one that says what is drawn.")] = "",
    pes: Annotated[
        str | None, typer.Option(help="gantt: PEs, as 0-7, cube0 or sip0.cube1.pe3; default: the first that works.")
    ] = None,
    engines: Annotated[bool, typer.Option("--engines", help="roofline: a point for each engine too.")] = False,
    measured: Annotated[
        bool, typer.Option("--measured", help="roofline: real runs of the same kernel family on the same GPU too.")
    ] = False,
    x: Annotated[str | None, typer.Option(help="latency, pareto: column along x.")] = None,
    y: Annotated[str | None, typer.Option(help="latency, pareto: column along y.")] = None,
    lines: Annotated[
        str | None, typer.Option(help="latency, scaling: columns that make a line each, as sharding,TILE_S_KV.")
    ] = None,
    work: Annotated[str, typer.Option(help="scaling: column that says how much work a point is.")] = "S_kv",
    weak: Annotated[bool, typer.Option("--weak", help="scaling: the work grows with the PEs.")] = False,
    where: Annotated[str | None, typer.Option(metavar="EXPRESSION", help="Only these points of the sweep.")] = None,
    store: StoreOption = DEFAULT_STORE,
) -> int:
    """Draw runs (causes, gantt, heat, roofline) or a sweep (latency, pareto, scaling)."""
    if kind not in (*OF_RUNS, *OF_SWEEPS):
        raise InputError(f"unknown picture {kind!r}{nearest(kind, (*OF_RUNS, *OF_SWEEPS))}")
    from kernbench.report.plots import style

    style.format_of(out)  # a name that cannot be written is found before the work
    if kind in OF_RUNS:
        figure = _of_runs(kind, [Path(source) for source in sources], title, pes, engines, measured)
    else:
        if len(sources) > 1:
            raise InputError(f"{kind} is a picture of one sweep; {len(sources)} are named")
        frame = _points(sources[0], store, where)
        figure = _of_sweep(kind, frame, title, x, y, lines.split(",") if lines else None, work, weak)
    style.save(figure, out)
    typer.echo(f"wrote {out}")
    return GOOD


def _of_runs(kind: str, paths: list[Path], title: str, pes: str | None, engines: bool, measured: bool) -> Figure:
    from kernbench.report.again import machine_of, read_result, time_again

    results = [read_result(path) for path in paths]
    labels = [path.stem for path in paths]
    if kind == "causes":
        from kernbench.report.plots.causes import causes_data, causes_figure

        return causes_figure(causes_data(results, labels if len(paths) > 1 else None), *_given(title))
    if kind == "roofline":
        return _roofline(results, labels if len(paths) > 1 else None, title, engines, measured)
    if len(results) > 1:
        raise InputError(f"{kind} is a picture of one run; {len(results)} are named")
    timeline = time_again(results[0]).timeline
    if kind == "heat":
        from kernbench.report.plots.heat import heat_data, heat_figure

        return heat_figure(heat_data(timeline), title)
    from kernbench.report.plots.gantt import gantt_data, gantt_figure
    from kernbench.report.selection import select_pes

    chosen = [int(timeline.program.pe.min())] if pes is None else select_pes(pes, machine_of(results[0]))
    return gantt_figure(gantt_data(timeline, chosen), title)


def _given(title: str) -> tuple[str, ...]:
    return (title,) if title else ()


def _roofline(results: list[RunResult], labels: list[str] | None, title: str, engines: bool, measured: bool) -> Figure:
    from kernbench.report.again import machine_of
    from kernbench.report.plots.measured import measured_for
    from kernbench.report.plots.roofline import roofline_data, roofline_figure

    machine = machine_of(results[0])
    points = measured_for(results, machine) if measured else []
    if measured and not points:
        raise InputError(f"--measured: no real run of {results[0].bench} on {machine.name} is known")
    return roofline_figure(roofline_data(results, machine, labels=labels, engines=engines, measured=points), title)


def _points(name: str, store: Path, where: str | None) -> pd.DataFrame:
    from kernbench.explore.frame import results_frame
    from kernbench.explore.store import Store
    from kernbench.explore.sweepfile import sweep_name

    with Store(store) as opened:
        return results_frame(opened, sweep_name(name), where)


def _of_sweep(
    kind: str, frame: pd.DataFrame, title: str, x: str | None, y: str | None, lines: list[str] | None, work: str,
    weak: bool,
) -> Figure:  # fmt: skip
    draw: dict[str, Callable[[], Figure]] = {
        "latency": lambda: _latency(frame, title, x, y, lines),
        "pareto": lambda: _pareto(frame, title, x, y),
        "scaling": lambda: _scaling(frame, title, lines, work, weak),
    }
    return draw[kind]()


def _latency(frame: pd.DataFrame, title: str, x: str | None, y: str | None, lines: list[str] | None) -> Figure:
    from kernbench.report.plots.latency import latency_data, latency_figure

    data = latency_data(frame, x or "S_kv", ["sharding"] if lines is None else lines, y or "makespan_ps")
    return latency_figure(data, title)


def _pareto(frame: pd.DataFrame, title: str, x: str | None, y: str | None) -> Figure:
    from kernbench.report.plots.pareto import pareto_data, pareto_figure

    return pareto_figure(pareto_data(frame, (x or "makespan_ps", y or "scratch_peak_bytes")), title)


def _scaling(frame: pd.DataFrame, title: str, lines: list[str] | None, work: str, weak: bool) -> Figure:
    from kernbench.report.plots.scaling import scaling_data, scaling_figure

    return scaling_figure(scaling_data(frame, "weak" if weak else "strong", work, lines or ()), title)
