"""Implementations: what one kernel chose for a spec, and what its compiler made of it.

A spec says what is computed. Several kernels serve it, which differ in tile sizes, waves, stages and in what they
occupy of a PE; a launch's time depends on all of these. The defaults are plausible for Triton on an H200.
"""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from kernbench.errors import SpecError
from kernbench.specs.attention import Size, parse_none, plain_errors

Block = Annotated[int, Field(ge=16, le=1024)]


class Implementation(BaseModel):
    """One kernel: how many waves a workgroup has, what it occupies, and how its loads and products are scheduled.

    Raises
    ------
    SpecError
        If a field is unknown, of the wrong kind or out of range.

    >>> Implementation(waves="8").waves
    8
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    waves: int = Field(4, ge=1, le=32, description="waves (warps) of a workgroup")
    stages: int = Field(
        2, ge=1, le=8, description="of a loop's pipeline: a tile is asked for when the one stages - 1 before it is done"
    )
    registers: int = Field(72, ge=1, le=512, description="registers of a thread, 32 bits each")
    lds_bytes: int = Field(0, ge=0, description="scratch (LDS, shared memory) of a workgroup")
    instruction: Annotated[str | None, BeforeValidator(parse_none)] = Field(
        None, description="matrix instruction as MxNxK, such as 16x8x16; none: what a compiler picks for the machine"
    )
    keys_across_waves: bool = Field(
        False, description="waves are spread over the keys of a tile, so that each of its reductions crosses them"
    )
    score_copies: int = Field(
        1, ge=1, le=32, description="waves that make the same scores and softmax, each for itself; Triton on AMD: "
        "waves x rows of the instruction / rows of the tile"
    )
    value_copies: int = Field(
        1, ge=1, le=32, description="waves that make the same part of the second product; Triton on AMD: "
        "waves x elements of the instruction's result / elements of the tile's"
    )
    overlap: bool = Field(
        False, description="matrix and vector work of a PE's workgroups overlap; else each holds both engines"
    )

    def __init__(self, **settings: object) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise SpecError(plain_errors(error, type(self))) from None

    @field_validator("instruction")
    @classmethod
    def _check_instruction(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[1-9]\d{0,3}x[1-9]\d{0,3}x[1-9]\d{0,3}", value):
            raise ValueError(f"instruction={value} is not of the form MxNxK, such as 16x8x16")
        return value

    @property
    def instruction_tile(self) -> tuple[int, int, int] | None:
        """The instruction's (m, n, k); None: what a compiler picks."""
        if self.instruction is None:
            return None
        m, n, k = (int(text) for text in self.instruction.split("x"))
        return m, n, k

    def replace(self, **changes: object) -> Self:
        """Return this implementation with some fields changed, checked again."""
        return type(self)(**(self.model_dump() | changes))


class WaveImplementation(Implementation):
    """The rocke kernels: one wave with 16 query rows of a head, or with one row. What it occupies is assumed."""

    waves: int = Field(1, ge=1, le=32, description="waves (warps) of a workgroup")
    stages: int = Field(
        1, ge=1, le=8, description="of a loop's pipeline: a tile is asked for when the one stages - 1 before it is done"
    )
    registers: int = Field(128, ge=1, le=512, description="registers of a thread, 32 bits each")
    lds_bytes: int = Field(1024, ge=0, description="scratch (LDS, shared memory) of a workgroup")


class UltraQuantImplementation(WaveImplementation):
    """UltraQuant decode: one wave. Its LDS is the original's for 8 query heads to a key/value head."""

    lds_bytes: int = Field(
        13120, ge=0, description="scratch (LDS) of a workgroup; 12096 for 6, 17216 for 16 query heads a key/value head"
    )


class MergeImplementation(WaveImplementation):
    """UltraQuant's second launch: one wave for 64 elements of a head. What it occupies is assumed."""

    registers: int = Field(32, ge=1, le=512, description="registers of a thread, 32 bits each")


class DecodeImplementation(Implementation):
    """Split-KV decode: a workgroup walks one split of the keys in tiles of ``BLOCK_N``."""

    registers: int = Field(72, ge=1, le=512, description="registers of a thread, 32 bits each")
    lds_bytes: int = Field(38912, ge=0, description="scratch (LDS, shared memory) of a workgroup")
    keys_across_waves: bool = Field(
        True, description="waves are spread over the keys of a tile, so that each of its reductions crosses them"
    )
    BLOCK_N: Block = Field(64, description="keys of a tile")
    splits: Size = Field(8, description="parts that the keys of a sequence are cut into; trailing ones may be empty")

    def split_length(self, keys: int) -> int:
        """Return the keys of a split, a multiple of ``BLOCK_N``.

        >>> DecodeImplementation(splits=3, BLOCK_N=64).split_length(1000)
        384
        """
        each = -(-keys // self.splits)
        return -(-each // self.BLOCK_N) * self.BLOCK_N

    def reduction(self) -> Implementation:
        """Return the implementation of the kernel that merges the splits: small, and without a pipeline."""
        return Implementation(waves=4, stages=1, registers=32, lds_bytes=2048)


class MlaImplementation(DecodeImplementation):
    """Absorbed MLA decode: a workgroup serves ``BLOCK_H`` heads."""

    registers: int = Field(168, ge=1, le=512, description="registers of a thread, 32 bits each")
    lds_bytes: int = Field(92160, ge=0, description="scratch (LDS, shared memory) of a workgroup")
    BLOCK_N: Block = Field(32, description="keys of a tile")
    BLOCK_H: Block = Field(16, description="query heads of a workgroup")


class PrefillImplementation(Implementation):
    """Prefill in the style of FlashAttention-2: a workgroup keeps ``BLOCK_M`` queries."""

    waves: int = Field(8, ge=1, le=32, description="waves (warps) of a workgroup")
    registers: int = Field(164, ge=1, le=512, description="registers of a thread, 32 bits each")
    lds_bytes: int = Field(98304, ge=0, description="scratch (LDS, shared memory) of a workgroup")
    BLOCK_M: Block = Field(128, description="query tokens of a workgroup")
    BLOCK_N: Block = Field(64, description="keys of a tile")
    diagonal_only: bool = Field(False, description="a causal kernel masks only the tiles that the diagonal crosses")
