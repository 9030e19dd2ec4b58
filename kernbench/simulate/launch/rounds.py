"""Loops of a recorded workgroup: which loads belong to one pass of a loop, and when a pipeline asks for them.

A recording is unrolled. A loop is seen by what it carries: tiles that were made before are written again
(``tl.copy_to``). A load between the first and the last writing of such a tile belongs to a loop. A *round* of loads is
what one pass of the loop asks for: it goes on until a load of the same kind (tensor, shape and strides) comes again. A
round whose first load stands at another line of the kernel begins another loop.

A loop begins once what was asked for before it is there. A pipeline of ``stages`` then asks for the loads of the first
``stages - 1`` rounds, and for those of round ``r`` when the workgroup is done with round ``r - (stages - 1)``; fewer if
the scratch of the workgroup does not hold so many (:func:`~.costs.buffers_of`). Control elements, such as entries of a
block table, are asked for one round before the loads that they steer. Without a pipeline the loads of a round are asked
for when the first of them is needed, as far as the source has named them by then. Loads outside of loops are asked for
where the source says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kernbench.dtypes import DTYPES
from kernbench.record.trace import Command, PEClass
from kernbench.simulate.launch.costs import buffers_of
from kernbench.specs.implementation import Implementation

DRAIN = -1
"""In place of a load: wait for all that was asked for."""


@dataclass(frozen=True)
class Loop:
    """Rounds of loads."""

    rounds: list[list[int]]
    """Commands that load, for each pass, control elements among them."""
    end: int
    """First command behind the loop."""


class Ask(NamedTuple):
    """A load, and the command before which it is asked for."""

    before: int
    load: int


@dataclass(frozen=True)
class Plan:
    """When a workgroup asks for what it loads."""

    asks: list[Ask]
    """In order."""
    late: set[int]
    """Loads of these that are asked for when they are needed."""
    loops: list[Loop]
    round_of: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Load → loop, round, place in the round."""


def plan_of(cls: PEClass, implementation: Implementation) -> Plan:
    """Return when the workgroups of a class ask for their loads."""
    loops = _loops(cls)
    plan = Plan([], set(), loops)
    for number, loop in enumerate(loops):
        for r, loads in enumerate(loop.rounds):
            plan.round_of.update({load: (number, r, place) for place, load in enumerate(loads)})
    asks = [Ask(i, i) for i, c in enumerate(cls.commands) if c.op == "load" and i not in plan.round_of]
    for loop in loops:
        piped = list(_asks(loop, cls.commands, implementation))
        asks += piped
        if not piped:
            asks.append(Ask(loop.rounds[0][0], DRAIN))
            asks += [Ask(load, load) for loads in loop.rounds for load in loads]
            plan.late.update(load for loads in loop.rounds for load in loads)
    behind = [Ask(max([ask.before, *_users(cls.commands, ask.load)]), ask.load) for ask in asks]
    plan.asks.extend(sorted(behind, key=lambda ask: ask.before))
    return plan


def _users(commands: tuple[Command, ...], load: int) -> list[int]:
    """Return the commands behind those that still use a load's buffer, or have stored what it reads."""
    return [] if load == DRAIN else [earlier + 1 for earlier, _ in commands[load].deps]


def _asks(loop: Loop, commands: tuple[Command, ...], implementation: Implementation) -> Iterator[Ask]:
    """Yield what the pipeline of a loop asks for; nothing if there is none."""
    tile = sum(_tile_bytes(commands[load]) for load in loop.rounds[0])
    ahead = buffers_of(implementation.stages, implementation.lds_bytes, tile) if tile else 0
    if not ahead:
        return
    elements = [[load for load in loads if commands[load].name == "load_scalar"] for loads in loop.rounds]
    tiles = [[load for load in loads if commands[load].name != "load_scalar"] for loads in loop.rounds]
    begin = loop.rounds[0][0]
    yield from (Ask(begin, load) for loads in elements[: ahead + 1] for load in loads)
    yield Ask(begin, DRAIN)
    yield from (Ask(begin, load) for loads in tiles[:ahead] for load in loads)
    for r in range(1, len(loop.rounds)):
        now = loop.rounds[r][0]
        yield from (Ask(now, load) for loads in tiles[r - 1 + ahead : r + ahead] for load in loads)
        yield from (Ask(now, load) for loads in elements[r + ahead : r + ahead + 1] for load in loads)


def _tile_bytes(command: Command) -> int:
    if command.access is None or command.name == "load_scalar":
        return 0
    return math.prod(command.access.shape) * DTYPES[command.access.dtype].bits // 8


def _loops(cls: PEClass) -> list[Loop]:
    carried = _carried(cls)
    found: list[tuple[int, list[list[int]]]] = []
    seen: set[object] = set()
    for index, command in enumerate(cls.commands):
        if command.op != "load" or command.access is None or not any(a < index < b for a, b in carried):
            continue
        kind = (command.access.tensor, command.access.shape, command.access.strides)
        if not found:
            found.append((command.line, [[index]]))
        elif kind not in seen:
            found[-1][1][-1].append(index)
            seen.add(kind)
            continue
        elif command.line == found[-1][0]:
            found[-1][1].append([index])
        else:
            found.append((command.line, [[index]]))
        seen = {kind}
    if not found:
        return []
    last = max(b for _, b in carried)
    ends = [rounds[0][0] for _, rounds in found[1:]] + [last + 1]
    return [Loop(rounds, end) for (_, rounds), end in zip(found, ends, strict=True)]


def _carried(cls: PEClass) -> list[tuple[int, int]]:
    """Return the commands that write the loop-carried tiles for the first and for the last time."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, command in enumerate(cls.commands):
        for tile in command.dst:
            first.setdefault(tile, index)
            last[tile] = index
    return list({(first[tile], last[tile]) for tile in first if last[tile] > first[tile]})
