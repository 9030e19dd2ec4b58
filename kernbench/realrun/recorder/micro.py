"""Launches of the microbenchmarks. A spec's ``mode`` says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernbench.errors import InputError, nearest
from kernbench.realrun.kernels import micro as kernels
from kernbench.realrun.recorder.work import Difference, Launch, Maker, Work, exact

LINE_BYTES = 128
"""Distance of two elements of the pointer chase: a cache line of every GPU of interest."""


def _equal(got: Any, want: Callable[[], Any]) -> Callable[[], tuple[float, Any]]:
    def check() -> tuple[float, Any]:
        right = want()
        same = bool((got == right).all())
        return (0.0 if same else 1.0), got

    return check


def _empty(f: dict[str, Any], make: Maker) -> Work:
    """Launch ``workgroups`` that do nothing."""
    out = make.empty(1)
    if make.real:
        out.fill_(1.0)
    launch = Launch(kernels.empty, (f["workgroups"],), (out, 0), {}, f["waves"] or 4, 1)
    return Work({"main": launch}, lambda: (0.0, out), grid=launch.grid)


def _read(f: dict[str, Any], make: Maker) -> Work:
    """Read ``nbytes`` with ``workgroups`` that have ``block`` x ``unroll`` int32 in flight each.

    Without ``workgroups``, one for each block. ``steps`` in place of ``nbytes`` gives bytes that each workgroup reads:
    that many times block x unroll.
    """
    block, unroll = f["block"] or 1024, f["unroll"] or 4
    piece = block * unroll
    count = f["workgroups"] * f["steps"] * piece if f["steps"] else f["nbytes"] // 4 // piece * piece
    groups = f["workgroups"] or count // piece
    x = make.integers(-1000, 1000, count, dtype=torch.int32)
    out = make.empty(groups, dtype=torch.int32)
    args = (x, out, count, groups * piece)
    launch = Launch(kernels.read, (groups,), args, {"BLOCK": block, "UNROLL": unroll}, f["waves"] or 4, 1)

    def check() -> tuple[float, Any]:
        wrong = int(out.sum(dtype=torch.int64)) != int(x.sum(dtype=torch.int64))
        return float(wrong), out

    notes = {"bytes_in_flight": piece * 4, "workgroups": groups}
    return Work({"main": launch}, check, [out], launch.grid, {"nbytes": count * 4}, notes)


def _copy(f: dict[str, Any], make: Maker) -> Work:
    """Copy ``nbytes`` of int32; nbytes of the record counts what is read and what is written."""
    block = f["block"] or 4096
    count = f["nbytes"] // 4 // block * block
    x = make.integers(-1000, 1000, count, dtype=torch.int32)
    y = torch.empty_like(x)
    launch = Launch(kernels.copy, (count // block,), (x, y), {"BLOCK": block}, f["waves"] or 4, 1)
    notes = {"counts": "read + written"}
    return Work({"main": launch}, _equal(y, lambda: x), [y], launch.grid, {"nbytes": 2 * count * 4}, notes)


def _chase(f: dict[str, Any], make: Maker) -> Work:
    """Follow ``steps`` links through ``nbytes``, in one workgroup of one wave."""
    lines = f["nbytes"] // LINE_BYTES
    each = LINE_BYTES // 4
    links = make.empty(lines * each, dtype=torch.int32)
    out = make.empty(1, dtype=torch.int32)
    steps = f["steps"]
    end = [0]
    if make.real:
        order = make.permutation(lines)
        start = int((order == 0).nonzero()[0, 0])
        links.zero_()
        links[order * each] = (order.roll(-1) * each).to(torch.int32)
        end[0] = int(order[(start + steps) % lines]) * each
    launch = Launch(kernels.chase, (1,), (links, out, steps), {}, 1, 1)
    notes = {"steps": steps, "line_bytes": LINE_BYTES, "lines_touched": min(lines, steps)}
    return Work({"main": launch}, _equal(out, lambda: end[0]), [out], (1,), {"nbytes": f["nbytes"]}, notes)


def _vector(f: dict[str, Any], make: Maker) -> Work:
    """Chained exponentials or multiply-adds in registers."""
    block, groups, steps = f["block"] or 1024, f["workgroups"], f["steps"]
    out = make.empty(groups * block)
    kernel = kernels.exp2_rate if f["mode"] == "exp2" else kernels.fma_rate
    launch = Launch(kernel, (groups,), (out, steps), {"BLOCK": block}, f["waves"] or 4, 1)

    def check() -> tuple[float, Any]:
        x = (torch.arange(groups * block, device=out.device) % 64).to(torch.float32) * 0.015625
        x = exact(x)
        for _ in range(min(steps, 400)):  # both converge to a fixed point long before
            if f["mode"] == "exp2":
                x = torch.exp2(-x)
            else:
                for _ in range(8):
                    x = x * 0.75 + 0.25
        diff = Difference()
        diff.add(out, x)
        return diff.value(out), out

    operations = groups * block * steps * (1 if f["mode"] == "exp2" else 8)
    notes = {"operations": operations, "operation": "exp2" if f["mode"] == "exp2" else "multiply-add of float32"}
    return Work({"main": launch}, check, [out], launch.grid, notes=notes)


def _dot(f: dict[str, Any], make: Maker) -> Work:
    """Multiply resident tiles ``steps`` times in each workgroup."""
    m, n, k = f["tile"]
    groups, steps = f["workgroups"], f["steps"]
    a, b = make.normal(m, k), make.normal(k, n)
    out = make.empty(groups, m, n)
    sizes = {"M": m, "N": n, "K": k}
    launch = Launch(kernels.dot_rate, (groups,), (a, b, out, steps), sizes, f["waves"] or 4, 1)

    def check() -> tuple[float, Any]:
        diff = Difference()
        diff.add(out[-1], exact(a) @ exact(b) * steps)
        return diff.value(out), out

    notes = {"flops": 2 * m * n * k * steps * groups, "tile": [m, n, k], "steps": steps}
    return Work({"main": launch}, check, [out], launch.grid, {"dtype": "bf16"}, notes)


def _matmul(f: dict[str, Any], make: Maker) -> Work:
    """Multiply two square matrices with PyTorch, in bf16 or fp8e4m3 (one scale a tensor)."""
    m = f["m"]
    fp8 = f["dtype"] == "fp8e4m3"
    a = make.normal(m, m, dtype=torch.float8_e4m3fn if fp8 else torch.bfloat16)
    b = make.normal(m, m, dtype=torch.float8_e4m3fn if fp8 else torch.bfloat16)
    out = make.empty(m, m, dtype=torch.bfloat16)
    one = make.empty(1)
    if make.real:
        one.fill_(1.0)

    def call() -> None:
        if fp8:
            torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, out=out)
        else:
            torch.mm(a, b.t(), out=out)

    def check() -> tuple[float, Any]:
        diff = Difference()
        diff.add(out[:64], exact(a[:64]) @ exact(b).T)
        return diff.value(out), out

    notes = {"flops": 2 * m**3, "library": "torch._scaled_mm" if fp8 else "torch.mm", "b": "transposed"}
    return Work({"main": call}, check, [out], None, {"dtype": f["dtype"] or "bf16"}, notes)


_MODES: dict[str, Callable[[dict[str, Any], Maker], Work]] = {
    "empty": _empty, "read": _read, "copy": _copy, "chase": _chase, "exp2": _vector, "fma": _vector, "dot": _dot,
    "matmul": _matmul,
}  # fmt: skip


def micro(f: dict[str, Any], make: Maker) -> Work:
    """Make the microbenchmark that ``mode`` names."""
    if f["mode"] not in _MODES:
        raise InputError(f"micro has no mode {f['mode']!r}{nearest(str(f['mode']), _MODES)}")
    return _MODES[f["mode"]](f, make)
