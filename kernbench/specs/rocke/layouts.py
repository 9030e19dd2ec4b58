"""Tensors as the kernels read them: token-major arrays, fp8 bytes, packed i4 and scale buffers.

A tensor is ``(token, head, d)`` with ``d`` contiguous. Formats of K and V:

=========  ==========================================================================================
``f16``    ``numpy.float16``
``bf16``   ``ml_dtypes.bfloat16``
fp8        ``uint8``, the architecture's byte format: E4M3FNUZ on gfx942, OCP E4M3FN on gfx950
i8         ``int8``, an index into a codebook of 256 entries: ``codebook[value + 128]``
i4         ``uint8``, two to a byte, the low nibble first; ``codebook[value + 8]``
=========  ==========================================================================================
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from kernbench.errors import InputError
from kernbench.specs.rocke.arch import find_arch
from kernbench.specs.rocke.common import QkScaleSpec

ELEMENTS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
"""NumPy type of the arrays of each element format."""
_FP8 = {"e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn), "e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz)}
_LARGEST_FP8 = {"e4m3fn": 448, "e4m3fnuz": 240}


def token_major(x: np.ndarray) -> np.ndarray:
    """Turn ``(head, token, d)``, or ``(1, head, token, d)``, into a contiguous ``(token, head, d)`` array.

    Raises
    ------
    InputError
        For another number of axes, or more than one batch: a launch serves one.
    """
    if x.ndim == 4 and x.shape[0] == 1:
        x = x[0]
    if x.ndim != 3:
        raise InputError(f"shape {x.shape} is neither (head, token, d) nor (1, head, token, d): one batch per launch")
    return np.ascontiguousarray(x.swapaxes(0, 1))


def stride_arguments(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray) -> dict[str, int]:
    """Return the stride arguments of a launch, in elements (packed i4: in bytes).

    Parameters
    ----------
    q, k, v, o : array, shape (token, head, d)
        The tensors of the launch, ``d`` contiguous.

    >>> q = np.zeros((16, 2, 64), np.float16)
    >>> stride_arguments(q, q, q, q)["stride_q_token"]
    128
    """
    strides = {}
    for name, tensor in zip("qkvo", (q, k, v, o), strict=True):
        if tensor.ndim != 3 or (tensor.shape[2] > 1 and tensor.strides[2] != tensor.itemsize):
            raise InputError(f"{name} must be (token, head, d) with d contiguous, not of shape {tensor.shape}")
        strides[f"stride_{name}_token"] = tensor.strides[0] // tensor.itemsize
        strides[f"stride_{name}_head"] = tensor.strides[1] // tensor.itemsize
    return strides


def fp8_dtype(arch: str) -> np.dtype:
    """Return the ``ml_dtypes`` type of an architecture's fp8 bytes.

    Raises
    ------
    InputError
        If the architecture is unknown or has no fp8 in these kernels.
    """
    fp8_format = find_arch(arch).fp8_format
    if fp8_format is None:
        raise InputError(f"{arch} has no fp8 byte format in these kernels: gfx942 and gfx950 have one")
    return _FP8[fp8_format]


def encode_fp8(values: np.ndarray, arch: str, *, saturate: bool = True) -> np.ndarray:
    """Round to the nearest fp8 number, ties to even, and return the architecture's bytes.

    Parameters
    ----------
    values
        Floats, of any shape; taken as float32.
    arch
        ``gfx942`` or ``gfx950``.
    saturate
        True: what is too large becomes the largest finite number (240 on gfx942, 448 on gfx950). False: NaN, as
        with PyTorch's conversion.

    Returns
    -------
    array of uint8, same shape

    >>> encode_fp8(np.array([1.0, -1.0]), "gfx942").tolist(), encode_fp8(np.array([1.0, -1.0]), "gfx950").tolist()
    ([64, 192], [56, 184])
    """
    kind = fp8_dtype(arch)
    wide = np.asarray(values, np.float32)
    if saturate:
        largest = _LARGEST_FP8[str(find_arch(arch).fp8_format)]
        wide = np.clip(wide, -largest, largest)
    return wide.astype(kind).view(np.uint8)


def decode_fp8(encoded: np.ndarray, arch: str) -> np.ndarray:
    """Return the float32 numbers that an architecture reads from fp8 bytes (``uint8`` or ``int8``)."""
    return np.ascontiguousarray(encoded).view(fp8_dtype(arch)).astype(np.float32)


def pack_i4(values: np.ndarray) -> np.ndarray:
    """Pack integers from -8 to 7 two to a byte: element ``2t`` in the low nibble of byte ``t``, ``2t + 1`` in the high.

    Parameters
    ----------
    values : array of integers, shape (..., d)
        ``d`` is even.

    Returns
    -------
    array of uint8, shape (..., d / 2)

    >>> pack_i4(np.array([1, -1, -8, 7])).tolist()
    [241, 120]
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iu" or values.shape[-1] % 2:
        raise InputError(f"i4 packs an even number of integers a row, not {values.dtype} of shape {values.shape}")
    if np.any((values < -8) | (values > 7)):
        raise InputError("i4 holds integers from -8 to 7")
    nibbles = (values & 15).astype(np.uint8)
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)


