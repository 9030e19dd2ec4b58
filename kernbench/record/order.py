"""The order in which a PE must touch memory: its own stores come before its later loads of the same bytes, and so on.

Other PEs do not count: :mod:`kernbench.record.checks` refuses kernels in which it would matter what they do first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernbench.record.runs import Stretch


class Touch(NamedTuple):
    """One access of this PE: ``stretch`` counts from lane column ``column``."""

    command: int
    column: int
    stretch: Stretch


@dataclass
class _History:
    """Accesses from one lane column, in order, and the bounds of all."""

    low: int
    high: int
    touches: list[Touch]

    def may_meet(self, touch: Touch) -> bool:
        """Whether a new access from the same column lies within the bounds."""
        return touch.stretch.low < self.high and self.low < touch.stretch.high

    def append(self, touch: Touch) -> None:
        self.touches.append(touch)
        self.low, self.high = min(self.low, touch.stretch.low), max(self.high, touch.stretch.high)


class MemoryOrder:
    """This PE's own loads and stores: what must have ended before memory may be touched again."""

    def __init__(self) -> None:
        self._loads: dict[int, dict[int, _History]] = {}
        """By tensor and lane column."""
        self._stores: dict[int, dict[int, _History]] = {}

    def copy(self) -> MemoryOrder:
        """Return a copy that can go its own way."""
        other = MemoryOrder()
        for mine, its in ((self._loads, other._loads), (self._stores, other._stores)):
            for tensor, histories in mine.items():
                its[tensor] = {c: replace(h, touches=list(h.touches)) for c, h in histories.items()}
        return other

    def before(self, tensor: int, touch: Touch, is_store: bool, meet: Callable[[Touch, Touch], bool]) -> list[int]:
        """Return the earlier commands that must have ended: stores to the same bytes, and for a store loads as well."""
        found = []
        for side in (self._stores, self._loads) if is_store else (self._stores,):
            for column, history in side.get(tensor, {}).items():
                if column != touch.column or history.may_meet(touch):
                    found += [other.command for other in history.touches if meet(touch, other)]
        return found

    def note(self, tensor: int, touch: Touch, is_store: bool) -> None:
        """Note an access. What a store covers has been waited for, and is forgotten."""
        if is_store:
            for side in (self._stores, self._loads):
                history = side.get(tensor, {}).get(touch.column)
                if history and history.may_meet(touch):
                    history.touches = [other for other in history.touches if not _covers(touch, other)]
        histories = (self._stores if is_store else self._loads).setdefault(tensor, {})
        if touch.column in histories:
            histories[touch.column].append(touch)
        else:
            histories[touch.column] = _History(touch.stretch.low, touch.stretch.high, [touch])


def _covers(touch: Touch, other: Touch) -> bool:
    mine, its = touch.stretch, other.stretch
    return not mine.period and mine.low <= its.low and its.high <= mine.high
