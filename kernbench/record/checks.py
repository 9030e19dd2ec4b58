"""Checks of a whole trace: messages between PEs that match."""

from __future__ import annotations

import numpy as np

from kernbench.errors import ChannelError
from kernbench.machine.network import DIRECTIONS, OPPOSITE
from kernbench.record.trace import Command, PEClass, Trace

Messages = dict[int, list[int]]
"""Commands of a class that send, or receive, by direction."""


def class_of_pe(trace: Trace) -> np.ndarray:
    """Return int64[pe]: the index of each PE's class, -1 for PEs that take no part."""
    of = np.full(trace.machine.n_pes, -1)
    for i, cls in enumerate(trace.classes):
        of[cls.pes] = i
    return of


def messages(cls: PEClass, op: str) -> Messages:
    """Return the indices of a class's ``send`` or ``recv`` commands, by direction, in order."""
    found: Messages = {}
    for i, command in enumerate(cls.commands):
        if command.op == op:
            found.setdefault(command.direction, []).append(i)
    return found


def check_channels(trace: Trace) -> None:
    """Check that every message is received, every receive sent, and that the two agree.

    Raises
    ------
    ChannelError
        Naming both PEs, the channel and both source lines.
    """
    network = trace.machine.network
    of = class_of_pe(trace)
    sends = [messages(c, "send") for c in trace.classes]
    recvs = [messages(c, "recv") for c in trace.classes]
    seen = set()
    for mine, outgoing in ((sends, True), (recvs, False)):
        for c, by_direction in enumerate(mine):
            for d in by_direction:
                peers = network.peer[trace.classes[c].pes, d]
                for other in np.unique(of[peers]):
                    pair = (c, d, int(other)) if outgoing else (int(other), int(OPPOSITE[d]), c)
                    if pair in seen:
                        continue
                    seen.add(pair)
                    _check_pair(trace, pair, sends, recvs, of)


def _check_pair(
    trace: Trace, pair: tuple[int, int, int], sends: list[Messages], recvs: list[Messages], of: np.ndarray
) -> None:
    sender, direction, receiver = pair
    back = int(OPPOSITE[direction])
    sent = sends[sender].get(direction, []) if sender >= 0 else []
    received = recvs[receiver].get(back, []) if receiver >= 0 else []
    for k, (i, j) in enumerate(zip(sent, received, strict=False)):
        a, b = trace.classes[sender].commands[i], trace.classes[receiver].commands[j]
        if a.attrs != b.attrs:
            raise _mismatch(trace, pair, of, k, a, b)
    if len(sent) > len(received):
        command = trace.classes[sender].commands[sent[len(received)]]
        who, peer = _who(trace, pair, of)
        raise ChannelError(
            f"message {len(received)} from {who} in direction {DIRECTIONS[direction]} is never received: "
            f"{peer} receives {len(received)} of {len(sent)} messages from {DIRECTIONS[back]}"
            f"\n  sent at {trace.lines[command.line]}"
            f'\n  add tl.recv(dir="{DIRECTIONS[back]}", ...) on the receiver, or do not send'
        )
    if len(received) > len(sent):
        command = trace.classes[receiver].commands[received[len(sent)]]
        who, peer = _who(trace, pair, of)
        raise ChannelError(
            f"{peer} waits for message {len(sent)} from {DIRECTIONS[back]}, but {who} sends only {len(sent)} of "
            f"{len(received)} in direction {DIRECTIONS[direction]}"
            f"\n  received at {trace.lines[command.line]}"
            f'\n  add tl.send(dir="{DIRECTIONS[direction]}", ...) on the sender, or do not receive'
        )


def _who(trace: Trace, pair: tuple[int, int, int], of: np.ndarray) -> tuple[str, str]:
    """Name the senders and the receivers that a pair of classes stands for."""
    sender, direction, receiver = pair
    network, machine = trace.machine.network, trace.machine
    if sender >= 0:
        pes = trace.classes[sender].pes
        peers = network.peer[pes, direction]
        pes = pes[of[peers] == receiver]
    else:
        peers = network.peer[trace.classes[receiver].pes, OPPOSITE[direction]]
        pes = peers[of[peers] == sender]
    return machine.describe_pes(pes), machine.describe_pes(network.peer[pes, direction])


def _mismatch(trace: Trace, pair: tuple[int, int, int], of: np.ndarray, k: int, a: Command, b: Command) -> ChannelError:
    who, peer = _who(trace, pair, of)
    hint = ""
    if a.attrs["dtype"] != b.attrs["dtype"]:
        hint = f'\n  receive it as "{a.attrs["dtype"]}", or send tl.cast(tile, "{b.attrs["dtype"]}")'
        if (a.attrs["dtype"], b.attrs["dtype"], trace.dot_dtype) == ("f32", "f16", "f32"):
            hint += '; for a matrix engine that rounds to float16, record with dot_dtype="f16"'
    return ChannelError(
        f"message {k} from {who} in direction {DIRECTIONS[pair[1]]} is {tuple(a.attrs['shape'])} {a.attrs['dtype']}, "
        f"but {peer} receives it as {tuple(b.attrs['shape'])} {b.attrs['dtype']}"
        f"\n  sent at     {trace.lines[a.line]}"
        f"\n  received at {trace.lines[b.line]}{hint}"
    )
