"""Two ways to one time: a bench that is recorded and lowered, and the closed form that predicts recorded runs."""

import numpy as np
import pytest

import kernbench as kb
from kernbench.bench import apply_settings, find_bench
from kernbench.realrun.predict.decode import decode_launch, padded_rows, reduce_launch
from kernbench.realrun.predict.given import Kernel, Shape
from kernbench.realrun.predict.mla import mla_launch
from kernbench.realrun.predict.prefill import prefill_launch
from kernbench.record import record
from kernbench.simulate.launch import simulate_launch
from kernbench.simulate.launch.costs import instruction_of
from kernbench.simulate.launch.lower import lower
from kernbench.simulate.launch.places import Resources
from kernbench.simulate.launch.steps import Kind, parts

SPAN = 0.02
"""Makespans differ by no more: requests that the memory hashes to other channels, control elements, what is done once
for each workgroup (dividing the results, factors of a quantised cache)."""
BYTES = 0.002
"""Bytes asked for differ by no more: entries of a block table, factors; ragged blocks of queries."""
WORK = 0.01
"""Busy time of the engines differs by no more: what is done once for each workgroup."""

DECODE = {"h_q": 32, "h_kv": 8, "d_head": 128, "S_kv": 4096}
DEEP = {"stages": 3, "lds_bytes": 75_000}
PREFILL = {"T_q": 1024, "S_kv": 1024, "h_q": 8, "h_kv": 2, "d_head": 64}
CASES = [
    ("decode_splitkv", DECODE),
    ("decode_splitkv", DECODE | {"stages": 1}),
    ("decode_splitkv", DECODE | DEEP | {"batch": 2}),
    ("decode_splitkv", DECODE | {"S_kv": 16384, "splits": 16, "h_q": 64}),
    ("decode_splitkv", DECODE | {"kv_dtype": "fp8e4m3", "batch": 2}),
    ("decode_splitkv", DECODE | DEEP | {"kv_dtype": "i8", "d_head": 64, "S_kv": 16384}),
    ("decode_splitkv", DECODE | {"S_kv": 9999, "splits": 16, "batch": 4}),  # ragged
    ("decode_splitkv", DECODE | {"S_kv": 100, "splits": 16, "batch": 4}),  # most splits are empty
    ("decode_splitkv", DECODE | {"S_kv": 1000, "splits": 6, "h_q": 8, "BLOCK_N": 32, "waves": 8}),
    ("paged_decode", DECODE | {"batch": 2}),
    ("paged_decode", DECODE | DEEP | {"batch": 2, "S_kv": 8192}),
    ("mla_decode_grid", {"S_kv": 4096, "splits": 16, "batch": 4}),
    ("mla_decode_grid", {"S_kv": 4000, "splits": 16, "batch": 2, "h_q": 128}),
    ("mla_decode_grid", {"S_kv": 2048, "splits": 16, "batch": 2, "h_q": 64, "BLOCK_H": 32, "stages": 1}),
    ("fa2_prefill", PREFILL | {"causal": False}),
    ("fa2_prefill", PREFILL | {"d_head": 128}),
    ("fa2_prefill", PREFILL | {"diagonal_only": True}),
    ("fa2_prefill", PREFILL | {"diagonal_only": True, "stages": 3, "lds_bytes": 1 << 17, "d_head": 128}),
    ("fa2_prefill", PREFILL | {"causal": False, "stages": 1, "BLOCK_M": 64, "waves": 4, "h_kv": 8}),
    ("fa2_prefill", PREFILL | {"causal": False, "S_kv": 1000, "T_q": 1000, "stages": 3, "waves": 4}),
]


def closed_form(name, spec, chosen, machine):
    """Return the launches that the prediction of a recorded run would build."""
    if name == "mla_decode_grid":
        widths = (spec.d_head, spec.d_latent, spec.dtype, spec.dtype)
        shape, rows = Shape(spec.batch, spec.h_q, 1, 1, spec.S_kv, *widths, False), chosen.BLOCK_H
    else:
        widths = (spec.d_head, spec.d_head, spec.dtype, getattr(spec, "kv_dtype", spec.dtype))
        shape = Shape(spec.batch, spec.h_q, spec.h_kv, spec.T_q, spec.S_kv, *widths, spec.causal)
        rows = chosen.BLOCK_M if name == "fa2_prefill" else padded_rows(shape.group)
    needs = Resources(chosen.waves, chosen.registers, chosen.lds_bytes)
    instruction = instruction_of(machine, rows, chosen.waves)
    kernel = Kernel(rows, chosen.BLOCK_N, chosen.stages, getattr(chosen, "splits", 1), needs, instruction)
    if name == "fa2_prefill":
        return [prefill_launch(shape, kernel, machine, None, shape.causal and chosen.diagonal_only)[0]]
    first = mla_launch if name == "mla_decode_grid" else decode_launch
    return [first(shape, kernel, machine), reduce_launch(shape, kernel.splits, machine)]


def asked_for(launch):
    """Return the bytes that all workgroups ask for."""
    total = np.zeros(len(launch.classes), np.int64)
    for number, group in enumerate(launch.classes):
        before, body, after = parts(group)
        rounds = [(step, step.ahead) for step in (*before, *after)]
        rounds += [(step, at) for step in body for at in range(step.ahead, group.iterations)]
        for step, at in rounds:
            is_last = step.last_nbytes >= 0 and at == group.iterations - 1
            if step.kind == Kind.LOAD:
                total[number] += step.last_nbytes if is_last else step.nbytes
    return int(total[launch.class_of].sum())


@pytest.mark.parametrize("machine", ["h200", "mi300x"])
@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda case: str(case) if isinstance(case, str) else "")
def test_a_lowered_bench_and_the_closed_form_agree(name, settings, machine):
    machine = kb.load_machine(machine)
    if settings.get("lds_bytes", 0) > machine.pe.scratch or (name != "decode_splitkv" and machine.name != "h200"):
        pytest.skip("does not fit")
    spec, chosen = apply_settings(find_bench(name), settings)
    launches, _ = find_bench(name).launches(spec, chosen, machine, None)
    for launch, expected in zip(launches, closed_form(name, spec, chosen, machine), strict=True):
        trace = record(launch.kernel, machine, launch.args, grid=launch.grid)
        lowered = lower(trace, machine, launch.implementation, warm=launch.reads_results)
        assert lowered.places == expected.places
        assert asked_for(lowered) == pytest.approx(asked_for(expected), rel=BYTES)
        one, other = simulate_launch(lowered), simulate_launch(expected)
        assert one.makespan_ps == pytest.approx(other.makespan_ps, rel=SPAN)
        assert one.engine_busy_ps == pytest.approx(other.engine_busy_ps, rel=WORK)
        flat = simulate_launch(lower(trace, machine, launch.implementation, warm=launch.reads_results, fold=False))
        assert (flat.end_ps == one.end_ps).all()
