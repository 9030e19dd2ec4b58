"""Code that numba has cached is compiled again when a file that it calls into changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kernbench

INNER = """
import numba as nb


@nb.njit(cache=True)
def inner():
    return {value}
"""
OUTER = """
import inner
import numba as nb
from kernbench.simulate.stale import compiled_with


@compiled_with(inner)
@nb.njit(cache=True)
def outer():
    return inner.inner() + 100
"""
MAIN = "from outer import outer; print(outer(), sum(outer.stats.cache_hits.values()))"


def test_a_change_in_a_file_that_is_called_into_is_noticed(tmp_path):
    (tmp_path / "outer.py").write_text(OUTER)
    assert _write_and_run(tmp_path, 1) == "101 0"
    assert _run(tmp_path) == "101 1"
    assert _write_and_run(tmp_path, 22) == "122 0"


def _write_and_run(folder: Path, value: int) -> str:
    (folder / "inner.py").write_text(INNER.format(value=value))
    return _run(folder)


def _run(folder: Path) -> str:
    paths = os.pathsep.join([str(folder), str(Path(kernbench.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", MAIN], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()
