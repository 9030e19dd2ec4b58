"""What ``kernbench lint`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernbench.ledger import Ledger
from kernbench.lint.balance import HEADS
from kernbench.lint.findings import rate_text, time_text
from kernbench.lint.report import LintReport
from kernbench.machine import Machine
from kernbench.screen import new_console, print_ledger


def print_lint(machine: Machine, report: LintReport, ledger: Ledger) -> None:
    """Print a report, findings last."""
    console = new_console()
    console.print(f"[bold]{escape(report.machine)}[/]: {escape(machine.description)} (computed from its figures)")
    _print_bisections(console, report)
    _print_memory(console, report)
    _print_hot_links(console, report)
    _print_directions(console, report)
    _print_balance(console, report)
    console.print(f"\n[dim]findings (warnings: {len(report.warnings)})[/]")
    for finding in report.findings:
        colour = "yellow" if finding.severity == "warning" else "dim"
        where = escape(f"({', '.join(finding.keys)})")
        console.print(f"[{colour}]{finding.severity}:[/] {escape(finding.message)} [dim]{where}[/]")
    print_ledger(console, ledger)


def _print_table(console: Console, title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(f"\n[dim]{title}[/]")
    console.print(table)


def _print_bisections(console: Console, report: LintReport) -> None:
    rows = [
        (
            f"{cut.positions} {cut.level}s ({cut.arrangement})", str(cut.links), rate_text(cut.bandwidth),
            time_text(cut.scratch_ps), "–" if cut.memory_ratio is None else f"{cut.memory_ratio:,.3g}",
            cut.cut if len(cut.cut) <= 40 else f"{cut.cut[:37]}...", cut.where,
        )
        for cut in report.bisections
    ]  # fmt: skip
    if rows:
        headings = ("bisection, one direction", "links", "bandwidth", "a PE's scratch", "memory / cut", "cut", "of")
        _print_table(console, "narrowest cut into halves", headings, rows)


def _print_memory(console: Console, report: LintReport) -> None:
    m = report.memory
    rows = [
        (f"memory of a {m.owner}", rate_text(m.bandwidth)),
        (f"load ports of its {m.pes:,} PEs", rate_text(m.ports)),
        ("in flight to keep it busy", f"{m.in_flight / 1024:,.4g} KiB, {m.in_flight_pe / 1024:,.4g} KiB a PE"),
        ("one load, nearest memory", f"{rate_text(m.local_load)} (round trip {time_text(m.local_trip_ps)})"),
    ]
    if m.farthest_trip_ps > m.local_trip_ps:
        far = f"{rate_text(m.farthest_load)} (round trip {time_text(m.farthest_trip_ps)})"
        rows.append(("one load, farthest memory", far))
    if m.links_out is not None:
        least, most = m.links_out
        rows.append((f"links out of a {m.owner}", " to ".join(dict.fromkeys((rate_text(least), rate_text(most))))))
    rows += [(f"caches of {owner.upper()}s before it", rate_text(rate)) for owner, rate in m.cache_bandwidth.items()]
    _print_table(console, "memory against ports, trips and links", ("", ""), rows)


def _print_hot_links(console: Console, report: LintReport) -> None:
    rows = [
        (
            hot.pattern, f"{hot.flows:,}", hot.link, f"{hot.link_flows:,}", f"{hot.over_mean:,.3g} x",
            rate_text(hot.flow_bandwidth), rate_text(hot.sender_bandwidth),
        )
        for hot in report.hot_links
    ]  # fmt: skip
    if rows:
        headings = ("pattern", "flows", "busiest link", "its flows", "its load / mean", "each flow", "each sender")
        _print_table(console, "hot links: equal flows on the machine's own routes", headings, rows)


def _print_directions(console: Console, report: LintReport) -> None:
    rows = [(d.direction, "nowhere" if d.nowhere else d.pes, d.why) for d in report.missing_directions]
    if rows:
        _print_table(console, "directions without a channel", ("direction", "missing at", "why"), rows)


def _print_balance(console: Console, report: LintReport) -> None:
    rows = [
        (
            b.dtype, f"{b.rate / 1e12:,.4g} Tflop/s", f"{b.ridge:,.4g}", f"{b.decode_rows:,}",
            *(f"{b.exp_rows[d]:,}" for d in HEADS), f"{b.exp_head:,.4g}", f"{b.softmax_head:,.4g}",
        )
        for b in report.balance
    ]  # fmt: skip
    headings = (
        "format", f"PEs of a {report.memory.owner}", "ridge, flop/B", "rows: products bound",
        *(f"rows: exp bound, d={d}" for d in HEADS), "exp > products: d below", "softmax > products: d below",
    )  # fmt: skip
    _print_table(console, "arithmetic against memory, decode attention", headings, rows)
