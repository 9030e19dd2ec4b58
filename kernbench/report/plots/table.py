"""Reading a table of sweep points: one row a point, its settings and what came out as columns.

``status`` and ``feasible`` say which points count. Columns of the settings hold numbers, text, or quantities as a
machine file writes them (``1.2 TB/s``), which are read as numbers in base units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from kernbench.errors import InputError, nearest
from kernbench.explore.expressions import quantity
from kernbench.explore.frame import is_missing
from kernbench.report.plots import style

if TYPE_CHECKING:
    import pandas as pd


def check_columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Check that a table has these columns. Raises InputError with the nearest name."""
    for name in names:
        if name not in frame.columns:
            raise InputError(f"the points have no column {name!r}{nearest(name, map(str, frame.columns))}")


def usable(frame: pd.DataFrame, numeric: Sequence[str]) -> pd.DataFrame:
    """Return the points that are done, feasible, and have a number in each of these columns, as floats.

    Raises
    ------
    InputError
        If a column is missing, holds text that is no quantity, or no point is left.
    """
    check_columns(frame, numeric)
    keep = frame
    if "status" in frame.columns:
        keep = keep[keep["status"] == "done"]
    done = len(keep)
    if "feasible" in keep.columns:
        keep = keep[keep["feasible"].fillna(True).astype(bool)]
    feasible = len(keep)
    values = {name: [_number(name, value) for value in keep[name]] for name in dict.fromkeys(numeric)}
    finite = np.array([all(map(math.isfinite, row)) for row in zip(*values.values(), strict=True)], bool)
    keep = keep.assign(**values)[finite]
    if keep.empty:
        raise InputError(
            f"none of {len(frame)} points can be drawn: {done} are done, {feasible} of these feasible, none with a "
            f"number in {' and '.join(values)}"
        )
    return keep


def _number(name: str, value: Any) -> float:
    """Read a cell as a number, NaN if it is empty."""
    if is_missing(value):
        return math.nan
    if isinstance(value, str):
        found = quantity(value)
        if found is None:
            raise InputError(
                f"column {name!r} holds {value!r}, which is no number and no quantity: choose another column"
            )
        return float(found[0])
    return float(value)


def text_of(value: Any) -> str:
    """Write a setting.

    >>> text_of(64.0), text_of("pe"), text_of(0.25)
    ('64', 'pe', '0.25')
    """
    return f"{value:,.10g}".replace(",", "") if isinstance(value, float) else str(value)


def label_of(names: Sequence[str], values: Sequence[Any]) -> str:
    """Write the values of some columns with their names; a sharding says itself what it is.

    >>> label_of(["sharding", "pes"], ["heads=pe S_kv=cube", 32])
    'heads=pe S_kv=cube, pes=32'
    """
    pairs = zip(names, map(text_of, values), strict=True)
    return ", ".join(value if name == "sharding" else f"{name}={value}" for name, value in pairs)


def groups_of(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Return the points by the values of some columns, in the order of first appearance; all of them without names."""
    if not names:
        return [("all points", frame)]
    found: dict[tuple[str, ...], list[int]] = {}
    for i, values in enumerate(zip(*(frame[name] for name in names), strict=True)):
        found.setdefault(tuple(map(text_of, values)), []).append(i)
    return [(label_of(names, values), frame.iloc[rows]) for values, rows in found.items()]


# ---------------------------------------------------------------- axes
_NAMES = {
    "makespan_ps": "simulated time", "hbm_bytes": "bytes of memory traffic", "link_bytes": "bytes over links",
    "scratch_peak_bytes": "scratch of a PE at its peak", "flops": "matrix arithmetic", "pes": "PEs",
}  # fmt: skip


def column_title(name: str) -> str:
    """Return what an axis calls a column."""
    return _NAMES.get(name, name)


def titled(text: str) -> str:
    """Begin with a capital, and leave the rest as it is: ``S_kv`` and ``PE`` are names."""
    return text[:1].upper() + text[1:]


def write_value(name: str, value: float, digits: int = 4) -> str:
    """Write a value of a column with its unit; whole numbers below a hundred million in full."""
    if name == "makespan_ps":
        return style.time_text(value, digits)
    if name.endswith("_bytes"):
        return style.short(value, "B", digits)
    if name == "flops":
        return style.short(value, "flop", digits)
    if abs(value) >= 1e8:
        return style.short(value, "", digits)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.{digits}g}"


def format_axis(axes: Axes, which: str, name: str, values: Sequence[float], log: bool) -> None:
    """Name and scale an axis (``x`` or ``y``) for a column.

    A logarithmic axis that spans less than two decades is marked at the values themselves, or at round ones.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}label": column_title(name)})
    if log:
        axes.set(**{f"{which}scale": "log"})
        distinct = sorted(set(values))
        if which == "x" and len(distinct) <= 9:
            axis.set_major_locator(FixedLocator(distinct))
            axis.set_minor_locator(NullLocator())
        elif max(values) / min(values) < 100:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write_value(name, value, style.AXIS_DIGITS)))


def check_positive(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Check that columns can stand on a logarithmic axis. Raises InputError."""
    for name in names:
        if (frame[name] <= 0).any():
            raise InputError(f"column {name!r} has values that are not above 0, and its axis is logarithmic")
