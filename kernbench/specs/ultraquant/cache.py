"""The paged cache: storing tokens into it, finding them through block tables, and reading them back as floats."""

from __future__ import annotations

import numpy as np

from kernbench.errors import InputError
from kernbench.specs.ultraquant.layout import HEAD_SIZE, dequantise_slots
from kernbench.specs.ultraquant.quantiser import quantise_slots
from kernbench.specs.ultraquant.rotation import Variant
from kernbench.specs.ultraquant.spec import UltraQuantDecodeSpec


def empty_cache(spec: UltraQuantDecodeSpec, num_blocks: int) -> np.ndarray:
    """Return a cache of zeros: uint8 (num_blocks, kv_block_size, num_kv_heads, padded_slot)."""
    return np.zeros(spec.check().cache_shape(num_blocks), dtype=np.uint8)


def slot_mapping(spec: UltraQuantDecodeSpec, block_table: np.ndarray, num_tokens: int) -> np.ndarray:
    """Return ``block * kv_block_size + position`` of the first tokens of a sequence.

    Parameters
    ----------
    block_table : integers, shape (max_blocks_per_seq,)
        The sequence's row.

    Returns
    -------
    array of int64, shape (num_tokens,)
    """
    index, position = np.divmod(np.arange(num_tokens), spec.kv_block_size)
    return np.asarray(block_table, dtype=np.int64)[index] * spec.kv_block_size + position


def store_tokens(
    spec: UltraQuantDecodeSpec,
    cache: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    mapping: np.ndarray,
    variant: Variant = "reference",
) -> None:
    """Quantise tokens and write them into ``cache``, as the store kernel does.

    Parameters
    ----------
    cache : array of uint8, shape (blocks, kv_block_size, num_kv_heads, padded_slot)
        Changed in place. Bytes of padding keep what they hold.
    keys, values : arrays, shape (tokens, num_kv_heads, 256)
        In natural order, not rotated.
    mapping : integers, shape (tokens,)
        Where each token goes (:func:`slot_mapping`); one below 0 is not stored.
    variant
        See :func:`~kernbench.specs.ultraquant.quantiser.quantise`.

    Raises
    ------
    InputError
        If shapes disagree, a slot is beyond the cache or named twice, or a stored value is not finite.
    """
    _check_cache(spec, cache)
    expected = (len(mapping), spec.num_kv_heads, HEAD_SIZE)
    if keys.shape != expected or values.shape != expected:
        raise InputError(f"keys {keys.shape} and values {values.shape} must have shape {expected}")
    kept = mapping >= 0
    targets = np.asarray(mapping)[kept]
    slots = cache.shape[0] * cache.shape[1]
    if (targets >= slots).any():
        raise InputError(f"slot_mapping names slot {targets.max()}; the cache has {slots}")
    if len(np.unique(targets)) != len(targets):
        raise InputError("slot_mapping names a slot twice: which token stays would depend on timing")
    packed = quantise_slots(keys[kept], values[kept], variant=variant)
    block, position = np.divmod(targets, spec.kv_block_size)
    cache[block, position, :, : packed.shape[-1]] = packed


def read_tokens(
    spec: UltraQuantDecodeSpec, cache: np.ndarray, block_table: np.ndarray, num_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Read the first tokens of a sequence back.

    Returns
    -------
    k_rot, v : arrays of float32, shape (num_tokens, num_kv_heads, 256)
        K as it is stored, rotated; multiply by :func:`~kernbench.specs.ultraquant.rotation.hadamard` to undo that.

    Raises
    ------
    InputError
        If the block table names a block that the cache does not have.
    """
    _check_cache(spec, cache)
    block, position = np.divmod(slot_mapping(spec, block_table, num_tokens), spec.kv_block_size)
    check_blocks(block, cache)
    return dequantise_slots(cache[block, position])


def check_blocks(blocks: np.ndarray, cache: np.ndarray) -> None:
    """Raise InputError if ``blocks`` names one that ``cache`` does not have."""
    wrong = blocks[(blocks < 0) | (blocks >= len(cache))]
    if wrong.size:
        raise InputError(f"the block table names block {wrong.flat[0]}; the cache has {len(cache)}")


def _check_cache(spec: UltraQuantDecodeSpec, cache: np.ndarray) -> None:
    expected = spec.check().cache_shape(len(cache))
    if cache.shape != expected or cache.dtype != np.uint8:
        raise InputError(f"the cache is {cache.dtype} {cache.shape}; the spec asks for uint8 {expected}")
