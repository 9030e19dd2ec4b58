"""Launches the compiled UltraQuant decode kernel on the CPU and holds what it stores against the references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from kernbench.bench import find_bench
from kernbench.errors import InputError
from kernbench.machine import load_machine
from kernbench.realrun.amdgcn import Kernel, LaunchResult
from kernbench.realrun.flydsl.build import query_strides
from kernbench.run import run_bench
from kernbench.specs import ultraquant as uq
from kernbench.specs.correctness import Correctness, compare
from kernbench.specs.implementation import UltraQuantImplementation

MAX_RELATIVE, SUM_RELATIVE, OUT_ULPS, OUT_ABSOLUTE, COSINE = 1e-5, 1e-3, 2.0, 1e-4, 0.9999
"""How far the machine code may be from the reference: maxima, sums, outputs in bfloat16 ulps beyond an absolute
difference, and the cosine of the merged output with attention in float64."""
SCALED, BF16 = "scaled matrix instructions", "bf16 matrix instructions"
_LANES = 64
_ROW_BYTES = 2 * uq.HEAD_SIZE + 8
"""What a partition stores for a query head: output, sum and maximum."""


@dataclass(frozen=True)
class Inputs:
    """What one launch reads."""

    qkv: np.ndarray
    """bfloat16 (num_seqs, query heads + 2 key/value heads, 256): queries as a model's projection leaves them; the rest
    is NaN, so that reading it would show."""
    cache: np.ndarray
    """Slots of no sequence hold stale tokens, as a cache in use does."""
    block_tables: np.ndarray
    """In random order; entries without a block lead far out of the cache."""
    lengths: np.ndarray

    def query(self, spec: uq.UltraQuantDecodeSpec) -> np.ndarray:
        """Return the queries: bfloat16 (num_seqs, query heads, 256)."""
        return self.qkv[:, : spec.num_query_heads]


class Count(NamedTuple):
    """How much of something the machine code does."""

    name: str
    counted: int
    expected: int
    """In closed form, as kernbench describes the kernel."""


@dataclass(frozen=True)
class Check:
    """How one launch compares."""

    max_relative: float
    """Largest relative difference of a partition's maximum; infinite where only one of the two is empty."""
    sum_relative: float
    out_ulps: float
    """Largest difference of an output beyond ``OUT_ABSOLUTE``, in bfloat16 ulps of the reference."""
    out_absolute: float
    out_equal: float
    """Share of outputs with the same bits."""
    merged: Correctness
    """The merged output against attention in float64 over the dequantised cache."""
    lds: Count
    """Bytes of LDS of a workgroup."""
    counts: tuple[Count, ...]
    """What the launch does, over all its workgroups."""

    @property
    def unequal(self) -> tuple[Count, ...]:
        """Counts that are not as expected."""
        return tuple(c for c in (self.lds, *self.counts) if c.counted != c.expected)

    @property
    def passed(self) -> bool:
        """Whether everything is within its limit and every count is as expected."""
        return (
            self.max_relative <= MAX_RELATIVE
            and self.sum_relative <= SUM_RELATIVE
            and self.out_ulps <= OUT_ULPS
            and self.merged.cosine > COSINE
            and not self.unequal
        )


