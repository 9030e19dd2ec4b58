"""``kernbench compare`` and ``kernbench report``. Everything heavy is imported inside its command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernbench.commandline import DEFAULT_STORE, GOOD, StoreOption, output_file, reports_errors


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
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_SWEEP", help="File from `kernbench run --json`, or a sweep: its name or its file."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the page, index.html; it is made if need be.")],
    store: StoreOption = DEFAULT_STORE,
) -> int:
    """Write a run or a sweep as one HTML page that needs nothing else: figures, pictures, source lines, the command."""
    from kernbench.explore.sweepfile import sweep_name
    from kernbench.report.page.render import write_page

    path = Path(target)
    is_sweep_file = path.suffix in (".yaml", ".yml")
    is_run = not is_sweep_file and (path.exists() or path.suffix == ".json" or "/" in target)
    page = _page_of_run(path) if is_run else _page_of_sweep(sweep_name(target), store)
    typer.echo(f"wrote {write_page(page, out)}")
    return GOOD


def _page_of_run(path: Path) -> str:
    from kernbench.report.again import read_result, time_again
    from kernbench.report.page.run_page import run_page

    found = read_result(path)
    return run_page(found, time_again(found) if found.critical_path else None)


def _page_of_sweep(name: str, path: Path) -> str:
    import json
    import shlex

    import yaml

    from kernbench.bench import find_bench
    from kernbench.explore.frame import results_frame
    from kernbench.explore.store import Store
    from kernbench.explore.sweepfile import METRICS, SweepFile
    from kernbench.explore.why import best_rows, run_point
    from kernbench.ledger import ledger_of
    from kernbench.machine import load_machine
    from kernbench.report.again import time_again
    from kernbench.report.page.sweep_page import sweep_page

    with Store(path) as store:
        definition = store.definition(name)
        sweep = SweepFile.from_document(definition, str(path))
        frame = results_frame(store, name)
        objectives = tuple(METRICS[one] for one in sweep.objectives)
        works = best_rows(list(store.rows(name)), objectives)
    best = works[0] if works else None
    winner = run_point(best).result if best else None
    bench, machines = find_bench(sweep.bench), [load_machine(topology) for topology in sweep.topology]
    words = ["kernbench", "sweep", f"{name}.yaml", *(["--store", str(path)] if path != DEFAULT_STORE else [])]
    return sweep_page(
        frame,
        name=name,
        command=shlex.join(words),
        definition=yaml.safe_dump(definition, sort_keys=False, width=100),
        objectives=objectives,
        winner=winner,
        overrides=json.loads(best["overrides"]) if best else None,
        works=len(works),
        again=time_again(winner) if winner and winner.critical_path else None,
        ledgers={machine.name: ledger_of(machine, bench) for machine in machines},
    )
