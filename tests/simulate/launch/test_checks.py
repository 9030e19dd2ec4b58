"""A launch that is none is refused with a message, by both engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernbench.errors import InputError
from kernbench.simulate.launch import ENGINES, simulate_launch
from kernbench.simulate.launch.steps import Engines, Launch, Step, load, pause, run, wait

from .helpers import cache, group, launch, places, timed


def refused(what: Launch, message: str) -> None:
    for engine in ENGINES:
        with pytest.raises(InputError, match=message):
            simulate_launch(what, engine)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (load(-1, 10), r"class 0, step 0 of its prologue \(LOAD\): token -1, tokens are numbered from 0"),
        (wait(0, depth=0), r"\(WAIT\): depth 0 and ahead 0"),
        (wait(0, ahead=-1), r"depth 1 and ahead -1"),
        (wait(0, cause=6), r"cause 6, causes are 0 to 5"),
        (replace(pause(5)[0], ps=-5), r"\(PAUSE\): -5 ps and 0 bytes"),
        (load(0, -10), r"0 ps and -10 bytes"),
        (replace(run(0, 10, Engines.BOTH), engines=4), r"\(RUN\): engines 4"),
        (load(0, 10, stream=1), r"\(LOAD\): stream 1, but base has 1"),
        (load(0, 10, stream=0, offset=100), r"loads tiles 100 to 100 of stream 0, but tiles are 0 to 99"),
        (load(0, 10, stream=0, offset=-1), r"loads tiles -1 to -1 of stream 0"),
    ],
)
def test_a_step_out_of_its_range_is_named(step: Step, message: str) -> None:
    refused(launch(places(cache()), group(step)), message)


def test_streams_may_use_all_their_tiles_and_no_more() -> None:
    body = [load(0, 10, stream=0, offset=2, depth=2, ahead=1), wait(0, depth=2)]
    what = launch(places(cache()), group(body=body, iterations=5), each=[0, 0], base=[[3], [0]], tiles=10)
    assert timed(what).makespan_ps > 0  # 3 + 2 + 4 is the last
    refused(
        replace(what, tiles=9), r"step 0 of its body \(LOAD\): loads tiles 3 to 9 of stream 0, but tiles are 0 to 8"
    )
    refused(replace(what, base=np.array([[3], [-4]])), r"loads tiles -1 to 9")


def test_a_class_that_does_not_occur_may_name_any_tile() -> None:
    assert timed(launch(places(), group(*pause(5)), group(load(0, 10, stream=0, offset=10**6)))).makespan_ps == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_of": np.array([1])}, "class_of names classes 1 to 1, classes are 0 to 0"),
        ({"base": np.zeros((2, 1), np.int64)}, r"base has shape \(2, 1\): it needs a row for each of the 1 workgroups"),
        ({"first_level": 2}, "first_level is 2: there are 2 levels, so -1 to 1"),
        ({"dirty_bytes": -1}, "cannot be negative"),
        ({"classes": (group(iterations=-1),)}, "class 0: -1 iterations"),
        ({"places": places(slots=0)}, "places: slots is 0, it must be at least 1"),
        ({"places": replace(places(), levels=())}, "levels are missing"),
        ({"places": places(cache(latency_ps=-1))}, "no negative figure"),
        ({"places": places(start=-1)}, "is negative"),
    ],
)
def test_a_launch_out_of_its_range_is_refused(change: dict[str, Any], message: str) -> None:
    refused(replace(launch(places(cache()), group(*pause(5))), **change), message)


def test_a_launch_needs_a_workgroup() -> None:
    with pytest.raises(InputError, match="a launch needs at least one workgroup"):
        launch(places(), group(), each=[])
