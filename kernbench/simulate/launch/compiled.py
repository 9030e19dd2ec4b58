"""From a launch to the arrays of the compiled core, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernbench.simulate.launch.checks import check
from kernbench.simulate.launch.core import simulate_launch
from kernbench.simulate.launch.steps import CAUSES, Kind, Launch, Places, Step, byte_time, parts
from kernbench.simulate.launch.timeline import LaunchTimeline

_COLUMNS = (
    ("kind", np.int8), ("token", np.int64), ("depth", np.int64), ("ahead", np.int64), ("ps", np.int64),
    ("engines", np.int8), ("nbytes", np.int64), ("last_nbytes", np.int64), ("stream", np.int64), ("offset", np.int64),
    ("cause", np.int64),
)  # fmt: skip


def run_compiled(launch: Launch, trusted: bool = False) -> LaunchTimeline:
    """Simulate a launch with the compiled core; a ``trusted`` one is not checked.

    Raises
    ------
    InputError
        If the launch is none: see :func:`~kernbench.simulate.launch.checks.check`.
    """
    if not trusted:
        check(launch)
    places, n = launch.places, len(launch.class_of)
    steps: list[Step] = []
    part_start = np.zeros((len(launch.classes), 4), np.int64)
    for c, group in enumerate(launch.classes):
        for p, part in enumerate(parts(group)):
            part_start[c, p] = len(steps)
            steps += part
        part_start[c, 3] = len(steps)
    columns = {name: np.array([getattr(s, name) for s in steps], kind) for name, kind in _COLUMNS}
    turns, pieces = _turns(places, columns)
    levels = places.levels
    memory = byte_time(levels[-1].bandwidth)
    # each cache has a row of a table; the memory, the last level, has none
    rows = [places.cubes if level.per_cube else 1 for level in levels[:-1]]
    first_cache = np.cumsum([0, *rows])
    table = np.zeros((first_cache[-1], max(launch.tiles, 1), 4), np.int64)
    begin, end, pe = (np.zeros(n, np.int64) for _ in range(3))
    spent = np.zeros((n, len(CAUSES)), np.int64)
    level_busy, level_bytes = np.zeros(len(levels), np.int64), np.zeros(len(levels), np.int64)
    engine_busy = np.zeros(2, np.int64)
    first = launch.first_level if launch.first_level >= 0 else len(levels) - 1
    arguments: tuple[Any, ...] = (
        places.cubes, places.pes_per_cube, places.slots, places.dispatch_ps, places.start_ps,
        np.array([x.per_cube for x in levels]), np.array([x.latency_ps for x in levels], np.int64),
        np.array([x.capacity for x in levels], np.int64), first_cache, table, first, launch.dirty_bytes,
        *memory, levels[-1].channels, *columns.values(), turns, pieces, part_start,
        np.array([g.iterations for g in launch.classes], np.int64), launch.class_of.astype(np.int64),
        launch.base.astype(np.int64), np.zeros(max(launch.tiles, 1), np.bool_), max(g.tokens for g in launch.classes),
        begin, end, pe, spent, level_busy, level_bytes, engine_busy,
    )  # fmt: skip
    simulate_launch(*arguments)
    return LaunchTimeline(launch, "compiled", begin, end, pe, spent, level_busy, level_bytes, engine_busy)


def _turns(places: Places, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return how long each step takes at each level and (last) at the port, and into how many pieces memory cuts it.

    Both for the whole size and the ragged one; at the memory it is the time of a piece (see
    :func:`~kernbench.simulate.launch.steps.piece_ps`).
    """
    nbytes = np.stack([columns["nbytes"], np.maximum(columns["last_nbytes"], 0)], axis=1)
    rates = [byte_time(b) for b in (*(level.bandwidth for level in places.levels), places.port_bandwidth)]
    turns = np.stack([_turn(nbytes, *rate) for rate in rates], axis=-1)
    memory = places.levels[-1]
    pieces = np.clip(-(-nbytes // memory.interleave), 1, memory.channels)
    stores = columns["kind"] == Kind.STORE
    for mine, bandwidth in ((~stores, memory.bandwidth), (stores, places.store_bandwidth)):
        num, den = byte_time(bandwidth)
        turns[mine, :, -2] = _turn(nbytes[mine] * memory.channels, num, den * pieces[mine])
    return turns, pieces


def _turn(nbytes: np.ndarray, num: int, den: int | np.ndarray) -> np.ndarray:
    return np.maximum(1, -(-nbytes * num // den))
