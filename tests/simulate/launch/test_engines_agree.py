"""The two engines give the same picosecond for every workgroup of every launch."""

from __future__ import annotations

import pytest

from kernbench.errors import InputError
from kernbench.simulate.launch import simulate_launch
from kernbench.testing.random_launch import compare_launch_engines, random_launch


@pytest.mark.parametrize("shard", range(4))  # so that workers share the 400 launches
def test_both_engines_time_random_launches_alike(shard: int) -> None:
    found = {seed: compare_launch_engines(random_launch(seed)) for seed in range(shard, 400, 4)}
    assert {seed: how for seed, how in found.items() if how != "agree"} == {}


def test_random_launches_come_to_what_they_are_for() -> None:
    launches = [random_launch(seed) for seed in range(100)]
    timelines = [simulate_launch(launch) for launch in launches]
    waves = [
        len(t.pe) > t.launch.places.slots * t.launch.places.cubes * t.launch.places.pes_per_cube for t in timelines
    ]
    waited = [(t.spent_ps[:, 3] > 0).any() for t in timelines]
    queued = [(t.spent_ps[:, 4] > 0).any() for t in timelines]
    hits = [len(t.level_nbytes) > 1 and t.level_nbytes[-1] < t.level_nbytes[0] for t in timelines]
    assert min(sum(waves), sum(waited), sum(queued), sum(hits)) > 20


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(InputError, match="unknown engine 'simpi' \\(did you mean 'simpy'\\?\\)"):
        simulate_launch(random_launch(0), "simpi")
