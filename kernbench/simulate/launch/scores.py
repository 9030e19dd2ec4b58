"""Which commands of a workgroup make scores: what every wave does for itself, if waves share no row of them.

Some compilers give each wave whole rows of a tile of scores. Where a tile has fewer rows than its waves could take, the
waves then make the same product and the same softmax, each for itself (:attr:`Implementation.score_copies
<kernbench.specs.implementation.Implementation.score_copies>`), and share the second product by its columns; if these
are too few as well, they repeat parts of it (``value_copies``).
"""

from __future__ import annotations

import math

from kernbench.record.trace import Command, PEClass, Ref
from kernbench.simulate.launch.commands import is_of_rows


def commands_on_scores(cls: PEClass) -> frozenset[int]:
    """Return the products of scores, and the vector operations on tiles of scores and probabilities.

    Scores are products whose rows' maxima are taken and that another product takes up. What vector operations make of
    them on the way there is theirs as well; the product that takes it up is not.
    """
    found = _products_of_scores(cls)
    tiles: set[int] = set()
    for i, command in enumerate(cls.commands):
        if command.op == "vector" and any(s.tile in tiles for s in _tiles_read(command)):
            found.add(i)
        for tile in command.dst:
            if i in found and is_tile(cls.tiles[tile].shape):
                tiles.add(tile)
            else:
                tiles.discard(tile)
    return frozenset(found)


def _products_of_scores(cls: PEClass) -> set[int]:
    """Walk backwards: from products that take something up to row maxima of that, and from these to its products."""
    found: set[int] = set()
    taken_up: set[int] = set()
    """Tiles of which a later product takes up what vector operations make of them."""
    scores: set[int] = set()
    """Those of them whose rows' maxima are taken."""
    for i in range(len(cls.commands) - 1, -1, -1):
        command = cls.commands[i]
        makes_scores, leads_on = scores.intersection(command.dst), taken_up.intersection(command.dst)
        scores.difference_update(command.dst)
        taken_up.difference_update(command.dst)
        if command.op == "dot":
            taken_up.update(s.tile for s in command.srcs[:2] if isinstance(s, Ref))
            if makes_scores:
                found.add(i)
                scores.update(s.tile for s in command.srcs[2:3] if isinstance(s, Ref))
        elif command.op == "vector":
            read = {s.tile for s in _tiles_read(command)}
            if makes_scores:
                scores |= read
            if leads_on:
                taken_up |= read
            if command.name == "max" and is_of_rows(command):
                scores |= read & taken_up
    return found


def _tiles_read(command: Command) -> list[Ref]:
    return [s for s in command.srcs if isinstance(s, Ref) and is_tile(s.shape)]


def is_tile(shape: tuple[int, ...]) -> bool:
    """Whether a shape has rows and columns.

    >>> is_tile((16, 64)), is_tile((16, 1)), is_tile((64,))
    (True, False, False)
    """
    return len(shape) > 1 and shape[-1] > 1 and math.prod(shape[:-1]) > 1
