"""Which blocks of keys a query tile sees: bitmaps for Jenga, lists for VSA, and ways between them.

Both structures are shared by all heads and hold absolute block ids. CK Tile's sparse attention (``50_sparse_attn``)
holds them per batch and head, and its lists as differences: :func:`shared_by_heads` and :func:`lut_from_delta` come
from there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from kernbench.errors import InputError
from kernbench.specs.rocke.common import TILE_ROWS
from kernbench.specs.rocke.sparse import JengaSparseSpec, VsaSparseSpec


def jenga_bitmap(spec: JengaSparseSpec | VsaSparseSpec, blocks: Sequence[Iterable[int]]) -> np.ndarray:
    """Make a bitmap from the blocks of keys that each block of queries sees.

    Parameters
    ----------
    spec
        Gives the shape.
    blocks
        One iterable of block ids per block of queries.

    Returns
    -------
    array of int8, shape (num_q_blocks, num_k_blocks)
        1 keeps a block.

    >>> from kernbench.specs.rocke import FmhaCommonSpec, FmhaShape
    >>> spec = JengaSparseSpec(FmhaCommonSpec(FmhaShape(64, 2, 2)), 32, 64, block_q=16, block_k=32)
    >>> jenga_bitmap(spec, [[0], [0, 1]]).tolist()
    [[1, 0], [1, 1]]
    """
    if len(blocks) != spec.num_q_blocks:
        raise InputError(f"there are {spec.num_q_blocks} blocks of queries, and lists for {len(blocks)}")
    bitmap = np.zeros((spec.num_q_blocks, spec.num_k_blocks), np.int8)
    for row, ids in enumerate(blocks):
        for block in ids:
            _check_id(int(block), row, spec.num_k_blocks)
            bitmap[row, block] = 1
    return bitmap


def vsa_lut(spec: VsaSparseSpec, blocks: Sequence[Iterable[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Make the two lists of VSA from the blocks of keys that each block of queries sees.

    Parameters
    ----------
    spec
        Gives the shapes.
    blocks
        One iterable of block ids per block of queries; order and repetition are kept.

    Returns
    -------
    block_lut : array of int32, shape (num_q_blocks, max_blocks_per_q)
        Unused places are 0.
    block_count : array of int32, shape (num_q_blocks,)
    """
    if len(blocks) != spec.num_q_blocks:
        raise InputError(f"there are {spec.num_q_blocks} blocks of queries, and lists for {len(blocks)}")
    lut = np.zeros((spec.num_q_blocks, spec.max_blocks_per_q), np.int32)
    count = np.zeros(spec.num_q_blocks, np.int32)
    for row, ids in enumerate(blocks):
        listed = [int(block) for block in ids]
        if len(listed) > spec.max_blocks_per_q:
            raise InputError(f"row {row} lists {len(listed)} blocks; max_blocks_per_q is {spec.max_blocks_per_q}")
        for block in listed:
            _check_id(block, row, spec.num_k_blocks)
        lut[row, : len(listed)] = listed
        count[row] = len(listed)
    return lut, count


def bitmap_from_lut(
    lut: np.ndarray, count: np.ndarray, num_k_blocks: int, *, compat: bool = False, rows: Iterable[int] | None = None
) -> np.ndarray:
    """Turn VSA's lists into a bitmap, as the kernel does in LDS.

    Parameters
    ----------
    lut : array of int32, shape (num_q_blocks, max_blocks_per_q)
    count : array of int32, shape (num_q_blocks,)
    num_k_blocks
        Columns of the bitmap.
    compat
        What to do with an id that is out of range in the part of a row that counts. False: an error. True: a warning,
        and the id is dropped. In the original that store goes outside the bitmap, which is undefined.
    rows
        Rows to read; all by default. The others stay 0.

    Returns
    -------
    array of int8, shape (num_q_blocks, num_k_blocks)

    >>> lut = np.array([[2, 0, 2], [1, 9, 9]], np.int32)
    >>> bitmap_from_lut(lut, np.array([7, 1], np.int32), num_k_blocks=3).tolist()
    [[1, 0, 1], [0, 1, 0]]
    """
    bitmap = np.zeros((lut.shape[0], num_k_blocks), np.int8)
    for row in range(lut.shape[0]) if rows is None else rows:
        for block in lut[row, : max(0, min(int(count[row]), lut.shape[1]))].tolist():
            if 0 <= block < num_k_blocks:
                bitmap[row, block] = 1
            elif not compat:
                _check_id(block, row, num_k_blocks)
            else:
                warnings.warn(f"block id {block} in row {row} is out of range: dropped", stacklevel=2)
    return bitmap


