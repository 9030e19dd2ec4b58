"""The lint room: what can be said of a machine before any run, from its figures alone.

``cuts`` divides levels into halves; ``traffic`` puts standard patterns on the machine's routes; ``reach`` names
directions without channels; ``memory`` and ``balance`` hold memory against ports, links and arithmetic; ``findings``
says what of it is odd; ``report`` holds it all and ``screen`` prints it.

>>> from kernbench.machine import load_machine
>>> report = lint(load_machine("row4_pe8"))
>>> [(cut.level, cut.links, cut.cut) for cut in report.bisections]
[('PE', 2, '0-1,4-5 | 2-3,6-7'), ('CUBE', 1, '0-1 | 2-3')]
"""

from __future__ import annotations

from kernbench.lint.balance import balances, operations_per_s
from kernbench.lint.cuts import bisections
from kernbench.lint.findings import findings
from kernbench.lint.memory import memory_balance
from kernbench.lint.reach import missing_directions
from kernbench.lint.report import LintReport
from kernbench.lint.traffic import hot_links
from kernbench.machine import Machine

__all__ = ["LintReport", "lint"]


def lint(machine: Machine) -> LintReport:
    """Look a machine over: bisections, memory against links and ports, hot links, directions, arithmetic.

    On a machine whose PEs hold workgroups links are those between SIPs, and nothing is said of channels.
    """
    memory, cuts, hot = memory_balance(machine), bisections(machine), hot_links(machine)
    balance = balances(machine, memory)
    return LintReport(
        machine=machine.name,
        sha256=machine.sha256,
        bisections=cuts,
        memory=memory,
        hot_links=hot,
        missing_directions=missing_directions(machine),
        exponentials=operations_per_s(machine, memory.pes, "exp"),
        balance=balance,
        findings=findings(machine, memory, cuts, hot, balance),
    )
