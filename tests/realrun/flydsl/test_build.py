"""Finding vLLM's kernel and FlyDSL, and compiling, with stand-ins for both."""

import importlib.util
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kernbench.errors import InputError
from kernbench.realrun.flydsl import build, check
from tests.realrun.flydsl.standin import FLYDSL, VLLM, write

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "ultraquant_flydsl.py"


@pytest.fixture
def vllm(tmp_path):
    return write(VLLM, tmp_path / "installed")


@pytest.fixture
def flydsl(tmp_path, monkeypatch):
    """A FlyDSL with a linker, for subprocesses."""
    write({"llvm/bin/ld.lld": ""}, tmp_path / "rocm")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    site = write(FLYDSL, tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(SCRIPT.parents[1])]))
    return site


def test_a_directory_is_taken_as_it_is(vllm, tmp_path):
    assert build.find_kernel(vllm, tmp_path / "work") == vllm


def test_of_a_wheel_only_the_kernel_is_unpacked(tmp_path):
    wheel = tmp_path / "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in (VLLM | {"vllm/engine.py": "", "/etc/passwd": "", "../outside.py": ""}).items():
            file.writestr(name, text)
    root = build.find_kernel(wheel, tmp_path / "work")
    unpacked = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert unpacked == {*build.NEEDED, "vllm/_version.py"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vllm/_version.py": "__version__ = version = '0.32.1'\n"}, "is vLLM 0.32.1.*holds for 0.33.0"),
        ({"vllm/_version.py": "\n"}, "names a version"),
        ({build.NEEDED[-1]: None}, "has no vllm/.*/ultraquant_decode_hd256.py"),
    ],
)
def test_another_vllm_is_refused(change, message, vllm, tmp_path):
    for name, text in change.items():
        (vllm / name).unlink() if text is None else (vllm / name).write_text(text)
    with pytest.raises(InputError, match=message):
        build.find_kernel(vllm, tmp_path)


def test_what_is_no_vllm_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected a directory that holds vllm/, or vLLM's wheel"):
        build.find_kernel(tmp_path / "nowhere", tmp_path)


def test_versions_are_those_of_the_python(flydsl):
    assert build.find_versions(sys.executable) == {"flydsl": "0.5.0", "torch": "2.13.0"}


def test_another_flydsl_is_refused(flydsl):
    metadata = flydsl / "flydsl-0.5.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("0.5.0", "0.4.2"))
    with pytest.raises(InputError, match=r"has FlyDSL 0.4.2; 0.5.0 is"):
        build.find_versions(sys.executable)


def test_a_python_without_flydsl_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"install flydsl==0.5.0 and torch, or name the Python"):
        build.find_versions("/bin/false")
    with pytest.raises(InputError, match=r"--python .*nowhere: No such file"):
        build.find_versions(str(tmp_path / "nowhere"))


def test_the_builder_gets_the_spec_and_the_queries_their_strides(vllm, flydsl, tmp_path):
    spec = check.make_spec(8, 2, 64, [300, 0], partitions=2, tile_groups=1)
    work = tmp_path / "work"
    work.mkdir()
    text = build.compile_kernel(spec, sys.executable, vllm, work)
    seen = json.loads((text.parent / "seen.json").read_text())
    assert seen["build"] == {name: getattr(spec, name) for name in spec.__dataclass_fields__}
    assert seen["tensors"][3] == ["bf16", [2, 16, 256], [20 * 256, 256, 1]]
    assert [dtype for dtype, *_ in seen["tensors"]] == ["bf16", "f32", "f32", "bf16", "u8", "f32", "i32", "i32"]
    assert (seen["grid"], seen["block"]) == ([2, 2, 2], [64, 1, 1])
    assert seen["asked"] == {"COMPILE_ONLY": "1", "ARCH": "gfx950", "FLYDSL_GPU_ARCH": "gfx950",
                             "ROCM_PATH": os.environ["ROCM_PATH"]}  # fmt: skip


def test_a_failure_of_the_compiler_is_one_message(vllm, flydsl, tmp_path):
    (vllm / build.NEEDED[-1]).write_text("raise RuntimeError('no such atom')\n")
    spec = check.make_spec(8, 1, 64, [1], partitions=1, tile_groups=1)
    with pytest.raises(InputError, match="FlyDSL did not compile the kernel: RuntimeError: no such atom"):
        build.compile_kernel(spec, sys.executable, vllm, tmp_path)


def test_without_a_linker_the_message_says_which(vllm, flydsl, tmp_path, monkeypatch):
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    if Path("/opt/rocm/llvm/bin/ld.lld").exists():
        pytest.skip("ROCm is installed")
    spec = check.make_spec(8, 1, 64, [1], partitions=1, tile_groups=1)
    with pytest.raises(InputError, match=r"ld.lld, which is not installed"):
        build.compile_kernel(spec, sys.executable, vllm, tmp_path)


def run_script(*options):
    known = importlib.util.spec_from_file_location("ultraquant_flydsl", SCRIPT)
    script = importlib.util.module_from_spec(known)
    known.loader.exec_module(script)
    app = typer.Typer()
    app.command()(script.main)
    return CliRunner().invoke(app, options)


@pytest.mark.parametrize(("lengths", "code", "end"), [("0", 0, "1 of 1"), ("5", 1, "0 of 1")])
def test_the_script_compiles_executes_and_compares(lengths, code, end, vllm, flydsl):
    done = run_script(str(vllm), "--query-group=8", "--kv-heads=1", "--block-size=64", "--tile-groups=2",
                      "--partitions=3", f"--lengths={lengths}")  # fmt: skip
    assert (done.exit_code, done.stderr) == (code, "")
    assert done.stdout.startswith("vLLM 0.33.0, FlyDSL 0.5.0, PyTorch 2.13.0, gfx950; lengths ")
    assert done.stdout.splitlines()[-1] == f"{end} builds within tolerance"
    assert ("FAILED" in done.stdout) == (code == 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [(["nowhere"], "nowhere: expected a directory"), ([".", "--query-group=5"], "query_group_size=5 must be one of"),
     ([".", "--lengths=600", "--partitions=1", "--tile-groups=2"], "sequence 0 has 600 tokens"),
     ([".", "--lengths=x"], "--lengths takes numbers")],
)  # fmt: skip
def test_bad_input_is_one_message_and_exit_code_2(options, message, flydsl):
    done = run_script(*options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("kernbench: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
