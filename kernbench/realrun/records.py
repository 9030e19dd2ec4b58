"""Run records: one measured launch each, kept as JSON lines.

A record says *what* was computed (:class:`RunSpec`), *by which kernel* (:class:`Implementation`), *on what*
(:class:`Device`), *how long it took* (:class:`Quantiles`, in microseconds) and *how we know* (evidence, source).
A field that is not known is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernbench.errors import InputError
from kernbench.output import whole_file

Family = Literal[
    "decode_splitkv",
    "prefill",
    "block_sparse",
    "ultraquant_decode",
    "paged_decode",
    "mla_decode",
    "sdpa_flash",
    "sdpa_cudnn",
    "sequence_parallel_decode",
    "collective",
    "micro",
    "other",
]
"""What kind of launch: the kernel family that predicts it."""

Evidence = Literal["live", "recorded"]
"""``live``: recorded by ``kernbench realrun record``; ``recorded``: published or imported, with its source."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSpec(_Part):
    """What was computed. Attention fields are None for microbenchmarks and collectives."""

    batch: int | None = Field(default=None, ge=1, description="sequences")
    h_q: int | None = Field(default=None, ge=1, description="query heads")
    h_kv: int | None = Field(default=None, ge=1, description="key/value heads")
    s_q: int | None = Field(default=None, ge=1, description="query tokens of a sequence")
    s_kv: int | None = Field(default=None, ge=1, description="key/value tokens of a sequence")
    d_qk: int | None = Field(default=None, ge=1, description="head dimension of queries and keys")
    d_v: int | None = Field(default=None, ge=1, description="head dimension of values")
    dtype: str | None = Field(default=None, description="of queries, as kernbench names it: bf16, f16, fp8e4m3 ...")
    kv_dtype: str | None = Field(default=None, description="of stored keys and values")
    causal: bool | None = None
    mode: str | None = Field(default=None, description="of a family that has several: skip or mask; a collective; ...")
    density: float | None = Field(default=None, ge=0, le=1, description="share of blocks that a sparse mask keeps")
    kept_blocks: int | None = Field(default=None, ge=0, description="blocks kept, of all, over one mask")
    mask_seed: int | None = None
    block_q: int | None = Field(default=None, ge=1, description="query tokens of a mask's block")
    block_k: int | None = Field(default=None, ge=1, description="key tokens of a mask's block")
    window: int | None = Field(default=None, ge=1, description="keys that a query sees, of a sliding window")
    topk: int | None = Field(default=None, ge=1, description="keys that a query sees, of a sparse selection")
    page_size: int | None = Field(default=None, ge=1, description="tokens of a page of a paged cache")
    nbytes: int | None = Field(default=None, ge=0, description="bytes moved, of a copy or a collective")
    m: int | None = Field(default=None, ge=1, description="side of a square matrix product")
    world: int | None = Field(default=None, ge=1, description="GPUs that take part")


class Implementation(_Part):
    """The kernel that was timed, and what its compiler made of it."""

    name: str = Field(description="triton, torch-sdpa-flash, aiter-asm, hipkittens ...")
    grid: tuple[int, ...] | None = Field(default=None, description="workgroups along each axis, axis 0 fastest")
    block_m: int | None = Field(default=None, ge=1, description="query rows of a workgroup")
    block_n: int | None = Field(default=None, ge=1, description="keys of a tile")
    waves: int | None = Field(default=None, ge=1, description="waves (warps) of a workgroup")
    stages: int | None = Field(default=None, ge=1, description="software pipeline stages that were asked for")
    splits: int | None = Field(default=None, ge=1, description="parts that S_kv is split into")
    registers: int | None = Field(default=None, ge=0, description="registers of a thread")
    spills: int | None = Field(default=None, ge=0, description="spilled registers of a thread")
    lds_bytes: int | None = Field(default=None, ge=0, description="shared memory of a workgroup")
    notes: dict[str, Any] = Field(default_factory=dict, description="anything else that the source says of it")


class Device(_Part):
    """Where it ran."""

    gpu: str | None = Field(default=None, description="as its maker names it; None if the source does not say")
    arch: str = Field(description="gfx942, gfx950, sm_90 ...")
    count: int = Field(default=1, ge=1, description="GPUs")
    clock_mhz: tuple[float, float] | None = Field(default=None, description="engine clock before and after")
    memory_clock_mhz: tuple[float, float] | None = Field(default=None, description="memory clock before and after")
    power_w: tuple[float, float] | None = Field(default=None, description="power drawn before and after")
    versions: dict[str, str] = Field(default_factory=dict, description="driver, runtime, PyTorch, Triton ...")


class Quantiles(_Part):
    """A time in microseconds."""

    median: float = Field(gt=0, allow_inf_nan=False)
    p10: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    p90: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    n: int | None = Field(default=None, ge=1, description="repetitions")


class Times(_Part):
    """How long it took, by way of measuring. All in microseconds."""

    cold: Quantiles | None = Field(default=None, description="single launches, caches flushed before each")
    warm: Quantiles | None = Field(default=None, description="back-to-back graph replays, nothing flushed")
    cold_graph: Quantiles | None = Field(
        default=None, description="a graph of flush and launches, less a graph of the flush alone"
    )
    partial: Quantiles | None = Field(default=None, description="the split-KV kernel alone, cold")
    reduce: Quantiles | None = Field(default=None, description="the reduce kernel alone, cold")
    published: Quantiles | None = Field(default=None, description="as the source gives it; see its caveat")
    parts: dict[str, float] = Field(default_factory=dict, description="parts of a step of several launches, median")


class Output(_Part):
    """What came out, so that a fast wrong kernel is told from a fast right one."""

    rel_err: float | None = Field(default=None, description="relative L2 error against float32 or float64 mathematics")
    digest: str | None = Field(default=None, description="sha256 of the output's bytes")
    samples: tuple[float, ...] = Field(default=(), description="first values of the output")


class RunRecord(_Part):
    """One measured launch (or step of launches)."""

    id: str = Field(min_length=1)
    family: Family
    spec: RunSpec
    implementation: Implementation
    device: Device
    times: Times = Times()
    tflops: float | None = Field(default=None, gt=0, description="as published")
    gbps: float | None = Field(default=None, gt=0, description="as published, 1e9 bytes a second")
    counters: dict[str, float] = Field(default_factory=dict, description="hardware counters, of a run of their own")
    output: Output = Output()
    evidence: Evidence
    grade: Literal["A", "B", "C"] | None = Field(default=None, description="trust in a published row; None if live")
    source: str = Field(min_length=1, description="who measured it, and where that is published")
    date: str | None = None
    caveat: str = ""


def write_records(records: Iterable[RunRecord], path: Path) -> None:
    """Write records as JSON lines, None fields left out; the file appears whole or not at all."""
    with whole_file(path) as file:
        lines = [r.model_dump_json(exclude_none=True, exclude_defaults=True) for r in records]
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def parse_record(text: str, where: str) -> RunRecord:
    """Read one line.

    Raises
    ------
    InputError
        If it is no record; names ``where`` and the field.
    """
    try:
        return RunRecord.model_validate_json(text)
    except ValidationError as bad:
        first = bad.errors(include_url=False)[0]
        field = ".".join(str(key) for key in first["loc"]) or "the line"
        raise InputError(f"{where}: {field}: {first['msg']}") from None
