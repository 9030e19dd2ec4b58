"""`kernbench plot`: each picture from files of runs, or from a sweep in the store."""

import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from tests.explore.helpers import run_here

SWEEP = """
bench: gqa_decode_long
topology: cube1_pe8
spec: {S_kv: [64, 128, 256], TILE_S_KV: [16, 32]}
machine: {cube.pes.columns: [2, 4]}
"""


def kernbench(*words):
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    for name, keys in (("short", 64), ("long", 512)):
        words = ["--topology", "cube1_pe8", "--mode", "time", "--set", f"S_kv={keys}"]
        code, output = kernbench("run", "gqa_decode_long", *words, "--json", str(folder / f"{name}.json"))
        assert code == 0, output
    words = ["--topology", "h200", "--mode", "time", "--set", "S_kv=4096"]
    assert kernbench("run", "decode_splitkv", *words, "--json", str(folder / "grid.json"))[0] == 0
    (folder / "sizes.yaml").write_text(SWEEP)
    run_here(SWEEP, folder / "kernbench.sqlite", "sizes")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "causes short.json long.json",
        "gantt long.json",
        "gantt long.json --pes 0-3",
        "heat short.json",
        "roofline short.json long.json --engines",
        "roofline grid.json --measured",
        "latency sizes --lines sharding,cube.pes.columns",
        "latency sizes.yaml --x pes",
        "pareto sizes --y link_bytes",
        "scaling sizes --where TILE_S_KV==16",
        "scaling sizes --weak",
    ],
)
@pytest.mark.parametrize("form", ["svg"])
def test_pictures(folder, monkeypatch, words, form):
    monkeypatch.chdir(folder)
    code, output = kernbench("plot", *words.split(), "--out", f"picture.{form}", "--title", "What it shows")
    assert code == 0, output
    assert output == "wrote picture.svg\n"
    text = (folder / "picture.svg").read_text()
    assert text.startswith("<?xml")
    (folder / "picture.svg").unlink()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("caused short.json", "unknown picture 'caused' (did you mean 'causes'?)"),
        ("causes none.json", "cannot read none.json"),
        ("heat short.json long.json", "heat is a picture of one run; 2 are named"),
        ("gantt grid.json", "launches grids of workgroups"),
        ("gantt long.json --pes cube9", "cube9"),
        ("roofline short.json --measured", "--measured: no real run of gqa_decode_long on cube1_pe8 is known"),
        ("roofline short.json grid.json", "has no place under the roofs of"),
        ("latency size", "holds no sweep 'size' (did you mean 'sizes'?)"),
        ("latency sizes sizes", "latency is a picture of one sweep; 2 are named"),
        ("latency sizes --x S_k", "no column 'S_k' (did you mean 'S_kv'?)"),
        ("pareto sizes --y costs", "no column 'costs'"),
        ("pareto sizes --where S_kv>9999", "none of 0 points can be drawn"),
        ("latency sizes --store none.sqlite", "there is no store none.sqlite"),
    ],
)
def test_what_cannot_be_drawn_is_one_message_and_no_file(folder, monkeypatch, words, says):
    monkeypatch.chdir(folder)
    code, output = kernbench("plot", *words.split(), "--out", "no.png")
    assert code == 2, output
    assert says in output
    assert "Traceback" not in output
    assert not (folder / "no.png").exists()


def test_a_picture_of_an_unknown_format_is_refused_before_the_work(folder, monkeypatch):
    monkeypatch.chdir(folder)
    code, output = kernbench("plot", "causes", "short.json", "--out", "no.jpg2")
    assert code == 2
    assert "svg" in output


def test_a_sweep_s_page_is_asked_for_by_its_name_or_its_file(folder, monkeypatch):
    monkeypatch.chdir(folder)
    pages = []
    for name in ("sizes", "sizes.yaml"):
        code, output = kernbench("report", name, "--out", f"page-{name}")
        assert code == 0, output
        pages.append((folder / f"page-{name}" / "index.html").read_bytes())
    assert pages[0] == pages[1]
