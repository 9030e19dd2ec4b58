"""The specs of the two block-sparse kernels: Jenga (a bitmap of blocks) and VSA (a list of blocks).

Both run the MFMA body over every tile of keys and only mask the scores of tiles that are not kept: they save no
work, whatever the sparsity. Both ignore ``common.mask_mode``. The first row of a 16-row query tile decides for the
whole tile which row of the bitmap or of the list holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernbench.specs.rocke.abi import Argument, argument_bytes, join_name, pointer, tail_arguments
from kernbench.specs.rocke.arch import ARCHES, check_narrow_atom
from kernbench.specs.rocke.common import (
    OK,
    TILE_KEYS,
    TILE_ROWS,
    WARP_LANES,
    FmhaCommonSpec,
    Verdict,
    arch_notes,
    check_common,
    dead_options,
)


@dataclass(frozen=True)
class _SparseSpec:
    """What the two specs share; the fields that follow ``block_k`` differ."""

    common: FmhaCommonSpec
    seqlen_q: int
    seqlen_k: int
    block_q: int = 1
    block_k: int = 64

    @property
    def num_q_blocks(self) -> int:
        """Rows of the bitmap or of the list: blocks of ``block_q`` query rows, the last one perhaps shorter."""
        return (self.seqlen_q + self.block_q - 1) // self.block_q

    @property
    def num_k_blocks(self) -> int:
        """Blocks of ``block_k`` keys."""
        return (self.seqlen_k + self.block_k - 1) // self.block_k

    def route(self) -> Literal["mfma"]:
        """Which body serves the spec: always the MFMA body."""
        return "mfma"

    def grid(self) -> tuple[int, int, int]:
        """Workgroups of the launch: query tiles of 16 rows by query heads."""
        return self.seqlen_q // TILE_ROWS, self.common.shape.num_query_heads, 1

    def block(self) -> tuple[int, int, int]:
        """Threads of a workgroup: one wave."""
        return WARP_LANES, 1, 1

    def lds_bytes(self) -> int:
        """Bytes of LDS: the tile of probabilities, and a byte for each block of keys."""
        return TILE_ROWS * TILE_KEYS * 2 + self.num_k_blocks

    def q_block_of_tile(self, tile: int) -> int:
        """Row of the bitmap or list that query tile ``tile`` reads: that of the tile's first query row."""
        return TILE_ROWS * tile // self.block_q

    def build_error(self, arch: str = "gfx950") -> str | None:
        """Return why the original's builder raises although its rules accept the spec; None if it builds."""
        del arch
        return None

    def notes(self, arch: str = "gfx950") -> tuple[str, ...]:
        """Say what may surprise about this spec: dead flags that are set, and rows that are never read."""
        found = dead_options(self.common)
        if self.common.mask_mode != "none":
            found.append(f"mask_mode={self.common.mask_mode!r} is ignored: only the blocks mask")
        if self.block_q % TILE_ROWS:
            found.append(
                f"block_q={self.block_q} is not a multiple of {TILE_ROWS}: "
                "the block of a tile's first row decides for all its rows"
            )
        if arch in ARCHES:
            found += arch_notes(arch, ARCHES[arch].wave_size, "mfma")
        return tuple(found)

    def _tensors(self) -> list[Argument]:
        return [pointer(name, self.common.dtype) for name in "QKVO"]

    def _name_parts(self) -> tuple[str, ...]:
        shape = self.common.shape
        return (
            f"H{shape.head_size}", f"HQ{shape.num_query_heads}", f"HK{shape.num_kv_heads}", self.common.dtype,
            f"Q{self.seqlen_q}", f"K{self.seqlen_k}", f"BQ{self.block_q}", f"BK{self.block_k}",
        )  # fmt: skip

    def _check_start(self, arch: str) -> Verdict:
        verdict = check_common(self.common)
        if verdict[0]:
            verdict = check_narrow_atom(self.common.dtype, arch)
        if verdict[0] and (self.seqlen_q <= 0 or self.seqlen_k <= 0):
            return False, f"seqlen_q={self.seqlen_q} and seqlen_k={self.seqlen_k} must be above 0"
        return verdict

    def _check_blocks(self) -> Verdict:
        if self.block_q <= 0 or self.block_k <= 0:
            return False, f"block_q={self.block_q} and block_k={self.block_k} must be above 0"
        return OK

    def _check_tiling(self) -> Verdict:
        if self.seqlen_k % self.block_k:
            return False, f"seqlen_k={self.seqlen_k} is not a multiple of block_k={self.block_k}"
        for name, size in (
            ("seqlen_q", self.seqlen_q), ("seqlen_k", self.seqlen_k), ("block_k", self.block_k),
            ("head_size", self.common.head_size),
        ):  # fmt: skip
            if size % TILE_ROWS:
                return False, f"{name}={size} is not a multiple of {TILE_ROWS}"
        return OK


