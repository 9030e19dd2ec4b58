"""The picture of a machine, by matplotlib's Agg canvas; nothing here touches matplotlib's global state."""

from __future__ import annotations

import os
import tempfile
import textwrap
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from kernbench.errors import InputError
from kernbench.machine.drawing import legend, lines, style
from kernbench.machine.drawing.layout import MOST_INCHES_PER_SIDE, Box, CubeInside, Layout, Tiling, cube_inside, lay_out
from kernbench.machine.model import Machine
from kernbench.machine.places import Place, parse_place

MARGIN = 0.3
HEAD = 0.65
SUBTITLE_SIZE = 9.0
LONGEST_SUBTITLE = 170
INSET_INCHES = 0.35
"""Length of a PE's side in the enlarged CUBE."""
LEAST_POINTS = 4.0
"""Smaller text is left out."""


def draw(machine: Machine, path: Path) -> None:
    """Draw a machine to a PNG file, as :func:`kernbench.machine.graph.draw`."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as out:
            paint(machine).savefig(out, format="png", dpi=160, metadata={"Software": None})
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def paint(machine: Machine) -> Figure:
    """Return the figure of a machine."""
    layout, inside = lay_out(machine), cube_inside(machine)
    across, down = layout.sips.extent
    entries = legend.entries(layout)
    inset = min(INSET_INCHES, 4.0 / inside.width, 3.0 / inside.height)
    foot = max(legend.ROW_INCHES * len(entries), 0.0 if layout.detailed else inset * inside.height) + 0.1
    beside = 0.0 if layout.detailed else inset * inside.width + 0.5
    subtitle = _subtitle(machine)
    texts = (legend.text_inches(subtitle, SUBTITLE_SIZE), beside + legend.width_inches(entries))
    width = max(across * layout.inches, *texts) + 2 * MARGIN
    top = HEAD + down * layout.inches + 0.3
    height = top + foot + MARGIN

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    page = _axes(figure, Box(0, 0, width, height), 1.0)
    _text(page, MARGIN, 0.28, machine.name, 13, weight="bold")
    _text(page, MARGIN, 0.51, subtitle, SUBTITLE_SIZE)
    body = _axes(figure, Box(MARGIN, HEAD, across * layout.inches, down * layout.inches), layout.inches)
    _paint_system(body, layout, inside)
    if not layout.detailed:
        place = Box(MARGIN, top, inset * inside.width, inset * inside.height)
        _paint_cube(_axes(figure, place, inset), inside, (0, 0), "inside each CUBE", 72 * inset)
    legend.paint(page, entries, MARGIN + beside, top)
    for axes in figure.axes:
        for artist in axes.get_children():
            artist.set_clip_on(False)  # else a frame's outer half line is cut off
    return figure


def _subtitle(machine: Machine) -> str:
    changed = f"changed here: {', '.join(machine.overridden)}" if machine.overridden else ""
    whole = " - ".join(part for part in (machine.description, changed) if part)
    return textwrap.shorten(whole, LONGEST_SUBTITLE, placeholder=" ...")


def _axes(figure: Figure, place: Box, side: float) -> Axes:
    """Axes over a part of the page given in inches from its upper left corner, ``side`` inches to a unit."""
    width, height = figure.get_size_inches()
    bottom = height - place.y - place.height
    axes = figure.add_axes((place.x / width, bottom / height, place.width / width, place.height / height))
    axes.set(xlim=(0, place.width / side), ylim=(place.height / side, 0))
    axes.set_axis_off()
    return axes


def _paint_system(axes: Axes, layout: Layout, inside: CubeInside) -> None:
    machine, points = layout.machine, 72 * layout.inches
    if machine.n_sips > 1:
        boxes = [layout.sip(s) for s in range(machine.n_sips)]
        _paint_links(axes, layout.sips, boxes, style.SIP_LINK, min(2.6, points * 0.2), "--")
    for s in range(machine.n_sips):
        _paint_sip(axes, layout, inside, s)
    _paint_own_links(axes, layout, inside)


def _paint_sip(axes: Axes, layout: Layout, inside: CubeInside, s: int) -> None:
    machine, points, frame = layout.machine, 72 * layout.inches, layout.sip(s)
    _box(axes, frame, style.SIP_FILL, style.FRAME, 1.2)
    _text(axes, frame.x + layout.pad, frame.y + layout.title / 2, f"SIP {s}", min(10.0, points * 1.2), weight="bold")
    boxes = [layout.cube(s, c) for c in range(machine.cubes_per_sip)]
    _paint_links(axes, layout.cubes, boxes, style.CUBE_LINK, min(1.8, points * 0.14), "-")
    if layout.detailed:
        for c, box in enumerate(boxes):
            _paint_cube(axes, inside, (box.x, box.y), f"CUBE {c}", points)
    else:
        _paint_plain_cubes(axes, boxes, machine.memory_scope == "cube", points)
    if layout.bar:
        _paint_memory(axes, layout.sip_memory(s), min(8.0, points * 0.7))


def _paint_plain_cubes(axes: Axes, boxes: list[Box], own_memory: bool, points: float) -> None:
    """CUBEs as numbered boxes, each with a strip for its memory."""
    line = min(0.7, points * 0.06)
    _collect(axes, boxes, style.CUBE_FILL, line)
    strip = 0.45 if own_memory else 0.0
    if own_memory:
        strips = [Box(b.x, b.y + b.height - strip, b.width, strip) for b in boxes]
        _collect(axes, strips, style.MEMORY_FILL, line)
    for c, box in enumerate(boxes):
        x, y = box.centre
        _text(axes, x, y - strip / 2, str(c), min(8.0, points * 0.72), ha="center")


def _paint_cube(axes: Axes, inside: CubeInside, corner: tuple[float, float], title: str, points: float) -> None:
    """One CUBE with its PEs. ``points`` is the length of a PE's side on the page."""
    x, y = corner
    _box(axes, Box(x, y, inside.width, inside.height), style.CUBE_FILL, style.INK, 1.0)
    _text(axes, x + inside.pad, y + inside.title / 2, title, min(9.0, points * 0.6))
    squares = [inside.pe(p).moved(x, y) for p in range(inside.pes.grid.count)]
    _paint_links(axes, inside.pes, squares, style.PE_LINK, min(1.2, points * 0.1), "-")
    _collect(axes, squares, style.PE_FILL, min(0.8, points * 0.06))
    for p, square in enumerate(squares):
        _text(axes, *square.centre, str(p), min(8.0, points * 0.42), ha="center")
    if inside.bar:
        _paint_memory(axes, inside.memory.moved(x, y), min(8.0, points * 0.45))


