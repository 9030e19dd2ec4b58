"""Predicting a recorded run: from its spec and implementation to a launch, and from the launch to microseconds.

:func:`predict` is the entry; one module a kernel family says what its workgroups do, tile by tile.
"""

from __future__ import annotations

from kernbench.realrun.predict.entry import machine_of, peaks_of, predict

__all__ = ["machine_of", "peaks_of", "predict"]
