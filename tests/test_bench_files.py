"""Finding benches: the working directory first, then kernbench's own, and what is said of files that do not work."""

import sys
from pathlib import Path

import pytest

from kernbench.bench import Bench, all_benches, find_bench
from kernbench.errors import InputError

SHIPPED = (Path(__file__).parent.parent / "benches" / "gqa_decode_long.py").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benches").mkdir()
    return tmp_path / "benches"


def test_shipped_benches_are_found_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(find_bench("gqa_decode_long"), Bench)
    assert "gqa_decode_long" in all_benches()


def test_the_working_directory_comes_first_and_adds_to_the_shipped(folder):
    (folder / "gqa_decode_long.py").write_text(SHIPPED.replace("decode with grouped", "MINE: decode with grouped"))
    (folder / "more.py").write_text(SHIPPED.replace('name="gqa_decode_long"', 'name="another"'))
    assert find_bench("gqa_decode_long").summary.startswith("MINE")
    assert find_bench("another").name == "another"
    assert {"another", "gqa_decode_long"} <= set(all_benches())


def test_errors_of_a_kernel_point_at_the_bench_file(folder):
    assert Path(sys.modules[find_bench("gqa_decode_long").kernel.__module__].__file__).name == "gqa_decode_long.py"
    assert not find_bench("gqa_decode_long").kernel.__module__.startswith("kernbench.")


def test_an_unknown_bench_gives_the_nearest_name():
    with pytest.raises(InputError, match=r"unknown bench 'gqa_decode' \(did you mean 'gqa_decode_long'\?\)"):
        find_bench("gqa_decode")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_it\nBENCHES = ['broken']", r"broken\.py:1: .*ModuleNotFoundError: No module named"),
        ("BENCHES = [\n'broken' 5]", r"broken\.py:2: .*SyntaxError"),
        ("def f():\n    return 1 / 0\n\nBENCHES = [f(), 'broken']", r"broken\.py:2: .*ZeroDivisionError"),
        ("BENCHES = 'broken'", r"broken\.py: BENCHES must be a list"),
        ("BENCHES = ['broken']", r"broken\.py: BENCHES must be a list"),
    ],
)
def test_a_file_that_does_not_import_is_named_with_its_line(folder, text, message):
    (folder / "broken.py").write_text(text)
    with pytest.raises(InputError, match=message):
        find_bench("broken")
    assert find_bench("gqa_decode_long")  # files that do not mention a bench are left alone


def test_other_python_files_are_left_alone(folder):
    (folder / "tool.py").write_text("raise SystemExit('this is no bench')")
    assert "gqa_decode_long" in all_benches()
