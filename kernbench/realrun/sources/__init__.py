"""Readers of run records: kernbench's own JSON lines, its older recordings on H200s, and published timings as CSV."""

from kernbench.realrun.sources.reading import Loaded, read_records
from kernbench.realrun.sources.shipped import shipped_records

__all__ = ["Loaded", "read_records", "shipped_records"]
