"""Which GPU ran a dispatch: files of agents, given or beside a profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kernbench.errors import InputError
from kernbench.realrun.importers.formats import read_table
from kernbench.realrun.importers.profile import Agent, Profile
from kernbench.realrun.importers.rocprofv3 import read_agents

_ENDINGS = ("kernel_trace", "counter_collection", "kernel", "results")


def beside(path: Path) -> tuple[list[Path], list[Path]]:
    """Find the files of agents that rocprofv3 wrote beside a profile: of the same prefix, and any."""
    try:
        found = sorted(p for p in path.parent.glob("*agent_info*.csv") if p.is_file())
    except OSError:
        return [], []
    return [p for p in found if p.stem == f"{prefix_of(path)}agent_info"], found


def _read(files: Iterable[Path]) -> tuple[tuple[Agent, ...], tuple[str, ...]]:
    agents: list[Agent] = []
    warnings: list[str] = []
    for file in files:
        try:
            table = read_table(file)
            if table.format.kind == "agents":
                agents += read_agents(table).agents
        except InputError as error:
            warnings.append(f"left out: {error}")
    return tuple(agents), tuple(warnings)


def prefix_of(path: Path) -> str:
    """Return what a profiler's file name begins with.

    >>> prefix_of(Path("7_kernel_trace.csv")), prefix_of(Path("mine.csv"))
    ('7_', '')
    """
    for ending in _ENDINGS:
        if path.stem.endswith(ending):
            return path.stem.removesuffix(ending)
    return ""


class Fleet:
    """GPUs that a profile may mean, and which of them an agent column means."""

    def __init__(self, profile: Profile, given: Iterable[Agent]) -> None:
        self.warnings: tuple[str, ...] = ()
        self.agents = profile.agents
        self._found: dict[str, Agent | None] = {}
        if not self.agents:
            own, some = beside(profile.path)
            self.agents, self.warnings = _read(own)
            self.agents = self.agents or tuple(given)
            if not self.agents and not own:
                self.agents, self.warnings = _read(some)

    def find(self, agent: str) -> Agent | None:
        """Return the GPU, or None if there is none such or there may be several that differ."""
        if agent not in self._found:
            self._found[agent] = self._find(agent)
        return self._found[agent]

    def _find(self, agent: str) -> Agent | None:
        alike = set(_kinds(self.agents))
        if len(alike) > 1:
            alike = set(_kinds(a for a in self.agents if agent in a.ids))
        return alike.pop() if len(alike) == 1 else None


def _kinds(agents: Iterable[Agent]) -> Iterator[Agent]:
    for a in agents:
        yield Agent(a.gpu, a.arch, a.xcc, a.wave_size)
