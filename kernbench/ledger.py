"""The ledger of a run or report: where each figure of the machine comes from, and what no measured run stands behind.

A time is worth what its figures are worth, and only near what it was held against. Both are said beside every result.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from kernbench.bench import AnyBench
from kernbench.machine import Figure, Machine, describe
from kernbench.machine.load import shipped_machine
from kernbench.on_grid import form_for
from kernbench.specs.attention import BenchSpec
from kernbench.validated import MeasuredFamily, measured_families

Origin = Literal["sourced", "calibrated", "assumed", "changed", "chosen", "unstated"]
"""Where a figure comes from.

``sourced``: its note in the machine file begins with ``source``; ``calibrated``: it was fitted to measured runs;
``assumed``: the file says so; ``changed``: it was overridden for this run; ``chosen``: the shape of the machine (how
many of what, how they are arranged, which link an entry of ``links`` means), which is a design and no measurement, and
whose note names no source; ``unstated``: a figure of which the file says nothing.
"""
_SHAPE = re.compile(r"(\.(arrangement|columns|rows)|^links\[\d+\]\.(from|to))$")
_BEGINNINGS: tuple[tuple[str, Origin], ...] = (
    ("source", "sourced"), ("calibrated", "calibrated"), ("assumed", "assumed"),
)  # fmt: skip
_SAME = {
    "batch": "batch", "T_q": "s_q", "S_kv": "s_kv", "h_q": "h_q", "h_kv": "h_kv", "d_head": "d_qk", "d_latent": "d_v",
    "PAGE": "page_size", "density": "density",
}  # fmt: skip
"""Size of a spec → the same size of a measured run."""
ON_MESHES = "times on meshes follow from these figures alone: they were held against no measured run"
"""Values are another matter: each run holds them against float64."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LedgerFigure(_Part):
    """One value of the machine."""

    key: str = Field(description="dotted key path in the machine file")
    value: str = Field(description="as written")
    note: str = Field(description="what the file says of it; 'override' if it was changed")
    origin: Origin


class Ledger(_Part):
    """Where the figures behind a result come from, and which of its times lie outside what was measured."""

    counts: dict[Origin, int] = Field(description="origin → figures; every origin is there")
    figures: tuple[LedgerFigure, ...] = Field(description="every figure of the machine, in the order of its file")
    measured: dict[str, int] = Field(
        description="kernel family → measured times on this machine that predictions were held against"
    )
    outside_validation: tuple[str, ...] = Field(
        description="what was used outside of what was held against measured runs, a sentence each; empty if no time "
        "was computed"
    )

    @property
    def summary(self) -> str:
        """How many figures have which origin, in words; origins that no figure has are left out behind the third."""
        words = [f"{self.counts[origin]} {origin}" for origin in get_args(Origin) if self._is_told(origin)]
        return f"{words[0].replace(' ', ' figures ', 1)}, {', '.join(words[1:])}"

    def _is_told(self, origin: Origin) -> bool:
        return origin in ("sourced", "calibrated", "assumed") or (origin != "chosen" and self.counts[origin] > 0)


def ledger_of(
    machine: Machine, bench: AnyBench | None = None, spec: BenchSpec | None = None, *, timed: bool = True
) -> Ledger:
    """Return the ledger of what is said of a machine, of a bench on it, or of one spec.

    Parameters
    ----------
    machine
        Whose figures are told.
    bench
        Whose kernel family is looked up among the measured runs; None: only the machine is judged.
    spec
        Whose sizes are held against those of the measured runs; None: no size is judged.
    timed
        Whether any time was computed. What was measured says nothing of values.

    >>> from kernbench.machine import load_machine
    >>> ledger = ledger_of(load_machine("row4_pe8", {"pe.clock": "2 GHz"}))
    >>> ledger.summary
    '4 figures sourced, 0 calibrated, 38 assumed, 1 changed'
    >>> ledger.outside_validation
    ('times on meshes follow from these figures alone: they were held against no measured run',)
    """
    figures = tuple(LedgerFigure(**f._asdict(), origin=_origin(f)) for f in describe(machine))
    here = {f.family: f for f in measured_families() if machine.holds_workgroups and f.machine == machine.name}
    return Ledger(
        counts={origin: sum(f.origin == origin for f in figures) for origin in get_args(Origin)},
        figures=figures,
        measured={family: found.times for family, found in here.items()},
        outside_validation=tuple(_doubts(machine, here, bench, spec)) if timed else (),
    )


def not_validated(machine: Machine) -> str | None:
    """Return what to say of the times of a machine that holds workgroups and was never measured; None if it was."""
    if not machine.holds_workgroups or any(f.machine == machine.name for f in measured_families()):
        return None
    return f"times on {machine.name} are not validated: they were held against no measured run"


def _origin(figure: Figure) -> Origin:
    if figure.note == "override":
        return "changed"
    for beginning, origin in _BEGINNINGS:
        if figure.note.startswith(beginning):
            return origin
    if _SHAPE.search(figure.key):
        return "sourced" if "source:" in figure.note else "chosen"
    return "unstated"


def _doubts(
    machine: Machine, here: dict[str, MeasuredFamily], bench: AnyBench | None, spec: BenchSpec | None
) -> list[str]:
    if not machine.holds_workgroups:
        return [ON_MESHES]
    never = not_validated(machine)
    if never is not None:
        return [never]
    found = _changes(machine)
    if bench is None:
        return found
    bench, _ = form_for(bench, machine)
    family = getattr(bench, "family", None)
    if family is None:
        return [*found, f"no kernel like those of {bench.name} was measured on any machine"]
    if family not in here:
        return [*found, f"{family} was not measured on {machine.name}; measured there: {', '.join(sorted(here))}"]
    return found if spec is None else [*found, *_outside(spec, here[family])]


def _changes(machine: Machine) -> list[str]:
    """Say which figures differ from those of the machine that runs were held against."""
    shipped = shipped_machine(machine.name)
    if machine == shipped:
        return []
    before, now = ({f.key: f.value for f in describe(m)} for m in (shipped, machine))
    keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    named = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if keys[3:] else "")
    return [f"{machine.name} was measured with other figures than these: {named} changed"]


def _outside(spec: BenchSpec, measured: MeasuredFamily) -> list[str]:
    """Say which sizes and formats of a spec no measured run of its family has, or reaches."""
    where = f"{measured.family} was measured on {measured.machine} with"
    found = []
    for ours, theirs in _SAME.items():
        value, limits = getattr(spec, ours, None), measured.sizes.get(theirs)
        if isinstance(value, (int, float)) and limits and not limits[0] <= value <= limits[1]:
            span = f"{limits[0]:,.10g} to {limits[1]:,.10g}" if limits[0] < limits[1] else f"{limits[0]:,.10g} only"
            found.append(f"{ours}={value} is outside what was measured: {where} {ours} {span}")
    for name in ("dtype", "kv_dtype"):
        value, known = getattr(spec, name, None), measured.formats.get(name, ())
        if value is not None and known and value not in known:
            found.append(f"{name}={value} was not measured: {where} {name} {', '.join(known)}")
    return found