def lut_from_bitmap(bitmap: np.ndarray, max_blocks_per_q: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Turn a bitmap into VSA's lists, ascending; places that are not used are 0.

    Parameters
    ----------
    bitmap : array, shape (num_q_blocks, num_k_blocks)
        Not 0 keeps a block.
    max_blocks_per_q
        Columns of the list; as many as the fullest row needs by default, but at least 1.

    Raises
    ------
    InputError
        If a row keeps more blocks than the list has columns.

    >>> lut_from_bitmap(np.array([[0, 1, 1], [0, 0, 0]]))[0].tolist()
    [[1, 2], [0, 0]]
    """
    kept = np.asarray(bitmap) != 0
    count = kept.sum(axis=1).astype(np.int32)
    columns = max(1, int(count.max(initial=0))) if max_blocks_per_q is None else max_blocks_per_q
    if count.max(initial=0) > columns:
        raise InputError(f"row {int(count.argmax())} keeps {count.max()} blocks; max_blocks_per_q is {columns}")
    lut = np.zeros((kept.shape[0], columns), np.int32)
    for row, column in enumerate(kept):
        lut[row, : count[row]] = np.flatnonzero(column)
    return lut, count


def lut_from_delta(delta: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Turn CK Tile's list of differences into absolute block ids.

    Parameters
    ----------
    delta : array of int32, shape (..., max_blocks_per_q)
        Each id less the one before it; the first one as it is.
    count : array of int32, shape (...)
        Valid places of each row; the rest may hold anything.

    Returns
    -------
    array of int32, same shape
        Places beyond the count are 0.

    >>> lut_from_delta(np.array([[1, 2, 99]]), np.array([2])).tolist()
    [[1, 3, 0]]
    """
    valid = np.arange(delta.shape[-1]) < np.asarray(count)[..., None]
    absolute = np.cumsum(np.where(valid, delta, 0), axis=-1)
    return np.where(valid, absolute, 0).astype(np.int32)


def delta_from_lut(lut: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Undo :func:`lut_from_delta`; places beyond the count are 0."""
    valid = np.arange(lut.shape[-1]) < np.asarray(count)[..., None]
    return np.where(valid, np.diff(lut, axis=-1, prepend=0), 0).astype(np.int32)


def shared_by_heads(structure: np.ndarray) -> np.ndarray:
    """Take the one structure that all heads share from CK Tile's ``(batch, head, ...)``.

    Raises
    ------
    InputError
        If there is more than one batch, or the heads differ: these kernels read one structure for all heads.
    """
    if structure.ndim < 3 or structure.shape[0] != 1:
        raise InputError(f"shape {structure.shape} is not (1, head, blocks of queries, ...)")
    if not np.array_equal(structure, np.broadcast_to(structure[:, :1], structure.shape)):
        raise InputError("the heads have unlike structures: these kernels read one for all heads")
    return structure[0, 0].copy()


def density(bitmap: np.ndarray) -> float:
    """Return the share of blocks that are kept."""
    return float(np.count_nonzero(bitmap)) / max(1, bitmap.size)


def kept_by_jenga(spec: JengaSparseSpec, mask: np.ndarray) -> np.ndarray:
    """Return which keys each query row sees.

    Parameters
    ----------
    spec
        The kernel.
    mask : array of bytes or bool, shape (num_q_blocks, num_k_blocks)

    Returns
    -------
    array of bool, shape (seqlen_q, seqlen_k)
    """
    mask = np.asarray(mask)
    if mask.shape != (spec.num_q_blocks, spec.num_k_blocks) or mask.dtype not in (np.int8, np.uint8, np.bool_):
        raise InputError(
            f"mask must be bytes of shape {(spec.num_q_blocks, spec.num_k_blocks)}, not {mask.dtype} of {mask.shape}"
        )
    return _spread(spec, mask != 0)


def kept_by_vsa(spec: VsaSparseSpec, lut: np.ndarray, count: np.ndarray, *, compat: bool = False) -> np.ndarray:
    """Return which keys each query row sees.

    Parameters
    ----------
    spec
        The kernel.
    lut : array of int32, shape (num_q_blocks, max_blocks_per_q)
        Rows that no query tile reads may hold anything.
    count : array of int32, shape (num_q_blocks,)
    compat
        What to do with ids that are out of range; see :func:`bitmap_from_lut`.

    Returns
    -------
    array of bool, shape (seqlen_q, seqlen_k)
    """
    shape = (spec.num_q_blocks, spec.max_blocks_per_q)
    lut, count = np.asarray(lut), np.asarray(count)
    if lut.shape != shape or count.shape != shape[:1] or lut.dtype != np.int32 or count.dtype != np.int32:
        raise InputError(
            f"block_lut and block_count must be int32 of shapes {shape} and {shape[:1]}, "
            f"not {lut.dtype} of {lut.shape} and {count.dtype} of {count.shape}"
        )
    rows = sorted({spec.q_block_of_tile(tile) for tile in range(spec.seqlen_q // TILE_ROWS)})
    return _spread(spec, bitmap_from_lut(lut, count, spec.num_k_blocks, compat=compat, rows=rows) != 0)


def _spread(spec: JengaSparseSpec | VsaSparseSpec, bitmap: np.ndarray) -> np.ndarray:
    tile_row = np.arange(spec.seqlen_q) // TILE_ROWS * TILE_ROWS
    return bitmap[tile_row // spec.block_q][:, np.arange(spec.seqlen_k) // spec.block_k]


def _check_id(block: int, row: int, num_k_blocks: int) -> None:
    if not 0 <= block < num_k_blocks:
        raise InputError(f"block id {block} in row {row} is out of range: there are blocks 0 ... {num_k_blocks - 1}")
