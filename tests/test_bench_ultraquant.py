"""``ultraquant_decode`` and ``ultraquant_reduce``: values, bytes, counts and time of both forms; what is refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.errors import SpecError
from kernbench.run import run_bench
from kernbench.specs import ultraquant as uq
from kernbench.specs.attention import spec_from_settings
from kernbench.specs.correctness import compare
from kernbench.specs.inputs import make_inputs
from kernbench.specs.ultraquant.bench_spec import UltraQuantBenchSpec, place_blocks

SOURCE = Path(__file__).parent.parent / "benches" / "ultraquant_decode.py"
LENGTHS = (1, 15, 16, 17, 255, 256, 257)
TILE, TILE_GROUP = 4352, 69632
"""Bytes that the original loads of the cache for 16 tokens and for 256, of one key/value head."""


@pytest.fixture(scope="module")
def bench():
    return find_bench("ultraquant_decode")


@pytest.fixture(scope="module")
def reducer():
    return find_bench("ultraquant_reduce")


@pytest.fixture(scope="module")
def row4():
    return kb.load_machine("row4_pe8")


@pytest.fixture(scope="module")
def small():
    return machine_of()


def machine_of(cubes=3, columns=2, rows=2):
    shape = {"sip.cubes.columns": cubes, "cube.pes.columns": columns, "cube.pes.rows": rows, "pe.channel.depth": 1}
    return kb.load_machine("row4_pe8", shape)


def executed(bench, machine, spec, seed=0, kernel=None):
    """Execute the kernel; return the inputs and the tensors of results."""
    arrays = make_inputs(spec, "random", seed).arrays
    args, results = bench.arguments(spec, machine, arrays)
    kb.execute(kb.record(kernel or bench.kernel, machine, args=args))
    return arrays, results


def cached(spec, arrays):
    """Quantise the inputs into a cache with blocks of its own; return it with its block tables."""
    tables, num_blocks = place_blocks(spec)
    cache = uq.empty_cache(spec.decode, num_blocks)
    start = 0
    for table, n in zip(tables, spec.lengths, strict=True):
        k, v = arrays["keys"][start : start + n], arrays["values"][start : start + n]
        uq.store_tokens(spec.decode, cache, k, v, uq.slot_mapping(spec.decode, table, n))
        start += n
    return cache, tables


def assert_partials_right(spec, arrays, results):
    """Hold what partitions stored against the bit-faithful reference, and the merged output against float64."""
    cache, tables = cached(spec, arrays)
    right = uq.decode_partitions(spec.decode, arrays["query"], cache, tables, spec.lengths)
    out, sums, maxima = (tensor.numpy() for tensor in results)
    np.testing.assert_allclose(maxima, right.max_logits, rtol=1e-5)
    np.testing.assert_allclose(sums, right.exp_sums, rtol=1e-3)
    expected = right.out.astype(np.float64)
    ulp = np.exp2(np.floor(np.log2(np.maximum(abs(expected), 1e-30))) - 7)
    assert (abs(out.astype(np.float64) - expected) <= 2 * ulp + 1e-4).all()


def assert_output_right(bench, spec, arrays, results):
    right = bench.reference(spec, arrays)
    found = compare(bench.output(spec, results), right, bench.tolerance(spec))
    assert found.cosine > 0.9999, found
    assert found.passed, found


def assert_right(bench, machine, spec, seed=0):
    arrays, results = executed(bench, machine, spec, seed)
    assert_output_right(bench, spec, arrays, results)
    if spec.form == "faithful":
        assert_partials_right(spec, arrays, results)


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("form", ["faithful", "spatial"])
@pytest.mark.parametrize(("group", "heads", "size"), [(6, 2, 16), (8, 1, 64), (16, 2, 256), (8, 2, 32), (6, 1, 128)])
def test_every_edge_of_tiles_and_blocks_is_right(bench, small, form, group, heads, size):
    spec = UltraQuantBenchSpec(
        form=form, num_seqs=7, seq_lens=LENGTHS, query_group_size=group, num_kv_heads=heads, kv_block_size=size,
        block_order="shuffled", max_blocks_per_seq=600 // size + 1,
    )  # fmt: skip
    assert_right(bench, small, spec)


@pytest.mark.parametrize("groups", [1, 2])
def test_partitions_take_every_p_th_tile_group(bench, small, groups):
    spec = UltraQuantBenchSpec(
        num_seqs=2, seq_lens=(700 * groups, 30), num_partitions=3, tile_groups_per_partition=groups
    )
    assert_right(bench, small, spec)


def test_empty_partitions_store_nothing_but_that_they_are_empty(bench, small):
    spec = UltraQuantBenchSpec(num_seqs=2, seq_lens=(300, 0), num_partitions=4)
    arrays, (out, sums, maxima) = executed(bench, small, spec)
    empty = (spec.decode.trips(300, 2), spec.decode.trips(300, 3), spec.decode.trips(0, 0))
    assert empty == (0, 0, 0)
    for seq, first in ((0, 2), (1, 0)):
        assert (out.numpy()[seq, :, first:] == 0).all()
        assert (sums.numpy()[seq, :, first:] == 0).all()
        assert (maxima.numpy()[seq, :, first:] == -np.inf).all()
    assert_partials_right(spec, arrays, (out, sums, maxima))
    assert (bench.output(spec, (out, sums, maxima))[1] == 0).all()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_specs_are_right(bench, small, data):
    draw = data.draw
    lengths = draw(st.lists(st.integers(0, 600), min_size=1, max_size=4).filter(any), "lengths")
    split = draw(st.sampled_from([("none", "cube,pe"), ("cube", "pe"), ("pe", "cube"), ("none", "pe")]), "split")
    spec = UltraQuantBenchSpec(
        form=draw(st.sampled_from(["faithful", "spatial"]), "form"),
        num_seqs=len(lengths),
        seq_lens=lengths,
        num_kv_heads=draw(st.integers(1, 3), "heads"),
        query_group_size=draw(st.sampled_from([6, 8, 16]), "group"),
        kv_block_size=draw(st.sampled_from([16, 32, 64, 128, 256]), "block"),
        padded_slot=draw(st.sampled_from([272, 288]), "slot"),
        num_partitions=draw(st.integers(3, 5), "partitions"),
        block_order=draw(st.sampled_from(["in_a_row", "shuffled"]), "order"),
        softmax_scale=draw(st.sampled_from([None, 0.1]), "scale"),
        tile_tokens=draw(st.sampled_from([16, 64, 256, 512]), "tile"),
        buffers=draw(st.integers(1, 3), "buffers"),
        split_seqs=split[0],
        split_tokens=split[1],
        reduction=draw(st.sampled_from(["chain", "tree", "butterfly"]), "reduction"),
    )
    assert_right(bench, small, spec, seed=draw(st.integers(0, 99), "seed"))


@pytest.mark.parametrize("lengths", [(2000,), (1, 257, 0)])
def test_two_launches_do_what_the_original_does(bench, reducer, small, lengths):
    spec = UltraQuantBenchSpec(num_seqs=len(lengths), seq_lens=lengths, num_kv_heads=2, query_group_size=6)
    arrays, partials = executed(bench, small, spec)
    (*_, o, _), _ = reducer.arguments(spec, small, arrays)
    kb.execute(kb.record(reducer.kernel, small, args=(*partials, o, spec)))
    merged = bench.output(spec, partials).astype(np.float64)
    np.testing.assert_allclose(o.numpy().astype(np.float64), merged, rtol=2**-7, atol=1e-6)


def test_the_reducer_is_right_on_partials_of_the_reference(reducer, small):
    spec = UltraQuantBenchSpec(num_seqs=3, seq_lens=(1, 600, 256), query_group_size=16)
    assert run_bench(reducer, small, spec, mode="values").correctness.passed


@pytest.mark.parametrize(
    ("form", "step", "first"), [("faithful", "add_tile", "start"), ("spatial", "add_tokens", "token")]
)
def test_one_dropped_tile_fails_wherever_it_is(bench, row4, form, step, first):
    call = f"                {step}(" if form == "faithful" else f"            {step}("
    source = SOURCE.read_text()
    assert source.count(call) == 1
    namespace = {"__name__": "mutant"}
    mutant = source.replace(call, call.replace(step, f"{first} == DROPPED or {step}"))
    exec(compile(mutant, "mutant.py", "exec"), namespace)
    spec = UltraQuantBenchSpec(form=form, seq_lens=2048, kv_block_size=16, tile_tokens=16)
    for token in (-1, 0, 1008, 2032):
        namespace["DROPPED"] = token
        arrays, results = executed(bench, row4, spec, kernel=namespace["decode"])
        found = compare(bench.output(spec, results), bench.reference(spec, arrays), bench.tolerance(spec))
        assert found.passed == (token < 0), f"tile at token {token}: {found}"


# ---------------------------------------------------------------- bytes and counts
def commands(bench, machine, spec):
    """Go through (PEs, command) of every class."""
    args, _ = bench.arguments(spec, machine, None)
    trace = kb.record(bench.kernel, machine, args=args)
    return [(len(cls.pes), command) for cls in trace.classes for command in cls.commands]


@pytest.mark.parametrize("group", [6, 8, 16])
@pytest.mark.parametrize(("lengths", "heads", "groups"), [((1,), 1, 1), ((257, 16), 2, 3), ((700, 513), 1, 6)])
def test_faithful_loads_and_stores_what_the_original_does(bench, row4, lengths, heads, groups, group):
    spec = UltraQuantBenchSpec(
        num_seqs=len(lengths), seq_lens=lengths, num_kv_heads=heads, query_group_size=group, num_partitions=4
    )
    found = commands(bench, row4, spec)
    loads = [(pes, c.nbytes) for pes, c in found if c.op == "load" and c.name == "load"]
    workgroups, tiles = 4 * len(lengths) * heads, 16 * groups * heads
    assert sum(pes * nbytes for pes, nbytes in loads) == TILE * tiles + workgroups * 512 * group
    assert TILE * tiles == TILE_GROUP * groups * heads == uq.decode_work(spec.decode, lengths).loaded_bytes
    assert sum(pes * c.nbytes for pes, c in found if c.op == "store") == workgroups * 520 * group
    scalars = sum(pes for pes, c in found if c.name == "load_scalar")
    assert scalars == tiles + workgroups  # a block for each tile and a length for each workgroup


def test_faithful_computes_what_the_original_does(bench, row4):
    spec = UltraQuantBenchSpec(seq_lens=300, query_group_size=16)
    found, tiles = commands(bench, row4, spec), 32
    scores = [(pes, c.work) for pes, c in found if c.name == "dot_scaled"]
    values = [(pes, c.work) for pes, c in found if c.name == "dot"]
    assert {work for _, work in scores} == {(1, 16, 16, 2 * 128)}  # 2 instructions of 16 x 16 x 128
    assert {work for _, work in values} == {(1, 16, 16 * 16, 16)}  # 16 instructions of 16 x 16 x 16
    assert sum(pes for pes, _ in scores) == sum(pes for pes, _ in values) == tiles
    exponentials = sum(pes * c.work[0] for pes, c in found if c.name == "exp2")
    assert exponentials == tiles * (4 * 64 + 16)  # 4 scores a lane of 64, and one factor for each query head
    rotations = [(pes, c.work) for pes, c in found if c.name == "hadamard"]
    assert {work[0] for _, work in rotations} == {16 * 256}
    assert sum(pes for pes, _ in rotations) == spec.decode.num_partitions


@pytest.mark.parametrize("lengths", [(1,), (257, 16), (1000, 513)])
def test_spatial_loads_each_token_once_and_nothing_past_the_end(bench, row4, lengths):
    spec = UltraQuantBenchSpec(form="spatial", num_seqs=len(lengths), seq_lens=lengths, num_kv_heads=2)
    found = commands(bench, row4, spec)
    loads = sum(pes * c.nbytes for pes, c in found if c.op == "load" and c.name == "load")
    assert loads == 2 * 272 * sum(lengths) + 32 * len(lengths) * 2 * 8 * 512  # and each PE the queries
    assert sum(pes * c.nbytes for pes, c in found if c.op == "store") == len(lengths) * 2 * 8 * 512


def test_spatial_merges_blocks_that_lie_in_a_row(bench):
    one = machine_of(1, 1, 1)
    ordered, shuffled = (
        sum(c.name == "dot_scaled" for _, c in commands(bench, one, spec))
        for spec in (UltraQuantBenchSpec(form="spatial", seq_lens=1024, block_order=order)
                     for order in ("in_a_row", "shuffled"))
    )  # fmt: skip
    assert ordered == 1024 // 256
    assert ordered < shuffled <= 1024 // 64


# ---------------------------------------------------------------- time
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"seq_lens": 1},
        {"seq_lens": 257, "query_group_size": 6, "num_kv_heads": 2},
        {"seq_lens": 16384, "query_group_size": 16},
        {"seq_lens": 4096, "kv_block_size": 16, "block_order": "shuffled"},
        {"num_seqs": 4, "seq_lens": "2048,100,700,1"},
    ],
    ids=str,
)
def test_spatial_is_faster(bench, row4, fields):
    """Even though the faithful form has the whole cache in every memory, and its second launch is not counted."""
    faithful, spatial = (
        run_bench(bench, row4, UltraQuantBenchSpec(form=form, **fields), mode="time")
        for form in ("faithful", "spatial")
    )
    assert spatial.makespan_ps < faithful.makespan_ps


@pytest.mark.parametrize("form", ["faithful", "spatial"])
def test_both_engines_agree(bench, small, form):
    spec = UltraQuantBenchSpec(form=form, seq_lens=400, num_partitions=2)
    compiled, simpy = (run_bench(bench, small, spec, mode="time", engine=engine) for engine in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps


# ---------------------------------------------------------------- specs
def test_text_makes_the_same_spec(bench):
    text = spec_from_settings(bench.spec, {"num_seqs": "2", "seq_lens": "600, 17", "query_group_size": "6"})
    assert text == UltraQuantBenchSpec(num_seqs=2, seq_lens=(600, 17), query_group_size=6)
    assert spec_from_settings(bench.spec, {"num_seqs": "3", "seq_lens": "9"}).lengths == (9, 9, 9)
    assert text.decode == uq.UltraQuantDecodeSpec.launched(
        num_seqs=2, num_kv_heads=1, query_group_size=6, kv_block_size=64, max_blocks_per_seq=10
    )


@pytest.mark.parametrize("inputs", ["captured", "some.npz"])
def test_only_random_inputs_fit(bench, small, inputs):
    with pytest.raises(SpecError, match="q, k and v, but this bench takes query, keys, values: use random inputs"):
        run_bench(bench, small, UltraQuantBenchSpec(), inputs=inputs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seq_lens": 1025, "num_partitions": 4}, r"1025 tokens, but .*= 1024 are covered"),
        ({"seq_lens": 2049, "num_partitions": 4, "tile_groups_per_partition": 2}, r"2049 tokens, but .*= 2048"),
        ({"seq_lens": 65, "max_blocks_per_seq": 1}, r"65 tokens; 0 to .* = 64 are possible"),
        ({"seq_lens": "1,2"}, r"2 lengths for num_seqs=1"),
        ({"seq_lens": -1}, r"cannot be"),
        ({"query_group_size": 7}, r"query_group_size=7 must be one of 6, 8, 16"),
        ({"kv_block_size": 0}, r"kv_block_size=0 must be one of"),
        ({"padded_slot": 270}, r"padded_slot=270 must be"),
        ({"tile_tokens": 96}, r"tile_tokens=96 and kv_block_size=64: one must divide"),
        ({"split_seqs": "pe"}, r"level 'pe' is named 2 times"),
        ({"seq_len": 4}, r"unknown spec field 'seq_len' \(did you mean 'seq_lens'\?\)"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        UltraQuantBenchSpec(**fields)


def test_partitions_do_not_limit_the_spatial_form():
    assert UltraQuantBenchSpec(form="spatial", seq_lens=1025, num_partitions=4).lengths == (1025,)
