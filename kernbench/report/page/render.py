"""Templates filled in: the environment that all pages share, how figures are written, and the file."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernbench._version import __version__
from kernbench.errors import InputError
from kernbench.output import whole_file
from kernbench.provenance import setting_text
from kernbench.readable import bytes_text, scaled_text, time_text
from kernbench.specs.correctness import WORST_ROW_FACTOR


def render(template: str, **context: Any) -> str:
    """Return a page; the same context gives the same text."""
    styles, scripts = (Markup(_read(name)) for name in ("style.css", "page.js"))
    return _environment().get_template(template).render(
        styles=styles, scripts=scripts, version=__version__, **context
    )  # fmt: skip


def write_page(page: str, folder: Path) -> Path:
    """Write a page to ``index.html`` in a folder, which is made if need be; the file appears whole or not at all.

    Raises
    ------
    InputError
        If the folder cannot be made, or the file not written.
    """
    path = folder / "index.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    with whole_file(path) as file:
        file.write_text(page, encoding="utf-8")
    return path


def json_block(value: Any) -> Markup:
    """Return JSON that may stand in a ``<script>`` element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kernbench.report.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.globals["worst_row_factor"] = WORST_ROW_FACTOR
    environment.filters |= {
        "bytes": _readable(bytes_text),
        "flops": _readable(lambda n: scaled_text(n, "flop")),
        "json_block": json_block,
        "percent": lambda share: exact(share, f"{share:.1%}"),
        "setting": setting_text,
        "time": _readable(time_text),
        "count": _readable(lambda n: f"{n:,}"),
        "number": lambda x: exact(x, f"{x:.3g}"),
    }
    return environment


def exact(value: float, text: str) -> Markup:
    """Return a ``<data>`` element: what people read, with the very number of the JSON behind it."""
    return Markup('<data value="{}">{}</data>').format(json.dumps(value), text)


def _readable(write: Any) -> Any:
    return lambda value: exact(value, write(value))


def _read(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
