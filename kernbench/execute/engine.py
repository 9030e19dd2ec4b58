"""Executing a trace: batches of PEs in lockstep, suspended where a message or a credit is missing.

A trace is a Kahn process network: each PE runs its commands in order and waits only at channels, so that the
values do not depend on which batch runs first. The order chosen here keeps batches whole: one of which only
some lanes could go on waits as long as any other batch can run, and is split only when none can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from kernbench.errors import ChannelError, InputError
from kernbench.execute.channels import Channels, Message, Need
from kernbench.execute.elementwise import vector
from kernbench.execute.memory import Memory
from kernbench.execute.products import composite, dot
from kernbench.execute.values import Batch, Value
from kernbench.record.deadlock import deadlock_error
from kernbench.record.trace import Command, PEClass, Ref, Trace

Progress = Callable[[int, int], None]
"""Called with the number of commands done, and of all."""


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """What :func:`execute` did."""

    pes: int
    """PEs that took part."""
    commands: int
    """Commands executed, over all PEs."""
    messages: int
    """Messages that PEs sent one another."""
    batches: int
    """Groups of PEs that ran in lockstep."""
    splits: int
    """Times that a batch was split since only some of its PEs could go on."""


def execute(trace: Trace, *, batch: int = 16, progress: Progress | None = None) -> ExecutionReport:
    """Compute the values of a trace and write the results into its tensors.

    Parameters
    ----------
    trace
        As :func:`kernbench.record` returns it. All its tensors must have values.
    batch
        PEs of a class that execute in lockstep. It changes the speed, and no bit of the values.
    progress
        Called now and then with ``(commands done, commands in all)``.

    Raises
    ------
    InputError
        If a tensor is only a shape; names the kernel's parameter.
    DeadlockError
        If PEs wait for one another for ever; names them and their source lines.
    """
    if batch < 1:
        raise InputError(f"batch is a number of PEs, at least 1, not {batch}")
    # BLAS threads cost more than they bring at the sizes of tiles. Floating-point exceptions are values here.
    with threadpool_limits(limits=1, user_api="blas"), np.errstate(all="ignore"):
        return _Scheduler(trace, batch, progress).run()


class _Scheduler:
    """Batches that can run, and batches that wait for channels."""

    def __init__(self, trace: Trace, batch: int, progress: Progress | None) -> None:
        self.trace = trace
        self.memory = Memory(trace)
        self.channels = Channels(trace)
        self.progress = progress
        self.done = 0
        self.splits = 0
        self.ready = deque(_batches(trace, batch))
        self.batches = len(self.ready)
        self.missing: dict[int, dict[Need, int]] = {}
        """For each waiting batch, by identity, what is missing and in which lane."""
        self.waiting: dict[Need, Batch] = {}
        """The batch that waits for something; only one PE can."""
        self.partly_ready: dict[int, Batch] = {}
        """Waiting batches of which some lanes could go on, in the order in which that happened."""
        self.dead_after = {id(cls): _dead_after(cls) for cls in trace.classes}

    def run(self) -> ExecutionReport:
        while self.ready or self.partly_ready:
            self.advance(self.ready.popleft() if self.ready else self.split_off())
        if self.waiting:
            raise deadlock_error(self.trace, self.stuck())
        return ExecutionReport(self.trace.n_pes, self.done, self.channels.messages, self.batches, self.splits)

    def advance(self, batch: Batch) -> None:
        """Run a batch until it ends or must wait."""
        commands = batch.cls.commands
        dead_after = self.dead_after[id(batch.cls)]
        start = batch.next_command
        while batch.next_command < len(commands):
            command = commands[batch.next_command]
            if command.direction >= 0 and self.must_wait(batch, command):
                break
            self.step(batch, command)
            for tile in dead_after[batch.next_command]:
                batch.tiles.pop(tile, None)
            batch.next_command += 1
        self.done += len(batch) * (batch.next_command - start)
        if self.progress is not None:
            self.progress(self.done, self.trace.n_commands)

    def step(self, batch: Batch, command: Command) -> None:
        """Execute one command in all lanes."""
        op, access = command.op, command.access
        if op == "vector":
            batch.tiles[command.dst[0]] = vector(batch, command)
        elif op == "dot":
            batch.tiles[command.dst[0]] = dot(batch, command)
        elif op == "load" and access is not None:
            if command.dst:  # what load_scalar reads was known when recording
                batch.tiles[command.dst[0]] = self.memory.load(batch, command, access)
        elif op == "store" and access is not None:
            self.memory.store(batch, command, access)
        elif op == "composite":
            batch.tiles.update(zip(command.dst, composite(batch, command, self.memory), strict=True))
        elif op == "send":
            self.send(batch, command)
        elif op == "recv":
            self.receive(batch, command)
        else:
            raise ValueError(f"command {op!r} cannot be executed")

    def stuck(self) -> dict[int, tuple[int, str]]:
        """For each PE that waits, its command and whether that is a receive or a send."""
        found = {}
        for batch in self.waiting.values():
            at = batch.next_command
            found.update(dict.fromkeys(batch.pes.tolist(), (at, batch.cls.commands[at].op)))
        return found

    # ------------------------------------------------------------------ channels
    def send(self, batch: Batch, command: Command) -> None:
        """Put each lane's tile into its channel."""
        (source,) = command.srcs
        assert isinstance(source, Ref)
        dtype = source.dtype or batch.cls.tiles[source.tile].dtype
        for pe, array in zip(batch.pes, batch.lanes_of(source), strict=True):
            channel = (int(pe), command.direction)
            self.wake(self.channels.put(channel, Message(array, dtype)))

    def receive(self, batch: Batch, command: Command) -> None:
        """Take each lane's message out of its channel."""
        info = batch.cls.tiles[command.dst[0]]
        lanes = []
        for pe in batch.pes:
            need = self.channels.need(int(pe), command)
            message, room = self.channels.get(need.channel)
            if (message.value.shape, message.dtype) != (info.shape, info.dtype):
                raise self.mismatch(int(pe), need.channel[0], command, message, info.shape, info.dtype)
            lanes.append(message.value)
            self.wake(room)
        batch.tiles[command.dst[0]] = Value(lanes)

    def mismatch(
        self, pe: int, sender: int, command: Command, message: Message, shape: tuple[int, ...], dtype: str
    ) -> ChannelError:
        name = self.trace.machine.pe_name
        return ChannelError(
            f"{name(pe)} receives {shape} of {dtype} from {command.name}, but {name(sender)} sent "
            f"{message.value.shape} of {message.dtype}\n  at {self.trace.lines[command.line]}"
        )

    # ------------------------------------------------------------------ waiting
    def must_wait(self, batch: Batch, command: Command) -> bool:
        """Whether some lane must wait; if so, the batch is put among those that wait."""
        needs = [self.channels.need(int(pe), command) for pe in batch.pes]
        missing = {need: lane for lane, need in enumerate(needs) if not self.channels.is_met(need)}
        if missing:
            self.suspend(batch, missing)
        return bool(missing)

    def suspend(self, batch: Batch, missing: dict[Need, int]) -> None:
        self.missing[id(batch)] = missing
        self.waiting.update(dict.fromkeys(missing, batch))
        if len(missing) < len(batch):
            self.partly_ready[id(batch)] = batch

    def wake(self, met: Need) -> None:
        """Note that a need is met: its batch can go on, wholly or in part."""
        batch = self.waiting.pop(met, None)
        if batch is None:
            return
        missing = self.missing[id(batch)]
        del missing[met]
        if missing:
            self.partly_ready[id(batch)] = batch
            return
        del self.missing[id(batch)]
        self.partly_ready.pop(id(batch), None)
        self.ready.append(batch)

    def split_off(self) -> Batch:
        """Split the batch that has waited longest; return its lanes that can go on."""
        batch = self.partly_ready.pop(next(iter(self.partly_ready)))
        missing = self.missing.pop(id(batch))
        behind = sorted(missing.values())
        ahead = sorted(set(range(len(batch))) - set(behind))
        need_of = {lane: need for need, lane in missing.items()}
        self.suspend(batch.take(behind), {need_of[lane]: i for i, lane in enumerate(behind)})
        self.splits += 1
        self.batches += 1
        return batch.take(ahead)


def _batches(trace: Trace, size: int) -> list[Batch]:
    return [
        Batch(cls, np.arange(first, min(first + size, len(cls.pes))), {})
        for cls in trace.classes
        for first in range(0, len(cls.pes), size)
    ]


def _dead_after(cls: PEClass) -> list[list[int]]:
    """For each command the tiles that no later one needs."""
    dead: list[list[int]] = [[] for _ in cls.commands]
    for tile, last in enumerate(cls.last_use):
        if last >= 0:
            dead[last].append(tile)
    return dead
