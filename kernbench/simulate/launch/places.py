"""The part of a machine that a launch runs on, and how many workgroups fit into each PE."""

from __future__ import annotations

from dataclasses import dataclass

from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.machine.schema import LaunchSpec, ResidencySpec, WorkgroupSpec
from kernbench.simulate.launch.steps import Level, Places


@dataclass(frozen=True)
class Resources:
    """What one workgroup occupies of its PE."""

    waves: int
    """Waves (warps)."""
    registers: int
    """Registers of a thread, 32 bits each."""
    lds_bytes: int
    """Scratch (LDS, shared memory)."""


def residency_of(machine: Machine) -> ResidencySpec:
    """Return how many workgroups a PE holds. Raises InputError if the machine is a mesh of programs."""
    if machine.pe.residency is None:
        raise InputError(
            f"{machine.name} gives each PE one program of its own: a grid of workgroups needs a machine whose PEs hold "
            "them (pe.residency), such as h200 or mi300x"
        )
    return machine.pe.residency


def workgroup_of(machine: Machine) -> WorkgroupSpec:
    """Return what each workgroup costs beside its work."""
    residency_of(machine)
    assert machine.pe.workgroup is not None  # checks.faults refuses a machine without one
    return machine.pe.workgroup


def launch_of(machine: Machine) -> LaunchSpec:
    """Return what it takes to start a grid."""
    residency_of(machine)
    assert machine.spec.launch is not None  # checks.faults refuses a machine without one
    return machine.spec.launch


def slots_of(machine: Machine, needs: Resources) -> int:
    """Return how many workgroups fit into a PE at once.

    The least of what the number of workgroups, of waves, the registers and the scratch allow. A thread's registers are
    rounded up to the granule; each workgroup takes ``scratch_reserved`` bytes beside its own.

    Raises
    ------
    InputError
        If not even one fits; says what it lacks.
    """
    has = residency_of(machine)
    granule = has.register_granule
    registers = -(-max(needs.registers, 1) // granule) * granule * has.wave_size * needs.waves
    limits = {
        "workgroups": has.workgroups,
        "waves": has.waves // needs.waves,
        "registers": has.registers // registers,
        "scratch": machine.pe.scratch // (needs.lds_bytes + has.scratch_reserved) if needs.lds_bytes else 1 << 30,
    }
    scarce = min(limits, key=lambda name: limits[name])
    if limits[scarce] < 1:
        asked = {
            "waves": f"{needs.waves} waves, a PE holds {has.waves}",
            "registers": f"{registers:,} registers, a PE has {has.registers:,}",
            "scratch": f"{needs.lds_bytes:,} bytes of scratch, a PE has {machine.pe.scratch:,}",
        }[scarce]
        raise InputError(f"a workgroup does not fit into a PE of {machine.name}: it needs {asked}")
    return limits[scarce]


def places_of(machine: Machine, needs: Resources) -> Places:
    """Return the places for workgroups in one SIP of a machine."""
    launch, workgroup, memory = launch_of(machine), workgroup_of(machine), machine.memory
    caches = [("l2", True, machine.spec.cube.cache), ("cache", False, machine.spec.sip.cache)]
    after = machine.pe.load.latency
    levels = [Level(name, own, c.bandwidth, c.latency + after, c.size) for name, own, c in caches if c is not None]
    bandwidth = round(memory.bandwidth * memory.achievable)
    latency = memory.latency + after
    behind = Level("memory", False, bandwidth, latency, 0, memory.channels, memory.interleave)
    return Places(
        cubes=machine.cubes_per_sip,
        pes_per_cube=machine.pes_per_cube,
        slots=slots_of(machine, needs),
        port_bandwidth=machine.pe.load.bandwidth,
        levels=(*levels, behind),
        store_bandwidth=bandwidth,
        dispatch_ps=launch.dispatch,
        start_ps=workgroup.start,
    )
