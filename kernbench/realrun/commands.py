"""``kernbench realrun``: real kernels and their machine code. Everything heavy is imported inside its command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernbench.commandline import (
    CHECK_FAILED,
    GOOD,
    NoProgress,
    output_file,
    parse_settings,
    reports_errors,
    shown_progress,
)
from kernbench.errors import InputError
from kernbench.output import whole_file

if TYPE_CHECKING:
    from kernbench.realrun.records import RunRecord

app = typer.Typer(
    help="Real kernels: record them, import profiles, and hold kernbench's times against them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Records = Annotated[
    list[Path] | None,
    typer.Option("--records", metavar="FILE", help="Records to use; may be repeated. Default: those shipped."),
]


@app.command()
@reports_errors
def record(
    out: Annotated[Path, typer.Option(help="Write records to this file, JSON lines; a rerun goes on with it.")],
    plan: Annotated[str, typer.Option(help="Name of a shipped plan (h200, smoke) or a YAML file.")] = "smoke",
    only: Annotated[list[str] | None, typer.Option(metavar="FAMILY", help="This family only; may be repeated.")] = None,
    budget_s: Annotated[float | None, typer.Option(min=0, help="Begin no launch after so many seconds.")] = None,
) -> int:
    """Compile our own Triton kernels, check and time them on this machine's GPU (PyTorch and Triton needed)."""
    from kernbench.realrun.recorder import record_plan

    return record_plan(plan, out, only=only, budget_s=budget_s, progress=typer.echo)


@app.command("import")
@reports_errors
def import_profiles(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Profiles: rocprofv3 CSV, rocpd, rocprof.")],
    out: Annotated[Path, typer.Option(help="Write the records to this file, JSON lines.")],
    spec: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="What was computed: family, batch, h_q ...")
    ] = None,
    sidecar: Annotated[Path | None, typer.Option(help="YAML file: kernel name (regular expression) to spec.")] = None,
    source: Annotated[str | None, typer.Option(help="Who measured it; default: the file's name and format.")] = None,
    skip_first: Annotated[int, typer.Option(min=0, help="Dispatches of each kernel that only warm up.")] = 3,
    xcc: Annotated[int | None, typer.Option(min=1, help="XCDs of the GPU, if no agent file says so.")] = None,
    kernel: Annotated[str | None, typer.Option(help="Kernels whose names fit this regular expression only.")] = None,
) -> int:
    """Turn profiles of AMD GPUs into records."""
    from kernbench.realrun.importers import import_runs, parse_spec
    from kernbench.realrun.records import write_records

    parse_settings(spec or [], "--spec", "family=prefill")
    result = import_runs(
        files, spec=parse_spec(spec or []), sidecar=sidecar, source=source, skip_first=skip_first, xcc=xcc,
        kernel=kernel,
    )  # fmt: skip
    write_records(result.records, out)
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"{len(result.records)} records in {out}")
    return GOOD


@app.command()
@reports_errors
def compare(
    records: Records = None,
    family: Annotated[list[str] | None, typer.Option(help="This family only; may be repeated.")] = None,
    gpu: Annotated[str | None, typer.Option(help="This GPU only: its name, a word of it, or its architecture.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every row to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw predicted against measured times to this PNG file.")] = None,
    no_progress: NoProgress = False,
) -> int:
    """Predict every record and print the errors, beside those of a plain roofline."""
    with output_file(json) as file, output_file(plot) as picture:
        from kernbench.realrun.compare import compare as compare_records
        from kernbench.realrun.compare import write_comparison
        from kernbench.realrun.predict import predict
        from kernbench.realrun.screen import print_comparison

        found, skipped = _read(records)
        with shown_progress(no_progress) as progress:
            tell = (lambda done, total: progress(f"predict {done}/{total}")) if progress else None
            comparison = compare_records(found, predict, families=family, gpu=gpu, progress=tell, skipped=skipped)
        if file is not None:
            write_comparison(comparison, file)
        if picture is not None:
            from kernbench.realrun.compare_plot import plot_comparison

            plot_comparison(comparison, picture)
    print_comparison(comparison)
    return GOOD


