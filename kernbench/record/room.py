"""Room for the tiles of a workgroup: what a compiler would keep alive, not what a stack would.

On a GPU-like machine a compiler places tiles in registers and scratch, and gives the place of a tile whose last reader
has run to the next one. So what counts there is the largest number of bytes alive at once. What a launch really takes
(registers, LDS, buffers for loads ahead) is a fact of its implementation, given beside the kernel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernbench.errors import ScratchError
from kernbench.machine.workgroups import WorkgroupGrid
from kernbench.record.lines import LineTable
from kernbench.record.trace import PEClass


def fitted(cls: PEClass, machine: WorkgroupGrid, lines: LineTable) -> PEClass:
    """Return the class with its peak counted by live tiles.

    Raises
    ------
    ScratchError
        If that is more than the registers and the scratch of a PE together; names the lines that made the tiles.
    """
    peak, by_line = _live_peak(cls)
    if peak > machine.tile_room:
        largest = sorted(by_line.items(), key=lambda item: -item[1])[:8]
        rows = "".join(f"\n    {n:>12,} bytes made at {lines[line]}" for line, n in largest)
        raise ScratchError(
            f"a workgroup has {peak:,} bytes of live tiles, but a PE of {machine.name} holds {machine.tile_room:,} in "
            f"registers and scratch together; use smaller tiles\n  alive:{rows}"
            f"\n  on {machine.describe_pes(cls.pes)}"
        )
    return replace(cls, scratch_peak_bytes=peak, scratch_by_line=by_line)


def _live_peak(cls: PEClass) -> tuple[int, dict[int, int]]:
    """Return the most bytes of tiles that are alive at one command, and these by the line that made them."""
    if not cls.tiles:
        return 0, {}
    born = np.full(len(cls.tiles), -1)
    for i in range(len(cls.commands) - 1, -1, -1):
        for tile in cls.commands[i].dst:
            born[tile] = i  # the first command that writes it
    nbytes = np.array([tile.nbytes for tile in cls.tiles])
    last, used = np.array(cls.last_use), np.flatnonzero(born >= 0)
    change = np.zeros(len(cls.commands) + 1, np.int64)
    np.add.at(change, born[used], nbytes[used])
    np.add.at(change, last[used] + 1, -nbytes[used])
    alive = np.cumsum(change)
    peak_at = int(np.argmax(alive))
    by_line: dict[int, int] = {}
    for tile in used[(born[used] <= peak_at) & (last[used] >= peak_at)].tolist():
        line = cls.tiles[tile].line
        by_line[line] = by_line.get(line, 0) + cls.tiles[tile].nbytes
    return int(alive[peak_at]), by_line
