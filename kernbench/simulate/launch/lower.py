"""From a recorded grid to a launch: each class's commands as the steps of a workgroup.

A workgroup is one control flow, so that its arithmetic is done in program order: each run of products, and each run of
vector operations between two products, waits or stores, is a RUN that is waited for at once.

* *Loads* are asked for as :mod:`kernbench.simulate.launch.rounds` says; the WAIT stands before the first product, store
  or vector operation that needs the tile. Casting and transposing a loaded tile needs nothing: it goes with the load.
* What a product's loaded operands cost the vector engine counts with the vector work before the product, or behind it
  where there is none before; an operand that stays the same through a loop costs nothing.
* An accumulator that vector work has rescaled takes up its product by one addition an element.
* Where the implementation has several copies of the scores, their products and vector work cost so many times as much.
* Behind the vector work of a softmax comes a PAUSE: reductions that cross waves, and the latency of the two products
  around it that nothing hides. Other reductions across waves pause where they stand.
* A tile of results that is narrowed to be stored passes through scratch, for as long as the workgroup's ``end``.

Loops whose passes are alike become the body of the workgroup: see :mod:`kernbench.simulate.launch.fold`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from kernbench.dtypes import DTYPES
from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.machine.workgroups import WorkgroupGrid
from kernbench.record.stream import flops_of
from kernbench.record.trace import Command, PEClass, Ref, Trace
from kernbench.simulate.launch import steps
from kernbench.simulate.launch.commands import Costs, format_of, is_of_rows
from kernbench.simulate.launch.fold import Written, folded
from kernbench.simulate.launch.places import Resources, places_of, workgroup_of
from kernbench.simulate.launch.rounds import DRAIN, Plan, plan_of
from kernbench.simulate.launch.scores import commands_on_scores, is_tile
from kernbench.simulate.launch.shared import SECTOR, shared_tiles
from kernbench.simulate.launch.steps import MATRIX, START, VECTOR, Launch, Workgroup
from kernbench.specs.implementation import Implementation

_WORK = 0
"""Token of every RUN: it is waited for at once, so that one is enough."""


def lower(
    trace: Trace, machine: Machine, implementation: Implementation, *, warm: bool = False, fold: bool = True
) -> Launch:
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
    fold
        Whether loops become bodies; the times are the same, simulating takes longer without.

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
        _Lowering(
            cls, machine, costs, plan_of(cls, implementation), numbers, copied(cls, implementation)
        ).workgroup(fold)
        for cls, numbers in zip(trace.classes, shared.of, strict=True)
    )
    class_of = np.zeros(trace.n_pes, np.int32)
    for c, cls in enumerate(trace.classes):
        class_of[cls.pes] = c
    first_level = -1
    if warm and len(places.levels) > 1 and _loaded_nbytes(trace) <= places.levels[-2].capacity:
        first_level = len(places.levels) - 2
    return Launch(places, classes, class_of, shared.base, shared.tiles, first_level)


def copied(cls: PEClass, implementation: Implementation) -> dict[int, int]:
    """Return the commands that several waves do, each for itself, and how many waves."""
    of_scores, of_values = implementation.score_copies, implementation.value_copies
    if of_scores == of_values == 1:
        return {}
    scores = commands_on_scores(cls)
    arithmetic = (i for i, command in enumerate(cls.commands) if command.op in ("dot", "vector"))
    return {i: of_scores if i in scores else of_values for i in arithmetic}


def matrix_operations(trace: Trace, implementation: Implementation) -> int:
    """Return the floating-point operations that a launch's matrix engines do, a multiply-add is two."""
    total = 0
    for cls in trace.classes:
        copies = copied(cls, implementation)
        again = sum((n - 1) * flops_of(cls.commands[i]) for i, n in copies.items() if cls.commands[i].op == "dot")
        total += len(cls.pes) * (cls.stream.flops + again)
    return total


def _loaded_nbytes(trace: Trace) -> int:
    loaded = {c.access.tensor for cls in trace.classes for c in cls.commands if c.op == "load" and c.access is not None}
    return sum(trace.tensors[tensor].nbytes for tensor in loaded)


