"""``mla_decode``: values against the float64 reference, what it loads, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.errors import SpecError
from kernbench.run import run_bench
from kernbench.specs.correctness import compare
from kernbench.specs.inputs import make_inputs
from kernbench.specs.mla import MlaDecodeSpec

SOURCE = Path(__file__).parent.parent / "benches" / "mla_decode.py"
SMALL = {"h_q": 3, "d_head": 24, "d_rope": 8, "TILE_S_KV": 8}
REDUCTIONS = ["chain", "tree", "butterfly", "ring_all_reduce", "none"]


@pytest.fixture(scope="module")
def bench():
    return find_bench("mla_decode")


def machine_of(cubes=3, columns=2, rows=2):
    return kb.load_machine(
        "row4_pe8",
        {"sip.cubes.columns": cubes, "cube.pes.columns": columns, "cube.pes.rows": rows, "pe.channel.depth": 1},
    )


def assert_right(bench, machine, spec, seed=0):
    result = run_bench(bench, machine, spec, mode="values", seed=seed)
    assert result.inputs == "random"
    assert result.correctness.passed, result.correctness


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("S_kv", [1, 7, 300])
@pytest.mark.parametrize("machine", [(1, 1, 1), (2, 1, 1), (3, 2, 2), (4, 4, 2)])
def test_the_sizes_of_deepseek_are_right_on_any_machine(bench, machine, S_kv):
    assert_right(bench, machine_of(*machine), MlaDecodeSpec(S_kv=S_kv))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "splits",
    [
        {},
        {"split_heads": "pe", "split_S_kv": "cube"},
        {"split_heads": "cube", "split_S_kv": "pe"},
        {"split_batch": "cube", "split_S_kv": "pe"},
        {"split_heads": "cube,pe", "split_S_kv": "none"},
        {"split_S_kv": "cube"},
    ],
    ids=lambda splits: "-".join(splits.values()) or "all",
)
def test_batch_heads_and_cache_may_go_to_any_level(bench, splits, reduction):
    spec = MlaDecodeSpec(**SMALL, batch=2, T_q=3, S_kv=50, reduction=reduction, **splits)
    assert_right(bench, machine_of(), spec)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_specs_are_right(bench, data):
    draw = data.draw
    T_q, rope = draw(st.integers(1, 4), "T_q"), draw(st.integers(1, 16), "d_rope")
    spec = MlaDecodeSpec(
        batch=draw(st.integers(1, 2), "batch"),
        T_q=T_q,
        S_kv=draw(st.integers(T_q, 200), "S_kv"),
        h_q=draw(st.integers(1, 9), "h_q"),
        d_rope=rope,
        d_head=rope + draw(st.integers(16, 48), "d_latent"),
        dtype=draw(st.sampled_from(["f16", "f32"]), "dtype"),
        causal=draw(st.booleans(), "causal"),
        TILE_S_KV=draw(st.integers(1, 80), "tile"),
        buffers=draw(st.integers(1, 3), "buffers"),
        softmax_scale=draw(st.sampled_from([None, 0.2]), "scale"),
        reduction=draw(st.sampled_from(REDUCTIONS), "reduction"),
    )
    assert_right(bench, machine_of(), spec, seed=draw(st.integers(0, 99), "seed"))


def test_values_are_the_latents_alone(bench):
    """With one key the output is its latent part, whatever the rotary part."""
    spec = MlaDecodeSpec(**SMALL, S_kv=1, dtype="f32")
    arrays = make_inputs(spec, "random", 0).arrays
    assert {name: a.shape for name, a in arrays.items()} == {"q": (1, 1, 3, 24), "kv": (1, 1, 24)}
    args, o = bench.arguments(spec, machine_of(), arrays)
    kb.execute(kb.record(bench.kernel, machine_of(), args=args))
    np.testing.assert_allclose(bench.output(spec, o)[0, 0], np.tile(arrays["kv"][0, :, :16], (3, 1)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_one_dropped_tile_fails_wherever_it_is(bench, dtype):
    loop = "        n = min(spec.TILE_S_KV, kv.shape[1] - start)\n"
    source = SOURCE.read_text()
    assert source.count(loop) == 1
    mutant = source.replace(loop, f"        if kv.origin[1] + start == DROPPED:\n            continue\n{loop}")
    namespace = {"__name__": "mutant"}
    exec(compile(mutant, "mutant.py", "exec"), namespace)
    machine, spec = machine_of(4, 4, 2), MlaDecodeSpec(S_kv=2048, TILE_S_KV=64, dtype=dtype, h_q=4)
    arrays = make_inputs(spec, "random", 0).arrays
    right = bench.reference(spec, arrays)
    for key in (-1, 0, 64 * 13, 2048 - 64):
        namespace["DROPPED"] = key
        args, out = bench.arguments(spec, machine, arrays)
        kb.execute(kb.record(namespace["mla_decode"], machine, args=args))
        found = compare(bench.output(spec, out), right, bench.tolerance(spec))
        assert found.passed == (key < 0), f"tile at key {key}: {found}"


# ---------------------------------------------------------------- what moves
def test_each_cache_row_is_loaded_once(bench):
    spec = MlaDecodeSpec(S_kv=1000)
    result = run_bench(bench, machine_of(), spec, mode="time")
    cache, queries, output = 1000 * 576, 12 * 16 * 576, 16 * 512  # each PE loads the queries
    assert result.hbm_bytes == 2 * (cache + queries + output)
    assert result.flops == 2 * 1000 * 16 * (576 + 512)


def test_parts_of_the_heads_read_the_cache_for_themselves(bench):
    spec = MlaDecodeSpec(S_kv=1000, split_heads="cube", split_S_kv="pe")
    result = run_bench(bench, machine_of(4), spec, mode="time")
    assert result.hbm_bytes == 2 * (4 * 1000 * 576 + 4 * 16 * 576 + 16 * 512)


def test_messages_carry_the_latent_width(bench):
    args, _ = bench.arguments(MlaDecodeSpec(S_kv=100), machine_of(), None)
    trace = kb.record(bench.kernel, machine_of(), args=args)
    sent = [(len(cls.pes), c.nbytes) for cls in trace.classes for c in cls.commands if c.op == "send"]
    assert sum(pes for pes, _ in sent) == 3 * 11
    assert sum(pes * nbytes for pes, nbytes in sent) == 11 * 16 * (512 + 2) * 4


def test_both_engines_agree(bench):
    spec = MlaDecodeSpec(**SMALL, S_kv=100, buffers=2)
    compiled, simpy = (run_bench(bench, machine_of(), spec, mode="time", engine=e) for e in ("compiled", "simpy"))
    assert compiled.makespan_ps == simpy.makespan_ps


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize("inputs", ["captured", "some.npz"])
def test_only_random_inputs_fit(bench, inputs):
    with pytest.raises(SpecError, match=r"q, k and v, but this bench takes q, kv: use random inputs"):
        run_bench(bench, machine_of(), MlaDecodeSpec(), inputs=inputs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_rope": 576}, "d_rope=576 leaves nothing of d_head=576"),
        ({"h_kv": 2}, "spec field h_kv .* cannot be 2"),
        ({"split_heads": "pe"}, "level 'pe' is named 2 times"),
    ],
)
def test_bad_specs_are_explained(fields, message):
    with pytest.raises(SpecError, match=message):
        MlaDecodeSpec(**fields)
