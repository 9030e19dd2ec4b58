"""The document shows every picture that is made for it, and none is large."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_every_picture_that_is_made_is_there_and_shown() -> None:
    made = set(re.findall(r'yield "([a-z0-9-]+)"', (DOCS / "make_pictures.py").read_text(encoding="utf-8")))
    shown = set(re.findall(r"\]\(pictures/([^)]+)\.png\)", (DOCS / "pictures.md").read_text(encoding="utf-8")))
    assert made == shown
    assert all((DOCS / "pictures" / f"{name}.png").stat().st_size < 150_000 for name in made)
