"""``gqa_prefill``: values against the float64 reference for any machine and choice, and what moves, counted by hand."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.collectives import route_of
from kernbench.errors import DeadlockError, SpecError
from kernbench.run import run_bench
from kernbench.specs.correctness import compare
from kernbench.specs.inputs import make_inputs
from kernbench.specs.prefill import PrefillSpec

MACHINES = {
    # columns and rows of PEs, of CUBEs, and SIPs in a ring
    1: ((1, 1), (1, 1), 1),
    2: ((1, 1), (2, 1), 1),
    8: ((4, 2), (1, 1), 1),
    12: ((2, 2), (3, 1), 1),
    9: ((1, 1), (3, 1), 3),
}
WAYS = [
    {"kv": "home"},
    {"kv": "home", "kv_rows": "one"},
    {"kv": "home", "kv_rows": "copied"},
    {"kv": "multicast"},
    {"kv": "multicast", "multicast_over": "sip,cube,pe"},
    {"kv": "ring"},
    {"kv": "ring", "overlap": False},
]


@pytest.fixture(scope="module")
def bench():
    return find_bench("gqa_prefill")


def machine_of(ranks, **more):
    (pe_columns, pe_rows), (columns, rows), sips = MACHINES[ranks]
    shape = {
        "cube.pes.columns": pe_columns,
        "cube.pes.rows": pe_rows,
        "sip.cubes.columns": columns,
        "sip.cubes.rows": rows,
        "system.sips.columns": sips,
    }
    return kb.load_machine("sip4_grid4x4_pe8", shape | more)


def assert_right(bench, machine, spec, inputs="random", seed=0):
    result = run_bench(bench, machine, spec, mode="values", inputs=inputs, seed=seed)
    assert result.correctness.passed, result.correctness
    return result


def recorded(bench, machine, spec):
    args, _ = bench.arguments(spec, machine, None)
    return kb.record(bench.kernel, machine, args=args)


def count(trace, op):
    """(commands, bytes) of one kind over all PEs."""
    found = [(len(cls.pes), command.nbytes) for cls in trace.classes for command in cls.commands if command.op == op]
    return sum(pes for pes, _ in found), sum(pes * nbytes for pes, nbytes in found)


# ---------------------------------------------------------------- values
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
@pytest.mark.parametrize("ranks", [1, 9, 12])
def test_every_way_is_right_on_every_machine(bench, ranks, way):
    for deal, causal in (("striped", True), ("blocks", ranks != 12)):
        sizes = {"T_q": 31, "S_kv": 35, "TILE_Q": 2, "TILE_S_KV": 5, "d_head": 16, "h_q": 3, "h_kv": 1}
        assert_right(bench, machine_of(ranks), PrefillSpec(deal=deal, causal=causal, **sizes, **way))


@pytest.mark.parametrize("kv", ["home", "multicast", "ring"])
@pytest.mark.parametrize("tokens", [1, 7, 500])
def test_captured_inputs_are_right(bench, tokens, kv):
    assert_right(bench, machine_of(12), PrefillSpec(T_q=tokens, S_kv=tokens, kv=kv), inputs="captured")
    assert_right(bench, machine_of(2), PrefillSpec(T_q=tokens, S_kv=1024, kv=kv, deal="blocks"), inputs="captured")


@pytest.mark.parametrize("kv", ["home", "multicast", "ring"])
def test_one_token_and_fewer_tokens_than_pes(bench, kv):
    for T_q, S_kv in ((1, 1), (3, 3), (1, 30), (14, 15)):
        for deal in ("striped", "blocks"):
            spec = PrefillSpec(T_q=T_q, S_kv=S_kv, h_q=3, h_kv=1, d_head=8, kv=kv, deal=deal)
            assert_right(bench, machine_of(12), spec)


SPLITS = [
    {"split_heads": "cube", "split_Q": "pe"},
    {"split_heads": "pe", "split_Q": "cube", "multicast_over": "cube"},
    {"split_batch": "sip", "split_heads": "pe", "split_Q": "cube", "multicast_over": "cube"},
    {"split_batch": "pe", "split_Q": "sip,cube", "multicast_over": "sip"},
    {"split_Q": "pe"},
    {"split_Q": "cube", "multicast_over": "cube"},
    {"split_Q": "pe,sip"},
]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: "-".join(split.values()))
@pytest.mark.parametrize("kv", ["home", "multicast", "ring"])
def test_batch_heads_and_queries_may_go_to_any_level(bench, split, kv):
    spec = PrefillSpec(batch=2, T_q=11, S_kv=20, h_q=6, h_kv=2, d_head=8, TILE_Q=2, TILE_S_KV=5, kv=kv, **split)
    machine = machine_of(12, **{"system.sips.columns": 2, "cube.pes.rows": 1, "sip.cubes.columns": 2})
    assert_right(bench, machine, spec)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_specs_are_right(bench, data):
    draw = data.draw
    T_q = draw(st.integers(1, 40), "T_q")
    h_kv = draw(st.integers(1, 2), "h_kv")
    spec = PrefillSpec(
        batch=draw(st.integers(1, 2), "batch"),
        T_q=T_q,
        S_kv=draw(st.integers(T_q, 60), "S_kv"),
        h_q=h_kv * draw(st.integers(1, 3), "group"),
        h_kv=h_kv,
        d_head=draw(st.sampled_from([8, 24]), "d_head"),
        dtype=draw(st.sampled_from(["f16", "f32", "bf16"]), "dtype"),
        causal=draw(st.booleans(), "causal"),
        deal=draw(st.sampled_from(["striped", "blocks"]), "deal"),
        TILE_Q=draw(st.integers(3, 20), "TILE_Q"),
        TILE_S_KV=draw(st.integers(3, 40), "TILE_S_KV"),
        buffers=draw(st.integers(1, 3), "buffers"),
        **draw(st.sampled_from(WAYS), "way"),
    )
    machine = machine_of(draw(st.sampled_from([2, 8, 12]), "ranks"))
    assert_right(bench, machine, spec, seed=draw(st.integers(0, 99), "seed"))


# ---------------------------------------------------------------- the tolerance
@pytest.mark.parametrize("kv", ["home", "ring"])
@pytest.mark.parametrize("inputs", ["captured", "random"])
def test_one_dropped_tile_fails_wherever_it_is(bench, inputs, kv, monkeypatch):
    """A tile of 32 keys left out for one tile of queries: the one whose first query sees the key ``query``."""
    machine, spec = machine_of(2), PrefillSpec(T_q=256, S_kv=256, TILE_Q=16, TILE_S_KV=32, kv=kv, deal="blocks")
    module = sys.modules[bench.kernel.__module__]
    absorb, dropped = module.absorb, [None]

    def absorb_all_but(mine, K, V, keys, spec, *, tl):
        at_query, at_key = dropped[0] or (None, None)
        if not (at_query is not None and mine.first_key == at_query and keys.first == at_key):
            absorb(mine, K, V, keys, spec, tl=tl)

    monkeypatch.setattr(module, "absorb", absorb_all_but)
    arrays = make_inputs(spec, inputs, 0).arrays

    def error():
        args, out = bench.arguments(spec, machine, arrays)
        kb.execute(kb.record(bench.kernel, machine, args=args))
        return compare(bench.output(spec, out), bench.reference(spec, arrays), bench.tolerance(spec))

    assert error().passed
    for query, key in ((32, 0), (128, 96), (240, 128)):
        dropped[0] = (query, key)
        found = error()
        assert not found.passed, f"the tile at query {query}, key {key} is not missed: {found}"


# ---------------------------------------------------------------- what is computed and what moves
def visible_tiles(spec, ranks, home_rows):
    """Pairs of a query tile and a key tile of which some query sees some key, over all PEs, for one head."""
    pairs = 0
    for rank in range(ranks):
        blocks = np.array_split(np.arange(spec.T_q), ranks)
        tokens = np.arange(rank, spec.T_q, ranks) if spec.deal == "striped" else blocks[rank]
        for start in range(0, len(tokens), spec.TILE_Q):
            last = int(tokens[start : start + spec.TILE_Q][-1]) + spec.S_kv - spec.T_q if spec.causal else spec.S_kv - 1
            first = 0
            for rows in home_rows:
                pairs += sum(first + at <= last for at in range(0, rows, spec.TILE_S_KV))
                first += rows
    return pairs


@pytest.mark.parametrize("deal", ["striped", "blocks"])
@pytest.mark.parametrize("causal", [True, False])
def test_tiles_that_no_query_may_see_are_skipped(bench, causal, deal):
    spec = PrefillSpec(T_q=200, S_kv=260, TILE_Q=8, TILE_S_KV=16, causal=causal, deal=deal, h_q=2, h_kv=1)
    homes = [87, 87, 86]
    for way, rows in (({}, homes), ({"kv_rows": "copied"}, [260]), ({"kv": "multicast"}, homes)):
        trace = recorded(bench, machine_of(12), spec.replace(**way))
        assert count(trace, "dot")[0] == 2 * visible_tiles(spec, 12, rows)
    if causal:
        assert visible_tiles(spec, 12, homes) < 0.85 * visible_tiles(spec.replace(causal=False), 12, homes)


def test_ring_attention_skips_what_is_hidden_too(bench):
    """Striped, key tile j is hidden from query tile i < j of each PE; in blocks, all tiles of later PEs are."""
    spec = PrefillSpec(T_q=72, S_kv=72, TILE_Q=3, TILE_S_KV=3, h_q=1, h_kv=1, kv="ring")
    machine = machine_of(9)  # 9 PEs of 8 tokens: 3 tiles of 3, 3 and 2
    dots = {
        (causal, deal): count(recorded(bench, machine, spec.replace(causal=causal, deal=deal)), "dot")[0]
        for causal in (True, False)
        for deal in ("striped", "blocks")
    }
    assert dots[False, "striped"] == dots[False, "blocks"] == 2 * 9 * 9 * 3 * 3
    assert dots[True, "striped"] == 2 * 9 * 9 * (1 + 2 + 3)
    assert dots[True, "blocks"] == 2 * (9 * 8 // 2 * 3 * 3 + 9 * (1 + 2 + 3))


def test_bytes_from_memory_of_each_way(bench):
    """Not causal, so that every PE needs all: q and o once, K and V once for each loader."""
    size = 2 * 16 * 2  # bytes of K and V for one key
    q_and_o = 2 * 96 * 3 * 16 * 2
    spec = PrefillSpec(T_q=96, S_kv=100, h_q=3, h_kv=1, d_head=16, causal=False, TILE_Q=8, TILE_S_KV=16)
    for way, loaders in (
        ({}, 12),
        ({"kv_rows": "one"}, 12),
        ({"kv": "multicast"}, 3),
        ({"kv": "multicast", "multicast_over": "cube,pe"}, 1),
        ({"kv": "ring"}, 1),
        ({"kv": "ring", "overlap": False}, 1),
    ):
        result = run_bench(bench, machine_of(12), spec.replace(**way), mode="time")
        assert result.hbm_bytes == q_and_o + loaders * 100 * size, way


def test_smaller_query_tiles_load_more_often(bench):
    spec = PrefillSpec(T_q=96, S_kv=100, h_q=3, h_kv=1, d_head=16, causal=False, TILE_Q=8)
    for tile, passes in ((8, 1), (4, 2), (1, 8)):
        result = run_bench(bench, machine_of(12), spec.replace(TILE_Q=tile), mode="time")
        assert result.hbm_bytes == 2 * 96 * 3 * 16 * 2 + 12 * passes * 100 * 2 * 16 * 2


def test_messages_of_multicast(bench):
    """One for K and one for V, for each tile and each PE but the loader."""
    sizes = {"T_q": 96, "S_kv": 100, "h_q": 4, "h_kv": 2, "d_head": 16, "TILE_Q": 8, "TILE_S_KV": 16}
    spec = PrefillSpec(causal=False, kv="multicast", **sizes)
    steps = 2 * sum(-(-rows // 16) for rows in (34, 33, 33))  # heads x tiles
    assert count(recorded(bench, machine_of(12), spec), "send") == (2 * steps * 9, 9 * 100 * 2 * 2 * 16 * 2)
    one = spec.replace(multicast_over="cube,pe")
    assert count(recorded(bench, machine_of(12), one), "send") == (2 * steps * 11, 11 * 100 * 2 * 2 * 16 * 2)
    assert count(recorded(bench, machine_of(12), spec.replace(kv="home")), "send")[0] == 0


@pytest.mark.parametrize("overlap", [True, False])
def test_messages_of_the_ring(bench, overlap):
    """12 PEs: 9 steps round the rings of 2 x 2 PEs, of 4 messages, and 2 on the folded rows of CUBEs, of 2 (3 - 1)."""
    spec = PrefillSpec(T_q=96, S_kv=96, h_q=2, h_kv=2, d_head=16, TILE_S_KV=4, kv="ring", overlap=overlap)
    inside, outside = route_of(2, 2).messages, route_of(3, 1).messages
    assert (inside, outside) == (4, 4)
    tiles = 2 * 2 * 2  # heads x tiles of each PE x (K, V)
    messages = tiles * (9 * 3 * inside + 2 * 4 * outside)
    assert count(recorded(bench, machine_of(12), spec), "send") == (messages, messages * 4 * 16 * 2)


# ---------------------------------------------------------------- time
def test_the_ring_needs_channels_for_two_messages_unless_it_waits(bench):
    machine, spec = machine_of(12, **{"pe.channel.depth": 1}), PrefillSpec(T_q=64, S_kv=64, h_q=3, h_kv=1, kv="ring")
    with pytest.raises(DeadlockError, match=r"raise pe\.channel\.depth"):
        run_bench(bench, machine, spec, mode="time")
    result = run_bench(bench, machine, spec.replace(overlap=False))
    assert result.correctness.passed
    for kv in ("home", "multicast"):
        assert run_bench(bench, machine, spec.replace(kv=kv)).correctness.passed


def test_overlap_striping_and_near_copies_pay(bench):
    machine = machine_of(12)
    spec = PrefillSpec(T_q=1024, S_kv=1024, TILE_Q=16, h_q=2, h_kv=1)

    def span(**changes):
        return run_bench(bench, machine, spec.replace(**changes), mode="time").makespan_ps

    ring = span(kv="ring")
    assert ring < span(kv="ring", overlap=False)
    assert span(kv_rows="copied") < span(deal="blocks", kv_rows="copied")
    assert span(kv_rows="copied") < span(kv_rows="one")


def test_both_engines_agree(bench):
    for way in WAYS[::2]:
        spec = PrefillSpec(T_q=30, S_kv=40, TILE_Q=2, TILE_S_KV=10, h_q=2, h_kv=1, d_head=8, **way)
        compiled, simpy = (run_bench(bench, machine_of(12), spec, mode="time", engine=e) for e in ("compiled", "simpy"))
        assert compiled.makespan_ps == simpy.makespan_ps
        assert compiled.engines == simpy.engines


def test_striping_keeps_classes_few(bench):
    machine = kb.load_machine("row4_pe8", {"sip.cubes.columns": 8})
    for kv, most in (("home", 12), ("multicast", 40), ("ring", 48)):  # by home; by role; by two rings
        spec = PrefillSpec(T_q=256, S_kv=256, TILE_S_KV=32, h_q=1, h_kv=1, kv=kv)
        assert len(recorded(bench, machine, spec).classes) <= most


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split_heads": "pe"}, "level 'pe' is named 2 times in split_batch=none, split_heads=pe, split_Q=sip,cube,pe"),
        (
            {"kv": "multicast", "multicast_over": "none"},
            "multicast_over=none must name levels out of split_Q=sip,cube,pe",
        ),
        ({"kv": "multicast", "split_Q": "cube"}, "multicast_over=pe must name levels out of split_Q=cube"),
        ({"T_q": 9, "S_kv": 8}, "causal with T_q=9 queries needs S_kv of at least 9"),
        ({"kv": "rings"}, "it must be 'home', 'multicast' or 'ring'"),
    ],
)
def test_bad_specs_are_explained(fields, message):
    with pytest.raises(SpecError, match=message):
        PrefillSpec(**fields)
