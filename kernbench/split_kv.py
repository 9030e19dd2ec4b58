"""What kernels have in common that split the keys and values of one attention call over programs.

Each program sweeps its own keys with an online softmax and holds a partial result: of each query row the running
maximum ``m`` (rows, 1), the sum ``l`` (rows, 1) of exp(score - m), and the values ``acc`` (rows, width) weighted with the
same. :func:`finish` brings them together as the spec's ``reduction`` says and stores the output.

For a partial result of r rows, one group of N programs sends, for each call of :func:`finish`:

=================== =================================================================================================
``reduction``       messages and bytes
=================== =================================================================================================
``chain``           3 (N - 1) messages, (N - 1) r (width + 2) 4 bytes
``tree``            three times what :func:`~kernbench.collectives.reduce_to_root` says, of r 4, r 4 and r width 4 bytes
``butterfly``       likewise
``ring_all_reduce`` with c = ceil(width / N) columns a chunk and no ring folded: 3 N (N - 1) messages of r 4, r 4 and
                    r c 4 bytes, then N (N - 1) of r c elements of the output's format
``none``            no message; each program stores r (width + 2) 4 bytes, and the host merges
=================== =================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.collectives import LEVELS, Partial, all_gather, chunk_numbers, reduce_scatter, reduce_to_root
from kernbench.tensors import Tensor, empty, shape_only, tensor
from kernbench.tl import Language, Pointer

if TYPE_CHECKING:
    from kernbench.machine import Machine
    from kernbench.placement import Placement
    from kernbench.specs.attention import DecodeSpec

LOWEST = -1e30
"""Where running maxima start: finite, so that a part without keys gives exp(LOWEST - m) = 0 and never inf - inf."""
ALL_LEVELS = ("sip", "cube", "pe")


def merge(a: Partial, b: Partial, *, tl: Language) -> Partial:
    """Combine two partial results over different keys."""
    (m_a, l_a, acc_a), (m_b, l_b, acc_b) = a, b
    m = tl.maximum(m_a, m_b)
    keep_a, keep_b = tl.exp(m_a - m), tl.exp(m_b - m)
    return m, l_a * keep_a + l_b * keep_b, acc_a * keep_a + acc_b * keep_b


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
    elif spec.reduction == "ring_all_reduce" and _programs(spec, tl) > 1:
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
    """All-reduce in chunks of columns, each with the m and l that it was weighted with.

    A tile in scratch cannot be cut, so ``acc`` goes through this program's own memory, from where each program loads
    its chunks in its own order. Every program ends with the whole output; the first one stores it.
    """
    m, l, acc = partial
    rows, width = acc.shape
    numbers = chunk_numbers(spec.split_S_kv, tl=tl)
    columns = tl.cdiv(width, len(numbers))
    step = len(numbers) * columns
    tl.store(stage, acc, strides=(step, 1))
    chunks = [
        (m, l, tl.load(stage + number * (columns * acc.dtype.nbytes), shape=(rows, columns), strides=(step, 1)))
        for number in numbers
    ]
    _, l, own = reduce_scatter(chunks, lambda a, b: merge(a, b, tl=tl), spec.split_S_kv, tl=tl)
    whole = all_gather((tl.cast(own / l, spec.dtype),), spec.split_S_kv, tl=tl)
    if any(tl.program_id(LEVELS[level][0]) > 0 for level in spec.split_S_kv):
        return
    for number, (tile,) in zip(numbers, whole, strict=True):
        first = int(number) * columns
        if first < width:
            valid = (rows, min(columns, width - first))
            tl.store(o + first * o.dtype.nbytes, tile, strides=(width, 1), valid=valid)


def _programs(spec: DecodeSpec, tl: Language) -> int:
    n = 1
    for level in spec.split_S_kv:
        n *= tl.num_programs(LEVELS[level][0])
    return n


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
    n = _size(spec.split_S_kv, machine)
    shape = (machine.n_pes, rows * n * -(-width // n))
    placement = _split(ALL_LEVELS)
    if not held:
        return (shape_only(shape, "f32", machine, placement),)
    return (tensor(np.zeros(shape, np.float32), machine, placement),)  # zeros: columns added to fill up the last chunk


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


def _split(levels: Any) -> Placement:
    from kernbench.placement import split

    return split(0, over=levels)


def _size(levels: tuple[str, ...], machine: Machine) -> int:
    sizes = {"sip": machine.n_sips, "cube": machine.cubes_per_sip, "pe": machine.pes_per_cube}
    return int(np.prod([sizes[level] for level in levels], dtype=np.int64))
