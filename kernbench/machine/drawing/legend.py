"""The legend under the picture of a machine: what each mark is, with its figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

from kernbench.machine import units
from kernbench.machine.drawing import style
from kernbench.machine.drawing.layout import Layout
from kernbench.machine.model import Machine
from kernbench.machine.schema import LinkOverrideSpec, LinkSpec

ROW_INCHES = 0.27
TEXT_AT = 0.55
"""Inches from a mark's left end to its text."""
TEXT_SIZE = 9.0
MOST_OWN_LINKS = 4
"""Links with figures of their own that are listed one by one."""


class Entry(NamedTuple):
    """One line of the legend."""

    mark: str
    """box, line, dashes, arrow or ring."""
    colour: str
    text: str


def entries(layout: Layout) -> list[Entry]:
    """Return the lines of a machine's legend."""
    return [*_boxes(layout), *_links(layout), *_own_links(layout.machine)]


def text_inches(text: str, size: float) -> float:
    """Return the width on the page of a text of ``size`` points."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / 72 * 1.04  # glyphs are moved to whole pixels when painted


def width_inches(lines: list[Entry]) -> float:
    """Return the width of a legend."""
    return TEXT_AT + max(text_inches(entry.text, TEXT_SIZE) for entry in lines)


def paint(page: Axes, lines: list[Entry], x: float, top: float) -> None:
    """Paint marks and texts; ``x`` and ``top`` are inches from the page's upper left corner."""
    for i, entry in enumerate(lines):
        y = top + ROW_INCHES * (i + 0.5)
        colour = entry.colour
        if entry.mark == "box":
            shape = Rectangle((x + 0.1, y - 0.08), 0.2, 0.16, facecolor=colour, edgecolor=style.INK, lw=0.8)
            page.add_patch(shape)
        elif entry.mark == "ring":
            page.plot([x + 0.2], [y], "o", mfc="white", mec=colour, ms=5)
        else:
            page.plot([x, x + 0.4], [y, y], color=colour, lw=2.2, ls="--" if entry.mark == "dashes" else "-")
            if entry.mark == "arrow":
                page.plot([x + 0.4], [y], ">", color=colour, ms=6)
        page.text(x + TEXT_AT, y, entry.text, fontsize=TEXT_SIZE, va="center", color=style.INK)


def _boxes(layout: Layout) -> Iterator[Entry]:
    machine = layout.machine
    grid, pe, memory = machine.grids[2], machine.pe, machine.memory
    if not layout.detailed:
        count = f"{grid.count} PEs" if grid.count > 1 else "1 PE"
        yield Entry("box", style.CUBE_FILL, f"CUBE of {count} ({grid.rows} x {grid.columns}), numbered along the rows")
    rates = ", ".join(f"{dtype} {units.text(rate, units.RATE)}" for dtype, rate in pe.matrix.rates.items())
    yield Entry("box", style.PE_FILL, f"PE: {rates}; scratch {units.text(pe.scratch, units.SIZE)}")
    figures = f"{units.text(memory.capacity, units.SIZE)}, {_figures(memory.bandwidth, memory.latency)}"
    owner = machine.memory_scope.upper()
    channels = "1 channel" if memory.channels == 1 else f"{memory.channels} channels"
    yield Entry("box", style.MEMORY_FILL, f"memory of each {owner}: {figures}; {channels}")


def _links(layout: Layout) -> Iterator[Entry]:
    spec, machine = layout.machine.spec, layout.machine
    if machine.pes_per_cube > 1 and spec.cube.pes.link:
        yield Entry("line", style.PE_LINK, f"link between PEs of a CUBE: {_link(spec.cube.pes.link)}")
    if machine.cubes_per_sip > 1 and spec.sip.cubes.link:
        bus = "; drawn as a bus, there is one for each pair" if layout.cubes.is_bus else ""
        text = f"link between CUBEs of a SIP: {_link(spec.sip.cubes.link)}, shared by the PEs of a CUBE{bus}"
        yield Entry("line", style.CUBE_LINK, text)
    if machine.n_sips > 1 and spec.system.sips.link:
        bus = "; drawn as a bus, there is one for each pair" if layout.sips.is_bus else ""
        text = f"link between SIPs: {_link(spec.system.sips.link)}, shared by the CUBEs of a SIP{bus}"
        yield Entry("dashes", style.SIP_LINK, text)
    for tiling, colour in ((layout.cubes, style.CUBE_LINK), (layout.sips, style.SIP_LINK)):
        if tiling.side:
            yield Entry("ring", colour, "goes on at the opposite side")


def _own_links(machine: Machine) -> Iterator[Entry]:
    links = machine.spec.links
    for link in links[:MOST_OWN_LINKS]:
        yield Entry("arrow", style.OWN_LINK, f"{link.start} to {link.to} only: {_own(link)}")
    if len(links) > MOST_OWN_LINKS:
        more = len(links) - MOST_OWN_LINKS
        yield Entry("arrow", style.OWN_LINK, f"and {more} more that differ{'s' if more == 1 else ''}")


def _link(link: LinkSpec) -> str:
    return f"{_figures(link.bandwidth, link.latency)} each way"


def _own(link: LinkOverrideSpec) -> str:
    bandwidth = None if link.bandwidth is None else units.text(link.bandwidth, units.BANDWIDTH)
    latency = None if link.latency is None else units.text(link.latency, units.TIME)
    return ", ".join(text for text in (bandwidth, latency) if text)


def _figures(bandwidth: int, latency: int) -> str:
    return f"{units.text(bandwidth, units.BANDWIDTH)}, {units.text(latency, units.TIME)}"
