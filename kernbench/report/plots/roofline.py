"""Kernels under the roofs of a machine: arithmetic per byte of memory against arithmetic per second."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernbench.errors import InputError, nearest
from kernbench.machine import Machine
from kernbench.report.plots import style
from kernbench.run import RunResult
from kernbench.simulate.costs import PS

if TYPE_CHECKING:
    from kernbench.realrun.records import RunRecord

MOST_NAMED = 10
"""Points that have a marker each in the legend; more of them get numbers."""
_ENGINES = ("load", "matrix", "vector")


@dataclass(frozen=True)
class Ceiling:
    """A rate of arithmetic that all PEs together cannot pass."""

    name: str
    flops_per_s: int


@dataclass(frozen=True)
class Slope:
    """A bandwidth: so many bytes a second allow so many times the arithmetic per byte."""

    name: str
    bytes_per_s: int


@dataclass(frozen=True)
class Point:
    """One kernel, or one engine of it."""

    label: str
    flops_per_byte: float
    flops_per_s: float
    evidence: str
    """``simulated``, or ``measured (cold)`` and the like."""
    engine: str = ""
    """If not empty: arithmetic per second while this engine works, the mean over the PEs that take part."""


@dataclass(frozen=True)
class RooflineData:
    """The roofs of a machine and the points below them."""

    machine: str
    ceilings: tuple[Ceiling, ...]
    """The highest first."""
    slopes: tuple[Slope, ...]
    """The steepest first."""
    memory_bytes_per_s: int
    """Of all memories together: the slope that simulated points stay below."""
    points: tuple[Point, ...]

    def attainable(self, flops_per_byte: float) -> float:
        """Return the arithmetic per second that no kernel of this intensity passes: memory's slope or the highest
        ceiling."""
        return min(self.ceilings[0].flops_per_s, self.memory_bytes_per_s * flops_per_byte)


def roofline_data(
    results: Sequence[RunResult],
    machine: Machine,
    *,
    labels: Sequence[str] | None = None,
    engines: bool = False,
    measured: Iterable[Point] = (),
) -> RooflineData:
    """Find where kernels stand under the roofs of a machine.

    A simulated point is ``flops / hbm_bytes`` against ``flops / makespan``. Ceilings are ``pe.matrix.rates`` times the
    PEs; slopes are the bandwidths of all memories, caches, load ports and links together, as the machine file gives
    them. Those of links bind only what comes over them.

    Parameters
    ----------
    results
        Runs with a time on this machine.
    machine
        Whose roofs are drawn.
    labels
        One for each run; default: the bench.
    engines
        Also give a point for the load, matrix and vector engines of each run: the arithmetic per second of the time
        for which the engine is busy.
    measured
        From :func:`measured_points`.

    Raises
    ------
    InputError
        If a run is of another machine, or no point has arithmetic, bytes and time.
    """
    names = [result.bench for result in results] if labels is None else list(labels)
    if len(names) != len(results):
        raise InputError(f"{len(names)} labels for {len(results)} runs: give one label a run")
    points: list[Point] = []
    for name, result in zip(names, results, strict=True):
        if result.topology != machine.name:
            raise InputError(f"a run on {result.topology} has no place under the roofs of {machine.name}")
        points += _points_of(name, result, engines)
    points += measured
    if not points:
        raise InputError("no run has matrix arithmetic, bytes of memory and a time: there is no point to draw")
    memory = machine.memory.bandwidth * machine.network.n_memories
    return RooflineData(machine.name, _ceilings(machine), _slopes(machine, memory), memory, tuple(points))


def _points_of(name: str, result: RunResult, engines: bool) -> list[Point]:
    if not (result.flops and result.hbm_bytes and result.makespan_ps):
        return []
    seconds = result.makespan_ps / PS
    whole = Point(name, result.flops / result.hbm_bytes, result.flops / seconds, "simulated")
    busy = result.engines or {}
    shown = [engine for engine in _ENGINES if engines and busy.get(engine)]
    return [whole, *(replace(whole, flops_per_s=whole.flops_per_s / busy[e], engine=e) for e in shown)]


def measured_points(records: Iterable[RunRecord], time: str = "cold", gpus: int = 1) -> list[Point]:
    """Return a point for each real run that has this measured time.

    Arithmetic and bytes are counted by the conventions of :mod:`kernbench.realrun.roofline`: each input is read once.

    Parameters
    ----------
    records
        Runs on the GPU that the machine describes, as :func:`kernbench.realrun.compare.of_gpu` selects them.
    time
        Which of a record's times: ``cold``, ``warm``, ``published`` ...
    gpus
        Runs on so many GPUs together.

    Raises
    ------
    InputError
        If no record has this time and sizes that can be counted.
    """
    from kernbench.realrun.compare import measured_times
    from kernbench.realrun.prediction import NotModelled
    from kernbench.realrun.roofline import attention_bytes, attention_flops

    points: list[Point] = []
    times: set[str] = set()
    for record in records:
        if record.device.count != gpus:
            continue
        found = measured_times(record)
        times.update(found)
        if time not in found:
            continue
        try:
            flops, nbytes = attention_flops(record), attention_bytes(record)
        except NotModelled:  # a copy, a collective: no arithmetic
            continue
        points.append(Point(record.family, flops / nbytes, flops / found[time] * 1e6, f"measured ({time})"))
    if not points:
        raise InputError(f"no real run has a time {time!r} and counted arithmetic{nearest(time, times)}")
    return points


def _ceilings(machine: Machine) -> tuple[Ceiling, ...]:
    by_rate: dict[int, list[str]] = {}
    for dtype, rate in machine.pe.matrix.rates.items():
        by_rate.setdefault(rate * machine.n_pes, []).append(dtype)
    return tuple(Ceiling(", ".join(names), rate) for rate, names in sorted(by_rate.items(), reverse=True))


def _slopes(machine: Machine, memory: int) -> tuple[Slope, ...]:
    spec, network = machine.spec, machine.network
    # the queues of a mesh's load engine each have the port's bandwidth; workgroups of a PE share it
    queues = 1 if machine.holds_workgroups else machine.pe.load.queues
    found = [Slope("memory", memory), Slope("load ports", machine.pe.load.bandwidth * queues * machine.n_pes)]
    for name, cache, count in (
        ("caches of SIPs", spec.sip.cache, machine.n_sips), ("caches of CUBEs", spec.cube.cache, machine.n_cubes),
    ):  # fmt: skip
        if cache is not None:
            found.append(Slope(name, cache.bandwidth * count))
    for name, first, last in (
        ("links into SIPs", 0, network.n_sip_links), ("links into CUBEs", network.n_sip_links, network.n_shared),
    ):  # fmt: skip
        if last > first:
            found.append(Slope(name, int(network.link_bandwidth[first:last].sum())))
    return tuple(sorted(found, key=lambda slope: (-slope.bytes_per_s, slope.name)))


# ---------------------------------------------------------------- drawing
_LEFT, _RIGHT, _AXES_HEIGHT, _TOP = 0.95, 0.2, 3.5, 0.4
"""Inches around the axes, which are placed by hand: the angle of labels follows from their size."""
_LABEL_POINTS = 11.0
"""Lines closer than this on the page share a label."""
_ENGINE_MARKERS = {"load": "<", "matrix": "s", "vector": "v"}


@dataclass(frozen=True)
class _View:
    """Limits of the axes and their size in points."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float
    height: float

    @property
    def per_decade(self) -> tuple[float, float]:
        """Points on the page of a factor of ten."""
        return self.width / math.log10(self.x[1] / self.x[0]), self.height / math.log10(self.y[1] / self.y[0])


