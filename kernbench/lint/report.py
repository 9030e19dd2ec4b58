"""What :func:`kernbench.lint.lint` found, as frozen models that can be written as JSON.

Rates are bytes/s, flop/s or operations/s; times are picoseconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["SIP", "CUBE", "PE"]
Severity = Literal["warning", "note"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bisection(_Part):
    """The narrowest cut of one level into two halves."""

    level: Level = Field(description="what is divided")
    key: str = Field(description="where the level stands in the machine file")
    arrangement: str
    positions: int = Field(description="PEs of a CUBE, CUBEs of a SIP or SIPs of the system")
    where: str = Field(description="whose level it is, as sip0.cube1; of several equally narrow ones, the first")
    cut: str = Field(description="the two halves, positions by number")
    links: int = Field(description="links that lead over the cut, in the direction that carries less")
    bandwidth: int = Field(description="their bytes/s, in that direction")
    scratch_ps: int = Field(description="time to move one PE's scratch over it, rounded up")
    memory_behind: int | None = Field(description="bytes/s of the memories of the smaller half; null if both share one")
    memory_ratio: float | None = Field(description="memory_behind / bandwidth")


class MemoryBalance(_Part):
    """What one memory gives, and what can take it."""

    owner: Literal["CUBE", "SIP"]
    bandwidth: float = Field(description="bytes/s of one memory; on a machine that holds workgroups, what it achieves")
    pes: int = Field(description="PEs that share it")
    ports: int = Field(description="bytes/s that the load ports of these PEs take in together")
    links_out: tuple[int, int] | None = Field(
        description="bytes/s over the links that lead out of an owner: the least and the most of any; null without any"
    )
    local_trip_ps: int = Field(description="round trip of a load from the nearest memory")
    farthest_trip_ps: int = Field(description="round trip of a load from the farthest memory; equal if there is one")
    local_load: float = Field(description="bytes/s of one load from the nearest memory: port or outstanding bytes")
    farthest_load: float = Field(description="the same from the farthest memory")
    all_loads: float = Field(description="bytes/s of all loads of these PEs together, each at most at local_load")
    in_flight: float = Field(description="bytes that must be on their way from one memory to keep it busy")
    in_flight_pe: float = Field(description="the same for each PE")
    cache_bandwidth: dict[str, int] = Field(description="cache (cube, sip) → bytes/s of all caches before one memory")


class HotLink(_Part):
    """A traffic pattern, each of its flows as large as the others, on the machine's own routes."""

    pattern: str
    flows: int
    senders: int
    hops: int = Field(description="links that all flows pass together")
    link: str = Field(description="the busiest: that with the most flows for its bandwidth; the first of several")
    link_flows: int = Field(description="flows over it")
    link_bandwidth: int
    over_mean: float = Field(
        description="its flows for its bandwidth, over the mean of all links between SIPs and CUBEs"
    )
    flow_bandwidth: float = Field(
        description="bytes/s of each flow when all go at one rate: link_bandwidth / link_flows"
    )
    sender_bandwidth: float = Field(description="bytes/s that a sender's flows have together, on average")


class MissingDirection(_Part):
    """A direction in which some PEs have no channel."""

    direction: str
    nowhere: bool = Field(description="whether no PE has it")
    pes: str = Field(description="the PEs that lack it, as ranges")
    why: str


class ArithmeticBalance(_Part):
    """Arithmetic against memory, for one format of operands and cache."""

    dtype: str
    rate: float = Field(description="flop/s of the PEs that share one memory")
    ridge: float = Field(description="flop for each byte of memory at which the two take equally long")
    decode_rows: int = Field(description="query rows of a key/value head from which decode is bound by the products")
    exp_rows: dict[int, int] = Field(
        description="elements of a head → query rows from which exponentials take longer than the memory"
    )
    exp_head: float = Field(description="elements of a head below which exponentials take longer than the products")
    softmax_head: float = Field(description="the same for the whole softmax of a score")


class Finding(_Part):
    """Something that an architect would want to know of before a run."""

    severity: Severity
    keys: tuple[str, ...] = Field(description="key paths of the figures that it follows from")
    message: str


class LintReport(_Part):
    """What can be said of a machine before any run, from its figures alone."""

    machine: str
    sha256: str
    bisections: tuple[Bisection, ...] = Field(description="innermost level first; none of a level without links")
    memory: MemoryBalance
    hot_links: tuple[HotLink, ...]
    missing_directions: tuple[MissingDirection, ...] = Field(description="empty where PEs hold workgroups")
    exponentials: float = Field(description="a second, of the vector engines of the PEs that share one memory")
    balance: tuple[ArithmeticBalance, ...] = Field(description="by format, in the order of the machine file")
    findings: tuple[Finding, ...] = Field(description="warnings first")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that say that something is probably not meant."""
        return tuple(f for f in self.findings if f.severity == "warning")
