"""Rules of a machine file that join several of its values. Each fault is a key path and what would be right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernbench.errors import compress
from kernbench.machine.arrangement import Grid
from kernbench.machine.places import LEVELS, Place, parse_place
from kernbench.machine.schema import GridSpec, MachineSpec, PeGridSpec, PeSpec

MOST_CUBES = 4096
"""Routes are tables over pairs of CUBEs: this many take a quarter of a gigabyte."""
MOST_PES = 65536

Fault = tuple[str, str]


def faults(spec: MachineSpec) -> list[Fault]:
    """Return every (key path, message) that is wrong with a spec whose single values are right."""
    found = [
        *_grid_faults("system.sips", spec.system.sips, "SIPs", "{bandwidth: 64 GB/s, latency: 500 ns}"),
        *_grid_faults(
            "sip.cubes", spec.sip.cubes, "CUBEs", "{bandwidth: 256 GB/s, latency: 20 ns}", spec.pe.residency is None
        ),
        *_pe_faults(spec),
        *_memory_faults(spec),
        *_collective_faults(spec),
    ]
    if "default" not in spec.pe.vector.cost:
        found.append(("pe.vector.cost.default", "missing; the cycles of operations not named, e.g. 'default: 1'"))
    # Whether a link exists can be said only of grids that are right and small enough to lay out.
    return found or [*_size_faults(spec)] or [*_override_faults(spec)]


def grids(spec: MachineSpec) -> tuple[Grid, Grid, Grid]:
    """Return the grids of SIPs in the system, CUBEs in a SIP and PEs in a CUBE."""
    sips, cubes, pes = spec.system.sips, spec.sip.cubes, spec.cube.pes
    apart = spec.pe.residency is not None
    return (
        Grid(sips.arrangement, sips.columns, sips.rows),
        Grid("apart" if apart else cubes.arrangement, cubes.columns, cubes.rows),
        Grid("apart" if apart else "mesh", pes.columns, pes.rows),
    )


def _grid_faults(path: str, grid: GridSpec, things: str, example: str, linked: bool = True) -> Iterator[Fault]:
    if grid.rows > 1 and grid.arrangement not in ("mesh", "torus"):
        advice = f"set rows: 1 and columns: {grid.rows * grid.columns}, or arrangement: mesh or torus"
        yield f"{path}.rows", f"{grid.arrangement!r} has one row, found {grid.rows}; {advice}"
    if linked:
        yield from _link_needed(path, grid, things, example)


def _pe_faults(spec: MachineSpec) -> Iterator[Fault]:
    """Tell what the PE's kind (one program of its own, or workgroups of a grid) needs and does not have."""
    pe = spec.pe
    if pe.residency is None:
        yield from _link_needed("cube.pes", spec.cube.pes, "PEs", "{bandwidth: 128 GB/s, latency: 5 ns}")
        mesh = {"issue": "1 ns", "queue_depth": "8", "channel": "{depth: 2, receive: 4 ns}"}
        yield from ((f"pe.{key}", f"missing; add e.g. '{key}: {e}'") for key, e in mesh.items() if not _has(pe, key))
        if pe.workgroup is not None:
            yield "pe.workgroup", "only PEs that hold workgroups (pe.residency) have it"
        if spec.launch is not None:
            yield "launch", "only machines whose PEs hold workgroups (pe.residency) have it"
        return
    if pe.workgroup is None:
        yield "pe.workgroup", "missing; add e.g. 'workgroup: {start: 300 ns, end: 300 ns, barrier: 100 ns}'"
    if spec.launch is None:
        yield "launch", "missing; add e.g. 'launch: {cold: 3.4 us, graph: 0.7 us, dispatch: 1 ns}'"
    if spec.cube.memory is not None:
        yield "cube.memory", "belongs into sip.memory: CUBEs whose PEs hold workgroups share the SIP's memory"
    if pe.channel is not None:
        yield "pe.channel", "PEs that hold workgroups (pe.residency) have no channels; remove one of the two"


def _has(pe: PeSpec, key: str) -> bool:
    return getattr(pe, key) is not None


