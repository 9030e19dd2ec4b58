"""Where a kernel's inputs come from: random numbers, the captured tensors of the package, or a file.

All arrays are in the reference layout, as ``spec.input_shapes`` has it: q ``(batch, T_q, h_q, d)``, k and v
``(batch, S_kv, h_kv, d)``; for latent attention q and the cache kv ``(batch, S_kv, d)``, which can only be random.
"""

from __future__ import annotations

import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Generic

import numpy as np

from kernbench.dtypes import dtype as to_dtype
from kernbench.errors import InputError, SpecError
from kernbench.specs.attention import BenchSpec, SpecT

CAPTURED = {"h_q": 9, "h_kv": 3, "d_head": 64, "batch": 1}
"""Sizes of the captured tensors, which a spec must have to use them."""
CAPTURED_TOKENS = 1024
"""Tokens of the captured tensors: the most that ``S_kv`` may be."""
_BLOCK = 1 << 20
"""Random numbers that are drawn before they are cast, so that a long cache is not held twice."""


@dataclass(frozen=True)
class Inputs(Generic[SpecT]):
    """Inputs of one call, and the spec that they fit (a file fixes the sizes of its spec)."""

    source: str
    """``random``, ``captured`` or the file's name."""
    spec: SpecT
    arrays: dict[str, np.ndarray]
    """By name, ``q``, ``k`` and ``v`` unless the spec has others, in its format."""
    warnings: tuple[str, ...] = field(default=())
    """What is odd about the values, such as NaN."""


def default_source(spec: BenchSpec) -> str:
    """Return ``captured`` if the captured tensors have the sizes that ``spec`` asks for, else ``random``."""
    fits = _takes_qkv(spec) and spec.dtype == "f16" and not _captured_misfits(spec)
    return "captured" if fits else "random"


def make_inputs(spec: SpecT, source: str, seed: int = 0) -> Inputs[SpecT]:
    """Make the inputs for ``spec``.

    Parameters
    ----------
    source
        ``random`` (standard normal), ``captured`` (real tensors that come with kernbench) or the path of an
        ``.npz`` file with arrays ``q``, ``k`` and ``v`` of shape (token, head, dim).
    seed
        Of the random numbers.

    Raises
    ------
    InputError
        If a file cannot be used.
    SpecError
        If the sizes of the spec contradict those of the tensors, or it takes other tensors.
    """
    if source == "random":
        return Inputs(source, spec, _random(spec, seed))
    if not _takes_qkv(spec):
        held = "the captured inputs are" if source == "captured" else f"{source} would hold"
        raise SpecError(f"{held} q, k and v, but this bench takes {', '.join(spec.input_shapes)}: use random inputs")
    if source == "captured":
        return _captured(spec)
    return _from_file(spec, Path(source))


def _random(spec: BenchSpec, seed: int) -> dict[str, np.ndarray]:
    shapes = spec.input_shapes
    kind = to_dtype(spec.dtype).external
    seeds = np.random.SeedSequence(seed).spawn(len(shapes))  # a stream each, so that k and v are drawn side by side
    with ThreadPoolExecutor(len(shapes)) as pool:
        return dict(zip(shapes, pool.map(_normal, shapes.values(), [kind] * len(shapes), seeds), strict=True))


def _normal(shape: tuple[int, ...], kind: np.dtype, seed: np.random.SeedSequence) -> np.ndarray:
    generator = np.random.Generator(np.random.PCG64(seed))
    values = np.empty(shape, kind)
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        part[...] = generator.standard_normal(part.size, dtype=np.float32)
    return values


def _takes_qkv(spec: BenchSpec) -> bool:
    return set(spec.input_shapes) == {"q", "k", "v"}


