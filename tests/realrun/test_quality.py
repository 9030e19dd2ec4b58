"""Which measured times say nothing of a kernel: those that the host's pace shows in, and no others."""

import pytest

from kernbench.realrun.compare import compare
from kernbench.realrun.predict import predict
from kernbench.realrun.quality import MOST_BEYOND_GRAPH_US, MOST_SPREAD, unreliable
from kernbench.realrun.records import Quantiles, Times
from kernbench.realrun.sources import read_records, shipped_records

from .made import decode


def with_times(**times):
    return decode().model_copy(update={"times": Times(**times)})


def spread(median, share):
    return Quantiles(median=median, p10=median, p90=median * share)


@pytest.mark.parametrize("field", ["cold", "partial", "reduce"])
def test_a_wide_spread_of_single_launches_is_the_host(field):
    assert unreliable(with_times(**{field: spread(20.0, MOST_SPREAD * 0.999)})) == {}
    (reason,) = unreliable(with_times(**{field: spread(20.0, MOST_SPREAD * 1.001)})).values()
    assert reason.startswith("host-bound")


@pytest.mark.parametrize("field", ["warm", "cold_graph", "published"])
def test_what_was_replayed_from_a_graph_or_published_is_never_left_out(field):
    assert unreliable(with_times(**{field: spread(20.0, 3.0)})) == {}


def test_a_launch_that_takes_much_longer_than_in_a_graph_was_waited_for():
    graph = Quantiles(median=50.0)
    slow = Quantiles(median=50.0 + MOST_BEYOND_GRAPH_US + 0.1)
    fine = Quantiles(median=50.0 + MOST_BEYOND_GRAPH_US - 0.1)
    assert set(unreliable(with_times(cold=slow, cold_graph=graph))) == {"cold"}
    assert unreliable(with_times(cold=fine, cold_graph=graph)) == {}
    # the graph times both launches of a decode: the second alone says nothing against it
    assert unreliable(with_times(reduce=slow, cold_graph=graph)) == {}
    assert unreliable(with_times(cold=slow)) == {}


def test_without_quantiles_nothing_is_suspected():
    assert unreliable(with_times(cold=Quantiles(median=3.0))) == {}


def test_such_times_are_listed_and_not_compared():
    mixed = with_times(cold=spread(20.0, 2.0), warm=Quantiles(median=20.0))
    found = compare([mixed], predict)
    assert [r.field for r in found.rows] == ["warm"]
    assert [(s.id, s.reason.split(":")[0]) for s in found.skipped] == [("d:cold", "host-bound")]


def test_most_of_what_was_recorded_live_is_reliable():
    live = [r for path in shipped_records() for r in read_records(path).records if r.evidence == "live"]
    single = sum(getattr(r.times, f) is not None for r in live for f in ("cold", "partial", "reduce"))
    assert 0 < sum(len(unreliable(r)) for r in live) < single / 3
