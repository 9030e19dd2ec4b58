"""Keep numba's cache honest where compiled functions call those of other files.

numba looks at the file of the function that it caches, and at no other: after a change to a file that the function
calls into, it would go on with what it compiled before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

Compiled = TypeVar("Compiled")


def compiled_with(*modules: ModuleType) -> Callable[[Compiled], Compiled]:
    """Let the cached code of a compiled function be stale as soon as the file of one of ``modules`` changes."""

    def watch(function: Compiled) -> Compiled:
        file: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
        if hasattr(file, "_source_stamp"):  # not if compilation is switched off
            file._source_stamp = (file._source_stamp, *(_stamp(module) for module in modules))
        return function

    return watch


def _stamp(module: ModuleType) -> tuple[int, int]:
    found = os.stat(str(module.__file__))
    return found.st_mtime_ns, found.st_size
