"""What a machine file can say: one frozen model for each mapping in it, with every value in base units.

Times are picoseconds, sizes bytes, bandwidths bytes/s, frequencies Hz, rates flop/s. These models check one value at
a time; rules that join several are in :mod:`kernbench.machine.checks`. Read files with
:func:`kernbench.machine.load_machine`, which runs both.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kernbench.machine import units
from kernbench.machine.fields import (
    FLOP_RATE,
    Bandwidth,
    Cycles,
    Frequency,
    Latency,
    Mapped,
    OneOf,
    Quantity,
    Share,
    Size,
    Table,
    Text,
    Whole,
)

ARRANGEMENTS = ("row", "ring", "mesh", "torus", "fully_connected")
MATRIX_DTYPES = ("f16", "bf16", "f32", "i8", "fp8e4m3", "fp8e5m2", "fp4e2m1", "i4")
VECTOR_OPS = (
    "default", "copy", "fill", "cast", "add", "subtract", "multiply", "divide", "maximum", "minimum", "where",
    "compare", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "negate", "max", "min", "sum", "trans",
    "broadcast", "arange", "logical", "lookup", "hadamard", "load",
)  # fmt: skip
PLACE = r"sip\d{1,6}(\.cube\d{1,6}(\.pe\d{1,6})?)?"

_Side = Annotated[int, Whole(1, 1024, example=4)]
_Arrangement = Annotated[str, OneOf("arrangement", ARRANGEMENTS)]
_Rates = Table(OneOf("dtype", MATRIX_DTYPES), FLOP_RATE, example="{f16: 8 Tflop/s}")
_Costs = Table(OneOf("operation", VECTOR_OPS), Cycles(example=4), example="{default: 1, exp: 4}")
_Converts = Table(OneOf("dtype", MATRIX_DTYPES), Cycles(example=4), example="{fp8e4m3: 6}")
_Share = Annotated[float, Share(0.7)]
_Shares = Mapped(Text("16x16x16", r"\d{1,4}x\d{1,4}x\d{1,4}"), Share(0.5), example="{16x16x16: 0.5}")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LinkSpec(_Model):
    """The links of one level, each direction of each link on its own."""

    bandwidth: Bandwidth
    """Bytes per second in one direction."""
    latency: Latency
    """Time from the first byte's leaving to its arrival, at one hop."""


class GridSpec(_Model):
    """How the SIPs of a system, or the CUBEs of a SIP, are placed and joined.

    Number i is at row i // columns, column i % columns. `row` and `ring` have one row; a `ring` and each axis of a
    `torus` wrap round, where there are at least three positions to wrap. `fully_connected` joins each ordered pair
    with a link of its own.
    """

    arrangement: _Arrangement = "row"
    """row, ring, mesh, torus or fully_connected."""
    columns: _Side = 1
    """Positions from west to east."""
    rows: _Side = 1
    """Positions from north to south; 1 unless a mesh or torus."""
    link: LinkSpec | None = None
    """Figures of each link; needed where there is more than one position."""


class PeGridSpec(_Model):
    """The PEs of a CUBE: always a mesh, without wrap. PE i is at row i // columns, column i % columns."""

    columns: _Side = 1
    """PEs from west to east."""
    rows: _Side = 1
    """PEs from north to south."""
    link: LinkSpec | None = None
    """Figures of each link between neighbouring PEs; needed where a CUBE has more than one PE."""


class MemorySpec(_Model):
    """One memory: of a CUBE, or shared by the CUBEs of a SIP."""

    channels: Annotated[int, Whole(1, 1024, example=16)]
    """Independent channels; each carries bandwidth / channels."""
    interleave: Annotated[int, Quantity(units.SIZE, "256 B")]
    """Consecutive bytes in one channel before the next channel follows."""
    bandwidth: Annotated[int, Quantity(units.BANDWIDTH, "1.2 TB/s", exact=True)]
    """Bytes per second of all channels together."""
    latency: Annotated[int, Quantity(units.TIME, "100 ns", positive=False, largest=units.PS_PER_SECOND)]
    """Time from a request's arrival at the memory to its first byte."""
    capacity: Annotated[int, Quantity(units.SIZE, "24 GiB")]
    """Bytes that it holds."""
    achievable: _Share = 1.0
    """Share of the bandwidth that a launch of workgroups reaches; a mesh's memory has its channels instead."""


