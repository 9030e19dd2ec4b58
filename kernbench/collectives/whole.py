"""Collectives on whole partial results, for which latency counts: reduce, all-reduce and broadcast."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kernbench.collectives.grids import LEVELS, Combine, Grid, Like, Partial, grid_of, inside_out, is_first, receive
from kernbench.collectives.lines import butterfly, chain, tree
from kernbench.errors import KernelError, nearest
from kernbench.tl import Language, Tile

FORMS = {"chain": chain, "tree": tree, "butterfly": butterfly}


def reduce_to_root(
    partial: Partial, combine: Combine, levels: Collection[str], reduction: str = "chain", *, tl: Language
) -> Partial | None:
    """Combine every program's partial result into one, held by the program with index 0 at each of ``levels``.

    The innermost level goes first. At each level the rows of its grid are reduced westward, then the first column
    northward; only programs with index 0 go on to the next level. Programs whose indices at other levels differ form
    groups of their own.

    Parameters
    ----------
    partial
        Tiles of this program, of the same shapes on every program.
    combine
        Function of two partial results that returns their combination; it must not mind the order.
    levels
        Levels to reduce over, out of ``"pe"``, ``"cube"`` and ``"sip"``.
    reduction
        ``chain``: from neighbour to neighbour; ``tree``: in rounds of doubled distance; ``butterfly``: in rounds in
        which all programs of a level come to hold the sum (rows first, then columns). What each costs is listed in
        :mod:`kernbench.collectives.lines`.

    Returns
    -------
    tuple of Tile, or None
        The whole at the root, None at every other program.

    Notes
    -----
    Messages for each tile of the partial result, on a level of R x C programs, once for each group of programs:

    * chain: R (C - 1) + (R - 1) = R C - 1
    * tree: R T(C) + T(R), T being :func:`~kernbench.collectives.tree_messages`
    * butterfly: R B(C) + C B(R), B being :func:`~kernbench.collectives.butterfly_messages`
    """
    if reduction not in FORMS:
        raise tl.error(KernelError, f"unknown reduction {reduction!r}{nearest(str(reduction), FORMS)}")
    for level in inside_out(levels, tl):
        grid = grid_of(level, tl)
        for line in grid.lines(tl):
            partial = FORMS[reduction](partial, combine, line, tl)
            if reduction != "butterfly" and line.index > 0:
                return None
        if tl.program_id(grid.axis) > 0:
            return None
    return partial


def all_reduce(partial: Partial, combine: Combine, levels: Collection[str], *, tl: Language) -> Partial:
    """Combine every program's partial result; every program gets the whole, equal to the last bit.

    The form for small results: a tree over the inner levels, a butterfly between the programs with index 0 there over
    the outermost one (of those with more than one program), and a broadcast back. For large results see
    :func:`~kernbench.collectives.all_reduce_chunks`.

    Parameters
    ----------
    partial, combine, levels
        As for :func:`reduce_to_root`.

    Notes
    -----
    Messages for each tile: those of ``tree`` over the inner levels and of ``butterfly`` over the outermost one, and
    one for each program that is not first at the inner levels.
    """
    ordered = [level for level in inside_out(levels, tl) if grid_of(level, tl).count > 1]
    if not ordered:
        return partial
    inner = ordered[:-1]
    whole = reduce_to_root(partial, combine, inner, "tree", tl=tl)
    if whole is not None:
        for line in grid_of(ordered[-1], tl).lines(tl):
            whole = butterfly(whole, combine, line, tl)
    return broadcast(whole, partial, inner, tl=tl)


def broadcast(source: Partial | None, like: Sequence[Tile | Like], levels: Collection[str], *, tl: Language) -> Partial:
    """Give every program the tiles of the one with index 0 at each of ``levels``.

    The outermost level goes first; at each level, the first column passes them southward and every row eastward. Tiles
    follow one another, so that a large value passes at the speed of one link if it is cut into many.

    Parameters
    ----------
    source
        The tiles, at the program that has them; ignored elsewhere.
    like
        Tiles of the same shapes and formats, or :class:`~kernbench.collectives.Like` for each, at every program.
    levels
        Levels to pass them over.

    Notes
    -----
    One message for each tile and each program but the first.
    """
    grids = [grid_of(level, tl) for level in reversed(inside_out(levels, tl))]
    if source is None and is_first(levels, tl):
        raise tl.error(KernelError, "broadcast: the program with index 0 has no tiles to pass on")
    return tuple(_pass_on(source[k] if source else None, tile, grids, tl) for k, tile in enumerate(like))


def _pass_on(tile: Tile | None, like: Tile | Like, grids: list[Grid], tl: Language) -> Tile:
    """Receive one tile at the outermost level at which this program does not stand first, and pass it on from there."""
    inner = [level for level in LEVELS if LEVELS[level][0] in [grid.axis for grid in grids]]
    for grid in grids:
        inner.pop()
        if not is_first(inner, tl):
            continue
        row, column = grid.lines(tl)[1], grid.lines(tl)[0]
        if column.index > 0:
            tile = receive(column.back, like, tl)
        elif row.index > 0:
            tile = receive(row.back, like, tl)
        assert tile is not None  # the first program has it, the others have just received it
        if column.index == 0 and row.index < row.count - 1:
            tl.send(dir=row.ahead, src=tile)
        if column.index < column.count - 1:
            tl.send(dir=column.ahead, src=tile)
    assert tile is not None
    return tile
