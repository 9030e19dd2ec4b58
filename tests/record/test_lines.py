"""Commands, errors and reports point at the kernel author's own lines, whatever runs in between."""

import contextlib
import functools
import importlib.util
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import kernbench as kb
from kernbench.collectives import reduce_to_root
from kernbench.record.lines import is_library

from .helpers import complaint, marked, small_machine

MACHINE = small_machine(cubes=1, columns=2, rows=1)


def lines_of(kernel):
    trace = kb.record(kernel, MACHINE)
    return [str(trace.lines[c.line]) for c in trace.classes[0].commands]


def test_each_command_has_its_line():
    def kernel(*, tl):
        t = tl.zeros((4, 4))  # one
        tl.exp(t + t)  # two
        t.to("f16")  # three

    assert lines_of(kernel) == [f"tests/record/{marked(kernel, f'# {n}')}" for n in ("one", "two", "two", "three")]


def test_a_loop_body_is_one_line():
    def kernel(*, tl):
        for i in range(5):
            tl.full((4,), i)  # here

    trace = kb.record(kernel, MACHINE)
    assert len(trace.lines) == 1
    assert set(lines_of(kernel)) == {f"tests/record/{marked(kernel)}"}


def test_helpers_of_the_author_are_named_and_those_of_kernbench_and_python_are_not(tmp_path):
    path = tmp_path / "my_helpers.py"
    path.write_text("def twice(t):\n    return t + t  # in a helper\n")
    spec = importlib.util.spec_from_file_location("my_helpers", path)
    helpers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helpers)

    def kernel(*, tl):
        with contextlib.ExitStack() as stack:
            stack.enter_context(tl.scratch_scope())
            t = helpers.twice(tl.zeros((4,)))  # zeros
            functools.partial(tl.exp)(t)  # exp
            reduce_to_root((t,), lambda a, b: (a[0] + b[0],), ("pe",), tl=tl)  # reduce

    zeros, add, exp, *rest = lines_of(kernel)
    assert zeros.endswith("# zeros")
    assert add == "my_helpers.py:2: return t + t  # in a helper"
    assert exp.endswith("# exp")
    assert rest
    assert all(line.endswith("# reduce") for line in rest)


def test_lines_are_named_from_the_working_directory(monkeypatch, tmp_path):
    def kernel(*, tl):
        raise ValueError("no")  # here

    assert f"  at tests/record/{marked(kernel)}" in complaint(kernel, MACHINE)
    monkeypatch.chdir(tmp_path)
    assert f"  at {marked(kernel)}" in complaint(kernel, MACHINE)


@pytest.mark.parametrize(
    ("inside", "is_one"),
    [
        ("{kernbench}/tl/tile.py", True),
        ("{kernbench}/_benches/gqa_decode_long.py", False),
        ("{stdlib}/contextlib.py", True),
        ("{site}/numpy/_core/fromnumeric.py", True),
        ("{site}/someones_kernels/attention.py", False),
        ("/home/someone/kernels.py", False),
        ("<stdin>", False),
        ("<doctest kernbench[0]>", False),
    ],
)
def test_what_counts_as_a_library(inside, is_one):
    folders = {
        "kernbench": Path(kb.__file__).parent,
        "stdlib": sysconfig.get_paths()["stdlib"],
        "site": Path(np.__file__).parent.parent,
    }
    assert is_library(inside.format(**folders)) is is_one
