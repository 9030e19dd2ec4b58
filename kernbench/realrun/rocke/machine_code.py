"""A checkout's kernels, compiled and executed: the values, and the work that they take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernbench.errors import KernbenchError
from kernbench.realrun import amdgcn
from kernbench.realrun.rocke.agree import Difference, spec_text
from kernbench.realrun.rocke.checkout import Checkout
from kernbench.realrun.rocke.inputs import Launch, make_launch
from kernbench.realrun.rocke.llvm import compile_ir
from kernbench.realrun.rocke.payloads import Spec, payload_of
from kernbench.realrun.rocke.work import Work, counted_work, expected_work
from kernbench.specs.correctness import TOLERANCE, Correctness, compare
from kernbench.specs.rocke import SageAttentionSpec

SHARE_OF_TOLERANCE = 0.5
"""Of the tolerance that holds against float64, as the limit on the error against the same operations in float32.

They differ in the order in which a matrix instruction adds, so that a weight may round to a neighbouring number. Over
80 tiled kernels of the tests' stand-in the error was at most 5.2e-5 (worst row 3.9e-4) in f16, 2.0e-4 (1.6e-3) in bf16;
the row bodies were equal bit for bit.
"""


@dataclass(frozen=True, slots=True)
class Executed:
    """One kernel that was executed."""

    kernel: str
    mask: str
    """Mask mode: part of the spec that the kernel's name omits."""
    arch: str
    equal: float
    """Share of output elements that are, bit for bit, those of the operations followed one by one."""
    values: Correctness
    """Against these operations."""
    to_float64: float | None
    """Relative L2 error against float64; None where the original computes something else by a defect."""
    counted: Work
    expected: Work
    instructions: int
    """Wave-instructions."""
    vgprs: int
    """Vector registers that the kernel reserves."""

    @property
    def right(self) -> bool:
        """Whether values and counts are what kernbench says."""
        return self.values.passed and not self.counted.unlike(self.expected)


def execute_kernel(
    checkout: Checkout, spec: Spec, arch: str, rng: np.random.Generator
) -> tuple[Executed | None, list[Difference]]:
    """Compile the checkout's kernel for a spec, execute it on random inputs and compare.

    Returns
    -------
    executed
        None if the kernel cannot be had or executed; the difference says why.
    differences
        What is not as kernbench says.
    """
    subject, what = spec_text(payload_of(spec)), f"machine code on {arch}"
    answer = checkout.ask("lower", subject, spec=payload_of(spec), arch=arch)
    if "raises" in answer:
        return None, [Difference(what, subject, "can be built", f"raises {answer['raises']}: {answer['says']}")]
    launch = make_launch(spec, arch, rng)
    try:
        kernels = amdgcn.load(compile_ir(answer["is"], arch, spec.kernel_name()), arch)
        if list(kernels) != [spec.kernel_name()]:
            return None, [Difference(what, subject, f"the kernel {spec.kernel_name()}", ", ".join(kernels))]
        kernel = kernels[spec.kernel_name()]
        arguments = [launch.arguments[argument["name"]] for argument in spec.signature()]
        done = kernel.launch(spec.grid(), spec.block(), arguments)
    except KernbenchError as error:
        return None, [Difference(what, subject, "can be executed", str(error))]
    executed = _compare(launch, kernel, done)
    return executed, _differences(executed, what, subject)


def _compare(launch: Launch, kernel: amdgcn.Kernel, done: amdgcn.LaunchResult) -> Executed:
    spec = launch.spec
    element, actual, faithful = spec.common.element, launch.arguments["O"], launch.faithful
    defect = follows_defect(spec)
    if defect:
        element, actual, faithful = "f16", actual.view(np.float16), faithful.view(np.float16)
    values = compare(actual, faithful.astype(np.float64), SHARE_OF_TOLERANCE * TOLERANCE[element])
    exact = None if defect else compare(actual, launch.exact, TOLERANCE[element]).rel_l2
    return Executed(
        spec.kernel_name(), spec.common.mask_mode, launch.arch, float(np.mean(actual == faithful)), values, exact,
        counted_work(kernel, done), expected_work(launch), done.counters["SQ_INSTS"],
        kernel.text.descriptor["next_free_vgpr"],
    )  # fmt: skip


def follows_defect(spec: Spec) -> bool:
    """Whether the original takes the bits of bf16 queries and outputs for f16."""
    fp8 = isinstance(spec, SageAttentionSpec) and spec.quant_mode == "fp8_bf16"
    return fp8 and spec.common.element == "bf16" and spec.route() == "mfma"


def _differences(executed: Executed, what: str, subject: str) -> list[Difference]:
    found = []
    values = executed.values
    if not values.passed:
        ours = f"relative L2 error of at most {values.tolerance:.1e}, twice that for the worst row"
        bad = f"{values.nan_count} values are NaN or infinite" if values.nan_count else (
            f"{values.rel_l2:.1e}, worst row {values.worst_row_rel_l2:.1e}"
        )  # fmt: skip
        found.append(Difference(f"values on {executed.arch}", subject, ours, bad))
    for name in executed.expected.unlike(executed.counted):
        ours, theirs = (str(getattr(work, name)) for work in (executed.expected, executed.counted))
        found.append(Difference(f"{name} of {what}", subject, ours, theirs))
    return found
