"""From q, k and v to what the rocke kernels are given: quantised keys and values, scales, codebooks and block masks.

Arrays in are those of :mod:`kernbench.specs.inputs`, ``(1, token, head, d)``; arrays out are ``(token, head, d)``, in
the formats of :mod:`kernbench.specs.rocke.layouts`. All is a function of the spec and the arrays, so that kernel and
reference are given the same.
"""

from __future__ import annotations

import numpy as np

from kernbench.errors import SpecError
from kernbench.specs.fmha import JengaSpec, SageSpec, SparseSpec, VsaSpec
from kernbench.specs.rocke.layouts import encode_fp8, make_scales, pack_i4
from kernbench.specs.rocke.sage import CODEBOOK_ENTRIES
from kernbench.specs.rocke.sparsity import kept_by_jenga, kept_by_vsa, lut_from_bitmap

Arrays = dict[str, np.ndarray]

_FP8_TOP = 128.0
"""Where the largest key of a block comes to lie: inside the range of both fp8 formats."""


def sage_inputs(spec: SageSpec, arrays: Arrays) -> Arrays:
    """Quantise q, k and v for a sage kernel.

    Each block of q is divided by a power of two (which is exact), each block of k by its largest number; the factors
    are the scales. V has no scale in these kernels: its codebook holds the size of its steps.

    Parameters
    ----------
    spec
        Formats and scale layouts.
    arrays
        ``q``, ``k``, ``v``; any further ones take the place of those that are made.

    Returns
    -------
    dict
        ``q, k, v, q_scale, k_scale``, and for i8 and i4 ``codebook_k, codebook_v``.
    """
    rocke = spec.rocke()
    q, k, v = (arrays[name][0].astype(np.float32) for name in "qkv")
    q_factor = 2.0 ** np.ceil(np.log2(_largest(q, rocke.q_scale.scale_block)))
    entries = CODEBOOK_ENTRIES.get(spec.quant_mode)
    tops = {"fp16_bf16": 1.0, "fp8_bf16": _FP8_TOP}
    top = (entries // 2 - 1) / (entries // 2) if entries else tops[spec.quant_mode]
    k_factor = _largest(k, rocke.k_scale.scale_block) / top
    made = {
        "q": (q / _per_token(q_factor, rocke.q_scale.scale_block, len(q))).astype(arrays["q"].dtype),
        "q_scale": make_scales(rocke.q_scale, q_factor, spec.T_q),
        "k_scale": make_scales(rocke.k_scale, k_factor, spec.S_kv),
    }
    scaled = k / _per_token(k_factor.astype(np.float32), rocke.k_scale.scale_block, len(k))
    if spec.quant_mode == "fp16_bf16":
        made |= {"k": scaled.astype(arrays["k"].dtype), "v": arrays["v"][0]}
    elif spec.quant_mode == "fp8_bf16":
        made |= {"k": encode_fp8(scaled, spec.arch), "v": encode_fp8(v, spec.arch)}
    else:
        made |= _codes(scaled, v, CODEBOOK_ENTRIES[spec.quant_mode] // 2)
    return {name: arrays.get(name, array) if name not in ("q", "k", "v") else array for name, array in made.items()}


def _codes(k: np.ndarray, v: np.ndarray, half: int) -> Arrays:
    """Round k, which is at most 1, and v to integers of ``-half ... half - 1``, and make their codebooks."""
    codes = np.arange(-half, half, dtype=np.float32)
    step = np.float32(max(np.abs(v).max(initial=0), 1e-30) / (half - 1))
    found: Arrays = {"codebook_k": codes / half, "codebook_v": codes * step}
    for name, x in (("k", k * half), ("v", v / step)):
        rounded = np.clip(np.rint(x), -half, half - 1).astype(np.int8)
        found[name] = rounded if half == 128 else pack_i4(rounded)
    return found


def _largest(x: np.ndarray, block: int) -> np.ndarray:
    """Return the largest magnitude of each head and block of tokens (of all, if ``block`` is 0); never 0."""
    size = block or len(x)
    starts = np.arange(0, len(x), size)
    return np.maximum(np.maximum.reduceat(np.abs(x).max(axis=2), starts, axis=0).T, 1e-30)


def _per_token(factors: np.ndarray, block: int, tokens: int) -> np.ndarray:
    """Return the factor of each token and head, ``(tokens, heads, 1)``."""
    return factors.T[np.arange(tokens) // (block or tokens), :, None]


# ---------------------------------------------------------------- masks
def block_mask(spec: SparseSpec, arrays: Arrays | None) -> np.ndarray:
    """Choose the blocks of keys that each block of queries keeps.

    Returns
    -------
    array of int8, shape (blocks of queries, blocks of keys)

    Raises
    ------
    SpecError
        If ``mask=scores`` and there are no arrays.
    """
    shape = (-(-spec.T_q // spec.block_q), spec.S_kv // spec.block_k)
    if spec.mask == "random":
        weight = np.random.default_rng(spec.mask_seed).random(shape)
    elif arrays is None:
        raise SpecError("mask=scores needs values: use mode both or values, or mask=random")
    else:
        weight = _weight_of_blocks(spec, arrays, shape)
    kept = np.zeros(shape, np.int8)
    order = np.argsort(-weight, axis=1, kind="stable")
    np.put_along_axis(kept, order[:, : spec.kept_blocks], 1, axis=1)
    return kept


def _weight_of_blocks(spec: SparseSpec, arrays: Arrays, shape: tuple[int, int]) -> np.ndarray:
    """Add up the softmax weights of each pair of blocks over all heads."""
    weight = np.zeros(shape)
    rows = np.arange(0, spec.T_q, spec.block_q)
    for head in range(spec.h_q):
        q, k = (arrays[name][0].astype(np.float32) for name in "qk")
        scores = q[:, head] @ k[:, head // spec.group].T * np.float32(spec.scale_log2)
        p = np.exp2(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        by_key_block = p.reshape(spec.T_q, shape[1], spec.block_k).sum(axis=2)
        weight += np.add.reduceat(by_key_block, rows, axis=0)
    return weight


def jenga_mask(spec: JengaSpec, arrays: Arrays | None) -> np.ndarray:
    """Return the bitmap of a Jenga kernel: that of ``arrays["mask"]``, if there is one, or :func:`block_mask`."""
    return block_mask(spec, arrays) if arrays is None or "mask" not in arrays else arrays["mask"]


def vsa_lists(spec: VsaSpec, arrays: Arrays | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the lists of a VSA kernel: those of ``arrays``, if it has them, or :func:`block_mask` as lists.

    In ``arrays`` they are called ``block_lut`` and ``block_count``.

    Raises
    ------
    InputError
        If a block id is out of range.
    """
    if arrays is None or "block_lut" not in arrays:
        return lut_from_bitmap(block_mask(spec, arrays), spec.max_blocks_per_q)
    lists = arrays["block_lut"], arrays["block_count"]
    kept_by_vsa(spec.rocke(), *lists)  # checks them
    return lists


def kept_rows(spec: SparseSpec, arrays: Arrays | None) -> np.ndarray:
    """Return which blocks of keys each tile of the spatial form keeps: bool, (tiles of queries, blocks of keys)."""
    if isinstance(spec, VsaSpec):
        keys = kept_by_vsa(spec.rocke(), *vsa_lists(spec, arrays))
    else:
        assert isinstance(spec, JengaSpec)
        keys = kept_by_jenga(spec.rocke(), jenga_mask(spec, arrays))
    return keys[:: spec.query_tile, :: spec.block_k]
