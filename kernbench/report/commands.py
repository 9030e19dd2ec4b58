"""``kernbench compare`` and ``kernbench report``. Everything heavy is imported inside its command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernbench.commandline import GOOD, output_file, reports_errors


@reports_errors
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Result of a run, from `kernbench run --json A`.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Result of another run.")],
    json: Annotated[Path | None, typer.Option(help="Write the comparison to this file.")] = None,
) -> int:
    """Say what changed from run A to run B: makespan, by cause, by source line, and what differs in what ran."""
    with output_file(json) as file:
        from kernbench.report.again import read_result
        from kernbench.report.compare import compare_runs
        from kernbench.report.screen import print_comparison

        found = compare_runs(read_result(a), read_result(b))
        if file is not None:
            file.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    print_comparison(found)
    return GOOD


@reports_errors
def report(
    result: Annotated[Path, typer.Argument(metavar="RUN", help="Result of a run, from `kernbench run --json RUN`.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the page, index.html; it is made if need be.")],
) -> int:
    """Write a run as one HTML page that needs nothing else: figures, pictures, source lines, how to repeat it."""
    from kernbench.report.again import read_result, time_again
    from kernbench.report.page.render import write_page
    from kernbench.report.page.run_page import run_page

    found = read_result(result)
    page = run_page(found, time_again(found) if found.critical_path else None)
    typer.echo(f"wrote {write_page(page, out)}")
    return GOOD
