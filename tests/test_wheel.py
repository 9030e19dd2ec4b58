"""The built wheel: everything a user needs is in it, and it runs from an empty directory."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the wheel by way of the sdist, so that the sdist must hold all that a build needs."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel beside the packages that are here already; return the environment that finds it first."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    run(*pip, str(built[0]))
    return os.environ | {"PYTHONPATH": str(target), "PATH": f"{target / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def test_the_wheel_holds_benches_topologies_data_and_licence(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
    for name in (
        "kernbench/_benches/gqa_decode_long.py",
        "kernbench/_topologies/row4_pe8.yaml",
        "kernbench/data/smollm2_layer2_1024.npz",
        "kernbench/data/README.md",
        "kernbench/report/page/templates/run.html.j2",
        "kernbench/report/page/templates/style.css",
    ):
        assert name in names
    assert any(name.endswith("LICENSE") for name in names)
    assert not any("__pycache__" in name or name.startswith("tests/") for name in names)


def test_the_sdist_holds_the_tests_as_well(built):
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "tests/test_wheel.py", "benches/gqa_decode_long.py"} <= names


def test_the_installed_command_works_in_an_empty_directory(installed, tmp_path):
    where = run(sys.executable, "-c", "import kernbench; print(kernbench.__file__)", env=installed, cwd=tmp_path)
    assert str(ROOT) not in where
    listed = run("kernbench", "list", env=installed, cwd=tmp_path)
    assert "gqa_decode_long" in listed
    assert "sip4_grid4x4_pe8" in listed
    run("kernbench", "run", "gqa_decode_long", "--json", "r.json", "--no-progress", env=installed, cwd=tmp_path)
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["correctness"]["passed"]
    assert record["inputs"] == "captured"
    assert record["makespan_ps"] > 0
    run("kernbench", "show", "pe1", "--png", "m.png", env=installed, cwd=tmp_path)
    run("kernbench", "report", "r.json", "--out", "page", env=installed, cwd=tmp_path)
    assert "def gqa_decode(" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.png", "page", "r.json"]
