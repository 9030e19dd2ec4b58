"""What the command line prints. Every figure says what kind of evidence it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernbench.provenance import setting_text
from kernbench.readable import bytes_text, scaled_text, time_text
from kernbench.specs.correctness import WORST_ROW_FACTOR

if TYPE_CHECKING:
    from kernbench.accuracy import Row
    from kernbench.bench import AnyBench, Case
    from kernbench.ledger import Ledger
    from kernbench.machine import Machine
    from kernbench.run import CorrectnessResult, RunResult, Wall
    from kernbench.simulate.explain import Explanation


def new_console() -> Console:
    """Print to stdout; into a file or a pipe with lines wide enough that tables do not wrap."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def print_result(result: RunResult) -> None:
    """Print one run."""
    console = new_console()
    table = Table(box=None, pad_edge=False, title_justify="left")
    for heading in ("", "", "kind of evidence"):
        table.add_column(heading, overflow="fold", header_style="dim")
    for name, value, evidence in _rows(result):
        table.add_row(name, value, evidence)
    settings = {**result.spec, **(result.implementation or {})}
    console.print(f"[bold]{escape(result.bench)}[/] on [bold]{escape(result.topology)}[/]: {_spec(settings)}")
    console.print(table)
    if result.critical_path is not None:
        _print_lines(console, "critical path by source line (simulated)", result.critical_path.time_by_line, "{:.1%}")
        _print_lines(console, "critical path by place (simulated)", result.critical_path.time_by_place, "{:.1%}", 3)
    for engine, shares in (result.engine_time or {}).items():
        console.print(f"[dim]{engine:>7} engines:[/] {shares_text(shares)}")
    _print_lines(console, "scratch peak by source line (recorded)", result.scratch_by_line, "{:,} B")
    for warning in result.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    print_ledger(console, result.ledger, result.warnings)


def ledger_text(ledger: Ledger, said: Collection[str] = ()) -> str:
    """Write a ledger as one line, without sentences that were ``said`` before it."""
    return "; ".join([ledger.summary, *(s for s in ledger.outside_validation if s not in said)])


_LINES = 5
"""Source lines that are listed for each question."""


def _print_lines(console: Console, title: str, lines: Mapping[str, float], shown_as: str, most: int = _LINES) -> None:
    """Print the source lines, or places, with the largest figures."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True)
    for line, figure in list(lines.items())[:most]:
        table.add_row(shown_as.format(figure), escape(line))
    if len(lines) > most:
        table.add_row("", f"[dim]and {len(lines) - most} more[/]")
    console.print(f"[dim]{title}[/]")
    console.print(table)


def print_explanation(bench: str, explanation: Explanation, ledger: Ledger) -> None:
    """Print what each thing costs the run, and what no schedule can beat."""
    console = new_console()
    timeline = explanation.timeline
    span = timeline.makespan_ps
    machine = timeline.program.machine.name
    console.print(f"[bold]{escape(bench)}[/] on [bold]{escape(machine)}[/]: {time_text(span)} (simulated)")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("made free, one at a time", "makespan", "saved", ""):
        table.add_column(heading, justify="left" if heading != "saved" else "right")
    for what in explanation.what_ifs:
        share = what.saved_ps / span
        table.add_row(what.free, time_text(what.makespan_ps), f"{share:.1%}", "█" * round(40 * max(share, 0)))
    console.print(table)
    bounds = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("lower bound", "time", "of the run", "where"):
        bounds.add_column(heading)
    for bound in explanation.bounds:
        bounds.add_row(bound.name, time_text(bound.ps), f"{bound.ps / span:.1%}", escape(bound.where))
    console.print(bounds)
    print_ledger(console, ledger)


def print_ledger(console: Console, ledger: Ledger, said: Collection[str] = ()) -> None:
    """Print a ledger as one line, without sentences that were ``said`` before it."""
    console.print(f"[dim]ledger:[/] {escape(ledger_text(ledger, said))}")


def _rows(result: RunResult) -> list[tuple[str, str, str]]:
    """Return (name, value, kind of evidence) of each figure that was measured."""
    evidence = result.evidence
    of_grid = result.implementation is not None
    who, where = ("workgroups", "live tiles of a workgroup") if of_grid else ("PEs", "in a PE")
    rows = [
        (who, f"{result.pes:,} in {result.classes} classes, {result.commands:,} commands", "recorded"),
        ("scratch peak", f"{bytes_text(result.scratch_peak_bytes)} {where}", "recorded"),
    ]
    for part in result.launches or ():
        grid = " x ".join(f"{n:,}" for n in part.grid)
        took = f"{time_text(part.makespan_ps)} behind {time_text(part.overhead_ps)} of launch"
        rows.append((part.kernel, f"grid {grid}, {part.workgroups_per_pe} a PE: {took}", evidence.time))
    if result.makespan_ps is not None and result.engines is not None:
        busy = ", ".join(f"{name} {share:.1%}" for name, share in result.engines.items())
        rows += [
            ("makespan", f"{time_text(result.makespan_ps)} ({result.cycles:,} cycles)", evidence.time),
            ("busy", busy, evidence.time),
            ("time goes to", shares_text(result.time_by_cause or {}), evidence.time),
            ("memory traffic", bytes_text(result.hbm_bytes or 0), evidence.time),
            ("link traffic", bytes_text(result.link_bytes or 0), evidence.time),
            ("matrix arithmetic", scaled_text(result.flops or 0, "flop"), evidence.time),
        ]
    if result.correctness is not None:
        word = "[bold green]PASS[/]" if result.correctness.passed else "[bold red]FAIL[/]"
        whole, _, more = errors_text(result.correctness).partition("; ")
        rows.append((f"values ({escape(result.inputs or '')} inputs)", f"{word} {whole}", evidence.values))
        rows.append(("", more, evidence.values if more else ""))
    rows.append(("wall", _wall(result.wall), evidence.wall))
    return rows


def shares_text(shares: Mapping[str, float], least: float = 0.005) -> str:
    """Write shares in percent, leaving out those too small to show."""
    return ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in shares.items() if share >= least)


def errors_text(found: CorrectnessResult) -> str:
    """Say how far the values are from the reference, and how far they may be."""
    if found.nan_count:
        return f"{found.nan_count:,} values are NaN or infinite"
    return (
        f"relative L2 error {found.rel_l2:.1e} (tolerance {found.tolerance:.1e}); "
        f"worst row {found.worst_row_rel_l2:.1e} ({found.tolerance * WORST_ROW_FACTOR:.1e}), "
        f"max abs {found.max_abs:.1e}, cosine {found.cosine:.7f}"
    )


def _wall(wall: Wall) -> str:
    stages = {name.removesuffix("_s"): seconds for name, seconds in wall.model_dump().items() if seconds is not None}
    return ", ".join(f"{name} {seconds:.3f} s" for name, seconds in stages.items())


def _spec(spec: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_setting(value)}" for name, value in spec.items() if value is not None)


def _setting(value: Any) -> str:
    return escape(setting_text(value) if isinstance(value, (list, tuple)) else str(value))


def print_names(title: str, names: Mapping[str, str]) -> None:
    """Print names, each with its one-line summary."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, summary in names.items():
        table.add_row(f"  {escape(name)}", escape(summary))
    console = new_console()
    console.print(title)
    console.print(table)


