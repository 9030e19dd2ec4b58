"""What all pictures share: colours, markers and hatches, sizes for print, how numbers are written, and files.

Colours are Okabe and Ito's, told apart by every common kind of colour vision; since printers know none of that, what
has a colour has a marker or a hatch too. Everything that matplotlib would take from the user's settings or the clock is
fixed here, so that the same data give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from xml.dom import minidom

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter

from kernbench.errors import InputError, nearest
from kernbench.output import whole_file

WIDTH = 7.2
"""Inches: the text of a page with narrow margins."""
INK, FAINT, PAPER = "#222222", "#9a9a9a", "#ffffff"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C7A00")
"""Okabe and Ito's, their yellow darkened: on paper a yellow line is not seen."""
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "*", "p")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2.5)), (0, (8, 2)))
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "||||")
FORMATS = ("svg", "png", "pdf")
SMALL, NORMAL, LARGE = 7.0, 8.0, 9.5
"""Points: notes and ticks, text, titles."""
DPI = 150
SEQUENTIAL = "cividis_r"
"""Colour map of a share, light for 0: the same order for the colour-blind and in grey."""

_SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "kernbench",
    "svg.fonttype": "path",  # looks the same where the font is not installed
    "pdf.fonttype": 42,
    "font.size": NORMAL,
    "axes.titlesize": LARGE,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": NORMAL,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a label is a dollar
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#d5d5d5",
    "grid.linewidth": 0.5,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "hatch.linewidth": 0.7,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.5,
}


class Look(NamedTuple):
    """How a cause or an engine is filled."""

    fill: str
    hatch: str
    name: str
    """As a legend writes it."""


_BLUE, _SKY, _GREEN, _ORANGE, _RED, _PINK, _YELLOW = (
    "#0072B2", "#56B4E9", "#00664B", "#E69F00", "#D55E00", "#CC79A7", "#F0E442",
)  # fmt: skip
_WHITE, _LIGHT, _GREY, _DARK = "#ffffff", "#d4d4d4", "#b5b5b5", "#1a1a1a"

# Plain fills differ in lightness; what is about as light as another, and may stand beside it, has another hatch.
_LOOKS = {
    # something works
    "busy": (_GREEN, "", "at work"),
    "matrix": (_BLUE, "", "matrix"),
    "vector": (_SKY, "...", "vector"),
    # bytes: memory
    "memory": (_ORANGE, "", "memory"),
    "load": (_ORANGE, "////", "load"),
    "store": (_ORANGE, "xxxx", "store"),
    "port": (_YELLOW, "\\\\\\\\", "port"),
    # bytes: links and messages
    "link": (_RED, "", "link"),
    "message": (_RED, "////", "message"),
    "credit": (_RED, "xxxx", "credit"),
    "collective": (_RED, "...", "collective"),
    "send": (_RED, "\\\\\\\\", "send"),
    "receive": (_PINK, "\\\\\\\\", "receive"),
    "latency": (_PINK, "||||", "latency"),
    # one command waits for another
    "operand": (_YELLOW, "||||", "operand"),
    "reuse": (_YELLOW, "...", "buffer reuse"),
    "engine": (_SKY, "\\\\\\\\", "engine in use"),
    "queue": (_SKY, "xxxx", "queue full"),
    "sync": (_PINK, "+++", "barriers"),
    # control
    "issue": (_LIGHT, "----", "issue"),
    "start": (_GREY, "ooo", "start and end"),
    "launch": (_DARK, "", "launch"),
    "idle": (_WHITE, "", "idle"),
}
CAUSES = tuple(_LOOKS)
"""Every cause and engine that a picture fills with a colour, in the order of legends and stacks."""


def look_of(cause: str) -> Look:
    """Return the colour and hatch that a cause of time, or an engine, has in all pictures.

    Raises
    ------
    InputError
        If there is no such cause.
    """
    if cause not in _LOOKS:
        raise InputError(f"unknown cause of time {cause!r}{nearest(cause, CAUSES)}")
    return Look(*_LOOKS[cause])


def patch(cause: str) -> Patch:
    """Return a legend's entry for a cause or an engine."""
    look = look_of(cause)
    return Patch(facecolor=look.fill, hatch=look.hatch, edgecolor=INK, linewidth=0.5, label=look.name)


@contextmanager
def settings() -> Iterator[None]:
    """Draw, or write, with the settings of kernbench's pictures, whatever the user's are; also a decorator."""
    with matplotlib.style.context(["default", _SETTINGS]):
        yield


def colour(i: int) -> str:
    """Return the colour of the i-th of several lines."""
    return PALETTE[i % len(PALETTE)]


