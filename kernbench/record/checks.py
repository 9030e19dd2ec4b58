"""Checks of a whole trace: messages that match, and memory that no two PEs fight over."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernbench.dtypes import DTYPES
from kernbench.errors import ChannelError, KernelError
from kernbench.machine.network import OPPOSITE
from kernbench.record.trace import Access, Command, Lane, PEClass, Trace
from kernbench.tl import DIRECTIONS


def class_of_pe(trace: Trace) -> np.ndarray:
    """Return int64[pe]: the index of each PE's class, -1 for PEs that take no part."""
    of = np.full(trace.machine.n_pes, -1)
    for i, cls in enumerate(trace.classes):
        of[cls.pes] = i
    return of


def messages(cls: PEClass, op: str) -> dict[int, list[int]]:
    """Return the indices of a class's ``send`` or ``recv`` commands, by direction, in order."""
    found: dict[int, list[int]] = {}
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
    trace: Trace, pair: tuple[int, int, int], sends: list[dict[int, list[int]]], recvs: list[dict[int, list[int]]], of: Any
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
        f"message {k} from {who} in direction {DIRECTIONS[pair[1]]} is {tuple(a.attrs['shape'])} {a.attrs['dtype']}, but "
        f"{peer} receives it as {tuple(b.attrs['shape'])} {b.attrs['dtype']}"
        f"\n  sent at     {trace.lines[a.line]}"
        f"\n  received at {trace.lines[b.line]}{hint}"
    )


def check_races(trace: Trace) -> None:
    """Check that no PE touches bytes of a device tensor that another PE writes in the same launch.

    PEs share no clock, so what such a read returned would depend on when it happened.

    Raises
    ------
    KernelError
        Naming the tensor, both PEs and both source lines.
    """
    written = {
        c.access.tensor for cls in trace.classes for c in cls.commands if c.op == "store" and c.access is not None
    }
    for tensor in sorted(written):
        _check_tensor(trace, tensor)


def _check_tensor(trace: Trace, tensor: int) -> None:
    lows, highs, pes, stores, lines = [], [], [], [], []
    for cls in trace.classes:
        touches = [c for c in cls.commands if c.access is not None and c.access.tensor == tensor]
        for command in touches:
            access = command.access
            assert access is not None
            below, above = reach(access)
            base = cls.columns[access.address.column] + access.address.offset
            lows.append(base + below)
            highs.append(base + above)
            pes.append(cls.pes)
            stores.append(np.full(len(cls.pes), command.op == "store"))
            lines.append(np.full(len(cls.pes), command.line))
    low, high, pe, store, line = (np.concatenate(v) for v in (lows, highs, pes, stores, lines))
    order = np.lexsort((pe, low))
    low, high, pe, store, line = low[order], high[order], pe[order], store[order], line[order]
    if not (low[1:] < np.maximum.accumulate(high)[:-1]).any():
        return
    _sweep(trace, tensor, low, high, pe, store, line)


def _sweep(
    trace: Trace, tensor: int, low: np.ndarray, high: np.ndarray, pe: np.ndarray, store: np.ndarray, line: np.ndarray
) -> None:
    """Compare each range with those that begin inside it."""
    ends = np.searchsorted(low, high, side="left")
    for i in np.flatnonzero(ends > np.arange(len(low)) + 1):
        others = np.arange(i + 1, ends[i])
        clash = others[(pe[others] != pe[i]) & (store[others] | store[i])]
        if len(clash):
            j = int(clash[0])
            first, second = (i, j) if store[i] else (j, i)
            verb = "also written" if store[second] else "read"
            machine = trace.machine
            raise KernelError(
                f"{trace.tensor_names[tensor]} is written by {machine.pe_name(int(pe[first]))} and {verb} by "
                f"{machine.pe_name(int(pe[second]))} at the same bytes: which comes first would depend on timing"
                f"\n  written at {trace.lines[line[first]]}"
                f"\n  {verb} at {trace.lines[line[second]]}"
                "\n  pass the value on a channel, or let one PE store"
            )


def reach(access: Access) -> tuple[int, int]:
    """Return the first byte touched and the byte behind the last, from the address of the access."""
    size = DTYPES[access.dtype].nbytes
    touched = access.valid or access.shape
    ends = [(n - 1) * s for n, s in zip(touched, access.strides, strict=True)]
    return sum(e for e in ends if e < 0) * size, (sum(e for e in ends if e > 0) + 1) * size


def lane_values(cls: PEClass, value: Lane | int) -> np.ndarray:
    """Return a lane value of a class as int64[n]."""
    if isinstance(value, Lane):
        return cls.columns[value.column] + value.offset
    return np.full(len(cls.pes), value)
