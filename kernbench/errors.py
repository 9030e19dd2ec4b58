"""Errors that a user meets. Every one says what is wrong, where, and what would be right.

The command line turns each of these into one message and exit code 2; nothing here is ever shown as a
traceback. A bug of kernbench's own is any other exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KernbenchError(Exception):
    """Bad input: the message is complete and meant for the user."""


class TopologyError(KernbenchError):
    """A machine file that cannot be used: names the file, the key path in it and the mend."""


class SpecError(KernbenchError):
    """A spec field that is unknown or out of its legal range."""


class InputError(KernbenchError):
    """A file, array or argument that cannot be used."""


class KernelError(KernbenchError):
    """A kernel that says something impossible; names the kernel's own source line and the PEs."""


class ScratchError(KernelError):
    """Scratch overflow, or a tile used after its scope ended."""


class ChannelError(KernelError):
    """A message without a receiver, a receive without a sender, or two that disagree."""


class DeadlockError(ChannelError):
    """PEs that wait for one another in a ring."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest known name, or the list of what is known.

    >>> nearest("bandwith", ["bandwidth", "latency"])
    " (did you mean 'bandwidth'?)"
    >>> nearest("gqa_decode", ["gqa_decode_long", "mla_decode"])
    " (did you mean 'gqa_decode_long'?)"
    >>> nearest("zzz", ["a", "b"])
    ' (known: a, b)'
    """
    names = sorted(known)
    folded = {n.lower(): n for n in names}
    close = [folded[name.lower()]] if name.lower() in folded else [n for n in names if name and n.startswith(name)][:1]
    close = close or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not close:
        close = [folded[n] for n in difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)]
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(names)})"


def compress(numbers: Iterable[int]) -> str:
    """Write a set of integers as ranges.

    >>> compress([0, 2, 3, 4, 7])
    '0,2-4,7'
    """
    ordered = sorted(set(numbers))
    parts: list[str] = []
    i = 0
    while i < len(ordered):
        j = i
        while j + 1 < len(ordered) and ordered[j + 1] == ordered[j] + 1:
            j += 1
        parts.append(str(ordered[i]) if i == j else f"{ordered[i]}-{ordered[j]}")
        i = j + 1
    return ",".join(parts)
