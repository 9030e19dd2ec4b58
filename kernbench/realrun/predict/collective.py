"""Runs of several GPUs: collectives on their own, and decode with the keys of each sequence split over the GPUs.

What a host issues one by one is bound by the host when it is short, so only times in a replayed graph are predicted
(``warm``, and the parts of a step).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.realrun.predict.decode import decode_launch, padded_rows, warm
from kernbench.realrun.predict.estimate import Estimate, estimate
from kernbench.realrun.predict.given import PS_PER_US, Kernel, Shape, known, shape_of
from kernbench.realrun.prediction import NotModelled, Prediction
from kernbench.realrun.records import RunRecord
from kernbench.simulate.launch.collective import CollectiveTime, collective_time
from kernbench.simulate.launch.costs import cost_of, instruction_of, vector_ps
from kernbench.simulate.launch.places import Resources, launch_of, places_of, workgroup_of
from kernbench.simulate.launch.steps import START, VECTOR, Engines, Launch, Workgroup, load, pause, store, wait, work

_MODES = {"copy_peer": "copy"}
_PARTIAL_BYTES = 4
"""Of each number of a partial result: O, m and l are float32."""

_COMPILED = {
    (32, 4, 2, 128): (64, 21504),
    (64, 4, 2, 128): (72, 38912),
    (64, 4, 2, 256): (112, 75776),
    (128, 4, 2, 128): (96, 73728),
    (128, 8, 2, 128): (64, 73728),
}
"""(tile of keys, waves, stages, head dimension) → (registers, shared memory) of our Triton decode kernel.

