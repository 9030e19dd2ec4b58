"""Collectives between PEs, CUBEs and SIPs, written in ordinary ``tl``: any kernel may call them.

=============================== ===================================================================================
call                            what it is for
=============================== ===================================================================================
:func:`reduce_to_root`          one program needs the result: ``chain``, ``tree`` or ``butterfly``
:func:`all_reduce`              every program needs a small result: tree, butterfly, broadcast
:func:`broadcast`               one program's tiles for all
:func:`reduce_scatter`          large values in chunks: every program needs the sum of its own chunk
:func:`all_gather`              every program needs every program's tiles
:func:`all_reduce_chunks`       every program needs a large result: reduce-scatter, then all-gather
:class:`Ring`, :class:`Rings`   what chunks go round on; ring attention passes keys and values with them
=============================== ===================================================================================

All work over any of the levels ``pe``, ``cube`` and ``sip``, on rows, columns, grids and rings of any size. A channel
leads to a neighbour only: a message to anybody else is forwarded by the programs in between, and counted at each hop.
None needs a channel that holds more than one message, unless a kernel posts several to a :class:`Ring`.
"""

from kernbench.collectives.chunks import all_gather, all_reduce_chunks, chunk_numbers, reduce_scatter
from kernbench.collectives.grids import LEVELS, Combine, Like, Partial, programs_over, rank_over
from kernbench.collectives.lines import butterfly_messages, tree_messages
from kernbench.collectives.ring import Ring, Rings, route_of
from kernbench.collectives.whole import all_reduce, broadcast, reduce_to_root

__all__ = [
    "LEVELS", "Combine", "Like", "Partial", "Ring", "Rings", "all_gather", "all_reduce", "all_reduce_chunks",
    "broadcast", "butterfly_messages", "chunk_numbers", "programs_over", "rank_over", "reduce_scatter",
    "reduce_to_root", "route_of", "tree_messages",
]  # fmt: skip
