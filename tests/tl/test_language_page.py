"""`docs/language.md` lists every operation, and only those. That its examples run is checked with all documents."""

import re
from pathlib import Path

import pytest

from kernbench.tl import Language, Pointer, Tile

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
TABLES = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
EXAMPLES = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))


def names(kind):
    return sorted(name for name in dir(kind) if not name.startswith("_"))


@pytest.mark.parametrize("name", names(Language))
def test_every_operation_is_explained_and_has_an_example(name):
    assert re.search(rf"`[^`]*\btl\.{name}\b", PAGE)
    assert f"tl.{name}(" in EXAMPLES


@pytest.mark.parametrize("name", [n for n in names(Pointer) if n not in ("binding", "byte")])
def test_everything_that_a_pointer_can_do_has_an_example(name):
    assert f"`ptr.{name}" in TABLES
    assert re.search(rf"(x_ptr|out)\.{name}\b", EXAMPLES)


@pytest.mark.parametrize("name", [n for n in names(Tile) if n not in ("buffer", "index", "tl")])
def test_everything_that_a_tile_can_do_has_an_example(name):
    assert re.search(rf"`(tile|x)\.{name}\b", PAGE)
    assert re.search(rf"[tx)]\.{name}\b", EXAMPLES)


def test_nothing_is_explained_that_is_not_there():
    ours = PAGE.split("## Where this differs from Triton")[0]
    known = set(names(Language))
    assert set(re.findall(r"\btl\.(\w+)", ours)) <= known


def test_lines_are_short_enough_to_read():
    prose = [line for line in PAGE.splitlines() if not line.startswith("|")]
    assert max(map(len, prose)) <= 130
