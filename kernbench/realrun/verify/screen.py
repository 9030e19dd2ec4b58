"""What the command line prints of a verification."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernbench.realrun.verify.verification import Count, LaunchCounts, Verification
from kernbench.run import CorrectnessResult
from kernbench.screen import new_console


def print_verification(found: Verification) -> None:
    """Print values, then for each launch its work and its time."""
    console = new_console()
    console.print(
        f"[bold]{escape(found.bench)}[/] for {found.arch}, beside {escape(found.topology)}; inputs "
        f"{escape(found.inputs)}, seed {found.seed}",
        highlight=False,
    )
    for warning in found.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)
    console.print(_values(found))
    for launch in found.launches:
        _print_launch(console, launch)


HEADINGS = ("spec", "relative L2", "matrix operations", "exponentials", "bytes read", "bytes written", "LDS a tile",
            "cycles: at least", "simulated")  # fmt: skip
"""Of :func:`summary`."""


def summary(name: str, found: Verification) -> tuple[str, ...]:
    """Return one line on a verification: the error, then of its first launch what was counted and what charged.

    A number by itself was counted and charged alike; ``a / b`` is counted and charged.
    """
    launch = found.launches[0]
    both = [_both(launch.work[kind]) for kind in
            ("matrix operations", "exponentials", "global bytes read", "global bytes written")]  # fmt: skip
    lds = launch.work["LDS bytes"]
    staged = f"{lds.counted / launch.tiles:,.0f} / {lds.charged / launch.tiles:,.0f}" if launch.tiles else "-"
    cycles = (f"{launch.bound.cycles:,}", f"{launch.simulated_cycles:,}")
    return name, f"{found.machine_code.rel_l2:.1e}", *both, staged, *cycles


def _both(count: Count) -> str:
    equal = count.counted == count.charged
    return f"{count.counted:,}" if equal else f"{count.counted:,} / {count.charged:,}"


def summary_table(rows: list[tuple[str, ...]]) -> Table:
    """Return lines of :func:`summary` as a table."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "spec" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def print_summary(names: list[str], found: list[Verification]) -> None:
    """Print one line for each spec, and which were wrong."""
    console = new_console()
    console.print(
        f"machine code for {found[0].arch}, executed on a CPU, beside what the simulator charges for "
        f"{escape(found[0].topology)} (a / b: counted / charged)",
        highlight=False,
        soft_wrap=True,
    )
    console.print(summary_table([summary(name, each) for name, each in zip(names, found, strict=True)]))
    above = [name for name, each in zip(names, found, strict=True)
             if any(launch.bound.cycles > launch.simulated_cycles for launch in each.launches)]  # fmt: skip
    if above:
        console.print(
            f"[yellow]simulated in less time than the instructions take to issue:[/] {escape(', '.join(above))}",
            soft_wrap=True,
        )
    wrong = [name for name, each in zip(names, found, strict=True) if not each.passed]
    if wrong:
        console.print(f"[red]wrong: {escape(', '.join(wrong))}[/]")


def print_specs(specs: dict[str, dict[str, object]]) -> None:
    """Print what can be verified by name."""
    console = new_console()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, fields in specs.items():
        rest = " ".join(f"{key}={value}" for key, value in fields.items() if key != "bench")
        table.add_row(escape(name), f"{escape(str(fields['bench']))} [dim]{escape(rest)}[/]")
    console.print(table)
    console.print("[dim]code comes with kernbench for gfx942 and gfx950; for gfx90a Triton is needed but for a few[/]")


def _values(found: Verification) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("values", "max abs", "relative L2", "worst row", "cosine", ""):
        table.add_column(heading, justify="left" if heading in ("values", "") else "right", no_wrap=True)
    for name, result in (
        ("machine code (executed on a CPU) - float64", found.machine_code),
        ("bench (simulated) - float64", found.simulated),
        ("machine code - bench", found.between),
    ):
        table.add_row(name, *_errors(result), _verdict(result) if name.endswith("float64") else "")
    return table


def _errors(result: CorrectnessResult) -> tuple[str, ...]:
    shown = (f"{x:.1e}" for x in (result.max_abs, result.rel_l2, result.worst_row_rel_l2))
    return (*shown, f"{result.cosine:.8f}") if result.nan_count == 0 else ("NaN",) * 4


def _verdict(result: CorrectnessResult) -> str:
    if result.nan_count:
        return f"[red]wrong: {result.nan_count:,} values are NaN or infinite[/]"
    return f"within {result.tolerance:g}" if result.passed else f"[red]wrong: more than {result.tolerance:g}[/]"


def _print_launch(console: Console, launch: LaunchCounts) -> None:
    grid = " x ".join(str(n) for n in launch.grid)
    of_scores, of_values = (launch.implementation[name] for name in ("score_copies", "value_copies"))
    copies = f", scores made by {of_scores} waves" if of_scores > 1 else ""
    copies += f", values by {of_values}" if of_values > 1 else ""
    waves = f"{launch.waves} wave" + "s" * (launch.waves > 1)
    console.print(
        f"\n[bold]{escape(launch.kernel)}[/] grid {grid}, {waves}; {escape(launch.code)} by "
        f"{escape(launch.compiler)}: {launch.registers} registers, {launch.lds_bytes:,} B of LDS{copies}",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("work", "charged", "counted", "ratio", ""):
        table.add_column(heading, justify="left" if heading in ("work", "") else "right", no_wrap=bool(heading))
    for name, count in launch.work.items():
        if count.charged or count.counted:
            table.add_row(*_row(name, count, launch.tiles))
    console.print(table)
    bound = launch.bound
    console.print(
        f"cycles: at least {bound.cycles:,} by {bound.unit} (matrix {bound.matrix:,}, vector {bound.vector:,} of which "
        f"transcendental {bound.transcendental:,}, LDS {bound.lds:,}: counts and published issue rates); simulated "
        f"{launch.simulated_cycles:,}",
        highlight=False,
        soft_wrap=True,
    )
    if bound.cycles > launch.simulated_cycles:
        console.print(
            "[yellow]the simulated time is shorter than the instructions take to issue[/]: the model charges less "
            "vector work than this code has",
            soft_wrap=True,
        )


def _row(name: str, count: Count, tiles: int) -> tuple[str, ...]:
    charged, counted = count.charged, count.counted
    ratio = f"{counted / charged:.3f}" if charged else ""
    if name == "LDS bytes" and tiles:
        return f"{name} a tile", f"{charged / tiles:,.0f}", f"{counted / tiles:,.0f}", ratio, escape(count.note)
    return name, f"{charged:,}", f"{counted:,}", ratio, escape(count.note)
