"""The Triton kernels that ``kernbench realrun record`` times, one family a module.

:mod:`~kernbench.realrun.kernels.flash_varlen` is not timed: its machine code is held against a recording.

They use ``tl.dot`` and ``exp2`` and nothing of one maker's, so the same source runs under CUDA and ROCm. Every module
imports Triton, so only the recorder loads them. Terms: a program of Triton is a workgroup, a warp is a wave.

Softmax is in base 2 throughout: ``qk_scale`` is the scale of the scores times log2(e).
"""
