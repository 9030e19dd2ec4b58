"""Arithmetic against memory: ridges, and from how many query rows decode attention is bound by what.

For one key/value head of ``d`` elements in ``b`` bytes each, a key and its value are ``2 d b`` bytes. Each of the
``R`` query rows that share the head (query tokens times heads of a group) takes ``2 d`` flop for its score, ``2 d``
for its share of the output, and one exponential. With a memory of ``B`` bytes/s and PEs that together do ``M`` flop/s
and ``V`` exponentials a second, a key takes

=========== ===================== =================================================
memory      ``2 d b / B``
products    ``4 d R' / M``        ``R'`` is ``R`` padded to rows of the engine's tile
exponential ``R / V``
=========== ===================== =================================================

Products take as long as the memory from ``R' = b M / (2 B)`` on: at the ridge ``M / B``, half a ridge of rows for
each byte of an element, whatever ``d``. Exponentials take longer than the memory from ``R = 2 d b V / B`` on, and
longer than the products (``R' = R``) where ``d < M / (4 V)``.
"""

from __future__ import annotations

import math

from kernbench.dtypes import DTYPES
from kernbench.lint.report import ArithmeticBalance, MemoryBalance
from kernbench.machine import Machine

HEADS = (64, 128)
"""Elements of a head for which rows are given."""
SOFTMAX = ("multiply", "max", "subtract", "exp", "sum", "cast")
"""Vector operations on each score: scale, running maximum, difference, exponential, sum, to the product's format."""


def balances(machine: Machine, memory: MemoryBalance) -> tuple[ArithmeticBalance, ...]:
    """Return the balance of each format that the machine gives a matrix rate for."""
    exponentials = operations_per_s(machine, memory.pes, "exp")
    softmaxes = 1 / sum(1 / operations_per_s(machine, memory.pes, name) for name in SOFTMAX)
    found = []
    for dtype, one in machine.pe.matrix.rates.items():
        rate = one * memory.pes * (machine.pe.matrix.achievable if machine.holds_workgroups else 1)
        nbytes = DTYPES[dtype].bits / 8
        found.append(
            ArithmeticBalance(
                dtype=dtype,
                rate=rate,
                ridge=rate / memory.bandwidth,
                decode_rows=rows_to_fill(rate / memory.bandwidth * nbytes / 2, machine.pe.matrix.tile.m),
                exp_rows={d: math.ceil(2 * d * nbytes * exponentials / memory.bandwidth) for d in HEADS},
                exp_head=rate / (4 * exponentials),
                softmax_head=rate / (4 * softmaxes),
            )
        )
    return tuple(found)


def operations_per_s(machine: Machine, pes: int, operation: str) -> float:
    """Elements a second that the vector engines of so many PEs do of one operation.

    Kernels of workgroups raise 2 to a power in place of e, as Triton's do: ``exp`` is ``exp2`` there.
    """
    vector = machine.pe.vector
    name = "exp2" if operation == "exp" and machine.holds_workgroups else operation
    return pes * vector.lanes * machine.pe.clock / vector.cost.get(name, vector.cost["default"])


def rows_to_fill(rows: float, tile: int) -> int:
    """Fewest rows that are at least ``rows`` once they are padded to a multiple of ``tile``.

    >>> rows_to_fill(53.3, 8), rows_to_fill(48, 8), rows_to_fill(0.5, 16)
    (49, 41, 1)
    """
    return (math.ceil(rows / tile) - 1) * tile + 1
