"""What machine code did, in the units that the simulator charges in, and why the two differ where they do."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Return each kind of work, with what explains a difference: only what adds up to it exactly is said.

    ``waves`` are those of a workgroup, ``stages`` those of its pipeline, ``groups`` the workgroups of the launch.
    """
    lds = f"{counted.lds_write_bytes:,} written, the rest read" if counted.lds_bytes else ""
    return {
        "matrix operations": Work(charged.matrix_operations, counted.matrix_operations),
        "exponentials": _exponentials(charged, counted, stages),
        "other transcendentals": _other(charged, counted, waves * groups),
        "global bytes read": _read(charged, counted, waves, groups),
        "global bytes written": Work(charged.written_bytes, counted.written_bytes),
        "LDS bytes": Work(charged.staged_bytes, counted.lds_bytes, lds),
    }


def _exponentials(charged: Charged, counted: Counted, stages: int) -> Work:
    """The model charges for tiles; a row's one exponential is computed by as many lanes as hold the row.

    A software pipeline has ``stages - 1`` passes behind its loop. A workgroup with fewer tiles executes them all the
    same, and throws away what it computes.
    """
    tile, row = charged.tile_exponentials, charged.row_exponentials
    if counted.exponentials == tile:
        return Work(tile, tile)
    passes = sum(groups * max(stages - 1 - tiles, 0) for tiles, groups in charged.groups_by_tiles.items())
    for thrown, with_rows in ((0, False), (passes, False), (passes, True)):
        of_tiles = thrown * tile // max(charged.tiles, 1)
        rows = row + (thrown * row // max(charged.tiles, 1) if with_rows else 0)
        lanes, left = divmod(counted.exponentials - tile - of_tiles, max(rows, 1))
        if lanes < 0 or left or lanes & (lanes - 1) or not row:
            continue
        notes = [f"{thrown} passes of pipelines compute a tile that nothing needs"] if thrown else []
        notes += [f"one a row, in {lanes} lanes, is not charged"] if lanes else []
        return Work(tile, counted.exponentials, "; ".join(notes))
    if not tile and row:
        return Work(tile, counted.exponentials, f"{row:,} of rows and columns are not charged")
    return Work(tile, counted.exponentials, f"{counted.exponentials - tile:+,} is not explained")


def _other(charged: Charged, counted: Counted, waves_of_launch: int) -> Work:
    notes = []
    if counted.lone_reciprocals:
        notes.append(f"{counted.lone_reciprocals:,} are for divisions of indices")
    rest = counted.other_transcendentals - counted.lone_reciprocals - charged.tile_divisions
    each = charged.tile_divisions // waves_of_launch
    if rest > 0 and charged.row_divisions and rest % charged.row_divisions == 0:
        notes.append(f"one a row, in {rest // charged.row_divisions} lanes, is not charged")
    if rest < 0 and each and rest % each == 0:
        notes.append(f"{-rest // each} waves have no rows and make none")
    return Work(charged.tile_divisions, counted.other_transcendentals, "; ".join(notes))


def _read(charged: Charged, counted: Counted, waves: int, groups: int) -> Work:
    """Tiles are read by lanes; single numbers by all lanes of each wave, or by its scalar unit."""
    total, note = counted.read_bytes + counted.scalar_bytes, ""
    rest = total - counted.repeated_bytes - charged.read_bytes
    if total != charged.read_bytes and counted.read_bytes - counted.uniform_bytes == _of_tiles(charged):
        singles = counted.uniform_bytes + counted.scalar_bytes
        note = f"tiles are equal; single numbers {singles:,} by all lanes and waves, charged {charged.single_bytes:,}"
    elif total != charged.read_bytes:
        each, left = divmod(rest, max((waves - 1) * groups, 1))
        note = f"{counted.repeated_bytes:,} are read by several lanes at once"
        if rest > 0 and not left and waves > 1:
            note += f"; {each:,} of a workgroup are read by each of its {waves} waves"
        elif rest:
            note += f"; {rest:+,} is not explained"
    return Work(charged.read_bytes, total, note)


def _of_tiles(charged: Charged) -> int:
    return charged.read_bytes - charged.single_bytes
