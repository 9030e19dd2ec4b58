"""Loops of a workgroup as its body: fewer steps, the same times.

The steps of a loop were written pass by pass. If all passes are alike, but for loads that would reach beyond the last
one and for a shorter last tile, one of them becomes the body of the workgroup, whose tokens are used in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kernbench.simulate.launch.rounds import Plan
from kernbench.simulate.launch.steps import Kind, Step, Workgroup

LEAST = 3
"""Passes from which a loop is folded."""


@dataclass
class Written:
    """Steps of a workgroup as they are written, and where its loops lie among them."""

    steps: list[Step] = field(default_factory=list)
    load_of: dict[int, int] = field(default_factory=dict)
    """Step that loads or waits for a load → the command that loads."""
    marks: dict[int, int] = field(default_factory=dict)
    """First load of a round → steps before its pass, those that ask for later rounds among them."""
    ends: list[int] = field(default_factory=list)
    """Steps before the end of each loop."""

    def add(self, step: Step, load: int) -> None:
        """Write a LOAD, or the WAIT for it."""
        self.load_of[len(self.steps)] = load
        self.steps.append(step)

    def add_all(self, steps: Sequence[Step]) -> None:
        """Write steps that are of no load."""
        self.steps += steps


class _Item(NamedTuple):
    """A step of a pass without what differs from pass to pass."""

    step: Step
    """Of a LOAD or WAIT without token; the offset without the round, no bytes."""
    place: int
    """In the round, of the load; -1: none."""
    ahead: int
    """Rounds between this pass and the one that is loaded for."""


def folded(written: Written, plan: Plan, tokens: int) -> Workgroup:
    """Return the workgroup with its longest loop as the body, or with all steps as the prologue if that is not exact.

    ``tokens`` is the number of tokens in use.
    """
    flat = Workgroup(tuple(written.steps), (), (), 0)
    lengths = [len(loop.rounds) for loop in plan.loops]
    if not lengths or max(lengths) < LEAST:
        return flat
    number = lengths.index(max(lengths))
    rounds = plan.loops[number].rounds
    bounds = [written.marks[loads[0]] for loads in rounds] + [written.ends[number]]
    passes = [[_item(written, plan, number, i, r) for i in range(bounds[r], bounds[r + 1])] for r in range(len(rounds))]
    sizes = _sizes(written, plan, number)
    one = [item for item in passes[0] if item is not None]
    if not _alike(one, passes) or sizes is None or not sizes.keys() <= {item.place for item in one}:
        return flat  # in the last case all loads of some place are waited for before the loop
    depth = {place: 1 + max(i.ahead for i in one if i.place == place) for place in sizes}
    first: dict[int, int] = {}
    for place in sorted(depth):
        first[place] = tokens
        tokens += depth[place]
    body = [_repeated(item, first, depth, sizes) for item in one]

    def plain(begin: int, end: int) -> tuple[Step, ...]:
        found = []
        for i in range(begin, end):
            step, place = written.steps[i], plan.round_of.get(written.load_of.get(i, -1))
            if place is not None and place[0] == number:
                step = replace(step, token=first[place[2]] + place[1] % depth[place[2]])
            found.append(step)
        return tuple(found)

    return Workgroup(plain(0, bounds[0]), tuple(body), plain(bounds[-1], len(written.steps)), len(rounds))


def _item(written: Written, plan: Plan, loop: int, index: int, r: int) -> _Item | None:
    """Return a step of pass ``r``; None if it is of a load of another loop or of none."""
    step = written.steps[index]
    if index not in written.load_of:
        return _Item(step, -1, 0)
    at = plan.round_of.get(written.load_of[index])
    if at is None or at[0] != loop or at[1] < r:
        return None
    offset = step.offset - at[1] if step.stream >= 0 else 0
    return _Item(replace(step, token=0, offset=offset, nbytes=0), at[2], at[1] - r)


def _alike(body: list[_Item], passes: list[list[_Item | None]]) -> bool:
    """Whether each pass is ``body``, the first one, without what would reach beyond the last one."""
    n = len(passes)
    if max(item.ahead for item in body) >= n:
        return False
    return all([item for item in body if item.ahead + r < n] == one for r, one in enumerate(passes))


def _sizes(written: Written, plan: Plan, loop: int) -> dict[int, tuple[int, int]] | None:
    """Return the bytes of each load of a round, and of the last round's; None if others differ."""
    last = len(plan.loops[loop].rounds) - 1
    full: dict[int, set[int]] = {}
    tail: dict[int, int] = {}
    for index, load in written.load_of.items():
        at = plan.round_of.get(load)
        if at is None or at[0] != loop or written.steps[index].kind != Kind.LOAD:
            continue
        if at[1] == last:
            tail[at[2]] = written.steps[index].nbytes
        else:
            full.setdefault(at[2], set()).add(written.steps[index].nbytes)
    if set(full) != set(tail) or any(len(sizes) > 1 for sizes in full.values()):
        return None
    return {place: (next(iter(sizes)), tail[place]) for place, sizes in full.items()}


def _repeated(item: _Item, first: dict[int, int], depth: dict[int, int], sizes: dict[int, tuple[int, int]]) -> Step:
    """Return the step of the body."""
    if item.place < 0:
        return item.step
    step = replace(item.step, token=first[item.place], depth=depth[item.place], ahead=item.ahead)
    if step.kind != Kind.LOAD:
        return step
    nbytes, last = sizes[item.place]
    return replace(step, nbytes=nbytes, last_nbytes=last if last != nbytes else -1)
