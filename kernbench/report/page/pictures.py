"""Pictures of a run as SVG for its page, each with what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from kernbench.machine import Machine
from kernbench.machine.drawing.picture import paint
from kernbench.report.again import Again
from kernbench.report.plots import style
from kernbench.report.plots.causes import causes_data, causes_figure
from kernbench.report.plots.gantt import MOST_LANES, gantt_data, gantt_figure
from kernbench.report.plots.heat import heat_data, heat_figure
from kernbench.report.plots.measured import measured_for
from kernbench.report.plots.roofline import roofline_data, roofline_figure
from kernbench.run import RunResult
from kernbench.simulate.timeline import Timeline


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
        "Drawn from the machine's file as the result holds it.",
    )


def run_pictures(result: RunResult, machine: Machine, again: Again | None) -> dict[str, Picture]:
    """Return the pictures of a run that has a time, by id; those of a timeline only if there is one."""
    causes = causes_figure(causes_data([result]))
    found = [picture("causes", causes, "Time by cause, one stacked bar", "The parts add up to the makespan.")]
    if again is not None and result.critical_path is not None:
        pe = _busiest_pe(result.critical_path.time_by_place, again.machine)
        found += [_gantt_of_pe(again.timeline, pe), _gantt_of_cube(again.timeline, pe), _heat(again.timeline)]
    if result.flops and result.hbm_bytes:
        found.append(_roofline(result, machine))
    return {one.id: one for one in found}


def _roofline(result: RunResult, machine: Machine) -> Picture:
    measured = measured_for([result], machine)
    caption = "Simulated; roofs and slopes are those of the machine's file."
    if measured:
        caption += " Beside it the real runs of the same kernel family on this GPU that come with kernbench."
    figure = roofline_figure(roofline_data([result], machine, measured=measured))
    return picture("roofline-plot", figure, "Roofline", caption)


def _busiest_pe(time_by_place: Mapping[str, float], machine: Machine) -> int:
    """Return the PE in which the critical path spends most; the first of all if it is never in one."""
    index = {machine.pe_name(pe): pe for pe in range(machine.n_pes)}
    times = {index[place]: share for place, share in time_by_place.items() if place in index}
    return max(times, key=lambda pe: (times[pe], -pe), default=0)


def _gantt_of_pe(timeline: Timeline, pe: int) -> Picture:
    name = timeline.program.machine.pe_name(pe)
    figure = gantt_figure(gantt_data(timeline, [pe]))
    return picture("gantt", figure, f"Engines of {name} over time", f"{name}: the critical path spends most in it.")


def _gantt_of_cube(timeline: Timeline, pe: int) -> Picture:
    """Draw the PEs of the CUBE of ``pe``, from the first on as many as can be told apart."""
    cube = timeline.program.machine.shape[0]
    first = pe // cube * cube
    shown = min(cube, MOST_LANES)
    figure = gantt_figure(gantt_data(timeline, range(first, first + shown)))
    caption = f"The PEs of its CUBE{'' if shown == cube else f', the first {shown} of {cube}'}."
    return picture("gantt-cube", figure, "PEs of one CUBE over time", caption)


def _heat(timeline: Timeline) -> Picture:
    title, caption = "Memories and links in use", "Share of the makespan for which each memory and link moves bytes."
    return picture("heat-map", heat_figure(heat_data(timeline)), title, caption)
