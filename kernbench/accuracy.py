"""What a number format costs in accuracy: attention over stored keys and values, held against float64.

The formats are those in which keys and values are *stored*; arithmetic is as the kernels do it (float32 sums,
probabilities and output rounded to float16 or bfloat16). The inputs are real: Q, K and V of two layers of a language
model (``kernbench/data``), causal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from threadpoolctl import threadpool_limits

from kernbench.errors import InputError
from kernbench.specs.inputs import read_qkv
from kernbench.specs.ultraquant import dequantise, hadamard, quantise, to_e4m3

LAYERS = (2, 27)
"""Layers of the captured model that come with kernbench."""
BLOCK = 64
"""Tokens of a block of the sparse masks."""
DENSITIES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)

Arrays = dict[str, np.ndarray]
Stored = tuple[np.ndarray, np.ndarray, np.ndarray]
"""q, k and v of one head as a kernel sees them, (token, d) float64."""


@dataclass(frozen=True)
class Row:
    """The error of one head in one format."""

    format: str
    layer: str
    head: int
    rel_l2: float
    """``|actual - reference| / |reference|`` over all query tokens."""
    cosine: float
    density: float | None = None
    """Share of the causal key blocks that a sparse mask keeps; None for dense formats."""


def inputs_for_accuracy(source: str = "captured") -> dict[str, Arrays]:
    """Return ``q`` (token, head, d), ``k`` and ``v`` (token, kv head, d) by layer: those captured, or those of a file.

    Raises
    ------
    InputError
        If the file cannot be used: as many queries as keys are needed, in whole blocks of 64 tokens, and heads whose
        size is a power of two of at least 32.
    """
    if source == "captured":
        folder = Path(__file__).parent / "data"
        return {f"layer {n}": read_qkv(folder / f"smollm2_layer{n}_1024.npz") for n in LAYERS}
    arrays = read_qkv(Path(source))
    (tokens, _, d), keys = arrays["q"].shape, arrays["k"].shape[0]
    if tokens != keys or tokens % BLOCK or d < 32 or d & (d - 1):
        raise InputError(
            f"{source}: accuracy needs as many queries as keys, in whole blocks of {BLOCK} tokens, and heads of 32, "
            f"64, 128 or 256 elements; it has {tokens} queries, {keys} keys and heads of {d}"
        )
    return {Path(source).name: arrays}


def accuracy_table(inputs: dict[str, Arrays], progress: Callable[[str], None] | None = None) -> list[Row]:
    """Return the error of every format, layer and query head, and of sparse masks over their density.

    ``inputs`` is as :func:`inputs_for_accuracy` returns it; ``progress`` is called with what is being worked on.
    """
    rows: list[Row] = []
    with threadpool_limits(1, user_api="blas"):  # the last bits would depend on how many threads there are
        for layer, arrays in inputs.items():
            rows += _rows_of_layer(layer, arrays, progress or (lambda _: None))
    return rows


def _rows_of_layer(layer: str, arrays: Arrays, tell: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    exact = [_attend(*_head(arrays, h)) for h in range(arrays["q"].shape[1])]
    for name, (store, rounded) in FORMATS.items():
        tell(f"{layer}: {name}")
        for head, right in enumerate(exact):
            found = _attend(*store(*_head(arrays, head)), rounded=rounded)
            rows.append(Row(name, layer, head, *_errors(found, right)))
    weights = _block_weights(arrays)
    for density in DENSITIES:
        tell(f"{layer}: sparse, density {density:g}")
        kept = _keep(weights, density)
        for head, right in enumerate(exact):
            found = _attend(*_head(arrays, head), kept=kept)
            rows.append(Row("jenga/vsa", layer, head, *_errors(found, right), density))
    return rows


# ---------------------------------------------------------------- attention
def _head(arrays: Arrays, head: int) -> Stored:
    group = arrays["q"].shape[1] // arrays["k"].shape[1]
    q, k, v = (arrays[name][:, head // (1 if name == "q" else group)].astype(np.float64) for name in "qkv")
    return q, k, v


def _attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, rounded: Any = None, kept: np.ndarray | None = None
) -> np.ndarray:
    """Causal softmax attention in float64, with probabilities and output rounded to ``rounded`` if that is given."""
    scores = q @ k.T / np.sqrt(q.shape[1])
    seen = np.tri(len(q), dtype=bool)
    if kept is not None:
        seen &= np.kron(kept, np.ones((BLOCK, BLOCK), bool))
    scores[~seen] = -np.inf
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    total = p.sum(axis=1, keepdims=True)
    if rounded is None:
        return p @ v / total
    return (p.astype(rounded).astype(np.float64) @ v / total).astype(rounded).astype(np.float64)


def _errors(found: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    norm = np.linalg.norm
    return float(norm(found - right) / norm(right)), float((found * right).sum() / (norm(found) * norm(right)))


# ---------------------------------------------------------------- formats
def _cast(kind: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], Stored]:
    def store(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Stored:
        q, k, v = (x.astype(kind).astype(np.float64) for x in (q, k, v))
        return q, k, v

    return store


def _scaled(kind: Any, top: float) -> Callable[[np.ndarray, np.ndarray, np.ndarray], Stored]:
    """Store k and v with one float32 scale a head, which brings the largest magnitude to ``top``."""

    def through(x: np.ndarray) -> np.ndarray:
        scale = np.float32(max(np.abs(x).max(), 1e-30) / top)
        y = x / scale
        coded = np.clip(np.rint(y), -top - 1, top) if kind in (np.int8, ml_dtypes.int4) else y
        back: np.ndarray = coded.astype(kind).astype(np.float64) * scale
        return back

    return lambda q, k, v: (q, through(k), through(v))


def _ultraquant(rotate: bool) -> Callable[[np.ndarray, np.ndarray, np.ndarray], Stored]:
    """Store k and v as UltraQuant does: E2M1 codes, a power of two for 32 elements; k rotated, q rounded to E4M3."""

    def through(x: np.ndarray) -> np.ndarray:
        return dequantise(*quantise(x)).astype(np.float64)

    def store(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Stored:
        turn = hadamard(q.shape[1]) if rotate else np.eye(q.shape[1])
        return to_e4m3((q @ turn).astype(np.float32)).astype(np.float64), through(k @ turn), through(v)

    return store


FORMATS: dict[str, tuple[Callable[[np.ndarray, np.ndarray, np.ndarray], Stored], Any]] = {
    "f16": (_cast(np.float16), np.float16),
    "bf16": (_cast(ml_dtypes.bfloat16), ml_dtypes.bfloat16),
    "fp8e4m3": (_scaled(ml_dtypes.float8_e4m3fn, 448), np.float16),
    "fp8e4m3fnuz": (_scaled(ml_dtypes.float8_e4m3fnuz, 240), np.float16),
    "i8": (_scaled(np.int8, 127), np.float16),
    "i4": (_scaled(ml_dtypes.int4, 7), np.float16),
    "ultraquant": (_ultraquant(rotate=True), ml_dtypes.bfloat16),
    "ultraquant, unrotated": (_ultraquant(rotate=False), ml_dtypes.bfloat16),
}
"""How keys and values are stored, and the format of probabilities and output."""


# ---------------------------------------------------------------- sparse masks
def _block_weights(arrays: Arrays) -> np.ndarray:
    """Add up the causal softmax weights of each pair of blocks over all heads."""
    blocks = len(arrays["q"]) // BLOCK
    weights = np.zeros((blocks, blocks))
    for head in range(arrays["q"].shape[1]):
        q, k, _ = _head(arrays, head)
        p = _attend(q, k, np.eye(len(k)))
        weights += p.reshape(blocks, BLOCK, blocks, BLOCK).sum(axis=(1, 3))
    return weights


def _keep(weights: np.ndarray, density: float) -> np.ndarray:
    """Keep, for each block of queries, its own block and the heaviest others: ``density`` of those it may see."""
    kept = np.zeros(weights.shape, bool)
    for i in range(len(weights)):
        order = np.argsort(-weights[i, :i], kind="stable")
        kept[i, order[: max(round(density * (i + 1)) - 1, 0)]] = True
        kept[i, i] = True
    return kept
