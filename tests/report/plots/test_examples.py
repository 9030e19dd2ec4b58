"""The document shows every picture that is made for it, and none is large."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_every_picture_is_shown_and_every_one_shown_is_there() -> None:
    files = {path.name for path in (DOCS / "pictures").iterdir()}
    shown = set(re.findall(r"\]\(pictures/([^)]+)\)", (DOCS / "pictures.md").read_text(encoding="utf-8")))
    made = set(re.findall(r'yield "([a-z0-9-]+)"', (DOCS / "make_pictures.py").read_text(encoding="utf-8")))
    assert files == {f"{name}.png" for name in made}
    assert shown == files
    assert all((DOCS / "pictures" / name).stat().st_size < 150_000 for name in files)
