"""Which form of a bench a machine runs: that for a mesh, or one launched as a grid of workgroups.

A GPU-like machine runs a mesh bench in one of two ways: as its original was launched, if the bench knows that
(:attr:`kernbench.bench.Bench.grid`), or as its twin, the grid bench whose name ends in ``_grid``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kernbench.bench import AnyBench, Arrays, Bench, GridBench, GridLaunch, GridStep, all_benches
from kernbench.errors import InputError
from kernbench.specs.implementation import Implementation

if TYPE_CHECKING:
    from kernbench.machine import Machine


def form_for(bench: AnyBench, machine: Machine) -> tuple[AnyBench, tuple[str, ...]]:
    """Return the form of a bench that fits a machine, and what to warn of.

    A bench that has none is returned as it is: :func:`kernbench.run.check_fits` refuses it.
    """
    if isinstance(bench, GridBench) or not machine.holds_workgroups:
        return bench, ()
    if bench.grid is not None:
        return as_grid_bench(bench), ()
    twin = all_benches().get(f"{bench.name}_grid")
    if isinstance(twin, GridBench):
        return twin, (f"ran {twin.name}, the form for machines whose PEs hold workgroups",)
    return bench, ()


def as_grid_bench(bench: Bench) -> GridBench:
    """Return a bench that knows its original's grid as one launch of it."""
    return GridBench(
        name=bench.name,
        summary=bench.summary,
        spec=bench.spec,
        implementation=bench.implementation,
        launches=partial(_launches, bench),
        reference=bench.reference,
        output=bench.output,
        tolerance=bench.tolerance,
        cases=bench.cases,
    )


def _launches(
    bench: Bench, spec: Any, chosen: Implementation, machine: Machine, arrays: Arrays | None
) -> tuple[list[GridStep], Any]:
    assert bench.grid is not None  # `form_for` sees to it
    grid = bench.grid(spec)  # first: it refuses specs of the spatial form
    args, out = bench.arguments(spec, machine, arrays)
    return [GridLaunch(kernel=bench.kernel, grid=grid, args=args, implementation=chosen)], out


def refuse_spatial(spec: Any) -> None:
    """Raise InputError if a spec asks for the form for a mesh, which no grid of workgroups can run."""
    if spec.form != "faithful":
        default = ", the default," if type(spec).model_fields["form"].default == spec.form else ""
        raise InputError(
            f"form={spec.form}{default} is written for a mesh (one program a PE, channels between them), but PEs of "
            "this GPU-like machine hold workgroups of a grid: set form=faithful (--set form=faithful), which is "
            "launched as the original is, or run it on a mesh such as --topology row4_pe8"
        )
