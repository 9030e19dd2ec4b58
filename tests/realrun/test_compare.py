"""Predictions held against measurements: statistics, the JSON contract, what is left out, the order of launches."""

import json
import math

import numpy as np
import pytest

from kernbench.errors import InputError, SpecError
from kernbench.realrun.compare import Comparison, compare, measured_times, write_comparison
from kernbench.realrun.compare_plot import plot_comparison
from kernbench.realrun.prediction import NotModelled, Prediction
from kernbench.realrun.records import Device, Implementation, Quantiles, RunRecord, RunSpec, Times
from kernbench.realrun.screen import print_comparison


def record(name, us=100.0, family="prefill", gpu="MI355X", grade="A", splits=None, source="s", s_kv=64, **times):
    measured = {field: Quantiles(median=value) for field, value in (times or {"published": us}).items()}
    return RunRecord(
        id=name, family=family, spec=RunSpec(batch=1, s_kv=s_kv),
        implementation=Implementation(name="k", splits=splits),
        device=Device(gpu=gpu, arch="gfx950"), times=Times(**measured), evidence="recorded", grade=grade, source=source,
    )  # fmt: skip


def says(*pairs):
    """Predict by id: microseconds of the one time, or an error to raise."""
    table = dict(pairs)

    def predict(r):
        answer = table[r.id]
        if isinstance(answer, Exception):
            raise answer
        (field,) = measured_times(r)
        return [Prediction(field, answer, 10.0, "matrix engine", "compute")]

    return predict


def test_statistics_are_those_of_numpy():
    rng = np.random.default_rng(0)
    measured, predicted = rng.uniform(10, 1000, 17), rng.uniform(10, 1000, 17)
    records = [record(f"r{i}", us) for i, us in enumerate(measured)]
    found = compare(records, says(*((f"r{i}", us) for i, us in enumerate(predicted))))
    errors = found.families["prefill"]
    signed = predicted / measured - 1
    assert errors.n == 17
    assert errors.median == pytest.approx(np.median(abs(signed)))
    assert errors.mean == pytest.approx(np.mean(abs(signed)))
    assert errors.p90 == pytest.approx(np.percentile(abs(signed), 90))
    assert errors.bias == pytest.approx(np.mean(signed))
    assert errors.roofline_median == pytest.approx(np.median(abs(10 / measured - 1)))
    assert errors.gpu == "MI355X"
    assert [r.error for r in found.rows] == pytest.approx(abs(signed))
    assert [math.exp(r.log_ratio) for r in found.rows] == pytest.approx(predicted / measured)
    assert sum(half.n for half in found.halves.values()) == 17


def test_by_hand():
    found = compare([record("a", 100), record("b", 200)], says(("a", 110.0), ("b", 100.0))).families["prefill"]
    assert (found.median, found.mean, found.bias) == pytest.approx((0.3, 0.3, -0.2))
    assert found.p90 == pytest.approx(0.46)
    assert found.roofline_median == pytest.approx((0.9 + 0.95) / 2)


def test_the_json_contract(tmp_path):
    records = [record("a"), record("b", gpu="MI300X"), record("c", family="mla_decode"), record("d")]
    found = compare(records, says(("a", 99.0), ("b", 99.0), ("c", 99.0), ("d", NotModelled("no window"))))
    write_comparison(found, tmp_path / "c.json")
    data = json.loads((tmp_path / "c.json").read_text())
    assert set(data) == {"families", "kept_aside", "rows", "skipped", "ordering", "halves"}
    assert set(data["families"]) == {"prefill@MI355X", "prefill@MI300X", "mla_decode"}
    assert set(data["kept_aside"]) <= set(data["families"])
    for errors in (*data["families"].values(), *data["kept_aside"].values()):
        assert set(errors) == {"gpu", "n", "median", "mean", "p90", "bias", "roofline_median"}
    assert {"id", "measured_us", "predicted_us", "roofline_us", "reason"} <= set(data["rows"][0])
    assert "launch" not in data["rows"][0]
    assert "comparable" not in data["rows"][0]
    assert data["skipped"] == [{"id": "d", "reason": "no window"}]
    assert set(data["ordering"]) == {"pairs", "right", "tied", "share"}
    assert data["ordering"]["share"] is None


def test_rows_that_cannot_be_compared_are_listed_with_the_reason():
    records = [
        record("good"), record("unmodelled"), record("bad"), record("c", grade="C"), record("empty"), record("good"),
        record("none", **{}).model_copy(update={"times": Times(), "tflops": 3.0}),
    ]  # fmt: skip

    def predict(r):
        if r.id == "unmodelled":
            raise NotModelled("no such kernel")
        if r.id == "bad":
            raise SpecError("s_kv: too long")
        return [] if r.id == "empty" else [Prediction("published", 1.0, 1.0, "x", "y")]

    found = compare(records, predict, skipped=[("early", "no time")])
    assert [r.id for r in found.rows] == ["good"]
    reasons = {s.id: s.reason for s in found.skipped}
    assert reasons == {
        "early": "no time", "unmodelled": "no such kernel", "bad": "SpecError: s_kv: too long",
        "c": "grade C: never for an error statistic", "empty": "nothing predicted",
        "good": "a record of this id came before",
        "none": "no measured time: only TFLOPS published, by a convention not known",
    }  # fmt: skip


