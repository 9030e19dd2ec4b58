"""Which machine a record ran on, and what the model says of each time that was measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kernbench.machine import Machine, load_machine
from kernbench.realrun.predict.collective import predict_collective, predict_parallel_decode
from kernbench.realrun.predict.decode import (
    decode_launch,
    decode_loop,
    flushed,
    padded_rows,
    reduce_launch,
    ultraquant_loop,
    warm,
)
from kernbench.realrun.predict.estimate import ONCE, Estimate, Repeats, estimate
from kernbench.realrun.predict.given import PS_PER_US, Kernel, Shape, known, shape_of
from kernbench.realrun.predict.implementations import find
from kernbench.realrun.predict.mla import mla_launch
from kernbench.realrun.predict.prefill import BlockMask, prefill_launch
from kernbench.realrun.prediction import NotModelled, Prediction
from kernbench.realrun.records import RunRecord
from kernbench.realrun.roofline import Peaks, roofline_us
from kernbench.simulate.launch.costs import instruction_of
from kernbench.simulate.launch.places import Resources, launch_of
from kernbench.simulate.launch.steps import Launch

MACHINES = {
    "NVIDIA H200": "h200", "MI300X": "mi300x", "MI325X": "mi325x", "MI355X": "mi355x", "MI350X": "mi355x",
    "MI355": "mi355x", "MI350": "mi355x", "MI300": "mi300x", "MI250X": "mi250x",
}  # fmt: skip
MACHINES_OF_SEVERAL = {("h200", 2): "h200x2", ("mi300x", 8): "mi300x8"}
"""(machine of one GPU, GPUs that take part) → machine."""
MOST_SPILLS = 64
"""Spilled registers of a thread up to which a kernel is taken for one that does not spill in its loop."""


@lru_cache(maxsize=16)
def _load(name: str) -> Machine:
    return load_machine(name)


def machine_of(record: RunRecord) -> Machine:
    """Return the machine of the GPU that a record names, or of the GPUs that take part."""
    gpu = record.device.gpu
    if gpu is None:
        raise NotModelled("GPU not named")
    for name, machine in MACHINES.items():
        if gpu == name or gpu.split()[-1] == name:
            return _load(MACHINES_OF_SEVERAL.get((machine, record.spec.world or 1), machine))
    raise NotModelled(f"no machine for {gpu}")


@lru_cache(maxsize=16)
def peaks_of(machine: Machine) -> Peaks:
    """Return what the machine's data sheet promises of one GPU."""
    pes = machine.pes_per_cube * machine.cubes_per_sip
    rates = {dtype: rate * pes / 1e12 for dtype, rate in machine.pe.matrix.rates.items()}
    link = machine.spec.system.sips.link
    return Peaks(rates, machine.memory.bandwidth / 1e9, link.bandwidth / 1e9 if link else None)


def predict(record: RunRecord, machine: Machine | None = None) -> list[Prediction]:
    """Predict each time of a record that was measured and can be modelled.

    Raises
    ------
    NotModelled
        If none can; the message is the reason.
    """
    machine = machine or machine_of(record)
    family = _FAMILIES.get(record.family)
    if family is None:
        raise NotModelled(f"no model for {record.family} {record.spec.mode or ''}".strip())
    return family(record, machine)


def _decode(record: RunRecord, machine: Machine) -> list[Prediction]:
    shape = shape_of(record)
    kernel = kernel_of(record, shape, machine)
    launch = decode_launch(shape, kernel, machine, _LOOPS[record.family])
    return _split_and_merge(record, machine, shape, kernel, launch)


def _mla(record: RunRecord, machine: Machine) -> list[Prediction]:
    if record.spec.mode is not None:
        raise NotModelled(f"no model for {record.spec.mode} MLA decode")
    shape = shape_of(record)
    kernel = kernel_of(record, shape, machine)
    return _split_and_merge(record, machine, shape, kernel, mla_launch(shape, kernel, machine))


