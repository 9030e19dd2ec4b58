"""The UltraQuant decode kernel of an installed vLLM, compiled by an installed FlyDSL and executed on the CPU.

``build`` finds both and compiles, in a process of FlyDSL's own; ``check`` launches the machine code and holds it
against :mod:`kernbench.specs.ultraquant`. Nothing of either project is part of kernbench. The document is
``docs/machine-code-ultraquant.md``.
"""
