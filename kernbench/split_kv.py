"""What kernels have in common that split the keys and values of one attention call over programs.

Each program sweeps its own keys with an online softmax and holds a partial result: of each query row the running
maximum ``m`` (rows, 1), the sum ``l`` (rows, 1) of exp(score - m), and the values ``acc`` (rows, width) weighted with
the same factors. :func:`finish` brings them together as the spec's ``reduction`` says and stores the output.

For a partial result of r rows, N programs send, for each call of :func:`finish`, messages of f32:

=================== =================================================================================================
``reduction``       messages
=================== =================================================================================================
``chain``           N - 1 each of r, r and r width elements
``tree``            as many of each as :func:`~kernbench.collectives.reduce_to_root` says
``butterfly``       likewise
``ring_all_reduce`` of r and r elements as many as :func:`~kernbench.collectives.all_reduce` says; then, at each level
                    of n > 1 programs, 2 n (n - 1) of c = ceil(r width / n) elements, once for each group of programs
                    that have index 0 at the levels inside; 4 (n - 1) (n - 1) where the ring is folded
``none``            no message; each program stores r (width + 2) elements, and the host merges
=================== =================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kernbench.collectives import (
    LEVELS,
    Partial,
    all_reduce,
    all_reduce_chunks,
    chunk_numbers,
    programs_over,
    reduce_to_root,
)
from kernbench.placement import Placement, split
from kernbench.tensors import Tensor, empty, shape_only, tensor
from kernbench.tl import Language, Pointer

if TYPE_CHECKING:
    from kernbench.machine import Machine
    from kernbench.specs.attention import DecodeSpec

LOWEST = -1e30
"""Where running maxima start: finite, so that a part without keys gives exp(LOWEST - m) = 0 and never inf - inf."""


def merge(a: Partial, b: Partial, *, tl: Language) -> Partial:
    """Combine two partial results over different keys: ``(m, l, acc)``, or ``(m, l)`` alone."""
    m = tl.maximum(a[0], b[0])
    keep_a, keep_b = tl.exp(a[0] - m), tl.exp(b[0] - m)
    return m, *(x * keep_a + y * keep_b for x, y in zip(a[1:], b[1:], strict=True))


def finish(partial: Partial, o: Pointer, stage: Pointer | None, spec: DecodeSpec, *, tl: Language) -> None:
    """Bring the partial results of the programs together and store the output.

    Parameters
    ----------
    partial
        ``m``, ``l`` and ``acc`` of this program, all f32.
    o
        Where the output of these rows goes: rows of ``width`` elements; of ``width + 2`` if ``reduction="none"``.
    stage
        This program's part of the tensor of :func:`stage`.
    """
    if spec.reduction == "none":
        _store_partial(partial, o, tl)
    elif spec.reduction == "ring_all_reduce" and programs_over(spec.split_S_kv, tl=tl) > 1:
        assert stage is not None
        _reduce_in_chunks(partial, o, stage, spec, tl)
    else:
        form = "chain" if spec.reduction == "ring_all_reduce" else spec.reduction  # of one program there is no ring
        whole = reduce_to_root(partial, lambda a, b: merge(a, b, tl=tl), spec.split_S_kv, form, tl=tl)
        if whole is not None:  # the last query sees every key and each query at least one, so l > 0 here
            _, l, acc = whole
            tl.store(o, acc / l)


def _store_partial(partial: Partial, o: Pointer, tl: Language) -> None:
    """Store ``acc``, ``m`` and ``l`` beside one another in rows of ``width + 2``."""
    m, l, acc = partial
    width = acc.shape[1]
    for tile, column in ((acc, 0), (m, width), (l, width + 1)):
        tl.store(o + column * acc.dtype.nbytes, tile, strides=(width + 2, 1))


def _reduce_in_chunks(partial: Partial, o: Pointer, stage: Pointer, spec: DecodeSpec, tl: Language) -> None:
    """All-reduce m and l, scale with them what is left to be added up, and all-reduce that in chunks, level by level.

    A tile in scratch cannot be cut, so the shares go through this program's own memory, from where each program loads
    its chunks in its own order. The program with index 0 goes on to the next level, and stores the output at the end.
    """
    m, l, acc = partial
    m_all, l_all = all_reduce((m, l), lambda a, b: merge(a, b, tl=tl), spec.split_S_kv, tl=tl)
    share = acc * (tl.exp(m - m_all) / l_all)
    tl.store(stage, share)
    levels = [level for level in LEVELS if level in spec.split_S_kv and tl.num_programs(LEVELS[level][0]) > 1]
    for level in levels:
        numbers = chunk_numbers((level,), tl=tl)
        size = tl.cdiv(share.size, len(numbers))
        nbytes = size * share.dtype.nbytes
        chunks = [(tl.load(stage + number * nbytes, shape=(1, size)),) for number in numbers]
        whole = all_reduce_chunks(chunks, lambda a, b: (a[0] + b[0],), (level,), tl=tl)
        if tl.program_id(LEVELS[level][0]) > 0:
            return
        for number, (tile,) in zip(numbers, whole, strict=True):
            if level != levels[-1]:
                tl.store(stage + number * nbytes, tile)
            else:
                first = int(number) * size
                tl.store(o + first * o.dtype.nbytes, tile, valid=(1, share.size - first))


# ---------------------------------------------------------------- tensors
def result(
    shape: tuple[int, ...],
    placement: Callable[[int], Placement],
    spec: DecodeSpec,
    machine: Machine,
    held: bool,
) -> Tensor:
    """Make the tensor of results.

    Parameters
    ----------
    shape
        Of the output, (..., width). With ``reduction="none"`` it is f32 of (programs, ..., width + 2) instead.
    placement
        Called with the number of axes that come before those of ``shape``; returns how the other levels split these.
    held
        Whether it has values.
    """
    make = empty if held else shape_only
    idle = dict.fromkeys(spec.idle_levels, 0)
    if spec.reduction != "none":
        return make(shape, spec.dtype, machine, placement(0).on(**dict.fromkeys(spec.split_S_kv, 0), **idle))
    parts = placement(1).split(0, over=spec.split_S_kv).on(**idle)
    return make((_size(spec.split_S_kv, machine), *shape[:-1], shape[-1] + 2), "f32", machine, parts)


def stage(rows: int, width: int, spec: DecodeSpec, machine: Machine, held: bool) -> tuple[Tensor, ...]:
    """Make the tensor through which ``ring_all_reduce`` cuts its chunks: none (an empty tuple) for other reductions."""
    if spec.reduction != "ring_all_reduce":
        return ()
    sizes = [n * -(-rows * width // n) for n in machine.shape]
    shape = (machine.n_pes, max(sizes))
    placement = split(0, over=("sip", "cube", "pe"))
    if not held:
        return (shape_only(shape, "f32", machine, placement),)
    return (tensor(np.zeros(shape, np.float32), machine, placement),)  # zeros fill up the last chunk


def merged(o: Tensor, spec: DecodeSpec) -> np.ndarray:
    """Return the output; with ``reduction="none"`` merged here, on the host, from the programs' parts in float64."""
    parts = o.numpy()
    if spec.reduction != "none":
        return parts
    parts = parts.astype(np.float64)
    acc, m, l = parts[..., :-2], parts[..., -2:-1], parts[..., -1:]
    weight = np.exp(m - m.max(axis=0))
    found: np.ndarray = (weight * acc).sum(axis=0) / (weight * l).sum(axis=0)
    return found


def _size(levels: tuple[str, ...], machine: Machine) -> int:
    sizes = {"sip": machine.n_sips, "cube": machine.cubes_per_sip, "pe": machine.pes_per_cube}
    return int(np.prod([sizes[level] for level in levels], dtype=np.int64))
