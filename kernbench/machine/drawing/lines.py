"""Lines that stand for links in the picture of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernbench.machine.arrangement import Grid
from kernbench.machine.drawing.layout import Box, Tiling

Line = list[tuple[float, float]]
Boxes = Callable[[int], Box]
Pair = tuple[int, int]


def lines(tiling: Tiling, box: Boxes) -> list[Line]:
    """Return the lines for all links of a grid, one for both directions, except those that wrap round a torus.

    Parameters
    ----------
    tiling : Tiling
        The positions.
    box : callable
        Box of each position on the page.
    """
    grid = tiling.grid
    if tiling.is_bus:
        return _bus(tiling, box)
    pairs = [(a, b) for a, b in grid.pairs().tolist() if a < b]
    found = [straight(box(a), box(b)) for a, b in pairs if adjacent(grid, a, b)]
    if not tiling.side:
        found += _elbows(tiling, box, [(a, b) for a, b in pairs if not adjacent(grid, a, b)])
    return found


def adjacent(grid: Grid, a: int, b: int) -> bool:
    """Whether ``b`` stands to the east or south of ``a``, next to it."""
    return b - a == grid.columns or (b - a == 1 and b % grid.columns != 0)


def straight(a: Box, b: Box) -> Line:
    """From side to side of two boxes, ``b`` to the east or south of ``a``."""
    (ax, ay), (bx, by) = a.centre, b.centre
    if ay == by:
        return [(a.x + a.width, ay), (b.x, by)]
    return [(ax, a.y + a.height), (bx, b.y)]


def _elbows(tiling: Tiling, box: Boxes, pairs: list[Pair]) -> list[Line]:
    """Lines over the row, the shorter below the longer; each leaves its box at a place of its own."""
    ranked = sorted(pairs, key=lambda pair: (pair[1] - pair[0], pair))
    found = []
    for rank, (a, b) in enumerate(ranked):
        height = box(a).y - tiling.step * (rank + 1)
        left, right = (_exit(box(i), i, (a, b), ranked) for i in (a, b))
        found.append([(left, box(a).y), (left, height), (right, height), (right, box(b).y)])
    return found


def _exit(box: Box, own: int, pair: Pair, ranked: list[Pair]) -> float:
    """Where a line leaves the top of a box: ordered so that lines of one box do not cross."""
    leftward = [p for p in ranked if p[1] == own]
    rightward = [p for p in reversed(ranked) if p[0] == own]
    order = leftward + rightward
    return box.x + box.width * (order.index(pair) + 1) / (len(order) + 1)


def _bus(tiling: Tiling, box: Boxes) -> list[Line]:
    """One line over the row with a drop to each position."""
    boxes = [box(i) for i in range(tiling.grid.count)]
    height = boxes[0].y - tiling.step
    drops = [[(b.centre[0], height), (b.centre[0], b.y)] for b in boxes]
    return [[(boxes[0].centre[0], height), (boxes[-1].centre[0], height)], *drops]


def stubs(tiling: Tiling, box: Boxes) -> Iterator[Line]:
    """Short lines outward at the edges of a torus; each goes on at the opposite edge."""
    grid, reach = tiling.grid, tiling.side * 0.75
    if grid.wraps[0]:
        for row in range(grid.rows):
            first, last = box(row * grid.columns), box((row + 1) * grid.columns - 1)
            (_, y), right = first.centre, last.x + last.width
            yield [(first.x, y), (first.x - reach, y)]
            yield [(right, y), (right + reach, y)]
    if grid.wraps[1]:
        for column in range(grid.columns):
            first, last = box(column), box(grid.count - grid.columns + column)
            (x, _), bottom = first.centre, last.y + last.height
            yield [(x, first.y), (x, first.y - reach)]
            yield [(x, bottom), (x, bottom + reach)]
