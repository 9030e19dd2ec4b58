"""Collectives on values in chunks, for which bandwidth counts: reduce-scatter, all-gather and both in turn.

There are N chunks, one for each program over the levels: chunk k belongs to program k, counted with the outermost level
the slowest, like the parts of ``kb.split(axis, over=levels)``. A chunk is a tuple of tiles. Two forms differ in the way
and in the order in which a program holds its chunks; :func:`chunk_numbers` gives that order:

``ring``
    Along the ring of each level. A program's first chunk is its own, the others follow as the ring goes. All programs
    with the same directions do the same, so that few classes are recorded; the order is per PE, for pointers.
``line``
    Along each row and column in both directions at once, chunks in the order of their numbers. As few hops as the
    distances allow, on any grid; but every program does something else, and each is recorded on its own.

Both send what must be sent and nothing twice: N (N - 1) chunks over all programs for either half, not counting the
hops of a folded ring. Received chunks and sums take new scratch: up to twice that of the chunks for a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from kernbench.collectives.grids import Combine, Line, Partial, exchange, grid_of, inside_out, programs_over
from kernbench.collectives.ring import Ring
from kernbench.errors import KernelError, nearest
from kernbench.tl import Language, Tile

Form = Literal["ring", "line"]
FORMS = ("ring", "line")


def chunk_numbers(levels: Collection[str], form: Form = "ring", *, tl: Language) -> list[Any]:
    """Return the numbers of the N chunks, in the order in which this program holds them: int, or one per PE."""
    _check(form, tl)
    numbers: list[Any] = [0]
    for level in reversed(inside_out(levels, tl)):
        n = grid_of(level, tl).count
        owners: list[Any] = list(range(n))
        if form == "ring" and n > 1:
            ring = Ring(level, tl)
            owners = [ring.ahead(j) for j in range(n)]
        numbers = [number * n + owner for number in numbers for owner in owners]
    return numbers


def reduce_scatter(
    chunks: Sequence[Partial], combine: Combine, levels: Collection[str], form: Form = "ring", *, tl: Language
) -> Partial:
    """Combine the programs' chunks with the same number; return this program's own, combined over all.

    Parameters
    ----------
    chunks
        As many tuples of tiles as there are programs over ``levels``, in the order of :func:`chunk_numbers`, with the
        same shapes in all.
    combine
        Function of two such tuples; it must not mind the order.
    levels
        Levels to reduce over; the innermost goes first, so that outer links carry less.

    Notes
    -----
    Messages for each tile of a chunk, once for each group of programs: N (N - 1) in form ``line``. In form ``ring``
    each of the rings of a level with n programs takes (n - 1) N' steps, N' being the number of chunks left after the
    level, with n messages a step, or 2 (n - 1) where the ring is folded; with no ring folded that is N (N - 1) too.
    """
    _check(form, tl)
    ordered = inside_out(levels, tl)
    _check_count(chunks, ordered, tl)
    left = list(chunks)
    for level in ordered:
        if form == "line":
            for line in grid_of(level, tl).lines(tl):
                left = _scatter_on_line(left, combine, line, tl)
        elif grid_of(level, tl).count > 1:
            left = _scatter_on_ring(left, combine, Ring(level, tl))
    return left[0]


def all_gather(own: Partial, levels: Collection[str], form: Form = "ring", *, tl: Language) -> list[Partial]:
    """Return every program's tiles, in the order of :func:`chunk_numbers`.

    The outermost level goes first, so that no link carries anything twice. Messages as for :func:`reduce_scatter`.
    """
    _check(form, tl)
    gathered = [own]
    for level in reversed(inside_out(levels, tl)):
        if form == "line":
            for line in reversed(grid_of(level, tl).lines(tl)):
                gathered = _gather_on_line(gathered, line, tl)
        elif grid_of(level, tl).count > 1:
            gathered = _gather_on_ring(gathered, Ring(level, tl))
    return gathered


def all_reduce_chunks(
    chunks: Sequence[Partial], combine: Combine, levels: Collection[str], form: Form = "ring", *, tl: Language
) -> list[Partial]:
    """Combine the programs' chunks with the same number; every program gets all. See :func:`reduce_scatter`.

    With no ring folded, the programs send 2 (N - 1) / N of the value each, the least that is possible. Scratch that the
    first half needs is free again for the second.
    """
    _check(form, tl)
    _check_count(chunks, inside_out(levels, tl), tl)
    if len(chunks) == 1:
        return list(chunks)
    own = tuple(tl.empty(tile.shape, tile.dtype) for tile in chunks[0])
    with tl.scratch_scope():
        for tile, found in zip(own, reduce_scatter(chunks, combine, levels, form, tl=tl), strict=True):
            tl.copy_to(tile, found)
    return all_gather(own, levels, form, tl=tl)


def _check(form: str, tl: Language) -> None:
    if form not in FORMS:
        raise tl.error(KernelError, f"unknown form {form!r}{nearest(str(form), FORMS)}")


def _check_count(chunks: Sequence[Partial], levels: list[str], tl: Language) -> None:
    n = programs_over(levels, tl=tl)
    if len(chunks) != n:
        raise tl.error(KernelError, f"reduce_scatter over {n} programs needs {n} chunks, not {len(chunks)}")


# ---------------------------------------------------------------- on a ring; list index = outer * n + places ahead
def _scatter_on_ring(chunks: list[Partial], combine: Combine, ring: Ring) -> list[Partial]:
    """The sum that ends here was begun by the next program and has grown all the way round."""
    n = ring.count
    sums = chunks[n - 1 :: n]
    for j in range(n - 2, -1, -1):
        sums = [combine(ring.shift(theirs), mine) for theirs, mine in zip(sums, chunks[j::n], strict=True)]
    return sums


def _gather_on_ring(own: list[Partial], ring: Ring) -> list[Partial]:
    n = ring.count
    by_place = [own] * n
    for j in range(n - 1, 0, -1):  # what comes first is of the program before, which is n - 1 places ahead
        by_place[j] = [ring.shift(theirs) for theirs in by_place[(j + 1) % n]]
    return _interleave(by_place)


# ---------------------------------------------------------------- on a line; list index = outer * n + place
def _scatter_on_line(chunks: list[Partial], combine: Combine, line: Line, tl: Language) -> list[Partial]:
    """Sums flow from both ends to their owners, the farthest first: an all-gather backwards."""
    n = line.count
    if n == 1:
        return chunks
    i = int(line.index)
    sums = [chunks[j::n] for j in range(n)]
    for m in range(n - 2, -1, -1):
        back, ahead = _at(sums, i - 1 - m), _at(sums, i + 1 + m)
        from_ahead = _at(sums, i - m) if i + 1 < n else []
        from_back = _at(sums, i + m) if i > 0 else []
        theirs_ahead, theirs_back = exchange(
            [(line.back, _tiles(back)), (line.ahead, _tiles(ahead))],
            [(line.ahead, _tiles(from_ahead)), (line.back, _tiles(from_back))],
            tl,
        )
        if from_ahead:
            sums[i - m] = _combine_all(combine, from_ahead, _partials(theirs_ahead, from_ahead))
        if from_back:
            sums[i + m] = _combine_all(combine, _partials(theirs_back, from_back), _at(sums, i + m))
    return sums[i]


def _gather_on_line(own: list[Partial], line: Line, tl: Language) -> list[Partial]:
    """Everything flows to both ends, what is nearest first."""
    n = line.count
    if n == 1:
        return own
    i = int(line.index)
    got: list[list[Partial]] = [[] for _ in range(n)]
    got[i] = own
    for m in range(n - 1):
        ahead = _at(got, i - m) if i + 1 < n else []
        back = _at(got, i + m) if i > 0 else []
        from_back = own if i - 1 - m >= 0 else []
        from_ahead = own if i + 1 + m < n else []
        theirs_back, theirs_ahead = exchange(
            [(line.ahead, _tiles(ahead)), (line.back, _tiles(back))],
            [(line.back, _tiles(from_back)), (line.ahead, _tiles(from_ahead))],
            tl,
        )
        if from_back:
            got[i - 1 - m] = _partials(theirs_back, own)
        if from_ahead:
            got[i + 1 + m] = _partials(theirs_ahead, own)
    return _interleave(got)


def _at(by_place: list[list[Partial]], place: int) -> list[Partial]:
    return by_place[place] if 0 <= place < len(by_place) else []


def _tiles(partials: list[Partial]) -> list[Tile]:
    return [tile for partial in partials for tile in partial]


def _partials(tiles: list[Tile], like: list[Partial]) -> list[Partial]:
    """Cut a flat list of tiles into tuples as long as those of ``like``."""
    rest = iter(tiles)
    return [tuple(next(rest) for _ in partial) for partial in like]


def _combine_all(combine: Combine, some: list[Partial], others: list[Partial]) -> list[Partial]:
    return [combine(a, b) for a, b in zip(some, others, strict=True)]


def _interleave(by_place: list[list[Partial]]) -> list[Partial]:
    return [place[outer] for outer in range(len(by_place[0])) for place in by_place]
