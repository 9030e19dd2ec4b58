"""UltraQuant: decode attention over a paged 4-bit KV cache, heads of 256 elements, as vLLM runs it on gfx950.

``UltraQuantDecodeSpec`` describes one build of the kernel; ``layout``, ``rotation`` and ``quantiser`` are the format of
the cache, ``cache`` its pages, ``sizing`` the launcher's choices, ``work`` the bytes and instructions. Two references:
``truth`` in float64, and ``faithful`` in the order and with the roundings of the kernel. The document is
``docs/families-ultraquant.md``.
"""

from kernbench.specs.ultraquant.cache import empty_cache, read_tokens, slot_mapping, store_tokens
from kernbench.specs.ultraquant.faithful import Partials, decode_faithful, decode_partitions, reduce_partitions
from kernbench.specs.ultraquant.layout import (
    E2M1,
    HEAD_SIZE,
    SCALE_GROUP,
    SLOT_BYTES,
    dequantise,
    dequantise_slots,
    pack_slots,
    unpack_slots,
)
from kernbench.specs.ultraquant.quantiser import Quantised, quantise, quantise_slots
from kernbench.specs.ultraquant.rotation import hadamard, query_permutation, rotate_keys, rotate_queries, to_e4m3
from kernbench.specs.ultraquant.sizing import TILE_GROUP_TOKENS, LaunchSizes, launch_sizes, rotates_in_kernel
from kernbench.specs.ultraquant.spec import (
    TILE_TOKENS,
    TILES_PER_GROUP,
    Argument,
    Tile,
    UltraQuantDecodeSpec,
    UpstreamDefectWarning,
)
from kernbench.specs.ultraquant.truth import decode_over_cache, decode_unquantised
from kernbench.specs.ultraquant.work import TILE_BYTES, TILE_GROUP_BYTES, DecodeWork, decode_work

__all__ = [
    "E2M1", "HEAD_SIZE", "SCALE_GROUP", "SLOT_BYTES", "TILES_PER_GROUP", "TILE_BYTES", "TILE_GROUP_BYTES",
    "TILE_GROUP_TOKENS", "TILE_TOKENS", "Argument", "DecodeWork", "LaunchSizes", "Partials", "Quantised", "Tile",
    "UltraQuantDecodeSpec", "UpstreamDefectWarning", "decode_faithful", "decode_over_cache", "decode_partitions",
    "decode_unquantised", "decode_work", "dequantise", "dequantise_slots", "empty_cache", "hadamard", "launch_sizes",
    "pack_slots", "quantise", "quantise_slots", "query_permutation", "read_tokens", "reduce_partitions", "rotate_keys",
    "rotate_queries", "rotates_in_kernel", "slot_mapping", "store_tokens", "to_e4m3", "unpack_slots",
]  # fmt: skip
