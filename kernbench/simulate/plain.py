"""Small work without compiling: the Python functions behind compiled ones.

Compiling the walk along the critical path takes seconds, and walking along that of a small run a fraction of one. So as
long as nothing is compiled yet, small runs are walked by the same source as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

SMALL = 20_000
"""Commands up to which plain Python is quicker than compiling."""


def runnable(function: Any, n_commands: int) -> Callable[..., Any]:
    """Return ``function`` compiled, or plain if the work is small and it would have to be compiled first."""
    return plain(function) if n_commands <= SMALL and not _is_compiled(function) else function


def _is_compiled(function: Any) -> bool:
    """Whether machine code for a numba function is in this process or in numba's cache on disk."""
    if not hasattr(function, "py_func") or function.signatures:
        return True
    cache = getattr(getattr(function, "_cache", None), "_cache_file", None)
    load_index = getattr(cache, "_load_index", None)  # numba's own; without it small runs are simply walked plain
    return bool(load_index and load_index())


def plain(function: Any) -> Callable[..., Any]:
    """Return the Python function behind a compiled one, with those that it calls replaced likewise.

    >>> import numba
    >>> twice = numba.njit(lambda x: 2 * x)
    >>> plain(twice)(3), twice.signatures
    (6, [])
    """
    python = function.py_func
    names = dict(python.__globals__)
    for name in python.__code__.co_names:
        if hasattr(names.get(name), "py_func"):
            names[name] = plain(names[name])
    return FunctionType(python.__code__, names, python.__name__, python.__defaults__)