def test_a_bug_of_the_model_is_not_hidden():
    def predict(r):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compare([record("a")], predict)
    for us in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="no positive time"):
            Prediction("cold", us, 1.0, "", "")


def test_several_times_of_a_record_are_rows_of_their_own():
    r = record("a", cold=100.0, warm=80.0)
    r = r.model_copy(update={"times": r.times.model_copy(update={"parts": {"merge": 2.0, "warm": 1.0}})})
    names = ("cold", "warm", "merge", "partial")
    found = compare([r], lambda _: [Prediction(name, 40.0, 1.0, "", "") for name in names])
    assert [(row.id, row.field, row.measured_us) for row in found.rows] == [
        ("a:cold", "cold", 100.0), ("a:warm", "warm", 80.0), ("a:merge", "merge", 2.0),
    ]  # fmt: skip
    assert [(s.id, s.reason) for s in found.skipped] == [("a:partial", "predicted, but no partial time was measured")]


def test_the_faster_of_two_launches():
    def order(measured, predicted, **more):
        records = [record(f"r{i}", us, splits=i + 1, **more) for i, us in enumerate(measured)]
        return compare(records, says(*((f"r{i}", float(us)) for i, us in enumerate(predicted)))).ordering

    assert order([100, 200], [1, 2]).share == 1
    assert order([100, 200], [2, 1]).share == 0
    tied = order([100, 200], [1, 1])
    assert (tied.pairs, tied.right, tied.tied) == (1, 0, 1)
    assert order([100, 110], [2, 1]).pairs == 0  # not more than 10 %
    assert order([100, 110.1], [2, 1]).pairs == 1
    three = order([100, 200, 300], [1, 3, 2])
    assert (three.pairs, three.right) == (3, 2)


def test_rows_kept_aside_have_statistics_of_their_own_under_the_same_names():
    records = [record(f"r{i}", 100 + i, splits=i + 1, gpu=("MI355X", "MI300X")[i > 0]) for i in range(30)]
    found = compare(records, says(*((r.id, 120.0) for r in records)))
    sides = {r.id: r.split for r in found.rows}
    for name, gpu in (("prefill@MI355X", "MI355X"), ("prefill@MI300X", "MI300X")):
        mine = [r.error for r in found.rows if r.gpu == gpu and sides[r.id] == "test"]
        assert (name in found.kept_aside) == bool(mine)
        if mine:
            assert found.kept_aside[name].n == len(mine)
            assert found.kept_aside[name].median == pytest.approx(np.median(mine))
    assert sum(e.n for e in found.kept_aside.values()) == found.halves["test"].n


@pytest.mark.parametrize("differs", [{"source": "t"}, {"gpu": "MI300X"}, {"s_kv": 65}, {"splits": 1}])
def test_launches_that_differ_in_more_or_in_nothing_are_no_pair(differs):
    records = [record("a", 100, splits=1), record("b", 200, **({"splits": 2} | differs))]
    assert compare(records, says(("a", 1.0), ("b", 2.0))).ordering.pairs == 0


def test_selection_by_family_and_gpu():
    records = [record("a", gpu="NVIDIA H200"), record("b", family="other"), record("c", gpu=None)]
    predict = says(("a", 1.0), ("b", 1.0), ("c", 1.0))

    def ids(**chosen):
        return [r.id for r in compare(records, predict, **chosen).rows]

    assert ids(families=["prefill"]) == ["a", "c"]
    assert ids(gpu="h200") == ids(gpu="NVIDIA H200") == ["a"]
    assert ids(gpu="gfx950") == ["a", "b", "c"]
    with pytest.raises(InputError, match="did you mean 'prefill'"):
        ids(families=["prefil"])
    with pytest.raises(InputError, match="no run on 'H20'"):
        ids(gpu="H20")


def test_progress_counts_to_the_end():
    seen = []
    compare([record("a"), record("c", grade="C")], says(("a", 1.0)), progress=lambda *at: seen.append(at))
    assert seen == [(1, 2), (2, 2)]


def test_what_is_printed_and_drawn(tmp_path, capsys):
    records = [record(f"r{i}", 100 + i, splits=1 + i, family=("prefill", "other")[i % 2]) for i in range(30)]
    found = compare([*records, record("x")], says(*((r.id, 120.0) for r in records), ("x", NotModelled("no [model]"))))
    print_comparison(found)
    shown = capsys.readouterr().out
    for part in ("prefill", "other", "worst 10 of 30", "matrix engine", "skipped 1", "no [model]", "roofline's median"):
        assert part in shown
    plot_comparison(found, tmp_path / "c.png", "a title")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_compared_is_printed_drawn_and_written(tmp_path, capsys):
    found = compare([record("x")], says(("x", NotModelled("no"))))
    print_comparison(found)
    assert "nothing was compared" in capsys.readouterr().out
    plot_comparison(found, tmp_path / "c.png")
    write_comparison(found, tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["families"] == {}
    assert isinstance(found, Comparison)