def _split_and_merge(
    record: RunRecord, machine: Machine, shape: Shape, kernel: Kernel, launch: Launch
) -> list[Prediction]:
    """Predict a launch over splits, and the launch that merges them."""
    times = _Times(record, machine, kernel)
    merge = estimate(reduce_launch(shape, kernel.splits, machine))
    cold = None
    if times.wants("partial", "cold", "cold_graph"):
        cold = estimate(_flushed(record, launch))
        times.add("partial", cold, launches=1)
        times.add("cold", cold, launches=2, plus=merge)
        times.add("cold_graph", cold, launches=2, plus=merge, graph=True)
    if times.wants("reduce"):
        times.add("reduce", estimate(reduce_launch(shape, kernel.splits, machine, written=False)), launches=1)
    if times.wants("warm", "published"):
        hot = _as_warm(record, launch, shape, cold)
        times.add("warm", hot, launches=2, plus=merge, graph=True)
        times.add("published", hot, launches=2, plus=merge, graph=True)
    return times.all()


def _prefill(record: RunRecord, machine: Machine) -> list[Prediction]:
    shape = shape_of(record)
    if shape.s_q == 1:
        raise NotModelled("no model for decode by this kernel")
    kernel = kernel_of(record, shape, machine)
    diagonal_only = shape.causal and kernel.masks_diagonal_only
    launch, repeats = prefill_launch(shape, kernel, machine, _mask_of(record, shape, kernel), diagonal_only)
    times = _Times(record, machine, kernel)
    cold = None
    if times.wants("cold", "cold_graph"):
        cold = estimate(_flushed(record, launch), repeats)
        times.add("cold", cold, launches=1)
        times.add("cold_graph", cold, launches=1, graph=True)
    if times.wants("warm", "published"):
        hot = _as_warm(record, launch, shape, cold, repeats)
        times.add("warm", hot, launches=1, graph=True)
        times.add("published", hot, launches=1)
    return times.all()


def _as_warm(
    record: RunRecord, launch: Launch, shape: Shape, cold: Estimate | None, repeats: Repeats = ONCE
) -> Estimate:
    """Estimate the launch as it goes when it was just run before: as a cold one, if the caches hold too little."""
    again = warm(launch, shape.kv_bytes)
    same = cold is not None and again is launch and _flushed(record, launch) is launch
    return cold if cold is not None and same else estimate(again, repeats)


def _flushed(record: RunRecord, launch: Launch) -> Launch:
    """Return the launch as it goes after the caches were flushed, by writing or not."""
    return flushed(launch) if record.implementation.notes.get("flush") == "written" else launch