def marker(i: int) -> str:
    """Return the marker of the i-th; there are more than colours, so that the pair comes again late."""
    return MARKERS[i % len(MARKERS)]


def dashes(i: int) -> Any:
    """Return the line style of the i-th."""
    return DASHES[i % len(DASHES)]


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure of these inches, which lays out what is put on it."""
    return Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)


# ---------------------------------------------------------------- numbers
def short(value: float, unit: str = "", digits: int = 3) -> str:
    """Write a number with so many digits and a prefix of its unit.

    >>> short(5_329_589e-12, "s"), short(1.2e12, "B/s"), short(12_345, "")
    ('5.33 µs', '1.2 TB/s', '12.3 k')
    """
    return EngFormatter(unit=unit)(float(f"{value:.{digits}g}")).strip().replace("\N{MICRO SIGN}", "µ")


def time_text(ps: float) -> str:
    """Write a time that is given in picoseconds.

    >>> time_text(5_329_589)
    '5.33 µs'
    """
    return short(ps * 1e-12, "s")


def percent(share: float) -> str:
    """Write a share; what is more than nothing is not written as nothing.

    >>> percent(0.123), percent(0.004), percent(0.0001), percent(0), percent(1)
    ('12 %', '0.4 %', '< 0.1 %', '0 %', '100 %')
    """
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.{0 if share >= 0.0095 or share == 0 else 1}f} %"


def time_axis() -> FuncFormatter:
    """Return the formatter of an axis in picoseconds."""
    return FuncFormatter(lambda ps, _: time_text(ps))


def axis(unit: str) -> FuncFormatter:
    """Return the formatter of an axis in base units of ``unit``."""
    return FuncFormatter(lambda value, _: short(value, unit))


def plain_axis() -> FuncFormatter:
    """Return the formatter of an axis of counts."""
    return FuncFormatter(lambda value, _: f"{value:,g}")


def ink_on(fill: Any) -> str:
    """Return black or white, whichever has more contrast on a colour, by the light that it sends out."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part**2.2 for part in to_rgb(fill))
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else PAPER


# ---------------------------------------------------------------- files
def save(figure: Figure, path: Path | str) -> None:
    """Write a figure to a file, which appears whole or not at all; the same figure gives the same bytes.

    Parameters
    ----------
    figure
        From one of the ``..._figure`` functions.
    path
        Its suffix says the format: ``.svg``, ``.png`` or ``.pdf``.

    Raises
    ------
    InputError
        If the suffix is another one, or the path cannot be written.
    """
    path = Path(path)
    kind = format_of(path)
    with whole_file(path) as file:
        file.write_bytes(picture_bytes(figure, kind))


def format_of(path: Path) -> str:
    """Return the format that a file's name asks for. Raises InputError if there is no such format."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError(f"{path}: a picture is written as .svg, .png or .pdf, not {path.suffix or 'without a suffix'}")
    return kind


def picture_bytes(figure: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a file: ``svg``, ``png`` or ``pdf``."""
    metadata = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}[kind]
    out = BytesIO()
    with settings():
        figure.savefig(out, format=kind, dpi=DPI, metadata=metadata)
    return out.getvalue()


def svg_text(figure: Figure, prefix: str, title: str = "") -> str:
    """Return a figure as an ``<svg>`` element to stand in an HTML page.

    Parameters
    ----------
    figure
        From one of the ``..._figure`` functions.
    prefix
        Put before every id, so that several pictures can stand in one page: letters, digits, ``-`` and ``_``.
    title
        What a screen reader says of the picture.

    Raises
    ------
    InputError
        If the prefix cannot begin an id.
    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", prefix):
        raise InputError(f"{prefix!r} cannot begin an id: use letters, digits, - and _, a letter first")
    root = minidom.parseString(picture_bytes(figure, "svg")).documentElement
    assert root is not None
    # A page's style sheet is one for all: that of the picture goes onto its own element. Metadata say nothing here.
    for name in ("metadata", "style"):
        for node in list(root.getElementsByTagName(name)):
            assert node.parentNode is not None
            node.parentNode.removeChild(node)
    root.setAttribute("style", "stroke-linejoin:round;stroke-linecap:butt;max-width:100%;height:auto")
    root.setAttribute("role", "img")
    if title:
        root.setAttribute("aria-label", title)
    for element in (root, *root.getElementsByTagName("*")):
        for name, value in list(element.attributes.items()):
            if name == "id":
                element.setAttribute(name, f"{prefix}-{value}")
            elif name in ("href", "xlink:href") and value.startswith("#"):
                element.setAttribute(name, f"#{prefix}-{value[1:]}")
            elif "url(#" in value:
                element.setAttribute(name, value.replace("url(#", f"url(#{prefix}-"))
    return str(root.toxml())
