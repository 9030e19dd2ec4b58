"""Every fault in a machine file is one line: the file, the key path, what would be right."""

from __future__ import annotations

import pytest

from kernbench.errors import TopologyError
from kernbench.machine import load_machine

from .helpers import MEMORY, message


def test_a_misspelt_key_is_told_once_with_the_nearest(tmp_path):
    text = load_text("row4_pe8").replace("    bandwidth: 1.2 TB/s", "    bandwith: 1.2 TB/s")
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(TopologyError) as caught:
        load_machine(tmp_path / "mine.yaml")
    assert str(caught.value) == f"{tmp_path}/mine.yaml: cube.memory.bandwith: unknown key (did you mean 'bandwidth'?)"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"cube.memory.bandwith": "1 TB/s"}, "cube.memory.bandwith: unknown key (did you mean 'bandwidth'?)"),
        ({"cube.memory.zzz": 1}, "cube.memory.zzz: unknown key (known: achievable, bandwidth, capacity, channels, "),
        ({"pes.columns": 4}, "pes: unknown key (did you mean 'pe'?)"),
        ({"pe.issue": 40}, "pe.issue: missing unit: 40; write e.g. '40 ns'"),
        ({"pe.issue": "-1 ns"}, "pe.issue: '-1 ns' is negative"),
        ({"pe.issue": "2 s"}, "pe.issue: must be at most 1 s, found '2 s'"),
        ({"pe.scratch": "4 MB/s"}, "pe.scratch: expected a size such as '1 MiB', found '4 MB/s', a bandwidth"),
        ({"pe.scratch": "0 B"}, "pe.scratch: must be more than zero, found '0 B'"),
        ({"pe.clock": "0 GHz"}, "pe.clock: must be more than zero"),
        ({"cube.memory.bandwidth": "0 GB/s"}, "cube.memory.bandwidth: must be more than zero"),
        ({"cube.memory.bandwidth": "123456789123 B/s"}, "cube.memory.bandwidth: 123456789123 B/s is too odd a figure"),
        ({"pe.queue_depth": 0}, "pe.queue_depth: expected a whole number from 1 to 64, found 0"),
        ({"pe.queue_depth": 65}, "pe.queue_depth: expected a whole number from 1 to 64, found 65"),
        ({"pe.load.queues": 17}, "pe.load.queues: expected a whole number from 1 to 16, found 17"),
        ({"pe.load.queues": 2.5}, "pe.load.queues: expected a whole number from 1 to 16, found 2.5"),
        ({"pe.load.queues": True}, "pe.load.queues: expected a whole number from 1 to 16, found true"),
        ({"pe.channel.depth": 0}, "pe.channel.depth: expected a whole number from 1 to "),
        ({"pe.matrix.rates.f61": "1 Tflop/s"}, "pe.matrix.rates.f61: unknown dtype 'f61' (did you mean 'f16'?)"),
        ({"pe.matrix.rates.f16": "0 Tflop/s"}, "pe.matrix.rates.f16: must be more than zero"),
        ({"pe.matrix.rates": {}}, "pe.matrix.rates: is empty; expected a mapping such as {f16: 8 Tflop/s}"),
        ({"pe.matrix.rates": 8}, "pe.matrix.rates: expected a mapping such as {f16: 8 Tflop/s}, found 8"),
        ({"pe.vector.cost.exxp": 2}, "pe.vector.cost.exxp: unknown operation 'exxp' (did you mean 'exp'?)"),
        (
            {"pe.vector.cost.exp": 0},
            "pe.vector.cost.exp: expected a number from 0.001 to 1,000,000 with at most three decimals, found 0",
        ),
        ({"pe.vector.cost.default": None}, "pe.vector.cost.default: missing; the cycles of operations not named"),
        ({"pe.store": 5}, "pe.store: expected a mapping with the keys queues, bandwidth, found 5"),
        ({"pe": None}, "pe: missing; add a mapping with the keys clock, scratch, load"),
        ({"cube.memory.latency": None}, "cube.memory.latency: missing; add e.g. 'latency: 100 ns'"),
        ({"cube.memory.interleave": None}, "cube.memory.interleave: missing; add e.g. 'interleave: 256 B'"),
        ({"name": 3}, "name: expected text such as 'row4_pe8', found 3"),
        ({"sip.cubes.arrangement": "rin"}, "sip.cubes.arrangement: unknown arrangement 'rin' (did you mean 'ring'?)"),
        ({"sip.cubes.arrangement": 3}, "sip.cubes.arrangement: unknown arrangement 3 (known: "),
        ({"sip.cubes.rows": 2}, "sip.cubes.rows: 'row' has one row, found 2; set rows: 1 and columns: 8, or"),
        ({"sip.cubes.link": None}, "sip.cubes.link: missing; 4 CUBEs are joined by links, add e.g. 'link: {bandwidth:"),
        ({"system.sips.columns": 2}, "system.sips.link: missing; 2 SIPs are joined by links"),
        ({"cube.pes.link": None}, "cube.pes.link: missing; 8 PEs are joined by links"),
        ({"cube.memory": None}, "cube.memory: missing; give each CUBE its memory here, or all CUBEs of a SIP one in"),
        ({"sip.memory": MEMORY}, "sip.memory: a machine has either cube.memory or sip.memory; remove one"),
        ({"sip.cubes": {"arrangement": "mesh", "columns": 65, "rows": 64, "link": {"bandwidth": "1 GB/s",
          "latency": "1 ns"}}}, "sip.cubes: 4,160 CUBEs in the system; the most is 4,096"),
        ({"cube.pes.columns": 512, "cube.pes.rows": 33}, "cube.pes: 67,584 PEs in the system; the most is 65,536"),
        ({"links": 3}, "links: expected a list of mappings, each after a dash, found 3"),
        ({"links": [7]}, "links[0]: expected a mapping with the keys from, to, bandwidth, latency, found 7"),
    ],
)  # fmt: skip
def test_a_fault_names_its_key_and_the_mend(overrides, expected):
    found = message(overrides)
    assert found.startswith(f"row4_pe8.yaml: {expected}")
    assert "\n" not in found


