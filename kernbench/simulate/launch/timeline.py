"""What simulating a launch gives: when each workgroup ran, where, and what its time went to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.simulate.launch.steps import CAUSES, Launch


@dataclass(frozen=True, eq=False)
class LaunchTimeline:
    """Times of the workgroups of a launch, in integer picoseconds from its first dispatch."""

    launch: Launch
    engine: str
    """``compiled`` or ``simpy``."""
    begin_ps: np.ndarray
    """int64[workgroup]: handed out to a PE."""
    end_ps: np.ndarray
    """int64[workgroup]: its place is free again."""
    pe: np.ndarray
    """int64[workgroup]: where it ran."""
    spent_ps: np.ndarray
    """int64[workgroup, cause]: what the time from begin to end went to, by :data:`~.steps.CAUSES`; the rest is none."""
    level_busy_ps: np.ndarray
    """int64[level]: how long its servers (the memory: channels) moved data, all of them together."""
    level_nbytes: np.ndarray
    """int64[level]: what they moved."""
    engine_busy_ps: np.ndarray
    """int64[2]: matrix and vector, over all PEs."""

    def __repr__(self) -> str:
        return f"<LaunchTimeline of {len(self.pe):,} workgroups: {self.makespan_ps:,} ps>"

    @cached_property
    def makespan_ps(self) -> int:
        """End of the last workgroup."""
        return int(self.end_ps.max())

    @cached_property
    def busy(self) -> dict[str, float]:
        """Share of the makespan for which each shared part and each kind of engine works."""
        places, span = self.launch.places, max(self.makespan_ps, 1)
        pes = places.cubes * places.pes_per_cube
        engines = zip(("matrix", "vector"), self.engine_busy_ps, strict=True)
        share = {name: float(busy) / (span * pes) for name, busy in engines}
        for level, busy in zip(places.levels, self.level_busy_ps, strict=True):
            share[level.name] = float(busy) / (span * (places.cubes if level.per_cube else 1) * level.channels)
        return share

    @cached_property
    def time_by_cause(self) -> dict[str, float]:
        """Share of the PEs' places that each cause takes, ``idle`` (a place without a workgroup) included."""
        places = self.launch.places
        slots = min(places.cubes * places.pes_per_cube * places.slots, len(self.pe))
        whole = slots * max(self.makespan_ps, 1)
        spent = {cause: int(self.spent_ps[:, i].sum()) / whole for i, cause in enumerate(CAUSES)}
        spent["idle"] = 1.0 - sum(spent.values())
        return spent
