"""Expressions of sweep files: constraints and costs over the settings, the machine and the results of a point.

Names are fields of the spec, results (``makespan_ps``) and dotted keys of the machine (``cube.memory.bandwidth``),
whose values are in base units: picoseconds, bytes, bytes/s, Hz, flop/s. A text that is a quantity (``"1 TB/s"``) stands
for its value in base units. Arithmetic is simpleeval's.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from simpleeval import DEFAULT_OPERATORS, EvalWithCompoundTypes, InvalidExpression, NumberTooHigh

from kernbench.errors import InputError, KernbenchError, nearest
from kernbench.machine import units
from kernbench.machine.schema import MachineSpec

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "ceil": math.ceil, "floor": math.floor, "log2": math.log2, "max": max, "min": min, "round": round,
    "sqrt": math.sqrt,
}  # fmt: skip
_LARGEST = sys.float_info.max
_MOST_BITS = 4096
"""Bits of a whole power at most: far above any quantity, and quick to compute."""
MACHINE_PARTS = ("system", "sip", "cube", "pe", "launch", "collective")
"""First words of the machine's keys."""


class Expression:
    """One expression, parsed once and evaluated for many points.

    Raises
    ------
    InputError
        If the text is no expression; the message begins with ``where``.

    >>> Expression("TILE_S_KV * buffers <= 4096 and cube.memory.bandwidth > '1 TB/s'", "").names
    ('TILE_S_KV', 'buffers', 'cube.memory.bandwidth')
    """

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        try:
            parsed = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = error.msg if isinstance(error, SyntaxError) else str(error)
            raise InputError(
                f"{where}: cannot read {text!r}: {problem}; write e.g. TILE_S_KV * buffers <= 4096, and quantities "
                "in quotes, as cube.memory.bandwidth > '1 TB/s'"
            ) from None
        self._tree = ast.Expression(_Joined().visit(parsed)).body
        found = [node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)]
        called = {
            node.func.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        for name in called - set(_FUNCTIONS):
            raise InputError(f"{where}: {text!r}: unknown function {name!r}{nearest(name, _FUNCTIONS)}")
        self.names: tuple[str, ...] = tuple(sorted(set(found) - called))

    def check_names(self, known: Collection[str]) -> None:
        """Raise InputError if it uses a name that is neither known nor a key of the machine."""
        for name in self.names:
            if name not in known and name.split(".")[0] not in MACHINE_PARTS:
                raise InputError(f"{self.where}: {self.text!r}: unknown name {name!r}{nearest(name, known)}")

    def uses(self, names: Iterable[str]) -> bool:
        """Whether it uses one of these names."""
        return not set(names).isdisjoint(self.names)

    @property
    def uses_machine(self) -> bool:
        """Whether it uses a key of the machine."""
        return any(name.split(".")[0] in MACHINE_PARTS for name in self.names)

    def machine_values(self, spec: MachineSpec) -> dict[str, Any]:
        """Return the values of the machine's keys that it uses, in base units.

        Raises
        ------
        InputError
            If a key leads nowhere.
        """
        try:
            return {name: _value_at(spec, name) for name in self.names if name.split(".")[0] in MACHINE_PARTS}
        except InputError as error:
            raise InputError(f"{self.where}: {self.text!r}: {error}") from None

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return its value.

        Raises
        ------
        InputError
            If a name has no value, or the arithmetic is impossible.
        """
        evaluator = EvalWithCompoundTypes(operators=dict(_OPERATORS), functions=dict(_FUNCTIONS), names=values)
        del evaluator.nodes[ast.JoinedStr]  # its widths would let a short text take any memory
        try:
            return evaluator.eval(self.text, previously_parsed=self._tree)
        except KernbenchError:
            raise
        except (InvalidExpression, ArithmeticError, TypeError, ValueError, LookupError) as error:
            raise InputError(f"{self.where}: cannot evaluate {self.text!r}: {error}") from None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is true. Raises InputError if it is neither true nor false."""
        value = self.evaluate(values)
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {self.text!r} gives {value!r}, neither true nor false; compare it")
        return value

    def number(self, values: Mapping[str, Any]) -> float:
        """Return its value as a number. Raises InputError if it is none."""
        value = self.evaluate(values)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{self.where}: {self.text!r} gives {value!r}, not a number")
        if not -_LARGEST <= value <= _LARGEST:
            shown = value if isinstance(value, float) else "a larger number than can be kept"
            raise InputError(f"{self.where}: {self.text!r} gives {shown}, not a finite number")
        return float(value)


def _power(base: Any, exponent: Any) -> Any:
    """Return a power that is small enough to compute at once."""
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise NumberTooHigh(f"{base} ** {exponent} is too large")
    return base**exponent


def _remainder(value: Any, divisor: Any) -> Any:
    """Return a remainder of numbers: of a text it would be formatting, which may take any memory."""
    if isinstance(value, (str, bytes)):
        raise TypeError("the remainder of a text")
    return value % divisor


_OPERATORS = {**DEFAULT_OPERATORS, ast.Pow: _power, ast.Mod: _remainder}


class _Joined(ast.NodeTransformer):
    """Makes one name of each dotted one, and numbers of quantities."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:  # ast's name for it
        parts: list[str] = [node.attr]
        inner: ast.AST = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            return self.generic_visit(node)
        return ast.copy_location(ast.Name(".".join([inner.id, *reversed(parts)]), ast.Load()), node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            found = quantity(node.value)
            if found is not None:
                return ast.copy_location(ast.Constant(found[0]), node)
        return node


def quantity(text: str) -> tuple[int, units.Kind] | None:
    """Return the base units of a quantity as text, and its kind; None if it is none.

    >>> quantity("1 KiB")[0], quantity("f16")
    (1024, None)
    """
    for kind in units.KINDS:
        try:
            return units.parse(text, kind), kind
        except KernbenchError:
            continue
    return None


def _value_at(spec: Any, name: str) -> Any:
    here = spec
    for key in name.split("."):
        known = here if isinstance(here, dict) else getattr(type(here), "model_fields", {})
        if key not in known:
            raise InputError(f"the machine has no value {name!r}{nearest(key, known) if known else ''}")
        here = here[key] if isinstance(here, dict) else getattr(here, key)
    return here
