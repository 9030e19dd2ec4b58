"""What `kernbench compare` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernbench.provenance import setting_text
from kernbench.readable import time_text
from kernbench.report.compare import Change, Comparison
from kernbench.screen import new_console, print_ledger

MOST_ROWS = 12
"""Rows of a table that are printed; the rest is in the JSON."""


def print_comparison(found: Comparison) -> None:
    """Print what changed, the largest change first."""
    console = new_console()
    console.print(f"A: [bold]{escape(found.a)}[/]")
    console.print(f"B: [bold]{escape(found.b)}[/]")
    if found.makespan is not None:
        console.print(f"makespan (simulated): {_makespan(found)}")
    _print_differences(console, found)
    whole = (found.makespan.a_ps or 0) if found.makespan else 0
    _print_changes(console, "time by cause (simulated)", found.by_cause, whole)
    _print_changes(console, "critical path by source line (simulated)", found.by_line, whole)
    _print_changes(console, "time by launch (simulated)", found.by_launch, whole)
    _print_figures(console, found)
    _print_correctness(console, found)
    for reason in found.not_compared:
        console.print(f"[yellow]not compared:[/] {escape(reason)}")
    _print_ledgers(console, found)


def _print_ledgers(console: Console, found: Comparison) -> None:
    if found.ledger_a == found.ledger_b:
        print_ledger(console, found.ledger_a)
        return
    for name, ledger in (("A", found.ledger_a), ("B", found.ledger_b)):
        console.print(f"{name}: ", end="")
        print_ledger(console, ledger)


def _makespan(found: Comparison) -> str:
    makespan = found.makespan
    assert makespan is not None  # asked by the caller
    before, after = time_text(makespan.a_ps or 0), time_text(makespan.b_ps or 0)
    factor = "" if found.ratio is None else f", {found.ratio:.4f} times as long"
    return f"A {before}, B {after}: {_signed(makespan.difference_ps)}{factor}"


def _signed(ps: int) -> str:
    return "no change" if ps == 0 else ("+" if ps > 0 else "") + time_text(ps)


def _table(console: Console, title: str, headings: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; headings say whether their column is of numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, is_number in headings:
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows[:MOST_ROWS]:
        table.add_row(*row)
    console.print(f"[dim]{title}[/]")
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"[dim]and {len(rows) - MOST_ROWS} more[/]")


def _print_changes(console: Console, title: str, changes: Sequence[Change] | None, whole: int) -> None:
    if changes is None:
        return
    rows = [
        (
            _signed(change.difference_ps),
            f"{change.difference_ps / whole:+.1%}" if whole else "",
            "-" if change.a_ps is None else time_text(change.a_ps),
            "-" if change.b_ps is None else time_text(change.b_ps),
            escape(change.name) + (f" [dim](only in {change.only_in})[/]" if change.only_in else ""),
        )
        for change in changes
        if change.difference_ps or change.only_in
    ]
    if not rows:
        console.print(f"[dim]{title}:[/] no change")
        return
    headings = (("change", True), ("of A's makespan", True), ("A", True), ("B", True), ("", False))
    _table(console, title, headings, rows)


def _print_differences(console: Console, found: Comparison) -> None:
    rows = [(d.where, escape(d.name), _value(d.a), _value(d.b)) for d in found.differences]
    if not rows:
        console.print("[dim]what ran:[/] the same")
        return
    _table(console, "what ran differs in", (("", False), ("", False), ("A", False), ("B", False)), rows)


def _value(value: Any) -> str:
    return escape(setting_text(value))


def _print_figures(console: Console, found: Comparison) -> None:
    rows = [
        (
            f.name.replace("_", " "),
            _count(f.a),
            _count(f.b),
            f"{f.b - f.a:+,}" if f.a is not None and f.b is not None else "",
        )
        for f in found.figures
        if f.a != f.b
    ]
    if rows:
        _table(console, "counts (recorded, simulated)", (("", False), ("A", True), ("B", True), ("change", True)), rows)


def _count(n: int | None) -> str:
    return "not asked for" if n is None else f"{n:,}"


def _print_correctness(console: Console, found: Comparison) -> None:
    a, b = found.correctness_a, found.correctness_b
    if a is None or b is None:
        return
    rows = [("passed", str(a.passed).lower(), str(b.passed).lower())]
    for name in ("rel_l2", "worst_row_rel_l2", "max_abs", "tolerance"):
        rows.append((name.replace("_", " "), _error(getattr(a, name)), _error(getattr(b, name))))
    rows.append(("NaN or infinite", str(a.nan_count), str(b.nan_count)))
    _table(console, "values held against float64 (simulated)", (("", False), ("A", True), ("B", True)), rows)


def _error(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2e}"
