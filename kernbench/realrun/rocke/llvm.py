"""LLVM IR to AMD assembly text, by the LLVM that numba brings (llvmlite)."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from kernbench.errors import InputError

TRIPLE = "amdgcn-amd-amdhsa"
_KNOWN_FROM = {"gfx90a": 13, "gfx942": 17, "gfx950": 20}
"""LLVM's first major version that compiles for an architecture."""
_FLAVOURS = {20: "llvm20", 21: "llvm22", 23: "llvm23"}
"""rocke's names for dialects of LLVM IR, by the major version of LLVM that each begins with."""


def version() -> str:
    """Return the version of LLVM, such as ``22.1.0``."""
    return ".".join(str(part) for part in llvm.llvm_version_info)


def flavour() -> str:
    """Return rocke's name for the newest dialect that this LLVM reads.

    Raises
    ------
    InputError
        If this LLVM is older than any.
    """
    known = [first for first in _FLAVOURS if first <= llvm.llvm_version_info[0]]
    if not known:
        raise InputError(
            f"llvmlite {llvm_package()} has LLVM {version()}; rocke writes for LLVM {min(_FLAVOURS)} and later: "
            "install a newer numba, which brings a newer llvmlite"
        )
    return _FLAVOURS[known[-1]]


def llvm_package() -> str:
    """Return the version of llvmlite."""
    import llvmlite

    return str(llvmlite.__version__)


def compile_ir(text: str, arch: str, name: str) -> str:
    """Optimise (-O3) and compile.

    The IR's data layout gives way to this LLVM's own, as it does where rocke itself compiles text: builds of one major
    version differ in how they write it.

    Parameters
    ----------
    text
        LLVM IR of one module.
    arch
        ``gfx90a``, ``gfx942`` or ``gfx950``.
    name
        What is compiled, for messages.

    Raises
    ------
    InputError
        If LLVM does not know the architecture, or the text is not its IR for AMD GPUs.
    """
    if llvm.llvm_version_info[0] < _KNOWN_FROM[arch]:
        raise InputError(f"LLVM {version()} of llvmlite {llvm_package()} does not know {arch}")
    machine = _machine(arch)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InputError(f"{name}: LLVM {version()} refuses the IR: {_first_line(error)}") from None
    if module.triple != TRIPLE:
        raise InputError(f"{name}: the IR is for {module.triple!r}, not for {TRIPLE}")
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return str(machine.emit_assembly(module))


@functools.cache
def _machine(arch: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(TRIPLE)
    except RuntimeError:
        raise InputError(f"LLVM {version()} of llvmlite {llvm_package()} was built without AMD GPUs") from None
    return target.create_target_machine(cpu=arch, opt=3)


def _first_line(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())[:300]
