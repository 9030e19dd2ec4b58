"""A decoded instruction: what it does to a group of waves, and which registers it touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.operands import SCALAR_ROW, Operand, parse_operand
from kernbench.realrun.amdgcn.state import EXEC, VCC, Bools, Group

Run = Callable[[Group], None]
VCC_ROWS = frozenset({SCALAR_ROW + VCC, SCALAR_ROW + VCC + 1})
EXEC_ROWS = frozenset({SCALAR_ROW + EXEC, SCALAR_ROW + EXEC + 1})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its operands resolved."""

    line: Line
    run: Run
    reads: frozenset[int] = frozenset()
    """Registers read, vector rows first, then scalar rows from ``SCALAR_ROW`` on."""
    writes: frozenset[int] = frozenset()
    queue: str = ""
    """Counter of ``s_waitcnt`` that it goes through: ``vm``, ``lds``, ``smem``, both of ``flat``, or none."""
    control: str = ""
    """``jump``, ``branch``, ``end``, ``barrier``, ``wait`` or ``data`` (no instruction); empty for one that falls
    through."""
    taken: Callable[[Group], Bools] | None = None
    """Of a branch: which waves take it."""
    target: str = ""
    wait: tuple[int | None, int | None] = (None, None)
    """Of a wait: the counts of vmcnt and lgkmcnt that are left outstanding."""


Decoder = Callable[[Line], Instruction]


def nothing(g: Group) -> None:
    """Do nothing."""


def operands_of(line: Line, least: int, most: int | None = None) -> list[Operand]:
    """Parse the operands of a line that must have ``least`` to ``most`` of them."""
    most = least if most is None else most
    if not least <= len(line.operands) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise InputError(f"{line.place}: has {len(line.operands)} operands, takes {wanted}")
    return [parse_operand(text, line) for text in line.operands]


def rows_of(operands: Iterable[Operand]) -> frozenset[int]:
    """Return all registers of some operands."""
    return frozenset[int]().union(*(o.rows for o in operands))


def refuse_modifiers(line: Line, known: Iterable[str] = ()) -> None:
    """Refuse a modifier that would change what the instruction does."""
    for name in line.modifiers:
        if name not in set(known):
            raise InputError(f"{line.place}: modifier {name!r} is not supported for {line.mnemonic}")


def immediate(line: Line, name: str, least: int, most: int, default: int = 0) -> int:
    """Return a numeric modifier, ``default`` without it.

    Raises
    ------
    InputError
        It is no number from ``least`` to ``most``, which is what the encoding holds.
    """
    written = line.modifiers.get(name)
    if written is None:
        return default
    try:
        value = int(written, 0)
    except ValueError:
        raise InputError(f"{line.place}: {name} {written!r} is not a number") from None
    if not least <= value <= most:
        raise InputError(f"{line.place}: {name} {value} is not from {least} to {most}")
    return value


def wrap(function: Callable[..., Any], *parts: Any) -> Run:
    """Bind a function of a group to what it needs."""
    return lambda g: function(g, *parts)