class CacheSpec(_Model):
    """A cache in front of the memory, of a CUBE or shared by the CUBEs of a SIP; for launches of workgroups."""

    size: Size
    """Bytes that it holds."""
    bandwidth: Bandwidth
    """Bytes per second of the whole cache."""
    latency: Latency
    """Time from a request until its data are there, if it hits."""


class SystemSpec(_Model):
    """The SIPs of the system."""

    sips: GridSpec = GridSpec()
    """Placement of the SIPs."""


class SipSpec(_Model):
    """One SIP (system in package); all are alike."""

    cubes: GridSpec
    """Placement of the CUBEs of a SIP."""
    memory: MemorySpec | None = None
    """Memory shared by the CUBEs of the SIP; then the CUBEs have none of their own."""
    cache: CacheSpec | None = None
    """Cache in front of the shared memory."""


class CubeSpec(_Model):
    """One CUBE; all are alike."""

    pes: PeGridSpec
    """Placement of the PEs of a CUBE."""
    memory: MemorySpec | None = None
    """The CUBE's own memory, unless the SIP has a shared one."""
    cache: CacheSpec | None = None
    """Cache of the CUBE, in front of the SIP's."""


class LoadSpec(_Model):
    """The engine that reads memory into scratch."""

    queues: Annotated[int, Whole(1, 16)] = 1
    """Loads that may be in flight at once; one if absent. Workgroups are not held to it."""
    bandwidth: Bandwidth
    """Bytes per second into scratch of one load; each queue has it to itself. The workgroups of a PE share it."""
    outstanding: Size | None = None
    """Bytes of one load that may be in flight at once; unbounded if absent."""
    latency: Latency = 0
    """Of workgroups: from the last byte's arrival until all waves can use it (into scratch, past a barrier)."""
    hit: Latency = 0
    """Of workgroups: latency of a load that the PE's own cache answers, as of a mask or a table read in order."""


class StoreSpec(_Model):
    """The engine that writes scratch to memory."""

    queues: Annotated[int, Whole(1, 16)] = 1
    """Stores that may be in flight at once; one if absent. Workgroups are not held to it."""
    bandwidth: Bandwidth
    """Bytes per second out of scratch of one store; each queue has it to itself."""


class TileSpec(_Model):
    """Each extent of a dot (m, k) x (k, n) is padded up to a multiple of these."""

    m: Annotated[int, Whole(1, 65536, example=8)]
    """Rows of the left operand."""
    n: Annotated[int, Whole(1, 65536, example=16)]
    """Columns of the right operand."""
    k: Annotated[int, Whole(1, 65536, example=16)]
    """The extent summed over."""


class MatrixSpec(_Model):
    """The matrix engine."""

    startup: Latency
    """Time before the first operation of a dot."""
    tile: TileSpec
    """Extents that the engine works in."""
    rates: Annotated[dict[str, int], _Rates]
    """Operations per second for each dtype of the operands, a multiply-add counting as two."""
    achievable: _Share = 1.0
    """Share of the rate that the matrix products of an attention kernel reach."""
    instructions: Annotated[dict[str, float], _Shares] = Field(default_factory=dict)
    """Share of the rate by instruction tile (m x n x k), for those that do not reach the full rate."""


class VectorSpec(_Model):
    """The vector engine."""

    lanes: Annotated[int, Whole(1, 65536, example=128)]
    """Elements worked on at once."""
    startup: Latency
    """Time before the first element of a command."""
    cost: Annotated[dict[str, int | float], _Costs]
    """Cycles that one lane takes for one element, by operation; `default` is for the operations not named. `load` is
    what each element costs that a workgroup loads (addresses and copies), nothing if absent."""
    convert: Annotated[dict[str, int | float], _Converts] = Field(default_factory=dict)
    """Cycles that one lane takes to widen one stored element, by its dtype; a `cast` where absent."""


class ChannelSpec(_Model):
    """The channels between PEs."""

    depth: Annotated[int, Whole(1, 4096, example=2)]
    """Messages that a channel holds; a sender waits when it is full."""
    receive: Latency
    """Time to move a received message into scratch."""


class ResidencySpec(_Model):
    """How many workgroups a PE holds at once: the least that any of these allows."""

    workgroups: Annotated[int, Whole(1, 1024, example=32)]
    """Workgroups at most."""
    waves: Annotated[int, Whole(1, 1024, example=64)]
    """Waves (warps) of all of them together."""
    wave_size: Annotated[int, Whole(1, 1024, example=64)]
    """Threads of a wave."""
    registers: Annotated[int, Whole(1, 1 << 24, example=65536)]
    """Registers of 32 bits, of all threads together."""
    register_granule: Annotated[int, Whole(1, 1024, example=8)] = 1
    """A thread's registers are rounded up to a multiple of this."""
    scratch_reserved: Annotated[int, Quantity(units.SIZE, "1 KiB", positive=False)] = 0
    """Scratch that each workgroup takes beside its own."""


