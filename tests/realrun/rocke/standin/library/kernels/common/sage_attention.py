from dataclasses import dataclass

from rocke.helpers.qk_scale import QkScaleSpec

from ._fmha_common import FmhaCommonSpec, Kernel, arguments, check, common_rules, name_of, pointer, shape_names
from .emit_mfma import emit_tiled
from .emit_warp import emit_rows

MODES = {"fp16_bf16": None, "fp8_bf16": "fp8e4m3", "i8_fp8_bf16": "i8", "i4_fp8_bf16": "i8"}
WITH_CODEBOOKS = ("i8_fp8_bf16", "i4_fp8_bf16")


@dataclass(frozen=True)
class SageAttentionSpec:
    common: FmhaCommonSpec
    quant_mode: str
    q_scale: QkScaleSpec
    k_scale: QkScaleSpec
    seqlen_q: int
    seqlen_k: int
    name: str = "rocke_sage_attention"
    use_outer_scale_loop: bool = False

    def kernel_name(self):
        return name_of(self.name, self.quant_mode, *shape_names(self))


def is_valid_spec(spec, arch="gfx950"):
    return check([
        *common_rules(spec.common, arch),
        (lambda: spec.quant_mode in MODES, "quant mode"),
        (lambda: spec.seqlen_q > 0 and spec.seqlen_k > 0, "lengths"),
        (lambda: spec.common.shape.head_size % 64 == 0, "head size for a wave"),
    ])  # fmt: skip


def tiled(spec):
    scales = [s.scale_block for s in (spec.q_scale, spec.k_scale) if s.layout == "per_block"]
    sizes = [spec.seqlen_q, spec.seqlen_k, *scales]
    return spec.quant_mode not in WITH_CODEBOOKS and all(size % 16 == 0 for size in sizes)


def sage_attention_grid(spec):
    return spec.seqlen_q // 16 if tiled(spec) else spec.seqlen_q, spec.common.shape.num_query_heads, 1


def sage_attention_signature(spec):
    dtype = spec.common.dtype
    kv = MODES[spec.quant_mode] or dtype
    names = ["q_scale", "k_scale"] + ["codebook_k", "codebook_v"] * (spec.quant_mode in WITH_CODEBOOKS)
    tensors = [pointer("Q", dtype), pointer("K", kv), pointer("V", kv), pointer("O", dtype)]
    return arguments(tensors, [pointer(name, "f32") for name in names])


def build_sage_attention(spec, arch="gfx950"):
    ok, why = is_valid_spec(spec, arch)
    if not ok:
        raise ValueError(why)
    if spec.quant_mode == "i4_fp8_bf16" and spec.common.shape.head_size != 128:
        raise ValueError("i4 is for heads of 128")
    if tiled(spec) and spec.common.mask_mode in ("alibi", "custom"):
        raise ValueError("mask mode")
    signature = sage_attention_signature(spec)
    emit = emit_tiled if tiled(spec) else emit_rows
    return Kernel(spec.kernel_name(), lambda arch: emit(spec, signature))
