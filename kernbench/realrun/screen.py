"""What the command line prints of measured runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernbench.realrun.compare import Comparison, Errors, Row
from kernbench.screen import new_console

if TYPE_CHECKING:
    from kernbench.realrun.calibrate import Calibration

_WORST = 10
_REASONS = 15
"""Reasons for skipping that are listed, most frequent first."""


def print_comparison(comparison: Comparison) -> None:
    """Print errors by family and GPU, the worst rows, the order of launches and what was skipped."""
    console = new_console()
    rows = comparison.rows
    if rows:
        console.print("predicted (modelled) against measured time; an error is |predicted / measured - 1|")
        console.print(_errors_table(comparison))
        found = comparison.ordering
        if found.share is not None:
            ties = f", {found.tied} predicted equal" if found.tied else ""
            console.print(
                f"faster of two launches of the same work named right: {found.share:.0%} "
                f"({found.right} of {found.pairs} pairs whose measured times differ by > 10 %{ties})"
            )
        console.print(f"\n[bold]worst {min(_WORST, len(rows))} of {len(rows)}[/]")
        console.print(_worst_table(rows))
    else:
        console.print("nothing was compared")
    if comparison.skipped:
        _print_skipped(console, comparison)


def _errors_table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("family", "GPU"):
        table.add_column(heading, no_wrap=True)
    for heading in ("n", "median", "mean", "p90", "bias", "roofline's median", "kept aside: n", "median", "p90"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, errors in comparison.families.items():
        aside = comparison.kept_aside.get(name)
        judged = ("0", "", "") if aside is None else (str(aside.n), f"{aside.median:.1%}", f"{aside.p90:.1%}")
        table.add_row(escape(name.partition("@")[0]), escape(errors.gpu), *_cells(errors), *judged)
    table.add_section()
    for half, some in comparison.halves.items():
        meaning = {"train": "rows a model may be fitted to", "test": "rows kept aside"}[half]
        table.add_row(half, f"[dim]{meaning}[/]", *_cells(some))
    return table


def _cells(errors: Errors) -> tuple[str, ...]:
    shares = (errors.median, errors.mean, errors.p90)
    return (str(errors.n), *(f"{s:.1%}" for s in shares), f"{errors.bias:+.1%}", f"{errors.roofline_median:.1%}")


def _worst_table(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("row", overflow="fold", max_width=50)
    for heading in ("measured", "predicted", "error", "roofline"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bound by", overflow="fold")
    for row in sorted(rows, key=lambda r: -abs(r.log_ratio))[:_WORST]:
        times = (f"{us:,.1f} us" for us in (row.measured_us, row.predicted_us))
        name = row.id if row.grade is None else f"{row.id} ({row.grade})"
        table.add_row(
            escape(name), *times, f"{row.signed:+.0%}", f"{row.roofline_us:,.1f} us", escape(row.reason)
        )  # fmt: skip
    return table


def _print_skipped(console: Console, comparison: Comparison) -> None:
    reasons = Counter(skip.reason for skip in comparison.skipped).most_common()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for reason, count in reasons[:_REASONS]:
        table.add_row(str(count), escape(reason))
    if len(reasons) > _REASONS:
        rest = sum(count for _, count in reasons[_REASONS:])
        table.add_row(str(rest), f"[dim]for {len(reasons) - _REASONS} more reasons: see the JSON[/]")
    console.print(f"\n[bold]skipped {len(comparison.skipped)}[/]")
    console.print(table)


def print_calibration(result: Calibration) -> None:
    """Print what was fitted, and how much the times depend on it."""
    console = new_console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("figure", "before", "fitted", "10 % more changes times by"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure in result.figures:
        table.add_row(figure.key, figure.before, figure.after, f"{figure.sensitivity * 0.1:.2%}")
    console.print(f"fitted to {result.rows} measured times of {result.records} training records")
    console.print(table)
    console.print(f"median error over them: {result.error_before:.1%} before, {result.error_after:.1%} after")
