"""What more PEs bring: the same work over more of them (strong), and work that grows with them (weak)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernbench.errors import InputError, nearest
from kernbench.report.plots import style
from kernbench.report.plots.table import check_columns, check_positive, format_axis, groups_of, usable, write_value

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["strong", "weak"]


@dataclass(frozen=True)
class ScalingLine:
    """One problem (strong), or one amount of work a PE (weak), by rising number of PEs."""

    label: str
    pes: tuple[int, ...]
    makespan_ps: tuple[int, ...]
    """The least of the points with so many PEs."""
    work: tuple[float, ...]

    @property
    def speed_up(self) -> tuple[float, ...]:
        """Time of the fewest PEs over the time."""
        return tuple(self.makespan_ps[0] / ps for ps in self.makespan_ps)

    @property
    def efficiency(self) -> tuple[float, ...]:
        """Work a PE and time, over that of the fewest PEs: 1 is ideal."""
        first = self.work[0] / (self.pes[0] * self.makespan_ps[0])
        return tuple(
            w / (pes * ps) / first for w, pes, ps in zip(self.work, self.pes, self.makespan_ps, strict=True)
        )  # fmt: skip


@dataclass(frozen=True)
class ScalingData:
    """The lines of the picture."""

    kind: Kind
    work: str
    """Column that says how much work a point is."""
    lines: tuple[ScalingLine, ...]


def scaling_data(
    frame: pd.DataFrame, kind: Kind = "strong", work: str = "S_kv", lines: str | Sequence[str] = ()
) -> ScalingData:
    """Find how the time changes with the number of PEs.

    Of points with the same work (strong), or the same work a PE (weak), and as many PEs, the quickest counts.

    Parameters
    ----------
    frame
        Points of a sweep, with ``pes`` and ``makespan_ps``; those that failed or are not feasible are left out.
    kind
        ``strong`` or ``weak``.
    work
        A column of numbers that the work is proportional to, as ``S_kv`` or ``flops``.
    lines
        Further columns whose values make lines of their own.

    Raises
    ------
    InputError
        If a column is missing (the nearest name is given), or no work is there with several numbers of PEs.
    """
    if kind not in get_args(Kind):
        raise InputError(f"unknown kind of scaling {kind!r}{nearest(kind, get_args(Kind))}")
    names = [lines] if isinstance(lines, str) else list(lines)
    check_columns(frame, ["pes", "makespan_ps", work, *names])
    points = usable(frame, ["pes", "makespan_ps", work])
    check_positive(points, ["pes", "makespan_ps", work])
    found = []
    for label, mine in groups_of(points, names):
        by_problem: dict[Fraction, dict[int, tuple[int, float]]] = {}
        for pes, ps, amount in zip(mine["pes"], mine["makespan_ps"], mine[work], strict=True):
            problem = Fraction(amount) if kind == "strong" else Fraction(amount) / int(pes)
            best = by_problem.setdefault(problem, {})
            best[int(pes)] = min(best.get(int(pes), (int(ps), amount)), (int(ps), amount))
        for problem, best in sorted(by_problem.items()):
            if len(best) > 1:
                found.append(_line(label if names else "", kind, work, problem, best))
    if not found:
        what = f"the same {work}" if kind == "strong" else f"the same {work} a PE"
        raise InputError(f"no points with {what} and several numbers of PEs: there is no {kind} scaling to draw")
    return ScalingData(kind, work, tuple(found))


def _line(label: str, kind: Kind, work: str, problem: Fraction, best: dict[int, tuple[int, float]]) -> ScalingLine:
    amount = f"{work} {write_value(work, float(problem))}" + (" a PE" if kind == "weak" else "")
    pes = tuple(sorted(best))
    return ScalingLine(
        f"{label}: {amount}" if label else amount, pes, tuple(best[n][0] for n in pes), tuple(best[n][1] for n in pes)
    )


@style.settings()
def scaling_figure(data: ScalingData, title: str = "") -> Figure:
    """Draw the speed-up (strong) or the time (weak) beside the efficiency."""
    columns = 3 if max(len(line.label) for line in data.lines) < 30 else 2
    figure = style.new_figure(3.3 + 0.17 * -(-(len(data.lines) + 1) // columns))
    left, right = figure.subplots(1, 2)
    counts = sorted({n for line in data.lines for n in line.pes})
    for i, line in enumerate(data.lines):
        look = {
            "color": style.colour(i),
            "marker": style.marker(i),
            "ls": style.dashes(i),
            "mec": style.PAPER,
            "mew": 0.5,
        }
        left.plot(line.pes, line.speed_up if data.kind == "strong" else line.makespan_ps, label=line.label, **look)
        right.plot(line.pes, line.efficiency, **look)
    for axes in (left, right):
        format_axis(axes, "x", "pes", counts, log=True)
        axes.grid(which="major")
    _draw_ideal(left, right, data, counts)
    figure.suptitle(
        title or f"{data.kind.capitalize()} scaling", x=0.01, ha="left", fontsize=style.LARGE, weight="bold"
    )
    figure.legend(loc="outside lower center", ncols=columns, handlelength=3.2)
    return figure


def _draw_ideal(left: Axes, right: Axes, data: ScalingData, counts: Sequence[int]) -> None:
    look: dict[str, Any] = {"color": style.FAINT, "lw": 1.0, "zorder": 1}
    if data.kind == "strong":
        most = max(line.pes[-1] / line.pes[0] for line in data.lines)
        for i, first in enumerate(sorted({line.pes[0] for line in data.lines})):
            label = "ideal" if i == 0 else None
            left.plot([first, counts[-1]], [1, counts[-1] / first], label=label, **look)
        format_axis(left, "y", "speed-up", [1, most], log=True)
        left.set_ylabel("speed-up over the fewest PEs")
    else:
        times = [ps for line in data.lines for ps in line.makespan_ps]
        for i, line in enumerate(data.lines):
            left.plot(line.pes, [line.makespan_ps[0]] * len(line.pes), label="ideal" if i == 0 else None, **look)
        format_axis(left, "y", "makespan_ps", times, log=True)
        left.set_ylim(min(times) / 2, max(times) * 2)  # a few per cent must not fill the picture
    right.axhline(1, **look)
    right.set_ylim(0, max(1.08, *(e * 1.05 for line in data.lines for e in line.efficiency)))
    right.yaxis.set_major_formatter(lambda share, _: style.percent(share))
    right.set_ylabel("efficiency")
