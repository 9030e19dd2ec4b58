"""Launches of the decode families: split-KV over a contiguous, paged, 4-bit or latent cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernbench.errors import InputError
from kernbench.realrun.kernels.mla import mla_partial
from kernbench.realrun.kernels.paged import paged_partial
from kernbench.realrun.kernels.splitkv import decode_partial, reduce_splits
from kernbench.realrun.kernels.ultraquant import ultraquant_partial
from kernbench.realrun.recorder.work import DTYPES, LOG2E, Difference, Launch, Maker, Work, attend, some

REDUCE_CHUNK = 16
"""Partial results that the reducer reads at a time."""


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _split_len(f: dict[str, Any]) -> int:
    """Tokens of a split: a multiple of the tile; the last splits may be short, or empty."""
    tokens = -(-f["s_kv"] // f["splits"])
    return int(-(-tokens // f["block_n"]) * f["block_n"])


class _Partials:
    """Partial results of ``lead`` workgroups x splits x rows, and the launch that merges them."""

    def __init__(self, make: Maker, lead: int, rows: int, splits: int, width: int, dtype: Any) -> None:
        self.o = make.empty(lead, splits, rows, width)
        self.m = make.empty(lead, splits, rows)
        self.l = make.empty(lead, splits, rows)
        self.out = make.empty(lead, rows, width, dtype=dtype)
        args = (self.o, self.m, self.l, self.out, rows, splits)
        sizes = {"D": width, "SP": _power(splits), "CHUNK": min(REDUCE_CHUNK, _power(splits))}
        self.reduce = Launch(reduce_splits, (lead, rows), args, sizes, 4, 1)

    def work(self, partial: Launch, check: Any, notes: dict[str, Any]) -> Work:
        launches: dict[str, Callable[[], Any]] = {"partial": partial, "reduce": self.reduce}
        notes = {**notes, "reduce_grid": list(self.reduce.grid)}
        return Work(launches, check, [self.o, self.m, self.l, self.out], partial.grid, notes=notes)


def decode_splitkv(f: dict[str, Any], make: Maker) -> Work:
    """Decode over a contiguous cache (batch, token, kv head, d)."""
    b, hq, hk, d, s = (int(f[key]) for key in ("batch", "h_q", "h_kv", "d", "s_kv"))
    dtype, stored = DTYPES[f["dtype"]], DTYPES[f["kv_dtype"] or f["dtype"]]
    group = hq // hk
    q = make.normal(b, hq, d, dtype=dtype)
    k = make.normal(b, s, hk, d, dtype=stored)
    v = make.normal(b, s, hk, d, dtype=stored)
    mode = {None: 0, "tensor": 1, "token": 2}[f["scale"]]
    shape = (b, s, hk) if mode == 2 else (1,)
    ks = make.empty(*shape)
    vs = make.empty(*shape)
    if make.real:
        for scale in (ks, vs):  # near 1/64, so that int8 values have a spread near 1
            scale.copy_(make.integers(8, 24, *shape, dtype=torch.int32).float() / 1024)
    parts = _Partials(make, b * hk, group, f["splits"], d, dtype)
    args = (q, k, v, ks, vs, parts.o, parts.m, parts.l, s, hk, group, _split_len(f), f["splits"], hk * d)
    sizes = {"GP": max(16, _power(group)), "D": d, "BN": f["block_n"], "SCALE": mode}
    grid = (b * hk, f["splits"])
    partial = Launch(decode_partial, grid, (*args, d**-0.5 * LOG2E), sizes, f["waves"], f["stages"])

    def check() -> tuple[float, Any]:
        diff = Difference()
        for i in some(b * hk, 4):
            bi, h = divmod(i, hk)
            ki, vi = k[bi, :, h].float(), v[bi, :, h].float()
            if mode:
                ki = ki * (ks[bi, :, h, None] if mode == 2 else ks)
                vi = vi * (vs[bi, :, h, None] if mode == 2 else vs)
            diff.add(parts.out[i], attend(q[bi, h * group : (h + 1) * group], ki, vi))
        return diff.value(parts.out), parts.out

    return parts.work(partial, check, {"scale": f["scale"]} if mode else {})


def paged_decode(f: dict[str, Any], make: Maker) -> Work:
    """Decode over pages in random order, (page, token in page, kv head, d)."""
    b, hq, hk, d, s, page = (int(f[key]) for key in ("batch", "h_q", "h_kv", "d", "s_kv", "page_size"))
    group = hq // hk
    pages = -(-s // page)
    q = make.normal(b, hq, d)
    k = make.normal(b * pages, page, hk, d)
    v = make.normal(b * pages, page, hk, d)
    table = make.permutation(b * pages).to(torch.int32).view(b, pages)
    parts = _Partials(make, b * hk, group, f["splits"], d, torch.bfloat16)
    args = (q, k, v, table, parts.o, parts.m, parts.l, s, hk, group, _split_len(f), f["splits"], pages, hk * d)
    sizes = {"GP": max(16, _power(group)), "D": d, "BN": f["block_n"], "PAGE": page}
    grid = (b * hk, f["splits"])
    partial = Launch(paged_partial, grid, (*args, d**-0.5 * LOG2E), sizes, f["waves"], f["stages"])

    def check() -> tuple[float, Any]:
        diff = Difference()
        for i in some(b * hk, 4):
            bi, h = divmod(i, hk)
            ki = k[table[bi].long(), :, h].reshape(-1, d)[:s]
            vi = v[table[bi].long(), :, h].reshape(-1, d)[:s]
            diff.add(parts.out[i], attend(q[bi, h * group : (h + 1) * group], ki, vi))
        return diff.value(parts.out), parts.out

    return parts.work(partial, check, {"table": "random order"})


def unpack_slots(slots: Any, d: int) -> tuple[Any, Any]:
    """Dequantise slots (..., 2 x (d / 2 + d / 32)) uint8 to keys and values (..., d) in float32."""
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=slots.device)
    levels = torch.cat([levels, -levels])
    half, size = d // 2, d // 2 + d // 32

    def values(part: Any) -> Any:
        codes, scales = part[..., :half].long(), part[..., half:]
        both = torch.stack([levels[codes & 15], levels[codes >> 4]], -1).flatten(-2)
        return both * torch.exp2(scales.float() - 127).repeat_interleave(32, -1)

    return values(slots[..., :size]), values(slots[..., size:])


def ultraquant_decode(f: dict[str, Any], make: Maker) -> Work:
    """Decode over 4-bit slots (batch, token, kv head, slot)."""
    b, hq, hk, d, s = (int(f[key]) for key in ("batch", "h_q", "h_kv", "d", "s_kv"))
    group, half, size = hq // hk, d // 2, d // 2 + d // 32
    q = make.normal(b, hq, d)
    cache = make.integers(0, 256, b, s, hk, 2 * size)
    if make.real:
        for first in (half, size + half):
            cache[..., first : first + d // 32] = make.integers(124, 127, b, s, hk, d // 32)
    parts = _Partials(make, b * hk, group, f["splits"], d, torch.bfloat16)
    args = (q, cache, parts.o, parts.m, parts.l, s, hk, group, _split_len(f), f["splits"], hk * 2 * size)
    sizes = {"GP": max(16, _power(group)), "D": d, "BN": f["block_n"]}
    grid = (b * hk, f["splits"])
    partial = Launch(ultraquant_partial, grid, (*args, d**-0.5 * LOG2E), sizes, f["waves"], f["stages"])

    def check() -> tuple[float, Any]:
        diff = Difference()
        for i in some(b * hk, 4):
            bi, h = divmod(i, hk)
            ki, vi = unpack_slots(cache[bi, :, h], d)
            diff.add(parts.out[i], attend(q[bi, h * group : (h + 1) * group], ki, vi))
        return diff.value(parts.out), parts.out

    notes = {"slot_bytes": 2 * size, "layout": "contiguous slots", "not_included": "query rotation, query in E4M3"}
    return parts.work(partial, check, notes)


def mla_decode(f: dict[str, Any], make: Maker) -> Work:
    """Absorbed MLA decode over a latent cache (batch, token, 576)."""
    latent, rope = 512, 64
    b, h, s, rows = (int(f[key]) for key in ("batch", "h_q", "s_kv", "block_m"))
    if h % rows:
        raise InputError(f"{h} heads are no multiple of block_m {rows}")
    q = make.normal(b, h, latent + rope)
    cache = make.normal(b, s, latent + rope)
    lead = b * h // rows
    parts = _Partials(make, lead, rows, f["splits"], latent, torch.bfloat16)
    args = (q, cache, parts.o, parts.m, parts.l, s, h // rows, _split_len(f), f["splits"])
    sizes = {"BH": rows, "LATENT": latent, "ROPE": rope, "BN": f["block_n"]}
    scale = (latent + rope) ** -0.5 * LOG2E
    partial = Launch(mla_partial, (lead, f["splits"]), (*args, scale), sizes, f["waves"], f["stages"])

    def check() -> tuple[float, Any]:
        diff = Difference()
        for bi in some(b, 2):
            want = attend(q[bi], cache[bi], cache[bi, :, :latent])
            diff.add(parts.out.view(b, h, latent)[bi], want)
        return diff.value(parts.out), parts.out

    return parts.work(partial, check, {"d_latent": latent, "d_rope": rope, "scale": "576 ** -0.5"})
