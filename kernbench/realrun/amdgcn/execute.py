"""Executes a decoded program on a batch of waves.

Waves at one program counter execute an instruction together. Where they branch apart they become groups by program
counter; the group with the lowest one runs first, so that groups meet again behind loops and branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.errors import KernelError
from kernbench.realrun.amdgcn.hazards import Hazards
from kernbench.realrun.amdgcn.instruction import Instruction
from kernbench.realrun.amdgcn.state import Bools, Group, Waves

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Program:
    """Decoded instructions, and where each branch goes."""

    file: str
    instructions: Sequence[Instruction]
    targets: Sequence[int]
    """Index that each instruction jumps to; -1 for one that does not."""
    stops: Sequence[int]
    """Index of the first control instruction at or behind each."""


class Execution:
    """One launch: its counts and its limits."""

    def __init__(self, program: Program, strict: bool, max_instructions: int) -> None:
        self.program = program
        self.strict = strict
        self.limit = max_instructions
        self.executed = 0
        self.counts: Index = np.zeros(len(program.instructions) + 1, np.int64)

    def run(self, state: Waves, entry: int) -> None:
        """Execute a batch until every wave has ended.

        Raises
        ------
        KernelError
            An access out of bounds, a hazard under strict, a jump out of the code, or too many instructions.
        """
        with np.errstate(all="ignore"):
            _Batch(self, state, entry).run()

    def count(self, first: int, behind: int, waves: int) -> None:
        """Count instructions, each executed by ``waves`` waves."""
        self.counts[first:behind] += waves
        self.executed += (behind - first) * waves
        if self.executed > self.limit:
            place = self.program.instructions[min(first, len(self.program.instructions) - 1)].line.place
            raise KernelError(
                f"{place}: more than max_instructions = {self.limit} were executed; the kernel may not end"
            )


class _Batch:
    def __init__(self, execution: Execution, state: Waves, entry: int) -> None:
        self.execution, self.program, self.state = execution, execution.program, state
        self.hazards = state.hazards = Hazards(state) if execution.strict else None
        self.ready: dict[int, list[Index]] = {entry: [np.arange(state.count, dtype=np.int64)]}
        self.ended = np.zeros(state.count, np.bool_)
        self.held = np.zeros(state.count, np.bool_)
        self.resume: Index = np.zeros(state.count, np.int64)

    def run(self) -> None:
        while self.ready:
            pc = min(self.ready)
            parts = self.ready.pop(pc)
            waves = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            g = Group(self.state, waves)
            self._run_group(g, pc, min(self.ready, default=len(self.program.instructions)))
            g.close()
        if not self.ended.all():
            raise KernelError(f"{self.program.file}: waves wait at a barrier that the others never reach")

    def _run_group(self, g: Group, pc: int, meeting: int) -> None:
        """Run until the waves part, end, or come to or past ``meeting``, where another group stands."""
        program = self.program
        while True:
            if pc >= meeting:
                if pc >= len(program.instructions):
                    raise KernelError(f"{program.file}: execution runs past the last instruction")
                self._push(pc, g.waves)
                return
            stop = min(program.stops[pc], meeting)
            if stop > pc:
                self._run_straight(g, pc, stop)
                self.execution.count(pc, stop, g.count)
                pc = stop
                continue
            instruction = program.instructions[pc]
            self.execution.count(pc, pc + 1, g.count)
            following = self._control(g, instruction, pc)
            if following < 0:
                return
            pc = following

    def _run_straight(self, g: Group, pc: int, stop: int) -> None:
        hazards = self.hazards
        if hazards is None:
            for instruction in self.program.instructions[pc:stop]:
                instruction.run(g)
            return
        pending = hazards.pending
        for instruction in self.program.instructions[pc:stop]:
            if pending and not (pending.isdisjoint(instruction.reads) and pending.isdisjoint(instruction.writes)):
                hazards.check(g, instruction)
            instruction.run(g)
            if instruction.queue:
                hazards.issue(g, instruction)

    def _control(self, g: Group, instruction: Instruction, pc: int) -> int:
        """Return the program counter that follows, or -1 when the group is done with."""
        kind = instruction.control
        if kind == "wait":
            if self.hazards is not None:
                self.hazards.wait(g, *instruction.wait)
            return pc + 1
        if kind == "jump":
            return self.program.targets[pc]
        if kind == "branch":
            return self._branch(g, instruction, pc)
        if kind == "barrier":
            self.held[g.waves] = True
            self.resume[g.waves] = pc + 1
        elif kind == "end":
            self.ended[g.waves] = True
        else:
            raise KernelError(f"{instruction.line.place}: data are executed as an instruction")
        return self._release(g, pc)

    def _branch(self, g: Group, instruction: Instruction, pc: int) -> int:
        if self.hazards is not None and not self.hazards.pending.isdisjoint(instruction.reads):
            self.hazards.check(g, instruction)
        assert instruction.taken is not None
        taken = instruction.taken(g)
        if taken.all():
            return self.program.targets[pc]
        if not taken.any():
            return pc + 1
        self._push(self.program.targets[pc], g.waves[taken])
        self._push(pc + 1, g.waves[~taken])
        return -1

    def _release(self, g: Group, pc: int) -> int:
        """Let waves go on whose whole workgroup has come to a barrier or ended."""
        shape = (self.state.per_group, self.state.groups)
        complete: Bools = np.all((self.held | self.ended).reshape(shape), axis=0)
        free = np.flatnonzero(self.held & complete[self.state.group_of])
        if not free.size:
            return -1
        self.held[free] = False
        if self.hazards is not None:
            self.hazards.lds.barrier(free, len(free) + np.count_nonzero(self.ended) == self.state.count)
        if len(free) == g.count and (free == g.waves).all():
            return pc + 1
        for place in np.unique(self.resume[free]):
            self._push(int(place), free[self.resume[free] == place])
        return -1

    def _push(self, pc: int, waves: Index) -> None:
        self.ready.setdefault(pc, []).append(waves)
