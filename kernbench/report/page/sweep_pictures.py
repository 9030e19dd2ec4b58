"""Pictures of a sweep for its page: which of its columns make which picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.errors import InputError
from kernbench.explore.frame import varied
from kernbench.report.page.pictures import Picture, picture
from kernbench.report.plots.latency import MOST_LINES, latency_data, latency_figure
from kernbench.report.plots.pareto import pareto_data, pareto_figure
from kernbench.report.plots.scaling import ScalingData, scaling_data, scaling_figure
from kernbench.report.plots.table import column_title

if TYPE_CHECKING:
    from pandas import DataFrame

NOT_SETTINGS = ("position", "commands", "version", "bench")
"""Columns of stored results that no picture tells points apart by."""
_SIZES = ("batch", "T_q", "h_q", "h_kv", "d_head")


def sweep_pictures(frame: DataFrame, objectives: Sequence[str]) -> dict[str, Picture]:
    """Return the pictures that the points of a sweep make, by id; none if no point is done and feasible."""
    aside = [name for name in frame.columns if name in NOT_SETTINGS or str(name).startswith("split_")]
    points = frame.drop(columns=aside)
    good = points[(points["status"] == "done") & points["feasible"].fillna(False).astype(bool)]
    if good.empty:
        return {}
    found = [_pareto(good, objectives), _latency(good), *_scaling(good)]
    return {one.id: one for one in found if one is not None}


def _pareto(points: DataFrame, objectives: Sequence[str]) -> Picture | None:
    """Draw the first two objectives; where there is one only, it and the cost, or else it and the scratch peak."""
    wanted = list(dict.fromkeys([*objectives, "cost", "scratch_peak_bytes"]))
    differing = [name for name in wanted if name in points and points[name].dropna().nunique() > 1]
    if len(differing) < 2:
        return None
    x, y = differing[:2]
    figure = pareto_figure(pareto_data(points, (x, y)))
    title = f"{column_title(x)} against {column_title(y)}"
    return picture("pareto", figure, title, "Feasible points; no point is better in both than one of the front.")


def _latency(points: DataFrame) -> Picture | None:
    """Draw the time over the setting of numbers that has the most values, a line for each value of another one."""
    settings = varied(points)
    numbers = [name for name in settings if _is_positive(points, name)]
    if not numbers or points["makespan_ps"].min() <= 0:
        return None
    x = max(numbers, key=lambda name: points[name].nunique())
    others = [name for name in settings if name != x and points[name].astype(str).nunique() <= MOST_LINES]
    lines = sorted(others, key=lambda name: name != "sharding")[:1]
    figure = latency_figure(latency_data(points, x, lines))
    return picture("latency-plot", figure, f"Time over {x}", "The quickest feasible point at each value.")


def _is_positive(points: DataFrame, name: str) -> bool:
    kinds = {type(value) for value in points[name].tolist()}
    return kinds <= {int, float} and bool((points[name] > 0).all())


def _scaling(points: DataFrame) -> list[Picture]:
    """Draw strong and weak scaling, as far as there are points of the same work on several numbers of PEs."""
    one_size = all(points[name].nunique() == 1 for name in _SIZES if name in points)
    work = "S_kv" if one_size and "S_kv" in points else "flops"
    titles = {"strong": "The same work on more PEs.", "weak": "More work on as many more PEs."}
    found = []
    for kind, caption in titles.items():
        data = _scaling_data(points, kind, work)
        if data is not None:
            title = f"{kind.capitalize()} scaling"
            found.append(picture(f"scaling-{kind}", scaling_figure(data), title, caption))
    return found


def _scaling_data(points: DataFrame, kind: str, work: str) -> ScalingData | None:
    try:
        return scaling_data(points, kind, work)  # type: ignore[arg-type]  # one of two words
    except InputError:  # no such points: most sweeps have one number of PEs
        return None
