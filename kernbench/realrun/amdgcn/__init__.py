"""Executes AMD machine code on the CPU: what a compiled kernel computes, and the instructions that it takes.

The code is real; the run is not. Counts and values are evidence, times are not: nothing here knows of clocks.
"""

from __future__ import annotations

from pathlib import Path

from kernbench.errors import InputError, nearest
from kernbench.realrun.amdgcn.assembly import read_assembly
from kernbench.realrun.amdgcn.decode import decode_program
from kernbench.realrun.amdgcn.kernel import Kernel, LaunchResult

__all__ = ["Kernel", "Kernels", "LaunchResult", "load"]


class Kernels(dict[str, Kernel]):
    """Kernels by name; asking for another name raises InputError."""

    def __missing__(self, name: str) -> Kernel:
        raise InputError(f"there is no kernel {name!r} in this code{nearest(str(name), self)}")


def load(path_or_text: str | Path, arch: str | None = None) -> Kernels:
    """Read assembly text, a file of it (``.gz`` is unpacked) or a code object, and return its kernels by name.

    Parameters
    ----------
    path_or_text
        A path, or the text itself (anything with a line break).
    arch
        ``gfx90a``, ``gfx942`` or ``gfx950``: refuse code for another architecture.

    Raises
    ------
    InputError
        The text is truncated or malformed, or has an instruction that is not known; names the line. For a code object
        also: no LLVM is installed, whose tools disassemble it.
    """
    assembly = read_assembly(path_or_text, arch)
    program = decode_program(assembly)
    return Kernels((name, Kernel(text, assembly, program)) for name, text in sorted(assembly.kernels.items()))
