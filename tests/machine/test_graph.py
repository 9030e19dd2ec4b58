"""The graph and the picture of a machine."""

from __future__ import annotations

import networkx as nx
import pytest

from kernbench.errors import InputError
from kernbench.machine import load_machine
from kernbench.machine.drawing import legend
from kernbench.machine.drawing.layout import Box, lay_out
from kernbench.machine.drawing.lines import lines
from kernbench.machine.drawing.picture import paint
from kernbench.machine.graph import draw, to_networkx

from .helpers import MEMORY, machine

SHARED = {"cube.memory": None, "sip.memory": MEMORY}
VARIANTS = {
    "pe1": load_machine("pe1"),
    "row4": load_machine("row4_pe8"),
    "sip4": load_machine("sip4_grid4x4_pe8"),
    "grid16x32": load_machine("grid16x32_pe8"),
    "shared": machine(sips=("ring", 2, 1), **SHARED),
    "torus": machine(cubes=("torus", 3, 3), sips=("torus", 3, 3)),
    "direct": machine(cubes=("fully_connected", 4, 1), sips=("fully_connected", 4, 1)),
    "bus": machine(cubes=("fully_connected", 8, 1), pes=(1, 2)),
    "own links": machine(
        sips=("row", 2, 1),
        links=[
            {"from": "sip0.cube1", "to": "sip0.cube0", "bandwidth": "64 GB/s"},
            {"from": "sip0.cube1.pe0", "to": "sip0.cube1.pe4", "latency": "64 ns"},
            *({"from": f"sip{i}", "to": f"sip{1 - i}", "latency": "1 us"} for i in range(2)),
            *({"from": f"sip1.cube0.pe{i}", "to": f"sip1.cube0.pe{i + 1}", "latency": "1 us"} for i in range(3)),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["pe1", "row4", "sip4", "shared", "direct"])
def test_the_graph_is_connected_and_has_every_part(name):
    m = VARIANTS[name]
    graph = to_networkx(m)
    kinds = [kind for _, kind in graph.nodes(data="kind")]
    assert kinds.count("pe") == m.n_pes
    assert kinds.count("router") == m.n_cubes
    assert kinds.count("memory") == (m.n_cubes if m.memory_scope == "cube" else m.n_sips)
    assert nx.is_strongly_connected(graph)
    assert all({"bandwidth", "latency"} <= set(data) for _, _, data in graph.edges(data=True))


def test_the_graph_s_shortest_ways_between_cubes_are_the_routes():
    m = VARIANTS["sip4"]
    graph = to_networkx(m)
    routers = graph.subgraph(n for n, kind in graph.nodes(data="kind") if kind == "router")
    for node in (17, 42, 63):
        sip, cube = divmod(node, 16)
        length = nx.shortest_path_length(routers, "sip0.cube0", f"sip{sip}.cube{cube}", weight="latency")
        assert length == m.network.route_latency[0, node]


def test_each_link_is_an_edge_by_its_id():
    m = VARIANTS["row4"]
    ids = {data["link"] for _, _, data in to_networkx(m).edges(data=True) if "link" in data}
    assert ids == set(range(m.network.n_links))


@pytest.mark.parametrize("name", VARIANTS)
def test_drawing_writes_a_png_and_nothing_else(name, tmp_path):
    draw(VARIANTS[name], tmp_path / "m.png")
    assert [p.name for p in tmp_path.iterdir()] == ["m.png"]
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_drawing_twice_gives_the_same_bytes_and_replaces_the_file(tmp_path):
    draw(VARIANTS["pe1"], str(tmp_path / "m.png"))
    first = (tmp_path / "m.png").read_bytes()
    (tmp_path / "m.png").write_bytes(b"old")
    draw(VARIANTS["pe1"], tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes() == first


def test_a_place_that_cannot_be_written_is_explained_and_left_clean(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        draw(VARIANTS["pe1"], tmp_path / "missing" / "m.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match=r"folder\.png: cannot be written"):
        draw(VARIANTS["pe1"], tmp_path / "folder.png")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.png"]


def test_drawing_leaves_matplotlib_s_global_state_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw(VARIANTS["pe1"], tmp_path / "m.png")
    assert dict(matplotlib.rcParams) == before


def apart(a: Box, b: Box) -> bool:
    return a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y


def within(a: Box, b: Box) -> bool:
    return a.x >= b.x and a.y >= b.y and a.x + a.width <= b.x + b.width and a.y + a.height <= b.y + b.height


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "grid16x32"])
def test_no_boxes_overlap_and_each_lies_in_its_frame(name):
    m = VARIANTS[name]
    layout = lay_out(m)
    whole = Box(0, 0, *layout.sips.extent)
    frames = [layout.sip(s) for s in range(m.n_sips)]
    assert all(within(frame, whole) for frame in frames)
    assert all(apart(a, b) for i, a in enumerate(frames) for b in frames[:i])
    for s, frame in enumerate(frames):
        boxes = [layout.cube(s, c) for c in range(m.cubes_per_sip)]
        boxes += [layout.sip_memory(s)] if layout.bar else []
        assert all(within(box, frame) for box in boxes)
        assert all(apart(a, b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize("name", ["row4", "sip4", "direct", "shared"])
def test_there_is_a_line_for_each_linked_pair(name):
    layout = lay_out(VARIANTS[name])
    for tiling in (layout.sips, layout.cubes):
        assert len(lines(tiling, tiling.box)) * 2 == len(tiling.grid.pairs())


@pytest.mark.parametrize("name", VARIANTS)
def test_texts_stay_on_the_page_and_apart(name):
    figure = paint(VARIANTS[name])
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for axes in figure.axes for text in axes.texts]
    page = figure.bbox
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in boxes)
    if len(boxes) < 300:
        for i, a in enumerate(boxes):
            assert not any(a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1 for b in boxes[:i])


def test_the_legend_gives_figures_and_lists_links_of_their_own():
    texts = [entry.text for entry in legend.entries(lay_out(VARIANTS["own links"]))]
    assert "link between CUBEs of a SIP: 256 GB/s, 20 ns each way, shared by the PEs of a CUBE" in texts
    assert "sip0.cube1 to sip0.cube0 only: 64 GB/s" in texts
    assert "and 3 more that differ" in texts


def test_a_picture_says_which_keys_were_changed():
    figure = paint(load_machine("pe1", {"pe.clock": "2 GHz"}))
    assert any("changed here: pe.clock" in text.get_text() for axes in figure.axes for text in axes.texts)
