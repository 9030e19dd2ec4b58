"""Looking a machine over: closed forms by hand, laws, findings and the command."""

import itertools
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import kernbench as kb
from kernbench.cli import app
from kernbench.ledger import ledger_of
from kernbench.lint import LintReport, lint
from kernbench.lint.cuts import halves
from kernbench.lint.traffic import link_flows, patterns
from kernbench.machine import topology_names
from kernbench.machine.arrangement import Grid

from .helpers import machine

LINK, SIP_LINK = 256 * 10**9, 64 * 10**9
MEMORY = 1_200 * 10**9
FIRST = {"from": "sip0.cube0", "to": "sip0.cube1"}
MACHINES = {name: kb.load_machine(path) for name, path in topology_names().items()}
GRIDS = st.one_of(
    st.tuples(st.sampled_from(["row", "ring", "fully_connected"]), st.integers(1, 9), st.just(1)),
    st.tuples(st.sampled_from(["mesh", "torus"]), st.integers(1, 6), st.integers(1, 6)),
)


def cut_of(report, level):
    (found,) = (cut for cut in report.bisections if cut.level == level)
    return found


def hot(report, pattern):
    (found,) = (h for h in report.hot_links if h.pattern == pattern)
    return found


# ---------------------------------------------------------------- bisection
@pytest.mark.parametrize(
    ("cubes", "links"),
    [
        (("row", 4, 1), 1),
        (("row", 5, 1), 1),
        (("ring", 8, 1), 2),
        (("ring", 7, 1), 2),
        (("ring", 2, 1), 1),  # it does not wrap
        (("mesh", 4, 4), 4),
        (("mesh", 6, 2), 2),
        (("mesh", 2, 6), 2),
        (("mesh", 3, 4), 3),  # between rows: only these are halves
        (("mesh", 5, 4), 5),
        (("torus", 4, 4), 8),
        (("torus", 6, 3), 6),
        (("torus", 2, 4), 4),  # rows wrap, columns do not
        (("fully_connected", 4, 1), 4),
        (("fully_connected", 8, 1), 16),
        (("fully_connected", 5, 1), 6),
    ],
)
def test_the_links_over_a_cut_are_those_counted_by_hand(cubes, links):
    cut = cut_of(lint(machine(cubes)), "CUBE")
    assert (cut.links, cut.bandwidth) == (links, links * LINK)
    assert cut.memory_behind == cubes[1] * cubes[2] // 2 * MEMORY
    assert cut.memory_ratio == pytest.approx(cut.memory_behind / cut.bandwidth)
    assert cut.scratch_ps == -(-(4 << 20) * 10**12 // cut.bandwidth)


def test_levels_come_innermost_first_and_one_position_is_no_level():
    report = lint(machine(("mesh", 4, 2), sips=("ring", 4, 1)))
    assert [cut.level for cut in report.bisections] == ["PE", "CUBE", "SIP"]
    assert [cut.cut for cut in report.bisections] == ["0-1,4-5 | 2-3,6-7", "0-1,4-5 | 2-3,6-7", "0-1 | 2-3"]
    assert cut_of(report, "SIP").memory_behind == 2 * 8 * MEMORY
    assert cut_of(report, "PE").memory_ratio is None
    assert lint(kb.load_machine("pe1")).bisections == lint(kb.load_machine("pe1")).hot_links == ()


@pytest.mark.parametrize(("cubes", "behind"), [(("mesh", 3, 3), 3), (("torus", 3, 3), 3), (("mesh", 5, 5), 10)])
def test_where_no_straight_cut_halves_a_level_the_memories_are_those_of_the_smaller_part(cubes, behind):
    cut = cut_of(lint(machine(cubes)), "CUBE")
    assert cut.memory_behind == behind * MEMORY


def test_a_single_slow_link_makes_the_cut_that_it_is_in_the_narrowest():
    slow = {"from": "sip0.cube5", "to": "sip0.cube6", "bandwidth": "16 GB/s"}
    cut = cut_of(lint(machine(("ring", 8, 1), links=[slow])), "CUBE")
    assert cut.bandwidth == LINK + 16 * 10**9
    assert cut.cut == "2-5 | 0-1,6-7"
    inside = {"from": "sip0.cube0.pe1", "to": "sip0.cube0.pe2", "bandwidth": "8 GB/s"}
    assert cut_of(lint(machine(links=[inside | {"from": "sip0.cube2.pe1", "to": "sip0.cube2.pe2"}])), "PE").where == (
        "sip0.cube2"
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 7), st.data())
def test_every_half_of_few_fully_connected_cubes_is_tried(count, draw):
    pairs = list(itertools.permutations(range(count), 2))
    some = draw.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=5, unique=True))
    links = [{"from": f"sip0.cube{a}", "to": f"sip0.cube{b}", "bandwidth": f"{10 + i} GB/s"} for i, (a, b) in
             enumerate(some)]  # fmt: skip
    figures = dict.fromkeys(pairs, LINK) | {pair: (10 + i) * 10**9 for i, pair in enumerate(some)}
    least = min(
        sum(figures[a, b] for a, b in pairs if (a in left) != turned and (b in left) == turned)
        for left in itertools.combinations(range(count), count // 2)
        for turned in (False, True)
    )
    assert cut_of(lint(machine(("fully_connected", count, 1), links=links)), "CUBE").bandwidth == least


@given(GRIDS, st.booleans())
def test_a_cut_has_something_on_both_sides_and_halves_where_there_can_be(grid, uneven):
    grid = Grid(*grid)
    if grid.count == 1:
        return
    found = halves(grid, uneven)
    assert found
    assert all(0 < half.sum() < grid.count for half in found)
    if grid.columns % 2 == 0 or grid.rows % 2 == 0:
        assert all(2 * half.sum() == grid.count for half in found)


# ---------------------------------------------------------------- hot links
@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_all_to_one_and_all_to_all_on_a_row_by_hand(n):
    report = lint(machine(("row", n, 1)))
    one = hot(report, "all to one")
    assert (one.link, one.link_flows) == ("sip0.cube1 -> sip0.cube0", n - 1)
    assert one.flow_bandwidth == pytest.approx(LINK / (n - 1))
    every = hot(report, "all to all")
    assert every.link_flows == (n // 2) * (n - n // 2)
    assert every.sender_bandwidth == pytest.approx((n - 1) * LINK / every.link_flows)
    assert hot(report, "opposite").link_flows == n // 2
    assert hot(report, "one to all").sender_bandwidth == pytest.approx(LINK)
    assert hot(report, "east neighbour").flow_bandwidth == LINK


def test_all_to_all_on_a_ring_and_neighbours_round_it_by_hand():
    report = lint(machine(("ring", 5, 1)))
    assert hot(report, "all to all").link_flows == 3  # one flow of one hop and two of two
    assert hot(report, "all to all").over_mean == pytest.approx(1)
    assert hot(report, "east neighbour").flows == 5


def test_all_cubes_of_a_sip_share_its_link_to_the_next():
    report = lint(machine(("mesh", 2, 2), sips=("row", 3, 1)))
    found = hot(report, "next SIP")
    assert (found.link, found.link_flows, found.flows) == ("sip0 -> sip1", 4, 8)
    assert found.flow_bandwidth == pytest.approx(SIP_LINK / 4)


def test_transposing_turns_rows_into_columns():
    square = machine(("mesh", 3, 3))
    flows = dict(patterns(square))["transpose"]
    assert set(zip(*(f.tolist() for f in flows), strict=True)) == {(3 * r + c, 3 * c + r) for r in range(3)
                                                                   for c in range(3) if r != c}  # fmt: skip
    assert "transpose" not in {h.pattern for h in lint(machine(("row", 4, 1))).hot_links}  # each to itself


@settings(max_examples=40, deadline=None)
@given(GRIDS, GRIDS)
def test_flows_over_links_add_up_to_the_lengths_of_routes_and_the_busiest_is_no_less_than_the_mean(cubes, sips):
    if cubes[1] * cubes[2] * sips[1] * sips[2] > 100:
        sips = ("row", 2, 1)
    found = machine(cubes, sips, pes=(1, 1))
    network = found.network
    report = {h.pattern: h for h in lint(found).hot_links}
    for name, (start, goal) in patterns(found):
        passed = link_flows(network, (start, goal)) if len(start) else np.zeros(0)
        routes = [network.route(a, b) for a, b in zip(start.tolist(), goal.tolist(), strict=True)]
        assert passed.sum() == sum(map(len, routes))
        counted = np.bincount([link for route in routes for link in route], minlength=len(passed))
        assert (passed == counted).all()
        if len(start):
            assert report[name].hops == passed.sum()
            assert report[name].over_mean >= 1 - 1e-12
            assert report[name].flow_bandwidth * report[name].link_flows == pytest.approx(report[name].link_bandwidth)


def test_a_mesh_of_512_cubes_is_looked_over_in_two_seconds():
    began = time.process_time()  # of this process alone: others may share its core
    lint(kb.load_machine("grid16x32_pe8", {"pe.clock": "1.1 GHz"}))
    assert time.process_time() - began < 2


# ---------------------------------------------------------------- directions
def test_directions_that_some_pes_lack_are_named_as_ranges():
    found = {d.direction: d for d in lint(kb.load_machine("row4_pe8")).missing_directions}
    assert found["intra_N"].pes == "cube 0-3 pe 0-3"
    assert found["E"].pes == "cube 3 pe 0-7"
    assert found["N"].nowhere
    assert "one row" in found["N"].why
    ring = {d.direction: d for d in lint(machine(("ring", 3, 1))).missing_directions}
    assert "E" not in ring
    two = lint(machine(("ring", 2, 1)))
    assert "takes three" in {d.direction: d for d in two.missing_directions}["E"].why
    assert any("wrap" in f.message and "sip.cubes.columns" in f.keys for f in two.findings)


@settings(max_examples=30, deadline=None)
@given(GRIDS)
def test_a_direction_is_missing_exactly_where_no_peer_is(cubes):
    found = machine(cubes, pes=(2, 2))
    missing = {d.direction: d for d in lint(found).missing_directions}
    for number, direction in enumerate(kb.machine.DIRECTIONS):
        lacking = np.flatnonzero(found.network.peer[:, number] < 0)
        assert (direction in missing) == bool(len(lacking))
        if len(lacking) == found.n_pes:
            assert missing[direction].nowhere
        elif len(lacking):
            assert missing[direction].pes == found.describe_pes(lacking)


# ---------------------------------------------------------------- memory and arithmetic
def test_memory_against_ports_and_links_by_hand():
    memory = lint(kb.load_machine("row4_pe8")).memory
    assert memory.ports == 8 * 2 * LINK
    assert memory.links_out == (LINK, 2 * LINK)
    assert memory.in_flight == MEMORY * 100e-9
    assert (memory.local_trip_ps, memory.farthest_trip_ps) == (100_000, 100_000 + 2 * 3 * 20_000)
    assert memory.local_load == LINK


def test_a_load_that_waits_for_its_bytes_takes_as_long_as_lint_says():
    """64 KiB by one load, 4 KiB at a time, over a trip of 100 ns."""
    slow = kb.load_machine("pe1", {"pe.load.outstanding": "4 KiB"})
    x = kb.shape_only((64, 512), "f16", slow)

    def read(x, *, tl):
        tl.load(x, shape=(64, 512))

    took = kb.simulate(kb.record(read, slow, (x,))).makespan_ps
    memory = lint(slow).memory
    assert memory.local_load == pytest.approx(4096 / 100e-9)
    assert took == pytest.approx(memory.local_trip_ps + 65536 / memory.local_load * 1e12, rel=0.001)
    (finding,) = (f for f in lint(slow).findings if f.keys[0] == "pe.load.outstanding" and "port" in f.message)
    assert finding.severity == "warning"
    assert "40.96 GB/s of the port's 256 GB/s; 25,600 B" in finding.message


def test_ridges_and_rows_by_hand():
    report = lint(kb.load_machine("row4_pe8"))
    f16, f32, i4 = ({b.dtype: b for b in report.balance}[name] for name in ("f16", "f32", "i4"))
    assert f16.ridge == pytest.approx(8 * 8e12 / 1.2e12)
    assert (f16.decode_rows, f32.decode_rows) == (49, 25)  # padded to 8: 56 of 53.3, and 32 of 26.7
    assert report.exponentials == pytest.approx(8 * 128 * 1e9 / 4)
    assert f16.exp_rows == {64: 55, 128: 110}  # 2 d 2 B / 1.2 TB/s x 256 G
    assert i4.exp_rows == {64: 14, 128: 28}
    assert f16.exp_head == pytest.approx(64e12 / (4 * 256e9))
    assert f16.softmax_head == pytest.approx(f16.exp_head * 9 / 4)  # 4 cycles of exp and 5 of one


def test_more_memory_bandwidth_moves_every_bound_the_same_way():
    plain, wide = (lint(kb.load_machine("row4_pe8", {"cube.memory.bandwidth": b})) for b in ("1.2 TB/s", "2.4 TB/s"))
    for a, b in zip(plain.balance, wide.balance, strict=True):
        assert b.ridge == pytest.approx(a.ridge / 2)
        assert b.decode_rows <= a.decode_rows
        assert all(b.exp_rows[d] <= a.exp_rows[d] for d in a.exp_rows)
        assert b.exp_head == a.exp_head


# ---------------------------------------------------------------- findings
@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"pe.load.bandwidth": "64 GB/s"}, "pe.load.bandwidth", "1,024 GB/s"),
        ({"pe.load.outstanding": "512 B"}, "pe.load.outstanding", "latency is the limit"),
        ({"links": [FIRST | {"bandwidth": "9 GB/s"}]}, "links[0].bandwidth", "9 GB/s"),
        ({"links": [FIRST | {"latency": "90 ns"}]}, "links[0].latency", "90 ns"),
        ({"cube.cache": {"size": "32 GiB", "bandwidth": "4 TB/s", "latency": "20 ns"}}, "cube.cache.size", "24 GiB"),
        ({"cube.cache": {"size": "1 MiB", "bandwidth": "1 TB/s", "latency": "20 ns"}}, "cube.cache.bandwidth", "less"),
        ({"pe.scratch": "16 KiB"}, "pe.scratch", "16 query rows"),
        ({"pe.matrix.rates.i8": "4 Tflop/s"}, "pe.matrix.rates.i8", "narrower"),
        ({"pe.matrix.startup": "1 us"}, "pe.matrix.startup", "start-up"),
        ({"pe.vector.lanes": 32}, "pe.vector.lanes", "vector engine is the limit"),
    ],
)  # fmt: skip
def test_what_is_probably_not_meant_is_a_warning_with_its_figures(changes, key, words):
    assert not lint(kb.load_machine("row4_pe8")).warnings
    report = lint(kb.load_machine("row4_pe8", changes))
    found = [f for f in report.warnings if key in f.keys]
    assert any(words in f.message for f in found), report.warnings
    assert [f.severity for f in report.findings] == sorted((f.severity for f in report.findings), reverse=True)


