"""Random launches: few workgroups, small caches and round numbers, so that evictions and ties are common."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from kernbench.simulate.launch import simulate_launch
from kernbench.simulate.launch.steps import (
    CAUSES,
    LOAD_WAIT,
    MATRIX,
    VECTOR,
    Engines,
    Kind,
    Launch,
    Level,
    Places,
    Step,
    Workgroup,
    load,
    pause,
    run,
    store,
    wait,
)

_BANDWIDTHS = (10**12, 10**12, 64 * 10**9, 7 * 10**9, 333 * 10**9, 3 * 10**12, 4 * 10**12)
_TIMES = (0, 0, 1, 333, 1000, 1000, 5000, 20000)
_SIZES = (64, 64, 100, 256, 1000, 4096)
_COLUMNS = (
    "begin_ps", "end_ps", "pe", "spent_ps", "level_busy_ps", "level_nbytes", "engine_busy_ps",
)  # fmt: skip


def random_launch(seed: int) -> Launch:
    """Draw a launch; the same seed gives the same again."""
    random = Random(f"launch {seed}")
    is_round = random.random() < 0.3  # everything takes equally long, and every request meets others
    times = (0, 1000) if is_round else _TIMES
    sizes = (1000,) if is_round else _SIZES
    places = _places(random, times, (10**12,) if is_round else _BANDWIDTHS)
    streams = random.randint(0, 3)
    classes = tuple(_workgroup(random, streams, times, sizes) for _ in range(random.randint(1, 3)))
    room = places.cubes * places.pes_per_cube * places.slots
    n = random.randint(1, min(3 * room + 2, 24))
    class_of = np.array([random.randrange(len(classes)) for _ in range(n)], np.int32)
    shared = random.choice((1, 1, 4, 16))  # how many places the streams of workgroups may begin at
    stride = random.choice((1, 2, 5))
    base = np.array([[stride * random.randrange(shared) for _ in range(streams)] for _ in range(n)], np.int64)
    longest = max(g.iterations for g in classes)
    return Launch(
        places=places,
        classes=classes,
        class_of=class_of,
        base=base.reshape(n, streams),
        tiles=stride * shared + longest + 8,  # offset and ahead are 3 at most each
        first_level=random.choice((-1, *range(len(places.levels)))),
        dirty_bytes=random.choice((0, 0, 0, 100, 5000)),
    )


def compare_launch_engines(launch: Launch) -> str:
    """Time a launch with both engines.

    Returns
    -------
    str
        ``"agree"`` if every picosecond, place, busy time and byte is the same; else what differs first.
    """
    compiled, defined = (simulate_launch(launch, engine) for engine in ("compiled", "simpy"))
    for column in _COLUMNS:
        ours, right = getattr(compiled, column), getattr(defined, column)
        if ours.dtype != np.int64 or right.dtype != np.int64:
            return f"{column} is {ours.dtype} in compiled and {right.dtype} in simpy, not int64"
        if ours.shape != right.shape:
            return f"{column} has shape {ours.shape} in compiled and {right.shape} in simpy"
        if (ours != right).any():
            at = tuple(int(i) for i in np.argwhere(ours != right)[0])
            what = f" ({CAUSES[at[1]]})" if column == "spent_ps" else ""
            return f"{column}{list(at)}{what} is {ours[at]} in compiled and {right[at]} in simpy"
    return "agree"


def _places(random: Random, times: tuple[int, ...], bandwidths: tuple[int, ...]) -> Places:
    def level(name: str, capacity: int = 0) -> Level:
        return Level(name, random.random() < 0.5, random.choice(bandwidths), random.choice(times), capacity)

    def memory() -> Level:
        return replace(level("memory"), channels=random.choice((1, 2, 3, 8)), interleave=random.choice((1, 16, 64)))

    caches = [level(f"cache{i}", random.choice((0, 100, 1000, 3000, 10**6))) for i in range(random.randint(0, 3))]
    return Places(
        cubes=random.choice((1, 1, 2, 3)),
        pes_per_cube=random.randint(1, 3),
        slots=random.randint(1, 4),
        port_bandwidth=random.choice(bandwidths),
        levels=(*caches, memory()),
        store_bandwidth=random.choice(bandwidths),
        dispatch_ps=random.choice(times),
        start_ps=random.choice(times),
    )


def _workgroup(random: Random, streams: int, times: tuple[int, ...], sizes: tuple[int, ...]) -> Workgroup:
    # Half of them are as kernels are; the others do anything in any order.
    part = _tidy_parts if random.random() < 0.5 else _wild_parts
    prologue, body, epilogue = part(random, streams, times, sizes)
    return Workgroup(prologue, body, epilogue, random.choice((0, 1, 1, 2, 3, 5)))


_Parts = tuple[tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]


def _tidy_parts(random: Random, streams: int, times: tuple[int, ...], sizes: tuple[int, ...]) -> _Parts:
    """Load tiles ``ahead`` of the iteration that works on them, as a kernel with a pipeline does."""
    depth = random.randint(1, 3)
    ahead = random.randint(0, depth - 1)
    size = random.choice(sizes)
    ragged = random.choice((-1, 0, size // 2))
    stream = random.randrange(streams) if streams else -1
    first = tuple(load(0, size, stream=stream, depth=depth, ahead=i) for i in range(ahead))
    engines = random.choice(tuple(Engines))
    cause = random.choice((MATRIX, VECTOR))
    body = (
        load(0, size, stream=stream, depth=depth, ahead=ahead, last=ragged),
        wait(0, depth=depth),
        run(depth, random.choice(times), engines),
        wait(depth, cause=cause),
        *pause(random.choice(times)),
    )
    last = (run(depth + 1, random.choice(times), Engines.VECTOR), wait(depth + 1, cause=VECTOR), store(size))
    return first, body, last


def _wild_parts(random: Random, streams: int, times: tuple[int, ...], sizes: tuple[int, ...]) -> _Parts:
    def step() -> Step:
        kind = random.choice((Kind.LOAD, Kind.LOAD, Kind.RUN, Kind.RUN, Kind.WAIT, Kind.WAIT, Kind.PAUSE, Kind.STORE))
        return Step(
            kind,
            token=random.randrange(4),
            depth=random.randint(1, 3),
            ahead=random.choice((0, 0, 1, 3)),
            ps=random.choice(times),
            engines=random.randrange(4) if kind == Kind.RUN else 0,
            nbytes=random.choice((0, *sizes)),
            last_nbytes=random.choice((-1, -1, 0, 10)) if kind == Kind.LOAD else -1,
            stream=random.randrange(-1, streams) if kind == Kind.LOAD else -1,
            offset=random.randrange(4),
            cause=random.choice((MATRIX, VECTOR, LOAD_WAIT)) if kind == Kind.WAIT else random.randrange(len(CAUSES)),
        )

    prologue, body, epilogue = (tuple(step() for _ in range(random.randrange(6))) for _ in range(3))
    return prologue, body, epilogue
