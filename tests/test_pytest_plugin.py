"""`pytest --kernbench`: which benches are tests, what fails one, and the life of a baseline."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kernbench.baseline import Entry, difference, read_baseline
from kernbench.bench import Case, find_bench
from kernbench.cases import run_case
from kernbench.errors import InputError
from kernbench.report.shares import parts_of
from kernbench.run import exact_shares

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "ci.md"
PLUGIN = "kernbench.pytest_plugin"

DOUBLE = '''"""A bench that takes no time to speak of."""

import kernbench as kb
from kernbench.bench import Bench, Case
from kernbench.specs.attention import DecodeSpec


def double(x, y, *, tl):
    """Store twice the queries."""
    if tl.program_id(0) > 0:
        return
    tile = tl.load(x, shape=x.shape)
    tl.store(y, tile * 2)


def arguments(spec, machine, arrays):
    """Lay both tensors out as they are."""
    shape = (spec.T_q * spec.h_q, spec.d_head)
    x = kb.shape_only(shape, spec.dtype, machine) if arrays is None else kb.tensor(arrays["q"].reshape(shape), machine)
    y = kb.empty(shape, spec.dtype, machine)
    return (x, y), y


BENCHES = [
    Bench(
        name="double",
        summary="twice the queries",
        spec=DecodeSpec,
        kernel=double,
        arguments=arguments,
        reference=lambda spec, arrays: arrays["q"].reshape(-1, spec.d_head).astype("f8") * 2,
        output=lambda spec, y: y.numpy(),
        tolerance=lambda spec: 1e-3,
        cases=(Case(settings={"T_q": 2}, topology="pe1"), Case(settings={"T_q": 4}, topology="cube1_pe8")),
    )
]
'''
ON_ONE, ON_EIGHT = (f"benches/double.py::double[{case}]" for case in ("pe1 random T_q=2", "cube1_pe8 random T_q=4"))
KERNEL_LINE = DOUBLE[: DOUBLE.index("def double")].count("\n") + 1
SLOWER = ("tile * 2", "tile * 1.5 + tile * 0.5")
BOTH_RECEIVE_FIRST = (
    "> 0:\n        return\n",
    """> 1:
        return
    toward = ("intra_E", "intra_W")[tl.program_id(0)]
    tl.send(dir=toward, src=tl.recv(dir=toward, shape=(1, 1), dtype="f32"))
    if tl.program_id(0) > 0:
        return
