"""A machine: its spec in base units, the file that it came from, and the names and numbers of its PEs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kernbench.errors import InputError
from kernbench.machine import checks, overrides, places
from kernbench.machine.arrangement import Grid
from kernbench.machine.explain import validate
from kernbench.machine.schema import ChannelSpec, MachineSpec, MemorySpec, PeSpec

if TYPE_CHECKING:
    from kernbench.machine.network import Network
    from kernbench.machine.workgroups import WorkgroupGrid


@dataclass(frozen=True, eq=False, repr=False)
class Machine:
    """A machine that has been read and checked. Two are equal when their specs are.

    PEs, CUBEs and SIPs are counted through the system: PE index = (sip x cubes_per_sip + cube) x pes_per_cube + pe.
    """

    spec: MachineSpec
    """Every value of the file, in base units."""
    source: str
    """The file, as messages name it."""
    sha256: str
    """Fingerprint of the spec in base units: the same for ``1 TB/s`` and ``1000 GB/s``, another after an override."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The file as parsed, with overrides in their places."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Key path -> what the file says of where the figure comes from."""
    overridden: tuple[str, ...] = ()
    """Key paths whose values came from overrides."""

    @classmethod
    def from_document(
        cls,
        document: Any,
        source: str,
        notes: Mapping[str, str] | None = None,
        changes: Mapping[str, Any] | None = None,
        overridden: tuple[str, ...] = (),
    ) -> Machine:
        """Check a parsed file, with ``changes`` by dotted key, and return its machine.

        Raises
        ------
        TopologyError
            With one line for each fault.
        """
        if changes and isinstance(document, Mapping):
            document = overrides.apply(document, changes, source)
            new = tuple(".".join(overrides.split(path, source)) for path in changes)
            overridden = tuple(dict.fromkeys((*overridden, *new)))
        spec = validate(document, source, overridden)
        return cls(spec, source, _fingerprint(spec), document, notes or {}, overridden)

    def with_overrides(self, changes: Mapping[str, Any]) -> Machine:
        """Return the machine that this one's file would give with some values replaced.

        Parameters
        ----------
        changes : mapping
            Dotted key path -> value as a file would hold it, as ``{"cube.memory.bandwidth": "0.8 TB/s"}``; None
            takes an optional key away.

        Raises
        ------
        TopologyError
            If a key is unknown (with the nearest known one) or the result is no machine.
        """
        return Machine.from_document(self.document, self.source, self.notes, changes, self.overridden)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"<Machine {self.name}: {self.n_sips} SIP x {self.cubes_per_sip} CUBE x {self.pes_per_cube} PE>"

    @property
    def name(self) -> str:
        """Short name of the machine."""
        return self.spec.name

    @property
    def description(self) -> str:
        """One line on what it is."""
        return self.spec.description

    @cached_property
    def grids(self) -> tuple[Grid, Grid, Grid]:
        """Placement of the SIPs in the system, the CUBEs in a SIP and the PEs in a CUBE."""
        return checks.grids(self.spec)

    @property
    def n_sips(self) -> int:
        """SIPs in the system."""
        return self.grids[0].count

    @property
    def cubes_per_sip(self) -> int:
        """CUBEs in a SIP."""
        return self.grids[1].count

    @property
    def pes_per_cube(self) -> int:
        """PEs in a CUBE."""
        return self.grids[2].count

    @property
    def n_cubes(self) -> int:
        """CUBEs in the system."""
        return self.n_sips * self.cubes_per_sip

    @property
    def n_pes(self) -> int:
        """PEs in the system."""
        return self.n_cubes * self.pes_per_cube

    @property
    def shape(self) -> tuple[int, int, int]:
        """(pes_per_cube, cubes_per_sip, n_sips): the extents of a program id's axes."""
        return self.pes_per_cube, self.cubes_per_sip, self.n_sips

    @property
    def pe(self) -> PeSpec:
        """Figures of a PE."""
        return self.spec.pe

    @property
    def holds_workgroups(self) -> bool:
        """Whether its PEs hold workgroups of a grid, as a GPU's do, in place of one program each."""
        return self.spec.pe.residency is not None

    @property
    def channel(self) -> ChannelSpec:
        """Figures of the channels between PEs. Raises InputError if PEs hold workgroups."""
        if self.spec.pe.channel is None:
            raise InputError(f"PEs of {self.name} hold workgroups of a grid: there are no channels between them")
        return self.spec.pe.channel

    @property
    def queue_depth(self) -> int:
        """Commands that may wait in front of each engine. Raises InputError if PEs hold workgroups."""
        if self.spec.pe.queue_depth is None:
            raise InputError(f"PEs of {self.name} hold workgroups of a grid: they have no queues of commands")
        return self.spec.pe.queue_depth

    @property
    def memory(self) -> MemorySpec:
        """Figures of a memory, whoever owns it."""
        found = self.spec.cube.memory or self.spec.sip.memory
        assert found is not None  # checks.faults refuses a machine without one
        return found

    @property
    def memory_scope(self) -> str:
        """``cube`` if each CUBE has a memory, ``sip`` if the CUBEs of a SIP share one."""
        return "cube" if self.spec.cube.memory is not None else "sip"

    @property
    def network(self) -> Network:
        """The links, routes and channels as arrays; built once for each spec."""
        from kernbench.machine.network import network_of

        return network_of(self)

    @property
    def signature(self) -> tuple[object, ...]:
        """What a recorded trace depends on: two machines with equal signatures can time each other's traces.

        It holds the shape, how each level is placed and joined (hence which channels exist and where they lead) and
        who owns the memories, but no figures.
        """
        levels = [(g.arrangement, g.columns, g.rows) for g in self.grids]
        return (self.shape, *levels, self.memory_scope)

    @property
    def recording_limits(self) -> tuple[int, int, int]:
        """Figures that recording is held to, beside the signature: scratch, memory capacity, messages in a channel.

        They decide whether a kernel can be recorded, and never what is recorded.
        """
        channel = self.spec.pe.channel
        return self.spec.pe.scratch, self.memory.capacity, channel.depth if channel else 0

    @property
    def scratch_capacity(self) -> int:
        """Bytes that the tiles of one program may take while it is recorded."""
        return self.spec.pe.scratch

    def as_grid(self, grid: Sequence[int] | int) -> WorkgroupGrid:
        """Return this machine as a launch of ``grid`` workgroups (x[, y[, z]]) sees it.

        Raises
        ------
        InputError
            If its PEs hold one program each, or the grid is none.
        """
        from kernbench.machine.workgroups import WorkgroupGrid

        return WorkgroupGrid.of(self, grid)

    def coordinates(self, pe: int) -> tuple[int, int, int]:
        """Return (sip, cube in the SIP, PE in the CUBE) of a PE index."""
        if not 0 <= pe < self.n_pes:
            raise IndexError(f"PE {pe} does not exist: {self.name} has PEs 0-{self.n_pes - 1}")
        node, own = divmod(int(pe), self.pes_per_cube)
        return (*divmod(node, self.cubes_per_sip), own)

    def pe_name(self, pe: int) -> str:
        """Return the name of a PE, as ``sip0.cube1.pe3``."""
        return str(places.Place(*self.coordinates(pe)))

    def describe_pes(self, indices: Iterable[int]) -> str:
        """Write a set of PEs as short text, as ``sip 0 cube 0-3 pe 0,2-7``; without the SIP if there is only one."""
        return places.describe_pes((self.coordinates(int(i)) for i in indices), self.n_sips == 1)


def _fingerprint(spec: MachineSpec) -> str:
    canonical = json.dumps(spec.model_dump(by_alias=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
