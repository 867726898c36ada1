"""The same sweep on a Dask cluster: a real scheduler, real worker processes, one of them killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fmdp.cli import main
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments.executors import Dask, InThisProcess
from fmdp.experiments.progress import SweepProgress
from fmdp.experiments.spec import Spec
from fmdp.experiments.sweep import run_sweep

distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")

# Dask's own warnings (ports in use, slow event loops on a busy machine) are none of ours.
pytestmark = pytest.mark.filterwarnings("ignore:::distributed", "ignore::ResourceWarning")

Contents = Callable[[Path], dict[str, Any]]


class Cluster:
    """A scheduler and workers, each started the way that a user starts them on other machines."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        address = folder / "scheduler.json"
        # Without a dashboard the port of its web server would still be a fixed one.
        options = ["--scheduler-file", str(address), "--host", "127.0.0.1"]
        options += ["--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start("scheduler", "--port", "0", *options)
        self.address = ""
        while not self.address:
            assert self.scheduler.poll() is None
            time.sleep(0.02)
            with contextlib.suppress(OSError, ValueError):  # not there yet, or half of it
                self.address = json.loads(address.read_text())["address"]
        self.options = options
        self.workers: list[subprocess.Popen[bytes]] = []
        self.add_workers(workers)

    def add_workers(self, count: int) -> None:
        for number in range(len(self.workers), len(self.workers) + count):
            place = str(self.folder / f"worker-{number}")
            options = (*self.options, "--nthreads", "1", "--no-nanny", "--local-directory", place)
            self.workers.append(self._start("worker", *options))

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + what, *options],
                stdout=log,
                stderr=log,
            )

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path, workers=2)
    yield started
    started.close()


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_what_one_process_gives(
    cluster: Cluster, spec: Spec, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    killed = False

    def kill_one(news: SweepProgress) -> None:
        nonlocal killed
        if news.done >= 4 and not killed:
            killed = True
            os.kill(cluster.workers[0].pid, signal.SIGKILL)

    out = tmp_path / "out"
    summary = run_sweep(spec, out, workers=Dask(cluster.address), progress=kill_one)
    assert killed
    assert (summary.done, summary.failed) == (18, 0)
    assert contents(out) == serial


@pytest.mark.slow
def test_a_sweep_that_loses_the_scheduler_says_so_and_goes_on_elsewhere(
    cluster: Cluster, spec: Spec, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    def kill_the_scheduler(news: SweepProgress) -> None:
        if news.done >= 4:
            cluster.scheduler.kill()

    out = tmp_path / "out"
    with pytest.raises(FmdpError, match=r"scheduler at .* is gone"):
        run_sweep(spec, out, workers=Dask(cluster.address), progress=kill_the_scheduler)
    summary = run_sweep(spec, out, workers=InThisProcess())
    assert summary.already >= 4
    assert contents(out) == serial


@pytest.mark.slow
def test_workers_that_join_later_are_counted(tmp_path: Path) -> None:
    alone = Cluster(tmp_path, workers=0)
    try:
        with Dask(alone.address) as workers:
            assert workers.size == 1
            alone.add_workers(2)
            until = time.monotonic() + 60.0
            while workers.size < 2 and time.monotonic() < until:
                time.sleep(0.05)
            assert workers.size == 2
    finally:
        alone.close()


def test_an_address_without_a_scheduler_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmdp.experiments.executors._SECONDS_TO_CONNECT", 0.2)
    with pytest.raises(InvalidParameter, match="--dask must be the address of a Dask scheduler"):
        Dask("nonsense:nonsense")
    spec = tmp_path / "s.toml"
    spec.write_text('steps = 1\nseeds = 1\nproblems = ["circle:2"]\nlearners = ["random"]')
    arguments = ["sweep", str(spec), "--out", str(tmp_path / "out")]
    assert main([*arguments, "--dask", "tcp://127.0.0.1:9"]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "tcp://127.0.0.1:9" in errors