""",
)
WRONG = ("tile * 2", "tile * 2.01")


class Project:
    """A folder with ``benches/double.py``, in which pytest is run as by a user."""

    def __init__(self, pytester, environment):
        self.pytester, self.environment = pytester, environment
        self.folder = pytester.path
        (self.folder / "benches").mkdir()
        self.write()

    def write(self, *changes, name="double", text=DOUBLE):
        """Write a bench file with some of its text changed."""
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.folder / "benches" / f"{name}.py").write_text(text)

    def pytest(self, *options, code, plugins=(PLUGIN,), **environment):
        """Run pytest with only these plugins beside its own; return what it prints.

        It runs in this process, which spares importing everything each time, unless it begins others itself.
        """
        loaded = [option for plugin in plugins for option in ("-p", plugin)]
        apart = "xdist" in plugins
        with self.environment.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
            done = run(*loaded, *options)
        out = "\n".join([*done.outlines, *done.errlines, ""])
        assert done.ret == code, out
        return out

    def check(self, *options, code=0, **rest):
        """Run ``pytest --kernbench benches``."""
        return self.pytest("--kernbench", "benches", *options, code=code, **rest)

    @property
    def baseline(self):
        return json.loads((self.folder / "baseline.json").read_text())

    @baseline.setter
    def baseline(self, entries):
        (self.folder / "baseline.json").write_text(json.dumps(entries))


HELD = "--kernbench-baseline=baseline.json"
UPDATE = (HELD, "--kernbench-update")


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """Import whatever a run needs, once: pytester forgets what is first imported while it runs pytest."""
    run_case(find_bench("gqa_decode_long"), Case(settings={"S_kv": 1}, topology="pe1"), mode="both")


@pytest.fixture
def project(pytester, monkeypatch):
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # kernbench is installed here, or it is not: no matter
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Project(pytester, monkeypatch)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Make the baseline of the bench as it is, in a process of its own."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "benches").mkdir()
    (folder / "benches" / "double.py").write_text(DOUBLE)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "--kernbench", "benches", *UPDATE]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert "baseline.json is written: 2 new, 0 changed, 0 removed" in done.stdout, done.stdout + done.stderr
    return (folder / "baseline.json").read_text()


@pytest.fixture
def held(project, recorded):
    """Return a project with a baseline."""
    (project.folder / "baseline.json").write_text(recorded)
    return project


# ---------------------------------------------------------------- which benches are tests
def test_nothing_heavy_is_imported_by_a_start_of_pytest():
    heavy = "{'numpy', 'numba', 'pydantic', 'scipy', 'typer', 'rich'} & set(sys.modules)"
    program = f"import sys; before = {heavy}; import {PLUGIN}; print(sorted({heavy} - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_the_package_registers_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kernbench": PLUGIN}


def test_without_the_flag_nothing_changes(project):
    project.write(name="test_more", text="BENCHES = 'no benches'\n\ndef test_of_their_own():\n    pass\n")
    with_it = project.pytest("--collect-only", "-q", "benches", HELD, code=0)
    without = project.pytest("--collect-only", "-q", "benches", code=0, plugins=())
    assert with_it.splitlines()[:2] == without.splitlines()[:2] == ["benches/test_more.py::test_of_their_own", ""]


def test_every_case_is_a_test_with_a_name_that_selects_it(project):
    project.write(("cases=(", 'cases=(Case(settings={"T_q": 2}, topology="pe1"), '), name="twice")
    project.write(
        name="quotes", text="EXAMPLE = '''\nBENCHES = []\n'''\n\ndef f():\n    BENCHES = 1\n    return BENCHES\n"
    )
    twice = [ON_ONE, ON_ONE.replace("]", " #2]"), ON_EIGHT]
    names = [ON_ONE, ON_EIGHT, *(name.replace("benches/double", "benches/twice") for name in twice)]
    assert project.check("--collect-only", "-q").splitlines()[:5] == names
    assert project.check("--collect-only", "-q", "-k", "cube1_pe8 and not twice").splitlines()[:1] == [ON_EIGHT]
    assert project.pytest("--kernbench", "--collect-only", "-q", ON_EIGHT, code=0).splitlines()[:2] == [ON_EIGHT, ""]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_it\nBENCHES = []\n", r"broken\.py:1: cannot be imported: ModuleNotFoundError"),
        ("BENCHES = [\n1 2]\n", r"broken\.py:2: cannot be imported: SyntaxError"),
        ("BENCHES: list = ['double']\n", r"broken\.py: BENCHES must be a list of"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_without_a_traceback(project, text, message):
    project.write(name="broken", text=text)
    out = project.check(code=2, GITHUB_ACTIONS="true")
    assert re.search(rf"^benches/{message}", out, flags=re.MULTILINE)
    assert re.search(rf"^::error file=benches/broken\.py::broken\.py%0Abenches/{message}", out, flags=re.MULTILINE)
    assert "Traceback" not in out
    assert "bench.py:" not in out


# ---------------------------------------------------------------- what fails a case
def test_a_right_bench_passes_and_its_figures_are_in_the_junit_file(project):
    assert "2 passed" in project.check("--junitxml=junit.xml")
    cases = ET.parse(project.folder / "junit.xml").findall(".//testcase")
    assert [case.get("name") for case in cases] == ["double[pe1 random T_q=2]", "double[cube1_pe8 random T_q=4]"]
    for case in cases:
        figures = {p.get("name"): p.get("value") for p in case.findall("./properties/property")}
        assert set(figures) == {"makespan_ps", "rel_l2"}
        assert int(figures["makespan_ps"]) > 0
        assert float(figures["rel_l2"]) <= 1e-3
        assert case.find("failure") is None


def test_wrong_values_fail_with_their_error_in_text_junit_file_and_annotation(project):
    project.write(WRONG)
    out = project.check(
        "--junitxml=junit.xml", code=1, GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(project.folder.parent)
    )
    assert out.count("values are wrong: relative L2 error 5.0e-03 (tolerance 1.0e-03)") >= 2
    assert "Traceback" not in out
    failures = ET.parse(project.folder / "junit.xml").findall(".//failure")
    assert len(failures) == 2
    assert all("relative L2 error 5.0e-03" in failure.text for failure in failures)
    where = f"file={project.folder.name}/benches/double.py,line={KERNEL_LINE}"
    assert f"\n::error {where}::double.py::double[pe1 random T_q=2]%0Avalues are wrong: relative L2 error" in out


def test_no_annotation_outside_github(project):
    project.write(WRONG)
    assert "::error" not in project.check(code=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (BOTH_RECEIVE_FIRST, "deadlock: 2 PEs wait for one another in a ring"),
        (("tile * 2", "tile * 2 + tl.zeros((4096, 1024), 'f32')[:1, :1]"), "scratch overflow: "),
        (("tile * 2", "tile @ tile"), "at benches/double.py:13: "),
        (('"T_q"', '"T_qq"'), "unknown spec field 'T_qq' (did you mean 'T_q'?)"),
    ],
)
def test_what_cannot_run_fails_with_the_message_of_kernbench(project, change, message):
    project.write(change)
    out = project.check("-k=cube1_pe8", code=1)
    assert message in out
    assert "Traceback" not in out
    assert "kernbench/" not in out


def test_a_bug_in_a_bench_shows_its_traceback(project):
    project.write(("y.numpy()", "1 / 0"))
    out = project.check("-k=pe1", code=1)
    assert "ZeroDivisionError" in out
    assert re.search(r"double\.py:\d+: ZeroDivisionError", out)


# ---------------------------------------------------------------- the baseline
def test_a_baseline_is_sorted_and_its_parts_add_up(held):
    entries = held.baseline
    assert list(entries) == [ON_EIGHT, ON_ONE]
    for entry in entries.values():
        assert entry["makespan_ps"] == sum(entry["ps_by_cause"].values()) > 0
        assert len(entry["topology_sha256"]) == 64


def test_an_unchanged_bench_holds_to_it_and_an_update_gives_the_same_bytes(held, recorded):
    assert "2 passed" in held.check(HELD)
    assert "0 new, 0 changed, 0 removed" in held.check(*UPDATE)
    assert (held.folder / "baseline.json").read_text() == recorded


def table(out):
    """Return the rows of the first table: cause → baseline, now, difference."""
    lines = out[out.index("  cause ") :].splitlines()[1:]
    rows = [line.split() for line in lines[: next(i for i, line in enumerate(lines) if "makespan" in line) + 1]]
    return {name: [int(figure.replace(",", "")) for figure in figures] for name, *figures in rows}


def test_a_slower_bench_fails_with_the_cause_that_grew_first(held):
    held.write(SLOWER)
    out = held.check(HELD, "-k=pe1", code=1)
    before = held.baseline[ON_ONE]
    rows = table(out)
    assert next(iter(rows)) == "vector"
    assert {cause: row[0] for cause, row in rows.items() if row[0]} == before["ps_by_cause"] | {
        "makespan": before["makespan_ps"]
    }
    total = rows.pop("makespan")
    assert [sum(column) for column in zip(*rows.values(), strict=True)] == total
    assert all(now - was == change for was, now, change in rows.values())
    assert [row[2] for row in rows.values()] == sorted((row[2] for row in rows.values()), reverse=True)
    assert f"slower than the baseline: {total[1]:,} ps, not {total[0]:,} ps (+" in out
    (command,) = re.findall(r"if that is meant, record it:\n  (pytest .*)", out)
    held.pytest(*shlex.split(command)[1:], code=0)  # what it says to do is enough
    held.check(HELD, "-k=pe1")


def test_a_faster_bench_fails_in_other_words(held, recorded):
    held.write(SLOWER)
    held.check(*UPDATE)
    held.write()
    out = held.check(HELD, "-k=pe1", code=1)
    assert f"faster than the baseline: {json.loads(recorded)[ON_ONE]['makespan_ps']:,} ps, not" in out
    assert "slower" not in out
    rows = table(out)
    assert next(iter(rows)) == "vector"
    assert rows["vector"][2] < 0


def test_a_tolerance_allows_that_much_and_no_more(held):
    entries = held.baseline
    right = entries[ON_ONE]["makespan_ps"]
    entries[ON_ONE] |= {"makespan_ps": right - 1000, "ps_by_cause": {"latency": right - 1000}}
    held.baseline = entries
    percent = 100_000 / (right - 1000)
    held.check(HELD, "-k=pe1", f"--kernbench-tolerance={percent * 1.001}")
    assert "% is allowed" in held.check(HELD, "-k=pe1", f"--kernbench-tolerance={percent * 0.999}", code=1)


@pytest.mark.parametrize(
    ("now", "percent", "differs"), [(200, 0, 0), (201, 0, 1), (199, 0, 1), (203, 1.5, 0), (204, 1.5, 1)]
)
def test_exact_is_to_the_picosecond_and_a_limit_itself_is_allowed(now, percent, differs):
    before, after = (Entry(makespan_ps=ps, ps_by_cause={"link": ps}, topology_sha256="") for ps in (200, now))
    assert bool(difference(before, after, "pe1", percent)) == differs


@given(st.dictionaries(st.text(), st.integers(0, 10**15), min_size=1).filter(lambda parts: sum(parts.values())))
def test_a_makespan_is_split_into_the_parts_that_its_shares_came_from(parts):
    total = sum(parts.values())
    split = parts_of(exact_shares(parts), total)
    assert sum(split.values()) == total
    assert all(abs(split[name] - part) <= 1 + total / 2**40 for name, part in parts.items())


def test_wrong_values_and_wrong_time_are_both_said(held):
    held.write(("tile * 2", "tile * 1.5 + tile * 0.51"))
    out = held.check(HELD, "-k=pe1", code=1)
    assert "values are wrong" in out
    assert "slower than the baseline" in out


def test_another_machine_is_said(held):
    text = (ROOT / "topologies" / "pe1.yaml").read_text()
    (held.folder / "topologies").mkdir()
    (held.folder / "topologies" / "pe1.yaml").write_text(text.replace("latency: 100 ns", "latency: 90 ns"))
    out = held.check(HELD, "-k=pe1", code=1)
    assert re.search(r"the machine has changed: pe1 has sha256 [0-9a-f]{12}\.\.\. now, not [0-9a-f]{12}\.\.\.", out)
    assert next(iter(table(out))) == "latency"


def test_a_case_without_entry_fails_and_says_how_to_add_it(held):
    entries = held.baseline
    del entries[ON_ONE]
    held.baseline = entries
    out = held.check(HELD, code=1)
    assert "1 failed, 1 passed" in out
    assert "baseline.json has no entry for this case" in out
    assert f"--kernbench '{ON_ONE}' --kernbench-baseline baseline.json --kernbench-update" in out


def test_entries_of_cases_that_are_gone_are_named_then_removed(held, recorded):
    entries = held.baseline
    gone = [ON_ONE.replace("T_q=2", "T_q=3"), ON_ONE.replace("double.py", "gone.py")]
    held.baseline = entries | dict.fromkeys(gone, entries[ON_ONE])
    out = held.check(HELD, "-k=pe1")
    assert "entries of cases that no longer exist" in out
    assert all(f"\n  {case}\n" in out for case in gone)
    assert f"  {ON_EIGHT}" not in out  # it was not chosen to run, but it exists
    assert "0 new, 0 changed, 2 removed" in held.check(*UPDATE)
    assert (held.folder / "baseline.json").read_text() == recorded


def test_an_update_keeps_entries_that_were_not_run_or_failed(held):
    before = held.baseline
    held.write(SLOWER)
    assert "0 new, 1 changed, 0 removed" in held.check(*UPDATE, "-k=pe1")
    assert held.baseline[ON_EIGHT] == before[ON_EIGHT]
    assert held.baseline[ON_ONE]["makespan_ps"] > before[ON_ONE]["makespan_ps"]
    held.write(WRONG)
    bytes_before = (held.folder / "baseline.json").read_bytes()
    held.check(*UPDATE, code=1)
    assert (held.folder / "baseline.json").read_bytes() == bytes_before


def test_processes_of_xdist_share_the_work_and_one_file(held, recorded):
    with_xdist = {"plugins": (PLUGIN, "xdist")}
    held.baseline = {}
    assert "2 new, 0 changed, 0 removed" in held.check("-n2", *UPDATE, **with_xdist)
    assert (held.folder / "baseline.json").read_text() == recorded
    entries = held.baseline
    entries[ON_EIGHT.replace("T_q=4", "T_q=5")] = entries[ON_EIGHT]
    held.baseline = entries
    held.write(SLOWER)
    out = held.check("-n2", HELD, code=1, **with_xdist, GITHUB_ACTIONS="true")
    assert "2 failed" in out
    assert out.count("\nslower than the baseline") == 2
    assert f"\n::error file=benches/double.py,line={KERNEL_LINE}::" in out
    assert "T_q=5]" in out[out.index("no longer exist") :]


# ---------------------------------------------------------------- what cannot be used
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kernbench", "--kernbench-update"), "--kernbench-update needs --kernbench and --kernbench-baseline FILE"),
        (("--kernbench-update", HELD), "--kernbench-update needs --kernbench and --kernbench-baseline FILE"),
        (("--kernbench", HELD), "there is no baseline baseline.json; --kernbench-update makes it"),
        (("--kernbench", "--kernbench-baseline=no/b.json", "--kernbench-update"), "cannot write"),
        (("--kernbench", "--kernbench-baseline=benches", "--kernbench-update"), "Is a directory"),
        (("--kernbench", "--kernbench-tolerance=-1"), "must be a percentage of at least 0, such as 0.5, not '-1'"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_the_work(project, options, message):
    out = project.pytest(*options, code=4)
    assert message in out
    assert "collected" not in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<<<<<< HEAD", "Expecting value: line 1"),
        ("[]", "the whole: Input should be a valid dictionary"),
        ('{"a": {"makespan_ps": 1.5, "ps_by_cause": {}, "topology_sha256": ""}}', "a: makespan_ps: Input should be"),
        ('{"a": {"makespan_ps": 5, "ps_by_cause": {"link": 4}, "topology_sha256": ""}}', "adds up to 4, not to"),
        ('{"a": {}, "a": {}}', "'a' is there twice"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path, text, message):
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_baseline(path)
    assert str(caught.value).startswith(f"{path} is not a kernbench baseline: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [(HELD,), UPDATE])
def test_pytest_refuses_it_and_leaves_it_alone(project, options):
    (project.folder / "baseline.json").write_text("<<<<<<< HEAD")
    out = project.check(*options, code=4)
    assert "baseline.json is not a kernbench baseline: Expecting value: line 1" in out
    assert "Traceback" not in out
    assert (project.folder / "baseline.json").read_text() == "<<<<<<< HEAD"
    assert sorted(path.name for path in project.folder.iterdir()) == ["baseline.json", "benches"]


# ---------------------------------------------------------------- the document
def test_the_commands_and_the_workflow_of_the_document_work(project):
    text = DOCUMENT.read_text()
    commands = re.findall(r"^pytest (--kernbench .*?)(?:  #.*)?$", text, flags=re.MULTILINE)
    assert any("--kernbench-update" in command for command in commands)
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(workflow.splitlines()) <= 10
    steps = yaml.safe_load(workflow)["jobs"]["kernbench"]["steps"]
    commands += [step["run"].rpartition("&& ")[2].removeprefix("pytest ") for step in steps if "run" in step]
    assert any("--junitxml" in command for command in commands)
    for words in map(shlex.split, commands):
        project.pytest(*words, code=0, plugins=(PLUGIN, "xdist") if "-n" in words else (PLUGIN,))
