"""``jenga_sparse`` and ``vsa_sparse``: values, what they cost, and odd masks and lists."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.errors import InputError, SpecError
from kernbench.run import run_bench
from kernbench.specs.fmha import JengaSpec, VsaSpec
from kernbench.specs.fmha_inputs import block_mask, vsa_lists
from kernbench.specs.inputs import make_inputs
from kernbench.specs.rocke import jenga_faithful, vsa_faithful

SMALL = {"T_q": 64, "S_kv": 128, "h_q": 4, "h_kv": 2, "block_q": 32, "block_k": 32}
ROW4 = kb.load_machine("row4_pe8")
SIX = kb.load_machine("row4_pe8", {"sip.cubes.columns": 3, "cube.pes.columns": 2, "cube.pes.rows": 1})
FAMILIES = {"jenga_sparse": JengaSpec, "vsa_sparse": VsaSpec}
FORMS = ["faithful", "spatial"]


def values_of(name, spec, arrays, machine=SIX):
    bench = find_bench(name)
    args, o = bench.arguments(spec, machine, arrays)
    kb.execute(kb.record(bench.kernel, machine, args=args))
    return bench.output(spec, o)


def random_arrays(spec, seed=0):
    return make_inputs(spec, "random", seed).arrays


def off_by(actual, right, dtype):
    """Return the largest difference in ulps; an ulp is that of a number as large as the row's largest, at least."""
    bits = {"f16": 10, "bf16": 7}[dtype]
    top = np.abs(right.astype(np.float64)).max(axis=-1, keepdims=True)
    ulp = 2.0 ** (np.floor(np.log2(np.maximum(top, 2.0**-14))) - bits)
    return float((np.abs(actual.astype(np.float64) - right.astype(np.float64)) / ulp).max())


def lists(spec, *rows):
    """Make a list and counts; a row is ``(count, ids)``."""
    lut = np.zeros((len(rows), spec.max_blocks_per_q), np.int32)
    for line, (_, ids) in zip(lut, rows, strict=True):
        line[: len(ids)] = ids
    return {"block_lut": lut, "block_count": np.array([count for count, _ in rows], np.int32)}


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("block_q", [1, 16, 24, 64])
@pytest.mark.parametrize("d", [32, 128])
def test_faithful_equals_the_original_operation_by_operation(block_q, d, dtype):
    fields = SMALL | {"block_q": block_q, "d_head": d, "dtype": dtype, "form": "faithful"}
    for name, kind in FAMILIES.items():
        spec = kind(**fields)
        arrays = random_arrays(spec)
        qkv = (arrays[x][0] for x in "qkv")
        structure = vsa_lists(spec, None) if name == "vsa_sparse" else (block_mask(spec, None),)
        original = vsa_faithful if name == "vsa_sparse" else jenga_faithful
        right = original(spec.rocke(), *qkv, *structure, spec.scale_log2)
        actual = values_of(name, spec, arrays)
        assert off_by(actual[0], right, dtype) <= 2
        assert (actual[0] != right).mean() < 0.04  # probabilities are rounded where the original rounds them
        if dtype == "f16":
            assert np.abs(actual - find_bench(name).reference(spec, arrays)).max() < 5e-3


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_specs_of_the_spatial_form_are_right(data):
    draw = data.draw
    name = draw(st.sampled_from(list(FAMILIES)), "family")
    block_k, h_kv = 16 * draw(st.integers(1, 3), "block_k / 16"), draw(st.integers(1, 3), "h_kv")
    spec = FAMILIES[name](
        T_q=16 * draw(st.integers(1, 6), "T_q / 16"),
        S_kv=block_k * draw(st.integers(1, 9), "blocks"),
        h_q=h_kv * draw(st.integers(1, 3), "group"),
        h_kv=h_kv,
        d_head=draw(st.sampled_from([32, 64]), "d"),
        block_q=draw(st.sampled_from([1, 16, 24, 32, 48, 64]), "block_q"),
        block_k=block_k,
        density=draw(st.floats(0.01, 1), "density"),
        mask=draw(st.sampled_from(["random", "scores"]), "mask"),
        mask_seed=draw(st.integers(0, 9), "mask_seed"),
        TILE_Q=draw(st.integers(16, 64), "TILE_Q"),
        TILE_S_KV=draw(st.integers(1, 60), "TILE_S_KV"),
        reduction=draw(st.sampled_from(["chain", "tree", "butterfly"]), "reduction"),
        split_tiles=draw(st.sampled_from([(), ("pe",)]), "split_tiles"),
        split_S_kv=draw(st.sampled_from([(), ("cube",), ("sip", "cube")]), "split_S_kv"),
    )
    result = run_bench(find_bench(name), SIX, spec, mode="values", inputs="random", seed=draw(st.integers(0, 99), "s"))
    assert result.correctness.passed, result.correctness


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", ["random", "scores"])
def test_captured_tensors_and_masks_made_of_their_scores(name, form, mask):
    spec = FAMILIES[name](T_q=64, S_kv=256, block_k=16, mask=mask, form=form)
    result = run_bench(find_bench(name), ROW4, spec, mode="values")
    assert result.inputs == "captured"
    assert result.correctness.passed


