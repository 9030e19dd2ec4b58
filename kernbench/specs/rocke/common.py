"""What the rocke attention specs share: the shape, the options, the scale layout, and the rules for them.

The dataclasses have the originals' fields and defaults, so a spec is written here as it is written there. Making one
checks what the original checks, and no more: ask a kernel spec's ``is_valid`` for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernbench.errors import SpecError

TILE_ROWS = 16
"""Query rows that one workgroup of the MFMA body serves, and keys that one step of it handles."""
TILE_KEYS = 16
WARP_LANES = 64
"""Lanes of the one wave that a workgroup is; the warp body spreads the head over them."""

HEAD_SIZES = (32, 64, 128, 192, 256)
BLOCK_SIZES_Q = (16, 32, 64, 128)
BLOCK_SIZES_K = (16, 32, 64, 128, 256)
DTYPES = ("f16", "fp16", "bf16")
MASK_MODES = ("none", "causal", "sliding_window", "alibi", "custom")

MaskMode = Literal["none", "causal", "sliding_window", "alibi", "custom"]
ScaleLayout = Literal["per_head", "per_block"]
Verdict = tuple[bool, str]
"""``(ok, reason)``; the reason is ``"ok"`` when nothing is wrong."""
OK: Verdict = (True, "ok")


class RockeSpecError(SpecError, ValueError):
    """A spec that cannot be made or used: a ValueError too, since the original raises one there."""


@dataclass(frozen=True)
class FmhaShape:
    """Sizes of one attention call. ``block_size_q`` and ``block_size_k`` are checked, and used by none of the kernels.

    >>> FmhaShape(head_size=128, num_query_heads=8, num_kv_heads=2).num_queries_per_kv
    4
    """

    head_size: int
    num_query_heads: int
    num_kv_heads: int
    block_size_q: int = 16
    block_size_k: int = 64

    @property
    def num_queries_per_kv(self) -> int:
        """Query heads that share one key/value head; query head ``h`` reads key/value head ``h // this``."""
        if self.num_query_heads % self.num_kv_heads:
            raise RockeSpecError(
                f"num_query_heads={self.num_query_heads} is not a multiple of num_kv_heads={self.num_kv_heads}"
            )
        return self.num_query_heads // self.num_kv_heads


@dataclass(frozen=True)
class FmhaCommonSpec:
    """Options that the rocke attention kernels share.

    Some of them are dead in these kernels: ``scale_log2`` (the kernel takes its scale as an argument),
    ``use_softcap``, ``use_rotary``, ``use_dropout`` and ``use_sinks`` change nothing that is computed.
    """

    shape: FmhaShape
    dtype: str = "f16"
    scale_log2: float = 0.0
    mask_mode: MaskMode = "none"
    sliding_window: int = 0
    use_softcap: bool = False
    use_rotary: bool = False
    use_dropout: bool = False
    use_sinks: bool = False

    @property
    def head_size(self) -> int:
        """Elements of one head."""
        return self.shape.head_size

    @property
    def use_alibi_matrix(self) -> bool:
        """Whether the mask mode is ``alibi``."""
        return self.mask_mode == "alibi"

    @property
    def use_custom_mask(self) -> bool:
        """Whether the mask mode is ``custom``."""
        return self.mask_mode == "custom"

    @property
    def element(self) -> str:
        """Name of the element format, ``f16`` or ``bf16``: ``fp16`` is another spelling of ``f16``."""
        return "f16" if self.dtype == "fp16" else self.dtype


