"""Argument blocks: the signature of a kernel, and how many bytes its arguments take."""

from __future__ import annotations

from collections.abc import Iterable

Argument = dict[str, str]
"""``{"name": ..., "type": ...}``, the type as ``ptr<f16, global>``, ``f32`` or ``i32``."""

_SIZES = {"i32": 4, "f32": 4}
_POINTER_BYTES = 8


def pointer(name: str, element: str) -> Argument:
    """Return the entry of a pointer to global memory; ``fp16`` is written ``f16``."""
    return {"name": name, "type": f"ptr<{'f16' if element == 'fp16' else element}, global>"}


def scalar(name: str, kind: str) -> Argument:
    """Return the entry of a scalar, ``i32`` or ``f32``."""
    return {"name": name, "type": kind}


def tail_arguments() -> list[Argument]:
    """Return the arguments that every kernel ends with: scale, lengths, and the strides in elements."""
    lengths = [scalar("scale_log2", "f32"), scalar("seqlen_q", "i32"), scalar("seqlen_k", "i32")]
    strides = [scalar(f"stride_{tensor}_{axis}", "i32") for tensor in "qkvo" for axis in ("token", "head")]
    return lengths + strides


def argument_bytes(signature: Iterable[Argument]) -> int:
    """Return the bytes of the argument block: in order, each argument naturally aligned, no padding at the end.

    >>> argument_bytes([scalar("n", "i32"), pointer("x", "f16")])
    16
    """
    end = 0
    for argument in signature:
        size = _SIZES.get(argument["type"], _POINTER_BYTES)
        end = -(-end // size) * size + size
    return end


def join_name(*parts: str) -> str:
    """Return a kernel's name: the parts that are not empty, joined by underscores; slashes become underscores too."""
    return "_".join(part for part in parts if part).replace("/", "_")
