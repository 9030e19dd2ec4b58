"""The spec of sage attention: f16 or bf16 queries against keys and values in f16/bf16, fp8, i8 or packed i4."""

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
    QkScaleSpec,
    Verdict,
    arch_notes,
    check_common,
    dead_options,
)

QuantMode = Literal["fp16_bf16", "fp8_bf16", "i8_fp8_bf16", "i4_fp8_bf16"]
QUANT_MODES = ("fp16_bf16", "fp8_bf16", "i8_fp8_bf16", "i4_fp8_bf16")
CODEBOOK_ENTRIES = {"i8_fp8_bf16": 256, "i4_fp8_bf16": 16}
"""f32 entries of each of the two codebooks, by the modes that have them."""
_MFMA_MODES = ("fp16_bf16", "fp8_bf16")
_I4_HEAD_SIZE = 128


@dataclass(frozen=True)
class SageAttentionSpec:
    """One sage attention kernel. Q is never quantised; both scales multiply the score; there is no scale for V.

    ``use_outer_scale_loop`` is a dead flag: the kernel is the same with and without it.

    Examples
    --------
    >>> from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape, QkScaleSpec
    >>> per_block = QkScaleSpec("per_block", scale_block=64, stride_head=64)
    >>> common = FmhaCommonSpec(FmhaShape(head_size=128, num_query_heads=8, num_kv_heads=8))
    >>> spec = SageAttentionSpec(common, "fp8_bf16", per_block, per_block, seqlen_q=256, seqlen_k=4096)
    >>> spec.is_valid("gfx942"), spec.route(), spec.grid(), spec.kernarg_bytes()
    ((True, 'ok'), 'mfma', (16, 8, 1), 92)
    """

    common: FmhaCommonSpec
    quant_mode: QuantMode
    q_scale: QkScaleSpec
    k_scale: QkScaleSpec
    seqlen_q: int
    seqlen_k: int
    name: str = "rocke_sage_attention"
    use_outer_scale_loop: bool = False

    def is_valid(self, arch: str = "gfx950", *, compat: bool = False) -> Verdict:
        """Say whether the kernel can be had, and if not why.

        Parameters
        ----------
        arch
            Architecture, as ``gfx942``.
        compat
            True: the original's own answer, from its rules alone. False: the spec is also refused if the original
            accepts it and then cannot build it, or would silently compute something else (see
            :meth:`build_error` and the mask modes of :meth:`notes`).
        """
        verdict = self._upstream_verdict(arch)
        if compat or not verdict[0]:
            return verdict
        error = self.build_error(arch)
        if error is not None:
            return False, error
        return self._kernbench_verdict(arch)

    def build_error(self, arch: str = "gfx950") -> str | None:
        """Return why the original's builder raises although its rules accept the spec; None if it builds."""
        if self.quant_mode == "i4_fp8_bf16" and self.common.head_size != _I4_HEAD_SIZE:
            return f"i4 can only be built for head_size={_I4_HEAD_SIZE}, not {self.common.head_size}"
        if self.route() == "mfma" and self.common.mask_mode in ("alibi", "custom"):
            return f"the MFMA body knows no mask_mode={self.common.mask_mode!r}"
        wave_size = ARCHES[arch].wave_size if arch in ARCHES else WARP_LANES
        if self.route() == "mfma" and self.quant_mode == "fp8_bf16" and wave_size != WARP_LANES:
            return f"the WMMA body of {arch} takes f16 and bf16 keys only, not fp8"
        return None

    def _upstream_verdict(self, arch: str) -> Verdict:
        verdict = check_common(self.common)
        if verdict[0]:
            verdict = check_narrow_atom(self.common.dtype, arch)
        if not verdict[0]:
            return verdict
        head_size = self.common.head_size
        if self.quant_mode not in QUANT_MODES:
            return False, f"quant_mode={self.quant_mode!r} is not one of {', '.join(QUANT_MODES)}"
        if self.seqlen_q <= 0 or self.seqlen_k <= 0:
            return False, f"seqlen_q={self.seqlen_q} and seqlen_k={self.seqlen_k} must be above 0"
        if self.quant_mode == "i4_fp8_bf16" and head_size % 2:
            return False, f"i4 packs two elements a byte: head_size={head_size} must be even"
        if head_size % WARP_LANES:
            return False, f"head_size={head_size} is not a multiple of {WARP_LANES}"
        return OK

    def _kernbench_verdict(self, arch: str) -> Verdict:
        """Refuse what the original builds and gets silently wrong."""
        if self.common.mask_mode in ("alibi", "custom"):
            return False, f"the warp body ignores mask_mode={self.common.mask_mode!r}: nothing would be masked"
        if self.quant_mode == "fp8_bf16" and ARCHES[arch].fp8_format is None:
            return False, f"{arch} has no fp8 byte format in these kernels"
        return OK

    def route(self) -> Literal["mfma", "warp"]:
        """Which body serves the spec: 16 query rows a workgroup with matrix instructions, or one row a wave."""
        aligned = not (self.seqlen_q % TILE_ROWS or self.seqlen_k % TILE_KEYS or self.common.head_size % TILE_KEYS)
        scales = all(s.layout == "per_head" or s.scale_block % TILE_KEYS == 0 for s in (self.q_scale, self.k_scale))
        return "mfma" if self.quant_mode in _MFMA_MODES and aligned and scales else "warp"

    def grid(self) -> tuple[int, int, int]:
        """Workgroups of the launch: query tiles (or rows) by query heads."""
        rows = self.seqlen_q // TILE_ROWS if self.route() == "mfma" else self.seqlen_q
        return rows, self.common.shape.num_query_heads, 1

    def block(self) -> tuple[int, int, int]:
        """Threads of a workgroup: one wave."""
        return WARP_LANES, 1, 1

    @property
    def kv_element(self) -> str:
        """Format of K and V in memory; packed i4 is ``i8``, two elements a byte."""
        if self.quant_mode == "fp16_bf16":
            return self.common.element
        return "fp8e4m3" if self.quant_mode == "fp8_bf16" else "i8"

    def signature(self) -> list[Argument]:
        """Arguments in order, ``{"name", "type"}`` each; strides are in elements, those of packed i4 in bytes."""
        codebooks = ["codebook_k", "codebook_v"] if self.quant_mode in CODEBOOK_ENTRIES else []
        return [
            pointer("Q", self.common.dtype),
            pointer("K", self.kv_element),
            pointer("V", self.kv_element),
            pointer("O", self.common.dtype),
            *(pointer(name, "f32") for name in ("q_scale", "k_scale", *codebooks)),
            *tail_arguments(),
        ]

    def kernarg_bytes(self) -> int:
        """Bytes of the argument block: 92, or 108 with codebooks."""
        return argument_bytes(self.signature())

    def lds_bytes(self) -> int:
        """Bytes of LDS: the tile of probabilities (MFMA body) or the two codebooks."""
        if self.route() == "mfma":
            return TILE_ROWS * TILE_KEYS * 2
        return 2 * 4 * CODEBOOK_ENTRIES.get(self.quant_mode, 0)

    def kernel_name(self) -> str:
        """Name of the kernel. It omits mask mode, window and scale layouts: unlike specs may share a name."""
        shape = self.common.shape
        return join_name(
            self.name, self.quant_mode, f"H{shape.head_size}", f"HQ{shape.num_query_heads}", f"HK{shape.num_kv_heads}",
            self.common.dtype, f"Q{self.seqlen_q}", f"K{self.seqlen_k}",
        )  # fmt: skip

    def notes(self, arch: str = "gfx950") -> tuple[str, ...]:
        """Say what may surprise about this spec: dead flags that are set, and defects of the original."""
        found = dead_options(self.common)
        if self.use_outer_scale_loop:
            found.append("use_outer_scale_loop is a dead flag: the kernel is the same without it")
        if self.quant_mode == "fp8_bf16" and self.common.element == "bf16" and self.route() == "mfma":
            found.append(
                "the original reads Q and writes O as f16 bit patterns here; kernbench computes in bf16, "
                "and follows the original only with compat=True"
            )
        if self.common.mask_mode == "sliding_window":
            found.append("the sliding window has no upper bound: keys after the query are kept")
        if self.common.mask_mode == "causal" and self.seqlen_q != self.seqlen_k:
            found.append("causal is aligned top-left: query t sees keys 0 ... t, also when the lengths differ")
        if arch in ARCHES:
            found += arch_notes(arch, ARCHES[arch].wave_size, self.route())
        return tuple(found)
