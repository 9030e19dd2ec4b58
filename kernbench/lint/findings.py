"""What an architect would want to know of a machine before a run, each with the figures that it follows from."""

from __future__ import annotations

from collections.abc import Iterator

from kernbench.dtypes import DTYPES
from kernbench.lint.reach import should_wrap
from kernbench.lint.report import ArithmeticBalance, Bisection, Finding, HotLink, MemoryBalance, Severity
from kernbench.machine import Machine
from kernbench.machine.places import parse_place
from kernbench.machine.schema import LinkSpec
from kernbench.machine.units import SIZE, text
from kernbench.simulate.costs import PS

TILE_ROWS, HEAD = 16, 128
"""The smallest tile that is looked at: so many query rows and keys, of heads of so many elements."""


def findings(
    machine: Machine,
    memory: MemoryBalance,
    cuts: tuple[Bisection, ...],
    hot: tuple[HotLink, ...],
    balance: tuple[ArithmeticBalance, ...],
) -> tuple[Finding, ...]:
    """Return everything that is worth saying, warnings first."""
    found = [
        *_ports(machine, memory),
        *_trips(machine, memory),
        *_caches(machine, memory),
        *_links(machine, memory, cuts, hot),
        *_overrides(machine),
        *_wraps(machine),
        *_scratch(machine),
        *_arithmetic(machine, balance),
    ]
    return tuple(sorted(found, key=lambda f: f.severity == "note"))


def rate_text(rate: float) -> str:
    """Write bytes/s in GB/s."""
    return f"{rate / 1e9:,.4g} GB/s" if rate < 1e13 else f"{rate / 1e12:,.4g} TB/s"


def time_text(ps: float) -> str:
    """Write a time in ns or µs."""
    return f"{ps / 1e3:,.4g} ns" if ps < 1e7 else f"{ps / 1e6:,.4g} µs"


def _finding(severity: Severity, message: str, *keys: str) -> Finding:
    return Finding(severity=severity, message=message, keys=keys)


def _memory_keys(memory: MemoryBalance) -> str:
    return f"{memory.owner.lower()}.memory"


def _ports(machine: Machine, memory: MemoryBalance) -> Iterator[Finding]:
    keys = (f"{_memory_keys(memory)}.bandwidth", "pe.load.bandwidth")
    gives = f"the memory gives {rate_text(memory.bandwidth)}"
    who = f"the {memory.pes:,} PEs of a {memory.owner}" if memory.pes > 1 else f"the PE of a {memory.owner}"
    if memory.ports < memory.bandwidth:
        yield _finding(
            "warning", f"load ports of {who} take in at most {rate_text(memory.ports)}, but {gives}: ports are the "
            "limit", *keys
        )  # fmt: skip
    elif memory.all_loads < memory.bandwidth:
        yield _finding(
            "warning", f"all loads of {who} together get at most {rate_text(memory.all_loads)}, since each waits for "
            f"its bytes outstanding, but {gives}: latency is the limit", "pe.load.outstanding", *keys
        )  # fmt: skip
    elif memory.ports > memory.bandwidth:
        yield _finding(
            "note", f"load ports of {who} take in {rate_text(memory.ports)}, but {gives}: memory is the limit", *keys
        )  # fmt: skip


