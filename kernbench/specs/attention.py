"""Attention specs: the sizes and options of one attention call, with their legal ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from kernbench.errors import SpecError, nearest

Level = Literal["sip", "cube", "pe"]
LEVELS: tuple[Level, ...] = ("sip", "cube", "pe")
"""Levels of the hardware hierarchy, outermost first."""


def _parse_levels(value: Any) -> Any:
    """Read ``"cube,pe"`` or ``"none"``, as the command line writes levels."""
    if not isinstance(value, str):
        return value
    names = [name.strip() for name in value.split(",") if name.strip()]
    return () if names == ["none"] else tuple(names)


def parse_none(value: Any) -> Any:
    """Read ``"none"``, as the command line writes None."""
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


Size = Annotated[int, Field(ge=1)]
Levels = Annotated[tuple[Level, ...], BeforeValidator(_parse_levels)]
SpecT = TypeVar("SpecT", bound="BenchSpec")


class BenchSpec(BaseModel):
    """What every bench's spec is: named fields with legal ranges, immutable, made from text or from values.

    Raises
    ------
    SpecError
        If a field is unknown, of the wrong kind or out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise SpecError(plain_errors(error, type(self))) from None

    if TYPE_CHECKING:  # each spec has these, as a field or as a property

        @property
        def dtype(self) -> str:
            """Format of the inputs."""

        @property
        def input_shapes(self) -> dict[str, tuple[int, ...]]:
            """Shape of each input, by name."""

    def replace(self, **changes: Any) -> Self:
        """Return this spec with some fields changed, checked again; what was set on purpose stays so."""
        return type(self)(**(self.model_dump(exclude_unset=True) | changes))


class AttentionSpec(BenchSpec):
    """One attention call. Immutable; every field has a legal range.

    Raises
    ------
    SpecError
        If a field is unknown, of the wrong kind or out of range.

    Examples
    --------
    >>> spec = AttentionSpec(S_kv=4096, h_q=8, h_kv=2, d_head=64)
    >>> spec.group, spec.scale
    (4, 0.125)
    """

    batch: Size = Field(1, description="independent sequences")
    T_q: Size = Field(1, description="query tokens of each sequence")
    S_kv: Size = Field(1024, description="key/value tokens of each sequence")
    h_q: Size = Field(9, description="query heads, a multiple of h_kv")
    h_kv: Size = Field(3, description="key/value heads")
    d_head: Size = Field(64, description="elements of one head")
    dtype: Literal["f16", "bf16", "f32"] = Field("f16", description="format of q, k, v and o")
    softmax_scale: Annotated[float | None, BeforeValidator(parse_none)] = Field(
        None, gt=0, allow_inf_nan=False, description="factor on the scores; none: 1 / sqrt(d_head)"
    )
    causal: bool = Field(False, description="query t sees keys 0 ... S_kv - T_q + t only")

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.h_q % self.h_kv:
            raise ValueError(
                f"h_q={self.h_q} is not a multiple of h_kv={self.h_kv}: "
                "each key/value head serves h_q / h_kv query heads"
            )
        if self.causal and self.S_kv < self.T_q:
            raise ValueError(
                f"causal with T_q={self.T_q} queries needs S_kv of at least {self.T_q}, not {self.S_kv}: "
                "the queries are the last T_q tokens of the sequence"
            )
        return self

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.h_q // self.h_kv

    @property
    def scale(self) -> float:
        """Factor on the scores before the softmax."""
        return 1 / math.sqrt(self.d_head) if self.softmax_scale is None else self.softmax_scale

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input, by name: q (batch, T_q, h_q, d_head), k and v (batch, S_kv, h_kv, d_head)."""
        cache = (self.batch, self.S_kv, self.h_kv, self.d_head)
        return {"q": (self.batch, self.T_q, self.h_q, self.d_head), "k": cache, "v": cache}


class DecodeSpec(AttentionSpec):
    """Decode over a long KV cache, and what an architect chooses for it.

    ``split_batch``, ``split_heads`` and ``split_S_kv`` say which levels of the machine each of these is spread
    over, outermost first; a level serves at most one of them. PEs of a level that serves none stay idle.

    >>> DecodeSpec(split_heads="cube", split_S_kv="pe").split_S_kv
    ('pe',)
    """

    causal: bool = Field(True, description="query t sees keys 0 ... S_kv - T_q + t only")
    split_batch: Levels = Field((), description="levels that the batch is split over, as cube,pe or none")
    split_heads: Levels = Field((), description="levels that the key/value heads are split over")
    split_S_kv: Levels = Field(("sip", "cube", "pe"), description="levels that the keys and values are split over")
    TILE_S_KV: Size = Field(1024, description="keys that one step of the kernel handles")
    buffers: int = Field(1, ge=1, le=4, description="copies of a step's scratch; 2 overlaps loads with compute")
    reduction: Literal["chain", "tree", "butterfly", "ring_all_reduce", "none"] = Field(
        "chain", description="how partial results come together; none: they are stored and the host merges them"
    )

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        idle_levels(split_batch=self.split_batch, split_heads=self.split_heads, split_S_kv=self.split_S_kv)
        return self

    @property
    def idle_levels(self) -> tuple[Level, ...]:
        """Levels that nothing is split over: only their index 0 works."""
        return idle_levels(split_batch=self.split_batch, split_heads=self.split_heads, split_S_kv=self.split_S_kv)


def idle_levels(**splits: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the levels that none of the splits names; raise ValueError if one is named more than once.

    >>> idle_levels(split_batch=("cube",), split_heads=("pe",))
    ('sip',)
    """
    named = [level for levels in splits.values() for level in levels]
    for level in LEVELS:
        if named.count(level) > 1:
            shown = ", ".join(f"{name}={_shown(levels)}" for name, levels in splits.items())
            raise ValueError(f"level {level!r} is named {named.count(level)} times in {shown}: once is right")
    return tuple(level for level in LEVELS if level not in named)


def spec_from_settings(kind: type[SpecT], settings: Mapping[str, str]) -> SpecT:
    """Make a spec from text, as the command line's ``--set key=value`` gives it.

    Raises
    ------
    SpecError
        For an unknown field (the nearest name is given) or a value that is not right for it.

    >>> spec_from_settings(AttentionSpec, {"S_kv": "4096", "causal": "true"}).S_kv
    4096
    """
    return kind(**settings)


def _shown(levels: tuple[str, ...]) -> str:
    return ",".join(levels) or "none"


def plain_errors(error: ValidationError, kind: type[BaseModel]) -> str:
    """Say in one line per problem which field is wrong, what it was given and what is right."""
    lines = []
    for problem in error.errors():
        field = str(problem["loc"][0]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            lines.append(f"unknown spec field {field!r}{nearest(field, kind.model_fields)}")
        elif problem["type"] == "value_error":
            lines.append(str(problem["ctx"]["error"]))
        else:
            right = problem["msg"].replace("Input should be", "it must be")
            meaning = kind.model_fields[field].description
            lines.append(f"spec field {field} ({meaning}) cannot be {problem['input']!r}: {right}")
    return "\n".join(lines)
