"""Runs on two GPUs: what is predicted of them, how well, and what is refused with a reason."""

from statistics import median

import pytest

import kernbench as kb
from kernbench.realrun.predict import predict
from kernbench.realrun.prediction import NotModelled
from kernbench.realrun.sources import read_records, shipped_records
from kernbench.realrun.splits import split_of
from kernbench.simulate.launch.collective import collective_time


@pytest.fixture(scope="module")
def records():
    (path,) = (p for p in shipped_records() if p.name == "h200x2_runs.jsonl")
    return {r.id: r for r in read_records(path).records}


def of_family(records, family):
    return [r for r in records.values() if r.family == family and r.times.warm is not None]


def error(record, prediction):
    measured = record.times.parts.get(prediction.field) or getattr(record.times, prediction.field).median
    return prediction.predicted_us / measured - 1


def test_collectives_in_graphs(records):
    """1 KB to 256 MB, all_reduce, all_gather and reduce_scatter; the figures were fitted to the training half."""
    errors = {"train": [], "test": []}
    for r in of_family(records, "collective"):
        (found,) = predict(r)
        assert found.field == "warm"
        assert found.predicted_us > found.roofline_us
        errors[split_of(r)].append(abs(error(r, found)))
    assert (len(errors["train"]), len(errors["test"])) == (17, 13)
    for half in errors.values():
        assert median(half) < 0.10
        assert max(half) < 0.25


def test_large_sends_and_copies_that_the_host_does_not_bound(records):
    machine = kb.load_machine("h200x2")
    for name, us in (("send_recv-67108864", 201.3), ("send_recv-268435456", 747.8), ("copy-peer-268435456", 695.0)):
        operation = "copy" if name.startswith("copy") else "send_recv"
        assert records[name].times.cold.median == pytest.approx(us, abs=0.1)
        assert collective_time(machine, operation, records[name].spec.nbytes).ps / 1e6 == pytest.approx(us, rel=0.06)


@pytest.mark.parametrize("name", ["send_recv-1024", "copy-peer-4096"])
def test_what_a_host_issues_is_not_predicted(records, name):
    with pytest.raises(NotModelled, match="bound by the host"):
        predict(records[name])


def test_sequence_parallel_decode(records):
    steps, parts = [], {}
    for r in of_family(records, "sequence_parallel_decode"):
        found = {p.field: p for p in predict(r)}
        assert set(found) == {"warm", "partial", "local_reduce", "all_gather", "merge"}
        whole = found.pop("warm")
        assert whole.predicted_us == pytest.approx(sum(p.predicted_us for p in found.values()))
        steps.append(abs(error(r, whole)))
        for name, p in found.items():
            parts.setdefault(name, []).append(abs(error(r, p)))
    assert len(steps) == 8
    assert median(steps) < 0.12
    assert max(steps) < 0.20
    assert median(parts["partial"]) < 0.10
    assert median(parts["all_gather"]) < 0.10


def test_what_is_not_stated_is_a_reason(records):
    r = records["sp-decode-w2-b1-hkv8-g8-d128-s16384-x16"]
    other = r.model_copy(update={"implementation": r.implementation.model_copy(update={"block_n": 48})})
    with pytest.raises(NotModelled, match="registers not stated"):
        predict(other)
    with pytest.raises(NotModelled, match="2 SIPs cannot take part"):
        predict(r, kb.load_machine("h200"))
    without = records["all_reduce-1024"]
    with pytest.raises(NotModelled, match="kind of collective not stated"):
        predict(without.model_copy(update={"spec": without.spec.model_copy(update={"mode": None})}))


def test_figures_of_the_record_come_first(records):
    r = records["sp-decode-w2-b1-hkv8-g8-d128-s524288-x32"]
    heavy = r.model_copy(
        update={"implementation": r.implementation.model_copy(update={"registers": 72, "lds_bytes": 200_000})}
    )
    slow, fast = ({p.field: p.predicted_us for p in predict(x)}["partial"] for x in (heavy, r))
    assert slow > fast
