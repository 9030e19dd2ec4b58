"""The UltraQuant cache slot: where each byte of one token and key/value head lies.

A slot holds one token of one key/value head: 256 elements of K and of V as 4-bit E2M1 codes, two a byte, each with one
power-of-two scale for 32 elements. Source: vLLM's UltraQuant format as shipped in 0.33.0 (pull request 57057).
"""

from __future__ import annotations

import numpy as np

HEAD_SIZE = 256
"""Elements of one head; the format knows no other size here."""
SCALE_GROUP = 32
"""Neighbouring elements that share one scale byte."""
SCALES = HEAD_SIZE // SCALE_GROUP
"""Scale bytes of K, and of V, in a slot."""
CODE_BYTES = HEAD_SIZE // 2
"""Bytes of K codes, and of V codes, in a slot."""
SLOT_BYTES = 2 * (CODE_BYTES + SCALES)
"""Bytes of a slot that mean something: 272. A slot may be padded further."""

K_CODES = slice(0, CODE_BYTES)
"""Codes of the rotated K: the even element of a pair in the low nibble, the odd one in the high nibble."""
K_SCALES = slice(K_CODES.stop, K_CODES.stop + SCALES)
"""UE8M0 scales of K."""
V_CODES = slice(K_SCALES.stop, K_SCALES.stop + CODE_BYTES)
"""Codes of V, which is not rotated. They start at byte 136, so they are aligned to 8 bytes only."""
V_SCALES = slice(V_CODES.stop, V_CODES.stop + SCALES)
"""UE8M0 scales of V."""

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
"""Value of each 4-bit code: sign, two exponent bits, one mantissa bit."""
SCALE_BIAS = 127
"""A scale byte ``b`` stands for ``2 ** (b - 127)``; 0 is a sentinel for a group of zeros, 255 stands for NaN."""


def pack_codes(codes: np.ndarray) -> np.ndarray:
    """Pack 4-bit codes two to a byte, the even element in the low nibble.

    Parameters
    ----------
    codes : array of integers 0 ... 15, shape (..., n), n even

    Returns
    -------
    array of uint8, shape (..., n / 2)

    >>> [hex(b) for b in pack_codes(np.array([0x1, 0x2, 0xF, 0x0]))]
    ['0x21', '0xf']
    """
    codes = codes.astype(np.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack_codes(packed: np.ndarray) -> np.ndarray:
    """Undo :func:`pack_codes`: uint8 (..., n / 2) to codes 0 ... 15 of shape (..., n).

    >>> unpack_codes(np.array([0x21, 0x0F], dtype=np.uint8)).tolist()
    [1, 2, 15, 0]
    """
    return np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def scale_values(scales: np.ndarray) -> np.ndarray:
    """Return the factors that UE8M0 bytes stand for, in float32; 0 for the zero sentinel and NaN for 255.

    A scaled matrix instruction is believed to read byte 0 as ``2**-127`` instead. It makes no difference to a cache
    that the store wrote, for the codes of such a group are 0 as well.

    >>> scale_values(np.array([0, 126, 127, 130, 255], dtype=np.uint8)).tolist()
    [0.0, 0.5, 1.0, 8.0, nan]
    """
    powers = (scales.astype(np.uint32) << 23).view(np.float32)  # the byte is a float32's exponent; 0 gives 0
    return np.where(scales == 255, np.float32(np.nan), powers)


def pack_slots(
    k_codes: np.ndarray, k_scales: np.ndarray, v_codes: np.ndarray, v_scales: np.ndarray, padded_slot: int = SLOT_BYTES
) -> np.ndarray:
    """Lay codes (..., 256) and scale bytes (..., 8) out as slots.

    Returns
    -------
    array of uint8, shape (..., padded_slot)
        Padding is 0.
    """
    slots = np.zeros((*k_codes.shape[:-1], padded_slot), dtype=np.uint8)
    slots[..., K_CODES] = pack_codes(k_codes)
    slots[..., K_SCALES] = k_scales
    slots[..., V_CODES] = pack_codes(v_codes)
    slots[..., V_SCALES] = v_scales
    return slots


def unpack_slots(slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Undo :func:`pack_slots`: ``k_codes, k_scales, v_codes, v_scales`` of uint8 slots (..., padded_slot)."""
    return (
        unpack_codes(slots[..., K_CODES]),
        slots[..., K_SCALES],
        unpack_codes(slots[..., V_CODES]),
        slots[..., V_SCALES],
    )


def dequantise(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the values of codes (..., n) with one scale byte for each 32 of them, in float32 of shape (..., n).

    Every value is exact in float32 and, where it is a normal number, in bfloat16.
    """
    grouped = codes.reshape(*scales.shape, SCALE_GROUP)
    with np.errstate(over="ignore"):  # 6 * 2**127 is infinite in bfloat16 too
        return (E2M1[grouped] * scale_values(scales)[..., None]).reshape(codes.shape)


def dequantise_slots(slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotated K and the (unrotated) V of uint8 slots (..., padded_slot): float32, (..., 256) each."""
    k_codes, k_scales, v_codes, v_scales = unpack_slots(slots)
    return dequantise(k_codes, k_scales), dequantise(v_codes, v_scales)