class WorkgroupSpec(_Model):
    """What each workgroup costs beside its work."""

    start: Latency
    """From being handed out to its first instruction's end."""
    end: Latency
    """From its last result to its place's being free."""
    barrier: Latency
    """A reduction across its waves: registers, scratch, a barrier, registers."""


class LaunchSpec(_Model):
    """What it takes to start a grid of workgroups."""

    cold: Latency
    """A launch on its own: from the start of the first event to the first workgroup, and to the second event."""
    graph: Latency
    """A launch that follows another on the device without the host."""
    dispatch: Latency
    """Between two workgroups that are handed out."""
    first: Latency = 0
    """What a launch takes longer after the caches were flushed: instructions and page tables are fetched anew."""


class CollectiveSpec(_Model):
    """Collectives between SIPs (GPUs), as a library makes them: two protocols, of which the sooner done is taken."""

    latency: Latency
    """Of one collective of few bytes, its kernel and the synchronisation of the ranks, beside the links' latency."""
    low_latency: _Share
    """Share of the links that the low-latency protocol reaches: its flags travel with the data."""
    bulk_latency: Latency
    """As latency, of the protocol that fills the links: it has buffers to fill first."""
    achievable: _Share
    """Share of the links that this reaches."""
    point_to_point: _Share
    """Share of a link that a copy or a send to one other SIP reaches."""


class PeSpec(_Model):
    """One PE; all are alike."""

    clock: Frequency
    """Cycles per second of the vector engine."""
    scratch: Size
    """Bytes of scratch memory."""
    issue: Latency | None = None
    """Time that the control core needs to issue one command; needed unless the PE holds workgroups."""
    queue_depth: Annotated[int, Whole(1, 64, example=8)] | None = None
    """Commands that may wait in front of each engine; needed unless the PE holds workgroups."""
    load: LoadSpec
    """The engine that reads memory into scratch."""
    store: StoreSpec
    """The engine that writes scratch to memory."""
    matrix: MatrixSpec
    """The matrix engine."""
    vector: VectorSpec
    """The vector engine."""
    channel: ChannelSpec | None = None
    """The channels between PEs; needed unless the PE holds workgroups."""
    residency: ResidencySpec | None = None
    """Makes the PE one of a GPU: it holds workgroups of a grid, in place of one program of its own."""
    workgroup: WorkgroupSpec | None = None
    """What each workgroup costs beside its work."""


class LinkOverrideSpec(_Model):
    """One directed link whose figures differ from its level's."""

    start: Annotated[str, Text("sip0.cube1", PLACE)] = Field(alias="from")
    """The sender: sip0, sip0.cube1 or sip0.cube1.pe3."""
    to: Annotated[str, Text("sip0.cube2", PLACE)]
    """The receiver, a neighbour of the sender."""
    bandwidth: Bandwidth | None = None
    """Bytes per second; the level's figure if absent."""
    latency: Latency | None = None
    """Time for one hop; the level's figure if absent."""


class MachineSpec(_Model):
    """A machine for kernbench: SIPs of CUBEs of PEs, and the figures of each."""

    name: Annotated[str, Text("row4_pe8")]
    """Short name of the machine."""
    description: Annotated[str, Text("four CUBEs in a row")] = ""
    """One line on what it is."""
    system: SystemSpec = SystemSpec()
    """The SIPs; one if absent."""
    sip: SipSpec
    """What is in a SIP."""
    cube: CubeSpec
    """What is in a CUBE."""
    pe: PeSpec
    """What is in a PE."""
    launch: LaunchSpec | None = None
    """What it takes to start a grid; needed if PEs hold workgroups."""
    collective: CollectiveSpec | None = None
    """What collectives between SIPs take; needed to time them on SIPs whose PEs hold workgroups."""
    links: tuple[LinkOverrideSpec, ...] = ()
    """Single links that differ from their level's figures, e.g. a degraded one."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of machine files, for editors and validators.

    Quantities are strings with a pattern and an example, since that is how a file holds them.
    """
    schema = MachineSpec.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
