from dataclasses import dataclass

NARROW_ATOM = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201", "gfx11-generic"}
WITHOUT_NARROW_ATOM = {"gfx1250"}


@dataclass(frozen=True)
class FmhaShape:
    head_size: int
    num_query_heads: int
    num_kv_heads: int
    block_size_q: int = 16
    block_size_k: int = 64

    @property
    def num_queries_per_kv(self):
        if self.num_query_heads % self.num_kv_heads:
            raise ValueError("query heads do not divide")
        return self.num_query_heads // self.num_kv_heads


@dataclass(frozen=True)
class FmhaCommonSpec:
    shape: FmhaShape
    dtype: str = "f16"
    scale_log2: float = 0.0
    mask_mode: str = "none"
    sliding_window: int = 0
    use_softcap: bool = False
    use_rotary: bool = False
    use_dropout: bool = False
    use_sinks: bool = False


@dataclass
class Kernel:
    name: str
    emit: object
    """Called with the architecture, returns LLVM IR."""


def check(rules):
    """The first broken rule of (holds, otherwise) pairs decides."""
    for holds, otherwise in rules:
        if not holds():
            return False, otherwise
    return True, "ok"


def common_rules(spec, arch):
    shape = spec.shape
    heads = shape.num_query_heads, shape.num_kv_heads
    return [
        (lambda: shape.head_size in (32, 64, 128, 192, 256), "head size"),
        (lambda: min(heads) > 0, "no heads"),
        (lambda: heads[0] % heads[1] == 0, "heads do not divide"),
        (lambda: shape.block_size_q in (16, 32, 64, 128), "block_size_q"),
        (lambda: shape.block_size_k in (16, 32, 64, 128, 256), "block_size_k"),
        (lambda: spec.dtype in ("f16", "fp16", "bf16"), "dtype"),
        (lambda: spec.mask_mode in ("none", "causal", "sliding_window", "alibi", "custom"), "mask mode"),
        (lambda: spec.mask_mode != "sliding_window" or spec.sliding_window > 0, "window"),
        (lambda: not spec.use_sinks or spec.dtype != "bf16", "sinks in bf16"),
        (lambda: arch in NARROW_ATOM, f"no matrix instruction on {arch}"),
    ]


def name_of(*parts):
    return "_".join(part for part in parts if part).replace("/", "_")


def shape_names(spec):
    s = spec.common.shape
    return [f"H{s.head_size}", f"HQ{s.num_query_heads}", f"HK{s.num_kv_heads}", spec.common.dtype,
            f"Q{spec.seqlen_q}", f"K{spec.seqlen_k}"]  # fmt: skip


def arguments(tensors, others):
    tail = [("scale_log2", "f32"), ("seqlen_q", "i32"), ("seqlen_k", "i32")]
    strides = [(f"stride_{t}_{axis}", "i32") for t in "qkvo" for axis in ("token", "head")]
    return [{"name": n, "type": t} for n, t in [*tensors, *others, *tail, *strides]]


def pointer(name, element):
    return name, f"ptr<{'f16' if element == 'fp16' else element}, global>"
