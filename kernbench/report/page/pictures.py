"""Pictures of a run, or a sweep, as SVG for its page, each with what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup
from matplotlib.figure import Figure

from kernbench.machine import Machine
from kernbench.machine.drawing.picture import paint
from kernbench.report.again import Again
from kernbench.report.plots import style
from kernbench.report.plots.causes import causes_data, causes_figure
from kernbench.run import RunResult

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Picture:
    """A picture in a page."""

    id: str
    svg: Markup
    caption: str


def picture(name: str, figure: Figure, title: str, caption: str) -> Picture:
    """Return a figure as a picture; ``title`` is what a screen reader says of it."""
    return Picture(name, Markup(style.svg_text(figure, name, title)), caption)


def machine_picture(machine: Machine) -> Picture:
    """Return the drawing of a machine."""
    return picture(
        "machine",
        paint(machine),
        f"Drawing of the machine {machine.name}",
        "From the machine's file, as the result holds it.",
    )


def run_pictures(result: RunResult, again: Again | None) -> dict[str, Picture]:
    """Return the pictures of a run that has a time, by id; those of a timeline only if there is one."""
    found = [
        picture("causes", causes_figure(causes_data([result])), "Time by cause", "Parts add up to the makespan."),
    ]
    return {one.id: one for one in found}


def sweep_pictures(frame: DataFrame) -> dict[str, Picture]:
    """Return the pictures of a sweep, by id; those that its points make."""
    return {}
