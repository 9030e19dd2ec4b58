"""What the time of runs goes to: one stacked bar a run, its parts adding up to the makespan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from kernbench.errors import InputError
from kernbench.report.plots import style
from kernbench.report.shares import parts_of
from kernbench.run import RunResult

_LEAST_LABELLED = 0.065
"""Share of the longest bar from which a part has its percentage written on it."""


@dataclass(frozen=True)
class CauseBar:
    """One run."""

    label: str
    makespan_ps: int
    parts: tuple[tuple[str, int], ...]
    """(cause, ps), in the order of :data:`kernbench.report.plots.style.CAUSES`; they add up to the makespan."""


@dataclass(frozen=True)
class CausesData:
    """The bars of the picture, from above."""

    bars: tuple[CauseBar, ...]
    causes: tuple[str, ...]
    """Those that any bar has."""
    of_grids: bool
    """Whether any run launches grids of workgroups: then the time is that of the places for workgroups."""
    of_meshes: bool
    """Whether any run is one of a mesh: then the time is that of its critical path."""


def causes_data(results: Sequence[RunResult], labels: Sequence[str] | None = None) -> CausesData:
    """Find the time by cause of runs.

    Parameters
    ----------
    results
        Runs with a time. Of a mesh the causes are those of the critical path, of a grid bench those of the places for
        workgroups (``docs/why.md``, ``docs/launches.md``).
    labels
        One for each run; default: bench and machine.

    Raises
    ------
    InputError
        If no run has a time (mode ``values``), or labels and runs differ in number.
    """
    names = [f"{r.bench} on {r.topology}" for r in results] if labels is None else list(labels)
    if len(names) != len(results):
        raise InputError(f"{len(names)} labels for {len(results)} runs: give one label a run")
    bars, kinds = [], []
    for name, result in zip(names, results, strict=True):
        if result.makespan_ps and result.time_by_cause:
            bars.append(CauseBar(name, result.makespan_ps, _parts(result.makespan_ps, result.time_by_cause)))
            kinds.append(result.implementation is not None)
    if not bars:
        raise InputError("no run has a time to draw: run with --mode time or both")
    present = {cause for bar in bars for cause, _ in bar.parts}
    return CausesData(tuple(bars), tuple(c for c in style.CAUSES if c in present), any(kinds), not all(kinds))


def _parts(makespan_ps: int, shares: dict[str, float]) -> tuple[tuple[str, int], ...]:
    """Turn shares into whole ps that add up to the makespan; what rounding leaves goes to the largest rests."""
    for cause in shares:
        style.look_of(cause)
    parts = parts_of(shares, makespan_ps)
    return tuple((cause, parts[cause]) for cause in style.CAUSES if parts.get(cause))


@style.settings()
def causes_figure(data: CausesData, title: str = "What the time goes to") -> Figure:
    """Draw the bars, each part with its percentage where it fits and the makespan behind."""
    columns = 6
    rows = -(-len(data.causes) // columns)
    figure = style.new_figure(0.95 + 0.42 * len(data.bars) + 0.2 * rows)
    axes = figure.subplots()
    longest = max(bar.makespan_ps for bar in data.bars)
    for y, bar in enumerate(data.bars):
        _draw_bar(axes, y, bar, longest)
    axes.set_yticks(range(len(data.bars)), [bar.label for bar in data.bars], fontsize=style.NORMAL)
    axes.set_ylim(len(data.bars) - 0.5, -0.5)
    axes.set_xlim(0, longest * 1.13)
    axes.xaxis.set_major_formatter(style.time_axis())
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title(title)
    axes.set_xlabel(_meaning(data))
    handles = [style.patch(cause) for cause in data.causes]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=1.8, handleheight=1.1)
    return figure


def _draw_bar(axes: Any, y: int, bar: CauseBar, longest: int) -> None:
    left = 0
    for cause, ps in bar.parts:
        look = style.look_of(cause)
        axes.barh(y, ps, left=left, height=0.66, color=look.fill, hatch=look.hatch, edgecolor=style.INK, linewidth=0.5)
        if ps / longest >= _LEAST_LABELLED:
            box = {"boxstyle": "round,pad=0.15", "facecolor": look.fill, "edgecolor": "none"} if look.hatch else None
            axes.text(
                left + ps / 2, y, style.percent(ps / bar.makespan_ps), ha="center", va="center", fontsize=style.SMALL,
                color=style.ink_on(look.fill), bbox=box,
            )  # fmt: skip
        left += ps
    axes.text(left + longest * 0.01, y, style.time_text(bar.makespan_ps), va="center", fontsize=style.NORMAL)


def _meaning(data: CausesData) -> str:
    path, places = "by what the critical path goes to", "by what the time of workgroups' places goes to"
    if data.of_grids and data.of_meshes:
        return f"simulated time: on meshes {path},\non GPUs {places}"
    return f"simulated time, {places if data.of_grids else path}"
