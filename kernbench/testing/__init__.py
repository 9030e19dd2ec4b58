"""For testing: random machines, random programs, and whether the two engines agree on them.

Use them to check a change of your own, as ``benchmarks/fuzz_engines.py`` and kernbench's tests do.

>>> program = random_program(seed=1)
>>> compare_engines(program.record())
'agree'
"""

from kernbench.testing.engines import compare_engines
from kernbench.testing.machines import random_document
from kernbench.testing.programs import RandomProgram, random_program

__all__ = ["RandomProgram", "compare_engines", "random_document", "random_program"]
