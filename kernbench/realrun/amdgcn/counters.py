"""Counts what was executed, under the names that rocprof gives its counters.

The rules of inclusion, each fixed by a recording of real hardware (docs/machine-code-recordings.md):

* ``SQ_INSTS`` counts every instruction, waits and ``s_endpgm`` included; ``SQ_INSTS_SALU`` neither branches nor waits.
* Atomics count as writes of memory; no recording has fixed this rule.
* A packed instruction counts once. ``..._ADD_F32`` counts additions and subtractions and no maximum.
* Of the steps of a division, ``..._FMA_F32`` counts ``v_div_fmas``; nothing of this kind counts ``v_div_scale``,
  ``v_div_fixup`` or ``v_ldexp``.
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
    scalar_array_bytes: int = 0
    """Without those of the argument block and the dispatch packet."""
    distinct_read_bytes: int = 0
    uniform_read_bytes: int = 0
    """Read by instructions whose lanes all read the same address."""
    global_read_bytes: int = 0
    global_write_bytes: int = 0
    read_lines: int = 0
    write_lines: int = 0
    lds_bytes: int = 0
    """Read and written."""
    lds_write_bytes: int = 0
    scratch_bytes: int = 0

    def add_global(self, at: Addresses, active: Bools, width: int, writes: bool) -> None:
        """Count the bytes of active lanes, and the distinct addresses and 64-byte lines of each wave's instruction."""
        nbytes = width * int(np.count_nonzero(active))
        addresses, lines, uniform = count_distinct(at, active, width) if nbytes else (0, 0, 0)
        if writes:
            self.global_write_bytes += nbytes
            self.write_lines += lines
        else:
            self.global_read_bytes += nbytes
            self.distinct_read_bytes += width * addresses
            self.uniform_read_bytes += width * uniform
            self.read_lines += lines


def count_distinct(at: Addresses, active: Bools, width: int) -> tuple[int, int, int]:
    """Count distinct addresses and 64-byte lines over each wave's active lanes, and lanes that all share an address."""
    none = np.uint64(2**64 - 1)
    ordered = at if active.all() else np.where(active, at, none)
    if not (ordered[:, 1:] >= ordered[:, :-1]).all():
        ordered = np.sort(ordered, axis=1)
    line_bytes = np.uint64(LINE_BYTES)
    first, last = ordered // line_bytes, (ordered + np.uint64(width - 1)) // line_bytes
    if (first != last).any():
        last = np.where(ordered == none, first, last)
        first = np.sort(np.concatenate([first, last], axis=1), axis=1)
    lines = _count_runs(first, none // line_bytes)
    least, most = ordered[:, :1], np.where(ordered == none, np.uint64(0), ordered).max(axis=1, keepdims=True)
    uniform = int(np.count_nonzero((ordered != none) & (least == most)))
    return _count_runs(ordered, none), lines, uniform


def _count_runs(ordered: Addresses, none: np.uint64) -> int:
    """Count distinct values of each row of ascending numbers; ``none`` is no value."""
    starts = int((ordered[:, 1:] != ordered[:, :-1]).sum()) + len(ordered)
    return starts - int((ordered[:, -1] == none).sum())


def counters_of(opcodes: Iterable[tuple[str, int]], waves: int, tally: Tally) -> dict[str, int]:
    """Return counters by rocprof's names, from how often each opcode was executed by a wave.

    Names in lower case are not rocprof's: bytes asked for by active lanes (``distinct``: addresses of a wave's
    instruction once each; ``uniform``: by instructions whose lanes all read one address), distinct 64-byte lines of
    each wave's instruction, and bytes of scalar instructions, which read for a whole wave (``array``: without the
    argument block).
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
        "scalar_array_bytes": tally.scalar_array_bytes,
        "global_read_bytes": tally.global_read_bytes,
        "global_read_distinct_bytes": tally.distinct_read_bytes,
        "global_read_uniform_bytes": tally.uniform_read_bytes,
        "global_write_bytes": tally.global_write_bytes,
        "global_read_lines_64B": tally.read_lines,
        "global_write_lines_64B": tally.write_lines,
        "lds_bytes": tally.lds_bytes,
        "lds_write_bytes": tally.lds_write_bytes,
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


def mfma_shape(base: str) -> tuple[int, int, int, int, str]:
    """Return m, n, k and blocks of a matrix instruction, and what its counters call the format of its operands.

    >>> mfma_shape("v_mfma_f32_4x4x4_16b_f16")
    (4, 4, 4, 16, 'F16')
    """
    found = _MFMA.match(base)
    if found is None:
        raise ValueError(f"{base} is no matrix instruction")
    kind = _KINDS.get(found["of"], "F6F4" if "f8f6f4" in found["of"] else "F8")
    return int(found["m"]), int(found["n"]), int(found["k"]), int(found["b"] or 1), kind


def _classify_vector(base: str) -> list[tuple[str, int]]:
    if _MFMA.match(base):
        m, n, k, blocks, kind = mfma_shape(base)
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
    if base == "v_div_fmas_f32":
        return [("SQ_INSTS_VALU_FMA_F32", 1)]
    words = base.removeprefix("v_").removeprefix("pk_").split("_")
    if len(words) == 2 and words[0] in _OPERATIONS and words[1] in ("f16", "f32", "f64"):
        return [(f"SQ_INSTS_VALU_{_OPERATIONS[words[0]]}_{words[1].upper()}", 1)]
    if base.startswith("v_cvt_"):
        return [("SQ_INSTS_VALU_CVT", 1)]
    return []
