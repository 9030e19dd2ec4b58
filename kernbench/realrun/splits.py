"""Which records a model may be fitted to, and which it is judged on."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from kernbench.realrun.records import RunRecord

Half = Literal["train", "test"]

_ASKED_FOR = ("name", "block_m", "block_n", "waves", "stages", "splits")
"""What the one who launches a kernel chooses. What the compiler made of it (registers, shared memory) and notes stay
out, so that the same launch, recorded again with another compiler, falls into the same half."""


def launch_key(record: RunRecord) -> str:
    """Return the record's spec and the chosen part of its implementation as canonical JSON.

    Keys are sorted and unknown fields left out, so a field that is added to the schema later moves no old record.
    """
    chosen: dict[str, Any] = {
        "spec": record.spec.model_dump(mode="json", exclude_none=True),
        "implementation": record.implementation.model_dump(mode="json", exclude_none=True, include=set(_ASKED_FOR)),
    }
    return json.dumps(chosen, sort_keys=True, separators=(",", ":"))


def split_of(record: RunRecord) -> Half:
    """Say whether a record is for fitting or for judging.

    The SHA-256 of :func:`launch_key` decides: ``train`` if its first byte is below 128, else ``test``, so about half
    each. Neither the record's id nor its times, GPU or file matter: the same launch in two files falls on the same
    side.
    """
    return "train" if hashlib.sha256(launch_key(record).encode()).digest()[0] < 128 else "test"
