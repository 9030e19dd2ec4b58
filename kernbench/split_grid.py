"""Merging the splits of a sequence on a grid of workgroups: what split-KV decode kernels have in common.

The partial results of a split are O (not divided), m (running maximum, in base 2) and l (running sum), in float32. A
split without keys has m = -inf and counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kernbench as kb
from kernbench.bench import GridLaunch
from kernbench.specs.implementation import DecodeImplementation

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 16
"""Splits that the merging kernel reads at a time."""


def partials(
    heads: int, rows: int, width: int, splits: int, machine: kb.Machine, held: bool
) -> tuple[kb.Tensor, kb.Tensor, kb.Tensor]:
    """Return tensors for O (heads, splits, rows, width), m and l (heads, splits, rows) of each split, float32."""
    make = kb.empty if held else kb.shape_only
    o, m, l = ((heads, splits, rows, width), (heads, splits, rows), (heads, splits, rows))
    return make(o, "f32", machine), make(m, "f32", machine), make(l, "f32", machine)


def merge_splits(o_part: Any, m_part: Any, l_part: Any, o: Any, buffers: int, *, tl: Any) -> None:
    """Merge the splits of one row and store it, divided. Grid: (heads, rows); ``o`` is (heads, rows, width)."""
    head, row = tl.program_id(0), tl.program_id(1)
    splits, rows, width = m_part.shape[1], m_part.shape[2], o.shape[2]
    padded = 1 << (splits - 1).bit_length()
    every = {"shape": (padded, 1), "strides": (rows, 1), "valid": (splits,)}
    m_all = tl.load(m_part.at(head, 0, row), other=float("-inf"), **every)
    l_all = tl.load(l_part.at(head, 0, row), other=0.0, **every)
    top = tl.max(m_all, axis=0)
    total = tl.sum(tl.exp2(m_all - top) * l_all, axis=0)
    acc = tl.zeros((1, width), "f32")
    chunk = min(CHUNK, padded)
    for first in range(0, splits, chunk):
        n = min(chunk, splits - first)
        with tl.scratch_scope(buffers=buffers):
            m = tl.load(
                m_part.at(head, first, row), shape=(chunk, 1), strides=(rows, 1), valid=(n,), other=float("-inf")
            )
            weight = tl.exp2(m - top)
            part = tl.load(
                o_part.at(head, first, row), shape=(chunk, width), strides=(rows * width, 1), valid=(n,), other=0.0
            )
            tl.copy_to(acc, acc + tl.sum(part * weight, axis=0))
    tl.store(o.at(head, row), acc / total)


def merging(
    kernel: Callable[..., None],
    parts: tuple[kb.Tensor, kb.Tensor, kb.Tensor],
    o: kb.Tensor,
    implementation: DecodeImplementation,
) -> GridLaunch:
    """Return the launch that merges ``parts`` into ``o`` (heads, rows, width): a workgroup for each row."""
    reduction = implementation.reduction()
    args = (*parts, o, reduction.stages)
    return GridLaunch(kernel=kernel, grid=o.shape[:2], args=args, implementation=reduction, reads_results=True)
