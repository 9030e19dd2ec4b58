"""A GPU-like machine as one launch sees it: a grid of workgroups in place of PEs.

Recording and executing think in PEs with places in three levels. A launch has three axes too, so that a grid of
workgroups is a machine whose "PEs" are its workgroups: one kernel language, one recorder, one executor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernbench.errors import InputError, compress
from kernbench.machine.arrangement import Grid
from kernbench.machine.model import Machine
from kernbench.machine.network import Network

MOST_WORKGROUPS = 1 << 24
"""Workgroups of one launch: each has a row in every lane column."""
REGISTER_BYTES = 4


@dataclass(frozen=True, eq=False, repr=False)
class WorkgroupGrid(Machine):
    """One launch on a machine whose PEs hold workgroups. Made by :meth:`kernbench.machine.Machine.as_grid`.

    PE index = workgroup index, axis 0 the fastest: ``(z * gy + y) * gx + x``. All workgroups see one memory, and there
    are no channels between them.

    >>> from kernbench.machine import load_machine
    >>> grid = load_machine("h200").as_grid((8, 4))
    >>> grid.n_pes, grid.shape, grid.pe_name(9), grid.describe_pes(range(4))
    (32, (8, 4, 1), 'workgroup (1, 1, 0)', 'workgroups x 0-3 y 0')
    """

    grid: tuple[int, int, int] = (1, 1, 1)
    """Workgroups along x, y and z."""
    placed: tuple[object, ...] = field(default=())
    """Signature of the machine itself, which the launch's tensors are placed on."""

    @classmethod
    def of(cls, machine: Machine, grid: Sequence[int] | int) -> WorkgroupGrid:
        """Return ``machine`` as a launch of ``grid`` sees it.

        Raises
        ------
        InputError
            If the machine's PEs hold one program each, or the grid is no one to three positive numbers.
        """
        if not machine.holds_workgroups:
            raise InputError(
                f"{machine.name} gives each PE one program of its own: a grid of workgroups needs a machine whose PEs "
                "hold them (pe.residency), such as h200"
            )
        given = (grid,) if isinstance(grid, (int, np.integer)) else tuple(grid)
        whole = all(isinstance(n, (int, np.integer)) and n >= 1 for n in given)
        if not whole or not 1 <= len(given) <= 3:
            raise InputError(f"grid {given} of a launch: one to three numbers of workgroups, each 1 or more")
        x, y, z = (int(n) for n in (*given, 1, 1)[:3])
        if x * y * z > MOST_WORKGROUPS:
            raise InputError(f"grid {given} has {x * y * z:,} workgroups, and at most {MOST_WORKGROUPS:,} can be timed")
        return cls(
            machine.spec, machine.source, machine.sha256, machine.document, machine.notes, machine.overridden,
            (x, y, z), machine.signature,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<WorkgroupGrid of {self.grid} on {self.name}>"

    @cached_property
    def grids(self) -> tuple[Grid, Grid, Grid]:
        """The axes of the launch, z first; nothing joins their positions."""
        x, y, z = self.grid
        return Grid("apart", z), Grid("apart", y), Grid("apart", x)

    @property
    def signature(self) -> tuple[object, ...]:
        """What a recorded trace depends on: the grid alone. Any machine that holds workgroups can time it."""
        return ("workgroups", self.grid)

    @property
    def memory_scope(self) -> str:
        """``sip``: all workgroups share one memory."""
        return "sip"

    @property
    def scratch_capacity(self) -> int:
        """No bound while recording: see :attr:`tile_room`."""
        return 1 << 60

    @property
    def tile_room(self) -> int:
        """Bytes that the live tiles of one workgroup may take: they lie in registers and in scratch (LDS)."""
        assert self.pe.residency is not None  # `of` refuses other machines
        return self.pe.scratch + self.pe.residency.registers * REGISTER_BYTES

    @cached_property
    def network(self) -> Network:
        """One node, one memory and no links: nothing here grows with pairs of workgroups."""
        n = self.n_pes
        none = np.broadcast_to(np.int32(-1), (n, 12))
        empty, nobody = np.zeros(0, np.int64), np.full((1, 1), -1, np.int32)
        return Network(
            peer=none,
            link_of=none,
            link_bandwidth=empty,
            link_latency=empty,
            link_num=empty,
            link_den=empty,
            link_shared=np.zeros(0, np.bool_),
            link_ends=np.zeros((0, 2), np.int32),
            n_sip_links=0,
            n_shared=0,
            node_of_pe=np.zeros(n, np.int32),
            memory_of_node=np.zeros(1, np.int32),
            node_of_memory=np.zeros(1, np.int32),
            next_node=nobody,
            next_link=nobody,
            route_latency=np.zeros((1, 1), np.int64),
            cubes_per_sip=1,
            pes_per_cube=n,
        )

    def pe_name(self, pe: int) -> str:
        """Return the name of a workgroup, as ``workgroup (3, 0, 0)``."""
        z, y, x = self.coordinates(pe)
        return f"workgroup ({x}, {y}, {z})"

    def describe_pes(self, indices: Iterable[int]) -> str:
        """Write a set of workgroups as ranges: ``workgroups x 0-3 y 0``; with z if the grid has more than one."""
        x_of: dict[tuple[int, int], list[int]] = {}
        for pe in sorted(int(i) for i in indices):
            z, y, x = self.coordinates(pe)
            x_of.setdefault((z, y), []).append(x)
        y_of: dict[int, dict[str, list[int]]] = {}
        for (z, y), xs in x_of.items():
            y_of.setdefault(z, {}).setdefault(compress(xs), []).append(y)
        z_of: dict[tuple[str, ...], list[int]] = {}
        for z, groups in y_of.items():
            inside = tuple(f"x {xs} y {compress(ys)}" for xs, ys in groups.items())
            z_of.setdefault(inside, []).append(z)
        one = self.grid[2] == 1
        parts = [part if one else f"{part} z {compress(zs)}" for inside, zs in z_of.items() for part in inside]
        return "workgroups " + "; ".join(parts) if parts else "no workgroup"
