"""Finds the decoder of each instruction, and resolves branches."""

from __future__ import annotations

from kernbench.errors import InputError, nearest
from kernbench.realrun.amdgcn import (
    atomics,
    control,
    convert,
    dot,
    lanes,
    lds,
    masks,
    memory,
    mfma,
    packed,
    scalar,
    vector,
)
from kernbench.realrun.amdgcn.assembly import ARCHITECTURES, DATA, Assembly, Line
from kernbench.realrun.amdgcn.execute import Program
from kernbench.realrun.amdgcn.instruction import Decoder, Instruction, nothing, refuse_modifiers
from kernbench.realrun.amdgcn.vector import base_name

DECODERS: dict[str, Decoder] = {
    **vector.DECODERS, **packed.DECODERS, **masks.DECODERS, **lanes.DECODERS, **scalar.DECODERS, **control.DECODERS,
    **memory.DECODERS, **lds.DECODERS, **mfma.DECODERS, **convert.DECODERS,
    **atomics.DECODERS, **dot.DECODERS,
}  # fmt: skip


def _is_new_matrix(name: str) -> bool:
    """Whether gfx950 brought a matrix instruction: those of gfx942 with twice the elements along K, and f8f6f4."""
    if name not in mfma.SHAPES:
        return name in mfma.DECODERS
    side, depth, kind, _ = mfma.SHAPES[name]
    most = {"f16": 256, "bf16": 256, "i8": 512}.get(kind)
    return most is not None and side * depth > most


SINCE = {
    "gfx942": {
        "ds_pk_add_bf16", "ds_pk_add_f16", "ds_pk_add_rtn_bf16", "ds_pk_add_rtn_f16", "flat_atomic_add_f32",
        "flat_atomic_pk_add_bf16", "flat_atomic_pk_add_f16", "global_atomic_pk_add_bf16",
        "v_lshl_add_u64", "v_mov_b64", "v_fmaak_f32", "v_fmamk_f32", "buffer_inv",
        *(name for name in memory.DECODERS if name.startswith("global_load_lds_")),
        *(name for name in convert.DECODERS if "p8" in name or "bf8" in name),
        *(name for name in mfma.SHAPES if "_" in name.rsplit("x", 1)[1] and not name.endswith("_1k")),
    },
    "gfx950": {
        "v_bitop3_b16", "v_bitop3_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32", "v_cvt_pk_f16_f32",
        "v_cvt_pk_bf16_f32", "v_maximum3_f32", "v_minimum3_f32",
        "global_load_lds_dwordx3", "global_load_lds_dwordx4",
        "buffer_atomic_pk_add_bf16", "v_dot2_f32_bf16", "v_dot2c_f32_bf16",
        *(name for name in lds.DECODERS if "_tr_" in name),
        *(name for name in convert.DECODERS if "scalef32" in name),
        *(name for name in mfma.DECODERS if _is_new_matrix(name)),
    },
}  # fmt: skip
"""Instructions that an architecture was the first to have."""
ENDED = {"buffer_invl2", "buffer_wbinvl1", "buffer_wbinvl1_vol", "v_mfma_i32_16x16x16i8", "v_mfma_i32_32x32x8i8"}
"""Instructions that only the oldest architecture has."""
PLAIN = {
    name
    for name in (*scalar.DECODERS, *control.DECODERS, *lanes.DECODERS, "v_swap_b32")
    if name != "s_waitcnt" and name[:3] != "ds_"
}
"""Instructions without modifiers."""
SUBDWORD = {
    "v_cndmask_b32",
    *vector.TABLE,
    *(name for name in masks.DECODERS if name.startswith("v_cmp_") and "class" not in name),
    *(name for name in convert.DECODERS if "scalef32" not in name),
}
"""What may be encoded as SDWA."""


def decode(line: Line, arch: str) -> Instruction:
    """Decode one line.

    Raises
    ------
    InputError
        The instruction or one of its operands is not known, or the architecture does not have it yet.
    """
    if DATA.match(line.mnemonic):
        return Instruction(line, nothing, control="data")
    base = line.mnemonic if line.mnemonic in DECODERS else base_name(line.mnemonic)
    decoder = DECODERS.get(base)
    if decoder is None:
        close = nearest(base, DECODERS)
        hint = close if "did you mean" in close else ""
        raise InputError(f"{line.place}: instruction {line.mnemonic} is not supported{hint}")
    if base in ENDED and arch != ARCHITECTURES[0]:
        raise InputError(f"{line.place}: {base} is an instruction of {ARCHITECTURES[0]}, the code is for {arch}")
    for first, names in SINCE.items():
        if base in names and ARCHITECTURES.index(arch) < ARCHITECTURES.index(first):
            raise InputError(f"{line.place}: {base} is an instruction of {first}, the code is for {arch}")
    if line.mnemonic.endswith("_sdwa") and base not in SUBDWORD:
        raise InputError(f"{line.place}: the encoding SDWA is not supported for {base}")
    if line.modifiers and base in PLAIN:
        refuse_modifiers(line)
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
