"""Counts what was executed, under the names that rocprof gives its counters.

The rules of inclusion, each fixed by a recording of real hardware (docs/machine-code.md says which):

* ``SQ_INSTS`` counts every instruction, waits and ``s_endpgm`` included; ``SQ_INSTS_SALU`` neither branches nor waits.
* Atomics count as writes of memory; no recording has fixed this rule.
* A packed instruction counts once. ``..._ADD_F32`` counts additions and subtractions and no maximum.
* ``..._MFMA_MOPS_*`` counts 512 floating-point operations, multiply and add separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kernbench.realrun.amdgcn.address_space import Addresses
from kernbench.realrun.amdgcn.state import Bools
from kernbench.realrun.amdgcn.vector import base_name

LINE_BYTES = 64
_MFMA = re.compile(
    r"v_mfma_(?:scale_)?(?P<to>f32|f64|i32)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_?(?:(?P<b>\d+)b_)?(?P<of>\w+)"
)
_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f32|f16|f64)$")
_OPERATIONS = {"add": "ADD", "sub": "ADD", "subrev": "ADD", "mul": "MUL", "fma": "FMA", "fmac": "FMA", "mac": "FMA",
               "fmaak": "FMA", "fmamk": "FMA"}  # fmt: skip
_KINDS = {"f16": "F16", "bf16": "BF16", "bf16_1k": "BF16", "f32": "F32", "i8": "I8", "f64": "F64", "xf32": "XF32"}
_FREE = ("s_waitcnt", "s_endpgm", "s_nop", "s_barrier", "s_sleep", "s_setprio", "s_sethalt")


@dataclass(slots=True)
class Tally:
    """Bytes that were moved, by place."""

    scalar_bytes: int = 0
    global_read_bytes: int = 0
    global_write_bytes: int = 0
    read_lines: int = 0
    write_lines: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0

    def add_global(self, at: Addresses, active: Bools, width: int, writes: bool) -> None:
        """Count the bytes of active lanes, and the distinct 64-byte lines that each wave's instruction touches."""
        nbytes = width * int(np.count_nonzero(active))
        lines = count_lines(at, active, width) if nbytes else 0
        if writes:
            self.global_write_bytes += nbytes
            self.write_lines += lines
        else:
            self.global_read_bytes += nbytes
            self.read_lines += lines


def count_lines(at: Addresses, active: Bools, width: int) -> int:
    """Count distinct 64-byte lines over each wave's active lanes."""
    first = at // np.uint64(LINE_BYTES)
    last = (at + np.uint64(width - 1)) // np.uint64(LINE_BYTES)
    spans = bool((first != last).any())
    both = np.concatenate([first, last], axis=1) if spans else first
    lanes = np.concatenate([active, active], axis=1) if spans else active
    none = np.uint64(2**64 - 1)
    ordered = both if lanes.all() else np.where(lanes, both, none)
    if not (ordered[:, 1:] >= ordered[:, :-1]).all():
        ordered = np.sort(ordered, axis=1)
    starts = int((ordered[:, 1:] != ordered[:, :-1]).sum()) + len(ordered)
    return starts - int((ordered == none).any(axis=1).sum())


def counters_of(opcodes: Iterable[tuple[str, int]], waves: int, tally: Tally) -> dict[str, int]:
    """Return counters by rocprof's names, from how often each opcode was executed by a wave.

    Names in lower case are not rocprof's: bytes asked for by active lanes, and distinct 64-byte lines of each wave's
    instruction.
    """
    found = dict.fromkeys(("SQ_WAVES", "SQ_INSTS", "SQ_INSTS_VALU", "SQ_INSTS_SALU", "SQ_INSTS_SMEM",
                           "SQ_INSTS_VMEM_RD", "SQ_INSTS_VMEM_WR", "SQ_INSTS_FLAT", "SQ_INSTS_LDS",
                           "SQ_INSTS_BRANCH", "SQ_INSTS_MFMA"), 0)  # fmt: skip
    found["SQ_WAVES"] = waves
    for opcode, count in opcodes:
        found["SQ_INSTS"] += count
        for name, weight in classify(opcode):
            found[name] = found.get(name, 0) + count * weight
    return found | {
        "scalar_bytes": tally.scalar_bytes,
        "global_read_bytes": tally.global_read_bytes,
        "global_write_bytes": tally.global_write_bytes,
        "global_read_lines_64B": tally.read_lines,
        "global_write_lines_64B": tally.write_lines,
        "lds_bytes": tally.lds_bytes,
        "scratch_bytes": tally.scratch_bytes,
    }


def classify(opcode: str) -> list[tuple[str, int]]:
    """Return the counters that one execution of an opcode raises, and by how much.

    >>> classify("v_mfma_f32_16x16x16_f16")
    [('SQ_INSTS_VALU', 1), ('SQ_INSTS_MFMA', 1), ('SQ_INSTS_VALU_MFMA_F16', 1), ('SQ_INSTS_VALU_MFMA_MOPS_F16', 16)]
    """
    if opcode.startswith(("s_branch", "s_cbranch")):
        return [("SQ_INSTS_BRANCH", 1)]
    if opcode in _FREE or opcode.startswith(("buffer_wb", "buffer_inv")):
        return []
    if opcode.startswith(("s_load", "s_buffer_load", "s_dcache", "s_store")):
        return [("SQ_INSTS_SMEM", 1)]
    if opcode.startswith("s_"):
        return [("SQ_INSTS_SALU", 1)]
    if opcode.startswith("ds_"):
        return [("SQ_INSTS_LDS", 1)]
    if opcode.startswith(("global_", "buffer_", "scratch_", "flat_")):
        flat = [("SQ_INSTS_FLAT", 1)] if opcode.startswith("flat_") else []
        writes = "_store" in opcode or "_atomic_" in opcode
        return [("SQ_INSTS_VMEM_WR" if writes else "SQ_INSTS_VMEM_RD", 1), *flat]
    return [("SQ_INSTS_VALU", 1), *_classify_vector(base_name(opcode))]


def _classify_vector(base: str) -> list[tuple[str, int]]:
    if found := _MFMA.match(base):
        m, n, k, blocks = int(found["m"]), int(found["n"]), int(found["k"]), int(found["b"] or 1)
        kind = _KINDS.get(found["of"], "F6F4" if "f8f6f4" in found["of"] else "F8")
        operations = 2 * m * n * k * blocks
        return [
            ("SQ_INSTS_MFMA", 1),
            (f"SQ_INSTS_VALU_MFMA_{kind}", 1),
            (f"SQ_INSTS_VALU_MFMA_MOPS_{kind}", operations // 512),
        ]
    if found := _TRANSCENDENTAL.match(base):
        return [(f"SQ_INSTS_VALU_TRANS_{found[2].upper()}", 1)]
    if base in ("v_fma_mixlo_f16", "v_fma_mixhi_f16"):
        return [("SQ_INSTS_VALU_FMA_F16", 1)]
    words = base.removeprefix("v_").removeprefix("pk_").split("_")
    if len(words) == 2 and words[0] in _OPERATIONS and words[1] in ("f16", "f32", "f64"):
        return [(f"SQ_INSTS_VALU_{_OPERATIONS[words[0]]}_{words[1].upper()}", 1)]
    if base.startswith("v_cvt_"):
        return [("SQ_INSTS_VALU_CVT", 1)]
    return []
