"""How far each published source is trusted, and how it counts flops and bytes.

Grades: **A** for validation as it stands; **B** with one field inferred; **C** only labelled, never for a fit or an
error statistic; None where nobody graded it (B at best).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeVar

_T = TypeVar("_T")

Grade = Literal["A", "B", "C"]


@dataclass(frozen=True, slots=True)
class Trust:
    """What is known of a source."""

    grade: Grade | None
    why: str
    most_batch: int | None = None
    """Rows with a larger batch, or with none stated, are of grade C."""


_KV_POOL = "the cache pool held four sequences of pages, shared by the batch"
_UNGRADED = Trust(None, "not graded: B at best")

_TRUST = {  # part of the source's name: what is known of it
    "HipKittens analysis/attn/fwd/benchmark/": Trust("A", "times and TFLOPS agree; launch inside the timed pair"),
    "HipKittens analysis/attn/bkwd/benchmark/": Trust("A", "times and TFLOPS agree; launch inside the timed pair"),
    "moonmath-ai/amd-kernels": Trust("A", "median of 5 x 30"),
    "MSLK PR #455": Trust("A", "device time"),
    "facebookexperimental/triton PR #2040": Trust("A", f"above batch 4 {_KV_POOL}", most_batch=4),
    "facebookexperimental/triton PR #2549": Trust("A", "bytes of real caches"),
    "aiter PR #3072": Trust("A", "device time"),
    "hk_mla_v40_gen1_spec": Trust("A", "device time; flops agree"),
    "gqa_head_fold_case_study": Trust("A", "exact specs and counters"),
    "sglang PR #39106": Trust("A", "captured in a graph"),
    "aiter op_tests/cpp/mha/README": Trust("B", "TFLOPS only, causal convention inferred"),
    "FlyDSL PR #1155": Trust("B", "draft; KV heads inferred"),
    "FlyDSL PR #629": Trust("B", "draft; rows partly seen"),
    "aiter PR #2039": Trust("B", "element types and dims from kernel names"),
    "aiter PR #3003": Trust("B", "element types not stated"),
    "facebookexperimental/triton PR #1874": Trust("B", "f16 inferred"),
    "facebookexperimental/triton PR #1589": Trust("B", "f16 inferred; GPU not named"),
    "FastVideo PR #1860": Trust("B", "batch inferred"),
    "tokenspeed-kernel-amd/assets/attention-performance.png": Trust("B", "read off bar labels"),
    "flashinfer PR #228": Trust("B", "element type and timing not stated"),
    "MSLK PR #377": Trust("B", "its GB/s use another byte count"),
    "facebookexperimental/triton PR #2281": Trust("C", _KV_POOL),
    "facebookexperimental/triton PR #2288": Trust("C", _KV_POOL),
    "facebookexperimental/triton PR #2306": Trust("C", _KV_POOL),
    "attention/decode/decode_shapes_perf.csv": Trust("C", "host time, launch bound"),
    "aiter PR #3222": Trust("C", "whether quantising is timed is not visible"),
    "InferenceX issue #863": Trust("C", "no context length"),
    "ROCm/triton issue #507": Trust("C", "unit and shape order inferred"),
    "fp8_mqa_logits_perf.csv": Trust("C", "heads and head dimension missing"),
    "aiter PR #4538": Trust("C", "head dimension missing"),
}


def trust_in(source: str, batch: int | None) -> Trust:
    """Return the trust in a row of a source.

    >>> trust_in("facebookexperimental/triton PR #2040 (commit 59283bfd7 message)", 4).grade
    'A'
    >>> trust_in("facebookexperimental/triton PR #2040 (commit 59283bfd7 message)", 8).grade
    'C'
    """
    found = _named(source, _TRUST) or _UNGRADED
    if found.most_batch is not None and (batch is None or batch > found.most_batch):
        return Trust("C", found.why)
    return found


_FLOPS = {  # part of the source's name: TFLOPS as published over those of the full square, not causal and causal
    "HipKittens analysis/attn/fwd/benchmark/": (1.0, 0.5),
    "HipKittens analysis/attn/bkwd/benchmark/": (2.5, 1.25),
    "MSLK PR #455": (None, 0.5),
    "FlyDSL PR #629": (None, 0.5),
    "MSLK PR #377": (None, 1.0),
    "hk_mla_v40_gen1_spec": (1.0, None),
    "aiter op_tests/cpp/mha/README": (1.0, 0.5),  # inferred: causal approaches not causal; no times to check it by
}


def flops_counted(source: str, causal: bool | None) -> float | None:
    """Return what a source's TFLOPS count, of the full square 2 B Hq Sq Sk (d_qk + d_v); None if that is not known.

    >>> flops_counted("HazyResearch/HipKittens analysis/attn/fwd/benchmark/x.json", True)
    0.5
    >>> flops_counted("facebookexperimental/triton PR #1874", True)
    """
    found = _named(source, _FLOPS)
    return None if found is None else found[bool(causal)]


_ELEMENT_TYPES = {"aiter PR #3003": "fp8e4m3", "flashinfer PR #228": "bf16"}
"""Where the source does not state it: the kernels of #3003 are fp8 by their names, #228 has fp16 or bf16."""


def inferred_dtype(source: str) -> str | None:
    """Return the element type that a source's kernels imply, for rows that do not state it."""
    return _named(source, _ELEMENT_TYPES)


def counts_real_bytes(source: str) -> bool:
    """Whether a source's GB/s are the bytes of its key and value tensors over the time."""
    return _named(source, {"facebookexperimental/triton PR #2549": True}) is not None


def _named(source: str, table: dict[str, _T]) -> _T | None:
    for name, value in table.items():
        if re.search(re.escape(name) + r"(?!\d)", source):  # PR #204 is not PR #2040
            return value
    return None