@dataclass
class _Lowering:
    """The steps of one class while they are written."""

    cls: PEClass
    machine: Machine
    costs: Costs
    plan: Plan
    numbers: dict[int, tuple[int, int]]
    """Command → stream and offset of the shared tile that it loads."""
    copies: dict[int, int] = field(default_factory=dict)
    """Command → waves that do it, each for itself; 1 where it is not named."""
    out: Written = field(default_factory=Written)
    pending: dict[int, int] = field(default_factory=dict)
    """Loads that nobody has waited for yet, and their tokens."""
    late: list[int] = field(default_factory=list)
    """Loads that the source has named and that are asked for when one of them is needed."""
    free_tokens: list[int] = field(default_factory=list)
    tokens: int = _WORK + 1
    loaded: dict[int, int] = field(default_factory=dict)
    """Tile that holds what was loaded, perhaps cast or transposed → the load."""
    rescaled: set[int] = field(default_factory=set)
    """Tiles that a vector operation has made."""
    product: list[Fraction] = field(default_factory=list)
    """Products since the last RUN."""
    work: list[Fraction] = field(default_factory=list)
    """Vector work since the last RUN."""
    fed: list[Fraction] = field(default_factory=list)
    """Vector work for operands of products that had none before them."""
    pause: int = 0
    """Reductions across waves since the last RUN."""
    is_softmax: bool = False
    """Whether a maximum of each row was taken since the last product."""
    stored: int = 0
    """Bytes that are stored one after the other."""

    def workgroup(self, fold: bool) -> Workgroup:
        """Return the steps."""
        asks, at = self.plan.asks, 0
        begins = {loads[0] for loop in self.plan.loops for loads in loop.rounds}
        ends = {loop.end for loop in self.plan.loops}
        for index, command in enumerate(self.cls.commands):
            if index in begins or index in ends:
                self._ask_late()
                self._flush()
            ended = len(self.out.steps) if index in ends else None
            while at < len(asks) and asks[at].before <= index:
                load = asks[at].load
                if load in self.plan.late:
                    self.late.append(load)
                    self.loaded.update(dict.fromkeys(self.cls.commands[load].dst, load))
                else:
                    self._ask(load)
                at += 1
            if ended is not None:
                self.out.ends.append(ended)
            if index in begins:
                self.out.marks[index] = len(self.out.steps)
            self._lower(index, command)
        self._ask_late()
        self._flush()
        if len(self.out.ends) < len(self.plan.loops):
            self.out.ends.append(len(self.out.steps))
        self.out.steps += steps.pause(workgroup_of(self.machine).end, START)
        if fold:
            return folded(self.out, self.plan, self.tokens)
        return Workgroup(tuple(self.out.steps), (), (), 0)

    def _lower(self, index: int, command: Command) -> None:
        if command.op == "dot":
            self._dot(index, command)
        elif command.op == "vector":
            self._vector(index, command)
        elif command.op == "store":
            self._store(command)
        elif command.op != "load":
            raise InputError(
                f"{command.op} cannot be timed in a workgroup: kernels of a grid use loads, stores, dot and vector "
                "operations"
            )

    # ------------------------------------------------------------------ loads
    def _ask(self, index: int) -> None:
        if index == DRAIN:
            for earlier in list(self.pending):
                self._wait_for(earlier)
            return
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
        self.out.add(steps.load(token, nbytes, stream=stream, offset=offset), index)
        self.pending[index] = token
        self.loaded.update(dict.fromkeys(command.dst, index))

    def _elements_before(self, index: int) -> list[int]:
        """Return the control elements before a load in the program that nobody has waited for: it may need them."""
        return [i for i in self.pending if i < index and self.cls.commands[i].name == "load_scalar"]

    def _wait_for(self, index: int) -> None:
        token = self.pending.pop(index, None)
        if token is not None:
            self.out.add(steps.wait(token), index)
            self.free_tokens.append(token)

    def _loads_of(self, command: Command) -> list[int]:
        """Return the loads that a command reads and that nobody has waited for."""
        sources = (self.loaded.get(s.tile) for s in command.srcs if isinstance(s, Ref))
        return [load for load in sources if load is not None and (load in self.pending or load in self.late)]

    def _wait_for_all(self, needed: list[int]) -> None:
        """Wait for loads; ask for those that are late first."""
        if any(load in self.late for load in needed):
            self._ask_late()
        for load in needed:
            self._wait_for(load)

    def _ask_late(self) -> None:
        late, self.late = self.late, []
        for load in late:
            self._ask(load)

    # ------------------------------------------------------------------ products
    def _dot(self, index: int, command: Command) -> None:
        tiles, accumulator = self.cls.tiles, command.srcs[2] if len(command.srcs) > 2 else None
        rows = command.work[1]
        for operand in command.srcs[:2]:
            load = self.loaded.get(operand.tile)
            access = None if load is None else self.cls.commands[load].access
            if load in self.plan.round_of and access is not None:
                cost = self.costs.fed(operand, access, tiles, rows, self.copies.get(index, 1))
                (self.work if self.work else self.fed).append(cost)
        if isinstance(accumulator, Ref) and accumulator.tile in self.rescaled:
            self.work.append(self.costs.taken_up(math.prod(accumulator.shape)))
        if self.is_softmax:
            self.pause += self.costs.latency(rows)
            self.is_softmax = False
        if self.work or self.pause:
            self._flush()
        self._wait_for_all(self._loads_of(command))
        self.product.append(self.costs.product(command, tiles, self.copies.get(index, 1)))
        self._writes(command)

    # ------------------------------------------------------------------ vector work
    def _vector(self, index: int, command: Command) -> None:
        tiles = self.cls.tiles
        sources = [s for s in command.srcs if isinstance(s, Ref)]
        if command.name in ("cast", "trans") and sources[0].tile in self.loaded:
            self.loaded.update(dict.fromkeys(command.dst, self.loaded[sources[0].tile]))
            return  # what it costs counts where the tile is used
        needed = self._loads_of(command)
        if needed:
            self._flush()
            self._wait_for_all(needed)
        for source in sources:
            access = self.cls.commands[self.loaded[source.tile]].access if source.tile in self.loaded else None
            if access is not None and format_of(source, tiles) != access.dtype:
                self._add(self.costs.widened(source, access, tiles))
        self._add(self.costs.cycles(command, tiles, self.copies.get(index, 1)))
        pause = self.costs.reduction(command)
        self.pause += pause
        if command.name == "max" and is_of_rows(command):
            self.is_softmax = True
        self._writes(command)
        if command.name not in ("copy", "fill"):
            self.rescaled.update(command.dst)

    def _writes(self, command: Command) -> None:
        for tile in command.dst:
            self.loaded.pop(tile, None)
            self.rescaled.discard(tile)

    def _add(self, cycles: Fraction) -> None:
        if cycles:
            self._flush_product()
            self.work += [*self.fed, cycles]
            self.fed = []

    # ------------------------------------------------------------------ results
    def _store(self, command: Command) -> None:
        source, access = command.srcs[0], command.access
        needed = self._loads_of(command)
        if needed or self.work or self.product or self.pause:
            self._flush()
            self._wait_for_all(needed)
        if isinstance(source, Ref) and access is not None and is_narrowed(source, access.dtype, self.cls):
            self.out.steps += steps.pause(workgroup_of(self.machine).end, START)
        self.stored += command.nbytes

    def _flush_product(self) -> None:
        if self.product:
            ps = self.costs.whole(sum(self.product, Fraction(0)))
            self.out.add_all(steps.work(_WORK, ps, self.costs.engines[0], MATRIX))
            self.product = []

    def _flush(self) -> None:
        """Write the work that has gathered, and what is stored behind it."""
        self._flush_product()
        if self.fed and not self.work:
            self.work, self.fed = self.fed, []
        if self.work:
            self.out.add_all(steps.work(_WORK, self.costs.together(self.work), self.costs.engines[1], VECTOR))
            self.work = []
        self.out.add_all(steps.pause(self.pause))
        self.pause = 0
        if self.stored:
            self.out.add_all((steps.store(self.stored),))
            self.stored = 0


def is_narrowed(source: Ref, dtype: str, cls: PEClass) -> bool:
    """Whether a tile, rather than a vector, of float32 is stored in a shorter format."""
    computed = source.dtype or cls.tiles[source.tile].dtype
    return is_tile(source.shape) and DTYPES[dtype].bits < DTYPES[computed].bits
