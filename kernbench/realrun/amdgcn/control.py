"""Instructions that steer a wave: branches, waits, barriers, its end, and those that change no register."""

from __future__ import annotations

import re
from typing import Any

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.assembly import Line
from kernbench.realrun.amdgcn.instruction import EXEC_ROWS, VCC_ROWS, Decoder, Instruction, nothing
from kernbench.realrun.amdgcn.state import EXEC, VCC


def _decode_branch(line: Line) -> Instruction:
    if len(line.operands) != 1:
        raise InputError(f"{line.place}: takes one label")
    rows, taken = BRANCHES[line.mnemonic]
    return Instruction(line, nothing, rows, control="branch", taken=taken, target=line.operands[0])


BRANCHES: dict[str, tuple[frozenset[int], Any]] = {
    "s_cbranch_scc0": (frozenset(), lambda g: ~g.scc),
    "s_cbranch_scc1": (frozenset(), lambda g: g.scc.copy()),
    "s_cbranch_vccz": (VCC_ROWS, lambda g: (g.s[VCC] | g.s[VCC + 1]) == 0),
    "s_cbranch_vccnz": (VCC_ROWS, lambda g: (g.s[VCC] | g.s[VCC + 1]) != 0),
    "s_cbranch_execz": (EXEC_ROWS, lambda g: (g.s[EXEC] | g.s[EXEC + 1]) == 0),
    "s_cbranch_execnz": (EXEC_ROWS, lambda g: (g.s[EXEC] | g.s[EXEC + 1]) != 0),
}


def _decode_jump(line: Line) -> Instruction:
    if len(line.operands) != 1:
        raise InputError(f"{line.place}: takes one label")
    return Instruction(line, nothing, control="jump", target=line.operands[0])


COUNTERS = {"vmcnt": 63, "lgkmcnt": 15, "expcnt": 7}
"""How many outstanding operations each counter holds."""


def _decode_wait(line: Line) -> Instruction:
    written = line.text.removeprefix(line.mnemonic).strip()
    parts = [re.fullmatch(r"(\w+)\((\w+)\)", part) for part in re.split(r"[\s&,]+", written)]
    if written.isdigit():  # the encoded form: vmcnt is bits 3:0 and 15:14, lgkmcnt is bits 11:8
        bits = int(written)
        counts = {"vmcnt": bits & 15 | (bits >> 14 & 3) << 4, "lgkmcnt": bits >> 8 & 15}
    else:
        counts = {part[1]: int(part[2], 0) for part in parts if part}
        if len(counts) < len(parts) or not counts.keys() <= COUNTERS.keys():
            raise InputError(f"{line.place}: expected vmcnt(N), lgkmcnt(N) or expcnt(N)")
    for name, count in counts.items():
        if count > COUNTERS[name]:
            raise InputError(f"{line.place}: {name} counts to {COUNTERS[name]}")
    return Instruction(line, nothing, control="wait", wait=(counts.get("vmcnt"), counts.get("lgkmcnt")))


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(BRANCHES, _decode_branch),
    "s_branch": _decode_jump,
    "s_waitcnt": _decode_wait,
    "s_endpgm": lambda line: Instruction(line, nothing, control="end"),
    "s_barrier": lambda line: Instruction(line, nothing, control="barrier"),
    **{
        name: lambda line: Instruction(line, nothing)
        for name in ("s_nop", "s_sleep", "s_setprio", "s_dcache_inv", "s_dcache_wb", "s_icache_inv")
    },
}
