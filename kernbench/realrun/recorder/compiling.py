"""Compiling a plan's kernels ahead of timing, in processes of their own.

They fill Triton's cache on disk. A worker never touches the GPU: it tells Triton the target that the parent read, so it
also compiles for a GPU that is not there.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

Recipe = tuple[str, str, tuple[Any, ...], tuple[tuple[str, Any], ...], int, int]
"""Module, kernel, arguments (a type's name for a tensor), constexprs, waves and stages: one compilation."""


def recipe(launch: Any) -> Recipe:
    """Describe what compiling one launch depends on. Integers that Triton does not specialise on count as equal."""
    kernel = launch.kernel
    args: list[Any] = []
    for param, arg in zip(kernel.params, launch.args, strict=False):
        if hasattr(arg, "dtype"):
            args.append(str(arg.dtype))
        elif isinstance(arg, int) and param.do_not_specialize and -(2**31) <= arg < 2**31:
            args.append(7)
        elif isinstance(arg, int):
            args.append(1 if arg == 1 else 16 if arg % 16 == 0 and abs(arg) < 2**31 else arg)
        else:
            args.append(0.5)
    constexprs = tuple(sorted(launch.constexprs.items()))
    return (kernel.fn.__module__, kernel.fn.__name__, tuple(args), constexprs, launch.waves, launch.stages)


class _Driver:
    """What Triton asks of a driver in order to compile."""

    def __init__(self, target: tuple[str, Any, int]) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget(*self._target)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def use_target(target: tuple[str, Any, int]) -> None:
    """Make this process's Triton compile for ``target``: backend, architecture, wave size."""
    from triton.runtime import driver

    driver.set_active(_Driver(target))


def compile_one(what: Recipe) -> Any:
    """Compile one recipe for the target in use; return Triton's compiled kernel."""
    import torch

    module, name, args, constexprs, waves, stages = what
    kernel = getattr(importlib.import_module(module), name)
    given = [getattr(torch, a.removeprefix("torch.")) if isinstance(a, str) else a for a in args]
    return kernel.warmup(*given, grid=(1,), **dict(constexprs), num_warps=waves, num_stages=stages)


def _work(what: Recipe) -> str:
    try:
        compile_one(what)
    except Exception as error:
        return f"{what[1]} {dict(what[3])}: {type(error).__name__}: {error}"[:500]
    return ""


def compile_all(
    recipes: Iterable[Recipe],
    target: tuple[str, Any, int],
    *,
    workers: int,
    limit_s: float | None = None,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Compile in parallel; return the messages of those that failed. Stops handing out work after ``limit_s``."""
    todo = sorted(set(recipes), key=repr)
    start = time.monotonic()
    context = get_context("spawn")  # a fork would inherit the parent's GPU context
    pool = ProcessPoolExecutor(min(workers, len(todo)) or 1, context, initializer=use_target, initargs=(target,))
    futures = [pool.submit(_work, what) for what in todo]
    done, late = wait(futures, timeout=limit_s)
    pool.shutdown(wait=not late, cancel_futures=True)
    bad = [f"{f.exception()}" if f.exception() else f.result() for f in done if not f.cancelled()]
    say(f"compiled {len(done)} of {len(todo)} kernels in {time.monotonic() - start:.1f} s")
    return [message for message in bad if message]
