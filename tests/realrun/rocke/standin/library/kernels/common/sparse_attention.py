from dataclasses import dataclass

from ._fmha_common import FmhaCommonSpec, Kernel, arguments, check, common_rules, name_of, pointer, shape_names
from .emit_mfma import emit_tiled


@dataclass(frozen=True)
class JengaSparseSpec:
    common: FmhaCommonSpec
    seqlen_q: int
    seqlen_k: int
    block_q: int = 1
    block_k: int = 64
    name: str = "rocke_jenga_sparse_attn"

    def kernel_name(self):
        return name_of(self.name, *shape_names(self), f"BQ{self.block_q}", f"BK{self.block_k}")


@dataclass(frozen=True)
class VsaSparseSpec:
    common: FmhaCommonSpec
    seqlen_q: int
    seqlen_k: int
    block_q: int = 1
    block_k: int = 64
    max_blocks_per_q: int = 32
    name: str = "rocke_vsa_sparse_attn"
    use_wave_ballot_scatter: bool = True

    def kernel_name(self):
        blocks = f"BQ{self.block_q}", f"BK{self.block_k}", f"MB{self.max_blocks_per_q}"
        return name_of(self.name, *shape_names(self), *blocks)


def tiles(spec):
    sizes = spec.seqlen_q, spec.seqlen_k, spec.block_k
    return [
        (lambda: spec.seqlen_k % spec.block_k == 0, "keys are no whole blocks"),
        (lambda: all(size % 16 == 0 for size in sizes), "not whole tiles"),
    ]


def lengths(spec):
    return lambda: spec.seqlen_q > 0 and spec.seqlen_k > 0, "lengths"


def is_valid_jenga_spec(spec, arch="gfx950"):
    blocks = lambda: spec.block_q > 0 and spec.block_k > 0, "blocks"
    return check([*common_rules(spec.common, arch), lengths(spec), blocks, *tiles(spec)])


def is_valid_vsa_spec(spec, arch="gfx950"):
    listed = lambda: spec.max_blocks_per_q > 0, "max_blocks_per_q"
    return check([*common_rules(spec.common, arch), lengths(spec), listed, *tiles(spec)])


def _grid(spec):
    return spec.seqlen_q // 16, spec.common.shape.num_query_heads, 1


jenga_sparse_attention_grid = vsa_sparse_attention_grid = _grid


def _signature(spec, others):
    return arguments([pointer(name, spec.common.dtype) for name in "QKVO"], others)


def jenga_sparse_attention_signature(spec):
    return _signature(spec, [pointer("mask", "i8")])


def vsa_sparse_attention_signature(spec):
    return _signature(spec, [pointer("block_lut", "i32"), pointer("block_count", "i32")])


def build_jenga_sparse_attention(spec, arch="gfx950"):
    return _build(spec, is_valid_jenga_spec(spec, arch), jenga_sparse_attention_signature(spec))


def build_vsa_sparse_attention(spec, arch="gfx950"):
    return _build(spec, is_valid_vsa_spec(spec, arch), vsa_sparse_attention_signature(spec))


def _build(spec, verdict, signature):
    if not verdict[0]:
        raise ValueError(verdict[1])
    if spec.block_q < 1 or spec.block_k < 1:
        raise ValueError("blocks")
    return Kernel(spec.kernel_name(), lambda arch: emit_tiled(spec, signature))
