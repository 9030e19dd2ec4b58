"""kernbench's rocke kernels held against a user's checkout of rocke, level by level.

0. The spec classes have the same fields and defaults; random specs are accepted or refused alike.
1. Legal specs have the same name, grid and signature, and can or cannot be built alike.
2. Kernels, compiled from the checkout's IR and executed, compute what kernbench computes.
3. They do the work that the spec's tiles say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernbench.errors import InputError, nearest
from kernbench.realrun.amdgcn.assembly import ARCHITECTURES
from kernbench.realrun.rocke import llvm
from kernbench.realrun.rocke.agree import Agreement, Difference, compare_specs
from kernbench.realrun.rocke.checkout import SECONDS, Checkout, Layout, find_layout
from kernbench.realrun.rocke.draw import draw_executable, draw_specs
from kernbench.realrun.rocke.machine_code import Executed, execute_kernel
from kernbench.realrun.rocke.payloads import unlike_fields

DEFAULT_ARCHES = ("gfx942", "gfx950")


@dataclass(slots=True)
class CrossCheck:
    """What was compared with a checkout, and what differed."""

    layout: Layout
    flavour: str
    """Dialect of LLVM IR that the checkout wrote."""
    agreement: Agreement = field(default_factory=Agreement)
    """Levels 0 and 1; empty if the fields differ."""
    specs: int = 0
    """Random specs of levels 0 and 1."""
    executed: list[Executed] = field(default_factory=list)
    """Levels 2 and 3."""
    differences: list[Difference] = field(default_factory=list)
    """Of every level, in order."""


def cross_check(
    path: Path,
    arches: Sequence[str] = DEFAULT_ARCHES,
    specs: int = 300,
    execute: int = 8,
    seed: int = 0,
    seconds: float = SECONDS,
    progress: Callable[[str], None] | None = None,
) -> CrossCheck:
    """Hold kernbench against a checkout.

    Parameters
    ----------
    path
        Root of the checkout, or of the repository that has it.
    arches
        Architectures to build and execute for. Validity is asked for all that kernbench knows.
    specs
        Random specs for levels 0 and 1.
    execute
        Small specs for levels 2 and 3.
    seed
        Of both draws, and of the inputs.
    seconds
        Time limit of each request to the checkout.
    progress
        Told what is going on.

    Raises
    ------
    InputError
        If this is not a checkout, it cannot be imported, or its process ends, hangs or answers what is no answer.
    """
    for arch in arches:
        if arch not in ARCHITECTURES:
            raise InputError(f"--arch {arch} cannot be executed{nearest(arch, ARCHITECTURES)}")
    tell = progress or (lambda stage: None)
    result = CrossCheck(find_layout(path), llvm.flavour())
    with Checkout(result.layout, result.flavour, seconds) as checkout:
        tell("import the checkout")
        for name, ours, theirs in unlike_fields(checkout.ask("load", "importing it")):
            result.differences.append(Difference("field", name, ours, theirs))
        if result.differences:
            return result  # its specs cannot be made from kernbench's
        tell(f"compare {specs} specs")
        result.specs = specs
        result.agreement = compare_specs(checkout, draw_specs(seed, specs), arches)
        result.differences += result.agreement.differences
        for number, spec in enumerate(draw_executable(seed, execute)):
            for arch in arches:
                tell(f"execute {number + 1}/{execute} on {arch}")
                done, differences = execute_kernel(checkout, spec, arch, np.random.default_rng([seed, number]))
                result.executed += [done] if done else []
                result.differences += differences
    return result


def write_crosscheck(result: CrossCheck, path: Path) -> None:
    """Write everything as JSON; an error of values that are NaN is null."""
    layout = result.layout
    data = {
        "evidence": "code compiled from the checkout, executed on a CPU: no real run",
        "checkout": {"commit": layout.commit, "changed": layout.changed},
        "llvm": {"version": llvm.version(), "llvmlite": llvm.llvm_package(), "flavour": result.flavour},
        "specs": result.specs,
        "legal": result.agreement.legal,
        "compared": result.agreement.compared,
        "executed": [_without_nan(asdict(row)) | {"right": row.right} for row in result.executed],
        "differences": [asdict(difference) for difference in result.differences],
    }
    path.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _without_nan(data: dict[str, Any]) -> dict[str, Any]:
    def cleaned(value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value

    return {k: _without_nan(v) if isinstance(v, dict) else cleaned(v) for k, v in data.items()}
