"""Recording: compile and time our own kernels on this machine's GPU, and write run records.

``plan`` expands a list of specs, ``loop`` goes through it. The rest needs PyTorch and Triton and is loaded only by a
run: ``work`` and the builders ``decode``, ``prefill`` and ``micro`` make inputs, launches and checks; ``compiling``
fills Triton's cache; ``timing`` measures; ``machine`` reads clocks; ``gpu`` ties them together.
"""

from kernbench.realrun.recorder.loop import record_plan

__all__ = ["record_plan"]