def link(start: str, end: str, **figures: str) -> dict[str, str]:
    return {"from": start, "to": end, "latency": "40 ns"} | figures


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([link("sip0.cube1", "sip0.cube9")], "links[0].to: sip0.cube9 does not exist: SIP 0 has CUBEs 0-3"),
        ([link("sip1", "sip0")], "links[0].from: sip1 does not exist: the system has one SIP, number 0"),
        ([link("sip0.cube0.pe8", "sip0.cube0.pe7")], "links[0].from: sip0.cube0.pe8 does not exist: SIP 0 CUBE 0 has"),
        (
            [link("sip0.cube0", "sip0.cube2")],
            "links[0]: sip0.cube0 and sip0.cube2 are not neighbours: links from sip0.cube0 lead to sip0.cube1",
        ),
        ([link("sip0.cube0", "sip0.cube0")], "links[0]: sip0.cube0 and sip0.cube0 are not neighbours"),
        ([link("sip0.cube0.pe0", "sip0.cube0.pe5")], "links[0]: sip0.cube0.pe0 and sip0.cube0.pe5 are not neighbours"),
        ([link("sip0.cube0.pe7", "sip0.cube1.pe7")], "links[0]: sip0.cube0.pe7 and sip0.cube1.pe7 are not in the same"),
        ([link("sip0", "sip0.cube0")], "links[0]: sip0 and sip0.cube0 are not both SIPs, both CUBEs or both PEs"),
        ([link("cube0", "sip0.cube1")], "links[0].from: expected a name such as 'sip0.cube1', found 'cube0'"),
        ([{"from": "sip0.cube0", "to": "sip0.cube1"}], "links[0]: gives neither bandwidth nor latency"),
        ([{"from": "sip0.cube0", "latency": "1 ns"}], "links[0].to: missing; add e.g. 'to: sip0.cube2'"),
        (
            [link("sip0.cube0", "sip0.cube1"), link("sip0.cube1", "sip0.cube0"), link("sip0.cube0", "sip0.cube1")],
            "links[2]: sip0.cube0 -> sip0.cube1 is already given by links[0]",
        ),
    ],
)  # fmt: skip
def test_a_link_of_its_own_must_join_neighbours_that_exist(links, expected):
    assert message({"links": links}).startswith(f"row4_pe8.yaml: {expected}")


def test_several_faults_are_listed_line_by_line():
    lines = message({"pe.issue": 40, "cube.memory.bandwith": "1 TB/s", "pe.store.queues": 99}).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["cube.memory.bandwith", "pe.issue", "pe.store.queues"]
    assert all(line.startswith("row4_pe8.yaml: ") for line in lines)


def test_a_fault_from_an_override_says_so_and_one_from_the_file_does_not():
    text = message({"sip.memory.bandwidth": "1 TBs"})
    own, *others = sorted(text.splitlines())
    assert "sip.memory.bandwidth" in own
    assert own.endswith("(from an override)")
    assert all("override" not in line for line in others)


@pytest.mark.parametrize(
    "overrides", [{"pe": 3}, {"links": [{}]}, {"name": None}, {"system": []}, {"pe.matrix.tile": "x"}]
)
def test_no_message_shows_the_checker(overrides):
    text = message(overrides)
    for jargon in ("pydantic", "http", "Input should", "Extra inputs", "validation", "Spec", "type="):
        assert jargon not in text


def test_a_document_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    with pytest.raises(TopologyError, match=r"expected a mapping with the keys name, .*, found a list"):
        load_machine(tmp_path / "list.yaml", {"pe.clock": "1 GHz"})


def test_keys_must_be_text():
    with pytest.raises(TopologyError, match="a key must be text, found 3"):
        load_machine({3: 4})


def load_text(name: str) -> str:
    from kernbench.machine import topology_names

    return topology_names()[name].read_text()
