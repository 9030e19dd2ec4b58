"""`kernbench sweep` and `kernbench results`: local processes, kills, Ctrl-C, exports."""

import contextlib
import csv
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.explore import results_frame, sweep
from tests.explore.helpers import SMALL, run_here

ROOT = Path(__file__).parents[2]
MANY = """
bench: gqa_decode_long
topology: cube1_pe8
spec: {S_kv: 64, TILE_S_KV: [8, 16]}
machine:
  cube.memory.bandwidth: {from: 0.1 TB/s, to: 2 TB/s, step: 0.04 TB/s}
  pe.load.queues: [1, 2, 3]
"""


def kernbench(*words):
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "many.yaml").write_text(MANY)
    return tmp_path


@pytest.fixture
def swept(folder):
    """Return the folder with small.yaml's results in its store, without the cost of starting workers."""
    run_here(SMALL, folder / "kernbench.sqlite")
    return folder


def start(folder, *words):
    """Start a sweep as a process of its own, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "kernbench.cli", "sweep", *words], cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have it ignored
    )  # fmt: skip


def stored(folder):
    try:  # not read-only: what a killed process had begun is rolled back by who opens the file next
        with sqlite3.connect(f"file:{folder / 'kernbench.sqlite'}?mode=rw", uri=True, timeout=30) as connection:
            return connection.execute("SELECT count(*) FROM members").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def wait_for(condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def children(pid):
    """Processes whose parent is ``pid``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_sweep_prints_its_winner_and_why(folder):
    code, output = kernbench("sweep", "small.yaml", "--workers", "2")
    assert code == 0, output
    assert "small: 12 points (12 timed now, 0 taken from kernbench.sqlite)" in output
    assert "why: no schedule beats" in output
    assert re.search(r"\nledger: \d+ figures sourced, .* 1 changed; times on meshes follow from these figures", output)
    assert (
        "again: kernbench run gqa_decode_long --topology cube1_pe8 --override 'cube.memory.bandwidth=1.2 TB/s'"
        in output
    )
    code, again = kernbench("sweep", "small.yaml")
    assert "small: 12 points (0 timed now, 12 taken from kernbench.sqlite)" in again
    assert again.splitlines()[1:] == output.splitlines()[1:]


