"""The two engines give the same picosecond for every command of every program."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kernbench.machine import load_machine
from kernbench.record.trace import Trace
from kernbench.simulate.program import Kind, build_program
from kernbench.testing import compare_engines, random_document, random_program


# derandomize: CI draws the same programs each time. `benchmarks/fuzz_engines.py` is for others.
@pytest.mark.slow
@pytest.mark.parametrize("shard", range(4))  # so that workers share the 2,000 programs
@settings(max_examples=500, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**30 - 1), length=st.integers(1, 16))
def test_both_engines_time_random_programs_alike(shard: int, seed: int, length: int) -> None:
    seed = seed * 4 + shard
    program = random_program(seed, length)
    found = compare_engines(program.record())
    event(found if found in ("agree", "deadlock") else "differ")
    assert found in ("agree", "deadlock"), f"random_program(seed={seed}, length={length}): {found}\n\n{program}"


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), issue=st.sampled_from(["0 ns", "3 ns"]), depth=st.integers(1, 5))
def test_both_engines_time_a_trace_on_another_machine_alike(seed: int, issue: str, depth: int) -> None:
    program = random_program(seed)
    other = load_machine(
        program.document, {"pe.issue": issue, "pe.channel.depth": depth, "pe.load.bandwidth": "9 GB/s"}
    )
    found = compare_engines(program.record(), other)
    assert found in ("agree", "deadlock"), f"random_program(seed={seed}) on {issue}, {depth}: {found}\n\n{program}"


def test_random_programs_reach_all_that_the_engines_do() -> None:
    seen: Counter[str] = Counter()
    for seed in range(80):
        trace = random_program(seed).record()
        seen.update(_features(trace))
        if seed < 40:
            seen[compare_engines(trace)] += 1
    rare = {name: n for name in (*_FEATURES, *(kind.name for kind in Kind)) if (n := seen[name]) < 4}
    assert not rare, f"of 80 programs only so many have: {rare}"
    assert seen["agree"] + seen["deadlock"] == 40
    assert 1 <= seen["deadlock"] <= 15


_FEATURES = (
    "intra", "cube", "sip", "remote load", "remote store", "many classes", "class of many", "idle class", "reuse",
    "shared memory", "outstanding",
)  # fmt: skip


def _features(trace: Trace) -> set[str]:
    """What a program has in it."""
    program, network = build_program(trace, trace.machine), trace.machine.network
    found = {Kind(kind).name for kind in program.kind}
    for cls in trace.classes:
        for command in cls.commands:
            if command.op == "send":
                found.add(("intra", "cube", "sip")[command.direction // 4])
            elif command.access is not None:
                home = (cls.columns[command.access.address.column] + command.access.address.offset) >> 44
                if (network.memory_of_node[network.node_of_pe[cls.pes]] != home).any():
                    found.add(f"remote {command.op}")
        if any(kind for command in cls.commands for _, kind in command.deps):
            found.add("reuse")
        if not cls.commands:
            found.add("idle class")
    found.add("many classes" if len(trace.classes) > 3 else "few classes")
    found.update({"class of many"} if any(len(c.pes) > 1 for c in trace.classes) else ())
    found.update({"shared memory"} if trace.machine.memory_scope == "sip" and trace.machine.cubes_per_sip > 1 else ())
    found.update({"outstanding"} if trace.machine.pe.load.outstanding else ())
    return found


def test_the_same_seed_gives_the_same_program() -> None:
    one, two = random_program(7, 9), random_program(7, 9)
    assert one == two
    assert one.source != random_program(8, 9).source


def test_random_machines_are_machines() -> None:
    shapes = {load_machine(random_document(Random(seed))).shape for seed in range(60)}
    assert len(shapes) > 10