@app.command()
@reports_errors
def calibrate(
    topology: Annotated[str, typer.Argument(help="Name or file of the machine to fit.")],
    out: Annotated[Path, typer.Option(help="Write the fitted machine to this YAML file.")],
    gpu: Annotated[str, typer.Option(help="Records of this GPU: its name, a word of it, or its architecture.")],
    records: Records = None,
    family: Annotated[list[str] | None, typer.Option(help="Fit to this family only; may be repeated.")] = None,
    time: Annotated[
        list[str] | None, typer.Option(help="Fit to this time only (cold, warm, partial ...); may be repeated.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes that predict side by side; 0: one a core.")] = 0,
    no_progress: NoProgress = False,
) -> int:
    """Fit the figures that a machine file marks `calibrated` to one half of the records, and judge by the rest."""
    with whole_file(out) as file:
        from kernbench.machine import load_machine
        from kernbench.realrun.calibrate import calibrate as fit
        from kernbench.realrun.calibrate import write_machine
        from kernbench.realrun.compare import of_gpu
        from kernbench.realrun.screen import print_calibration

        found, _ = _read(records)
        chosen = of_gpu(found, gpu)
        machine = load_machine(topology)
        with shown_progress(no_progress) as progress:
            result = fit(
                machine, chosen, families=family, times=time, progress=progress, jobs=jobs or os.cpu_count() or 1
            )
        write_machine(result, file)
    print_calibration(result)
    return GOOD if result.rows else CHECK_FAILED


@app.command()
@reports_errors
def rocke(
    checkout: Annotated[Path, typer.Option("--rocke", metavar="PATH", help="Your checkout of rocke.")],
    arch: Annotated[
        list[str] | None, typer.Option(help="Build and execute for this one; may be repeated. Default: gfx942, gfx950.")
    ] = None,
    specs: Annotated[int, typer.Option(min=0, help="Random specs whose validity, grids and names are compared.")] = 300,
    execute: Annotated[int, typer.Option(min=0, help="Small specs whose kernels are compiled and executed.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of the specs and their inputs.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write every row and difference to this file.")] = None,
    no_progress: NoProgress = False,
) -> int:
    """Hold kernbench's sage, Jenga and VSA kernels against a checkout of rocke: rules, values and counts."""
    if not specs and not execute:
        raise InputError("--specs 0 --execute 0 leaves nothing to compare")
    with output_file(json) as file:
        from kernbench.realrun.rocke.crosscheck import DEFAULT_ARCHES, cross_check, write_crosscheck
        from kernbench.realrun.rocke.screen import print_crosscheck

        with shown_progress(no_progress) as progress:
            result = cross_check(checkout, arch or DEFAULT_ARCHES, specs, execute, seed, progress=progress)
        if file is not None:
            write_crosscheck(result, file)
    print_crosscheck(result)
    return CHECK_FAILED if result.differences else GOOD


@app.command()
@reports_errors
def verify(
    spec: Annotated[
        str | None,
        typer.Argument(
            help="Name of a spec (--list), a bench, or a file: YAML with `bench` and fields, or a result of `run`."
        ),
    ] = None,
    arch: Annotated[str, typer.Option(help="gfx942, gfx950 or gfx90a.")] = "gfx942",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a field of spec or implementation; may be repeated."),
    ] = None,
    inputs: Annotated[str | None, typer.Option(help="random, captured or FILE.npz, as for `kernbench run`.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random inputs.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write everything that was found to this file.")] = None,
    list_specs: Annotated[bool, typer.Option("--list", help="List the specs that come with code, and stop.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Verify all of these, and print one line for each.")] = False,
    no_progress: NoProgress = False,
) -> int:
    """Execute a spec's compiled AMD kernels on the CPU: values, work and a bound on time, beside the simulator's."""
    given = parse_settings(settings or [])
    if list_specs:
        from kernbench.realrun.verify import named_specs
        from kernbench.realrun.verify.screen import print_specs

        if json is not None:
            raise InputError("--list writes no file: leave --json out")
        print_specs(named_specs())
        return GOOD
    if every and (spec is not None or given or inputs is not None):
        raise InputError("--all verifies the named specs as they are, with random inputs: name and set nothing else")
    if spec is None and not every:
        raise InputError("which spec? Name one, e.g. `kernbench realrun verify decode_d64`; --list lists them")
    with output_file(json) as file:
        from kernbench.realrun.verify import find_case, named_specs, verify, write_verifications
        from kernbench.realrun.verify.screen import print_summary, print_verification

        names = list(named_specs()) if spec is None else [spec]
        with shown_progress(no_progress) as progress:
            found = [verify(find_case(n, arch, given), inputs=inputs, seed=seed, progress=progress) for n in names]
        if file is not None:
            write_verifications(found, file, one=not every)
    if every:
        print_summary(names, found)
    else:
        print_verification(found[0])
    return GOOD if all(one.passed for one in found) else CHECK_FAILED


def _read(files: list[Path] | None) -> tuple[list[RunRecord], list[tuple[str, str]]]:
    """Read records, those shipped if no file is named; the second list says what could not become one."""
    from kernbench.realrun.sources import read_records, shipped_records

    found: list[RunRecord] = []
    skipped: list[tuple[str, str]] = []
    for path in files or shipped_records():
        loaded = read_records(path)
        found += loaded.records
        skipped += loaded.skipped
    if not found and not skipped:
        raise InputError("there are no records to compare")
    return found, skipped
