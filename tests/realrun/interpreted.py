"""Runs Triton kernels on a CPU: Triton's interpreter, with the bf16 arithmetic that it gets wrong put right.

Triton 3.6 keeps bf16 as 16-bit integers and multiplies those. Import this before any kernel.
"""

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def _f32(handle: Any) -> np.ndarray:
    if handle.dtype.scalar == tl.bfloat16:
        return (handle.data.astype(np.uint32) << 16).view(np.float32)
    return handle.data


def _bf16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
    product = np.matmul(_f32(a).astype(np.float32), _f32(b).astype(np.float32))
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


def _fmul(self: Any, a: Any, b: Any) -> Any:
    if a.dtype.scalar == tl.bfloat16:
        return interpreter.TensorHandle(_bf16(_f32(a) * _f32(b)), tl.bfloat16)
    return self.binary_op(a, b, np.multiply)


def _int_to_float(self: Any, src: Any, dst_type: Any) -> Any:
    if dst_type.scalar == tl.bfloat16:
        return interpreter.TensorHandle(_bf16(src.data.astype(np.float32)), tl.bfloat16)
    return self.cast_impl(src, dst_type)


interpreter.InterpreterBuilder.create_si_to_fp = _int_to_float
interpreter.InterpreterBuilder.create_dot = _dot
interpreter.InterpreterBuilder.create_fmul = _fmul


class FakeTimer:
    """Launches once and tells a fixed time for each way of measuring."""

    def cold(self, run: Any, n: int) -> list[float]:
        run()
        return [10.0] * n

    def graph(self, run: Any, launches: int, replays: int) -> list[float]:
        run()
        return [5.0] * replays

    def cold_graph(self, run: Any, replays: int) -> list[float]:
        run()
        return [6.0] * replays
