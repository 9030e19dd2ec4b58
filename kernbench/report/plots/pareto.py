"""Which points of a sweep no other point beats: two objectives, less of each is better."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernbench.explore.frame import varied
from kernbench.report.plots import style
from kernbench.report.plots.table import (
    check_columns,
    column_title,
    format_axis,
    label_of,
    text_of,
    titled,
    usable,
    write_value,
)

if TYPE_CHECKING:
    import pandas as pd

_LOG_FROM = 20.0
"""Largest over least value from which an axis is logarithmic."""
_MOST_SINGLE = 1000
"""Beaten points that a vector file has one by one: thousands make a page slow to scroll and to print."""


@dataclass(frozen=True)
class ParetoPoint:
    """One point of the sweep."""

    x: float
    y: float
    on_front: bool
    """No point is at least as good in both objectives and better in one."""
    settings: tuple[tuple[str, str], ...]
    """(column, value) of what points differ in."""


@dataclass(frozen=True)
class ParetoData:
    """The points of the picture, in the order of the table."""

    x: str
    y: str
    points: tuple[ParetoPoint, ...]
    least_x: int
    """Index of the point of the front with the least x."""
    least_y: int
    balanced: int
    """Index of the point of the front nearest to (least x, least y), the front's extents being 1 both ways."""

    @property
    def front(self) -> tuple[ParetoPoint, ...]:
        """The points of the front by rising x."""
        return tuple(sorted((p for p in self.points if p.on_front), key=lambda p: (p.x, p.y, p.settings)))


def pareto_data(
    frame: pd.DataFrame, objectives: tuple[str, str] = ("makespan_ps", "cost"), settings: Sequence[str] | None = None
) -> ParetoData:
    """Find the front of two objectives, exactly.

    Parameters
    ----------
    frame
        Points of a sweep; those that failed or are not feasible are left out.
    objectives
        Two columns of numbers, of which less is better.
    settings
        Columns that tell points apart; default: every setting in which points differ.

    Raises
    ------
    InputError
        If a column is missing (the nearest name is given), holds no numbers, or no point is left.
    """
    x, y = objectives
    check_columns(frame, [*objectives, *(settings or ())])
    points = usable(frame, objectives)
    xs, ys = points[x].tolist(), points[y].tolist()
    front = _front(xs, ys)
    names = varied(points) if settings is None else list(settings)
    told = [tuple(zip(names, map(text_of, row), strict=True)) for row in zip(*(points[n] for n in names), strict=True)]
    told = told or [()] * len(xs)
    found = tuple(ParetoPoint(*each) for each in zip(xs, ys, front, told, strict=True))
    on = [i for i, point in enumerate(found) if point.on_front]
    wide, high = (max(v[i] for i in on) - min(v[i] for i in on) or 1.0 for v in (xs, ys))
    low_x, low_y = min(xs), min(ys)
    return ParetoData(
        x, y, found, min(on, key=lambda i: (xs[i], i)), min(on, key=lambda i: (ys[i], i)),
        min(on, key=lambda i: (((xs[i] - low_x) / wide) ** 2 + ((ys[i] - low_y) / high) ** 2, i)),
    )  # fmt: skip


def _front(xs: Sequence[float], ys: Sequence[float]) -> list[bool]:
    """Whether each point is dominated by none. Equal points do not dominate each other."""
    on_front = [False] * len(xs)
    least: float | None = None  # of y, over the points with a smaller x
    level: tuple[float, float] | None = None  # the last point of the front
    for i in sorted(range(len(xs)), key=lambda i: (xs[i], ys[i])):
        if least is None or ys[i] < least:
            least, level = ys[i], (xs[i], ys[i])
        on_front[i] = (xs[i], ys[i]) == level
    return on_front


@style.settings()
def pareto_figure(data: ParetoData, title: str = "") -> Figure:
    """Draw all points, the front as steps, and what its ends and its middle are."""
    named = _named(data)
    notes = [textwrap.fill(text, 112, subsequent_indent="     ") for text in named.values()]
    figure = style.new_figure(3.9 + 0.15 * sum(note.count("\n") + 1 for note in notes))
    axes = figure.subplots()
    others, front = [p for p in data.points if not p.on_front], data.front
    axes.plot(
        [p.x for p in others], [p.y for p in others], ls="none", marker="o", ms=3.5, mfc="none", mec=style.FAINT,
        mew=0.7, label=f"{len(others)} points that another beats", rasterized=len(others) > _MOST_SINGLE,
    )  # fmt: skip
    axes.plot(
        [p.x for p in front], [p.y for p in front], drawstyle="steps-post", color=style.PALETTE[0], marker="o",
        mec=style.PAPER, mew=0.5, zorder=3, label=f"{len(front)} points that none beats",
    )  # fmt: skip
    _draw_names(axes, data, named)
    for which, name in (("x", data.x), ("y", data.y)):
        values = [getattr(p, which) for p in data.points]
        format_axis(axes, which, name, values, log=min(values) > 0 and max(values) >= _LOG_FROM * min(values))
    axes.grid(which="major")
    axes.margins(0.08)
    axes.set_title(title or titled(f"{column_title(data.x)} and {column_title(data.y)}"))
    figure.legend(loc="outside upper right", ncols=2)  # above the axes, where it hides no point
    figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=style.SMALL)
    return figure


def _named(data: ParetoData) -> dict[int, str]:
    """Return what to write of the points that are named: letter, why, values and settings."""
    why: dict[int, list[str]] = {}
    for i, what in (
        (data.least_x, f"least {column_title(data.x)}"), (data.least_y, f"least {column_title(data.y)}"),
        (data.balanced, "nearest to the least of both"),
    ):  # fmt: skip
        why.setdefault(i, []).append(what)
    found = {}
    for letter, (i, reasons) in zip("ABC", why.items(), strict=False):
        point = data.points[i]
        settings = label_of([name for name, _ in point.settings], [value for _, value in point.settings])
        values = f"{write_value(data.x, point.x)}, {column_title(data.y)} {write_value(data.y, point.y)}"
        found[i] = f"{letter}  {', '.join(reasons)}: {values}" + (f"; {settings}" if settings else "")
    return found


def _draw_names(axes: Axes, data: ParetoData, named: dict[int, str]) -> None:
    for i, text in named.items():
        point = data.points[i]
        axes.plot([point.x], [point.y], marker="D", ms=7, color=style.PALETTE[1], mec=style.PAPER, mew=0.6, zorder=4)
        axes.annotate(
            text[0], (point.x, point.y), (6, 6), textcoords="offset points", weight="bold", fontsize=style.LARGE,
            zorder=5,
        )  # fmt: skip
