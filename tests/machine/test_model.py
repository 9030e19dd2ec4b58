"""A machine's names, numbers, overrides and fingerprint."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.machine import Machine, describe, load_machine

from .helpers import MEMORY, SIP_LINK, machine, message

SIP4 = load_machine("sip4_grid4x4_pe8")


def test_a_machine_counts_its_parts():
    assert (SIP4.n_sips, SIP4.cubes_per_sip, SIP4.pes_per_cube) == (4, 16, 8)
    assert (SIP4.n_cubes, SIP4.n_pes, SIP4.shape) == (64, 512, (8, 16, 4))
    assert SIP4.memory_scope == "cube"
    assert SIP4.memory.capacity == 24 * 2**30
    assert SIP4.pe.matrix.rates["f16"] == 8 * 10**12
    assert repr(SIP4) == "<Machine sip4_grid4x4_pe8: 4 SIP x 16 CUBE x 8 PE>"


@given(st.integers(0, SIP4.n_pes - 1))
def test_coordinates_and_index_agree(pe):
    sip, cube, own = SIP4.coordinates(pe)
    assert (sip * SIP4.cubes_per_sip + cube) * SIP4.pes_per_cube + own == pe
    assert SIP4.pe_name(pe) == f"sip{sip}.cube{cube}.pe{own}"


@pytest.mark.parametrize("pe", [-1, 512])
def test_a_pe_that_does_not_exist_has_no_coordinates(pe):
    with pytest.raises(IndexError, match="has PEs 0-511"):
        SIP4.coordinates(pe)


@pytest.mark.parametrize(
    ("name", "indices", "text"),
    [
        ("row4_pe8", [], "no PE"),
        ("row4_pe8", [11], "cube 1 pe 3"),
        ("row4_pe8", range(32), "cube 0-3 pe 0-7"),
        ("row4_pe8", [8 * c + p for c in range(4) for p in (0, 2, 3, 4, 5, 6, 7)], "cube 0-3 pe 0,2-7"),
        ("row4_pe8", [0, 8, 16, 25], "cube 0-2 pe 0; cube 3 pe 1"),
        ("sip4_grid4x4_pe8", [0], "sip 0 cube 0 pe 0"),
        ("sip4_grid4x4_pe8", range(512), "sip 0-3 cube 0-15 pe 0-7"),
        ("sip4_grid4x4_pe8", [0, 9, 128, 137, 256], "sip 0-1 cube 0 pe 0; sip 0-1 cube 1 pe 1; sip 2 cube 0 pe 0"),
    ],
)
def test_a_set_of_pes_is_written_as_ranges(name, indices, text):
    assert load_machine(name).describe_pes(indices) == text


@given(st.sets(st.integers(0, 511)))
def test_the_written_set_holds_each_pe_once(indices):
    def members(text: str) -> list[int]:
        found: list[int] = []
        for part in text.split(","):
            low, _, high = part.partition("-")
            found.extend(range(int(low), int(high or low) + 1))
        return found

    written = SIP4.describe_pes(indices)
    groups = [] if written == "no PE" else [part.split() for part in written.split("; ")]
    found = [(s * 16 + c) * 8 + p for g in groups for s in members(g[1]) for c in members(g[3]) for p in members(g[5])]
    assert sorted(found) == sorted(indices)


def test_an_override_changes_the_value_and_the_fingerprint():
    base = load_machine("row4_pe8")
    changed = base.with_overrides({"cube.memory.bandwidth": "0.8 TB/s", "sip.cubes.columns": 3})
    assert (changed.memory.bandwidth, changed.n_cubes) == (800 * 10**9, 3)
    assert (base.memory.bandwidth, base.n_cubes) == (1_200 * 10**9, 4)
    assert changed != base
    assert changed.sha256 != base.sha256
    assert changed == load_machine("row4_pe8", {"cube.memory.bandwidth": "0.8 TB/s", "sip.cubes.columns": 3})


def test_overrides_add_up_and_can_be_undone():
    base = load_machine("row4_pe8")
    twice = base.with_overrides({"pe.clock": "2 GHz"}).with_overrides({"pe.issue": "3 ns"})
    assert (twice.pe.clock, twice.pe.issue) == (2 * 10**9, 3000)
    assert twice.with_overrides({"pe.clock": "1 GHz", "pe.issue": "1 ns"}) == base


def test_the_same_figures_in_other_units_are_the_same_machine():
    base = load_machine("row4_pe8")
    same = base.with_overrides({"cube.memory.bandwidth": "1200 GB/s", "sip.cubes.columns": "4"})
    assert same == base
    assert hash(same) == hash(base)
    assert base != "row4_pe8"


def test_an_override_reaches_keys_that_the_file_leaves_out():
    wide = load_machine("row4_pe8", {"system.sips.columns": 2, "system.sips.link": SIP_LINK})
    assert wide.n_sips == 2
    unbounded = wide.with_overrides({"pe.load.outstanding": None})
    assert unbounded.pe.load.outstanding is None


def test_an_override_reaches_into_lists():
    link = {"from": "sip0.cube0", "to": "sip0.cube1", "bandwidth": "64 GB/s"}
    changed = load_machine("row4_pe8", {"links": [link]}).with_overrides({"links[0].bandwidth": "32 GB/s"})
    assert changed.spec.links[0].bandwidth == 32 * 10**9
    assert link["bandwidth"] == "64 GB/s"


def test_memory_may_move_from_the_cubes_to_the_sip():
    shared = load_machine("row4_pe8", {"cube.memory": None, "sip.memory": MEMORY})
    assert shared.memory_scope == "sip"
    assert shared.memory == load_machine("row4_pe8").memory


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"cube.memry.bandwidth": "1 TB/s"}, "cube.memry: unknown key (did you mean 'memory'?)"),
        ({"name.x": 1}, "name.x: unknown key; name is a single value, 'row4_pe8'"),
        ({"links.0.to": "x"}, "links: expected a list of mappings"),
        ({"links": [], "links[0].to": "x"}, "links[0].to: expected a position in the list"),
        ({"": 1}, "'' is not a key path; write e.g. 'cube.memory.bandwidth'"),
        ({"pe..clock": 1}, "'pe..clock' is not a key path"),
    ],
)
def test_an_override_that_leads_nowhere_is_explained(overrides, expected):
    assert expected in message(overrides)


def test_a_trace_fits_machines_that_differ_in_figures_only():
    base = load_machine("row4_pe8")
    for figures in ({"pe.clock": "2 GHz"}, {"sip.cubes.link.latency": "1 ns"}, {"name": "x"}, {"pe.scratch": "1 MiB"}):
        assert base.with_overrides(figures).signature == base.signature


def test_a_trace_does_not_fit_machines_of_another_shape():
    shared = {"cube.memory": None, "sip.memory": MEMORY}
    variants: list[Machine] = [
        load_machine("row4_pe8"),
        load_machine("row4_pe8", shared),
        load_machine("cube1_pe8"),
        machine(cubes=("ring", 4, 1)),
        machine(cubes=("mesh", 2, 2)),
        machine(cubes=("mesh", 4, 1), pes=(2, 4)),
        machine(sips=("ring", 3, 1)),
    ]
    assert len({m.signature for m in variants}) == len(variants)


def test_a_machine_survives_copying_and_pickling():
    assert SIP4.network.n_pes == 512
    for other in (copy.deepcopy(SIP4), pickle.loads(pickle.dumps(SIP4))):
        assert other == SIP4
        assert other.network is SIP4.network


def test_figures_are_listed_as_written_with_their_notes():
    found = {f.key: f for f in describe(load_machine("row4_pe8", {"pe.clock": "2 GHz"}))}
    assert found["cube.memory.bandwidth"].value == "1.2 TB/s"
    assert found["cube.memory.bandwidth"].note.startswith("source: Micron HBM3E")
    assert found["pe.matrix.tile.m"] == ("pe.matrix.tile.m", "8", "assumed")
    assert found["pe.clock"] == ("pe.clock", "2 GHz", "override")
    assert "name" not in found


COMMENTED = """
  matrix:
    startup: 16 ns
    tile: {m: 8, n: 16,  # source: A
      k: 16}  # source: 'B' # 2
    rates: {f16: "8 Tflop/s", i8: '16 Tflop/s'}  # source: C
  vector: {lanes: 128, startup: 8 ns, cost: {default: 1}}
  channel:  # assumed both
    depth: 2
    receive: '4 ns' # own
"""


def test_a_comment_on_a_line_speaks_of_every_figure_on_it(tmp_path):
    text = load_text("pe1").split("  matrix:")[0] + COMMENTED
    (tmp_path / "m.yaml").write_text(text)
    notes = {f.key.removeprefix("pe."): f.note for f in describe(load_machine(tmp_path / "m.yaml"))}
    assert notes["matrix.tile.m"] == notes["matrix.tile.n"] == "source: A"
    assert notes["matrix.rates.f16"] == notes["matrix.rates.i8"] == "source: C"
    assert notes["matrix.startup"] == notes["vector.cost.default"] == ""
    assert notes["matrix.tile.k"] == "source: 'B' # 2"
    assert (notes["channel.depth"], notes["channel.receive"]) == ("assumed both", "own")


def load_text(name: str) -> str:
    from kernbench.machine import topology_names

    return topology_names()[name].read_text()
