"""The picture of predicted against measured times."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np

from kernbench.realrun.compare import Comparison
from kernbench.realrun.records import Family

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, told apart by the colour-blind."""
_MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "*", "p", "h")
"""One for each family, so that colours may come again."""


def plot_comparison(comparison: Comparison, file: Any, title: str = "") -> None:
    """Draw predicted over measured time, both logarithmic, with bands of 10 and 25 % and the roofline behind.

    Parameters
    ----------
    comparison
        From :func:`kernbench.realrun.compare.compare`.
    file
        Path or open binary file for a PNG.
    title
        Put above the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(11.4, 6.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rows = comparison.rows
    axes.set_xscale("log")
    axes.set_yscale("log")
    if rows:
        drawn = [us for r in rows for us in (r.measured_us, r.predicted_us)]
        low, high = min(drawn) / 1.6, max(drawn) * 1.6
        _bands(axes, low, high)
        # far below the picture a roofline point says no more than at its edge
        roofs = [max(r.roofline_us, low * 1.05) for r in rows]
        axes.plot(
            [r.measured_us for r in rows], roofs, linestyle="none", marker=".", color="0.55", markersize=4,
            alpha=0.6, label=f"roofline: median error {_median([r.roofline_error for r in rows])}", zorder=2,
        )  # fmt: skip
        for i, family in enumerate(get_args(Family)):
            mine = [r for r in rows if r.family == family]
            if not mine:
                continue
            axes.plot(
                [r.measured_us for r in mine], [r.predicted_us for r in mine], linestyle="none",
                marker=_MARKERS[i % len(_MARKERS)], color=_COLOURS[i % len(_COLOURS)], markersize=5.5, alpha=0.8,
                markeredgecolor="white", markeredgewidth=0.4, zorder=3 + 1 / len(mine),  # few lie over many
                label=f"{family}: {len(mine)}, median error {_median([r.error for r in mine])}",
            )  # fmt: skip
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        # beside the picture, where it hides no point
        figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    plain = FuncFormatter(lambda us, _: f"{us:,g}")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(plain)
    axes.set_box_aspect(1)
    axes.set_xlabel("measured, µs")
    axes.set_ylabel("predicted, µs")
    axes.grid(which="major", alpha=0.25)
    if title:
        axes.set_title(title, fontsize=11)
    figure.savefig(str(file) if isinstance(file, (str, Path)) else file, format="png", dpi=150)


def _bands(axes: Any, low: float, high: float) -> None:
    ends = np.array([low, high])
    for share, shade in ((0.25, "0.92"), (0.10, "0.82")):
        axes.fill_between(
            ends, ends * (1 - share), ends * (1 + share), color=shade, linewidth=0, zorder=0, label=f"±{share:.0%}"
        )
    axes.plot(ends, ends, color="0.3", linewidth=0.8, zorder=1)


def _median(errors: list[float]) -> str:
    return f"{float(np.median(errors)):.0%}"