@style.settings()
def roofline_figure(data: RooflineData, title: str = "") -> Figure:
    """Draw the roofs with their names on them, and the points."""
    kernels = [p for p in data.points if p.evidence == "simulated" and not p.engine]
    numbered = len(kernels) > MOST_NAMED
    key_rows = -(-len(kernels) // 3) if numbered else 0
    legend_rows = -(-(len(_groups(data)) + (0 if numbered else len(kernels)) + 1) // 3)
    foot = 0.6 + 0.17 * (key_rows + legend_rows)
    height = _TOP + _AXES_HEIGHT + foot
    figure = Figure(figsize=(style.WIDTH, height), facecolor=style.PAPER)
    across = style.WIDTH - _LEFT - _RIGHT
    axes = figure.add_axes(
        (_LEFT / style.WIDTH, foot / height, across / style.WIDTH, _AXES_HEIGHT / height), xscale="log", yscale="log"
    )
    view = _view(data, 72 * across, 72 * _AXES_HEIGHT)
    axes.set(xlim=view.x, ylim=view.y)
    _draw_ceilings(axes, data, view)
    _draw_slopes(axes, data, view)
    _draw_points(axes, data, kernels, numbered)
    axes.xaxis.set_major_formatter(style.plain_axis())
    axes.yaxis.set_major_formatter(style.axis("flop/s"))
    axes.grid(which="major")
    axes.set_xlabel("flop per byte of memory")
    axes.set_ylabel("matrix arithmetic per second")
    axes.set_title(title or f"Roofline of {data.machine}")
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles, names, loc="upper center", ncols=3, bbox_to_anchor=(0.5, (foot - 0.45) / height), borderaxespad=0
    )
    if numbered:
        _write_numbers(figure, axes, kernels)
        _write_key(figure, kernels, height, key_rows)
    return figure


def _view(data: RooflineData, width: float, height: float) -> _View:
    top = data.ceilings[0].flops_per_s
    ridges = [top / data.memory_bytes_per_s, data.ceilings[-1].flops_per_s / data.slopes[0].bytes_per_s]
    x = [p.flops_per_byte for p in data.points] + ridges
    y = [p.flops_per_s for p in data.points] + [data.ceilings[-1].flops_per_s]
    return _View((min(x) / 8, max(x) * 6), (min(y) / 4, max(max(y), top) * 2.5), width, height)


def _draw_ceilings(axes: Axes, data: RooflineData, view: _View) -> None:
    steepest = data.slopes[0].bytes_per_s
    for ceiling in data.ceilings:
        start = max(ceiling.flops_per_s / steepest, view.x[0])
        axes.plot([start, view.x[1]], [ceiling.flops_per_s] * 2, color=style.INK, lw=1.1, zorder=2)
    rates = [ceiling.flops_per_s for ceiling in data.ceilings]
    for together in _near(rates, view.per_decade[1]):
        names = "; ".join(f"{data.ceilings[i].name} {style.short(rates[i], 'flop/s')}" for i in together)
        axes.annotate(
            names, (view.x[1], rates[together[0]]), (-3, 2), textcoords="offset points", ha="right", va="bottom",
            fontsize=style.SMALL, bbox=_BACKGROUND, zorder=2.5,
        )  # fmt: skip


_BACKGROUND = {"boxstyle": "square,pad=0.05", "facecolor": style.PAPER, "edgecolor": "none", "alpha": 0.75}


def _draw_slopes(axes: Axes, data: RooflineData, view: _View) -> None:
    top = data.ceilings[0].flops_per_s
    across, down = view.per_decade
    angle = math.atan2(down, across)
    rates = [slope.bytes_per_s for slope in data.slopes]
    for slope in data.slopes:
        memory = slope.name == "memory"
        ends = [view.x[0], top / slope.bytes_per_s]
        axes.plot(
            ends, [x * slope.bytes_per_s for x in ends], color=style.PALETTE[0] if memory else style.FAINT,
            lw=1.8 if memory else 1.1, ls="-" if memory else "--", zorder=2,
        )  # fmt: skip
    for together in _near(rates, down * math.cos(angle)):
        slope = data.slopes[together[0]]
        names = "; ".join(f"{data.slopes[i].name} {style.short(rates[i], 'B/s')}" for i in together)
        start = max(view.x[0] * 1.12, view.y[0] * 1.3 / slope.bytes_per_s)
        axes.annotate(
            names, (start, start * slope.bytes_per_s), (-2 * math.sin(angle), 2 * math.cos(angle)),
            textcoords="offset points", rotation=math.degrees(angle), rotation_mode="anchor", va="bottom",
            fontsize=style.SMALL, bbox=_BACKGROUND, zorder=2.5,
        )  # fmt: skip


def _near(falling: Sequence[float], points_per_decade: float) -> list[list[int]]:
    """Group rates, the highest first, that stand too close on the page for a label each."""
    groups: list[list[int]] = []
    for i, rate in enumerate(falling):
        if groups and math.log10(falling[groups[-1][0]] / rate) * points_per_decade < _LABEL_POINTS:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _groups(data: RooflineData) -> list[tuple[str, str]]:
    """Return (evidence, label) of the points that are drawn as a crowd: real runs by kernel family."""
    return sorted({(p.evidence, p.label) for p in data.points if p.evidence != "simulated"})


def _draw_points(axes: Axes, data: RooflineData, kernels: Sequence[Point], numbered: bool) -> None:
    for i, (evidence, label) in enumerate(_groups(data)):
        mine = [p for p in data.points if (p.evidence, p.label) == (evidence, label)]
        axes.plot(
            [p.flops_per_byte for p in mine], [p.flops_per_s for p in mine], ls="none", marker=style.marker(i),
            markerfacecolor="none", markeredgecolor=style.colour(i), markersize=4, markeredgewidth=0.7, zorder=3,
            label=f"{label}: {len(mine)} {evidence}",
        )  # fmt: skip
    for i, point in enumerate(kernels):
        look: dict[str, Any] = {"marker": style.marker(i), "color": style.colour(i)}
        label = f"{point.label} (simulated)"
        if numbered:
            look = {"marker": "o", "color": style.PALETTE[1]}
            label = "simulated, numbered below" if i == 0 else ""
        axes.plot(
            [point.flops_per_byte], [point.flops_per_s], ls="none", ms=6.5, mec=style.PAPER, mew=0.6, zorder=5,
            label=label or None, **look,
        )  # fmt: skip
    _draw_engines(axes, data, numbered)


def _draw_engines(axes: Axes, data: RooflineData, numbered: bool) -> None:
    """Draw the points of engines in the colour of their kernel, which stands before them."""
    kernel, seen = -1, set()
    for point in data.points:
        kernel += point.evidence == "simulated" and not point.engine
        if point.engine:
            seen.add(point.engine)
            axes.plot(
                [point.flops_per_byte], [point.flops_per_s], ls="none", marker=_ENGINE_MARKERS[point.engine], ms=5,
                mfc=style.PAPER, mec=style.INK if numbered else style.colour(kernel), mew=1.0, zorder=4,
            )  # fmt: skip
    for engine, marker in _ENGINE_MARKERS.items():
        if engine in seen:
            label = f"while {engine} engines work (simulated)"
            axes.plot([], [], ls="none", marker=marker, ms=5, mfc=style.PAPER, mec=style.INK, mew=1.0, label=label)


def _write_numbers(figure: Figure, axes: Axes, kernels: Sequence[Point]) -> None:
    """Number the points, each on the side, and as far out, as is free of other numbers."""
    taken: list[tuple[float, float]] = []
    for i, point in enumerate(kernels):
        at = (point.flops_per_byte, point.flops_per_s)
        x, y = axes.transData.transform(at) / figure.dpi * 72
        for step in range(2 * len(kernels)):
            shift = (5 + 6 + 13 * (step // 2)) * (1 if step % 2 == 0 else -1)
            if all(abs(x + shift - a) >= 12 or abs(y - b) >= 8 for a, b in taken):
                break
        taken.append((x + shift, y))
        axes.annotate(
            str(i + 1), at, (shift, 0), textcoords="offset points", fontsize=style.SMALL, ha="center",
            va="center", zorder=6, weight="bold", bbox=_BACKGROUND,
            arrowprops={"arrowstyle": "-", "lw": 0.5, "shrinkB": 3} if abs(shift) > 11 else None,
        )  # fmt: skip


def _write_key(figure: Figure, kernels: Sequence[Point], height: float, rows: int) -> None:
    for i, point in enumerate(kernels):
        column, row = divmod(i, rows)
        figure.text(
            (0.15 + column * (style.WIDTH - 0.3) / 3) / style.WIDTH, (0.1 + 0.17 * (rows - 1 - row)) / height,
            f"{i + 1}  {point.label}", fontsize=style.SMALL,
        )  # fmt: skip