def test_a_mask_of_scores_keeps_the_blocks_with_the_most_weight():
    spec = JengaSpec(**SMALL, mask="scores", density=0.25)
    arrays = random_arrays(spec)
    arrays["k"][0, 64:96] *= 8
    assert block_mask(spec, arrays).tolist() == [[0, 0, 1, 0]] * 2


# ---------------------------------------------------------------- odd structures
@pytest.mark.parametrize("form", FORMS)
def test_any_byte_but_0_keeps_a_block(form):
    spec = JengaSpec(**SMALL, form=form)
    arrays = random_arrays(spec)
    bits = np.array([[1, 0, 1, 0], [0, 1, 0, 1]], np.int8)
    odd = np.array([[-1, 0, 2, 0], [0, 127, 0, -128]], np.int8)
    plain, same = (values_of("jenga_sparse", spec, arrays | {"mask": mask}) for mask in (bits, odd))
    np.testing.assert_array_equal(plain, same)


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_keys_are_the_mean_of_v_or_0(form):
    spec = JengaSpec(**SMALL, form=form)
    arrays = random_arrays(spec) | {"mask": np.array([[1, 0, 0, 0], [0, 0, 0, 0]], np.int8)}
    actual = values_of("jenga_sparse", spec, arrays)[0].astype(np.float64)
    mean = np.repeat(arrays["v"][0].astype(np.float64).mean(axis=0), 2, axis=0)
    np.testing.assert_allclose(actual[32:], np.broadcast_to(mean if form == "faithful" else 0, (32, 4, 64)), atol=1e-3)
    reference = find_bench("jenga_sparse").reference(spec, arrays)[0]
    assert np.abs(actual - reference).max() < 5e-3
    assert np.abs(actual[:32]).max() > 0.1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("rows", "same_as"),
    [
        ([(3, [2, 0, 2]), (4, [1, 1, 1, 1])], [[1, 0, 1, 0], [0, 1, 0, 0]]),  # repeated, in any order
        ([(0, [1, 2]), (-3, [1])], [[0, 0, 0, 0], [0, 0, 0, 0]]),  # none
        ([(9, [3, 1, 0, 2]), (1, [2, 99, -5])], [[1, 1, 1, 1], [0, 0, 1, 0]]),  # too many; rubbish behind the count
    ],
)
def test_a_list_means_the_set_of_its_first_blocks(form, rows, same_as):
    vsa = VsaSpec(**SMALL, max_blocks_per_q=4, form=form)
    jenga = JengaSpec(**SMALL, form=form)
    arrays = random_arrays(vsa)
    listed = values_of("vsa_sparse", vsa, arrays | lists(vsa, *rows))
    masked = values_of("jenga_sparse", jenga, arrays | {"mask": np.array(same_as, np.int8)})
    np.testing.assert_array_equal(listed, masked)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [4, -1])
