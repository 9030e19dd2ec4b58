"""What a spec becomes on a GPU: inputs, launches, and a check of the result.

Everything here works on the ``meta`` device as well, where tensors have no memory: so the launches of a plan are
listed, and compiled, before any input is made. PyTorch is imported by this module; only the recorder's GPU side loads
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

DTYPES: dict[str, Any] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "fp8e4m3": torch.float8_e4m3fn,
    "i8": torch.int8,
}
"""PyTorch's name for each of kernbench's that the recorder knows."""

LOG2E = 1.4426950408889634


@dataclass
class Launch:
    """One launch of a Triton kernel, or a call into PyTorch."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    constexprs: dict[str, Any] = field(default_factory=dict)
    waves: int = 4
    stages: int = 2

    def __call__(self) -> Any:
        """Launch; return the compiled kernel."""
        return self.kernel[self.grid](*self.args, **self.constexprs, num_warps=self.waves, num_stages=self.stages)


@dataclass
class Work:
    """The launches of one spec, in order, and what is to be known of them."""

    launches: dict[str, Callable[[], Any]]
    check: Callable[[], tuple[float, Any]]
    """Compare the outputs of the last run; return the relative L2 error and the output."""
    poison: list[Any] = field(default_factory=list)
    grid: tuple[int, ...] | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-2
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """Entered once around all launches: chooses a backend, say."""

    def run(self) -> None:
        """Launch everything once."""
        for launch in self.launches.values():
            launch()


@dataclass
class Maker:
    """Makes tensors on one device from one seed; on ``meta`` they have a shape and a type only."""

    where: str
    seed: int = 0

    def __post_init__(self) -> None:
        self._generator = None if self.where == "meta" else torch.Generator(self.where).manual_seed(self.seed)

    @property
    def real(self) -> bool:
        """Whether tensors have memory."""
        return self._generator is not None

    def empty(self, *shape: int, dtype: Any = torch.float32) -> Any:
        """Return memory with anything in it."""
        return torch.empty(shape, dtype=dtype, device=self.where)

    def normal(self, *shape: int, dtype: Any = torch.bfloat16) -> Any:
        """Return standard normal values; int8 is uniform over all its values instead."""
        out = self.empty(*shape, dtype=dtype)
        if not self.real:
            return out
        if dtype == torch.int8:
            return out.random_(-128, 128, generator=self._generator)
        if dtype.itemsize == 1:  # no generator for fp8: convert, a slice at a time to bound memory
            for part in out.view(out.shape[0], -1) if out.dim() > 1 else [out]:
                part.copy_(torch.randn(part.shape, generator=self._generator, device=self.where))
            return out
        return out.normal_(generator=self._generator)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = torch.uint8) -> Any:
        """Return uniform integers, low <= value < high."""
        out = self.empty(*shape, dtype=dtype)
        return out.random_(low, high, generator=self._generator) if self.real else out

    def permutation(self, n: int) -> Any:
        """Return 0 ... n - 1 in random order, int64."""
        if not self.real:
            return self.empty(n, dtype=torch.int64)
        return torch.randperm(n, generator=self._generator, device=self.where)


def exact(x: Any) -> Any:
    """Convert to the type that references are computed in: float32 on a GPU, float64 on a CPU."""
    return x.to(torch.float64 if x.device.type == "cpu" else torch.float32)


def attend(q: Any, k: Any, v: Any, keep: Callable[[int, int], Any] | None = None, rows: int = 1024) -> Any:
    """Attention of one head in full precision, ``rows`` queries at a time.

    Shapes: q (s_q, d_qk), k (s_kv, d_qk), v (s_kv, d_v). ``keep(first, last)`` gives the boolean mask of a range of
    queries. The scores are scaled by 1 / sqrt(d_qk).
    """
    q, k, v = exact(q), exact(k), exact(v)
    parts = []
    for first in range(0, q.shape[0], rows):
        s = q[first : first + rows] @ k.T * q.shape[1] ** -0.5
        if keep is not None:
            s = s.masked_fill(~keep(first, min(first + rows, q.shape[0])), float("-inf"))
        parts.append(torch.softmax(s, -1) @ v)
    return torch.cat(parts)


def some(n: int, count: int) -> Iterator[int]:
    """Give up to ``count`` of 0 ... n - 1, the first and the last among them."""
    yield from sorted({round(i * (n - 1) / max(1, count - 1)) for i in range(count)})


class Difference:
    """Sums up a relative L2 error over pieces of an output."""

    def __init__(self) -> None:
        self._error = 0.0
        self._norm = 0.0

    def add(self, got: Any, want: Any) -> None:
        """Take one piece in; a value that is no number makes the error NaN."""
        want = exact(want)
        self._error += float(((exact(got) - want) ** 2).sum())
        self._norm += float((want**2).sum())

    def value(self, output: Any) -> float:
        """Return the error, or NaN if any element of the whole output was not written or is no number."""
        if not bool(torch.isfinite(output).all()):
            return float("nan")
        return float((self._error / self._norm) ** 0.5)
