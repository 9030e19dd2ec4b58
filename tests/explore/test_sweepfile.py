"""Sweep files: ranges, and one clear line for each fault."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import InputError, KernbenchError
from kernbench.explore.sweepfile import SweepFile, values_of
from tests.explore.helpers import SMALL, read_sweep


@given(st.integers(-1000, 1000), st.integers(0, 300), st.integers(1, 50))
def test_a_range_of_whole_numbers_is_python_s_with_its_end(first, length, step):
    found = list(values_of({"from": first, "to": first + length, "step": step}))
    assert found == list(range(first, first + length + 1, step))


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (7, [7]),
        (["a", "b"], ["a", "b"]),
        ({"from": 1, "to": 3}, [1, 2, 3]),
        ({"from": 1, "to": 100, "factor": 4}, [1, 4, 16, 64]),
        ({"from": 0.1, "to": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),
        ({"from": "50 ns", "to": "0.2 us", "step": "50 ns"}, ["50 ns", "100 ns", "150 ns", "200 ns"]),
        ({"from": "0.5 TB/s", "to": "2 TB/s", "factor": 2}, ["500 GB/s", "1 TB/s", "2 TB/s"]),
        ({"m": 8, "n": 16, "k": 16}, [{"m": 8, "n": 16, "k": 16}]),
    ],
)
def test_values_of_a_setting(given, values):
    assert list(values_of(given)) == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f.yaml: is empty"),
        ("# nothing\n", "f.yaml: is empty"),
        ("[]", "f.yaml: expected a mapping"),
        ("bench: a\nbench: b", "f.yaml: line 2, column 1: the key 'bench' is already given"),
        ("bench: [", "f.yaml: line 1, column 9"),
        ("spec: {S_kv: 1}", "f.yaml: bench: is missing"),
        ("bench: x\nspecs: {}", r"f.yaml: specs: unknown key \(did you mean 'spec'\?\)"),
        ("bench: x\nspec: {S_kv: []}", "f.yaml: spec.S_kv: the list is empty"),
        ("bench: x\nspec: {S_kv: [1, 2, 1]}", "f.yaml: spec.S_kv: 1 is given twice"),
        (
            "bench: x\nspec: {S_kv: {from: 3, to: 1}}",
            "f.yaml: spec.S_kv: the range is empty: from 3 is larger than to 1",
        ),
        (
            "bench: x\nspec: {S_kv: {from: 1, too: 3}}",
            r"f.yaml: spec.S_kv: unknown key 'too' of a range \(did you mean",
        ),
        ("bench: x\nspec: {S_kv: {from: 1, to: 3, step: 0}}", "f.yaml: spec.S_kv: a step is above 0"),
        ("bench: x\nspec: {S_kv: {from: 1, to: 3, factor: 1}}", "f.yaml: spec.S_kv: a factor is a number above 1"),
        ("bench: x\nspec: {S_kv: {from: 1, to: 3, step: 1, factor: 2}}", "a range has from, to, and step or factor"),
        ("bench: x\nspec: {S_kv: {from: 1, to: 1000000}}", "the range has more than 100,000 values"),
        (
            "bench: x\nmachine: {pe.scratch: {from: 1 MB, to: 3 ns, step: 1 ns}}",
            "pe.scratch: .* not of one kind",
        ),
        ("bench: x\nmachine: {pe.scratch: {from: 1 MB, to: 3 MB}}", "a range of quantities needs a step or a factor"),
        ("bench: x\nmachine: {pe.scratch: {from: 1 MBs, to: 3 MB}}", "'1 MBs' is neither a number nor a quantity"),
        ("bench: x\nspec: {S_kv: {from: .nan, to: 3}}", "nan is neither a number nor a quantity"),
        ("bench: x\nsearch: {random: yes}", "search.points: expected a valid integer"),
        ("bench: x\nmachine: 3", "f.yaml: machine: expected a mapping"),
        ("bench: x\nsplits: []", "f.yaml: splits: is empty"),
        ("bench: x\nsplits: most", "f.yaml: splits: expected all, or a list"),
        ("bench: x\nobjectives: [makspan]", r"f.yaml: objectives: unknown objective 'makspan' \(did you mean"),
        ("bench: x\nobjectives: [makespan, makespan]", "f.yaml: objectives: objective 'makespan' is given twice"),
        ("bench: x\nsearch: {random: 0}", "f.yaml: search.points: expected greater than or equal to 1"),
        ("bench: x\nsearch: {random: 10, sede: 1}", r"f.yaml: search.sede: unknown key \(did you mean 'seed'\?\)"),
        ("bench: x\nsearch: best", "f.yaml: search: expected exhaustive, or"),
        ("bench: x\nname: a b", "f.yaml: name: expected letters, digits"),
        ("bench: x\ntopology: []", "f.yaml: topology: it should have at least 1 item"),
    ],
)
def test_faults_of_a_file(text, says):
    with pytest.raises(InputError, match=says):
        SweepFile.parse(text, "f.yaml", "f")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("bench: gqa_decode_lon", "unknown bench 'gqa_decode_lon'"),
        ("topology: row5", "unknown machine 'row5'"),
        ("topology: [row4_pe8, h200]", "PEs of h200 hold workgroups"),
        ("spec: {TILE: 3}", r"f.yaml: spec.TILE: unknown field \(did you mean 'TILE_S_KV'\?\)"),
        ("spec: {TILE_S_KV: [16, x]}", "f.yaml: spec.TILE_S_KV: .* cannot be 'x'"),
        (
            "machine: {cube.memory.bandwidth: [1 TB/s, 1 TBs]}",
            "machine.cube.memory.bandwidth: .*unit 'TBs'",
        ),
        ("machine: {cube.memory.bandwidth: 40 ns}", "f.yaml: machine.cube.memory.bandwidth: "),
        ("machine: {cube.memory.bandwith: 1 TB/s}", r"unknown key \(did you mean 'bandwidth'\?\)"),
        (
            "machine: {cube: {memory: {bandwidth: 1 TB/s}}}",
            r"f.yaml: machine.cube: .*: cube.pes: missing; .*keys are written with dots, as cube.memory.bandwidth",
        ),
        ("machine: {cubes.memory.bandwidth: 1 TB/s}", r"f.yaml: machine.cubes.memory.bandwidth: unknown key"),
        ("splits: [{head: pe}]", r"f.yaml: splits\[0\]: unknown split 'head' \(did you mean 'heads'\?\)"),
        ("splits: [{heads: pe, S_kv: pe}]", r"f.yaml: splits\[0\]: level 'pe' is named 2 times"),
        ("splits: [{heads: pe}, {heads: pe}]", r"f.yaml: splits\[1\]: this assignment is given twice"),
        ("splits: all\nspec: {split_heads: pe}", "f.yaml: spec.split_heads: is also assigned by splits"),
        ("constraints: [TILE < 3]", r"f.yaml: constraints\[0\]: 'TILE < 3': unknown name 'TILE'"),
        ("constraints: [cube.memory.bandwidth > 1 TB/s]", "quantities in quotes, as cube.memory.bandwidth > '1 TB/s'"),
        ("constraints: ['S_kv <']", r"f.yaml: constraints\[0\]: cannot read 'S_kv <'"),
        ("constraints: [pe.scrach < 3]", r"f.yaml: constraints\[0\]: .*no value 'pe.scrach'"),
        ("cost: makespan_p * 2", r"f.yaml: cost: .*unknown name 'makespan_p'"),
        ("objectives: cost", "f.yaml: objectives: cost is an objective, but there is no expression"),
    ],
)
def test_faults_beside_the_bench_and_the_machine(change, says):
    text = "bench: gqa_decode_long\n" if not change.startswith("bench") else ""
    with pytest.raises(KernbenchError, match=says):
        read_sweep(text + change, "f")


def test_splits_of_a_bench_without_any_are_refused():
    with pytest.raises(InputError, match="splits: bench decode_splitkv has no splits to assign"):
        read_sweep("bench: decode_splitkv\ntopology: h200\nsplits: all", "f")


def test_a_definition_is_read_back_from_the_store_as_it_was():
    sweep = read_sweep(SMALL + "search: {random: 5, seed: 3}\nsplits: [{S_kv: [cube, pe]}]\nconstraints: buffers < 2")
    again = SweepFile.model_validate_json(sweep.file.model_dump_json(exclude_defaults=True))
    assert again == sweep.file


def test_a_range_of_many_small_factors_is_written_out_at_once():
    begin = time.perf_counter()
    values = list(values_of({"from": 1, "to": 2, "factor": 1.0001}))
    assert len(values) == 6932
    assert values[-1] == pytest.approx(1.0001**6931)
    assert list(values_of(values)) == values  # as a store gives them back
    assert time.perf_counter() - begin < 2
