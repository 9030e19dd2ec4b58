"""Whether a launch is one: figures in their range, tokens and tiles that exist.

The compiled core does not look: a number out of range would make it write where nothing of its own is.
"""

from __future__ import annotations

import numpy as np

from kernbench.errors import InputError
from kernbench.simulate.launch.steps import CAUSES, Engines, Kind, Launch, Places, Step, parts

_PARTS = ("prologue", "body", "epilogue")
_TOKEN_KINDS = (Kind.LOAD, Kind.RUN, Kind.WAIT)


def check(launch: Launch) -> None:
    """Check a launch.

    Raises
    ------
    InputError
        If a figure is out of its range, a class or a stream does not exist, or a stream leaves its tiles; says which.
    """
    _check_places(launch.places)
    n, levels = len(launch.class_of), len(launch.places.levels)
    if not -1 <= launch.first_level < levels:
        raise InputError(f"first_level is {launch.first_level}: there are {levels} levels, so -1 to {levels - 1}")
    if launch.dirty_bytes < 0 or launch.tiles < 0:
        raise InputError(f"dirty_bytes ({launch.dirty_bytes}) and tiles ({launch.tiles}) cannot be negative")
    if launch.base.ndim != 2 or len(launch.base) != n:
        raise InputError(f"base has shape {launch.base.shape}: it needs a row for each of the {n} workgroups")
    class_of = np.asarray(launch.class_of)
    if class_of.min() < 0 or class_of.max() >= len(launch.classes):
        named = f"{class_of.min()} to {class_of.max()}"
        raise InputError(f"class_of names classes {named}, classes are 0 to {len(launch.classes) - 1}")
    present, lowest, highest = _ends_of_base(launch)
    for number, group in enumerate(launch.classes):
        if group.iterations < 0:
            raise InputError(f"class {number}: {group.iterations} iterations")
        for name, part in zip(_PARTS, parts(group), strict=True):
            for i, step in enumerate(part):
                where = f"class {number}, step {i} of its {name} ({Kind(step.kind).name})"
                _check_step(step, where)
                if step.kind != Kind.LOAD or step.stream < 0:
                    continue
                if step.stream >= launch.base.shape[1]:
                    raise InputError(f"{where}: stream {step.stream}, but base has {launch.base.shape[1]}")
                last = group.iterations - 1 if name == "body" else step.ahead
                if number in present and step.ahead <= last:
                    row = present[number]
                    first_tile = int(lowest[row, step.stream]) + step.offset + step.ahead
                    last_tile = int(highest[row, step.stream]) + step.offset + last
                    if first_tile < 0 or last_tile >= launch.tiles:
                        raise InputError(
                            f"{where}: loads tiles {first_tile} to {last_tile} of stream {step.stream}, but tiles are "
                            f"0 to {launch.tiles - 1}"
                        )


def _check_places(places: Places) -> None:
    for name in ("cubes", "pes_per_cube", "slots", "port_bandwidth", "store_bandwidth"):
        if getattr(places, name) < 1:
            raise InputError(f"places: {name} is {getattr(places, name)}, it must be at least 1")
    if not places.levels:
        raise InputError("places: levels are missing: the last one is the memory")
    for level in places.levels:
        if level.bandwidth < 1 or level.latency_ps < 0 or level.capacity < 0:
            raise InputError(f"places: {level} needs a bandwidth of at least 1, and no negative figure")
    if places.dispatch_ps < 0 or places.start_ps < 0:
        raise InputError(f"places: dispatch_ps ({places.dispatch_ps}) or start_ps ({places.start_ps}) is negative")


def _check_step(step: Step, where: str) -> None:
    if step.kind in _TOKEN_KINDS and step.token < 0:
        raise InputError(f"{where}: token {step.token}, tokens are numbered from 0")
    if step.depth < 1 or step.ahead < 0:
        raise InputError(f"{where}: depth {step.depth} and ahead {step.ahead}, they start at 1 and 0")
    if step.ps < 0 or step.nbytes < 0:
        raise InputError(f"{where}: {step.ps} ps and {step.nbytes} bytes, neither can be negative")
    if not 0 <= step.cause < len(CAUSES):
        raise InputError(f"{where}: cause {step.cause}, causes are 0 to {len(CAUSES) - 1}")
    if not 0 <= step.engines <= Engines.BOTH:
        raise InputError(f"{where}: engines {step.engines}, engines are bits of {int(Engines.BOTH)}")


def _ends_of_base(launch: Launch) -> tuple[dict[int, int], np.ndarray, np.ndarray]:
    """Return the lowest and the highest base of each stream, a row per class that occurs, and the classes' rows."""
    order = np.argsort(launch.class_of, kind="stable")
    classes, first = np.unique(np.asarray(launch.class_of)[order], return_index=True)
    base = np.asarray(launch.base)[order]
    row_of = {int(c): row for row, c in enumerate(classes)}
    return row_of, np.minimum.reduceat(base, first), np.maximum.reduceat(base, first)
