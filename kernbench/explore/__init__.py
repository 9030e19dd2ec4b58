"""Sweeps: a space of settings and machines, the points of it that are tried, and a store that keeps their results.

:mod:`~kernbench.explore.sweepfile` reads what is wanted, :mod:`~kernbench.explore.space` numbers the points,
:mod:`~kernbench.explore.search` chooses among them, :mod:`~kernbench.explore.runner` has workers
(:mod:`~kernbench.explore.workers`) time them (:mod:`~kernbench.explore.evaluate`) and puts what they find into the
store (:mod:`~kernbench.explore.store`). :mod:`~kernbench.explore.frame` reads it back as a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernbench.explore.api import sweep
    from kernbench.explore.frame import results_frame
    from kernbench.explore.space import Sweep
    from kernbench.explore.store import Store
    from kernbench.explore.sweepfile import SweepFile

__all__ = ["Store", "Sweep", "SweepFile", "results_frame", "sweep"]
_HOMES = {"Store": "store", "Sweep": "space", "SweepFile": "sweepfile", "results_frame": "frame", "sweep": "api"}


def __getattr__(name: str) -> Any:
    """Import the rooms only when they are used: the command line needs its help quickly."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