def _captured_misfits(spec: Any) -> list[str]:
    """Say which sizes of ``spec`` the captured tensors do not have."""
    sizes = spec.model_dump()
    wrong = [f"{name}={sizes[name]} (captured: {n})" for name, n in CAPTURED.items() if sizes[name] != n]
    for name in ("S_kv", "T_q"):
        if sizes[name] > CAPTURED_TOKENS:
            wrong.append(f"{name}={sizes[name]} (captured: up to {CAPTURED_TOKENS})")
    if not wrong and spec.T_q > spec.S_kv:
        wrong.append(f"T_q={spec.T_q} (captured: up to S_kv={spec.S_kv})")
    return wrong


def _captured(spec: Any) -> Inputs[Any]:
    """Take the first S_kv tokens, and as queries the last T_q of these: what a model would ask at that moment."""
    wrong = _captured_misfits(spec)
    if wrong:
        raise SpecError(f"the captured inputs do not have {', '.join(wrong)}; set these, or use random inputs")
    with resources.as_file(resources.files("kernbench") / "data" / "smollm2_layer2_1024.npz") as path:
        arrays = read_qkv(path)
    first, last = spec.S_kv - spec.T_q, spec.S_kv
    taken = {"q": arrays["q"][first:last], "k": arrays["k"][:last], "v": arrays["v"][:last]}
    return Inputs("captured", spec, _cast(taken, spec))


def _from_file(spec: SpecT, path: Path) -> Inputs[SpecT]:
    arrays = read_qkv(path)
    q, k = arrays["q"], arrays["k"]
    sizes = {"batch": 1, "T_q": len(q), "S_kv": len(k), "h_q": q.shape[1], "h_kv": k.shape[1], "d_head": q.shape[2]}
    for name, n in sizes.items():
        if name in spec.model_fields_set and getattr(spec, name) != n:
            raise SpecError(f"{name} was set to {getattr(spec, name)}, but {path} holds {name}={n}; leave it out")
    fitted = spec.replace(**sizes)
    cast = _cast(arrays, fitted)
    return Inputs(str(path), fitted, cast, tuple(_oddities(cast, path)))


def read_qkv(path: Path) -> dict[str, np.ndarray]:
    """Read q, k and v, each (token, head, dim), and check them. Raises InputError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in "qkv" if name not in file.files]
            if missing:
                found = ", ".join(file.files) or "none"
                raise InputError(f"{path} has no array {', '.join(missing)} (it has: {found})")
            arrays = {name: file[name] for name in "qkv"}
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"inputs must be random, captured or an .npz file; there is no file {path}") from None
    except (OSError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file with arrays q, k and v: {error}") from None
    _check_shapes(arrays, path)
    return arrays


def _check_shapes(arrays: dict[str, np.ndarray], path: Path) -> None:
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise InputError(f"{path}: {name} holds {array.dtype}; float16, float32 or float64 is needed")
        if array.ndim != 3 or 0 in array.shape:
            raise InputError(f"{path}: {name} has shape {array.shape}; (token, head, dim) is needed, none of them 0")
    q, k, v = (arrays[name].shape for name in "qkv")
    if k != v:
        raise InputError(f"{path}: k {k} and v {v} must have the same shape")
    if q[2] != k[2]:
        raise InputError(f"{path}: q has heads of {q[2]} elements, k of {k[2]}; they must be equal")


def _cast(arrays: dict[str, np.ndarray], spec: BenchSpec) -> dict[str, np.ndarray]:
    """Give arrays of (token, head, dim) a batch axis and the spec's format."""
    kind = to_dtype(spec.dtype).external
    with np.errstate(over="ignore"):
        return {name: array.astype(kind)[None] for name, array in arrays.items()}


def _oddities(arrays: dict[str, np.ndarray], path: Path) -> list[str]:
    """Count values that are not finite, rather than let them vanish in the result."""
    found = []
    for name, array in arrays.items():
        bad = ~np.isfinite(array)
        if bad.any():
            first = tuple(int(i) for i in np.argwhere(bad)[0][1:])
            found.append(
                f"{path}: {name} as {array.dtype} holds {int(bad.sum()):,} NaN or infinite values of {array.size:,}, "
                f"the first at (token, head, dim) {first}"
            )
    return found
