"""What a profile says, whatever its format: dispatches of kernels, and the agents (GPUs) that ran them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LDS_GRANULE = 512
"""Bytes that rocprofv3's own CSV files and rocprof v1 round LDS up to."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A GPU as a profile describes it; None is what it does not say."""

    gpu: str | None
    arch: str | None
    xcc: int | None = None
    wave_size: int | None = None
    ids: frozenset[str] = frozenset()
    """Values of a dispatch's agent column that mean this GPU."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch of a kernel."""

    name: str
    grid: tuple[int, ...]
    """Work-items, not workgroups. One number (the product) where the format gives no axes."""
    workgroup: tuple[int, ...]
    """Work-items of a workgroup; as many axes as ``grid``."""
    lds: int | None
    """Bytes of a workgroup, what was asked for at launch included."""
    start: int
    """Nanoseconds; 0 where the format gives none. With ``end`` of 0 also, there is no time."""
    end: int
    static_lds: int | None = None
    """Bytes of a workgroup that the kernel's code declares, rounded up; more may have been asked for at launch.

    All that rocprofv3's own CSV files have: their LDS_Block_Size is the kernel symbol's group_segment_size and not the
    dispatch's (ROCm/rocm-systems ``projects/rocprofiler-sdk/source/lib/output/generateCSV.cpp`` @037f6fd5). Of a Triton
    kernel it is 0.
    """
    agent: str = ""
    process: str = ""
    vgpr: int | None = None
    accum_vgpr: int | None = None
    sgpr: int | None = None
    scratch: int | None = None
    wave_size: int | None = None
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> tuple[str, int, int]:
        """Name, work-items and work-items of a workgroup: what every format gives."""
        return self.name, math.prod(self.grid), math.prod(self.workgroup)


@dataclass(frozen=True)
class Profile:
    """One file, read."""

    path: Path
    format: str
    counted: bool
    """Counters were collected, so that its times are no measurement: each dispatch was run alone and slowed down."""
    dispatches: tuple[Dispatch, ...] = ()
    agents: tuple[Agent, ...] = ()
    warnings: tuple[str, ...] = ()


def same_lds(one: Dispatch, other: Dispatch) -> bool:
    """Whether the LDS of two dispatches may be of one kernel, launched alike, for all that is known of it."""
    total, other_total = _granules(one.lds), _granules(other.lds)
    static, other_static = _granules(one.static_lds), _granules(other.static_lds)
    return not (
        (total is not None and other_total is not None and total != other_total)
        or (static is not None and other_static is not None and static != other_static)
        or (static is not None and other_total is not None and static > other_total)
        or (other_static is not None and total is not None and other_static > total)
    )


def _granules(size: int | None) -> int | None:
    return None if size is None else -(-size // LDS_GRANULE)
