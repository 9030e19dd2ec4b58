"""Lanes: integers that stand for many PEs at once.

The kernel runs once for a whole group of PEs. ``tl.program_id`` returns a :class:`LaneInt`: one number per PE.
Arithmetic on it is done for all PEs together. Where Python needs *one* answer (a branch, ``range``, a
shape), the PEs that agree with the first one go on in this run; the others are put aside and run again on
their own, from the top. They agreed on everything before, so their run repeats this one up to that point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.errors import KernelError


class Group:
    """The PEs of one run of the kernel: those that still agree, and those put aside."""

    def __init__(self, pes: np.ndarray) -> None:
        self.pes = pes
        """Global indices of the PEs that started the run, ascending."""
        self.active = np.arange(len(pes))
        """Positions in :attr:`pes` of those that still agree."""
        self.put_aside: list[np.ndarray] = []
        """Global indices of the groups that disagreed and must run on their own."""

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
            self.put_aside.append(self.pes[self.active[~same]])
            self.active = self.active[same]
        return first.item()


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: LaneInt, other: Any) -> Any:
        operand = _operand(other)
        return NotImplemented if operand is None else LaneInt(self.group, function(self.values, operand))

    return forward


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: LaneInt, other: Any) -> Any:
        operand = _operand(other)
        return NotImplemented if operand is None else LaneInt(self.group, function(operand, self.values))

    return forward


def _operand(other: Any) -> Any:
    if isinstance(other, LaneInt):
        return other.values
    if isinstance(other, (int, np.integer)):
        return int(other)
    return None


class LaneInt:
    """An integer per PE of a group: ``root + offset``.

    Adding a plain integer keeps ``root``, so a loop that walks over memory shares one array between all its
    addresses, and a Trace grows with commands, not with PEs.
    """

    __slots__ = ("group", "offset", "root")

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
            return LaneInt(self.group, self.root + other.root, self.offset + other.offset)
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, (int, np.integer)):
            return LaneInt(self.group, self.root, self.offset - int(other))
        if isinstance(other, LaneInt):
            return LaneInt(self.group, self.root - other.root, self.offset - other.offset)
        return NotImplemented

    __rsub__ = _reflected(np.subtract)
    __mul__ = __rmul__ = _binary(np.multiply)
    __lshift__, __rlshift__ = _binary(np.left_shift), _reflected(np.left_shift)
    __rshift__, __rrshift__ = _binary(np.right_shift), _reflected(np.right_shift)
    __and__ = __rand__ = _binary(np.bitwise_and)
    __or__ = __ror__ = _binary(np.bitwise_or)
    __xor__ = __rxor__ = _binary(np.bitwise_xor)
    __eq__ = _binary(np.equal)  # type: ignore[assignment]
    __ne__ = _binary(np.not_equal)  # type: ignore[assignment]
    __lt__, __le__ = _binary(np.less), _binary(np.less_equal)
    __gt__, __ge__ = _binary(np.greater), _binary(np.greater_equal)

    def _divide(self, function: Callable[..., Any], above: Any, below: Any) -> LaneInt:
        if np.any(np.asarray(below)[... if np.ndim(below) == 0 else self.group.active] == 0):
            raise ZeroDivisionError("integer division or modulo by zero on at least one PE")
        with np.errstate(divide="ignore"):
            return LaneInt(self.group, function(above, below))

    def __floordiv__(self, other: Any) -> Any:
        operand = _operand(other)
        return NotImplemented if operand is None else self._divide(np.floor_divide, self.values, operand)

    def __rfloordiv__(self, other: Any) -> Any:
        operand = _operand(other)
        return NotImplemented if operand is None else self._divide(np.floor_divide, operand, self.values)

    def __mod__(self, other: Any) -> Any:
        operand = _operand(other)
        return NotImplemented if operand is None else self._divide(np.remainder, self.values, operand)

    def __rmod__(self, other: Any) -> Any:
        operand = _operand(other)
        return NotImplemented if operand is None else self._divide(np.remainder, operand, self.values)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __truediv__(self, other: Any) -> Any:
        raise KernelError("`/` on a program id or another per-PE integer: these are integers, use `//`")

    __rtruediv__ = __truediv__

    def __neg__(self) -> LaneInt:
        return LaneInt(self.group, -self.values)

    def __pos__(self) -> LaneInt:
        return self

    def __abs__(self) -> LaneInt:
        return LaneInt(self.group, np.abs(self.values))

    def __invert__(self) -> LaneInt:
        raise KernelError("`~` on a per-PE integer: use `not condition`, or `^` for bits")

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
