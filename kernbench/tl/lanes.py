"""Lanes: integers that stand for many PEs at once.

The kernel runs once for a whole group of PEs. ``tl.program_id`` returns a :class:`LaneInt`: one number per PE.
Arithmetic on it is done for all PEs together. Where Python needs *one* answer (a branch, ``range``, a
shape), the PEs that agree with the first one go on in this run; the others are put aside and run again on
their own, from the top. They agreed on everything before, so their run repeats this one up to that point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernbench.errors import KernelError

_REMEMBERED = 256
"""Results of lane arithmetic that a group keeps, so that the same expression in a loop gives the same array."""


class Extremes(NamedTuple):
    """What is true of all numbers in an array of lanes."""

    low: int
    high: int
    divisor: int
    """Greatest common divisor; 0 if all are 0."""


class Group:
    """The PEs of one run of the kernel, narrowed while they come to disagree."""

    def __init__(self, pes: np.ndarray, put_aside: Callable[[np.ndarray], None]) -> None:
        self.pes = pes
        """Global indices of the PEs that started the run, ascending."""
        self.active = np.arange(len(pes))
        """Positions in :attr:`pes` of those that still agree."""
        self._put_aside = put_aside
        self._results: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @property
    def active_pes(self) -> np.ndarray:
        """Global indices of the PEs that still agree."""
        return self.pes[self.active]

    def agree(self, values: np.ndarray) -> Any:
        """Return the first active PE's value; put aside the PEs whose value differs."""
        mine = values[self.active]
        first = mine[0]
        same = mine == first
        if not same.all():
            self._put_aside(self.pes[self.active[~same]])
            self.active = self.active[same]
        return first.item()

    def combine(self, function: Callable[..., np.ndarray], a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
        """Return ``function(a, b)``, and the same array if it is asked for again."""
        key = (function, id(a), b) if isinstance(b, int) else (function, id(a), None, id(b))
        known = self._results.get(key)
        if known is None:
            known = self._remember(key, (function(a, b), a, b))
        result: np.ndarray = known[0]
        return result

    def extremes(self, values: np.ndarray) -> Extremes:
        """Return the bounds and the common divisor of an array of lanes, PEs that were put aside included."""
        key = (Extremes, id(values))
        known = self._results.get(key)
        if known is None:
            found = Extremes(int(values.min()), int(values.max()), int(np.gcd.reduce(values)))
            known = self._remember(key, (found, values))
        result: Extremes = known[0]
        return result

    def _remember(self, key: tuple[Any, ...], known: tuple[Any, ...]) -> tuple[Any, ...]:
        """Keep a result, together with the arrays whose ids are in its key."""
        if len(self._results) >= _REMEMBERED:
            self._results.clear()
        self._results[key] = known
        return known


class LaneInt:
    """An integer per PE of a group: ``root + offset``.

    Adding a plain integer keeps ``root``, and multiplying by one gives the same new ``root`` each time. So a loop that
    walks over memory shares one array between all its addresses, and a Trace grows with commands, not with PEs.
    """

    __slots__ = ("group", "offset", "root")
    __array_ufunc__ = None  # so that a NumPy integer on the left leaves the operation to this class

    def __init__(self, group: Group, root: np.ndarray, offset: int = 0) -> None:
        self.group = group
        self.root = np.asarray(root, dtype=np.int64)
        self.offset = offset

    @property
    def values(self) -> np.ndarray:
        """One number for each PE that started the run, int64."""
        return self.root + self.offset if self.offset else self.root

    @property
    def active_values(self) -> np.ndarray:
        """One number for each PE that still agrees, int64."""
        return self.root[self.group.active] + self.offset

    # -- arithmetic, for all PEs at once
    def __add__(self, other: Any) -> Any:
        if isinstance(other, (int, np.integer)):
            return LaneInt(self.group, self.root, self.offset + int(other))
        if isinstance(other, LaneInt):
            self._check_run(other)
            return LaneInt(self.group, self.group.combine(np.add, self.root, other.root), self.offset + other.offset)
        return _refuse(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, (int, np.integer)):
            return LaneInt(self.group, self.root, self.offset - int(other))
        if isinstance(other, LaneInt):
            self._check_run(other)
            root = self.group.combine(np.subtract, self.root, other.root)
            return LaneInt(self.group, root, self.offset - other.offset)
        return _refuse(other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> LaneInt:
        return self._times(-1)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (int, np.integer)):
            return self._times(int(other))
        if isinstance(other, LaneInt) and not self.offset and not other.offset:
            self._check_run(other)
            return LaneInt(self.group, self.group.combine(np.multiply, self.root, other.root))
        return self._values_with(np.multiply, other)

    __rmul__ = __mul__

    def _times(self, factor: int) -> LaneInt:
        return LaneInt(self.group, self.group.combine(np.multiply, self.root, factor), self.offset * factor)

    def __floordiv__(self, other: Any) -> Any:
        return self._divide(np.floor_divide, other)

    def __mod__(self, other: Any) -> Any:
        return self._divide(np.remainder, other)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rfloordiv__(self, other: Any) -> Any:
        return self._as_divisor(np.floor_divide, other)

    def __rmod__(self, other: Any) -> Any:
        return self._as_divisor(np.remainder, other)

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _divide(self, function: Callable[..., Any], other: Any) -> Any:
        if isinstance(other, (int, np.integer)) and other:
            divisor = int(other)
            if self.offset % divisor == 0:  # keeps the root: (root + offset) // n = root // n + offset // n
                root = self.group.combine(function, self.root, divisor)
                return LaneInt(self.group, root, self.offset // divisor if function is np.floor_divide else 0)
        operand = self._operand(other)
        if operand is None:
            return _refuse(other)
        self._check_not_zero(operand)
        with np.errstate(divide="ignore"):
            return LaneInt(self.group, function(self.values, operand))

    def _as_divisor(self, function: Callable[..., Any], other: Any) -> Any:
        operand = self._operand(other)
        if operand is None:
            return _refuse(other)
        self._check_not_zero(self.values)
        with np.errstate(divide="ignore"):
            return LaneInt(self.group, function(operand, self.values))

    def _check_not_zero(self, divisor: Any) -> None:
        if np.any((divisor[self.group.active] if isinstance(divisor, np.ndarray) else divisor) == 0):
            raise ZeroDivisionError("integer division or modulo by zero on at least one PE")

    def __truediv__(self, other: Any) -> Any:
        raise KernelError("`/` on a program id or another per-PE integer: these are integers, use `//`")

    __rtruediv__ = __truediv__

    def __pow__(self, other: Any) -> Any:
        return self._values_with(np.power, other)

    def __rpow__(self, other: Any) -> Any:
        return self._values_with(np.power, other, reflected=True)

    def __lshift__(self, other: Any) -> Any:
        return self._values_with(np.left_shift, other)

    def __rlshift__(self, other: Any) -> Any:
        return self._values_with(np.left_shift, other, reflected=True)

    def __rshift__(self, other: Any) -> Any:
        return self._values_with(np.right_shift, other)

    def __rrshift__(self, other: Any) -> Any:
        return self._values_with(np.right_shift, other, reflected=True)

    def __and__(self, other: Any) -> Any:
        return self._values_with(np.bitwise_and, other)

    def __or__(self, other: Any) -> Any:
        return self._values_with(np.bitwise_or, other)

    def __xor__(self, other: Any) -> Any:
        return self._values_with(np.bitwise_xor, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __pos__(self) -> LaneInt:
        return self

    def __abs__(self) -> LaneInt:
        return LaneInt(self.group, np.abs(self.values))

    def __invert__(self) -> LaneInt:
        raise KernelError("`~` on a per-PE integer: use `not condition`, or `^` for bits")

    # -- comparisons, for all PEs at once: 0 or 1 on each
    def __eq__(self, other: Any) -> Any:
        return self._compare(np.equal, other)

    def __ne__(self, other: Any) -> Any:
        return self._compare(np.not_equal, other)

    def __lt__(self, other: Any) -> Any:
        return self._compare(np.less, other)

    def __le__(self, other: Any) -> Any:
        return self._compare(np.less_equal, other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(np.greater, other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(np.greater_equal, other)

    def _compare(self, function: Callable[..., Any], other: Any) -> Any:
        operand = other if isinstance(other, (float, np.floating)) else self._operand(other)
        return NotImplemented if operand is None else LaneInt(self.group, function(self.values, operand))

    def _values_with(self, function: Callable[..., Any], other: Any, reflected: bool = False) -> Any:
        operand = self._operand(other)
        if operand is None:
            return _refuse(other)
        return LaneInt(self.group, function(operand, self.values) if reflected else function(self.values, operand))

    def _operand(self, other: Any) -> Any:
        if isinstance(other, LaneInt):
            self._check_run(other)
            return other.values
        return int(other) if isinstance(other, (int, np.integer)) else None

    def _check_run(self, other: LaneInt) -> None:
        if other.group is not self.group:
            raise KernelError("a per-PE integer of another run of the kernel: do not keep them outside")

    # -- where Python needs one answer
    def __bool__(self) -> bool:
        return bool(self.group.agree(self.values != 0))

    def __int__(self) -> int:
        return int(self.group.agree(self.values))

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def __hash__(self) -> int:
        return hash(int(self))

    def __repr__(self) -> str:
        values = np.unique(self.active_values)
        shown = ", ".join(map(str, values[:6])) + (", …" if len(values) > 6 else "")
        return f"<per-PE integer: {shown}>"


def _refuse(other: Any) -> Any:
    """Leave an operation to the other operand, unless that is a number that is not whole."""
    if isinstance(other, (float, np.floating)):
        raise KernelError(
            f"a per-PE integer with the number {other}: per-PE arithmetic is in whole numbers; float(x) makes a "
            "number of it, which runs the kernel once for each value"
        )
    return NotImplemented