@dataclass(frozen=True)
class JengaSparseSpec(_SparseSpec):
    """One Jenga kernel: ``mask[num_q_blocks, num_k_blocks]`` of bytes, for all heads; not 0 keeps a block.

    Examples
    --------
    >>> from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape
    >>> spec = JengaSparseSpec(FmhaCommonSpec(FmhaShape(128, 8, 8)), 4096, 4096, block_q=128, block_k=128)
    >>> spec.kernel_name(), spec.grid(), spec.kernarg_bytes()
    ('rocke_jenga_sparse_attn_H128_HQ8_HK8_f16_Q4096_K4096_BQ128_BK128', (256, 8, 1), 84)
    """

    name: str = "rocke_jenga_sparse_attn"

    def is_valid(self, arch: str = "gfx950", *, compat: bool = False) -> Verdict:
        """Say whether the kernel can be had, and if not why; ``compat`` makes no difference to this kernel."""
        del compat
        for verdict in (self._check_start(arch), self._check_blocks()):
            if not verdict[0]:
                return verdict
        return self._check_tiling()

    def signature(self) -> list[Argument]:
        """Arguments in order, ``{"name", "type"}`` each; strides are in elements."""
        return [*self._tensors(), pointer("mask", "i8"), *tail_arguments()]

    def kernarg_bytes(self) -> int:
        """Bytes of the argument block."""
        return argument_bytes(self.signature())

    def kernel_name(self) -> str:
        """Name of the kernel. It omits the (ignored) mask mode and the dead flags."""
        return join_name(self.name, *self._name_parts())


@dataclass(frozen=True)
class VsaSparseSpec(_SparseSpec):
    """One VSA kernel: ``block_lut[num_q_blocks, max_blocks_per_q]`` of block ids and ``block_count[num_q_blocks]``.

    The first ``min(count, max_blocks_per_q)`` ids of a row are kept, in any order, repeated or not; a count of 0 or
    less keeps nothing. ``use_wave_ballot_scatter`` is a dead flag: the kernel is the same with and without it.

    Examples
    --------
    >>> from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape
    >>> spec = VsaSparseSpec(FmhaCommonSpec(FmhaShape(64, 2, 2)), 16, 128, block_k=32, max_blocks_per_q=2)
    >>> spec.kernel_name(), spec.kernarg_bytes()
    ('rocke_vsa_sparse_attn_H64_HQ2_HK2_f16_Q16_K128_BQ1_BK32_MB2', 92)
    """

    max_blocks_per_q: int = 32
    name: str = "rocke_vsa_sparse_attn"
    use_wave_ballot_scatter: bool = True

    def is_valid(self, arch: str = "gfx950", *, compat: bool = False) -> Verdict:
        """Say whether the kernel can be had, and if not why.

        Parameters
        ----------
        arch
            Architecture, as ``gfx942``.
        compat
            True: the original's own answer. Its rules forget to ask whether ``block_q`` and ``block_k`` are above 0.
            False: such a spec is refused.

        Raises
        ------
        ZeroDivisionError
            With ``compat`` and ``block_k=0``, as in the original.
        """
        verdict = self._check_start(arch)
        if verdict[0] and self.max_blocks_per_q <= 0:
            verdict = False, f"max_blocks_per_q={self.max_blocks_per_q} must be above 0"
        if verdict[0] and not compat:
            verdict = self._check_blocks()
        return self._check_tiling() if verdict[0] else verdict

    def build_error(self, arch: str = "gfx950") -> str | None:
        """Return why the original's builder raises although its rules accept the spec; None if it builds."""
        del arch
        verdict = self._check_blocks()
        return None if verdict[0] else verdict[1]

    def signature(self) -> list[Argument]:
        """Arguments in order, ``{"name", "type"}`` each; strides are in elements."""
        lists = [pointer("block_lut", "i32"), pointer("block_count", "i32")]
        return [*self._tensors(), *lists, *tail_arguments()]

    def kernarg_bytes(self) -> int:
        """Bytes of the argument block."""
        return argument_bytes(self.signature())

    def kernel_name(self) -> str:
        """Name of the kernel. It omits the (ignored) mask mode and the dead flags."""
        return join_name(self.name, *self._name_parts(), f"MB{self.max_blocks_per_q}")

    def notes(self, arch: str = "gfx950") -> tuple[str, ...]:
        """Say what may surprise about this spec: dead flags that are set, and rows that are never read."""
        dead = () if self.use_wave_ballot_scatter else (
            "use_wave_ballot_scatter is a dead flag: the kernel is the same with it",
        )  # fmt: skip
        return super().notes(arch) + dead
