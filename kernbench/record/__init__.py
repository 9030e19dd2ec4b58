"""Recording: a kernel and its arguments in, a Trace out. Nothing is computed and no clock runs."""

from kernbench.record.record import record
from kernbench.record.trace import Access, Command, Lane, PEClass, Ref, SourceLine, TileInfo, Trace

__all__ = ["Access", "Command", "Lane", "PEClass", "Ref", "SourceLine", "TileInfo", "Trace", "record"]