def _paint_memory(axes: Axes, box: Box, size: float) -> None:
    _box(axes, box, style.MEMORY_FILL, style.INK, 0.8)
    _text(axes, *box.centre, "memory", size, ha="center")


def _paint_links(axes: Axes, tiling: Tiling, boxes: list[Box], colour: str, width: float, dashes: str) -> None:
    """Every link of a grid, one line for both directions."""
    found = lines.lines(tiling, boxes.__getitem__)
    axes.add_collection(LineCollection(found, colors=colour, linewidths=width, linestyles=dashes, zorder=1.5))
    stubs = list(lines.stubs(tiling, boxes.__getitem__)) if tiling.side else []
    if stubs:
        axes.add_collection(LineCollection(stubs, colors=colour, linewidths=width, zorder=1.5))
        x, y = zip(*(stub[-1] for stub in stubs), strict=True)
        axes.scatter(x, y, 16 * min(1.0, width), facecolors="white", edgecolors=colour, linewidths=1.0, zorder=1.6)


def _paint_own_links(axes: Axes, layout: Layout, inside: CubeInside) -> None:
    """An arrow over each link between places side by side that has figures of its own; the legend lists all."""
    for link in layout.machine.spec.links:
        start, end = parse_place(link.start), parse_place(link.to)
        forward = start.own < end.own
        first, second = (start, end) if forward else (end, start)
        beside = lines.adjacent(layout.machine.grids[start.level], first.own, second.own)
        if not beside or (start.level == 2 and not layout.detailed):
            continue
        line = lines.straight(_place_box(layout, inside, first), _place_box(layout, inside, second))
        ends = line if forward else line[::-1]
        scale = layout.inches / MOST_INCHES_PER_SIDE
        arrow = FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=6 + 6 * scale, shrinkA=0, shrinkB=0,
                                lw=1.2 + 1.2 * scale, color=style.OWN_LINK, zorder=3)  # fmt: skip
        axes.add_patch(arrow)


def _place_box(layout: Layout, inside: CubeInside, place: Place) -> Box:
    if place.level == 0:
        return layout.sip(place.sip)
    cube = layout.cube(place.sip, place.cube)
    return cube if place.level == 1 else inside.pe(place.pe).moved(cube.x, cube.y)


def _text(axes: Axes, x: float, y: float, text: str, size: float, ha: str = "left", weight: str = "normal") -> None:
    if size >= LEAST_POINTS:
        axes.text(x, y, text, fontsize=size, ha=ha, va="center_baseline", weight=weight, color=style.INK, zorder=4,
                  parse_math=False)  # fmt: skip


def _box(axes: Axes, box: Box, fill: str, edge: str, width: float) -> None:
    axes.add_patch(Rectangle((box.x, box.y), box.width, box.height, facecolor=fill, edgecolor=edge, lw=width, zorder=1))


def _collect(axes: Axes, boxes: list[Box], fill: str, width: float) -> None:
    shapes = [Rectangle((b.x, b.y), b.width, b.height) for b in boxes]
    axes.add_collection(PatchCollection(shapes, facecolor=fill, edgecolor=style.INK, linewidths=width, zorder=2))