def _link_needed(path: str, grid: GridSpec | PeGridSpec, things: str, example: str) -> Iterator[Fault]:
    count = grid.rows * grid.columns
    if count > 1 and grid.link is None:
        yield f"{path}.link", f"missing; {count} {things} are joined by links, add e.g. 'link: {example}'"


def _memory_faults(spec: MachineSpec) -> Iterator[Fault]:
    own, shared = spec.cube.memory, spec.sip.memory
    if own is None and shared is None:
        yield "cube.memory", "missing; give each CUBE its memory here, or all CUBEs of a SIP one in sip.memory"
    if own is not None and shared is not None:
        yield "sip.memory", "a machine has either cube.memory or sip.memory; remove one"


def _collective_faults(spec: MachineSpec) -> Iterator[Fault]:
    has = spec.collective
    if has is None:
        return
    if spec.pe.residency is None:
        yield "collective", "only machines whose PEs hold workgroups (pe.residency) have it: a mesh's kernels send"
    elif has.bulk_latency < has.latency:
        yield "collective.bulk_latency", "is below collective.latency: the low-latency protocol has the lower one"
    elif has.low_latency > has.achievable:
        yield "collective.low_latency", "is above collective.achievable: the bulk protocol has the larger share"


def _size_faults(spec: MachineSpec) -> Iterator[Fault]:
    sips, cubes, pes = (grid.count for grid in grids(spec))
    if sips * cubes > MOST_CUBES:
        yield "sip.cubes", f"{sips * cubes:,} CUBEs in the system; the most is {MOST_CUBES:,}"
    elif sips * cubes * pes > MOST_PES:
        yield "cube.pes", f"{sips * cubes * pes:,} PEs in the system; the most is {MOST_PES:,}"


def _override_faults(spec: MachineSpec) -> Iterator[Fault]:
    all_grids = grids(spec)
    near = [_linked(grid) for grid in all_grids] if spec.links else []
    seen: dict[tuple[Place, Place], int] = {}
    for i, link in enumerate(spec.links):
        start, end = parse_place(link.start), parse_place(link.to)
        missing = [(key, _absent(p, all_grids)) for key, p in (("from", start), ("to", end))]
        if any(message for _, message in missing):
            yield from ((f"links[{i}].{key}", message) for key, message in missing if message)
        elif start.level != end.level or start.parent != end.parent:
            yield f"links[{i}]", f"{start} and {end} are not {_common(start, end)}, and no link joins them"
        elif end.own not in near[start.level].get(start.own, []):
            known = [str(start.sibling(n)) for n in near[start.level].get(start.own, [])]
            leads = f"links from {start} lead to {', '.join(known)}" if known else f"{start} has no links"
            yield f"links[{i}]", f"{start} and {end} are not neighbours: {leads}"
        elif (start, end) in seen:
            yield f"links[{i}]", f"{start} -> {end} is already given by links[{seen[start, end]}]"
        elif link.bandwidth is None and link.latency is None:
            yield f"links[{i}]", "gives neither bandwidth nor latency; add one, e.g. 'bandwidth: 64 GB/s'"
        seen.setdefault((start, end), i)


def _linked(grid: Grid) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for a, b in np.asarray(grid.pairs()).tolist():
        found.setdefault(a, []).append(b)
    return found


def _absent(place: Place, all_grids: tuple[Grid, Grid, Grid]) -> str:
    """Say which index of a place's name is out of range; empty if none."""
    holder = "the system"
    for level in range(place.level + 1):
        count = all_grids[level].count
        if place[level] >= count:
            noun = LEVELS[level]
            known = f"{noun}s {compress(range(count))}" if count > 1 else f"one {noun}, number 0"
            return f"{place} does not exist: {holder} has {known}"
        holder = f"{LEVELS[level]} {place[level]}" if level == 0 else f"{holder} {LEVELS[level]} {place[level]}"
    return ""


def _common(start: Place, end: Place) -> str:
    if start.level != end.level:
        return "both SIPs, both CUBEs or both PEs"
    return f"in the same {LEVELS[start.level - 1]}"
