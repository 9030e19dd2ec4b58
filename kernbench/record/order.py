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

    def before(self, tensor: int, touch: Touch, is_store: bool, meet: Callable[[Touch, Touch], bool]) -> list[Touch]:
        """Return the earlier accesses that must have ended: stores to the same bytes, and for a store loads as well."""
        found: list[Touch] = []
        for side in (self._stores, self._loads) if is_store else (self._stores,):
            for column, history in side.get(tensor, {}).items():
                if column != touch.column or history.may_meet(touch):
                    found += [other for other in history.touches if meet(touch, other)]
        return found

    def forget(self, tensor: int, covered: list[Touch]) -> None:
        """Forget accesses: who waits for the store that covers them has waited for them too."""
        commands = {touch.command for touch in covered}
        for side in (self._stores, self._loads) if covered else ():
            for history in side.get(tensor, {}).values():
                history.touches = [touch for touch in history.touches if touch.command not in commands]

    def note(self, tensor: int, touch: Touch, is_store: bool) -> None:
        """Note an access."""
        histories = (self._stores if is_store else self._loads).setdefault(tensor, {})
        if touch.column in histories:
            histories[touch.column].append(touch)
        else:
            histories[touch.column] = _History(touch.stretch.low, touch.stretch.high, [touch])
