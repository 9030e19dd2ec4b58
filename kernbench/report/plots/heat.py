"""How busy memories and links are, drawn on the mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.machine.arrangement import Grid
from kernbench.machine.drawing.layout import Box
from kernbench.report.plots import style
from kernbench.simulate.timeline import Timeline


@dataclass(frozen=True)
class MemoryUse:
    """One memory: of a CUBE, or of a SIP."""

    name: str
    channel_busy_ps: tuple[int, ...]
    """Time in which each channel moved data."""
    share: float
    """Mean over the channels, of the makespan."""


@dataclass(frozen=True)
class LinkUse:
    """One direction of a link between SIPs or between CUBEs."""

    name: str
    start: int
    """SIP, or CUBE counted through the system, that sends."""
    end: int
    between_sips: bool
    busy_ps: int
    nbytes: int
    share: float
    """Of the makespan."""


@dataclass(frozen=True)
class HeatData:
    """What the picture shows."""

    kernel: str
    machine: Machine
    makespan_ps: int
    memories: tuple[MemoryUse, ...]
    links: tuple[LinkUse, ...]
    pe_links: tuple[float, ...]
    """Of each CUBE: mean busy share of the links between its PEs. Empty if there are none."""


def heat_data(timeline: Timeline) -> HeatData:
    """Find how busy memories and links are.

    Returns
    -------
    HeatData
        Shares of the makespan, 0 to 1. Those of memories are means over their channels.

    Raises
    ------
    InputError
        If the run took no time.
    """
    machine, span = timeline.program.machine, timeline.makespan_ps
    if span <= 0:
        raise InputError("the run took no time: there is nothing to draw")
    network = machine.network
    channels = timeline.memory_busy_ps.reshape(network.n_memories, -1)
    memories = tuple(
        MemoryUse(name, tuple(busy.tolist()), float(busy.mean()) / span)
        for name, busy in zip(network.memory_names(), channels, strict=True)
    )
    names, busy, nbytes = network.link_names(), timeline.link_busy_ps, timeline.link_nbytes
    links = tuple(
        LinkUse(
            names[i], int(start), int(end), i < network.n_sip_links, int(busy[i]), int(nbytes[i]), int(busy[i]) / span
        )
        for i, (start, end) in enumerate(network.link_ends[: network.n_shared].tolist())
    )  # fmt: skip
    inside = np.asarray(busy[network.n_shared : network.n_links]).reshape(network.n_nodes, -1)
    pe_links = tuple((inside.mean(axis=1) / span).tolist()) if inside.shape[1] else ()
    return HeatData(timeline.program.trace.kernel, machine, span, memories, links, pe_links)


# ---------------------------------------------------------------- where things stand; lengths in sides of a CUBE
_GAP, _SIP_GAP, _PAD, _TITLE, _BAR, _STUB, _STEP = 0.72, 1.1, 0.35, 0.5, 0.5, 0.45, 0.3


@dataclass(frozen=True)
class _Rows:
    """Equal boxes in a grid, with room around for links that leave it."""

    grid: Grid
    width: float
    height: float
    gap: float

    @property
    def passing(self) -> int:
        """Lines that pass above, and as many below: pairs of a fully connected row that are not side by side."""
        return (self.grid.count - 1) * (self.grid.count - 2) // 2 if self.grid.direct else 0

    @property
    def margin(self) -> float:
        """Room around: for stubs of links that wrap round, or for lines that pass."""
        return self.passing * _STEP + 0.1 if self.passing else _STUB if any(self.grid.wraps) else 0.0

    @property
    def extent(self) -> tuple[float, float]:
        """(width, height) of the whole."""
        across = self.grid.columns * (self.width + self.gap) - self.gap
        return across + 2 * self.margin, self.grid.rows * (self.height + self.gap) - self.gap + 2 * self.margin

    def box(self, i: int) -> Box:
        """Box of position ``i``."""
        row, column = divmod(i, self.grid.columns)
        x, y = column * (self.width + self.gap), row * (self.height + self.gap)
        return Box(self.margin + x, self.margin + y, self.width, self.height)


@dataclass(frozen=True)
class _Page:
    machine: Machine
    sips: _Rows
    cubes: _Rows
    title: float
    bar: float
    """Height of a SIP's memory, 0 if CUBEs have their own."""

    @classmethod
    def of(cls, machine: Machine) -> _Page:
        """Lay a machine out."""
        sips, cubes, _ = machine.grids
        inner = _Rows(cubes, 1.0, 1.0, _GAP)
        bar = 0.0 if machine.memory_scope == "cube" else _BAR
        title = _TITLE if machine.n_sips > 1 else 0.0
        width, height = inner.extent
        frame = _Rows(
            sips, max(width, 2.0) + 2 * _PAD, title + height + 2 * _PAD + (bar + _PAD if bar else 0), _SIP_GAP
        )
        return cls(machine, frame, inner, title, bar)

    def cube(self, node: int) -> Box:
        """Box of a CUBE, counted through the system."""
        sip, cube = divmod(node, self.machine.cubes_per_sip)
        frame = self.sips.box(sip)
        return self.cubes.box(cube).moved(frame.x + _PAD, frame.y + self.title + _PAD)

    def sip_memory(self, sip: int) -> Box:
        """Box of a SIP's memory."""
        frame = self.sips.box(sip)
        return Box(frame.x + _PAD, frame.y + frame.height - _PAD - self.bar, frame.width - 2 * _PAD, self.bar)


