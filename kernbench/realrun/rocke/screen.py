"""What the command line prints of a cross-check."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernbench.realrun.rocke import llvm
from kernbench.realrun.rocke.crosscheck import CrossCheck
from kernbench.realrun.rocke.machine_code import Executed
from kernbench.screen import new_console

_SHOWN = 10
"""Differences that are printed; the JSON file has all."""


def print_crosscheck(result: CrossCheck) -> None:
    """Print what was compared, level by level, and what differs."""
    console = new_console()
    layout = result.layout
    commit = f"commit {layout.commit}" if layout.commit else "commit unknown"
    console.print(f"[bold]{escape(str(layout.root))}[/]: {commit}{' with local changes' if layout.changed else ''}")
    if result.specs:
        _print_agreement(console, result)
    if result.executed:
        _print_executed(console, result.executed)
    _print_differences(console, result)


def _print_agreement(console: Console, result: CrossCheck) -> None:
    found = result.agreement
    console.print(f"levels 0 and 1: {result.specs} random specs, {found.legal} legal somewhere")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "compared", "different"):
        table.add_column(heading, justify="right" if heading else "left")
    for what, count in found.compared.items():
        different = sum(d.what.split(" on ")[0] == what for d in found.differences)
        table.add_row(what, str(count), _marked(different == 0, str(different)))
    console.print(table)


def _print_executed(console: Console, rows: list[Executed]) -> None:
    console.print(
        f"levels 2 and 3: compiled with LLVM {llvm.version()} (llvmlite {llvm.llvm_package()}), executed on the CPU; "
        "counts are of waves, bytes of lanes"
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("kernel", "mask", "for"):
        table.add_column(heading, overflow="fold")
    for heading in ("bits equal", "rel. L2", "to float64", "MFMA", "exp", "B read", "B written", "LDS", "kernarg"):
        table.add_column(heading, justify="right")
    for row in rows:
        exact = "-" if row.to_float64 is None else f"{row.to_float64:.1e}"
        table.add_row(
            escape(row.kernel.removeprefix("rocke_")), row.mask, row.arch, f"{row.equal:.2%}",
            _marked(row.values.passed, f"{row.values.rel_l2:.0e}"), exact, *_counts(row),
        )  # fmt: skip
    console.print(table)


def _counts(row: Executed) -> list[str]:
    wanted = asdict(row.expected)
    return [
        _marked(count == wanted[name], f"{count}" if count == wanted[name] else f"{count}, not {wanted[name]}")
        for name, count in asdict(row.counted).items()
    ]


def _marked(good: bool, text: str) -> str:
    return text if good else f"[bold red]{text}[/]"


def _print_differences(console: Console, result: CrossCheck) -> None:
    found = result.differences
    if not found:
        console.print("[green]no difference[/]")
        return
    console.print(f"[bold red]{len(found)} differences[/]")
    for difference in found[:_SHOWN]:
        console.print(f"[bold]{escape(difference.what)}[/] {escape(difference.subject)}")
        console.print(f"  kernbench: {escape(difference.kernbench)}\n  checkout:  {escape(difference.checkout)}")
    if len(found) > _SHOWN:
        console.print(f"[dim]and {len(found) - _SHOWN} more: see the JSON[/]")
