"""The critical path is the same walked plain and compiled."""

from __future__ import annotations

import numpy as np

import kernbench as kb
from kernbench.errors import DeadlockError
from kernbench.simulate import plain
from kernbench.simulate.path import critical_path
from kernbench.testing import random_program

_COLUMNS = ("start_ps", "end_ps", "cause", "pe", "command", "place")


def timelines():
    for seed in range(500, 530):
        try:
            yield kb.simulate(random_program(seed).record())
        except DeadlockError:
            continue


def test_plain_and_compiled_walks_agree(monkeypatch):
    compared = 0
    for timeline in timelines():
        monkeypatch.setattr(plain, "_is_compiled", lambda function: False)
        walked = critical_path(timeline)
        monkeypatch.setattr(plain, "_is_compiled", lambda function: True)
        compiled = critical_path(timeline)
        for name in _COLUMNS:
            np.testing.assert_array_equal(getattr(walked, name), getattr(compiled, name))
        assert walked.edges == compiled.edges
        compared += 1
    assert compared > 20


def test_large_runs_are_compiled():
    from kernbench.simulate import walk

    assert plain.runnable(walk.walk, plain.SMALL + 1) is walk.walk
