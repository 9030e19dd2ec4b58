"""Collectives between PEs, written in ordinary ``tl``: any kernel may call them, or copy them and do better."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from kernbench.tl import Language, Tile

Partial = tuple[Tile, ...]
Combine = Callable[[Partial, Partial], Partial]

LEVELS = {"pe": (0, "intra_"), "cube": (1, ""), "sip": (2, "sip_")}
"""Levels from the inside out: the axis of ``tl.program_id`` and the prefix of the channel directions."""


def reduce_to_root(
    partial: Partial, combine: Combine, levels: Collection[str], reduction: str = "chain", *, tl: Language
) -> Partial | None:
    """Combine every program's partial result into one, held by the program with index 0 at each of ``levels``.

    ``chain``: at each level, the innermost first, each row of its grid passes its partials westward from neighbour
    to neighbour, then the first column passes the sums of the rows northward. Programs whose indices at other
    levels differ form chains of their own.

    Parameters
    ----------
    partial
        Tiles of this program.
    combine
        Function of two partials that returns their combination; it must not mind the order.
    levels
        Levels to reduce over, out of ``"pe"``, ``"cube"`` and ``"sip"``.
    reduction
        How: only ``"chain"`` so far.

    Returns
    -------
    tuple of Tile, or None
        The whole at the root, None at every other program.
    """
    if reduction != "chain":
        raise ValueError(f"unknown reduction {reduction!r}: only 'chain' is known")
    for level, (axis, prefix) in LEVELS.items():
        if level not in levels:
            continue
        row, column = divmod(tl.program_id(axis), tl.columns(axis))
        for index, count, toward, source in (
            (column, min(tl.columns(axis), tl.num_programs(axis)), "W", "E"),
            (row, tl.rows(axis), "N", "S"),
        ):
            partial = _chain(partial, combine, index, count, prefix + toward, prefix + source, tl)
            if index > 0:
                return None
    return partial


def _chain(
    partial: Partial, combine: Combine, index: Any, count: int, toward: str, source: str, tl: Language
) -> Partial:
    """Take in what the programs behind have gathered, and pass the sum on to the one in front."""
    if index < count - 1:
        gathered = tuple(tl.recv(dir=source, shape=tile.shape, dtype=tile.dtype) for tile in partial)
        partial = combine(partial, gathered)
    if index > 0:
        for tile in partial:
            tl.send(dir=toward, src=tile)
    return partial
