"""Benches as tests: ``pytest --kernbench benches/``.

Each case of each bench in a file with a module-level list ``BENCHES`` is a test: it must run, its values must be
right, and its makespan that of a baseline file, if one is given (``docs/ci.md``). pytest loads this module in every
project where kernbench is installed, so nothing heavy is imported before ``--kernbench`` asks for it, and without
that flag nothing but the options is there.
"""

from __future__ import annotations

import argparse
import ast
import functools
import math
import os
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernbench.errors import InputError, KernbenchError

if TYPE_CHECKING:
    from kernbench.baseline import Entry
    from kernbench.bench import AnyBench, Case
    from kernbench.run import RunResult

PLUGIN = "kernbench_checks"
"""Name under which :class:`BenchChecks` is registered with pytest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kernbench", "benches as tests (kernbench)")
    group.addoption(
        "--kernbench",
        action="store_true",
        help="Collect the cases of bench files, those with a list BENCHES, as tests.",
    )
    group.addoption("--kernbench-baseline", metavar="FILE", help="Hold makespans against this file.")
    group.addoption(
        "--kernbench-tolerance",
        metavar="PERCENT",
        type=_percent,
        default=0.0,
        help="How far a makespan may be from the baseline's. Default: 0, to the picosecond.",
    )
    group.addoption(
        "--kernbench-update",
        action="store_true",
        help="Write the makespans into the baseline file; hold none against it.",
    )


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a percentage of at least 0, such as 0.5, not {text!r}")
    return value


def pytest_configure(config: pytest.Config) -> None:
    """Begin, if ``--kernbench`` is given."""
    if config.getoption("kernbench_update") and not (
        config.getoption("kernbench") and config.getoption("kernbench_baseline")
    ):
        raise pytest.UsageError("--kernbench-update needs --kernbench and --kernbench-baseline FILE, the file to write")
    if config.getoption("kernbench"):
        try:
            config.pluginmanager.register(BenchChecks(config), PLUGIN)
        except InputError as error:
            raise pytest.UsageError(str(error)) from None


class CheckFailed(Exception):
    """A bench that ran, and is not as it should be. The message is complete."""


class BenchFile(pytest.File):
    """A file with benches."""

    def collect(self) -> Iterator[BenchItem]:
        """Yield one item for each case of each bench, as ``gqa_decode_long[row4_pe8 captured T_q=4]``."""
        from kernbench.bench import load_benches
        from kernbench.cases import case_name

        items: dict[str, BenchItem] = {}
        for bench in load_benches(Path(os.path.relpath(self.path))):
            for case in bench.cases:
                label, alike = case_name(case), 1
                while (name := f"{bench.name}[{label}{f' #{alike}' if alike > 1 else ''}]") in items:
                    alike += 1
                items[name] = BenchItem.from_parent(self, name=name, bench=bench, case=case)
        checks_of(self.config).collected[self.nodeid] = [item.nodeid for item in items.values()]
        yield from items.values()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say what is wrong with a file that cannot be used; a traceback would say less."""
        return str(excinfo.value) if isinstance(excinfo.value, KernbenchError) else super().repr_failure(excinfo)


