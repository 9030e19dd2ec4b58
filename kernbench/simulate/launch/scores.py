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

    Scores are tiles whose rows' maxima are taken. What is made of them by vector operations is theirs as well; a
    product that takes up probabilities is not.
    """
    found = _makers(cls)
    tiles: set[int] = set()
    for i, command in enumerate(cls.commands):
        if command.op == "vector" and i not in found and any(s.tile in tiles for s in _tiles_read(command)):
            found.add(i)
        for tile in command.dst:
            if i in found and is_tile(cls.tiles[tile].shape):
                tiles.add(tile)
            else:
                tiles.discard(tile)
    return frozenset(found)


def _makers(cls: PEClass) -> set[int]:
    """Return the commands that lead to a tile of scores: its product, and vector operations between that and it."""
    found: set[int] = set()
    wanted: set[int] = set()
    for i in range(len(cls.commands) - 1, -1, -1):
        command = cls.commands[i]
        if wanted.intersection(command.dst):
            wanted.difference_update(command.dst)
            if command.op == "vector":
                found.add(i)
                wanted.update(s.tile for s in _tiles_read(command))
            elif command.op == "dot":
                found.add(i)
                wanted.update(s.tile for s in command.srcs[2:3] if isinstance(s, Ref))
        if command.op == "vector" and command.name == "max" and is_of_rows(command):
            wanted.update(s.tile for s in _tiles_read(command))
            found.add(i)
    return found


def _tiles_read(command: Command) -> list[Ref]:
    return [s for s in command.srcs if isinstance(s, Ref) and is_tile(s.shape)]


def is_tile(shape: tuple[int, ...]) -> bool:
    """Whether a shape has rows and columns.

    >>> is_tile((16, 64)), is_tile((16, 1)), is_tile((64,))
    (True, False, False)
    """
    return len(shape) > 1 and shape[-1] > 1 and math.prod(shape[:-1]) > 1
