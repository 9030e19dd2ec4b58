"""Halves for fitting and judging: stated, stable, and blind to what is not the launch."""

import hashlib
import json

from kernbench.realrun.records import Times
from kernbench.realrun.sources import read_records, shipped_records
from kernbench.realrun.splits import launch_key, split_of

RECORDS = [r for path in shipped_records() for r in read_records(path).records]


def test_the_hash_is_the_stated_one():
    for r in RECORDS[::37]:
        key = launch_key(r)
        assert json.dumps(json.loads(key), sort_keys=True, separators=(",", ":")) == key
        assert split_of(r) == ("train" if hashlib.sha256(key.encode()).digest()[0] < 128 else "test")


def test_about_half_each():
    train = sum(split_of(r) == "train" for r in RECORDS)
    assert 0.44 < train / len(RECORDS) < 0.56


def test_the_same_launch_recorded_elsewhere_falls_on_the_same_side():
    for r in RECORDS[::29]:
        rebuilt = r.implementation.model_copy(update={"registers": 99, "lds_bytes": 1, "notes": {"a": 1}})
        again = r.model_copy(
            update={"id": "z", "source": "s", "times": Times(), "implementation": rebuilt, "grade": None}
        )
        assert split_of(again) == split_of(r)


def test_known_sides_never_move():
    sides = {r.id: split_of(r) for r in RECORDS}
    assert [sides[i] for i in ("R0007", "R0512", "R0988", "R1185", "micro-read-16MiB")] == [
        "test",
        "train",
        "train",
        "test",
        "train",
    ]
