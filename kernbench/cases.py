"""The cases that come with a bench: their names, and running one, as ``kernbench check`` and pytest do."""

from __future__ import annotations

from typing import Any

from kernbench.bench import AnyBench, Case, apply_settings
from kernbench.machine import load_machine
from kernbench.on_grid import form_for
from kernbench.run import Mode, RunResult, run_bench


def case_name(case: Case) -> str:
    """Say in one line what sets a case apart.

    >>> case_name(Case(settings={"S_kv": 64, "seq_lens": (5, 7)}, topology="pe1"))
    'pe1 random S_kv=64 seq_lens=5,7'
    """
    settings = [f"{name}={_setting(value)}" for name, value in case.settings.items()]
    return " ".join([case.topology, case.inputs, *settings])


def _setting(value: Any) -> str:
    return (",".join(map(str, value)) or "none") if isinstance(value, (list, tuple)) else str(value)


def run_case(bench: AnyBench, case: Case, *, mode: Mode) -> RunResult:
    """Run one case of a bench, as :func:`kernbench.run.run_bench` does.

    Raises
    ------
    KernbenchError
        If the case cannot be run: a deadlock, too little scratch, a setting that does not exist.
    """
    machine = load_machine(case.topology)
    spec, implementation = apply_settings(form_for(bench, machine)[0], case.settings)
    return run_bench(bench, machine, spec, implementation=implementation, mode=mode, inputs=case.inputs)
