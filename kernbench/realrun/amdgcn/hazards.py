"""Checks ``s_waitcnt``: a register that an outstanding load will write must not be touched before a wait covers it.

Loads are numbered by wave in each of the two counters, vmcnt and lgkmcnt. A wait for n outstanding ones covers all but
the last n. Scalar loads return in any order, so while one is outstanding only a wait for none covers anything.
What is written to LDS is followed there, see :mod:`~.races`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernbench.errors import KernelError
from kernbench.realrun.amdgcn.instruction import Instruction
from kernbench.realrun.amdgcn.operands import SCALAR_ROW
from kernbench.realrun.amdgcn.races import LdsRaces, Queue
from kernbench.realrun.amdgcn.state import AGPR, VCC, Group, Waves


def register_name(row: int) -> str:
    """Return a register's name from its number here.

    >>> register_name(3), register_name(257), register_name(516)
    ('v3', 'a1', 's4')
    """
    if row >= SCALAR_ROW:
        number = row - SCALAR_ROW
        return {VCC: "vcc_lo", VCC + 1: "vcc_hi"}.get(number, f"s{number}")
    return f"a{row - AGPR}" if row >= AGPR else f"v{row}"


class Hazards:
    """Outstanding loads of a batch of waves."""

    def __init__(self, state: Waves) -> None:
        self._waves = state.count
        self._queues = {"vm": Queue(state.count), "lgkm": Queue(state.count)}
        self.lds = LdsRaces(state, self._queues)
        self.pending: set[int] = set()
        """Registers that some load may still have to write."""
        self._loads: dict[int, Instruction] = {}

    def issue(self, g: Group, instruction: Instruction) -> None:
        """Number a load or store."""
        queue = instruction.queue
        for name in ("vm", "lgkm"):
            if queue not in ("flat", name) and not (name == "lgkm" and queue in ("lds", "smem")):
                continue
            counter = self._queues[name]
            counter.issued[g.at] += 1
            if queue in ("smem", "flat"):
                counter.unordered[g.at] = counter.issued[g.at]
            for row in instruction.writes:
                counter.writes.setdefault(row, np.zeros(self._waves, np.int64))[g.at] = counter.issued[g.at]
                self.pending.add(row)
                self._loads[row] = instruction

    def wait(self, g: Group, vm: int | None, lgkm: int | None) -> None:
        """Cover all loads but the last ``vm`` or ``lgkm`` ones."""
        for name, left in (("vm", vm), ("lgkm", lgkm)):
            if left is None:
                continue
            counter = self._queues[name]
            issued, covered = counter.issued[g.at], counter.covered[g.at]
            if left == 0:
                counter.covered[g.at] = issued
            else:
                ordered = counter.unordered[g.at] <= covered
                counter.covered[g.at] = np.where(ordered, np.maximum(covered, issued - left), covered)

    def check(self, g: Group, instruction: Instruction) -> None:
        """Refuse an instruction that touches a register before its load is covered.

        Raises
        ------
        KernelError
            Names the register and both instructions.
        """
        for row in sorted((instruction.reads | instruction.writes) & self.pending):
            outstanding = False
            for name, counter in self._queues.items():
                if row not in counter.writes:
                    continue
                numbers = counter.writes[row]
                outstanding |= bool((numbers > counter.covered).any())
                in_order = row not in instruction.reads and _returns_in_order(name, instruction, self._loads[row])
                if not in_order and (numbers[g.at] > counter.covered[g.at]).any():
                    self._refuse(row, instruction, name)
            if not outstanding:
                self.pending.discard(row)

    def _refuse(self, row: int, instruction: Instruction, name: str) -> None:
        load = self._loads[row]
        raise KernelError(
            f"{instruction.line.place}: touches {register_name(row)} before s_waitcnt {name}cnt covers its load "
            f"in line {load.line.number}: {load.line.text}"
        )


def _returns_in_order(name: str, later: Instruction, earlier: Instruction) -> bool:
    """Whether two loads to one register need no wait between them."""
    wanted: Any = "vm" if name == "vm" else "lds"
    return later.queue == earlier.queue == wanted
