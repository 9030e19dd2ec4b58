"""`kernbench sweep --cluster` on a real scheduler and real workers, one of which is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from kernbench.explore import results_frame
from tests.explore.helpers import run_here
from tests.explore.test_sweep_command import MANY as FEW
from tests.explore.test_sweep_command import ROOT, stored, wait_for

MANY = FEW.replace("step: 0.04 TB/s", "step: 0.02 TB/s")
POINTS = 2 * 96 * 3


def start(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DASK_LOGGING__DISTRIBUTED": "warning"}
    return subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """Start a scheduler and three workers on loopback; give its address and their processes."""
    (tmp_path / "many.yaml").write_text(MANY)
    file = tmp_path / "scheduler.json"
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = start(tmp_path, "dask", "scheduler", *common, "--port", "0", "--scheduler-file", str(file))
    processes = [scheduler]
    try:
        wait_for(lambda: file.exists() and file.read_text().strip().endswith("}"))
        import json

        address = json.loads(file.read_text())["address"]
        options = ["--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--local-directory", str(tmp_path)]
        workers = [start(tmp_path, "dask", "worker", address, *common, *options) for _ in range(3)]
        processes += workers
        from distributed import Client

        with Client(address) as client:
            client.wait_for_workers(3, timeout=60)
        yield address, workers
    finally:
        for process in reversed(processes):
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_every_point_arrives_once_though_a_worker_is_killed(cluster, tmp_path):
    address, workers = cluster
    sweep = start(tmp_path, "kernbench.cli", "sweep", "many.yaml", "--cluster", address)
    wait_for(lambda: stored(tmp_path) >= 1 or sweep.poll() is not None)
    os.kill(workers[0].pid, signal.SIGKILL)
    seen = stored(tmp_path)
    output, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, output
    assert 1 <= seen < POINTS  # it was killed in the middle
    assert f"many: {POINTS} points ({POINTS} timed now, 0 taken from kernbench.sqlite)" in output
    frame = results_frame(Path(tmp_path) / "kernbench.sqlite", "many")
    assert list(frame["position"]) == list(range(POINTS))
    assert (frame["status"] == "done").all()
    run_here(MANY, tmp_path / "local.sqlite", "many")
    pd.testing.assert_frame_equal(frame, results_frame(tmp_path / "local.sqlite", "many"))


def test_a_cluster_without_workers_says_so(tmp_path):
    file = tmp_path / "scheduler.json"
    words = ["--host", "127.0.0.1", "--no-dashboard", "--port", "0", "--scheduler-file", str(file)]
    scheduler = start(tmp_path, "dask", "scheduler", *words)
    try:
        wait_for(lambda: file.exists() and file.read_text().strip().endswith("}"))
        (tmp_path / "many.yaml").write_text(MANY)
        time.sleep(0.1)
        address = file.read_text().split('"address": "')[1].split('"')[0]
        done = start(tmp_path, "kernbench.cli", "sweep", "many.yaml", "--cluster", address)
        output, _ = done.communicate(timeout=60)
        assert done.returncode == 2
        assert f"the Dask cluster at {address} has no workers" in output
        assert "Traceback" not in output
    finally:
        scheduler.kill()
        scheduler.communicate()
