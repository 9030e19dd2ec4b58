"""What machine code did, in the units that the simulator charges in, and why the two differ where they do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from kernbench.realrun.amdgcn.counters import classify, mfma_shape
from kernbench.realrun.amdgcn.kernel import LaunchResult
from kernbench.realrun.amdgcn.vector import base_name
from kernbench.realrun.verify.charged import Charged

LANES = 64
MOPS = 512


@dataclass(frozen=True)
class Counted:
    """Work of one launch."""

    matrix_operations: int
    exponentials: int
    """Of all lanes, those switched off included: an instruction takes as long without them."""
    other_transcendentals: int
    """Reciprocals, logarithms and roots likewise."""
    lone_reciprocals: int
    """Those of them that begin no division of floats: compilers divide indices with them."""
    read_bytes: int
    """By lanes."""
    scalar_bytes: int
    """Read by scalar instructions, each for a whole wave; arguments of the launch excluded."""
    repeated_bytes: int
    """Those of them that another lane of the same instruction reads as well."""
    uniform_bytes: int
    """Those by instructions whose lanes all read the same address."""
    written_bytes: int
    lds_bytes: int
    lds_write_bytes: int

    @classmethod
    def of(cls, done: LaunchResult) -> Counted:
        """Add up what a launch did."""
        counters = done.counters
        transcendental = {
            opcode: count for opcode, count in done.opcodes.items() if any("_TRANS_" in n for n, _ in classify(opcode))
        }
        exponentials = sum(n for opcode, n in transcendental.items() if opcode.startswith("v_exp_"))
        return cls(
            matrix_operations=MOPS * sum(n for name, n in counters.items() if "_MFMA_MOPS_" in name),
            exponentials=LANES * exponentials,
            other_transcendentals=LANES * (sum(transcendental.values()) - exponentials),
            lone_reciprocals=LANES * max(_count(done, "v_rcp_") - _count(done, "v_div_fixup_"), 0),
            read_bytes=counters["global_read_bytes"],
            scalar_bytes=counters["scalar_array_bytes"],
            repeated_bytes=counters["global_read_bytes"] - counters["global_read_distinct_bytes"],
            uniform_bytes=counters["global_read_uniform_bytes"],
            written_bytes=counters["global_write_bytes"],
            lds_bytes=counters["lds_bytes"],
            lds_write_bytes=counters["lds_write_bytes"],
        )


def _count(done: LaunchResult, start: str) -> int:
    return sum(count for opcode, count in done.opcodes.items() if opcode.startswith(start))


@dataclass(frozen=True)
class Work:
    """Charged against counted."""

    charged: int
    counted: int
    note: str = ""


def results_of(opcodes: dict[str, int]) -> frozenset[tuple[int, int]]:
    """Return rows and columns of the matrix instructions' results.

    >>> sorted(results_of({"v_mfma_f32_16x16x32_f16": 3, "v_mfma_f32_32x32x8_f16": 3}))
    [(16, 16), (32, 32)]
    """
    return frozenset(mfma_shape(base_name(opcode))[:2] for opcode in opcodes if opcode.startswith("v_mfma"))


def instruction_of(opcodes: dict[str, int]) -> str | None:
    """Return the matrix instruction as ``MxNxK``, if all products are made with one; else None.

    >>> instruction_of({"v_mfma_f32_32x32x8_f16": 3, "v_exp_f32_e32": 1})
    '32x32x8'
    """
    shapes = {mfma_shape(base_name(opcode))[:4] for opcode in opcodes if opcode.startswith("v_mfma")}
    if len(shapes) != 1:
        return None
    m, n, k, blocks = shapes.pop()
    return f"{m}x{n}x{k}" if blocks == 1 else None


def differences(charged: Charged, counted: Counted, waves: int, stages: int, groups: int) -> dict[str, Work]:
    """Return each kind of work, with what explains a difference: what adds up to it exactly, or that nothing does.

    ``waves`` are those of a workgroup, ``stages`` those of its pipeline, ``groups`` the workgroups of the launch.
    """
    matrix, written = charged.matrix_operations, charged.written_bytes
    lds = f"{counted.lds_write_bytes:,} written, the rest read" if counted.lds_bytes else ""
    return {
        "matrix operations": Work(matrix, counted.matrix_operations, _rest(counted.matrix_operations - matrix)),
        "exponentials": _exponentials(charged, counted, waves, stages),
        "other transcendentals": _other(charged, counted, waves, groups),
        "global bytes read": _read(charged, counted, waves),
        "global bytes written": Work(written, counted.written_bytes, _rest(counted.written_bytes - written)),
        "LDS bytes": Work(charged.staged_bytes, counted.lds_bytes, lds),
    }


def _rest(difference: int) -> str:
    return f"{difference:+,} is not explained" if difference else ""


def _lanes(amount: int, rows: int, waves: int) -> int | None:
    """Return in how many lanes each row makes its number, if it is as many in each as a workgroup can hold rows in."""
    lanes, left = divmod(amount, rows) if rows else (0, amount)
    return None if left or lanes < 0 or lanes & (lanes - 1) or lanes > LANES * waves else lanes


def _exponentials(charged: Charged, counted: Counted, waves: int, stages: int) -> Work:
    """The model charges for tiles; a row's one exponential is computed by as many lanes as hold the row.

    A software pipeline has ``stages - 1`` passes behind its loop. A workgroup with fewer tiles executes them all the
    same, and throws away what it computes.
    """
    tile, row, total = charged.tile_exponentials, charged.row_exponentials, counted.exponentials
    if not charged.tiles:
        return Work(tile, total, "rows and columns are not charged" if row and total else _rest(total - tile))
    passes = sum(groups * max(stages - 1 - tiles, 0) for tiles, groups in charged.groups_by_tiles.items())
    for thrown, with_rows in ((0, False), (passes, False), (passes, True)):
        rows = row + thrown * row // charged.tiles * with_rows
        lanes = _lanes(total - tile - thrown * tile // charged.tiles, rows, waves)
        if lanes is not None:
            notes = [f"{thrown} passes of pipelines compute a tile that nothing needs"] if thrown else []
            notes += [f"one a row, in {lanes} lanes, is not charged"] if lanes else []
            return Work(tile, total, "; ".join(notes))
    return Work(tile, total, _rest(total - tile))


def _other(charged: Charged, counted: Counted, waves: int, groups: int) -> Work:
    """Divisions: of tiles, of rows, of indices by a reciprocal alone; waves whose rows are behind the end make none."""
    charge, total = charged.tile_divisions, counted.other_transcendentals
    rest = total - counted.lone_reciprocals - charge
    notes = [f"{counted.lone_reciprocals:,} are reciprocals alone, as of indices"] if counted.lone_reciprocals else []
    each, uneven = divmod(charge, waves * groups)
    lanes = _lanes(rest, charged.row_divisions, waves) if rest > 0 else 0
    if rest < 0 and each >= LANES and not uneven and rest % each == 0:
        notes.append(f"{-rest // each} waves have no rows and make none")
    elif lanes:
        notes.append(f"one a row, in {lanes} lanes, is not charged")
    elif rest:
        notes.append(_rest(rest))
    return Work(charge, total, "; ".join(notes))


def _read(charged: Charged, counted: Counted, waves: int) -> Work:
    """Tiles are read by lanes; single numbers by all lanes of each wave, or by its scalar unit.

    What every wave of a workgroup reads is some of the loads of rows and columns.
    """
    total = counted.read_bytes + counted.scalar_bytes
    rest = total - counted.repeated_bytes - charged.read_bytes
    again = {(waves - 1) * sum(some) for n in range(len(charged.line_loads) + 1)
             for some in combinations(charged.line_loads, n)}  # fmt: skip
    if total == charged.read_bytes:
        note = ""
    elif counted.read_bytes - counted.uniform_bytes == charged.read_bytes - charged.single_bytes:
        singles = counted.uniform_bytes + counted.scalar_bytes
        note = f"tiles are equal; single numbers {singles:,} by all lanes and waves, charged {charged.single_bytes:,}"
    else:
        notes = [f"{counted.repeated_bytes:,} by several lanes at once"] if counted.repeated_bytes else []
        if rest and rest in again:
            notes.append(f"{rest:,} by other waves of the workgroup again")
        elif rest:
            notes.append(_rest(rest))
        note = "; ".join(notes)
    return Work(charged.read_bytes, total, note)
