"""The command line: a thin layer over the API. Everything heavy is imported inside the command that needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernbench._version import __version__
from kernbench.commandline import (
    CHECK_FAILED,
    GOOD,
    INTERRUPTED,
    NoProgress,
    output_file,
    parse_override_options,
    parse_settings,
    reports_errors,
    say_interrupted,
    shown_progress,
)
from kernbench.errors import InputError, KernbenchError
from kernbench.explore import commands as explore_commands
from kernbench.realrun.commands import app as realrun_app
from kernbench.report.commands import compare as compare_command
from kernbench.report.commands import report as report_command
from kernbench.report.plot_command import plot as plot_command

if TYPE_CHECKING:
    from kernbench.machine import Machine
    from kernbench.simulate.timeline import Timeline

BenchName = Annotated[str, typer.Argument(help="Name of a bench; `kernbench list` shows them.")]
Topology = Annotated[str, typer.Option(help="Name or file of a machine.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a field of the spec; may be repeated.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--override", metavar="KEY=VALUE", help="Change a value of the machine's file; may be repeated."),
]

app = typer.Typer(
    help="Simulate attention kernels on multi-device meshes: what they compute, and how long it takes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: Rich would double the time that --help takes
)


app.add_typer(realrun_app, name="realrun")


def main() -> None:
    """Entry point of the ``kernbench`` command."""
    try:
        app()
    except KeyboardInterrupt:
        say_interrupted()
        sys.exit(INTERRUPTED)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


@app.command()
@reports_errors
def run(
    bench: BenchName,
    topology: Topology = "row4_pe8",
    overrides: Overrides = None,
    settings: Settings = None,
    mode: Annotated[str, typer.Option(help="both, values or time.")] = "both",
    engine: Annotated[str, typer.Option(help="compiled, or simpy (slow: the definition).")] = "compiled",
    inputs: Annotated[
        str | None,
        typer.Option(
            help="random, captured or FILE.npz with arrays q, k, v (token, head, dim). "
            "Default: captured if the spec has the sizes of the captured tensors, else random."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random inputs.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result to this file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a timeline for ui.perfetto.dev to this file.")] = None,
    trace_pes: Annotated[
        str, typer.Option(help="PEs in the timeline, e.g. 0-7, cube0 or sip0.cube1.pe3; default: all.")
    ] = "all",
    trace_limit: Annotated[int, typer.Option(min=1, help="Most commands in the timeline.")] = 1_000_000,
    no_progress: NoProgress = False,
) -> int:
    """Run a bench: compute its values, check them, and simulate how long it takes."""
    given, changes = parse_settings(settings or []), parse_override_options(overrides)
    if trace is not None and mode == "values":
        raise InputError("--trace needs time: use --mode both or --mode time")
    notes: list[str] = []
    with output_file(json) as file, output_file(trace) as trace_file:
        from kernbench.bench import apply_settings, find_bench
        from kernbench.machine import load_machine
        from kernbench.on_grid import form_for
        from kernbench.run import run_bench
        from kernbench.screen import print_result

        found, machine = find_bench(bench), load_machine(topology, changes)
        spec, implementation = apply_settings(form_for(found, machine)[0], given)
        look = _trace_writer(machine, trace, trace_file, trace_pes, trace_limit, notes)
        with shown_progress(no_progress) as progress:
            result = run_bench(
                found,
                machine,
                spec,
                implementation=implementation,
                mode=mode,  # type: ignore[arg-type]  # it is checked in there
                engine=engine,  # type: ignore[arg-type]
                inputs=inputs,
                seed=seed,
                progress=progress,
                look=look,
            )
        if file is not None:
            file.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    print_result(result)
    for note in notes:
        typer.echo(note)
    return GOOD if result.passed else CHECK_FAILED


def _trace_writer(
    machine: Machine, path: Path | None, file: Path | None, selection: str, limit: int, notes: list[str]
) -> Callable[[Timeline], None] | None:
    """Return what writes a timeline to ``file``, which becomes ``path``; None if none is wanted.

    What was left out of it is put into ``notes``.
    """
    if path is None or file is None:
        return None
    from kernbench.report.perfetto import write_perfetto
    from kernbench.report.selection import select_pes

    pes = None if selection == "all" else select_pes(selection, machine)

    def write(timeline: Timeline) -> None:
        notes.append(str(replace(write_perfetto(timeline, file, pes=pes, max_events=limit), path=path)))

    return write


@app.command()
@reports_errors
def explain(
    bench: BenchName,
    topology: Topology = "row4_pe8",
    overrides: Overrides = None,
    settings: Settings = None,
    json: Annotated[Path | None, typer.Option(help="Write the explanation to this file.")] = None,
) -> int:
    """Time a bench again with one thing made free at a time, beside lower bounds: what would change it?"""
    given, changes = parse_settings(settings or []), parse_override_options(overrides)
    with output_file(json) as file:
        from kernbench.bench import GridBench, find_bench
        from kernbench.ledger import ledger_of
        from kernbench.machine import load_machine
        from kernbench.on_grid import form_for
        from kernbench.record import record
        from kernbench.run import check_fits, mesh_only
        from kernbench.screen import print_explanation
        from kernbench.simulate.explain import explain as explain_trace
        from kernbench.specs.attention import spec_from_settings

        machine = load_machine(topology, changes)
        found, _ = form_for(find_bench(bench), machine)
        if isinstance(found, GridBench):
            raise mesh_only(found, "`kernbench explain`")
        spec = spec_from_settings(found.spec, given)
        check_fits(found, machine)
        args, _ = found.arguments(spec, machine, None)
        explanation, ledger = explain_trace(record(found.kernel, machine, args=args)), ledger_of(machine, found, spec)
        if file is not None:
            import json as json_format

            whole = explanation.as_json() | {"ledger": ledger.model_dump(mode="json")}
            file.write_text(json_format.dumps(whole, indent=2) + "\n", encoding="utf-8")
    print_explanation(bench, explanation, ledger)
    return GOOD


@app.command("list")
@reports_errors
def list_all() -> int:
    """List the benches and the machines that can be named."""
    from kernbench.bench import all_benches
    from kernbench.machine import load_machine, topology_names
    from kernbench.screen import print_names

    print_names("benches", {name: bench.summary for name, bench in all_benches().items()})
    print_names("topologies", {name: load_machine(path).description for name, path in topology_names().items()})
    return GOOD


@app.command()
@reports_errors
def show(
    topology: Annotated[str, typer.Argument(help="Name or file of a machine.")] = "",
    overrides: Overrides = None,
    png: Annotated[Path | None, typer.Option(help="Draw the machine to this file.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of machine files.")] = False,
) -> int:
    """Show a machine: every figure and where it comes from."""
    from kernbench.machine import json_schema, load_machine
    from kernbench.screen import print_machine

    if schema:
        import json as json_format

        typer.echo(json_format.dumps(json_schema(), indent=2))
        return GOOD
    if not topology:
        raise InputError("name a machine to show; `kernbench list` shows those that there are")
    with output_file(png) as file:
        machine = load_machine(topology, parse_override_options(overrides))
        if file is not None:
            from kernbench.machine.graph import draw

            draw(machine, file)
    print_machine(machine)
    return GOOD


@app.command()
@reports_errors
def lint(
    topology: Annotated[str, typer.Argument(help="Name or file of a machine.")],
    overrides: Overrides = None,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a warning.")] = False,
) -> int:
    """Look a machine over before any run: bisections, memory and links, hot links, balance of arithmetic."""
    with output_file(json) as file:
        from kernbench.ledger import ledger_of
        from kernbench.lint import lint as lint_machine
        from kernbench.lint.screen import print_lint
        from kernbench.machine import load_machine

        machine = load_machine(topology, parse_override_options(overrides))
        report, ledger = lint_machine(machine), ledger_of(machine)
        if file is not None:
            import json as json_format

            whole = report.model_dump(mode="json") | {"ledger": ledger.model_dump(mode="json")}
            file.write_text(json_format.dumps(whole, indent=2) + "\n", encoding="utf-8")
    print_lint(machine, report, ledger)
    return CHECK_FAILED if strict and report.warnings else GOOD


@app.command()
@reports_errors
def check(
    benches: Annotated[list[str] | None, typer.Argument(metavar="[BENCH]...", help="Default: all benches.")] = None,
) -> int:
    """Hold benches against their float64 references for many specs (values only, for CI)."""
    from kernbench.bench import all_benches, find_bench
    from kernbench.screen import print_check_line, print_check_summary

    chosen = [find_bench(name) for name in benches] if benches else list(all_benches().values())
    passed = total = 0
    for bench in chosen:
        for case in bench.cases:
            good, message = _check_case(bench, case)
            print_check_line(bench, case, good, message)
            passed, total = passed + good, total + 1
    print_check_summary(passed, total)
    return GOOD if passed == total > 0 else CHECK_FAILED


def _check_case(bench: Any, case: Any) -> tuple[bool, str]:
    """Return whether one case is right, and what to say of it."""
    from kernbench.cases import run_case
    from kernbench.screen import errors_text

    try:
        result = run_case(bench, case, mode="values")
    except KernbenchError as error:
        return False, str(error)
    assert result.correctness is not None  # mode values always has one
    return result.passed, errors_text(result.correctness)


@app.command()
@reports_errors
def accuracy(
    inputs: Annotated[
        str, typer.Option(help="captured, or FILE.npz with arrays q, k, v (token, head, dim).")
    ] = "captured",
    plot: Annotated[Path | None, typer.Option(help="Draw the picture to this PNG file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every row to this file.")] = None,
    no_progress: NoProgress = False,
) -> int:
    """Hold attention over stored formats (f16 ... fp8, i4, UltraQuant) and sparse masks against float64."""
    with output_file(plot) as picture, output_file(json) as file:
        from kernbench.accuracy import accuracy_table, inputs_for_accuracy
        from kernbench.screen import print_accuracy

        arrays = inputs_for_accuracy(inputs)
        with shown_progress(no_progress) as progress:
            rows = accuracy_table(arrays, progress)
        if picture is not None:
            from kernbench.report.accuracy_plot import plot_accuracy

            plot_accuracy(rows, picture, f"{inputs} inputs, causal")
        if file is not None:
            import json as json_format

            file.write_text(json_format.dumps([vars(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    print_accuracy(rows)
    return GOOD


# In the order of --help: after the commands for one run.
app.command("sweep")(explore_commands.sweep)
app.command("results")(explore_commands.results)
app.command("compare")(compare_command)
app.command("report")(report_command)
app.command("plot")(plot_command)


if __name__ == "__main__":
    main()