# ---------------------------------------------------------------- drawing
_LARGEST = (style.WIDTH - 0.3, 7.0)
"""Inches that the machine may fill."""
_MOST_INCHES = 0.85
_LEAST_POINTS = 5.5
"""Smaller text is left out."""
_STRIP = 0.24
"""Part of a CUBE's box for the links between its PEs."""


@style.settings()
def heat_figure(data: HeatData, title: str = "") -> Figure:
    """Draw the machine, memories and links coloured by their busy share, numbers in percent where there is room."""
    page = _Page.of(data.machine)
    across, down = page.sips.extent
    inches = min(_MOST_INCHES, _LARGEST[0] / across, _LARGEST[1] / down)
    top, foot = 0.42 if data.machine.n_sips > 1 else 0.2, 0.95
    width, height = style.WIDTH, down * inches + top + foot
    figure = Figure(figsize=(width, height), facecolor=style.PAPER)
    colours = ScalarMappable(cmap=matplotlib.colormaps[style.SEQUENTIAL])
    colours.set_clim(0, 1)
    left = (width - across * inches) / 2
    axes = figure.add_axes((left / width, foot / height, across * inches / width, down * inches / height))
    axes.set(xlim=(0, across), ylim=(down, 0))
    axes.set_axis_off()
    _draw_places(axes, page, data, colours, inches)
    _draw_links(axes, page, data, colours, inches)
    figure.text(0.15 / width, 1 - 0.12 / height, title or _title(data), va="top", fontsize=style.LARGE, weight="bold")
    bar = figure.add_axes((0.15, 0.72 / height, 0.7, 0.1 / height))
    ticks = np.linspace(0, 1, 6)
    figure.colorbar(colours, cax=bar, orientation="horizontal", ticks=ticks)
    bar.set_xticklabels([style.percent(tick) for tick in ticks])
    figure.text(0.5, 0.1 / height, _note(data), ha="center", va="bottom", fontsize=style.NORMAL)
    for artist in axes.get_children():
        artist.set_clip_on(False)
    return figure


def _title(data: HeatData) -> str:
    return f"{data.kernel} on {data.machine.name}, {style.time_text(data.makespan_ps)}: memories and links in use"


