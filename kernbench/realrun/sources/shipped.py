"""The measured data that comes with kernbench."""

from __future__ import annotations

from pathlib import Path

_NAMES = ("h200_runs.jsonl", "h200x2_runs.jsonl", "h200_live.jsonl", "rocm_runs.csv")
"""Files of ``kernbench/data``; each may also lie there gzipped, and one that is not there is no error."""


def shipped_records(folder: Path | None = None) -> list[Path]:
    """Return the record files that come with kernbench.

    Parameters
    ----------
    folder
        Where to look; default: ``kernbench/data``.
    """
    folder = folder or Path(__file__).parents[2] / "data"
    candidates = [folder / f"{name}{packed}" for name in _NAMES for packed in ("", ".gz")]
    return [path for path in candidates if path.is_file()]
