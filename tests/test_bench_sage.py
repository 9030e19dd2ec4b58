"""``sage_attention``: values against both references, what it costs, and what the two forms make of edge cases."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.errors import SpecError
from kernbench.run import run_bench
from kernbench.specs.fmha import SageSpec
from kernbench.specs.fmha_inputs import sage_inputs
from kernbench.specs.inputs import make_inputs
from kernbench.specs.rocke import sage_faithful

MODES = ["fp16_bf16", "fp8_bf16", "i8_fp8_bf16", "i4_fp8_bf16"]
SMALL = {"T_q": 32, "S_kv": 96, "h_q": 4, "h_kv": 2, "d_head": 128}
ROW4 = kb.load_machine("row4_pe8")
SIX = kb.load_machine("row4_pe8", {"sip.cubes.columns": 3, "cube.pes.columns": 2, "cube.pes.rows": 1})


@pytest.fixture(scope="module")
def bench():
    return find_bench("sage_attention")


def values_of(bench, spec, arrays, machine=SIX):
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


def assert_faithful(bench, spec, arrays):
    """Compare with the reference that follows each operation of the original, and with float64."""
    right = sage_faithful(spec.rocke(), **sage_inputs(spec, arrays), scale_log2=spec.scale_log2, arch=spec.arch)
    actual = values_of(bench, spec, arrays)
    assert off_by(actual[0], right, spec.dtype) <= 2
    assert (actual[0] != right).mean() < 0.04  # probabilities are rounded where the original rounds them
    if spec.dtype == "f16":
        assert np.abs(actual - bench.reference(spec, arrays)).max() < 5e-3


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("mask", ["none", "causal", "sliding_window"])
@pytest.mark.parametrize("mode", MODES)
def test_faithful_equals_the_original_operation_by_operation(bench, mode, mask):
    spec = SageSpec(**SMALL, quant_mode=mode, mask_mode=mask, sliding_window=9, form="faithful", k_scale_block=16)
    assert spec.rocke().route() == ("mfma" if mode in MODES[:2] else "warp")
    assert_faithful(bench, spec, random_arrays(spec))


@pytest.mark.parametrize(
    "fields",
    [
        {"q_scale": "per_block", "q_scale_block": 16, "k_scale": "per_head"},
        {"q_scale": "per_block", "q_scale_block": 48, "arch": "gfx942"},
        {"k_scale_block": 8, "S_kv": 100},  # the warp body: blocks of scales end within a run of keys
        {"k_scale_block": 200, "S_kv": 300, "q_scale": "per_block", "q_scale_block": 5, "T_q": 7},
        {"k_scale": "per_head", "T_q": 9, "arch": "gfx942"},
        {"dtype": "bf16"},
        {"h_q": 6, "h_kv": 1, "d_head": 64, "quant_mode": "fp16_bf16"},
    ],
)
def test_scales_formats_and_groups_are_those_of_the_original(bench, fields):
    spec = SageSpec(**(SMALL | {"form": "faithful", "quant_mode": "fp8_bf16"} | fields))
    assert_faithful(bench, spec, random_arrays(spec))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_specs_of_the_spatial_form_are_right(bench, data):
    draw = data.draw
    group = draw(st.integers(1, 3), "group")
    h_kv = draw(st.integers(1, 3), "h_kv")
    spec = SageSpec(
        quant_mode=draw(st.sampled_from(MODES), "mode"),
        arch=draw(st.sampled_from(["gfx942", "gfx950"]), "arch"),
        T_q=draw(st.integers(1, 70), "T_q"),
        S_kv=draw(st.integers(1, 150), "S_kv"),
        h_q=h_kv * group,
        h_kv=h_kv,
        d_head=128,
        dtype=draw(st.sampled_from(["f16", "bf16"]), "dtype"),
        mask_mode=draw(st.sampled_from(["none", "causal", "sliding_window"]), "mask"),
        sliding_window=draw(st.integers(1, 60), "window"),
        q_scale=draw(st.sampled_from(["per_head", "per_block"]), "q_scale"),
        k_scale=draw(st.sampled_from(["per_head", "per_block"]), "k_scale"),
        k_scale_block=draw(st.integers(1, 64), "block"),
        TILE_Q=draw(st.integers(1, 40), "TILE_Q"),
        TILE_S_KV=draw(st.integers(1, 60), "TILE_S_KV"),
        reduction=draw(st.sampled_from(["chain", "tree", "butterfly"]), "reduction"),
        split_tiles=draw(st.sampled_from([(), ("pe",)]), "split_tiles"),
        split_S_kv=draw(st.sampled_from([(), ("cube",), ("sip", "cube")]), "split_S_kv"),
        buffers=draw(st.integers(1, 2), "buffers"),
    )
    result = run_bench(bench, SIX, spec, mode="values", inputs="random", seed=draw(st.integers(0, 99), "seed"))
    assert result.correctness.passed, result.correctness


@pytest.mark.parametrize("form", ["faithful", "spatial"])
def test_captured_tensors_are_quantised(bench, form):
    spec = SageSpec(T_q=64, S_kv=256, form=form)
    result = run_bench(bench, ROW4, spec, mode="values")
    assert result.inputs == "captured"
    assert result.correctness.passed


@pytest.mark.parametrize("form", ["faithful", "spatial"])
def test_the_low_nibble_is_the_even_element(bench, form):
    spec = SageSpec(T_q=1, S_kv=1, h_q=1, h_kv=1, d_head=128, quant_mode="i4_fp8_bf16", form=form, k_scale="per_head")
    arrays = random_arrays(spec)
    arrays["codebook_v"] = np.arange(-8, 8, dtype=np.float32)
    packed = sage_inputs(spec, arrays)["v"][0, 0]
    expected = [(n ^ 8) - 8 for byte in packed.tolist() for n in (byte & 15, byte >> 4)]
    assert values_of(bench, spec, arrays).reshape(-1).tolist() == expected


# ---------------------------------------------------------------- which keys a row sees
@pytest.mark.parametrize("form", ["faithful", "spatial"])
@pytest.mark.parametrize(("T_q", "S_kv"), [(32, 16), (16, 48), (5, 9), (9, 5)])
@pytest.mark.parametrize(("mask", "window"), [("causal", 0), ("sliding_window", 3), ("sliding_window", 40)])
def test_masks_count_positions_from_the_start(bench, form, T_q, S_kv, mask, window):
    """Causal is aligned top-left; the window has no upper bound; a row without a key is the mean of V, or 0."""
    spec = SageSpec(
        T_q=T_q, S_kv=S_kv, h_q=1, h_kv=1, quant_mode="fp16_bf16", mask_mode=mask, sliding_window=window, form=form,
        TILE_Q=4, TILE_S_KV=8, softmax_scale=1e-6,
    )  # fmt: skip
    arrays = random_arrays(spec)
    actual, v = values_of(bench, spec, arrays)[0, :, 0], arrays["v"][0, :, 0].astype(np.float64)
    for row in range(T_q):
        seen = [key for key in range(S_kv) if (key <= row if mask == "causal" else row - key < window)]
        nothing = v.mean(axis=0) if form == "faithful" else np.zeros(64)
        expected = v[seen].mean(axis=0) if seen else nothing  # scores are almost 0, so all weights are the same
        np.testing.assert_allclose(actual[row].astype(np.float64), expected, atol=2e-3)


# ---------------------------------------------------------------- what it costs
def trace_of(bench, spec, machine=SIX):
    args, _ = bench.arguments(spec, machine, None)
    return kb.record(bench.kernel, machine, args=args)


def counted(trace, op, of=lambda command: 1):
    return sum(len(cls.pes) * sum(of(c) for c in cls.commands if c.op == op) for cls in trace.classes)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(("mode", "element"), [("fp16_bf16", 2), ("fp8_bf16", 1)])
def test_the_mfma_body_costs_what_the_original_costs(bench, mode, element, d):
    spec = SageSpec(**(SMALL | {"d_head": d}), quant_mode=mode, form="faithful", k_scale="per_head")
    tiles, programs = spec.S_kv // 16, spec.T_q // 16 * spec.h_q
    result, trace = run_bench(bench, SIX, spec, mode="time"), trace_of(bench, spec)
    assert result.flops == programs * tiles * (2 * d // 16) * (2 * 16**3)  # 2 D/16 matrix instructions a tile
    assert counted(trace, "dot") == programs * tiles * 2
    exponentials = counted(trace, "vector", lambda c: c.work[0] if c.name == "exp2" else 0)
    assert exponentials == programs * tiles * (16 * 16 + 16)  # P, and one a row (16 lanes do the same in the original)
    keys_and_values = programs * spec.S_kv * d * 2 * element  # f16: SQ/16 HQ SK D 4
    rest = programs * (2 * 16 * d * 2 + 2 * 4)  # Q and O, and the two scales of a head
    assert result.hbm_bytes == keys_and_values + rest


@pytest.mark.parametrize(("mode", "bits"), [("i8_fp8_bf16", 8), ("i4_fp8_bf16", 4)])
def test_the_warp_body_reads_all_keys_for_each_row(bench, mode, bits):
    spec = SageSpec(**SMALL, quant_mode=mode, form="faithful", k_scale="per_head", mask_mode="causal")
    result, programs = run_bench(bench, SIX, spec, mode="time"), spec.T_q * spec.h_q
    assert result.flops == 0
    codebooks = 2 * 4 * 2**bits
    a_row = spec.S_kv * 128 * 2 * bits // 8 + 2 * 128 * 2 + codebooks + 4 + 4 * (spec.S_kv // 96)
    assert result.hbm_bytes == programs * a_row


def test_the_spatial_form_loads_narrow_keys_that_some_query_sees(bench):
    fields = {"T_q": 64, "S_kv": 1024, "h_q": 4, "h_kv": 4, "d_head": 128, "TILE_Q": 64, "k_scale": "per_head"}
    small = 4 * 64 * (2 * 128 * 2 + 4)  # Q, O, factors; three CUBEs read Q and factors
    for mode, element in (("fp16_bf16", 2), ("fp8_bf16", 1)):
        spec = SageSpec(**fields, quant_mode=mode, split_S_kv="none")
        assert run_bench(bench, SIX, spec, mode="time").hbm_bytes == 2 * 4 * 1024 * 128 * element + small
        causal = SageSpec(**fields, quant_mode=mode, split_S_kv="none", mask_mode="causal")
        assert run_bench(bench, SIX, causal, mode="time").hbm_bytes == 2 * 4 * 128 * 128 * element + small


@pytest.mark.parametrize("number", range(0, 10, 2))
def test_spatial_is_faster_than_faithful(bench, number):
    faithful, spatial = bench.cases[number : number + 2]
    assert faithful.settings == spatial.settings | {"form": "faithful"}
    times = [run_bench(bench, ROW4, SageSpec(**c.settings), mode="time").makespan_ps for c in (faithful, spatial)]
    assert times[1] < times[0]


@pytest.mark.parametrize("form", ["faithful", "spatial"])
def test_both_engines_agree(bench, form):
    spec = SageSpec(T_q=32, S_kv=64, h_q=2, h_kv=1, form=form, mask_mode="causal", TILE_S_KV=16)
    compiled, simpy = (run_bench(bench, SIX, spec, mode="time", engine=e) for e in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps


ROW = re.compile(r"^\| `(\w+)` \| `(.*)` \|" + r" ([\d.]+) \|" * 4 + "$", flags=re.MULTILINE)
TABLE = ROW.findall((Path(__file__).parent.parent / "docs" / "families-rocke.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_table_of_the_document_is_true(row):
    name, text, *figures = row
    chosen, bench = dict(pair.split("=") for pair in text.split()), find_bench(name)
    results = [run_bench(bench, ROW4, bench.spec(**chosen, form=form), mode="time") for form in ("faithful", "spatial")]
    found = [r.makespan_ps / 1e6 for r in results] + [r.hbm_bytes / 1e6 for r in results]
    assert found == pytest.approx([float(figure) for figure in figures], rel=0.03, abs=0.06)


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quant_mode": "i4_fp8_bf16"}, "i4 can only be built for head_size=128, not 64"),
        ({"d_head": 32}, "head_size=32 is not a multiple of 64"),
        ({"arch": "gfx90a"}, "gfx90a has no fp8 byte format"),
        ({"mask_mode": "sliding_window"}, "needs sliding_window above 0"),
        ({"split_tiles": "cube"}, "level 'cube' is named 2 times"),
        ({"batch": 2}, "a launch serves one sequence"),
        ({"causal": True}, "not used: see mask_mode"),
    ],
)
def test_bad_specs_are_explained(fields, message):
    with pytest.raises(SpecError, match=message):
        SageSpec(**fields)
