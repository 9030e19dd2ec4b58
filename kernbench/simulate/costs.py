"""What a command costs on a machine: sizes to picoseconds, in exact integers.

Every duration is rounded up to a whole picosecond, so that no work is ever free.
"""

from __future__ import annotations

from fractions import Fraction

from kernbench.errors import InputError
from kernbench.machine import Machine
from kernbench.machine.schema import MatrixSpec, VectorSpec
from kernbench.record.stream import CostKey, Op

PS = 10**12
"""Picoseconds in a second."""

_EPILOGUE = {"scale": ("multiply",), "max": ("max",), "exp": ("subtract", "exp"), "cast": ("cast",)}
"""Vector operations that one step of a composite's epilogue does to every element."""

_SAME_RATE = {"fp8e4m3fnuz": "fp8e4m3"}
"""Formats that differ in encoding only: machine files give one rate for both."""


def transfer_ps(nbytes: int, bandwidth: int) -> int:
    """Time that ``nbytes`` take at ``bandwidth`` bytes/s.

    >>> transfer_ps(1024, 10**12)
    1024
    """
    return -(-nbytes * PS // bandwidth)


def dot_ps(matrix: MatrixSpec, dtype: str, batch: int, m: int, n: int, k: int) -> int:
    """Time of a matrix product: start-up, plus the work with each extent padded to the engine's tile.

    ``startup + ceil(2 * batch * m' * n' * k' / rate)``, where ``m'`` is ``m`` rounded up to a multiple of
    ``tile.m``, and so on. The rate is that of the operands' format; of two formats (``"fp8e4m3,fp4e2m1"``), the lower.
    """
    rate = min(rate_of(matrix, name) for name in dtype.split(","))
    padded = 1
    for extent, tile in ((m, matrix.tile.m), (n, matrix.tile.n), (k, matrix.tile.k)):
        padded *= -(-extent // tile) * tile
    return matrix.startup + -(-2 * batch * padded * PS // rate)


def rate_of(matrix: MatrixSpec, dtype: str) -> int:
    """Return the operations per second of one format. Raises InputError if the machine gives none."""
    rate = matrix.rates.get(_SAME_RATE.get(dtype, dtype))
    if rate is None:
        known = ", ".join(sorted(matrix.rates))
        raise InputError(f"the machine gives no matrix rate for {dtype} (pe.matrix.rates has {known}); add one or cast")
    return rate


def vector_ps(vector: VectorSpec, clock: int, name: str, elements: int, passes: int = 1) -> int:
    """Time of a vector operation: start-up, plus whole cycles of all lanes.

    ``startup + ceil(passes * ceil(elements / lanes) * cost / clock)``, with ``cost`` in cycles for an element of a
    lane.
    """
    return vector.startup + _cycles_ps(passes * -(-elements // vector.lanes) * _cost(vector, name), clock)


def composite_ps(
    machine: Machine, names: str, dtype: str, work: tuple[int, ...], free: Op | None = None
) -> tuple[int, int]:
    """Return (body, tail) of a fused command whose engines pass on one chunk at a time.

    With ``matrix`` and ``vector`` the whole time of each engine and ``tail`` the time of both for one of ``chunks``
    chunks: once the last chunk has come it still takes ``tail``; and however early the data come, it takes
    ``body``, the slower engine's whole time and one chunk of the other's. ``free`` is as in :func:`cost_ps`.
    """
    batch, m, n, k, chunks = work
    matrix = 0 if free == Op.DOT else dot_ps(machine.pe.matrix, dtype, batch, m, n, k)
    vector = 0
    steps = [op for step in names.split(",") if step for op in _EPILOGUE[step]]
    if steps and free != Op.VECTOR:
        spec = machine.pe.vector
        cost = sum(_cost(spec, op) for op in steps)
        vector = spec.startup + _cycles_ps(-(-m * n // spec.lanes) * cost, machine.pe.clock)
    one_matrix, one_vector = -(-matrix // chunks), -(-vector // chunks)
    return max(matrix + one_vector, vector + one_matrix), one_matrix + one_vector


def cost_ps(machine: Machine, key: CostKey, free: Op | None = None) -> tuple[int, int]:
    """Return (duration, tail) of the arithmetic of a command; the tail is 0 unless it is a composite.

    The engine that works on commands of the kind ``free`` (DOT: matrix, VECTOR: vector) takes no time.
    """
    op, name, work, dtype = key
    if op == free:
        return 0, 0
    if op == Op.DOT:
        return dot_ps(machine.pe.matrix, dtype, *work), 0
    if op == Op.VECTOR:
        return vector_ps(machine.pe.vector, machine.pe.clock, name, *work), 0
    return composite_ps(machine, name, dtype, work, free)


def _cost(vector: VectorSpec, name: str) -> int | Fraction:
    return exactly(vector.cost.get(name, vector.cost["default"]))


def exactly(number: int | float) -> int | Fraction:
    """Return the number that a machine file wrote: a float holds a decimal with few digits."""
    return number if isinstance(number, int) else Fraction(str(number))


def _cycles_ps(cycles: int | Fraction, clock: int) -> int:
    return int(-(-cycles * PS // clock))
