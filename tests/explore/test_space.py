"""The space of a sweep: every combination once, numbered; shardings enumerated; constraints before and after."""

import itertools

import kernbench as kb
from kernbench.explore.space import sharding_text
from tests.explore.helpers import SMALL, read_sweep


def test_every_combination_is_a_point_once():
    sweep = read_sweep(SMALL)
    points = list(sweep.points())
    assert len(points) == sweep.size == 2 * 2 * 3
    seen = {(*p.settings.values(), *p.overrides.values()) for p in points}
    assert seen == set(itertools.product([64], [16, 32], [1, 2], ["0.4 TB/s", "0.8 TB/s", "1.2 TB/s"]))


def test_a_point_is_found_by_its_number_and_by_its_values():
    sweep = read_sweep(SMALL)
    for i, point in enumerate(sweep.points()):
        assert point.position == i
        assert sweep.numbered(i) == sweep.at(point.index) == point


def test_points_that_share_a_trace_follow_one_another():
    settings = [tuple(point.settings.items()) for point in read_sweep(SMALL).points()]
    assert len(list(itertools.groupby(settings))) == len(set(settings))


def test_all_splits_give_each_level_of_the_machine_to_each_dimension():
    sweep = read_sweep("bench: gqa_decode_long\ntopology: row4_pe8\nspec: {batch: 4}\nsplits: all")
    values = [tuple(point.settings[f"split_{x}"] for x in ("batch", "heads", "S_kv")) for point in sweep.points()]
    assert len(values) == len(set(values)) == 3**2  # CUBEs and PEs; there is one SIP
    levels = [sorted(x for text in value for x in text.split(",") if x != "none") for value in values]
    assert all(found == ["cube", "pe"] for found in levels)
    three = read_sweep("bench: gqa_decode_long\ntopology: sip4_grid4x4_pe8\nspec: {batch: [1, 4]}\nsplits: all")
    assert three.size == 2 * 3**3


def test_all_splits_leave_out_what_has_one_element():
    sweep = read_sweep("bench: gqa_decode_long\ntopology: row4_pe8\nsplits: all")  # one sequence
    assert sweep.size == 2**2
    assert {point.settings["split_batch"] for point in sweep.points()} == {"none"}
    one = read_sweep("bench: gqa_decode_long\ntopology: row4_pe8\nspec: {h_q: 8, h_kv: 1}\nsplits: all")
    assert [point.settings["split_S_kv"] for point in one.points()] == ["cube,pe"]


def test_a_split_that_is_not_named_is_none():
    sweep = read_sweep("bench: gqa_decode_long\nsplits: [{heads: pe, S_kv: [sip, cube]}]")
    assert next(sweep.points()).settings == {
        "split_batch": "none", "split_heads": "pe", "split_S_kv": "sip,cube",
    }  # fmt: skip


def test_shardings_that_mean_the_same_have_one_name():
    row, whole = kb.load_machine("row4_pe8"), kb.load_machine("sip4_grid4x4_pe8")
    split = {"split_batch": [], "split_heads": ["pe"], "split_S_kv": ["sip", "cube"]}
    assert sharding_text(split, row) == "heads=pe S_kv=cube"
    assert sharding_text(split, whole) == "heads=pe S_kv=sip,cube"
    assert sharding_text({"S_kv": 3}, row) == "none"


def test_constraints_see_the_spec_the_machine_and_its_shape():
    text = SMALL + "constraints: [TILE_S_KV * buffers <= 32, cube.memory.bandwidth > '0.5 TB/s', pes == 8]"
    sweep = read_sweep(text)
    allowed = [p for p in sweep.points() if sweep.excluded_by(p) is None]
    assert len(allowed) == 3 * 2
    assert all(p.settings["TILE_S_KV"] * p.settings["buffers"] <= 32 for p in allowed)


def test_constraints_on_results_wait_for_them():
    sweep = read_sweep(SMALL + "constraints: [makespan_ps < 1e6, buffers == 1]")
    assert [e.text for e in sweep.after] == ["makespan_ps < 1e6"]
    assert [e.text for e in sweep.before] == ["buffers == 1"]