source: the bf16 rows of h200_runs.jsonl. Recordings of several GPUs leave both out; it is the same kernel.
"""


def predict_collective(record: RunRecord, machine: Machine, roofline_us: float) -> list[Prediction]:
    """Predict a collective in a replayed graph.

    Raises
    ------
    NotModelled
        If it was not replayed in a graph, or the machine has fewer GPUs or no figures of collectives.
    """
    if record.times.warm is None:
        raise NotModelled("collective issued from the host: bound by the host")
    mode = known("kind of collective", record.spec.mode)
    found = _time(machine, _MODES.get(mode, mode), known("bytes", record.spec.nbytes), record)
    return [Prediction("warm", found.ps / PS_PER_US, roofline_us, _reason(found), _regime(found))]


def predict_parallel_decode(record: RunRecord, machine: Machine, roofline_us: float) -> list[Prediction]:
    """Predict a step of decode whose keys are split over GPUs, and its parts.

    Each GPU attends to its share of the keys, merges its splits, gathers the (O, m, l) of all, and merges these. The
    step is the sum of its parts: in a graph they follow one another.

    Raises
    ------
    NotModelled
        If the record does not say enough, or the machine has fewer GPUs or no figures of collectives.
    """
    parts = list(_parts(record, machine, roofline_us))
    total = sum(part.ps for part in parts)
    found = [
        Prediction(part.name, part.ps / PS_PER_US, part.roofline_us, part.reason, part.regime)
        for part in parts
        if part.name in record.times.parts
    ]
    if record.times.warm is not None:
        largest = max(parts, key=lambda part: part.ps)
        shares = ", ".join(f"{part.name} {part.ps / total:.0%}" for part in sorted(parts, key=lambda part: -part.ps))
        reason = f"{shares}; {_COMPILED_NOTE}"
        regime = largest.regime if largest.ps > 0.6 * total else "fixed-overhead"
        found.append(Prediction("warm", total / PS_PER_US, roofline_us, reason, regime))
    if not found:
        raise NotModelled("no measured time that the model predicts")
    return found


_COMPILED_NOTE = "registers and shared memory of the same kernel on one GPU, h200_runs.jsonl"


@dataclass(frozen=True)
class _Part:
    """A launch or a collective of a step."""

    name: str
    ps: int
    roofline_us: float
    reason: str
    regime: str


def _parts(record: RunRecord, machine: Machine, roofline_us: float) -> Iterator[_Part]:
    world = known("GPUs", record.spec.world)
    whole = shape_of(record)
    shape = replace(whole, s_kv=-(-whole.s_kv // world))
    kernel = _kernel(record, shape, machine)
    rows = shape.batch * shape.h_q * _row_nbytes(shape)
    hbm = machine.memory.bandwidth / PS_PER_US
    partial = estimate(warm(decode_launch(shape, kernel, machine), shape.kv_bytes))
    yield _launch("partial", partial, machine, roofline_us)
    yield _launch(
        "local_reduce", estimate(merging_launch(shape, kernel.splits, machine)), machine, kernel.splits * rows / hbm
    )
    gathered = _time(machine, "all_gather", record.spec.nbytes or rows, record)
    yield _Part("all_gather", gathered.ps, gathered.wire_ps / PS_PER_US, _reason(gathered), _regime(gathered))
    yield _launch("merge", estimate(merging_launch(shape, world, machine)), machine, world * rows / hbm)


def merging_launch(shape: Shape, parts: int, machine: Machine) -> Launch:
    """Return the launch that merges partial results, of splits or of GPUs: a workgroup for each query head.

    A workgroup asks for all parts at once: measured, 66 parts take 0.4 us longer than 16 (h200x2_runs.jsonl). They were
    just stored, and are in the last cache if they fit there.
    """
    rows, width, costs = shape.batch * shape.h_q, shape.d_v, workgroup_of(machine)
    padded = 1 << (parts - 1).bit_length()
    cycles = Fraction(2 * padded * width) * cost_of(machine, "default")
    steps = (
        load(0, parts * 4), load(1, parts * 4), load(2, parts * width * _PARTIAL_BYTES), wait(0), wait(1),
        *pause(costs.barrier), wait(2), *work(3, vector_ps(machine, cycles), Engines.BOTH, VECTOR), store(width * 2),
        *pause(costs.end, START),
    )  # fmt: skip
    places = places_of(machine, Resources(waves=4, registers=32, lds_bytes=0))
    none = np.zeros((rows, 1), np.int64)
    launch = Launch(places, (Workgroup(steps, (), (), 0),), np.zeros(rows, np.int32), none, 0)
    return warm(launch, rows * parts * _row_nbytes(shape))


def _row_nbytes(shape: Shape) -> int:
    """Bytes of O, m and l of one row."""
    return (shape.d_v + 2) * _PARTIAL_BYTES


def _launch(name: str, found: Estimate, machine: Machine, roofline_us: float) -> _Part:
    busy = found.timeline.busy
    most = max(busy, key=lambda key: busy[key])
    regime = "fixed-overhead" if name != "partial" else "memory" if busy[most] >= 0.6 else "latency"
    return _Part(name, found.ps + launch_of(machine).graph, roofline_us, f"{most} busy {busy[most]:.0%}", regime)


def _kernel(record: RunRecord, shape: Shape, machine: Machine) -> Kernel:
    i = record.implementation
    block, waves, stages = known("tile of keys", i.block_n), known("waves", i.waves), i.stages or 1
    compiled = _COMPILED.get((block, waves, stages, shape.d_qk)) if shape.kv_dtype in ("bf16", "f16") else None
    registers, lds_bytes = compiled or (None, None)
    needs = Resources(
        waves, known("registers", i.registers or registers), known("shared memory", i.lds_bytes or lds_bytes)
    )
    rows = padded_rows(shape.group * shape.s_q)
    return Kernel(
        rows, block, stages, i.splits or 1, needs, instruction_of(machine, rows, waves), origin=_COMPILED_NOTE
    )


def _time(machine: Machine, operation: str, nbytes: int, record: RunRecord) -> CollectiveTime:
    try:
        return collective_time(machine, operation, nbytes, known("GPUs", record.spec.world))
    except InputError as bad:
        raise NotModelled(str(bad)) from None


def _reason(found: CollectiveTime) -> str:
    return f"{found.protocol} protocol; bytes alone {found.wire_ps / found.ps:.0%} of the time"


def _regime(found: CollectiveTime) -> str:
    return "link" if found.wire_ps > 0.4 * found.ps else "fixed-overhead"
