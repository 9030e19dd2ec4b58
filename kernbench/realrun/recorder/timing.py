"""Ways of measuring a launch on a GPU: events around single launches, and replays of graphs. Microseconds throughout.

``cold``: a buffer of twice the last-level cache is written and another read before each launch, so inputs come from
memory and the cache holds no dirty lines. The flush also lasts longer than the host needs for a launch, so the host's
share stays hidden unless it is large. ``graph``: launches back to back in a graph; nothing is flushed. ``cold_graph``:
a graph of flushes and launches, less a graph of flushes alone: device time, without the events' and host's share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kernbench.realrun.records import Quantiles


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """Summarise repetitions; None if the median is not positive, as a difference of two times may be."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return round(ordered[low] + (ordered[high] - ordered[low]) * (place - low), 3)

    median = at(0.5)
    if median <= 0:
        return None
    p10, p90 = at(0.1), at(0.9)
    return Quantiles(median=median, p10=p10 if p10 > 0 else None, p90=p90, n=len(ordered))


class Timer(Protocol):
    """Measures callables that launch; every method returns microseconds, one number a repetition."""

    def cold(self, run: Callable[[], Any], n: int) -> list[float]:
        """Time single launches, caches flushed before each."""

    def graph(self, run: Callable[[], Any], launches: int, replays: int) -> list[float]:
        """Time back-to-back launches in a graph; the time of one."""

    def cold_graph(self, run: Callable[[], Any], replays: int) -> list[float]:
        """Time a launch after a flush, both in a graph, the flush subtracted."""


class GpuTimer:
    """Measures on the current GPU of PyTorch, CUDA or ROCm."""

    PAIRS = 5
    """Flushes and launches of one cold graph."""

    def __init__(self) -> None:
        import torch

        from kernbench.realrun.kernels.micro import read

        self._torch = torch
        cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 64 << 20
        # ROCm names the L2 and not the 256 MiB memory-side cache behind it.
        size = max(2 * cache, 512 << 20 if torch.version.hip else 64 << 20)
        piece = 4096
        groups = size // 4 // piece
        self.flush_bytes = groups * piece * 4
        self._written = torch.empty(groups * piece, dtype=torch.int32, device="cuda")
        self._read = torch.zeros(groups * piece, dtype=torch.int32, device="cuda")
        out = torch.empty(groups, dtype=torch.int32, device="cuda")
        args = (self._read, out, groups * piece, groups * piece)

        def flush() -> None:
            self._written.zero_()
            read[(groups,)](*args, BLOCK=1024, UNROLL=4, num_warps=4, num_stages=1)

        self.flush = flush
        flush()
        torch.cuda.synchronize()
        self._stream = torch.cuda.Stream()
        self._flushes = self._capture(flush, self.PAIRS)

    def _capture(self, body: Callable[[], Any], times: int) -> Any:
        torch = self._torch
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # torch.cuda.graph() would collect garbage and empty the allocator's cache each time: tens of milliseconds.
        with torch.cuda.stream(self._stream):
            graph.capture_begin()
            try:
                for _ in range(times):
                    body()
            finally:
                graph.capture_end()
        torch.cuda.synchronize()
        return graph

    def _events(self, n: int, before: Callable[[], Any] | None, run: Callable[[], Any]) -> list[float]:
        torch = self._torch
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
        for first, last in pairs:
            if before is not None:
                before()
            first.record()
            run()
            last.record()
        torch.cuda.synchronize()
        return [first.elapsed_time(last) * 1000 for first, last in pairs]

    def cold(self, run: Callable[[], Any], n: int) -> list[float]:
        """Time single launches, caches flushed before each."""
        return self._events(n, self.flush, run)

    def graph(self, run: Callable[[], Any], launches: int, replays: int) -> list[float]:
        """Time back-to-back launches in a graph; the time of one."""
        graph = self._capture(run, launches)
        self._events(1, None, graph.replay)
        return [t / launches for t in self._events(replays, None, graph.replay)]

    def cold_graph(self, run: Callable[[], Any], replays: int) -> list[float]:
        """Time a launch after a flush, both in a graph, the flush subtracted."""

        def body() -> None:
            self.flush()
            run()

        graph = self._capture(body, self.PAIRS)
        self._events(1, None, self._flushes.replay)
        self._events(1, None, graph.replay)
        alone = self._events(replays, None, self._flushes.replay)
        both = self._events(replays, None, graph.replay)
        middle = sorted(alone)[len(alone) // 2]
        return [(t - middle) / self.PAIRS for t in both]
