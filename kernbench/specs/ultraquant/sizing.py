"""How the launcher of UltraQuant decode chooses the number of partitions, and when the kernel rotates Q itself.

Source: the launcher in vLLM 0.33.0 (``flydsl_ultraquant_decode.py``).
"""

from __future__ import annotations

from typing import NamedTuple

from kernbench.errors import SpecError
from kernbench.specs.ultraquant.layout import HEAD_SIZE

TILE_GROUP_TOKENS = 256
"""Tokens of one tile-group: the unit that partitions own."""
DEFAULT_SPLITS = 32
"""Splits that the launcher asks for when nobody else does."""
_SMALL_BATCH = 8
_MOST_PARTITIONS_SMALL_BATCH = 512
_MOST_PARTITIONS = 256
_LEAST_TOKENS_PER_PARTITION = 192


class LaunchSizes(NamedTuple):
    """What the launcher chooses."""

    num_partitions: int
    """Partitions that each sequence and key/value head is split into; a power of two, at least 2."""
    tile_groups_per_partition: int
    """Most tile-groups that one partition handles; a power of two."""


def launch_sizes(batch: int, max_tokens: int, splits: int = DEFAULT_SPLITS) -> LaunchSizes:
    """Choose partitions as the launcher does.

    Parameters
    ----------
    batch
        Sequences.
    max_tokens
        Tokens that a row of the block table can hold, ``block_tables.shape[1] * kv_block_size``: the worst case, not
        the real lengths.
    splits
        Splits to aim at for short sequences.

    Raises
    ------
    SpecError
        If ``batch`` or ``max_tokens`` is less than 1.

    >>> launch_sizes(batch=4, max_tokens=75008)
    LaunchSizes(num_partitions=512, tile_groups_per_partition=1)
    """
    if batch < 1 or max_tokens < 1:
        raise SpecError(f"batch={batch} and max_tokens={max_tokens} must both be at least 1")
    most = _MOST_PARTITIONS_SMALL_BATCH if batch <= _SMALL_BATCH else _MOST_PARTITIONS
    tile_groups = _ceil_div(max_tokens, TILE_GROUP_TOKENS)
    wanted = max(min(most, max(1, splits)), min(most, tile_groups))
    wanted = min(wanted, _ceil_div(max_tokens, _LEAST_TOKENS_PER_PARTITION))
    partitions = max(2, _next_power_of_two(wanted))
    return LaunchSizes(partitions, _next_power_of_two(max(1, _ceil_div(tile_groups, partitions))))


def rotates_in_kernel(head_size: int, stride_q_head: int, stride_q_dim: int = 1) -> bool:
    """Say whether the launcher lets the kernel rotate Q (``fuse_qrot``) rather than a kernel before it.

    Parameters
    ----------
    head_size
        Elements of a head.
    stride_q_head, stride_q_dim
        Strides of the query tensor, in elements. The stride from sequence to sequence does not matter: queries are
        usually a slice of a tensor that holds q, k and v.

    >>> rotates_in_kernel(256, stride_q_head=256), rotates_in_kernel(256, stride_q_head=512)
    (True, False)
    """
    return head_size == HEAD_SIZE and stride_q_dim == 1 and stride_q_head == HEAD_SIZE


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
