"""Reductions along one line of programs. Channels lead to neighbours only, so distance is paid for hop by hop.

On a line of n programs, for a partial result of one tile (``t`` tiles: ``t`` times as many):

========= ================================== ============ ============================= ======================
form      messages                           hops in turn combinations in turn          who has the result
========= ================================== ============ ============================= ======================
chain     n - 1                              n - 1        n - 1                         the first
tree      sum of d for each pair that meets  n - 1        ceil(log2 n)                  the first
butterfly one a program and round            n - 1        ceil(log2 n)                  all
========= ================================== ============ ============================= ======================

With n a power of two, tree sends ``n / 2 * log2 n`` messages and butterfly ``n * log2 n``; see :func:`tree_messages`
and :func:`butterfly_messages`. Messages follow one another in (round, tile, hop), and a program handles its own in
this order: nobody waits for something later, so the forms cannot deadlock, even where a channel holds one message.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernbench.collectives.grids import Combine, Line, Partial, forward, receive
from kernbench.tl import Language


def chain(partial: Partial, combine: Combine, line: Line, tl: Language) -> Partial:
    """Take in what the programs behind have gathered, and pass the sum on to the one in front."""
    if line.index < line.count - 1:
        partial = combine(partial, tuple(receive(line.ahead, tile, tl) for tile in partial))
    if line.index > 0:
        _send(partial, line.back, tl)
    return partial


def tree(partial: Partial, combine: Combine, line: Line, tl: Language) -> Partial:
    """In the round with distance d, hand the sum of every second block of d programs to the block before.

    The programs between the two that meet forward the message; each has handed in its own sum before.
    """
    if line.count == 1:
        return partial
    index = int(line.index)
    for distance in _distances(line.count):
        place = index % (2 * distance)
        if index - place + distance >= line.count:
            continue
        if place == 0:
            partial = combine(partial, tuple(receive(line.ahead, tile, tl) for tile in partial))
        elif place == distance:
            _send(partial, line.back, tl)
        elif place < distance:
            forward(line.ahead, line.back, partial, tl)
    return partial


def butterfly(partial: Partial, combine: Combine, line: Line, tl: Language) -> Partial:
    """In the round with distance d, neighbouring blocks of d programs exchange their sums, which all in them hold.

    The two programs at the border exchange, and each passes what it hears on through its own block: as many hops as
    between partners at distance d, but one message a program instead of d.
    """
    if line.count == 1:
        return partial
    index = int(line.index)
    for distance in _distances(line.count):
        place = index % (2 * distance)
        first = index - place
        if first + distance >= line.count:
            continue
        end = min(first + 2 * distance, line.count) - 1
        if place < distance:
            onward = line.back if place > 0 else ""
            other = _hear(partial, line.ahead, onward, place == distance - 1, tl)
            partial = combine(partial, other)
        else:
            onward = line.ahead if index < end else ""
            other = _hear(partial, line.back, onward, place == distance, tl)
            partial = combine(other, partial)
    return partial


def tree_messages(n: int) -> int:
    """Messages of :func:`tree` on a line of n programs, for a partial result of one tile.

    The sum of d over each block of d programs that has a block before it, for d = 1, 2, 4 ... below n.

    >>> [tree_messages(n) for n in (1, 2, 3, 4, 8)]
    [0, 1, 3, 4, 12]
    """
    return sum(d * len(range(d, n, 2 * d)) for d in _distances(n))


def butterfly_messages(n: int) -> int:
    """Messages of :func:`butterfly` on a line of n programs, for a partial result of one tile.

    In each round d = 1, 2, 4 ... below n, each program hears one message, except the ``n mod 2d`` last ones where these
    are at most d and so have no partner.

    >>> [butterfly_messages(n) for n in (1, 2, 3, 4, 8)]
    [0, 2, 5, 8, 24]
    """
    return sum(n - (n % (2 * d) if n % (2 * d) <= d else 0) for d in _distances(n))


def _distances(n: int) -> Iterator[int]:
    distance = 1
    while distance < n:
        yield distance
        distance *= 2


def _send(partial: Partial, toward: str, tl: Language) -> None:
    for tile in partial:
        tl.send(dir=toward, src=tile)


def _hear(partial: Partial, source: str, onward: str, at_border: bool, tl: Language) -> Partial:
    """Receive the other block's sum and pass it on through this block; at the border, send this block's first."""
    heard = []
    for tile in partial:
        if at_border:
            tl.send(dir=source, src=tile)
        heard.append(receive(source, tile, tl))
        if onward:
            tl.send(dir=onward, src=heard[-1])
    return tuple(heard)
