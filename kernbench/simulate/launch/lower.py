"""From a recorded grid to a launch: each class's commands as the steps of a workgroup.

A workgroup is one control flow, so that its arithmetic is done in program order: each product, and each run of vector
operations between two waits, is a RUN that is waited for at once. Loads are different: a LOAD is asked for as early as
program order among loads and the reuse of its buffer allow, which is how ``scratch_scope(buffers=stages)`` says that
loads run ahead; its WAIT stands before the first command that needs the tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.machine.workgroups import WorkgroupGrid
from kernbench.record.trace import PEClass, Trace
from kernbench.simulate.launch import steps
from kernbench.simulate.launch.costs import Costs, reduction_pause
from kernbench.simulate.launch.places import Resources, places_of, workgroup_of
from kernbench.simulate.launch.shared import SECTOR, shared_tiles
from kernbench.simulate.launch.steps import MATRIX, START, VECTOR, Launch, Step, Workgroup
from kernbench.specs.implementation import Implementation

_WORK = 0
"""Token of every RUN: it is waited for at once, so that one is enough."""


def lower(trace: Trace, machine: Machine, implementation: Implementation, *, warm: bool = False) -> Launch:
    """Return the launch that a recorded grid is on a machine.

    Parameters
    ----------
    trace
        Recorded for ``machine.as_grid(...)`` of any machine whose PEs hold workgroups.
    machine
        The machine to be timed.
    implementation
        What a workgroup occupies, and how its steps are scheduled.
    warm
        Whether what is loaded was stored just before: then the last cache has it, if it fits there.

    Raises
    ------
    InputError
        If the trace is of a mesh, a workgroup does not fit into a PE, a format has no matrix rate, or the shared tiles
        need too large a table.
    """
    if not isinstance(trace.machine, WorkgroupGrid):
        raise InputError(
            f"{trace.kernel} was recorded for the PEs of {trace.machine.name}, not as a grid of workgroups"
        )
    resources = Resources(implementation.waves, implementation.registers, implementation.lds_bytes)
    places = places_of(machine, resources)
    costs = Costs(machine, implementation)
    shared = shared_tiles(trace)
    classes = tuple(
        _Lowering(cls, machine, implementation, costs, numbers).workgroup()
        for cls, numbers in zip(trace.classes, shared.of, strict=True)
    )
    class_of = np.zeros(trace.n_pes, np.int32)
    for c, cls in enumerate(trace.classes):
        class_of[cls.pes] = c
    first_level = -1
    if warm and len(places.levels) > 1 and _loaded_nbytes(trace) <= places.levels[-2].capacity:
        first_level = len(places.levels) - 2
    return Launch(places, classes, class_of, shared.base, shared.tiles, first_level)


def _loaded_nbytes(trace: Trace) -> int:
    loaded = {c.access.tensor for cls in trace.classes for c in cls.commands if c.op == "load" and c.access is not None}
    return sum(trace.tensors[tensor].nbytes for tensor in loaded)


@dataclass
class _Lowering:
    """The steps of one class while they are written."""

    cls: PEClass
    machine: Machine
    implementation: Implementation
    costs: Costs
    numbers: dict[int, tuple[int, int]]
    """Command → stream and offset of the shared tile that it loads."""
    steps: list[Step] = field(default_factory=list)
    work: list[Fraction] = field(default_factory=list)
    """Vector work that has been met since the last RUN."""
    pending: dict[int, int] = field(default_factory=dict)
    """Loads that nobody has waited for yet, and their tokens."""
    free_tokens: list[int] = field(default_factory=list)
    tokens: int = _WORK + 1

    def workgroup(self) -> Workgroup:
        """Return all steps as a prologue: nothing is repeated."""
        order, at = list(self._load_order()), 0
        for index, command in enumerate(self.cls.commands):
            while at < len(order) and order[at][0] <= index:
                self._load(order[at][1])
                at += 1
            if command.op == "load":
                continue
            for earlier, _ in command.deps:
                self._wait_for(earlier)
            if command.op == "dot":
                self._flush()
                product = self.costs.together([self.costs.ps(command, self.cls.tiles)])
                self.steps += steps.work(_WORK, product, self.costs.engines[0], MATRIX)
            elif command.op == "vector":
                self._add(self.costs.ps(command, self.cls.tiles))
                pause = reduction_pause(command, self.cls.tiles, self.machine, self.implementation)
                if pause:
                    self._flush()
                    self.steps += steps.pause(pause)
            elif command.op == "store":
                self._flush()
                self.steps.append(steps.store(command.nbytes))
            else:
                raise InputError(
                    f"{command.op} cannot be timed in a workgroup: kernels of a grid use loads, stores, dot and vector "
                    "operations"
                )
        self._flush()
        self.steps += steps.pause(workgroup_of(self.machine).end, START)
        return Workgroup(tuple(self.steps), (), (), 0)

    # ------------------------------------------------------------------ loads
    def _load_order(self) -> list[tuple[int, int]]:
        """Return (command before which it is asked for, command) of each load, in the order of asking.

        That is behind the last command that still uses its buffer (or has stored what it reads), and behind the loads
        before it. A control element has no buffer: it follows the load before it, and so runs ahead of its own tile.
        """
        order: list[tuple[int, int]] = []
        before = 0
        for index, command in enumerate(self.cls.commands):
            if command.op == "load":
                before = max(before, max((earlier + 1 for earlier, _ in command.deps), default=0))
                order.append((before, index))
        return order

    def _load(self, index: int) -> None:
        command = self.cls.commands[index]
        self._flush()
        nbytes = SECTOR
        if command.name != "load_scalar":
            nbytes = command.nbytes
            for element in self._elements_before(index):
                self._wait_for(element)
        token = self.free_tokens.pop() if self.free_tokens else self.tokens
        self.tokens = max(self.tokens, token + 1)
        stream, offset = self.numbers.get(index, (-1, 0))
        self.steps.append(steps.load(token, nbytes, stream=stream, offset=offset))
        self.pending[index] = token

    def _elements_before(self, index: int) -> list[int]:
        """Return the control elements before a load in the program that nobody has waited for: it may need them."""
        return [i for i in self.pending if i < index and self.cls.commands[i].name == "load_scalar"]

    def _wait_for(self, index: int) -> None:
        token = self.pending.pop(index, None)
        if token is None:
            return
        self._flush()
        self.steps.append(steps.wait(token))
        self.free_tokens.append(token)
        command = self.cls.commands[index]
        if command.name == "load":
            self._add(self.costs.loaded(command))

    # ------------------------------------------------------------------ work
    def _add(self, cost: Fraction) -> None:
        if cost:
            self.work.append(cost)

    def _flush(self) -> None:
        """Write the vector work that has gathered."""
        if self.work:
            self.steps += steps.work(_WORK, self.costs.together(self.work), self.costs.engines[1], VECTOR)
            self.work = []
