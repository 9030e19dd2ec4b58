"""Random specs: any, most of whose fields are legal, and small ones that can be built and executed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from kernbench.realrun.rocke.payloads import FAMILIES, Payload, Spec
from kernbench.specs.rocke import (
    FmhaCommonSpec,
    FmhaShape,
    JengaSparseSpec,
    QkScaleSpec,
    SageAttentionSpec,
    VsaSparseSpec,
)
from kernbench.specs.rocke.common import BLOCK_SIZES_K, BLOCK_SIZES_Q, DTYPES, HEAD_SIZES, MASK_MODES
from kernbench.specs.rocke.sage import QUANT_MODES

_ODD = 0.03
"""How often a field has a value that its own rule refuses, or that is unusual."""


def draw_specs(seed: int, count: int) -> list[Payload]:
    """Draw specs of all families, about half of them legal.

    >>> draw_specs(1, 3) == draw_specs(1, 3)
    True
    """
    rng = random.Random(seed)
    return [_draw(rng, list(FAMILIES)[i % len(FAMILIES)]) for i in range(count)]


def _draw(rng: random.Random, family: str) -> Payload:
    length = [16, 32, 48, 64, 256, 1024]
    fields: dict[str, Any] = {
        "common": _draw_common(rng),
        "seqlen_q": _pick(rng, [*length, 8, 33], [0, -16, 1]),
        "seqlen_k": _pick(rng, [*length, 40], [0, -16, 1]),
    }
    if family == "SageAttentionSpec":
        fields |= {
            "quant_mode": _pick(rng, QUANT_MODES, ["fp16", "i8_fp8_f16"]),
            "q_scale": _draw_scale(rng),
            "k_scale": _draw_scale(rng),
            "use_outer_scale_loop": _pick(rng, [False], [True]),
        }
    else:
        fields |= {
            "block_q": _pick(rng, [1, 16, 24, 64, 128], [0, -1]),
            "block_k": _pick(rng, [16, 32, 64], [0, -16, 8, 24, 1024]),
        }
    if family == "VsaSparseSpec":
        fields |= {
            "max_blocks_per_q": _pick(rng, [1, 2, 32, 65], [0, -1]),
            "use_wave_ballot_scatter": _pick(rng, [True], [False]),
        }
    if rng.random() < _ODD:
        fields["name"] = "mine/kernel"
    return {"class": family, "fields": fields}


def _draw_common(rng: random.Random) -> Payload:
    kv_heads = _pick(rng, [1, 2, 8], [0, 3])
    shape = {
        "head_size": _pick(rng, HEAD_SIZES, [0, -64, 16, 48, 96, 100, 512]),
        "num_query_heads": _pick(rng, [kv_heads, 2 * kv_heads, 8], [0, -1, 7]),
        "num_kv_heads": kv_heads,
        "block_size_q": _pick(rng, BLOCK_SIZES_Q, [8, 256]),
        "block_size_k": _pick(rng, BLOCK_SIZES_K, [8, 512]),
    }
    mask = _pick(rng, ["none", "causal", "sliding_window"], [*MASK_MODES[3:], "full"])
    fields = {
        "shape": {"class": "FmhaShape", "fields": shape},
        "dtype": _pick(rng, DTYPES, ["f32", "fp8e4m3"]),
        "scale_log2": _pick(rng, [0.0], [0.18]),
        "mask_mode": mask,
        "sliding_window": _pick(rng, [17] if mask == "sliding_window" else [0], [-1, 0]),
        **{name: rng.random() < _ODD for name in ("use_softcap", "use_rotary", "use_dropout", "use_sinks")},
    }
    return {"class": "FmhaCommonSpec", "fields": fields}


def _draw_scale(rng: random.Random) -> Payload:
    layout = _pick(rng, ["per_head", "per_block"], ["per_token"])
    fields = {
        "layout": layout,
        "scale_block": _pick(rng, [8, 16, 32, 64] if layout == "per_block" else [0], [0, -16]),
        "stride_batch": _pick(rng, [0], [64]),
        "stride_head": _pick(rng, [0, 1, 64], []),
        "stride_block": _pick(rng, [1, 8], []),
    }
    return {"class": "QkScaleSpec", "fields": fields}


def _pick(rng: random.Random, usual: Sequence[Any], odd: Sequence[Any]) -> Any:
    return rng.choice(odd) if odd and rng.random() < _ODD else rng.choice(usual)


def draw_executable(seed: int, count: int) -> list[Spec]:
    """Draw small specs whose kernels can be built: every family, format and route comes up in turn.

    >>> [type(spec).__name__ for spec in draw_executable(0, 2)]
    ['SageAttentionSpec', 'JengaSparseSpec']
    """
    rng = random.Random(seed)
    kinds = _kinds()
    return [_small(rng, *next(kinds)) for _ in range(count)]


def _kinds() -> Iterator[tuple[str, str]]:
    while True:
        yield from (
            ("sage mfma", "fp16_bf16"), ("jenga", ""), ("vsa", ""), ("sage warp", "fp16_bf16"),
            ("sage warp", "i8_fp8_bf16"), ("sage warp", "i4_fp8_bf16"), ("sage mfma", "fp8_bf16"),
            ("sage warp", "fp8_bf16"),
        )  # fmt: skip


def _small(rng: random.Random, kind: str, quant_mode: Any) -> Spec:
    head_size = 128 if quant_mode == "i4_fp8_bf16" else rng.choice([64, 128])
    group, kv_heads = rng.choice([1, 2]), rng.choice([1, 2])
    mask: Any = rng.choice(["none", "causal", "sliding_window"])
    common = FmhaCommonSpec(
        FmhaShape(head_size, group * kv_heads, kv_heads), rng.choice(["f16", "bf16"]), mask_mode=mask,
        sliding_window=13 if mask == "sliding_window" else 0,
    )  # fmt: skip
    if kind == "jenga":
        return JengaSparseSpec(common, 48, rng.choice([96, 128]), block_q=rng.choice([1, 16, 24]), block_k=32)
    if kind == "vsa":
        return VsaSparseSpec(
            common, 48, 128, block_q=rng.choice([1, 16, 24]), block_k=rng.choice([16, 32]), max_blocks_per_q=3
        )
    tiled = kind == "sage mfma"
    rows, keys = (rng.choice([16, 48]), rng.choice([32, 80])) if tiled else (rng.choice([5, 8]), rng.choice([33, 40]))
    blocks = [16, 32] if tiled else [8, 16]
    q_scale, k_scale = (_small_scale(rng, blocks, heads) for heads in (group * kv_heads, kv_heads))
    return SageAttentionSpec(common, quant_mode, q_scale, k_scale, rows, keys)


def _small_scale(rng: random.Random, blocks: Sequence[int], heads: int) -> QkScaleSpec:
    if rng.random() < 0.5:
        return QkScaleSpec("per_head", stride_head=rng.choice([0, 1]))
    return QkScaleSpec("per_block", scale_block=rng.choice(blocks), stride_head=1, stride_block=heads)