def test_block_ids_out_of_range_are_errors(form, block):
    spec = VsaSpec(**SMALL, max_blocks_per_q=2, form=form)
    arrays = random_arrays(spec) | lists(spec, (1, [0]), (2, [1, block]))
    with pytest.raises(InputError, match=rf"block id {block} in row 1 is out of range: there are blocks 0 \.\.\. 3"):
        values_of("vsa_sparse", spec, arrays)


# ---------------------------------------------------------------- what it costs
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("d", [64, 128])
def test_faithful_costs_what_the_original_costs_whatever_the_mask(name, d):
    """2 D/16 matrix instructions and 2 * 512 D/16 bytes a tile, SQ/16 HQ SK D 4 bytes in all, and all are loaded."""
    bench, found = find_bench(name), []
    room = {"max_blocks_per_q": 4} if name == "vsa_sparse" else {}
    for density in (0.25, 1.0):
        spec = FAMILIES[name](**SMALL, **room, d_head=d, density=density, form="faithful")
        found.append(run_bench(bench, SIX, spec, mode="time"))
        args, _ = bench.arguments(spec, SIX, None)
        trace = kb.record(bench.kernel, SIX, args=args)
    tiles, programs = 128 // 16, 64 // 16 * 4
    structure = tiles if name == "jenga_sparse" else 4 * 4 + 4  # a byte of the mask a tile; the list, once a program
    for result in found:
        assert result.flops == programs * tiles * (2 * d // 16) * (2 * 16**3)
        assert result.hbm_bytes == programs * (128 * d * 4 + 2 * 16 * d * 2 + structure)
    assert found[0].makespan_ps == found[1].makespan_ps
    exponentials = sum(
        len(cls.pes) * sum(c.work[0] for c in cls.commands if c.op == "vector" and c.name == "exp2")
        for cls in trace.classes
    )
    assert exponentials == programs * tiles * (16 * 16 + 16)


@pytest.mark.parametrize("name", FAMILIES)
def test_spatial_loads_the_kept_blocks_alone(name):
    spec = FAMILIES[name](**SMALL, density=0.5)
    result = run_bench(find_bench(name), SIX, spec, mode="time")
    kept = 2 * 2 * 2  # two blocks for each of two tiles, each of two key/value heads
    queries = 64 * 4 * 64 * 2
    control = 2 * 2 * 3 * 4 + kept * 4  # counts of three CUBEs, and ids
    assert result.flops == kept * 2 * (2 * 64 * 32 * 64)
    assert result.hbm_bytes == kept * 2 * 32 * 64 * 2 + 4 * queries + control  # three CUBEs read Q, one stores O


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("number", [0, 2, 4])
def test_spatial_is_faster_than_faithful(name, number):
    bench, times = find_bench(name), []
    for case, form in zip(bench.cases[number : number + 2], FORMS, strict=True):
        assert case.settings["form"] == form
        settings = {field: value for field, value in case.settings.items() if field != "mask"}
        times.append(run_bench(bench, ROW4, bench.spec(**settings), mode="time").makespan_ps)
    assert times[1] < times[0]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("form", FORMS)
def test_both_engines_agree(name, form):
    spec, bench = FAMILIES[name](**SMALL, form=form), find_bench(name)
    compiled, simpy = (run_bench(bench, SIX, spec, mode="time", engine=e) for e in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"T_q": 40}, "seqlen_q=40 is not a multiple of 16"),
        ({"S_kv": 100}, "seqlen_k=100 is not a multiple of block_k=64"),
        ({"block_k": 24, "S_kv": 48}, "block_k=24 is not a multiple of 16"),
        ({"density": 0}, "share of the blocks of keys"),
    ],
)
def test_bad_specs_are_explained(fields, message):
    with pytest.raises(SpecError, match=message):
        JengaSpec(**fields)


def test_a_mask_of_scores_needs_values():
    with pytest.raises(SpecError, match="mask=scores needs values"):
        run_bench(find_bench("jenga_sparse"), SIX, JengaSpec(mask="scores"), mode="time")