@dataclass(frozen=True)
class QkScaleSpec:
    """Where the f32 scale of a head, or of a block of tokens of a head, lies in its buffer.

    Element ``batch * stride_batch + head * stride_head`` and, for ``per_block``, ``+ block * stride_block`` with
    ``block = token // scale_block``. ``batch`` is always 0; ``head`` is the query head for ``q_scale`` and the
    key/value head for ``k_scale``. With the default ``stride_head=0`` all heads share their scales.

    Raises
    ------
    RockeSpecError
        For an unknown layout, and for ``per_block`` without a positive ``scale_block``.

    >>> QkScaleSpec("per_block", scale_block=64, stride_head=1, stride_block=8).offset(head=3, token=130)
    19
    """

    layout: ScaleLayout
    scale_block: int = 0
    stride_batch: int = 0
    stride_head: int = 0
    stride_block: int = 1

    def __post_init__(self) -> None:
        if self.layout not in ("per_head", "per_block"):
            raise RockeSpecError(f"layout cannot be {self.layout!r}: it must be 'per_head' or 'per_block'")
        if self.layout == "per_block" and self.scale_block <= 0:
            raise RockeSpecError(f"scale_block cannot be {self.scale_block} with per_block: it must be above 0")

    def block(self, token: int) -> int:
        """Block that a token belongs to; 0 for ``per_head``."""
        return token // self.scale_block if self.layout == "per_block" else 0

    def blocks(self, tokens: int) -> int:
        """How many blocks ``tokens`` tokens make; 1 for ``per_head``."""
        return -(-tokens // self.scale_block) if self.layout == "per_block" else 1

    def offset(self, head: int, token: int) -> int:
        """Element of the buffer that holds the scale of a token of a head."""
        block = self.block(token) * self.stride_block if self.layout == "per_block" else 0
        return head * self.stride_head + block


def check_common(spec: FmhaCommonSpec) -> Verdict:
    """Apply the rules for the shared options, in the original's order; the first that fails is the reason."""
    shape = spec.shape
    if not 0 < shape.head_size <= 256:
        return False, f"head_size={shape.head_size} is outside 1..256"
    if shape.head_size not in HEAD_SIZES:
        return False, f"head_size={shape.head_size} is not one of {_listed(HEAD_SIZES)}"
    if shape.num_query_heads <= 0 or shape.num_kv_heads <= 0:
        return False, f"num_query_heads={shape.num_query_heads} and num_kv_heads={shape.num_kv_heads} must be above 0"
    if shape.num_query_heads % shape.num_kv_heads:
        return False, f"num_query_heads={shape.num_query_heads} is not a multiple of num_kv_heads={shape.num_kv_heads}"
    if shape.block_size_q not in BLOCK_SIZES_Q:
        return False, f"block_size_q={shape.block_size_q} is not one of {_listed(BLOCK_SIZES_Q)}"
    if shape.block_size_k not in BLOCK_SIZES_K:
        return False, f"block_size_k={shape.block_size_k} is not one of {_listed(BLOCK_SIZES_K)}"
    return _check_options(spec)


def _check_options(spec: FmhaCommonSpec) -> Verdict:
    if spec.dtype not in DTYPES:
        return False, f"dtype={spec.dtype!r} is not one of {_listed(DTYPES)}"
    if spec.mask_mode not in MASK_MODES:
        return False, f"mask_mode={spec.mask_mode!r} is not one of {_listed(MASK_MODES)}"
    if spec.mask_mode == "sliding_window" and spec.sliding_window <= 0:
        return False, f"mask_mode='sliding_window' needs sliding_window above 0, not {spec.sliding_window}"
    if spec.use_sinks and spec.dtype not in ("f16", "fp16"):
        return False, f"use_sinks needs dtype f16, not {spec.dtype}"
    return OK


def dead_options(spec: FmhaCommonSpec) -> list[str]:
    """Say which of the shared options are set although no kernel here reads them."""
    flags = [name for name in ("use_softcap", "use_rotary", "use_dropout", "use_sinks") if getattr(spec, name)]
    notes = [f"{name} is a dead flag: nothing that is computed depends on it" for name in flags]
    if spec.scale_log2 != 0:
        notes.append("the field scale_log2 is not read: the kernel takes its scale as an argument")
    return notes


def arch_notes(arch: str, wave_size: int, route: str) -> list[str]:
    """Say what an architecture with short waves makes of these kernels."""
    if wave_size == WARP_LANES:
        return []
    body = "a WMMA body of its own" if route == "mfma" else "a body written for 64 lanes"
    return [f"{arch} has waves of {wave_size} lanes: the kernel uses {body}, which kernbench does not follow"]


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(str(value) for value in values)