def print_machine(machine: Machine) -> None:
    """Print every figure of a machine and where it comes from."""
    from kernbench.machine import describe

    console = new_console()
    console.print(f"[bold]{escape(machine.name)}[/]: {escape(machine.description)}")
    pes, cubes, sips = machine.shape
    console.print(f"{machine.n_pes:,} PEs: {sips} SIP x {cubes} CUBE x {pes} PE")
    console.print(f"sha256 {machine.sha256}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("figure", "value", "where it comes from"):
        table.add_column(heading, overflow="fold")
    for figure in describe(machine):
        table.add_row(escape(figure.key), escape(figure.value), escape(figure.note))
    console.print(table)


def print_accuracy(rows: list[Row]) -> None:
    """Print the error of each format by layer: mean and worst over the query heads, and the smallest cosine."""
    console = new_console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("stored as", "", "relative L2, mean", "worst head", "smallest cosine"):
        table.add_column(heading, justify="left" if heading in ("stored as", "") else "right")
    groups: dict[tuple[str, float | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.format, row.density, row.layer), []).append(row)
    for (name, density, layer), found in sorted(groups.items(), key=lambda g: (g[0][1] is not None, g[0][1] or 0)):
        errors = [row.rel_l2 for row in found]
        label = escape(name if density is None else f"{name}, {density:.1%} of blocks kept")
        cosine = min(row.cosine for row in found)
        table.add_row(label, escape(layer), f"{sum(errors) / len(errors):.1e}", f"{max(errors):.1e}", f"{cosine:.6f}")
    console.print("attention held against float64 (computed on the host, not simulated)")
    console.print(table)


def print_check_line(bench: AnyBench, case: Case, passed: bool, message: str) -> None:
    """Print the outcome of one case."""
    settings = " ".join(f"{name}={_setting(value)}" for name, value in case.settings.items()) or "default spec"
    word = "[green]ok  [/]" if passed else "[bold red]FAIL[/]"
    line = f"{escape(bench.name)} {escape(case.topology)} {escape(case.inputs)} {settings}: {escape(message)}"
    Console(highlight=False, soft_wrap=True).print(f"{word} {line}")


def print_check_summary(passed: int, total: int) -> None:
    """Print how many cases are right."""
    Console(highlight=False).print(f"{passed} of {total} cases passed")