def test_a_better_link_than_its_level_is_no_finding():
    assert not lint(machine(links=[FIRST | {"bandwidth": "512 GB/s", "latency": "1 ns"}])).warnings


@pytest.mark.parametrize("name", MACHINES)
def test_every_figure_that_a_finding_names_is_one_of_the_machine(name):
    found = MACHINES[name]
    known = {figure.key for figure in ledger_of(found).figures}
    for finding in lint(found).findings:
        assert set(finding.keys) <= known, finding


# ---------------------------------------------------------------- GPU-like machines
def test_a_gpu_has_no_directions_and_links_between_sips_only():
    report = lint(kb.load_machine("mi300x8"))
    assert report.missing_directions == ()
    assert [(cut.level, cut.links) for cut in report.bisections] == [("SIP", 16)]
    assert {h.link_flows for h in report.hot_links if h.pattern == "all to all"} == {1}
    one = lint(kb.load_machine("h200"))
    assert one.bisections == one.hot_links == ()
    assert one.memory.bandwidth == pytest.approx(4.8e12 * 0.977)
    assert one.memory.pes == 132


# ---------------------------------------------------------------- the command
def run(*arguments):
    return CliRunner().invoke(app, ["lint", *arguments])


@pytest.mark.parametrize("name", MACHINES)
def test_each_machine_can_be_looked_over(name, tmp_path):
    done = run(name, "--json", str(tmp_path / "lint.json"))
    assert done.exit_code == 0, done.output
    assert "ledger: " in done.output
    whole = json.loads((tmp_path / "lint.json").read_text())
    assert whole.pop("ledger") == json.loads(ledger_of(MACHINES[name]).model_dump_json())
    assert LintReport.model_validate(whole) == lint(MACHINES[name])


def test_warnings_fail_only_if_asked_for():
    slow = ("--override", "pe.load.outstanding=4 KiB")
    assert run("row4_pe8", *slow).exit_code == 0
    assert "warning: 4 KiB outstanding" in run("row4_pe8", *slow).output
    assert run("row4_pe8", *slow, "--strict").exit_code == 1
    assert run("row4_pe8", "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["row5_pe8"], "unknown machine 'row5_pe8' (did you mean 'row4_pe8'?)"),
        (["row4_pe8", "--override", "pe.clok=2 GHz"], "did you mean 'clock'"),
        (["row4_pe8", "--override", "pe.clock"], "--override takes key=value"),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing(arguments, words, tmp_path):
    done = run(*arguments, "--json", str(tmp_path / "lint.json"))
    assert done.exit_code == 2
    assert words in done.output
    assert "Traceback" not in done.output
    assert not list(tmp_path.iterdir())