class BenchItem(pytest.Item):
    """One case of a bench."""

    def __init__(self, *, bench: AnyBench, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self.bench, self.case = bench, case
        self.entry: Entry | None = None
        """What a baseline keeps of it, once it has run and its values are right."""

    def runtest(self) -> None:
        """Run the case, and check its values and its time."""
        from kernbench.baseline import Entry
        from kernbench.cases import run_case
        from kernbench.screen import errors_text

        result = run_case(self.bench, self.case, mode="both")
        assert result.correctness is not None  # mode both always has one
        self.user_properties += [("makespan_ps", result.makespan_ps), ("rel_l2", result.correctness.rel_l2)]
        if result.warnings:
            self.add_report_section("call", "kernbench warnings", "\n".join(result.warnings))
        entry = Entry.of(result)
        problems = [] if result.passed else [f"values are wrong: {errors_text(result.correctness)}"]
        problems += checks_of(self.config).faults_of_time(self.nodeid, entry, result)
        if problems:
            raise CheckFailed("\n\n".join(problems))
        self.entry = entry

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Give kernbench's own message; a traceback only of what is a bug, in a bench or in kernbench."""
        if isinstance(excinfo.value, (KernbenchError, CheckFailed)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the bench's file and the line of its kernel, of a grid bench of what launches its kernels; from 0."""
        from kernbench.bench import Bench

        function: Any = self.bench.kernel if isinstance(self.bench, Bench) else self.bench.launches
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if code is None or Path(code.co_filename).resolve() != self.path.resolve():
            return self.path, 0, self.name
        return self.path, code.co_firstlineno - 1, self.name


class BenchChecks:
    """The hooks of a session that collects benches, and what it knows: the baseline, and what was measured.

    With pytest-xdist each worker has one as well: it collects, compares, and sends what it has found to the
    controller in its reports and, at its end, as ``workeroutput``.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.update: bool = config.getoption("kernbench_update")
        self.tolerance: float = config.getoption("kernbench_tolerance")
        given = config.getoption("kernbench_baseline")
        self.path = config.invocation_params.dir / given if given else None
        self.baseline: dict[str, Entry] = self._read()
        self.collected: dict[str, list[str]] = {}
        """File → its cases, whether they are chosen to run or not."""
        self.measured: dict[str, Entry] = {}
        """Case → its entry, of those that ran and passed."""
        self.outcome = ""

    def _read(self) -> dict[str, Entry]:
        from kernbench.baseline import read_baseline

        if self.path is None:
            return {}
        if not self.path.exists():
            if not self.update:
                raise InputError(f"there is no baseline {self._shown}; --kernbench-update makes it")
            check_writable(self.path)
            return {}
        if self.update:
            check_writable(self.path)
        return read_baseline(self.path)

    @property
    def _shown(self) -> str:
        return os.path.relpath(self.path) if self.path else ""

    def faults_of_time(self, case: str, now: Entry, result: RunResult) -> list[str]:
        """Return what is to be said of a makespan that is not the baseline's, or not in it."""
        from kernbench.baseline import difference

        if self.path is None or self.update:
            return []
        record = (
            f"pytest --kernbench {shlex.quote(case)} --kernbench-baseline {shlex.quote(self._shown)} --kernbench-update"
        )
        before = self.baseline.get(case)
        if before is None:
            return [f"{self._shown} has no entry for this case, {now.makespan_ps:,} ps; add it:\n  {record}"]
        text = difference(before, now, result.topology, self.tolerance)
        return [f"{text}\nif that is meant, record it:\n  {record}"] if text else []

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> BenchFile | None:
        """Take the files that hold benches."""
        if file_path.suffix == ".py" and holds_benches(file_path):
            return BenchFile.from_parent(parent, path=file_path)
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Mark reports of bench files."""
        report = yield
        if isinstance(collector, BenchFile):
            report.kernbench = None  # type: ignore[attr-defined]  # pytest sends on what is set here
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark reports of cases, and put what was measured into them."""
        report = yield
        if isinstance(item, BenchItem) and call.when == "call":
            report.kernbench = item.entry and item.entry.model_dump()  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what was measured out of the reports."""
        from kernbench.baseline import Entry

        if report.passed and getattr(report, "kernbench", None):
            self.measured[report.nodeid] = Entry(**report.kernbench)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn from a worker of pytest-xdist what it collected."""
        self.collected.update(getattr(node, "workeroutput", {}).get(PLUGIN, {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the baseline, if that was asked for; a worker tells the controller what it collected."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[PLUGIN] = self.collected
        elif self.update and self.measured:
            try:
                self._write()
            except InputError as error:
                self.outcome = str(error)
                session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _write(self) -> None:
        from kernbench.baseline import write_baseline

        assert self.path is not None  # pytest_configure sees to it
        gone = self.gone()
        kept = {case: entry for case, entry in self.baseline.items() if case not in gone}
        write_baseline(self.path, kept | self.measured)
        new = sum(case not in kept for case in self.measured)
        changed = sum(case in kept and kept[case] != entry for case, entry in self.measured.items())
        self.outcome = f"{self._shown} is written: {new} new, {changed} changed, {len(gone)} removed"

    def gone(self) -> list[str]:
        """Return the cases of the baseline that no longer exist: their file is gone, or was read and lacks them."""

        def exists(case: str) -> bool:
            file = case.partition("::")[0]
            return case in self.collected[file] if file in self.collected else (self.config.rootpath / file).exists()

        return [case for case in sorted(self.baseline) if not exists(case)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what became of the baseline, and annotate the failures on GitHub."""
        gone = [] if self.update else self.gone()
        if self.outcome or gone:
            terminalreporter.section("kernbench")
        if self.outcome:
            terminalreporter.line(self.outcome)
        if gone:
            terminalreporter.line(
                f"{self._shown} has entries of cases that no longer exist (--kernbench-update removes them):"
            )
            for case in gone:
                terminalreporter.line(f"  {case}", yellow=True)
        others_annotate = self.config.pluginmanager.hasplugin("pytest_github_actions_annotate_failures")
        if os.environ.get("GITHUB_ACTIONS") == "true" and not others_annotate:
            for report in (*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())):
                if hasattr(report, "kernbench"):
                    terminalreporter.line(annotation(report, self.config.rootpath))


def checks_of(config: pytest.Config) -> BenchChecks:
    """Return what the session knows of benches."""
    found = config.pluginmanager.get_plugin(PLUGIN)
    assert isinstance(found, BenchChecks)
    return found


def holds_benches(path: Path) -> bool:
    """Whether a Python file assigns ``BENCHES`` at its top level, or means to, and is no Python."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if "BENCHES" not in text:
        return False
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        return True
    targets: list[ast.expr] = []
    for statement in statements:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets.append(statement.target)
    return any(isinstance(target, ast.Name) and target.id == "BENCHES" for target in targets)


def check_writable(path: Path) -> None:
    """Find out before the work whether a file could be written. Raises InputError if not; the file stays as it is."""
    from kernbench.output import whole_file

    class Leave(Exception):
        """Leave without writing."""

    try:
        with whole_file(path):
            raise Leave
    except Leave:
        pass


def annotation(report: pytest.TestReport | pytest.CollectReport, root: Path) -> str:
    """Return the line by which a step of a GitHub workflow marks a failure in the source."""
    file, line = root / report.nodeid.partition("::")[0], ""
    if isinstance(report, pytest.TestReport) and report.location[1] is not None:
        line = f",line={report.location[1] + 1}"
    repository = Path(os.environ.get("GITHUB_WORKSPACE", root))
    shown = file.relative_to(repository) if file.is_relative_to(repository) else file
    message = f"{report.nodeid.rpartition('/')[2]}\n{report.longreprtext}"
    return f"::error file={_escaped(shown.as_posix(), ':,')}{line}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """Replace what would end the command; ``%`` first, since it begins a replacement."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
