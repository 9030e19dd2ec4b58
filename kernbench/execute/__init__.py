"""Turn a trace into values: NumPy, exact number formats, no clock.

>>> from kernbench.execute import execute  # doctest: +SKIP
>>> execute(trace)  # doctest: +SKIP
ExecutionReport(pes=512, commands=1183220, messages=1533, batches=560, splits=48)
"""

from kernbench.execute.engine import ExecutionReport, execute
from kernbench.execute.rounding import round_to

__all__ = ["ExecutionReport", "execute", "round_to"]