def _note(data: HeatData) -> str:
    owner = data.machine.memory_scope.upper()
    parts = f"busy share of the simulated time: memory of each {owner}, mean over its channels"
    strip = "strip below: links between its PEs, mean; " if data.pe_links else ""
    arrows = "arrows: links, each direction; " if data.links else ""
    return f"{parts}\n{strip}{arrows}white: never used"


def _draw_places(axes: Axes, page: _Page, data: HeatData, colours: Any, inches: float) -> None:
    machine, own = data.machine, page.bar == 0
    if machine.n_sips > 1:
        for sip in range(machine.n_sips):
            box = page.sips.box(sip)
            _rectangle(axes, box, "#f6f6f6", 0.6)
            size = min(style.NORMAL, 72 * inches * _TITLE * 0.8)
            axes.text(box.x + _PAD, box.y + 0.42, f"SIP {sip}", fontsize=size, va="center_baseline", weight="bold")
    strip = _STRIP if data.pe_links else 0.0
    for node in range(machine.n_cubes):
        box = page.cube(node)
        upper = box._replace(height=box.height - strip)
        if own:
            _filled(axes, upper, data.memories[node].share, colours, inches, _cube_label(machine, node, inches))
        else:
            _rectangle(axes, upper, style.PAPER, 0.4)
        if strip:
            lower = Box(box.x, box.y + box.height - strip, box.width, strip)
            _filled(axes, lower, data.pe_links[node], colours, inches, "")
    if not own:
        for sip, memory in enumerate(data.memories):
            _filled(axes, page.sip_memory(sip), memory.share, colours, inches, "")


def _cube_label(machine: Machine, node: int, inches: float) -> str:
    return f"CUBE {node % machine.cubes_per_sip}\n" if inches >= _MOST_INCHES * 0.7 else ""


def _rectangle(axes: Axes, box: Box, fill: Any, line: float) -> None:
    axes.add_patch(Rectangle((box.x, box.y), box.width, box.height, facecolor=fill, edgecolor=style.INK, lw=line))


def _fill(share: float, colours: Any) -> Any:
    """White for what is never used, so that it is told from what is used little."""
    return colours.to_rgba(share) if share > 0 else (1.0, 1.0, 1.0, 1.0)


def _filled(axes: Axes, box: Box, share: float, colours: Any, inches: float, label: str) -> None:
    fill = _fill(share, colours)
    _rectangle(axes, box, fill, min(0.6, inches))
    size = min(style.NORMAL, 72 * inches * min(box.height * 0.7, 0.3))
    if size >= _LEAST_POINTS:
        axes.text(
            *box.centre, f"{label}{style.percent(share)}", ha="center", va="center", fontsize=size,
            color=style.ink_on(fill[:3]), linespacing=1.4,
        )  # fmt: skip


_HALF, _OFFSET, _HEAD = 0.085, 0.15, 0.2
"""Of an arrow: half its width, its distance from the middle between the two directions, the length of its head."""


def _draw_links(axes: Axes, page: _Page, data: HeatData, colours: Any, inches: float) -> None:
    shapes, fills = [], []
    for link in data.links:
        rows, box = (page.sips, page.sips.box) if link.between_sips else (page.cubes, page.cube)
        for line in _ways(rows, box, link):
            shapes.append(_arrow(line))
            fills.append(_fill(link.share, colours))
            if len(line) == 2:
                _write_on_link(axes, line, link.share, inches)
    if shapes:
        lines = min(0.5, inches)
        axes.add_collection(PolyCollection(shapes, facecolors=fills, edgecolors=style.INK, linewidths=lines, zorder=3))


Line = list[tuple[float, float]]


