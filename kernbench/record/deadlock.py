"""Deadlock: PEs that wait for one another for ever, told so that a kernel's author can mend it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kernbench.errors import DeadlockError
from kernbench.machine.network import DIRECTIONS, OPPOSITE
from kernbench.record.trace import Command, Trace

_SHOWN = 8
"""PEs of a ring that are told one by one; longer rings are told by what their PEs have in common."""


class Wait(NamedTuple):
    """What a stuck PE waits for."""

    pe: int
    command: Command
    peer: int
    """The PE that would have to act."""


def deadlock_error(trace: Trace, stuck: Mapping[int, tuple[int, str]]) -> DeadlockError:
    """Return the error that tells why no PE can go on.

    Parameters
    ----------
    trace
        What the PEs do.
    stuck
        For each PE that has not ended, the index of the command that it is stuck at and what that is: a
        ``"recv"`` whose message has not come, or a ``"send"`` into a full channel.

    Returns
    -------
    DeadlockError
        With the ring of PEs that wait for one another, the source line of each, and the mend.
    """
    waits = _waits(trace, stuck)
    chain, is_ring = _follow(waits)
    shown = chain if is_ring else chain[-1:]
    if is_ring:
        head = f"deadlock: {_count(len(chain), 'PE')} wait for one another in a ring"
    else:
        head = f"deadlock: {trace.machine.pe_name(chain[-1].pe)} waits for a PE that has ended"
    if len(waits) > len(shown):
        head += f", and {_count(len(waits), 'PE')} in all cannot go on"
    lines = [head, *_tell(trace, shown)]
    if len(waits) > len(shown):
        lines.append(f"  stuck in all: {trace.machine.describe_pes(sorted(waits))}")
    lines.append(f"  {_mend(trace, chain, is_ring)}")
    return DeadlockError("\n".join(lines))


def _waits(trace: Trace, stuck: Mapping[int, tuple[int, str]]) -> dict[int, Wait]:
    peer = trace.machine.network.peer
    waits = {}
    for cls in trace.classes:
        for pe in cls.pes.tolist():
            if pe in stuck:
                index, reason = stuck[pe]
                command = cls.commands[index]
                if command.op != reason:
                    raise ValueError(f"command {index} of PE {pe} is a {command.op}, not the {reason} it is stuck at")
                waits[pe] = Wait(pe, command, int(peer[pe, command.direction]))
    return waits


def _follow(waits: Mapping[int, Wait]) -> tuple[list[Wait], bool]:
    """Follow the waits from PE to PE; return the first ring, or else a chain that ends at a PE that is not stuck."""
    seen: set[int] = set()
    chain: list[Wait] = []
    for pe in waits:
        path: dict[int, int] = {}
        at = pe
        while at in waits and at not in seen:
            seen.add(at)
            path[at] = len(path)
            at = waits[at].peer
        walked = [waits[p] for p in path]
        if at in path:
            return walked[path[at] :], True
        if at not in waits:
            chain = chain or walked
    return chain, False


def _tell(trace: Trace, waits: list[Wait]) -> list[str]:
    if len(waits) <= _SHOWN:
        name = trace.machine.pe_name
        return [_sentence(trace, name(w.pe), w.command, name(w.peer)) for w in waits]
    alike: dict[tuple[str, int, int], list[Wait]] = {}
    for wait in waits:
        alike.setdefault((wait.command.op, wait.command.direction, wait.command.line), []).append(wait)
    who = trace.machine.describe_pes
    return [
        _sentence(trace, who(_sorted(w.pe for w in group)), group[0].command, who(_sorted(w.peer for w in group)))
        for group in alike.values()
    ]


def _sorted(pes: Iterable[int]) -> list[int]:
    return sorted(set(pes))


def _sentence(trace: Trace, who: str, command: Command, peer: str) -> str:
    direction = DIRECTIONS[command.direction]
    if command.op == "recv":
        what = f"receives from {direction}, where {peer} has not sent"
    else:
        depth = trace.machine.channel.depth
        what = f"sends to {direction}, where {peer} has not received the last {_count(depth, 'message')}"
    return f"  {who} {what}\n    at {trace.lines[command.line]}"


def _mend(trace: Trace, chain: list[Wait], is_ring: bool) -> str:
    depth = trace.machine.channel.depth
    last = chain[-1]
    back = DIRECTIONS[int(OPPOSITE[last.command.direction])]
    peer = trace.machine.pe_name(last.peer)
    if not is_ring and last.command.op == "recv":
        return f'{peer} has ended: let it tl.send(dir="{back}", ...), or do not receive'
    if not is_ring:
        return f'{peer} has ended: let it tl.recv(dir="{back}", ...), or do not send'
    operations = {wait.command.op for wait in chain}
    who = "both" if len(chain) == 2 else "all"
    if operations == {"recv"}:
        return f"{who} receive before they send: send first on one side"
    if operations == {"send"}:
        return (
            f"{who} send before they receive, and a channel holds {_count(depth, 'message')}: "
            "receive first on one side, or raise pe.channel.depth"
        )
    return (
        "one side receives in another order than the other sends: let both keep the same order, or raise "
        f"pe.channel.depth (now {depth}) to the number of messages that must wait"
    )


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"
