"""A clock on the host: how long each stage of a run took, and who is told when one begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""


class Clock:
    """Seconds by stage."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.start = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        if self.progress:
            self.progress(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def tick(self, name: str) -> Callable[[int, int], None] | None:
        """Return what tells how far a stage is, or None if nobody wants to know."""
        tell = self.progress
        return (lambda done, total: tell(f"{name} {done / max(total, 1):.0%}")) if tell else None

    @property
    def total_s(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.start
