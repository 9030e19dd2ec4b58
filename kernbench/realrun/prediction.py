"""What a model says of one measured time, and how it says that it cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernbench.errors import KernbenchError


class NotModelled(KernbenchError):
    """A record that a model has no answer for; the message is the reason, short enough to be counted by."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One predicted time.

    Raises
    ------
    ValueError
        If the prediction is not a positive finite time, or the roofline not a finite one: a bug of the model.
    """

    field: str
    """Which measured time it is for: a field of :class:`kernbench.realrun.records.Times`, or a key of its parts."""
    predicted_us: float
    """Microseconds."""
    roofline_us: float
    """Microseconds that a plain roofline gives, beside which the model is judged; 0 if nothing is computed or moved."""
    reason: str
    """What bounds it, in words."""
    regime: str
    """``fixed-overhead``, ``memory``, ``compute`` ..."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.predicted_us) and self.predicted_us > 0):
            raise ValueError(f"predicted {self.field}: {self.predicted_us} us is no positive time")
        if not (math.isfinite(self.roofline_us) and self.roofline_us >= 0):
            raise ValueError(f"roofline of {self.field}: {self.roofline_us} us is no time")
