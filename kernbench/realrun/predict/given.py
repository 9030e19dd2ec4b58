"""Reading what a record says, with what is missing told as a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from kernbench.dtypes import DTYPES
from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.realrun.prediction import NotModelled
from kernbench.realrun.records import RunRecord
from kernbench.simulate.launch.costs import Instruction, buffers_of, dot_ps
from kernbench.simulate.launch.places import Resources, places_of
from kernbench.simulate.launch.steps import Places

PS_PER_US = 10**6

_T = TypeVar("_T")


def known(what: str, value: _T | None) -> _T:
    """Return a value that a model needs. Raises NotModelled if it is not known."""
    if value is None:
        raise NotModelled(f"{what} not stated")
    return value


def element_bytes(dtype: str) -> float:
    """Bytes of one stored element; half a byte for packed formats."""
    kind = DTYPES.get(dtype)
    if kind is None:
        raise NotModelled(f"element type {dtype} not modelled")
    return kind.bits / 8


@dataclass(frozen=True)
class Shape:
    """The sizes of an attention launch."""

    batch: int
    h_q: int
    h_kv: int
    s_q: int
    s_kv: int
    d_qk: int
    d_v: int
    dtype: str
    kv_dtype: str
    causal: bool

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.h_q // self.h_kv

    @property
    def kv_bytes(self) -> int:
        """Bytes of all keys and values; of latent ones, which are both, once."""
        width = self.d_qk if self.h_kv == 1 and self.d_qk > self.d_v else self.d_qk + self.d_v
        return int(self.batch * self.h_kv * self.s_kv * width * element_bytes(self.kv_dtype))


def shape_of(record: RunRecord) -> Shape:
    """Return the sizes of a record. Raises NotModelled if one that matters is not stated."""
    s = record.spec
    dtype = known("element type", s.dtype or s.kv_dtype)
    shape = Shape(
        known("batch", s.batch), known("query heads", s.h_q), known("key/value heads", s.h_kv),
        known("query length", s.s_q), known("key length", s.s_kv), known("head dimension", s.d_qk),
        known("head dimension of values", s.d_v or s.d_qk), dtype, s.kv_dtype or dtype, bool(s.causal),
    )  # fmt: skip
    if shape.h_q % shape.h_kv:
        raise NotModelled("query heads are no multiple of key/value heads")
    return shape


@dataclass(frozen=True)
class Kernel:
    """An implementation whose every figure is known."""

    block_m: int
    block_n: int
    stages: int
    splits: int
    resources: Resources
    instruction: Instruction
    overlaps: bool = False
    masks_diagonal_only: bool = False
    """Whether a causal kernel masks only the tiles that the diagonal crosses."""
    heads_first: bool = False
    """Whether heads are the grid's fast axis, blocks of queries the slow one, the longest first."""
    origin: str = ""
    """Where its figures come from, if not from the record."""

    def places(self, machine: Machine) -> Places:
        """Return the places for its workgroups. Raises NotModelled if one does not fit."""
        try:
            return places_of(machine, self.resources)
        except InputError as bad:
            raise NotModelled(str(bad)) from None

    def dot_ps(self, machine: Machine, dtype: str, m: int, n: int, k: int) -> int:
        """Return the time of a product. Raises NotModelled if the machine gives no rate for the format."""
        try:
            return dot_ps(machine, dtype, self.instruction, m, n, k)
        except InputError:
            raise NotModelled(f"{machine.name} has no matrix rate for {dtype}") from None

    def buffers(self, tile_bytes: int) -> int:
        """Return how many tiles are asked for ahead of the loop."""
        return buffers_of(self.stages, self.resources.lds_bytes, tile_bytes)
