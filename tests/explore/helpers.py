"""Sweeps that are quick to run, for tests."""

from concurrent.futures import Executor, Future
from pathlib import Path

from kernbench.explore.runner import Runner, basis_text
from kernbench.explore.search import run_sweep
from kernbench.explore.space import Sweep
from kernbench.explore.store import Store
from kernbench.explore.sweepfile import SweepFile
from kernbench.explore.workers import Workers

SMALL = """
bench: gqa_decode_long
topology: cube1_pe8
spec:
  S_kv: 64
  TILE_S_KV: [16, 32]
  buffers: [1, 2]
machine:
  cube.memory.bandwidth: [0.4 TB/s, 0.8 TB/s, 1.2 TB/s]
"""


class HereExecutor(Executor):
    """Runs each task at once, in this process, and counts the tasks and the points in them."""

    def __init__(self):
        self.tasks = self.points = 0

    def submit(self, function, context, jobs):
        self.tasks += 1
        self.points += len(jobs)
        future = Future()
        try:
            future.set_result(function(context, jobs))
        except Exception as error:
            future.set_exception(error)
        return future


def read_sweep(text, name="small"):
    return Sweep.of(SweepFile.parse(text, f"{name}.yaml", name), f"{name}.yaml")


def run_here(text, path: Path, name="small", slots=2, progress=None):
    """Run a sweep in this process; return its tally and how many points were timed."""
    sweep, executor = read_sweep(text, name), HereExecutor()
    with Store(path, create=True) as store:
        store.begin(name, sweep.file.model_dump_json(exclude_defaults=True), basis_text(sweep))
        tally = run_sweep(Runner(sweep, store, Workers(executor, slots), progress))
    return tally, executor.points


def rows_of(path: Path, name="small"):
    with Store(path) as store:
        return list(store.rows(name))
