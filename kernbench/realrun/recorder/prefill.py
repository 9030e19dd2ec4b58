"""Launches of the prefill families: Triton's prefill and block-sparse kernels, and PyTorch's attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernbench.realrun.kernels.prefill import prefill as prefill_kernel
from kernbench.realrun.kernels.sparse import block_sparse as sparse_kernel
from kernbench.realrun.recorder.work import DTYPES, LOG2E, Difference, Launch, Maker, Work, attend, some


def _tensors(f: dict[str, Any], make: Maker, s_q: int) -> tuple[Any, Any, Any]:
    dtype = DTYPES[f.get("dtype") or "bf16"]
    q = make.normal(f["batch"], f["h_q"], s_q, f["d"], dtype=dtype)
    k = make.normal(f["batch"], f["h_kv"], f["s_kv"], f["d"], dtype=dtype)
    v = make.normal(f["batch"], f["h_kv"], f["s_kv"], f["d"], dtype=dtype)
    return q, k, v


def _checker(q: Any, k: Any, v: Any, out: Callable[[], Any], keep: Any) -> Callable[[], tuple[float, Any]]:
    """Compare two heads (first and last) with full precision."""
    group = q.shape[1] // k.shape[1]

    def check() -> tuple[float, Any]:
        diff = Difference()
        for i in some(q.shape[0] * q.shape[1], 2):
            b, h = divmod(i, q.shape[1])
            diff.add(out()[b, h], attend(q[b, h], k[b, h // group], v[b, h // group], keep))
        return diff.value(out()), out()

    return check


def _causal(s_q: int, s_kv: int, device: Any) -> Callable[[int, int], Any]:
    """Mask of queries first ... last - 1; the first query sees the first key only."""
    keys = torch.arange(s_kv, device=device)
    return lambda first, last: torch.arange(first, last, device=device)[:, None] >= keys[None, :]


def prefill(f: dict[str, Any], make: Maker) -> Work:
    """Prefill over (batch, head, token, d), causal or full."""
    s, bm, bn = f["s_kv"], f["block_m"], f["block_n"]
    q, k, v = _tensors(f, make, s)
    out = torch.empty_like(q)
    sizes = {
        "D": f["d"], "BM": bm, "BN": bn, "CAUSAL": bool(f["causal"]), "BOUND": bool(s % bm or s % bn),
        "DIAGONAL_ONLY": bool(f["causal"] and f["diagonal_only"]),
    }  # fmt: skip
    grid = (-(-s // bm), f["batch"] * f["h_q"])
    args = (q, k, v, out, s, f["h_q"], f["h_q"] // f["h_kv"], f["d"] ** -0.5 * LOG2E)
    launch = Launch(prefill_kernel, grid, args, sizes, f["waves"], f["stages"])
    keep = _causal(s, s, q.device) if f["causal"] else None
    masked = "diagonal tiles" if sizes["DIAGONAL_ONLY"] else "every tile" if f["causal"] else "none"
    notes = {"masked": masked, "bound_checks": sizes["BOUND"]}
    return Work({"main": launch}, _checker(q, k, v, lambda: out, keep), [out], grid, notes=notes)


def block_mask(rows: int, cols: int, seed: int, density: float) -> Any:
    """Return a mask of blocks, int8 (rows, cols) on the CPU: uniform numbers under ``density``, first column kept."""
    kept = torch.rand(rows, cols, generator=torch.Generator().manual_seed(seed)) < density
    kept[:, 0] = True
    return kept.to(torch.int8)


def block_sparse(f: dict[str, Any], make: Maker) -> Work:
    """Block-sparse prefill, not causal, one mask for all heads."""
    s, bm, bn = f["s_kv"], f["block_m"], f["block_n"]
    bq, bk = f["block_q"] or bm, f["block_k"] or bn
    q, k, v = _tensors(f, make, s)
    out = torch.empty_like(q)
    cpu_mask = block_mask(-(-s // bq), -(-s // bk), f["mask_seed"], f["density"])
    mask = cpu_mask.to(make.where)
    sizes = {"D": f["d"], "BM": bm, "BN": bn, "BQ": bq, "BK": bk, "SKIP": f["mode"] == "skip"}
    grid = (-(-s // bm), f["batch"] * f["h_q"])
    scale = f["d"] ** -0.5 * LOG2E
    args = (q, k, v, mask, out, s, f["h_q"], f["h_q"] // f["h_kv"], mask.shape[1], scale)
    launch = Launch(sparse_kernel, grid, args, sizes, f["waves"], f["stages"])

    def keep(first: int, last: int) -> Any:
        rows = torch.arange(first, last, device=q.device) // bq
        return mask[rows].bool().repeat_interleave(bk, 1)[:, :s]

    spec = {"block_q": bq, "block_k": bk, "kept_blocks": int(cpu_mask.sum())}
    notes = {"blocks": cpu_mask.numel(), "mask": "torch.rand on CPU from mask_seed < density, first column kept"}
    return Work({"main": launch}, _checker(q, k, v, lambda: out, keep), [out], grid, spec, notes)


def _sdpa(f: dict[str, Any], make: Maker, backend: str) -> Work:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = _tensors(f, make, f["s_q"])
    last: list[Any] = [None]
    shared = f["h_q"] != f["h_kv"]

    def call() -> None:
        last[0] = scaled_dot_product_attention(q, k, v, is_causal=bool(f["causal"]), enable_gqa=shared)

    keep = _causal(f["s_q"], f["s_kv"], q.device) if f["causal"] else None
    notes = {"masked": "unknown" if f["causal"] else "none", "enable_gqa": shared}
    around = lambda: sdpa_kernel(getattr(SDPBackend, backend))  # noqa: E731
    return Work({"main": call}, _checker(q, k, v, lambda: last[0], keep), notes=notes, around=around)


def sdpa_flash(f: dict[str, Any], make: Maker) -> Work:
    """PyTorch's attention with its FlashAttention kernels."""
    return _sdpa(f, make, "FLASH_ATTENTION")


def sdpa_cudnn(f: dict[str, Any], make: Maker) -> Work:
    """PyTorch's attention with cuDNN's kernels; there are none under ROCm."""
    return _sdpa(f, make, "CUDNN_ATTENTION")
