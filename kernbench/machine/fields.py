"""Types of the fields of a machine file: each reads what a user wrote, and describes itself to an editor.

Each is an annotation for pydantic: it gives the validator (whose message is the one that the user sees) and the JSON
Schema of the value as written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from kernbench.errors import TopologyError, nearest
from kernbench.machine import units
from kernbench.machine.units import shown


class _Field:
    """What every field type shares."""

    def read(self, written: Any) -> Any:
        """Return the value of what a user wrote, or raise ``ValueError`` with what would be right."""
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.schema()


@dataclass(frozen=True)
class Quantity(_Field):
    """A quantity with its unit, held as a whole number of base units."""

    kind: units.Kind
    example: str
    positive: bool = True
    """Zero is an error."""
    largest: int = units.LARGEST
    exact: bool = False
    """The value is divided by: it must make an exact fraction of picoseconds (see ``units.rational``)."""

    def read(self, written: Any) -> int:
        """Return the value of what a user wrote."""
        try:
            value = units.parse(written, self.kind)
            if self.exact and value:
                units.rational(value, self.kind)
        except TopologyError as error:
            raise ValueError(str(error)) from None
        if self.positive and not value:
            raise ValueError(f"must be more than zero, found {shown(written)}")
        if value > self.largest:
            raise ValueError(f"must be at most {units.text(self.largest, self.kind)}, found {shown(written)}")
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        pattern = rf"^\s*\+?{units.NUMBER}\s*[A-Za-zµμ]+(\s*/\s*[A-Za-z]+)?\s*$"
        return {"type": "string", "pattern": pattern, "examples": [self.example]}


@dataclass(frozen=True)
class Whole(_Field):
    """A whole number within bounds."""

    low: int
    high: int
    example: int | None = None

    def read(self, written: Any) -> int:
        """Return the value of what a user wrote."""
        text = str(written).strip()
        is_whole = isinstance(written, (int, str)) and re.fullmatch(r"-?\d{1,18}", text)  # "True" is not
        if is_whole and self.low <= int(text) <= self.high:
            return int(text)
        raise ValueError(f"expected a whole number from {self.low} to {self.high:,}, found {shown(written)}")

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        example = self.low if self.example is None else self.example
        return {"type": "integer", "minimum": self.low, "maximum": self.high, "examples": [example]}


@dataclass(frozen=True)
class Share(_Field):
    """A share of something: more than 0, at most 1."""

    example: float

    def read(self, written: Any) -> float:
        """Return the value of what a user wrote."""
        number = _decimal(written)
        if number is not None and 0 < number <= 1:
            return float(number)
        raise ValueError(f"expected a share such as {self.example}, more than 0 and at most 1, found {shown(written)}")

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        return {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "examples": [self.example]}


@dataclass(frozen=True)
class Cycles(_Field):
    """Cycles for one element: more than 0, whole or with up to three decimals; whole numbers stay ``int``."""

    example: int
    most: int = 1_000_000

    def read(self, written: Any) -> int | float:
        """Return the value of what a user wrote."""
        number = _decimal(written)
        if number is not None and 0 < number <= self.most and number == round(number, 3):
            return int(number) if number == int(number) else float(number)
        raise ValueError(
            f"expected a number from 0.001 to {self.most:,} with at most three decimals, found {shown(written)}"
        )

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        return {"type": "number", "exclusiveMinimum": 0, "maximum": self.most, "examples": [self.example]}


def _decimal(written: Any) -> Decimal | None:
    """Return the exact number that a user wrote; None if it is none."""
    if isinstance(written, bool) or not isinstance(written, (int, float, str)):
        return None
    text = str(written).strip()
    return Decimal(text) if re.fullmatch(r"\d{1,12}(\.\d{1,12})?", text) else None


@dataclass(frozen=True)
class OneOf(_Field):
    """One of a set of names."""

    noun: str
    names: tuple[str, ...]

    def read(self, written: Any) -> str:
        """Return the value of what a user wrote."""
        if isinstance(written, str) and written in self.names:
            return written
        raise ValueError(f"unknown {self.noun} {shown(written)}{nearest(str(written), self.names)}")

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        return {"type": "string", "enum": list(self.names), "examples": [self.names[0]]}


@dataclass(frozen=True)
class Text(_Field):
    """Text; with ``pattern`` it must have that form."""

    example: str
    pattern: str = ""

    def read(self, written: Any) -> str:
        """Return the value of what a user wrote."""
        if not isinstance(written, str) or not written.strip():
            raise ValueError(f"expected text such as '{self.example}', found {shown(written)}")
        if self.pattern and not re.fullmatch(self.pattern, written):
            raise ValueError(f"expected a name such as '{self.example}', found {shown(written)}")
        return written

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        form = {"pattern": f"^{self.pattern}$"} if self.pattern else {}
        return {"type": "string", "examples": [self.example]} | form


@dataclass(frozen=True)
class Table(_Field):
    """A mapping from known names to values of one type."""

    keys: OneOf
    values: _Field
    example: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        keys = core_schema.no_info_plain_validator_function(self.keys.read)
        values = core_schema.no_info_plain_validator_function(self.values.read)
        return core_schema.dict_schema(keys, values, min_length=1)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        values = {name: self.values.schema() for name in self.keys.names}
        return {"type": "object", "properties": values, "additionalProperties": False, "minProperties": 1,
                "examples": [self.example]}  # fmt: skip


@dataclass(frozen=True)
class Mapped(_Field):
    """A mapping from names of one form to values of one type."""

    keys: Text
    values: _Field
    example: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        keys = core_schema.no_info_plain_validator_function(self.keys.read)
        values = core_schema.no_info_plain_validator_function(self.values.read)
        return core_schema.dict_schema(keys, values)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what a user may write."""
        values = {f"^{self.keys.pattern}$": self.values.schema()}
        return {"type": "object", "patternProperties": values, "additionalProperties": False,
                "examples": [self.example]}  # fmt: skip


_SECOND = units.PS_PER_SECOND

Latency = Annotated[int, Quantity(units.TIME, "40 ns", positive=False, largest=_SECOND)]
"""Picoseconds, zero allowed. At most a second, so that no sum of them overflows."""
Size = Annotated[int, Quantity(units.SIZE, "4 MiB")]
"""Bytes."""
Bandwidth = Annotated[int, Quantity(units.BANDWIDTH, "256 GB/s", exact=True)]
"""Bytes per second."""
Frequency = Annotated[int, Quantity(units.FREQUENCY, "1 GHz", exact=True)]
"""Hertz."""
FLOP_RATE = Quantity(units.RATE, "8 Tflop/s", exact=True)