def _trips(machine: Machine, memory: MemoryBalance) -> Iterator[Finding]:
    load = machine.pe.load
    if load.outstanding is None or machine.holds_workgroups:
        return
    keys = ("pe.load.outstanding", "pe.load.bandwidth", f"{_memory_keys(memory)}.latency")
    trips: tuple[tuple[Severity, str, int, float], ...] = (
        ("warning", "the nearest", memory.local_trip_ps, memory.local_load),
        ("note", "the farthest", memory.farthest_trip_ps, memory.farthest_load),
    )
    for severity, which, trip, reached in trips:
        if reached < load.bandwidth:
            needed = -(-load.bandwidth * trip // PS)
            yield _finding(
                severity, f"{text(load.outstanding, SIZE)} outstanding over a round trip of {time_text(trip)} to "
                f"{which} memory limits a load to {rate_text(reached)} of the port's {rate_text(load.bandwidth)}; "
                f"{needed:,} B would fill it", *keys
            )  # fmt: skip
            return


def _caches(machine: Machine, memory: MemoryBalance) -> Iterator[Finding]:
    for owner, cache in (("cube", machine.spec.cube.cache), ("sip", machine.spec.sip.cache)):
        if cache is None:
            continue
        behind = f"{_memory_keys(memory)}.capacity"
        if cache.size >= machine.memory.capacity:
            yield _finding(
                "warning", f"the cache of a {owner.upper()} ({text(cache.size, SIZE)}) is no smaller than the memory "
                f"behind it ({text(machine.memory.capacity, SIZE)})", f"{owner}.cache.size", behind
            )  # fmt: skip
        together = memory.cache_bandwidth.get(owner)
        if together is not None and together < memory.bandwidth:
            yield _finding(
                "warning", f"caches of {owner.upper()}s give {rate_text(together)} together, less than the memory "
                f"behind them ({rate_text(memory.bandwidth)})",
                f"{owner}.cache.bandwidth", f"{_memory_keys(memory)}.bandwidth",
            )  # fmt: skip


def _links(
    machine: Machine, memory: MemoryBalance, cuts: tuple[Bisection, ...], hot: tuple[HotLink, ...]
) -> Iterator[Finding]:
    level = "system.sips" if memory.owner == "SIP" else "sip.cubes"
    bandwidth = f"{_memory_keys(memory)}.bandwidth"
    if memory.links_out is not None and memory.links_out[0] < memory.bandwidth:
        carried = " to ".join(dict.fromkeys(map(rate_text, memory.links_out)))
        yield _finding(
            "note", f"the links out of a {memory.owner} carry {carried} together, its memory gives "
            f"{rate_text(memory.bandwidth)}: what others read of it is bound by links",
            f"{level}.link.bandwidth", bandwidth,
        )  # fmt: skip
    for cut in cuts:
        if cut.memory_ratio is not None and cut.memory_ratio > 1:
            yield _finding(
                "note", f"the memories of half of the {cut.level}s give {cut.memory_ratio:,.3g} times what the "
                f"cut to the other half carries ({rate_text(cut.bandwidth)}): keep what is read often in its own half",
                f"{cut.key}.link.bandwidth", bandwidth,
            )  # fmt: skip
    uniform = next((h for h in hot if h.pattern == "all to all"), None)
    if uniform is not None and memory.owner == "CUBE" and uniform.sender_bandwidth < memory.bandwidth:
        yield _finding(
            "note", f"when every CUBE reads all memories alike, {uniform.link} fills first, at "
            f"{rate_text(uniform.sender_bandwidth)} a memory of its {rate_text(memory.bandwidth)}",
            "sip.cubes.link.bandwidth", bandwidth,
        )  # fmt: skip


def _overrides(machine: Machine) -> Iterator[Finding]:
    """Tell of single links that are worse than the others of their level."""
    levels: tuple[tuple[str, LinkSpec | None], ...] = (
        ("system.sips.link", machine.spec.system.sips.link),
        ("sip.cubes.link", machine.spec.sip.cubes.link),
        ("cube.pes.link", machine.spec.cube.pes.link),
    )
    for i, link in enumerate(machine.spec.links):
        key, usual = levels[parse_place(link.start).level]
        assert usual is not None  # checks.faults refuses an entry for a level without links
        worse = []
        if link.bandwidth is not None and link.bandwidth < usual.bandwidth:
            worse.append(("bandwidth", f"carries {rate_text(link.bandwidth)}, others {rate_text(usual.bandwidth)}"))
        if link.latency is not None and link.latency > usual.latency:
            worse.append(("latency", f"takes {time_text(link.latency)}, others {time_text(usual.latency)}"))
        for name, how in worse:
            yield _finding("warning", f"{link.start} -> {link.to} {how}", f"links[{i}].{name}", f"{key}.{name}")


def _wraps(machine: Machine) -> Iterator[Finding]:
    if machine.holds_workgroups:
        return
    for key, grid in (("system.sips", machine.grids[0]), ("sip.cubes", machine.grids[1])):
        for axis, (name, size) in enumerate((("columns", grid.columns), ("rows", grid.rows))):
            if size == 2 and should_wrap(grid, axis):
                yield _finding(
                    "note", f"{grid.arrangement} with two {name}: it does not wrap round, which takes three",
                    f"{key}.arrangement", f"{key}.{name}"
                )  # fmt: skip


def _scratch(machine: Machine) -> Iterator[Finding]:
    """Tell if one tile of decode does not fit: Q, K, V in 2 bytes, scores and output in 4."""
    needed = 2 * 3 * TILE_ROWS * HEAD + 4 * TILE_ROWS * (TILE_ROWS + HEAD)
    if not machine.holds_workgroups and machine.pe.scratch < needed:
        yield _finding(
            "warning", f"{text(machine.pe.scratch, SIZE)} of scratch do not hold one tile of {TILE_ROWS} query rows "
            f"and {TILE_ROWS} keys of {HEAD} elements in f16 with f32 results: {needed:,} B", "pe.scratch"
        )  # fmt: skip


def _arithmetic(machine: Machine, balance: tuple[ArithmeticBalance, ...]) -> Iterator[Finding]:
    matrix, rates = machine.pe.matrix, machine.pe.matrix.rates
    for narrow, rate in rates.items():
        slower = [wide for wide, other in rates.items() if DTYPES[narrow].bits < DTYPES[wide].bits and rate < other]
        if slower:
            yield _finding(
                "warning", f"{narrow} is narrower than {slower[0]} and yet has a lower matrix rate",
                f"pe.matrix.rates.{narrow}", f"pe.matrix.rates.{slower[0]}"
            )  # fmt: skip
    if not balance:
        return
    first = next((b for b in balance if b.dtype == "f16"), balance[0])
    work_ps = 2 * TILE_ROWS * HEAD * HEAD * PS / rates[first.dtype]
    if not machine.holds_workgroups and matrix.startup >= work_ps:  # workgroups fill each other's start-ups
        yield _finding(
            "warning", f"a product of {TILE_ROWS} x {HEAD} x {HEAD} in {first.dtype} takes {time_text(work_ps)} behind "
            f"{time_text(matrix.startup)} of start-up: most of the engine's time is start-up",
            "pe.matrix.startup", f"pe.matrix.rates.{first.dtype}",
        )  # fmt: skip
    if first.exp_head > HEAD:
        yield _finding(
            "warning", f"exponentials take longer than both products in {first.dtype} for heads below "
            f"{first.exp_head:,.4g} elements: the vector engine is the limit",
            "pe.vector.lanes", "pe.vector.cost.exp", f"pe.matrix.rates.{first.dtype}",
        )  # fmt: skip
    elif first.softmax_head > HEAD:
        yield _finding(
            "note", f"the softmax takes longer than both products in {first.dtype} for heads below "
            f"{first.softmax_head:,.4g} elements", "pe.vector.lanes", f"pe.matrix.rates.{first.dtype}"
        )  # fmt: skip