def test_a_narrow_terminal_shows_how_far_it_is_and_the_time_left(folder):
    ours, theirs = os.openpty()
    sweep = subprocess.Popen(
        [sys.executable, "-m", "kernbench.cli", "sweep", "small.yaml", "--workers", "1"], cwd=folder, stderr=theirs,
        stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "60", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = bytearray()
    with contextlib.suppress(OSError):  # what a terminal gives at its end
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert sweep.wait() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r", "\n").splitlines()
    bars = [line for line in lines if "━" in line]
    assert any("0/12" in line for line in bars)
    assert re.search(r"12/12 0:00:00 best \d", bars[-1])
    assert all(len(line) <= 60 for line in bars)


def kill_once_stored(folder, least):
    """Kill a sweep when so many points are stored; its workers must not outlive it."""
    sweep = start(folder, "many.yaml", "--workers", "2")
    wait_for(lambda: stored(folder) >= least or sweep.poll() is not None)
    workers = children(sweep.pid)
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.wait()
    assert workers
    wait_for(lambda: not any(map(is_running, workers)))
    assert least <= stored(folder)


@pytest.mark.slow
def test_a_sweep_that_is_killed_at_any_moment_goes_on_without_loss_or_repetition(folder):
    whole = start(folder, "many.yaml", "--store", "whole.sqlite", "--workers", "2")
    for least in (1, 60):
        kill_once_stored(folder, least)
    assert whole.wait() == 0, whole.stderr.read()
    before = stored(folder)
    assert before < 288
    code, output = kernbench("sweep", "many.yaml", "--workers", "2")
    assert code == 0, output
    assert f"288 points ({288 - before:,} timed now, {before:,} taken from" in output
    pd.testing.assert_frame_equal(results_frame("kernbench.sqlite", "many"), results_frame("whole.sqlite", "many"))


def test_an_interruption_keeps_what_is_done_and_says_so(folder):
    running = start(folder, "many.yaml", "--workers", "1")
    wait_for(lambda: stored(folder) >= 1)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "points are kept in kernbench.sqlite; the same command goes on from there" in errors
    assert "Traceback" not in errors
    assert 1 <= stored(folder) < 288


def test_two_sweeps_may_write_to_one_store(folder):
    both = [start(folder, name, "--workers", "1") for name in ("many.yaml", "small.yaml")]
    for process in both:
        assert process.wait() == 0, process.stderr.read()
    assert len(results_frame("kernbench.sqlite", "many")) == 288
    assert len(results_frame("kernbench.sqlite", "small")) == 12


def test_a_sweep_from_python_gives_its_points(folder):
    seen = []
    frame = sweep("small.yaml", workers=1, progress=lambda tally: seen.append(tally.seen))
    pd.testing.assert_frame_equal(frame, results_frame("kernbench.sqlite", "small"))
    assert len(frame) == seen[-1] == 12


def test_results_are_listed_filtered_sorted_and_exported(swept):
    code, output = kernbench("results")
    assert code == 0
    assert output.split()[-4:] == ["small", "12", "12", "12"]
    assert kernbench("results", "small.yaml") == kernbench("results", "small")
    options = ["--where", "TILE_S_KV == 16", "--sort", "buffers", "--csv", "few.csv", "--parquet", "few.parquet"]
    code, output = kernbench("results", "small", *options, "--limit", "4")
    assert code == 0, output
    assert "and 2 more; --limit 0 shows all" in output
    frame = results_frame("kernbench.sqlite", "small", "TILE_S_KV == 16")
    with open("few.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["makespan_ps"]) for row in rows) == sorted(frame["makespan_ps"])
    assert [row["buffers"] for row in rows] == ["1"] * 3 + ["2"] * 3
    parquet = pd.read_parquet("few.parquet")
    assert list(parquet["makespan_ps"]) == [int(row["makespan_ps"]) for row in rows]
    assert list(parquet.columns) == list(frame.columns)


def test_results_of_points_that_failed_are_listed_with_their_reason(folder):
    Path("some.yaml").write_text("bench: gqa_decode_long\ntopology: pe1\nspec: {S_kv: 64, h_q: [9, 8], h_kv: 4}")
    assert kernbench("sweep", "some.yaml", "--workers", "1")[0] == 0
    code, output = kernbench("results", "some")
    assert code == 0, output
    heading, first, second, *_ = output.splitlines()
    assert "makespan_ps" in heading
    assert first.split()[0] == "8"  # smallest first, what has no time behind
    assert "µs" in first
    assert second.split()[:2] == ["9", "False"]  # nothing stands where there is no result
    assert "h_q" in second


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep", "none.yaml"], "none.yaml: cannot be read: No such file or directory"),
        (["sweep", "bad.yaml"], "bad.yaml: spec.TILE: unknown field (did you mean 'TILE_S_KV'?)"),
        (["sweep", "small.yaml", "--store", "text.sqlite"], "text.sqlite: is no store of kernbench, or is damaged"),
        (["sweep", "small.yaml", "--cluster", "tcp://127.0.0.1:9"], "no Dask scheduler answers at tcp://127.0.0.1:9"),
        (["sweep", "small.yaml", "--cluster", "nonsense:x"], "no Dask scheduler answers at nonsense:x"),
        (["sweep", "small.yaml", "--cluster", "a", "--workers", "2"], "--workers is for this machine"),
        (["results"], "there is no store kernbench.sqlite; `kernbench sweep FILE` makes one"),
        (["results", "--store", "text.sqlite"], "text.sqlite: is no store of kernbench"),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing(folder, words, says):
    (folder / "bad.yaml").write_text("bench: gqa_decode_long\nspec: {TILE: 3}\n")
    (folder / "text.sqlite").write_text("not a store" * 100)
    before = sorted(path.name for path in folder.iterdir())
    code, output = kernbench(*words)
    assert code == 2
    assert says in output
    assert "Traceback" not in output
    made = {path.name for path in folder.iterdir()} - set(before)
    assert made <= {"kernbench.sqlite"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["results", "none.yaml"], "none.yaml: cannot be read: No such file or directory"),
        (["results", "smal"], "holds no sweep 'smal' (did you mean 'small'?)"),
        (["results", "small", "--where", "TILE < 3"], "no column 'TILE' (did you mean 'TILE_S_KV'?)"),
        (["results", "small", "--where", "TILE_S_KV <"], "--where: cannot read"),
        (["results", "small", "--sort", "makespan"], "--sort: no column 'makespan' (did you mean 'makespan_ps'?)"),
        (["results", "small", "--csv", "no/such/folder.csv"], "cannot write no/such/folder.csv"),
    ],
)
def test_bad_questions_are_one_message(swept, words, says):
    code, output = kernbench(*words)
    assert code == 2
    assert says in output


def test_a_disk_that_is_full_stops_the_sweep_and_keeps_the_store(swept, monkeypatch):
    from kernbench.explore.store import Store

    prepare = Store._prepare

    def prepare_with_no_room(self, create):
        prepare(self, create)
        pages = self._one("PRAGMA page_count")
        self._connection.execute(f"PRAGMA max_page_count = {pages}")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_prepare", prepare_with_no_room)
        code, output = kernbench("sweep", "many.yaml", "--workers", "1")
    assert code == 2
    assert "kernbench.sqlite: the disk is full" in output
    assert len(results_frame("kernbench.sqlite", "small")) == 12


def test_a_log_gets_a_line_of_progress_now_and_then(folder, monkeypatch):
    from kernbench.explore import commands

    monkeypatch.setattr(commands, "_EVERY_S", 0)
    code, output = kernbench("sweep", "small.yaml", "--workers", "1")
    assert code == 0
    assert "12 of 12 points; best " in output
    assert "of 12 points" not in kernbench("sweep", "small.yaml", "--no-progress")[1]
