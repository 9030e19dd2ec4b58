"""Finds the decoder of each instruction, and resolves branches."""

from __future__ import annotations

from kernbench.errors import InputError, nearest
from kernbench.realrun.amdgcn import convert, lanes, lds, masks, memory, mfma, scalar, vector
from kernbench.realrun.amdgcn.assembly import Assembly, Line
from kernbench.realrun.amdgcn.execute import Program
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction
from kernbench.realrun.amdgcn.vector import base_name

DECODERS: dict[str, Decoder] = {
    **vector.DECODERS, **masks.DECODERS, **lanes.DECODERS, **scalar.DECODERS, **memory.DECODERS, **lds.DECODERS,
    **mfma.DECODERS, **convert.DECODERS,
}  # fmt: skip
ONLY = {"gfx950": ("v_bitop3_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32", "v_cvt_pk_f16_f32",
                   "global_load_lds_dwordx3", "global_load_lds_dwordx4", "v_mfma_f32_16x16x32_f16",
                   "v_mfma_f32_32x32x16_f16", "v_mfma_f32_16x16x32_bf16", "v_mfma_f32_32x32x16_bf16",
                   "v_mfma_i32_16x16x64_i8", "v_mfma_i32_32x32x32_i8",
                   *(name for name in mfma.DECODERS if "f8f6f4" in name),
                   *(f"ds_read_b64_tr_b{bits}" for bits in (4, 8, 16)))}  # fmt: skip
"""Instructions that only one architecture has."""


SUBDWORD = {*vector.TABLE, *(name for name in convert.DECODERS if "scalef32" not in name)}
"""What may be encoded as SDWA."""


def decode(line: Line, arch: str) -> Instruction:
    """Decode one line.

    Raises
    ------
    InputError
        The instruction or one of its operands is not known, or the architecture does not have it.
    """
    base = line.mnemonic if line.mnemonic in DECODERS else base_name(line.mnemonic)
    decoder = DECODERS.get(base)
    if decoder is None:
        close = nearest(base, DECODERS)
        hint = close if "did you mean" in close else ""
        raise InputError(f"{line.place}: instruction {line.mnemonic} is not supported{hint}")
    for owner, names in ONLY.items():
        if base in names and arch != owner:
            raise InputError(f"{line.place}: {base} is an instruction of {owner}, the code is for {arch}")
    if line.mnemonic.endswith("_sdwa") and base not in SUBDWORD:
        raise InputError(f"{line.place}: the encoding SDWA is not supported for {base}")
    try:
        return decoder(line)
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise InputError(f"{line.place}: malformed: {error}") from None


def decode_program(assembly: Assembly) -> Program:
    """Decode every instruction of a file once.

    Raises
    ------
    InputError
        See :func:`decode`; also a branch to a label that is not there.
    """
    instructions = [decode(line, assembly.arch) for line in assembly.lines]
    targets, stops = [], [0] * len(instructions)
    for instruction in instructions:
        targets.append(_target(instruction, assembly) if instruction.target else -1)
    following = len(instructions)
    for i in range(len(instructions) - 1, -1, -1):
        following = i if instructions[i].control else following
        stops[i] = following
    return Program(assembly.file, instructions, targets, stops)


def _target(instruction: Instruction, assembly: Assembly) -> int:
    place = assembly.labels.get(instruction.target)
    if place is None or place >= len(assembly.lines):
        raise InputError(f"{instruction.line.place}: jumps to {instruction.target!r}, which is no label of the code")
    return place
