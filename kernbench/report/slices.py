"""What a slice of a timeline says: its name, its track, and the facts of the command that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.machine.network import DIRECTIONS
from kernbench.placement import ADDRESS_BITS
from kernbench.record.stream import Engine
from kernbench.record.trace import Command, Lane, PEClass, Ref, Trace
from kernbench.report.counters import requests_of
from kernbench.simulate.program import Kind, Program
from kernbench.simulate.timeline import Timeline
from kernbench.simulate.waits import Held, Waits, commands_of, moments_of, partner_places, waits_of_class

Facts = dict[str, int | str]


@dataclass(frozen=True)
class ClassTracks:
    """The tracks that each PE of a class has, and which of them each command is drawn on."""

    names: tuple[str, ...]
    """``load 0``, ``matrix``, ``send E``, ...: one for each queue of each engine in use."""
    of_command: tuple[tuple[int, ...], ...]
    """For each command the positions of its tracks in :attr:`names`: a composite occupies several engines."""


def class_tracks(program: Program, cls: int) -> ClassTracks:
    """Lay out the tracks of a class.

    Command k of an engine with q queues goes to queue k mod q: it starts when command k - q has ended, so that no two
    slices of a track overlap.
    """
    pe, stream = program.machine.pe, program.trace.classes[cls].stream
    queues = {int(Engine.LOAD): pe.load.queues, int(Engine.STORE): pe.store.queues}
    names: list[str] = []
    of_command: list[list[int]] = [[] for _ in range(len(stream))]
    for engine, commands in sorted(stream.by_engine.items()):
        count = min(queues.get(engine, 1), len(commands))
        for k, command in enumerate(commands.tolist()):
            of_command[command].append(len(names) + k % count)
        names += [_engine_name(engine) + (f" {queue}" if count > 1 else "") for queue in range(count)]
    return ClassTracks(tuple(names), tuple(tuple(tracks) for tracks in of_command))


def _engine_name(engine: int) -> str:
    for verb, first in (("recv", int(Engine.RECV)), ("send", int(Engine.SEND))):
        if engine >= first:
            return f"{verb} {DIRECTIONS[engine - first]}"
    return Engine(engine).name.lower()


# ---------------------------------------------------------------- what all PEs of a class share
def slice_name(trace: Trace, command: Command) -> str:
    """Return the name of a command, with the tensor that it touches."""
    name = command.op if command.op in ("send", "recv") else command.name
    return f"{name} {trace.tensor_names[command.access.tensor]}" if command.access else name


def common_facts(trace: Trace, cls: PEClass, index: int) -> Facts:
    """Return what is true of a command on every PE of its class."""
    command = cls.commands[index]
    facts: Facts = {"source": str(trace.lines[command.line]), "command": index}
    if command.dst:
        facts["result"] = "; ".join(_tile(cls, tile, cls.tiles[tile].shape) for tile in command.dst)
    if command.srcs:
        facts["operands"] = "; ".join(_operand(cls, source) for source in command.srcs)
    if command.access is not None:
        access = command.access
        part = f", valid {_shape(access.valid)}" if access.valid is not None else ""
        facts["access"] = f"{access.dtype} {_shape(access.shape)}, strides {_shape(access.strides)}{part}"
    if command.nbytes:
        facts["bytes"] = command.nbytes
    if command.work:
        facts["work"] = _work(command)
    if command.op in ("send", "recv"):
        facts["message"] = int(cls.stream.message[index])
    return facts


def _operand(cls: PEClass, source: Any) -> str:
    if isinstance(source, Ref):
        return _tile(cls, source.tile, source.shape, source.dtype)
    return "a number of each PE" if isinstance(source, Lane) else str(source)


def _tile(cls: PEClass, tile: int, shape: tuple[int, ...], dtype: str | None = None) -> str:
    info = cls.tiles[tile]
    return f"{dtype or info.dtype} {_shape(shape)} at scratch {info.address:,}"


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _work(command: Command) -> str:
    if command.op == "vector":
        passes = f", {command.work[1]} passes" if len(command.work) > 1 else ""
        return f"{command.work[0]:,} elements{passes}"
    names = ("batch", "m", "n", "k", "chunks")
    return ", ".join(f"{name} {size}" for name, size in zip(names, command.work, strict=False))


# ---------------------------------------------------------------- what differs between PEs
@dataclass(frozen=True)
class Slice:
    """One command of one PE."""

    rank: int
    index: int
    """Place of the command in its PE."""
    start: int
    end: int
    facts: Facts
    partner: tuple[int, int] | None
    """Of a SEND or RECV: rank and index of the RECV or SEND at the other end."""


class ClassSlices:
    """The slices of some PEs of one class."""

    def __init__(self, timeline: Timeline, ranks: np.ndarray) -> None:
        self._program = program = timeline.program
        self._ranks = ranks
        self._times = moments_of(timeline, ranks)
        self._waits = waits_of_class(timeline, ranks)
        self._memories = program.machine.network.memory_names()
        commands, addresses = requests_of(program, ranks)
        self._addresses = dict(zip(commands.tolist(), addresses.T.tolist(), strict=True))
        self._partners = self._find_partners()

    def of_command(self, index: int) -> Iterator[Slice]:
        """Yield the slices of one command, PE by PE."""
        program = self._program
        issue, start, end = (t[:, index].tolist() for t in self._times)
        waits = Waits(*(column[:, index] for column in self._waits))
        waited, held = (waits.issue_ps + waits.start_ps).tolist(), waits.held_before_start().tolist()
        on = waits.on.tolist()
        addresses, partners = self._addresses.get(index), self._partners.get(index)
        for i, rank in enumerate(self._ranks.tolist()):
            facts: Facts = {"start_ps": start[i], "duration_ps": end[i] - start[i], "issue_ps": issue[i]}
            facts["waited_ps"], facts["waited_for"] = waited[i], Held(held[i]).name.lower()
            if on[i] >= 0:
                facts["waited_for_command"] = on[i]
            for name, wait in (("memory_wait_ps", waits.memory_ps), ("link_wait_ps", waits.link_ps)):
                if wait[i]:
                    facts[name] = int(wait[i])
            facts["held_back_by"] = Held(waits.cause[i]).name.lower()
            if addresses is not None:
                facts["memory"] = self._memories[addresses[i] >> ADDRESS_BITS]
                facts["address"] = addresses[i] & ((1 << ADDRESS_BITS) - 1)
            partner = None
            if partners is not None:
                peer = int(np.searchsorted(program.out, partners[i], side="right")) - 1
                partner = (peer, partners[i] - int(program.out[peer]))
                facts["peer"] = program.machine.pe_name(int(program.pe[peer]))
            yield Slice(rank, index, start[i], end[i], facts, partner)

    def _find_partners(self) -> dict[int, list[int]]:
        """Return command → the place of each PE's partner."""
        program = self._program
        kind = program.kind[commands_of(program, self._ranks)]
        found: dict[int, list[int]] = {}
        for kinds in ((Kind.SEND, Kind.SEND_SHARED), (Kind.RECV,)):
            commands = np.flatnonzero(np.isin(kind, kinds))
            if len(commands):
                places = partner_places(program, self._ranks, commands)
                found.update(zip(commands.tolist(), places.T.tolist(), strict=True))
        return found
