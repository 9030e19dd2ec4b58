"""Where things stand in the picture of a machine. Lengths are in sides of a PE's square; y grows downward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kernbench.machine.arrangement import Grid
from kernbench.machine.model import Machine

PE_GAP = 0.5
LARGEST_INCHES = (13.0, 8.0)
"""Width and height of the page that SIPs may fill."""
MOST_INCHES_PER_SIDE = 0.42
LEAST_INCHES_PER_SIDE = 0.15
"""PEs are drawn if their squares get at least this; otherwise CUBEs are plain boxes."""
MOST_POSITIONS_WITH_ELBOWS = 5
"""A fully connected row of more positions is drawn with one bus instead of a line a pair."""


class Box(NamedTuple):
    """A rectangle by its upper left corner and extents."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> tuple[float, float]:
        """Its middle."""
        return self.x + self.width / 2, self.y + self.height / 2

    def moved(self, x: float, y: float) -> Box:
        """The same box further right and down."""
        return self._replace(x=self.x + x, y=self.y + y)


@dataclass(frozen=True)
class Tiling:
    """Equal boxes in a grid, with room above for the lines that pass over the row."""

    grid: Grid
    width: float
    height: float
    gap: float
    step: float
    """Distance between lines that pass above."""

    @property
    def is_bus(self) -> bool:
        """Whether one line stands for the links between every two positions."""
        return self.grid.direct and self.grid.count > MOST_POSITIONS_WITH_ELBOWS

    @property
    def headroom(self) -> float:
        """Height above the first row."""
        lines = self._passing_lines()
        return self.step * (lines + 0.5) if lines else self.side

    @property
    def side(self) -> float:
        """Width beside the first and last column, and below the last row: room for the stubs of a torus."""
        return self.gap * 0.6 if self.grid.arrangement == "torus" and any(self.grid.wraps) else 0.0

    def _passing_lines(self) -> int:
        """Lines that pass above the row: a ring's return, or pairs that are not side by side."""
        if self.is_bus:
            return 1
        if self.grid.direct:
            return (self.grid.count - 1) * (self.grid.count - 2) // 2
        return int(self.grid.arrangement == "ring" and self.grid.wraps[0])

    @property
    def extent(self) -> tuple[float, float]:
        """(width, height) of the whole."""
        across = self.grid.columns * (self.width + self.gap) - self.gap + 2 * self.side
        down = self.grid.rows * (self.height + self.gap) - self.gap + self.headroom + self.side
        return across, down

    def box(self, i: int) -> Box:
        """Return the box of position ``i``, the whole having its corner at (0, 0)."""
        row, column = divmod(i, self.grid.columns)
        x = self.side + column * (self.width + self.gap)
        return Box(x, self.headroom + row * (self.height + self.gap), self.width, self.height)


@dataclass(frozen=True)
class Layout:
    """Boxes of a machine's SIPs and CUBEs."""

    machine: Machine
    detailed: bool
    """PEs are drawn in their CUBEs."""
    sips: Tiling
    cubes: Tiling
    pad: float
    """Between a SIP's frame and its CUBEs."""
    title: float
    """Height of a SIP's title."""
    bar: float
    """Height of a SIP's memory bar, 0 if its CUBEs have their own."""

    @property
    def inches(self) -> float:
        """Length on the page of a PE's side."""
        across, down = self.sips.extent
        return min(MOST_INCHES_PER_SIDE, LARGEST_INCHES[0] / across, LARGEST_INCHES[1] / down)

    def sip(self, s: int) -> Box:
        """Frame of a SIP."""
        return self.sips.box(s)

    def cube(self, s: int, c: int) -> Box:
        """Box of a CUBE."""
        frame, box = self.sip(s), self.cubes.box(c)
        return box.moved(frame.x + self.pad, frame.y + self.title)

    def sip_memory(self, s: int) -> Box:
        """Bar of a SIP's shared memory."""
        frame = self.sip(s)
        y = frame.y + frame.height - self.pad - self.bar
        return Box(frame.x + self.pad, y, frame.width - 2 * self.pad, self.bar)


class CubeInside(NamedTuple):
    """Parts of a CUBE that is drawn with its PEs, relative to its corner."""

    width: float
    height: float
    pes: Tiling
    pad: float
    title: float
    bar: float

    def pe(self, p: int) -> Box:
        """Square of a PE."""
        box = self.pes.box(p)
        centring = (self.width - 2 * self.pad - self.pes.extent[0]) / 2
        return box.moved(self.pad + centring, self.title)

    @property
    def memory(self) -> Box:
        """Bar of the CUBE's memory."""
        return Box(self.pad, self.height - self.pad - self.bar, self.width - 2 * self.pad, self.bar)


def cube_inside(machine: Machine) -> CubeInside:
    """Lay a CUBE out with its PEs."""
    pes = Tiling(machine.grids[2], 1.0, 1.0, PE_GAP, 0.0)
    pad, title = 0.5, 1.2
    bar = 0.8 if machine.memory_scope == "cube" else 0.0
    width = max(pes.extent[0], 3.4) + 2 * pad
    height = title + pes.extent[1] + pad + (bar + pad if bar else 0.0)
    return CubeInside(width, height, pes, pad, title, bar)


def lay_out(machine: Machine) -> Layout:
    """Place every SIP and CUBE of a machine; with its PEs if they come out large enough."""
    layout = _lay_out(machine, detailed=True)
    return layout if layout.inches >= LEAST_INCHES_PER_SIDE else _lay_out(machine, detailed=False)


def _lay_out(machine: Machine, detailed: bool) -> Layout:
    sips, cubes, _ = machine.grids
    inside = cube_inside(machine)
    width, height = (inside.width, inside.height) if detailed else (2.0, 2.0)
    tiling = Tiling(cubes, width, height, 2.0 if detailed else 1.0, 0.7)
    pad, title = (1.0, 1.6) if detailed else (0.8, 2.2)
    bar = 0.0 if machine.memory_scope == "cube" else 1.2
    frame_height = title + tiling.extent[1] + pad + (bar + pad if bar else 0.0)
    frames = Tiling(sips, max(tiling.extent[0], 3.0) + 2 * pad, frame_height, 3.0, 1.0)
    return Layout(machine, detailed, frames, tiling, pad, title, bar)
