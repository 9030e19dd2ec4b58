"""The time of a sweep's points against one of their settings, a line for each sharding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from kernbench.errors import InputError
from kernbench.explore.frame import varied
from kernbench.report.plots import style
from kernbench.report.plots.table import (
    check_columns,
    check_positive,
    column_title,
    format_axis,
    groups_of,
    titled,
    usable,
)

if TYPE_CHECKING:
    import pandas as pd

MOST_LINES = 24


@dataclass(frozen=True)
class LatencyLine:
    """The best points of one sharding, by rising x."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    """The least of the points that share x and line."""
    counts: tuple[int, ...]
    """How many those are."""


@dataclass(frozen=True)
class LatencyData:
    """The lines of the picture."""

    x: str
    """Column of the horizontal axis."""
    y: str
    lines: tuple[LatencyLine, ...]
    least_over: tuple[str, ...]
    """Columns in which points that share x and line differ: of these points only the least is drawn."""


def latency_data(
    frame: pd.DataFrame, x: str, lines: str | Sequence[str] = "sharding", y: str = "makespan_ps"
) -> LatencyData:
    """Find the least time at each x for each line.

    Parameters
    ----------
    frame
        Points of a sweep; those that failed or are not feasible are left out.
    x
        A column of numbers, or of quantities with units.
    lines
        Columns whose values make a line; none: one line of all points.
    y
        A column of numbers, of which less is better.

    Raises
    ------
    InputError
        If a column is missing (the nearest name is given) or holds no numbers above 0, if no point is left, or if
        there are more than :data:`MOST_LINES` lines.
    """
    names = [lines] if isinstance(lines, str) else list(lines)
    check_columns(frame, [x, y, *names])
    points = usable(frame, [x, y])
    check_positive(points, [x, y])
    found: list[LatencyLine] = []
    differing: set[str] = set()
    for label, mine in groups_of(points, names):
        at = sorted(set(mine[x].tolist()))
        together = [mine[mine[x] == value] for value in at]
        for shared in together:
            differing.update(varied(shared))
        found.append(
            LatencyLine(
                label, tuple(at), tuple(float(shared[y].min()) for shared in together), tuple(map(len, together))
            )
        )
    if len(found) > MOST_LINES:
        raise InputError(f"{len(found)} lines are too many to be told apart: choose fewer points or other columns")
    least_over = tuple(str(c) for c in frame.columns if c in differing - {x, *names})
    return LatencyData(x, y, tuple(found), least_over)


@style.settings()
def latency_figure(data: LatencyData, title: str = "") -> Figure:
    """Draw the lines on logarithmic axes."""
    longest = max(len(line.label) for line in data.lines)
    columns = max(1, min(3, len(data.lines), 100 // (longest + 8)))
    figure = style.new_figure(3.9 + 0.17 * -(-len(data.lines) // columns))
    axes = figure.subplots()
    for i, line in enumerate(data.lines):
        axes.plot(
            line.x, line.y, color=style.colour(i), marker=style.marker(i), ls=style.dashes(i), mec=style.PAPER, mew=0.5,
            label=line.label,
        )  # fmt: skip
    format_axis(axes, "x", data.x, [x for line in data.lines for x in line.x], log=True)
    format_axis(axes, "y", data.y, [y for line in data.lines for y in line.y], log=True)
    axes.grid(which="major")
    if data.least_over:
        axes.set_xlabel(f"{column_title(data.x)}\nof points that differ in {', '.join(data.least_over)}: the least")
    axes.set_title(title or titled(f"{column_title(data.y)} against {column_title(data.x)}"))
    figure.legend(loc="outside lower center", ncols=columns, handlelength=3.2)
    return figure
