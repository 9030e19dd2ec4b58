"""Finding and reading machine files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernbench.errors import TopologyError
from kernbench.machine import describe, load_machine, topology_names

SHIPPED = {
    "pe1": (1, 1, 1),
    "cube1_pe8": (8, 1, 1),
    "row4_pe8": (8, 4, 1),
    "grid8x8_pe8": (8, 64, 1),
    "grid16x32_pe8": (8, 512, 1),
    "sip4_grid4x4_pe8": (8, 16, 4),
    "h200": (132, 1, 1),
    "h200x2": (132, 1, 2),
    "mi250x": (110, 1, 2),
    "mi300x": (38, 8, 1),
    "mi300x8": (38, 8, 8),
    "mi325x": (38, 8, 1),
    "mi355x": (32, 8, 1),
}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working directory without topologies."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shipped_text(name: str) -> str:
    return topology_names()[name].read_text()


@pytest.mark.parametrize("name", SHIPPED)
def test_each_shipped_machine_loads_by_name_from_anywhere(name, elsewhere):
    machine = load_machine(name)
    assert machine.shape == SHIPPED[name]
    assert (machine.name, machine.source) == (name, f"{name}.yaml")


def test_all_shipped_machines_are_listed(elsewhere):
    assert set(topology_names()) == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_each_figure_of_a_shipped_machine_says_where_it_comes_from(name):
    for figure in describe(load_machine(name)):
        if figure.key.rsplit(".", 1)[-1] not in ("arrangement", "columns", "rows"):
            assert figure.note.startswith(("source: ", "assumed", "calibrated: ")), figure


@pytest.mark.parametrize("written", ["mine", "mine.yaml", "./mine", "sub/other", "sub/other.yml"])
def test_a_file_is_found_with_or_without_its_suffix(elsewhere, written):
    (elsewhere / "sub").mkdir()
    (elsewhere / "mine.yaml").write_text(shipped_text("pe1"))
    (elsewhere / "sub" / "other.yml").write_text(shipped_text("pe1"))
    assert load_machine(written) == load_machine(Path(written)) == load_machine("pe1")


def test_the_working_directory_s_topologies_come_before_the_shipped_ones(elsewhere):
    (elsewhere / "topologies").mkdir()
    (elsewhere / "topologies" / "pe1.yaml").write_text(shipped_text("row4_pe8"))
    assert load_machine("pe1").n_pes == 32
    assert topology_names()["pe1"] == Path("topologies/pe1.yaml")


def test_an_unknown_name_gives_the_nearest_and_the_known(elsewhere):
    with pytest.raises(TopologyError) as caught:
        load_machine("row4_pe9")
    assert "unknown machine 'row4_pe9' (did you mean 'row4_pe8'?)" in str(caught.value)
    assert all(name in str(caught.value) for name in SHIPPED)


@pytest.mark.parametrize(
    ("written", "expected"),
    [("nothing/here", "no such file"), ("x.yaml", "no such file"), (".", "is a directory"), ("", "known: ")],
)
def test_a_path_that_leads_nowhere_is_explained(elsewhere, written, expected):
    with pytest.raises(TopologyError, match=expected):
        load_machine(written)


def test_a_mapping_is_read_like_a_file_and_left_alone():
    document = load_machine("pe1").document
    before = repr(document)
    machine = load_machine(document, {"pe.clock": "2 GHz"})
    assert machine.pe.clock == 2 * 10**9
    assert repr(document) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\npe: {x: 1\n", "bad.yaml: line 3, column 1: "),
        ("name: a\n  b: c: d\n", "bad.yaml: line 2, column 4: mapping values are not allowed here"),
        ("name: a\nsip: 1\nname: b\n", "bad.yaml: line 3, column 1: the key 'name' is already given on line 1"),
        ("pe: {a: 1, a: 1}\n", "bad.yaml: line 1, column 12: the key 'a' is already given on line 1"),
        ("name: !!python/object:os.system {}\n", "bad.yaml: line 1, column 7: could not determine a constructor"),
        ("name: a\n\tpe: 1\n", "bad.yaml: line 2, column 1: "),
        ("name: \x00\n", "bad.yaml: is not YAML"),
        ("", "bad.yaml: is empty; a machine file has the keys name, sip, cube and pe"),
        ("# nothing\n", "bad.yaml: is empty"),
        ("a: &x {b: *x}\n", "bad.yaml: is nested too deeply"),
        ("[" * 5000, "bad.yaml: is nested too deeply"),
        (f"a: {'9' * 5000}\n", "bad.yaml: holds a value that YAML cannot read"),
        ("a: 2020-13-45\n", "bad.yaml: holds a value that YAML cannot read"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_yaml_gives_line_and_column(elsewhere, text, expected):
    (elsewhere / "bad.yaml").write_text(text)
    with pytest.raises(TopologyError) as caught:
        load_machine("bad.yaml")
    assert str(caught.value).startswith(expected)


def test_a_yaml_fault_shows_the_line_with_a_caret(elsewhere):
    (elsewhere / "bad.yaml").write_text("name: a\n  b: c: d\n")
    with pytest.raises(TopologyError) as caught:
        load_machine("bad.yaml")
    assert str(caught.value).splitlines()[1:] == ["      b: c: d", "       ^"]


def test_a_file_that_is_not_text_is_refused(elsewhere):
    (elsewhere / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TopologyError, match=r"bad\.yaml: is not a text file in UTF-8"):
        load_machine("bad.yaml")


def test_a_mapping_may_be_written_once_and_merged(elsewhere):
    text = shipped_text("row4_pe8").replace(
        "  store:                  # writes scratch to memory\n    queues: 1             # assumed\n",
        "  store:\n    <<: {queues: 3, bandwidth: 1 GB/s}\n",
    )
    (elsewhere / "merged.yaml").write_text(text)
    store = load_machine("merged").pe.store
    assert (store.queues, store.bandwidth) == (3, 256 * 10**9)
