"""Fitting a machine's figures: it finds those that made the times, touches no others, and says what it did."""

import random
from pathlib import Path

import pytest

import kernbench as kb
from kernbench.errors import InputError
from kernbench.machine import load_machine
from kernbench.machine.describe import describe
from kernbench.machine.load import find_machine_file
from kernbench.machine.yamlfile import lines_of
from kernbench.realrun.calibrate import MARK, MOST_FIGURES, calibratable, calibrate, write_machine
from kernbench.realrun.records import Quantiles, Times
from kernbench.realrun.splits import split_of

from .made import decode, measured_on, prefill

FIGURES = ("sip.memory.latency", "pe.matrix.achievable", "pe.workgroup.barrier", "pe.vector.cost.exp2")
CHANGED = {
    "sip.memory.latency": "640 ns", "pe.matrix.achievable": 0.66, "pe.workgroup.barrier": "180 ns",
    "pe.vector.cost.exp2": 5.2,
}  # fmt: skip
START = {
    "sip.memory.latency": "500 ns", "pe.matrix.achievable": 0.8, "pe.workgroup.barrier": "250 ns",
    "pe.vector.cost.exp2": 4,
}  # fmt: skip


def write_marked(folder, keys):
    """Write the H200 with the figures at their starting values, these keys marked and no others; return its path."""
    lines = find_machine_file("h200").read_text(encoding="utf-8").replace(MARK, "taken").splitlines()
    where = lines_of("\n".join(lines))
    for key in keys:
        name = lines[where[key]].split("#")[0].partition(":")
        value = START.get(key, name[2].strip())
        lines[where[key]] = f"{name[0]}: {value}  # {MARK}: by a test"
    path = folder / "marked.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def launches():
    rng = random.Random(1)
    made = []
    for i in range(22):
        s_kv, splits = rng.choice([1000, 2048, 5000]), rng.choice([2, 4, 8])
        fields = rng.choice([("cold_graph",), ("warm",)])
        made.append(decode(f"d{i}", fields, splits, batch=rng.choice([1, 4, 8]), s_kv=s_kv, h_kv=rng.choice([4, 8])))
    for i in range(20):
        size, d = rng.choice([512, 1024]), rng.choice([64, 128])  # of one width alone, products and exp2 look alike
        made.append(
            prefill(f"p{i}", ("warm",), rng.choice([4, 8]), rng.choice([2, 3]), s_q=size, s_kv=size, d_qk=d, d_v=d,
                    causal=rng.random() < 0.5, batch=rng.choice([1, 2]))
        )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return load_machine(str(write_marked(tmp_path_factory.mktemp("machine"), FIGURES)))


@pytest.fixture(scope="module")
def records(start):
    truth = start.with_overrides(CHANGED)
    return [measured_on(r, truth) for r in launches()]


@pytest.fixture(scope="module")
def fitted(start, records):
    return calibrate(start, records, rounds=8)


@pytest.fixture(scope="module")
def begun(start, records):
    """After the first steps of a fit."""
    return calibrate(start, records, rounds=2)


def number(text):
    return float(str(text).partition(" ")[0])


def test_it_finds_the_figures_that_made_the_times(fitted):
    assert {f.key for f in fitted.figures} == set(FIGURES)
    for figure in fitted.figures:
        assert number(figure.after) == pytest.approx(number(CHANGED[figure.key]), rel=0.06), figure.key
        assert number(figure.before) == number(START[figure.key])
    assert fitted.error_before > 0.03
    assert fitted.error_after < 0.005


def test_only_the_training_half_is_looked_at(start, records, fitted, begun):
    train = [r for r in records if split_of(r) == "train"]
    assert 5 < len(train) < len(records)
    assert fitted.records == fitted.rows == len(train)

    def absurd(record):
        times = {f: Quantiles(median=1e6) for f in ("warm", "cold_graph") if getattr(record.times, f)}
        return record.model_copy(update={"times": Times(**times)})

    spoilt = [r if split_of(r) == "train" else absurd(r) for r in records]
    assert calibrate(start, spoilt, rounds=2).figures == begun.figures


def test_two_processes_find_the_same(start, records, begun):
    two = calibrate(start, records, rounds=2, jobs=2)
    assert two.figures == begun.figures
    assert two.error_after == begun.error_after


def test_published_rows_below_grade_a_do_not_count(start, records):
    worse = [r.model_copy(update={"evidence": "recorded", "grade": "B"}) for r in records]
    with pytest.raises(InputError, match="no record of the training half can be predicted"):
        calibrate(start, worse)


def test_the_written_file_is_the_machine_with_its_provenance(start, fitted, tmp_path):
    path = tmp_path / "fitted.yaml"
    write_machine(fitted, path)
    again = load_machine(str(path))
    for figure in fitted.figures:
        assert describe_of(again)[figure.key].value == figure.after
        note = describe_of(again)[figure.key].note
        families = ", ".join(fitted.families)
        assert note == f"{MARK}: {fitted.rows} times of {fitted.records} training records ({families})"
    untouched = {k: f for k, f in describe_of(start).items() if k not in FIGURES}
    assert {k: f for k, f in describe_of(again).items() if k not in FIGURES} == untouched
    assert set(calibratable(again)) == set(FIGURES)


def describe_of(machine):
    return {f.key: f for f in describe(machine)}


def test_none_marked_or_more_than_twelve_is_an_error(tmp_path):
    none = load_machine(str(write_marked(tmp_path, ())))
    with pytest.raises(InputError, match="nothing to fit"):
        calibratable(none)
    keys = [k for k, f in describe_of(none).items() if k.startswith(("pe.vector.cost", "sip.", "pe.workgroup"))]
    assert len(keys) > MOST_FIGURES
    many = load_machine(str(write_marked(tmp_path, keys[: MOST_FIGURES + 1])))
    with pytest.raises(InputError, match=f"{MOST_FIGURES + 1} figures are marked"):
        calibratable(many)


@pytest.mark.parametrize("name", sorted(p.stem for p in (Path(__file__).parents[2] / "topologies").glob("*.yaml")))
def test_no_shipped_machine_of_one_gpu_has_more_than_twelve_fitted_figures(name):
    machine = kb.load_machine(name)
    if machine.n_sips == 1:  # of several, those of the links come on top
        assert sum(f.note.startswith(MARK) for f in describe(machine)) <= MOST_FIGURES