def _mask_of(record: RunRecord, shape: Shape, kernel: Kernel) -> BlockMask | None:
    """Return which tiles are computed: blocks drawn with the record's density, the first column kept."""
    s = record.spec
    if record.family != "block_sparse":
        return None
    block_q, block_k = s.block_q or kernel.block_m, s.block_k or kernel.block_n
    rows, columns = -(-shape.s_q // block_q), -(-shape.s_kv // block_k)
    drawn = np.random.default_rng(s.mask_seed or 0).random((rows, columns))
    drawn[:, 0] = 0.0  # the first column is kept, and after it the smallest numbers: as many as the record says
    many = s.kept_blocks if s.kept_blocks is not None else round(known("density", s.density) * rows * columns)
    kept = drawn <= np.partition(drawn.ravel(), max(many, rows) - 1)[max(many, rows) - 1]
    tiles = np.repeat(np.repeat(kept, max(block_q // kernel.block_m, 1), 0), max(block_k // kernel.block_n, 1), 1)
    tiles = tiles[: -(-shape.s_q // kernel.block_m), : -(-shape.s_kv // kernel.block_n)]
    return BlockMask(tiles, skips=s.mode == "skip")


def kernel_of(record: RunRecord, shape: Shape, machine: Machine) -> Kernel:
    """Return the implementation of a record: its own figures, or what is known of it by its name.

    Raises
    ------
    NotModelled
        If a figure that matters is stated nowhere.
    """
    i = record.implementation
    by_name = find(record.family, i.name, record.device.arch, shape.d_qk) if i.waves is None else None
    if by_name is not None:
        return by_name.kernel(machine)
    if (i.spills or 0) > MOST_SPILLS:
        raise NotModelled(f"more than {MOST_SPILLS} spilled registers a thread: their traffic is not modelled")
    waves = known("waves", i.waves)
    needs = Resources(waves, known("registers", i.registers), known("shared memory", i.lds_bytes))
    rows = i.block_m or padded_rows(shape.group * shape.s_q)
    instruction = instruction_of(machine, rows, waves)
    diagonal = i.notes.get("masked") == "diagonal tiles"
    n, stages, splits = known("tile of keys", i.block_n), i.stages or 1, i.splits or 1
    return Kernel(rows, n, stages, splits, needs, instruction, masks_diagonal_only=diagonal)


def _roofline(record: RunRecord, machine: Machine) -> float:
    return roofline_us(record, peaks_of(machine))


class _Times:
    """Collects the predictions of one record."""

    def __init__(self, record: RunRecord, machine: Machine, kernel: Kernel) -> None:
        self._record, self._machine, self._kernel = record, machine, kernel
        self._found: list[Prediction] = []
        self._roofline = _roofline(record, machine)

    def wants(self, *fields: str) -> bool:
        return any(getattr(self._record.times, field) is not None for field in fields)

    def add(
        self, field: str, found: Estimate, *, launches: int, plus: Estimate | None = None, graph: bool = False
    ) -> None:
        if not self.wants(field):
            return
        costs = launch_of(self._machine)
        ps = found.ps + (plus.ps if plus else 0)
        ps += launches * costs.graph if graph else costs.cold + costs.first + (launches - 1) * costs.graph
        reason, regime = explanation(found, ps)
        reason += f"; implementation {self._kernel.origin}" if self._kernel.origin else ""
        roofline = _merge_roofline_us(self._record, self._machine) if field == "reduce" else self._roofline
        self._found.append(Prediction(field, ps / PS_PER_US, roofline, reason, regime))

    def all(self) -> list[Prediction]:
        if not self._found:
            raise NotModelled("no measured time that the model predicts")
        return self._found


def _merge_roofline_us(record: RunRecord, machine: Machine) -> float:
    """Roofline of the merging launch alone: its float32 partial results, read once."""
    shape = shape_of(record)
    rows = shape.batch * shape.h_q * shape.s_q * (record.implementation.splits or 1)
    return rows * (shape.d_v + 2) * 4 / peaks_of(machine).hbm_gbps / 1e3


def explanation(found: Estimate, ps: int) -> tuple[str, str]:
    """Say in words what bounds a launch, and its regime."""
    line = found.timeline
    busy, spent = line.busy, line.time_by_cause
    part = "" if found.simulated == 1 else f"; carried on from {found.simulated:.0%} of the tiles"
    around = 1 - found.ps / ps
    if around > 0.4:
        return f"launch and merge {around:.0%} of the time{part}", "fixed-overhead"
    most = max(busy, key=lambda name: busy[name])
    shares = ", ".join(f"{name} {share:.0%}" for name, share in sorted(spent.items(), key=lambda x: -x[1])[:3])
    text = f"{most} busy {busy[most]:.0%}; places: {shares}{part}"
    if busy[most] < 0.6:
        return text, "latency"
    return text, "memory" if most in ("memory", "cache", "l2") else "compute"


_LOOPS = {"decode_splitkv": decode_loop, "paged_decode": decode_loop, "ultraquant_decode": ultraquant_loop}

_FAMILIES: dict[str, Callable[[RunRecord, Machine], list[Prediction]]] = {
    "decode_splitkv": _decode,
    "paged_decode": _decode,
    "ultraquant_decode": _decode,
    "mla_decode": _mla,
    "prefill": _prefill,
    "block_sparse": _prefill,
    "sdpa_flash": _prefill,
    "sdpa_cudnn": _prefill,
    "collective": lambda record, machine: predict_collective(record, machine, _roofline(record, machine)),
    "sequence_parallel_decode": lambda record, machine: predict_parallel_decode(
        record, machine, _roofline(record, machine)
    ),
}
