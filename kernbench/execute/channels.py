"""Channels between PEs, and who waits for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from kernbench.errors import ChannelError
from kernbench.machine.network import OPPOSITE
from kernbench.record.trace import Command, Trace


@dataclass(frozen=True, slots=True)
class Message:
    """What one ``send`` put into a channel."""

    value: np.ndarray
    """The tile in the shape that the sender saw; nobody writes to it."""
    dtype: str


@dataclass(frozen=True, slots=True)
class Need:
    """What a PE needs before its next command: a message in a channel, or room for one more."""

    op: str
    """``recv`` or ``send``."""
    channel: tuple[int, int]
    """(sender, direction in which it sends)."""


@dataclass
class Channels:
    """All channels of a machine: bounded queues, each from one PE to one other."""

    trace: Trace
    messages: int = 0
    """Messages sent so far."""
    _queues: dict[tuple[int, int], deque[Message]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._peer = self.trace.machine.network.peer
        machine = self.trace.machine
        self._depth = 0 if machine.holds_workgroups else machine.channel.depth  # workgroups have no channels

    def need(self, pe: int, command: Command) -> Need:
        """Return what a PE needs to execute a ``send`` or ``recv``."""
        peer = int(self._peer[pe, command.direction])
        if peer < 0:
            where = f"{self.trace.machine.pe_name(pe)} has no neighbour in direction {command.name}"
            raise ChannelError(f"{command.op}: {where}\n  at {self.trace.lines[command.line]}")
        if command.op == "send":
            return Need("send", (pe, command.direction))
        return Need("recv", (peer, int(OPPOSITE[command.direction])))

    def is_met(self, need: Need) -> bool:
        """Whether the message is there, or there is room for one."""
        waiting = len(self._queues.get(need.channel, ()))
        return waiting > 0 if need.op == "recv" else waiting < self._depth

    def put(self, channel: tuple[int, int], message: Message) -> Need:
        """Put a message into a channel; return the need that this meets."""
        self._queues.setdefault(channel, deque()).append(message)
        self.messages += 1
        return Need("recv", channel)

    def get(self, channel: tuple[int, int]) -> tuple[Message, Need]:
        """Take the oldest message out of a channel; return it and the need that this meets."""
        return self._queues[channel].popleft(), Need("send", channel)
