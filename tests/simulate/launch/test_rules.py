"""The rules of time of a launch, each in a launch whose picoseconds were worked out by hand.

A byte takes a picosecond everywhere, the memory's latency is 500 ps and a cache's 50 ps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernbench.simulate.launch import simulate_launch
from kernbench.simulate.launch.steps import (
    ENGINE_WAIT,
    LOAD_WAIT,
    MATRIX,
    START,
    SYNC,
    VECTOR,
    Engines,
    Step,
    load,
    pause,
    run,
    store,
    turn_ps,
    wait,
    work,
)
from kernbench.simulate.launch.timeline import LaunchTimeline
from kernbench.testing.random_launch import random_launch

from .helpers import BYTE_A_PS, MEMORY, cache, group, launch, places, timed


def fetch(token: int = 0, nbytes: int = 100, offset: int = 0) -> tuple[Step, Step]:
    """Load a tile and wait for it."""
    return load(token, nbytes, stream=0, offset=offset), wait(token)


def later(ps: int) -> tuple[Step, ...]:
    return pause(ps)


def ends(timeline: LaunchTimeline) -> list[int]:
    return timeline.end_ps.tolist()


# ---------------------------------------------------------------- one workgroup
def test_a_workgroup_starts_loads_and_works() -> None:
    steps = (
        load(0, 100),
        wait(0),
        *work(1, 70, Engines.MATRIX, MATRIX),
        *pause(9),
        *work(1, 30, Engines.VECTOR, VECTOR),
    )
    timeline = timed(launch(places(start=5), group(*steps, after=[store(40)])))
    # start 5, turns on port and memory 100, latency 500, matrix 70, pause 9, vector 30; nobody waits for the store
    assert ends(timeline) == [5 + 100 + 500 + 70 + 9 + 30]
    spent = timeline.spent_ps[0]
    assert spent[[START, LOAD_WAIT, MATRIX, SYNC, VECTOR, ENGINE_WAIT]].tolist() == [5, 600, 70, 9, 30, 0]
    assert timeline.engine_busy_ps.tolist() == [70, 30]
    assert timeline.level_nbytes.tolist() == [140]
    assert timeline.level_busy_ps.tolist() == [140]


def test_a_body_of_no_iterations_is_left_out() -> None:
    body = [load(0, 100), wait(0), *pause(1000)]
    assert ends(timed(launch(places(), group(*pause(3), body=body, iterations=0, after=pause(4))))) == [7]


def test_a_body_without_steps_takes_no_time() -> None:
    assert ends(timed(launch(places(), group(*pause(3), body=[], iterations=10**6, after=pause(4))))) == [7]


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_last_tile_may_be_ragged(iterations: int) -> None:
    body = [load(0, 100, last=30), wait(0)]
    assert ends(timed(launch(places(), group(body=body, iterations=iterations)))) == [600 * (iterations - 1) + 530]


def test_a_last_tile_that_the_prologue_asks_for_is_ragged_too() -> None:
    first = [load(0, 100, depth=2, ahead=i, last=30) for i in range(2)]
    timeline = timed(launch(places(), group(*first, body=[wait(0, depth=2)], iterations=2)))
    assert timeline.level_nbytes.tolist() == [130]
    assert ends(timeline) == [630]


def test_a_turn_takes_whole_picoseconds_and_at_least_one() -> None:
    assert [turn_ps(n, 3 * BYTE_A_PS) for n in (0, 1, 3, 4)] == [1, 1, 1, 2]


def test_a_wait_for_a_token_that_nobody_asked_for_is_over_at_once() -> None:
    assert ends(timed(launch(places(), group(wait(3), *pause(2))))) == [2]


# ---------------------------------------------------------------- engines
def test_an_engine_serves_first_come_first_served() -> None:
    long, short = (group(*later(x), *work(0, ps, Engines.MATRIX, MATRIX)) for x, ps in ((1, 100), (0, 10)))
    timeline = timed(launch(places(slots=3), long, short, each=[0, 0, 1]))
    assert ends(timeline) == [10 + 100, 10 + 200, 10]  # the third came 1 ps before the others
    assert timeline.spent_ps[:, ENGINE_WAIT].tolist() == [9, 109, 0]
    assert timeline.spent_ps[:, MATRIX].tolist() == [100, 100, 10]


def test_workgroups_that_come_together_take_turns_by_number() -> None:
    slow, fast = (group(*later(a), *later(b), *work(0, 50, Engines.VECTOR, VECTOR)) for a, b in ((3, 7), (8, 2)))
    assert ends(timed(launch(places(slots=2), slow, fast, each=[0, 1]))) == [60, 110]
    assert ends(timed(launch(places(slots=2), slow, fast, each=[1, 0]))) == [60, 110]


def test_matrix_and_vector_work_side_by_side_unless_a_run_takes_both() -> None:
    def two(first: Engines, second: Engines) -> list[int]:
        classes = [group(*work(0, 100, engines, VECTOR)) for engines in (first, second)]
        return ends(timed(launch(places(slots=2), *classes, each=[0, 1])))

    assert two(Engines.MATRIX, Engines.VECTOR) == [100, 100]
    assert two(Engines.MATRIX, Engines.BOTH) == [100, 200]
    assert two(Engines.BOTH, Engines.VECTOR) == [100, 200]


def test_a_run_waits_behind_one_that_waits_for_both_engines() -> None:
    kinds = [group(*work(0, 100, engines, MATRIX)) for engines in (Engines.VECTOR, Engines.BOTH, Engines.MATRIX)]
    # the matrix engine is idle for the first 100 ps, but the second asked for it before the third
    assert ends(timed(launch(places(slots=3), *kinds, each=[0, 1, 2]))) == [100, 200, 300]


def test_a_run_that_nobody_waits_for_still_occupies_its_engine() -> None:
    leaves, stays = group(run(0, 100, Engines.MATRIX)), group(*work(0, 10, Engines.MATRIX, MATRIX))
    assert ends(timed(launch(places(slots=2), leaves, stays, each=[0, 1]))) == [0, 110]


# ---------------------------------------------------------------- places
def test_places_make_waves() -> None:
    timeline = timed(launch(places(pes=2, slots=2), group(*pause(100)), each=[0] * 10))
    assert timeline.begin_ps.tolist() == [0] * 4 + [100] * 4 + [200] * 2
    assert timeline.makespan_ps == 300
    assert timeline.time_by_cause["idle"] == pytest.approx(1 - 10 * 100 / (4 * 300))


def test_workgroups_are_handed_out_in_order_one_each_interval() -> None:
    timeline = timed(launch(places(pes=3, dispatch=10, start=2), group(*pause(100)), each=[0] * 5))
    assert timeline.begin_ps.tolist() == [0, 10, 20, 102, 112]  # as places become free, at 102 and 112
    assert timeline.pe.tolist() == [0, 1, 2, 0, 1]


def test_places_that_are_free_together_are_filled_one_each_interval() -> None:
    short, long = group(*pause(100)), group(*pause(90))
    timeline = timed(launch(places(pes=2, dispatch=10), short, long, each=[0, 1, 0, 0]))
    assert timeline.begin_ps.tolist() == [0, 10, 100, 110]  # both of the first end at 100


def test_a_place_is_taken_before_its_workgroup_is_handed_out() -> None:
    timeline = timed(launch(places(pes=2, slots=2, dispatch=100), group(*pause(10)), each=[0] * 5))
    assert timeline.begin_ps.tolist() == [0, 100, 200, 300, 400]
    assert timeline.pe.tolist() == [0, 1, 0, 1, 0]  # the first four places were given away at 0, the fifth at 10


def test_cubes_are_served_in_turn() -> None:
    timeline = timed(launch(places(cubes=3, pes=2), group(*pause(100)), each=[0] * 6))
    assert timeline.pe.tolist() == [0, 2, 4, 1, 3, 5]


def test_a_workgroup_of_a_full_cube_waits_and_others_pass_it() -> None:
    long, short = group(*pause(100)), group(*pause(10))
    timeline = timed(launch(places(cubes=2), long, short, each=[0, 1, 1, 1, 1, 1]))
    assert timeline.pe.tolist() == [0, 1] * 3
    assert timeline.begin_ps.tolist() == [0, 0, 100, 10, 110, 20]


def test_the_pe_with_the_fewest_workgroups_is_next() -> None:
    timeline = timed(launch(places(pes=3, slots=2), group(*pause(100)), each=[0] * 5))
    assert timeline.pe.tolist() == [0, 1, 2, 0, 1]
    # both workgroups of PE 1 end at 10: their places are the only ones that are free
    long, short = group(*pause(100)), group(*pause(10))
    timeline = timed(launch(places(pes=3, slots=2), long, short, each=[0, 1, 0, 0, 1, 0, 0, 0]))
    assert timeline.pe.tolist() == [0, 1, 2, 0, 1, 2, 1, 1]


# ---------------------------------------------------------------- loads
def test_loads_share_the_memory_and_their_latencies_overlap() -> None:
    timeline = timed(launch(places(pes=3), group(load(0, 100), wait(0)), each=[0] * 3))
    assert ends(timeline) == [600, 700, 800]


def test_loads_of_one_pe_share_its_port() -> None:
    wide = replace(MEMORY, bandwidth=100 * BYTE_A_PS)
    timeline = timed(launch(places(slots=3, memory=wide), group(load(0, 100), wait(0)), each=[0] * 3))
    assert ends(timeline) == [600, 700, 800]
    timeline = timed(launch(places(pes=3, memory=wide), group(load(0, 100), wait(0)), each=[0] * 3))
    assert ends(timeline) == [600, 600, 600]


def test_a_tile_that_a_cache_has_comes_after_its_latency() -> None:
    timeline = timed(launch(places(cache()), group(*fetch(), *later(20), *fetch())))
    assert ends(timeline) == [600 + 20 + 150]
    assert timeline.level_nbytes.tolist() == [200, 100]


def test_bytes_that_nobody_shares_are_not_kept() -> None:
    timeline = timed(launch(places(cache()), group(load(0, 100), wait(0), load(0, 100), wait(0))))
    assert ends(timeline) == [1200]


def test_a_tile_that_is_on_its_way_is_not_fetched_again() -> None:
    first, second = group(*fetch()), group(*later(30), *fetch())
    timeline = timed(launch(places(cache(), pes=2), first, second, each=[0, 1]))
    assert ends(timeline) == [600, 600]  # the second would have it at 30 + 170 if it were there
    assert timeline.level_nbytes.tolist() == [200, 100]


def test_a_cache_of_a_cube_is_its_own() -> None:
    first, second = group(*fetch()), group(*later(1000), *fetch())
    for own, end in ((True, 1600), (False, 1150)):
        timeline = timed(launch(places(cache(per_cube=own), cubes=2), first, second, each=[0, 1]))
        assert ends(timeline) == [600, end]


def test_the_first_cache_that_has_a_tile_answers() -> None:
    near, far = cache(per_cube=True), replace(cache(latency_ps=200), name="far")
    first, second = group(*fetch(), *fetch()), group(*later(1000), *fetch(), *fetch())
    timeline = timed(launch(places(near, far, cubes=2), first, second, each=[0, 1]))
    assert ends(timeline) == [600 + 150, 1000 + 300 + 150]
    assert timeline.level_nbytes.tolist() == [400, 200, 100]


def test_a_cache_forgets_the_tile_that_was_used_longest_ago() -> None:
    def end(*tiles: int) -> int:
        steps = [step for tile in tiles for step in fetch(offset=tile)]
        return timed(launch(places(cache(capacity=200)), group(*steps))).makespan_ps

    hit, miss = 150, 600
    assert end(0, 1, 0, 1) == 2 * miss + 2 * hit
    assert end(0, 1, 2, 0) == 4 * miss  # 2 drove 0 out
    assert end(0, 1, 0, 2, 0) == 3 * miss + 2 * hit  # 2 drove 1 out: 0 was used since
    assert end(0, 1, 0, 2, 1) == 4 * miss + hit


def test_a_cache_does_not_notice_what_a_nearer_one_answers() -> None:
    near, far = cache(capacity=100, per_cube=True), replace(cache(capacity=200, latency_ps=200), name="far")
    steps = [step for tile in (0, 0, 1, 2, 0) for step in fetch(offset=tile)]
    # 0, 1 and 2 come from the memory; the second 0 is a hit in the near cache, so in the far one 0 is the oldest
    assert ends(timed(launch(places(near, far), group(*steps)))) == [600 + 150 + 600 + 600 + 600]


def test_a_cache_counts_a_tile_as_large_as_it_came() -> None:
    small, large = load(0, 10, stream=0, offset=0), load(0, 100, stream=0, offset=0)
    other = [step for tile in (1, 2) for step in fetch(offset=tile)]
    steps = (small, wait(0), large, wait(0), *other, load(0, 10, stream=0, offset=1), wait(0))
    # 10 + 100 + 100 bytes in 200: the third tile drives out the first, the second stays
    assert ends(timed(launch(places(cache(capacity=200)), group(*steps)))) == [510 + 150 + 600 + 600 + 60]


def test_a_warm_cache_answers_for_new_tiles() -> None:
    twice = group(*fetch(), *fetch())
    timeline = timed(launch(places(cache()), twice, first_level=0))
    assert ends(timeline) == [300]
    assert timeline.level_nbytes.tolist() == [200, 0]


def test_a_warm_cache_does_not_answer_for_what_it_forgot() -> None:
    steps = [step for tile in (0, 1, 0) for step in fetch(offset=tile)]
    timeline = timed(launch(places(cache(capacity=100)), group(*steps), first_level=0))
    assert ends(timeline) == [150 + 150 + 600]


def test_dirty_bytes_are_written_back_first() -> None:
    steps = [step for tile in range(3) for step in fetch(offset=tile)]
    timeline = timed(launch(places(), group(*steps), dirty_bytes=150))
    # 100 of them go with the first load, 50 with the second
    assert ends(timeline) == [700 + 650 + 600]
    assert timeline.level_busy_ps.tolist() == [200 + 150 + 100]
    assert timeline.level_nbytes.tolist() == [300]


def test_stores_take_the_memorys_time() -> None:
    writes, reads = group(store(1000)), group(load(0, 100), wait(0))
    assert ends(timed(launch(places(pes=2), writes, reads, each=[0, 1]))) == [0, 1600]


# ---------------------------------------------------------------- pipelines
def pipeline(ahead: int, work_ps: int, iterations: int = 6) -> int:
    """Makespan of a loop that asks for its tiles ``ahead`` iterations before it works on them."""
    depth = ahead + 1
    first = [load(0, 100, stream=0, depth=depth, ahead=i) for i in range(ahead)]
    body = [load(0, 100, stream=0, depth=depth, ahead=ahead), wait(0, depth=depth)]
    body += work(depth, work_ps, Engines.MATRIX, MATRIX)
    return timed(launch(places(), group(*first, body=body, iterations=iterations))).makespan_ps


def test_loads_that_are_asked_for_in_time_cost_nothing() -> None:
    # a load takes 600 ps, 100 of them a turn
    assert pipeline(0, 300) == 6 * (600 + 300)
    assert pipeline(1, 600) == 600 + 6 * 600  # asked for one iteration before: hidden by 600 ps of work
    # and not by less: tiles 2 and 4 are asked for as work on tiles 1 and 3 begins, and come after it ends; 3 and 5 are
    # asked for before these waits, and tile 1 at the beginning
    assert pipeline(1, 599) == 600 + 6 * 599 + 2 * 1
    assert pipeline(1, 500) == 600 + 6 * 500 + 2 * 100
    assert pipeline(2, 300) == 600 + 6 * 300  # two iterations before: by 2 * 300
    assert pipeline(5, 120) == 600 + 6 * 120


def test_a_pipeline_is_bound_by_the_bandwidth_in_the_end() -> None:
    assert pipeline(8, 10, iterations=50) == 50 * 100 + 500 + 10


# ---------------------------------------------------------------- laws
@pytest.fixture(scope="module")
def timelines() -> list[LaunchTimeline]:
    return [simulate_launch(random_launch(seed)) for seed in range(1000, 1100)]


def test_no_part_moves_more_than_its_bandwidth(timelines: list[LaunchTimeline]) -> None:
    for timeline in timelines:
        places = timeline.launch.places
        for level, nbytes, busy in zip(places.levels, timeline.level_nbytes, timeline.level_busy_ps, strict=True):
            fastest = max(level.bandwidth, places.store_bandwidth if level is places.levels[-1] else 0)
            assert busy >= nbytes * 1e12 / fastest * (1 - 1e-6)


def test_waiting_for_all_bytes_takes_at_least_their_time() -> None:
    each = [0] * 40
    steps = (load(0, 100), wait(0))
    timeline = timed(launch(places(pes=4, slots=2), group(*steps), each=each))
    assert timeline.makespan_ps >= 40 * 100
    assert timeline.busy["memory"] == 4000 / timeline.makespan_ps


def test_parts_work_no_longer_than_there_is_time() -> None:
    for seed in range(100):
        what = random_launch(seed)
        pes = what.places.cubes * what.places.pes_per_cube
        patient = group(load(0, 64), wait(0), *work(1, 500, Engines.BOTH, MATRIX))
        timeline = timed(replace(what, classes=(patient,), class_of=np.zeros_like(what.class_of)))
        assert max(timeline.busy.values()) <= 1
        assert (timeline.engine_busy_ps == 500 * len(what.class_of)).all()
        assert timeline.makespan_ps * pes >= 500 * len(what.class_of)


def test_the_time_of_a_workgroup_is_what_it_was_spent_on(timelines: list[LaunchTimeline]) -> None:
    for timeline in timelines:
        assert (timeline.spent_ps >= 0).all()
        assert np.array_equal(timeline.spent_ps.sum(axis=1), timeline.end_ps - timeline.begin_ps)


def test_a_pe_holds_no_more_than_it_has_places_for(timelines: list[LaunchTimeline]) -> None:
    for timeline in timelines:
        slots = timeline.launch.places.slots
        for pe in np.unique(timeline.pe):
            mine = timeline.pe == pe
            for moment in timeline.begin_ps[mine]:
                assert ((timeline.begin_ps[mine] <= moment) & (timeline.end_ps[mine] > moment)).sum() <= slots


def test_workgroups_of_a_cube_begin_in_launch_order_an_interval_apart(timelines: list[LaunchTimeline]) -> None:
    for timeline in timelines:
        places = timeline.launch.places
        for cube in range(places.cubes):
            assert (np.diff(timeline.begin_ps[cube :: places.cubes]) >= places.dispatch_ps).all()
        assert (np.diff(np.sort(timeline.begin_ps)) >= places.dispatch_ps).all()


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_bandwidth_is_bytes_in_flight_by_latency(in_flight: int) -> None:
    """Little's law, while the bytes in flight are fewer than bandwidth times latency."""
    body = [load(0, 10), wait(0)]
    slow = replace(MEMORY, latency_ps=10_000)
    timeline = timed(launch(places(pes=in_flight, memory=slow), group(body=body, iterations=30), each=[0] * in_flight))
    reached = timeline.level_nbytes[0] / timeline.makespan_ps
    assert reached == pytest.approx(in_flight * 10 / 10_000, rel=0.01)


def test_the_same_launch_takes_the_same_time() -> None:
    first, second = (simulate_launch(random_launch(7)) for _ in range(2))
    assert np.array_equal(first.end_ps, second.end_ps)
    assert np.array_equal(first.spent_ps, second.spent_ps)