def make_spec(
    query_group: int, kv_heads: int, block_size: int, lengths: Sequence[int], partitions: int, tile_groups: int
) -> uq.UltraQuantDecodeSpec:
    """Return the spec of a launch whose query is a slice of a fused projection, as vLLM's is.

    Raises
    ------
    SpecError
        The kernel cannot be built so, or the partitions do not cover a length.
    """
    spec = uq.UltraQuantDecodeSpec(
        num_seqs=len(lengths), num_kv_heads=kv_heads, num_partitions=partitions, padded_slot=uq.SLOT_BYTES,
        max_blocks_per_seq=max(1, -(-max(lengths) // max(block_size, 1))), query_group_size=query_group,
        kv_block_size=block_size, tile_groups_per_partition=tile_groups,
        stride_q_seq=(kv_heads * query_group + 2 * kv_heads) * uq.HEAD_SIZE, stride_q_head=uq.HEAD_SIZE,
    )  # fmt: skip
    spec.check().attended_lengths(lengths)
    return spec


def make_inputs(spec: uq.UltraQuantDecodeSpec, lengths: Sequence[int], seed: int) -> Inputs:
    """Draw queries, a full cache and block tables."""
    rng = np.random.default_rng(seed)
    blocks = [-(-length // spec.kv_block_size) for length in lengths]
    num_blocks = sum(blocks) + 1
    tables = np.full((spec.num_seqs, spec.max_blocks_per_seq), 2**31 - 1, np.int32)
    free = rng.permutation(num_blocks).astype(np.int32)
    for row, n, end in zip(tables, blocks, np.cumsum(blocks), strict=True):
        row[:n] = free[end - n : end]
    tokens = num_blocks * spec.kv_block_size
    keys, values = rng.standard_normal((2, tokens, spec.num_kv_heads, uq.HEAD_SIZE)).astype(np.float32)
    cache = uq.empty_cache(spec, num_blocks)
    uq.store_tokens(spec, cache, keys, values, np.arange(tokens))
    qkv = np.full((spec.num_seqs, spec.num_query_heads + 2 * spec.num_kv_heads, uq.HEAD_SIZE), np.nan, np.float32)
    qkv[:, : spec.num_query_heads] = rng.standard_normal((spec.num_seqs, spec.num_query_heads, uq.HEAD_SIZE))
    return Inputs(qkv.astype(ml_dtypes.bfloat16), cache, tables, np.array(lengths, np.int32))


def launch(kernel: Kernel, spec: uq.UltraQuantDecodeSpec, inputs: Inputs) -> tuple[uq.Partials, LaunchResult]:
    """Execute the kernel; results are NaN before."""
    shape = tuple(int(n) for n in spec.signature()[1].shape)
    out = np.full((*shape, uq.HEAD_SIZE), np.nan, ml_dtypes.bfloat16)
    sums, maxima = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    centroids = np.full(16, np.nan, np.float32)  # read, and never used
    arrays = (out, sums, maxima, inputs.qkv, inputs.cache, centroids, inputs.block_tables, inputs.lengths)
    done = kernel.launch(spec.grid(), spec.block(), pack_arguments(kernel, spec, arrays))
    return uq.Partials(out, sums, maxima), done


def pack_arguments(kernel: Kernel, spec: uq.UltraQuantDecodeSpec, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Return what FlyDSL 0.5.0 passes: for each tensor its address, then its shape and strides.

    Extents are 32-bit and strides, in elements, 64-bit integers; that of the last axis, 1, is left out.

    Raises
    ------
    InputError
        The kernel takes something else.
    """
    packed: list[Any] = []
    for argument, array in zip(spec.signature(), arrays, strict=True):
        extents = [int(n) if n != "num_blocks" else len(array) for n in argument.shape]
        strides = query_strides(spec, argument.name) or [s // array.itemsize for s in array.strides]
        layout = np.array(extents, "<i4").tobytes() + np.array(strides[:-1], "<i8").tobytes()
        packed += [array, np.void(layout)]
    taken = [(a.kind, a.size) for a in kernel.arguments]
    given = [("global_buffer", 8) if i % 2 == 0 else ("by_value", value.nbytes) for i, value in enumerate(packed)]
    if taken != given:
        raise InputError(f"{kernel.name} takes {_said(taken)}; expected {_said(given)}, as FlyDSL 0.5.0 passes tensors")
    return packed


def _said(arguments: Sequence[tuple[str, int]]) -> str:
    return ", ".join("pointer" if kind == "global_buffer" else f"{size} bytes" for kind, size in arguments)


def check_launch(kernel: Kernel, spec: uq.UltraQuantDecodeSpec, inputs: Inputs) -> Check:
    """Execute the kernel and compare."""
    found, done = launch(kernel, spec, inputs)
    query, rest = inputs.query(spec), (inputs.cache, inputs.block_tables, inputs.lengths)
    expected = uq.decode_partitions(spec, query, *rest)
    truth = uq.decode_over_cache(spec, query, *rest)
    ulps, absolute = compare_outputs(found.out, expected.out)
    return Check(
        max_relative=compare_numbers(found.max_logits, expected.max_logits),
        sum_relative=compare_numbers(found.exp_sums, expected.exp_sums),
        out_ulps=ulps,
        out_absolute=absolute,
        out_equal=float((found.out.view(np.uint16) == expected.out.view(np.uint16)).mean()),
        merged=compare(uq.reduce_partitions(found).astype(np.float64), truth, 1e-2),
        lds=Count("LDS of a workgroup", kernel.text.descriptor["group_segment_fixed_size"], spec.lds_bytes),
        counts=count(spec, inputs, done),
    )


def compare_numbers(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest relative difference; infinite where one is not finite and the two are not equal.

    >>> compare_numbers(np.array([2.0, -np.inf, 0]), np.array([1.0, -np.inf, 0])), compare_numbers(np.nan, np.ones(1))
    (1.0, inf)
    """
    found, expected = np.broadcast_arrays(np.asarray(found, np.float64), np.asarray(expected, np.float64))
    differs = ~(found == expected)
    with np.errstate(all="ignore"):
        relative = np.abs(found[differs] - expected[differs]) / np.abs(expected[differs])
    return float(np.where(np.isfinite(relative), relative, np.inf).max(initial=0.0))


def compare_outputs(found: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Return the largest difference beyond ``OUT_ABSOLUTE`` in bfloat16 ulps of the expected, and the largest at all.

    >>> compare_outputs(np.array([1 + 2**-6, 2e-5]), np.array([1, 0.0]))
    (1.9872, 0.015625)
    """
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    difference = np.abs(found - expected)
    difference = np.where(np.isfinite(difference), difference, np.inf)
    ulp = np.ldexp(1.0, np.frexp(np.maximum(np.abs(expected), 2.0**-126))[1] - 8)
    beyond = np.maximum(difference - OUT_ABSOLUTE, 0) / ulp
    return float(beyond.max()), float(difference.max())


def count(spec: uq.UltraQuantDecodeSpec, inputs: Inputs, done: LaunchResult) -> tuple[Count, ...]:
    """Count what was executed, beside closed forms of the kernel that kernbench describes.

    Bytes are those that lanes ask for: all 64 ask for the one length and the one entry of the block table, two for
    each word of scales, and four store each sum and maximum. In LDS a tile's K, its scales as words and its V as
    bfloat16 are written and read once. The first factor on what was summed before is 1, which the compiler knows if
    there is only one tile-group.
    """
    work, lanes_word = uq.decode_work(spec, inputs.lengths), _LANES * 4
    tiles, workgroups = work.tiles, int(np.prod(spec.grid()))
    groups, rows = tiles // uq.TILES_PER_GROUP, work.partial_bytes // _ROW_BYTES
    exponentials = 5 * tiles - (groups if spec.tile_groups_per_partition == 1 else 0)
    codes = uq.TILE_TOKENS * uq.HEAD_SIZE  # of K and V, 4 bits each
    loaded = tiles * (codes + 3 * lanes_word) + work.query_bytes + workgroups * 2 * lanes_word
    kept = uq.TILE_TOKENS * (uq.HEAD_SIZE // 2 + 4 * uq.HEAD_SIZE // uq.SCALE_GROUP + 2 * uq.HEAD_SIZE)
    query = (workgroups - work.empty_workgroups) * uq.TILE_TOKENS * 2 * uq.HEAD_SIZE  # read as 16 rows
    return (
        Count(SCALED, _executed(done, "v_mfma_scale_"), work.score_dots),
        Count(BF16, _executed(done, "v_mfma_f32_16x16x16"), work.value_dots),
        Count("all matrix instructions", _executed(done, "v_mfma_"), work.score_dots + work.value_dots),
        Count("exponentials", _executed(done, "v_exp_f32"), exponentials),
        Count("bytes loaded", done.counters["global_read_bytes"], loaded),
        Count("bytes stored", done.counters["global_write_bytes"], work.partial_bytes + 3 * 8 * rows),
        Count("bytes of LDS", done.counters["lds_bytes"],
              2 * tiles * kept + work.query_bytes + workgroups * lanes_word + query),
    )  # fmt: skip


def charged(spec: uq.UltraQuantDecodeSpec, lengths: Sequence[int], machine: str = "mi355x") -> tuple[int, int]:
    """Return what the simulator charges for the launch: matrix operations, and bytes of memory behind its caches.

    Operations are those of the query heads; their time is that of whole instructions, of 16 columns.
    """
    bench = find_bench("ultraquant_decode")
    settings = {
        "num_seqs": spec.num_seqs, "num_kv_heads": spec.num_kv_heads, "query_group_size": spec.query_group_size,
        "kv_block_size": spec.kv_block_size, "max_blocks_per_seq": spec.max_blocks_per_seq,
        "num_partitions": spec.num_partitions, "tile_groups_per_partition": spec.tile_groups_per_partition,
        "seq_lens": tuple(lengths), "block_order": "shuffled",
    }  # fmt: skip
    chosen = UltraQuantImplementation(lds_bytes=spec.lds_bytes)
    made = run_bench(bench, load_machine(machine), bench.spec(**settings), implementation=chosen, mode="time")
    return made.flops or 0, made.hbm_bytes or 0  # mode time gives both


def operations(spec: uq.UltraQuantDecodeSpec, counts: Sequence[Count]) -> int:
    """Return the matrix operations that were counted, without those for columns beyond the query heads."""
    counted = {c.name: c.counted for c in counts}
    issued = counted[SCALED] * 2 * 16 * 16 * 128 + counted[BF16] * 2 * 16 * 16 * 16
    return issued * spec.query_group_size // 16


def _executed(done: LaunchResult, prefix: str) -> int:
    return sum(n for opcode, n in done.opcodes.items() if opcode.startswith(prefix))
