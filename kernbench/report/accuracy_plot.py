"""The picture of what number formats cost in accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernbench.accuracy import Row
from kernbench.report.plots import style


def plot_accuracy(rows: list[Row], file: Any, title: str) -> None:
    """Draw the error of every head by format, and of sparse masks over their density.

    Parameters
    ----------
    rows
        From :func:`kernbench.accuracy.accuracy_table`.
    file
        Path or open binary file for a PNG.
    title
        What the inputs were.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    dense, sparse = figure.subplots(1, 2, width_ratios=(1.5, 1))
    _draw_formats(dense, [r for r in rows if r.density is None])
    _draw_sparse(sparse, [r for r in rows if r.density is not None])
    figure.suptitle(f"Attention held against float64: {title}")
    figure.savefig(str(file) if isinstance(file, (str, Path)) else file, format="png", dpi=150)


def _draw_formats(axes: Any, rows: list[Row]) -> None:
    formats = list(dict.fromkeys(r.format for r in rows))
    layers = list(dict.fromkeys(r.layer for r in rows))
    for i, layer in enumerate(layers):
        mine = [r for r in rows if r.layer == layer]
        offset = 0.18 * (i - (len(layers) - 1) / 2)
        places = [len(formats) - 1 - formats.index(r.format) - offset for r in mine]
        axes.plot(
            [r.rel_l2 for r in mine], places, linestyle="none", marker=style.marker(i), color=style.colour(i),
            markersize=4.5, alpha=0.75, label=layer,
        )  # fmt: skip
    axes.set_yticks(range(len(formats)), formats[::-1])
    axes.set_xscale("log")
    axes.set_xlabel("relative L2 error, one mark a query head")
    axes.set_title("Format of stored keys and values", fontsize=11)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower left", framealpha=1)


def _draw_sparse(axes: Any, rows: list[Row]) -> None:
    for i, layer in enumerate(dict.fromkeys(r.layer for r in rows)):
        mine = [r for r in rows if r.layer == layer]
        densities = sorted({r.density for r in mine if r.density is not None})
        by_density = [np.array([r.rel_l2 for r in mine if r.density == d]) for d in densities]
        axes.plot(densities, [e.mean() for e in by_density], marker=style.marker(i), color=style.colour(i), label=layer)
        axes.fill_between(
            densities, [e.min() for e in by_density], [e.max() for e in by_density], color=style.colour(i), alpha=0.15
        )
    axes.set_xlabel("share of the causal blocks that are kept")
    axes.set_ylabel("relative L2 error: mean and range over heads")
    axes.set_title("Jenga / VSA masks from the real scores", fontsize=11)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(framealpha=1)