def unpack_i4(packed: np.ndarray) -> np.ndarray:
    """Undo :func:`pack_i4`: ``(..., d / 2)`` bytes become ``(..., d)`` numbers of int8.

    >>> unpack_i4(np.array([241, 120], np.uint8)).tolist()
    [1, -1, -8, 7]
    """
    raw = np.ascontiguousarray(packed).view(np.uint8)
    nibbles = np.stack([raw & 15, raw >> 4], axis=-1).astype(np.int8)
    return ((nibbles ^ 8) - 8).reshape(*raw.shape[:-1], 2 * raw.shape[-1])


def scale_offsets(spec: QkScaleSpec, heads: int, tokens: int) -> np.ndarray:
    """Return the buffer element of each head and block.

    Parameters
    ----------
    spec
        The addressing rule.
    heads
        Query heads for ``q_scale``, key/value heads for ``k_scale``.
    tokens
        Sequence length.

    Returns
    -------
    array of int64, shape (heads, blocks)
        ``blocks`` is ``spec.blocks(tokens)``, 1 for ``per_head``.

    Raises
    ------
    InputError
        If an element lies before the buffer.
    """
    blocks = np.arange(spec.blocks(tokens)) * (spec.stride_block if spec.layout == "per_block" else 0)
    offsets = np.arange(heads)[:, None] * spec.stride_head + blocks
    if offsets.size and offsets.min() < 0:
        raise InputError(f"scale element {offsets.min()} lies before the buffer: see the strides of {spec}")
    return offsets.astype(np.int64)


def make_scales(spec: QkScaleSpec, values: np.ndarray, tokens: int) -> np.ndarray:
    """Lay scales out in the buffer that the kernel reads. Elements that no scale takes are NaN.

    Parameters
    ----------
    spec
        The addressing rule.
    values : array, shape (heads, blocks)
        One scale per head and block (``per_head``: one column).
    tokens
        Sequence length.

    Returns
    -------
    array of float32, shape (elements,)
        Just long enough.

    Raises
    ------
    InputError
        If the shape is wrong, or two unlike scales want the same element.

    >>> spec = QkScaleSpec("per_block", scale_block=16, stride_head=1, stride_block=2)
    >>> make_scales(spec, np.array([[1, 2], [3, 4]]), tokens=32).tolist()
    [1.0, 3.0, 2.0, 4.0]
    """
    values = np.asarray(values, np.float32)
    if values.ndim != 2 or values.shape[1] != spec.blocks(tokens):
        raise InputError(f"scales have shape {values.shape}, not (heads, {spec.blocks(tokens)})")
    offsets = scale_offsets(spec, values.shape[0], tokens)
    buffer = np.full(int(offsets.max(initial=-1)) + 1, np.nan, np.float32)
    buffer[offsets] = values
    if not np.array_equal(buffer[offsets], values, equal_nan=True):
        raise InputError(f"two unlike scales want the same element: see the strides of {spec}")
    return buffer


def read_scales(spec: QkScaleSpec, buffer: np.ndarray, heads: int, tokens: int) -> np.ndarray:
    """Return the scale that the kernel reads for each token of each head.

    Parameters
    ----------
    spec
        The addressing rule.
    buffer : array of float32
        Read flat.
    heads, tokens
        Query heads and rows for ``q_scale``, key/value heads and keys for ``k_scale``.

    Returns
    -------
    array of float32, shape (heads, tokens)

    Raises
    ------
    InputError
        If the buffer is not float32 or too short. The original does not check: it would read what lies behind.
    """
    flat = np.asarray(buffer).reshape(-1)
    if flat.dtype != np.float32:
        raise InputError(f"scales must be float32, not {flat.dtype}")
    offsets = scale_offsets(spec, heads, tokens)
    if offsets.size and offsets.max() >= flat.size:
        raise InputError(f"the scale buffer has {flat.size} elements; {spec} reads element {offsets.max()}")
    block = np.arange(tokens) // spec.scale_block if spec.layout == "per_block" else np.zeros(tokens, np.int64)
    return flat[offsets][:, block]