def _ways(rows: _Rows, box: Callable[[int], Box], link: LinkUse) -> Iterator[Line]:
    """Yield the lines that stand for one direction of a link: one, or the two ends of one that wraps round."""
    grid, first = rows.grid, link.start - link.start % rows.grid.count
    (row, column), (to_row, to_column) = (divmod(n - first, grid.columns) for n in (link.start, link.end))
    a, b = box(link.start), box(link.end)
    dx, dy = to_column - column, to_row - row
    if abs(dx) + abs(dy) == 1:
        yield _straight(a, b, dx, dy)
    elif grid.direct:
        yield _passing(rows, a, b, link.start - first, link.end - first)
    else:  # round the edge: out on the one side, in on the other
        step_x, step_y = -np.sign(dx), -np.sign(dy)
        out, into = _straight(a, a, step_x, step_y), _straight(b, b, step_x, step_y)
        reach_x, reach_y = step_x * _STUB, step_y * _STUB
        yield [out[0], (out[0][0] + reach_x, out[0][1] + reach_y)]
        yield [(into[1][0] - reach_x, into[1][1] - reach_y), into[1]]


def _straight(a: Box, b: Box, dx: int, dy: int) -> Line:
    """From the side of ``a`` to the opposite side of ``b``, to the right of the way's middle as one goes."""
    (ax, ay), (bx, by) = a.centre, b.centre
    x, y = -dy * _OFFSET, dx * _OFFSET
    return [
        (ax + dx * a.width / 2 + x, ay + dy * a.height / 2 + y),
        (bx - dx * b.width / 2 + x, by - dy * b.height / 2 + y),
    ]


def _passing(rows: _Rows, a: Box, b: Box, start: int, end: int) -> Line:
    """Over the row eastward, under it westward, each pair on a line of its own."""
    low, high, count = min(start, end), max(start, end), rows.grid.count
    pairs = [(i, j) for d in range(2, count) for i in range(count - d) for j in (i + d,)]
    rank = pairs.index((low, high)) + 1
    place = 0.5 + 0.35 * (high - low) / count * (1 if end > start else -1)
    ax, bx = a.x + a.width * place, b.x + b.width * (1 - place)
    if end > start:
        y = a.y - rank * _STEP
        return [(ax, a.y), (ax, y), (bx, y), (bx, b.y)]
    y = a.y + a.height + rank * _STEP
    return [(ax, a.y + a.height), (ax, y), (bx, y), (bx, b.y + b.height)]


def _arrow(line: Line) -> Line:
    """Return the outline of an arrow along a line whose corners are right angles."""
    points = np.array(line, float)
    step = np.diff(points, axis=0)
    along = step / np.hypot(*step.T)[:, None]
    side = np.column_stack([-along[:, 1], along[:, 0]])
    neck = points[-1] - along[-1] * min(_HEAD, float(np.hypot(*step[-1])) / 2)
    corners = [points[0], *points[1:-1], neck]
    left = np.array([side[0], *(side[:-1] + side[1:]), side[-1]]) * _HALF
    one = [tuple(c + s) for c, s in zip(corners, left, strict=True)]
    other = [tuple(c - s) for c, s in zip(corners, left, strict=True)]
    wide = side[-1] * _HALF * 1.9
    return [*one, tuple(neck + wide), tuple(points[-1]), tuple(neck - wide), *reversed(other)]


def _write_on_link(axes: Axes, line: Line, share: float, inches: float) -> None:
    """Write a link's share beside its arrow, on the side away from the other direction."""
    (ax, ay), (bx, by) = line
    across = ay == by
    x, y = (ax + bx) / 2, (ay + by) / 2
    size = min(style.SMALL, 72 * inches * 0.14)
    if size < _LEAST_POINTS:
        return
    away = _HALF * 1.9 + 0.03
    if across:
        right = bx > ax  # drawn below the middle
        axes.text(x, y + (away if right else -away), style.percent(share), fontsize=size, ha="center",
                  va="top" if right else "bottom")  # fmt: skip
    else:
        down = by > ay  # drawn left of the middle
        axes.text(x + (-away if down else away), y, style.percent(share), fontsize=size, va="center",
                  ha="right" if down else "left")  # fmt: skip
