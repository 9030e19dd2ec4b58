"""The promise that a compiled kernel computes what kernbench computes, and does the work that kernbench charges for.

:func:`verify` executes the machine code of a spec's kernels, instruction by instruction, beside the bench. Nothing here
is a real run.
"""

from kernbench.realrun.verify.specs import MACHINES, Case, find_case, named_specs
from kernbench.realrun.verify.verification import Count, LaunchCounts, Verification, verify, write_verifications

__all__ = [
    "MACHINES",
    "Case",
    "Count",
    "LaunchCounts",
    "Verification",
    "find_case",
    "named_specs",
    "verify",
    "write_verifications",
]
