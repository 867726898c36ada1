"""`fmdp sweep` as a program: kill -9, Ctrl-C, exit statuses, and no worker left behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp.cli import main
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.spec import Spec
from fmdp.experiments.sweep import run_sweep

Contents = Callable[[Path], dict[str, Any]]


def start(spec: Path, out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fmdp", "sweep", str(spec), "--out", str(out), "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_runs(out: Path, number: int, program: subprocess.Popen[str]) -> None:
    """Until so many runs are stored, seen from outside while the program writes."""
    while program.poll() is None:
        if (out / "runs.sqlite").exists():
            connection = sqlite3.connect(f"file:{out / 'runs.sqlite'}?mode=ro", uri=True)
            try:
                (found,) = connection.execute("SELECT count(*) FROM runs").fetchone()
            finally:
                connection.close()
            if found >= number:
                return
        time.sleep(0.01)
    pytest.fail(f"the sweep ended too early: {program.communicate()}")


def children_of(pid: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.add(int(entry.name))
    return found


def wait_until_gone(pids: set[int]) -> None:
    """Loops for ever (and fails by the test's own time limit) if a process stays."""
    while any(Path(f"/proc/{pid}").exists() and not is_zombie(pid) for pid in pids):
        time.sleep(0.02)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def spec_file(spec_text: str, tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(spec_text)
    return path


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_killed_twice_the_same_command_goes_on(
    spec_file: Path, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for stored in (2, 9):
        program = start(spec_file, out)
        wait_for_runs(out, stored, program)
        workers = children_of(program.pid)
        assert workers
        os.kill(program.pid, signal.SIGKILL)
        program.communicate()
        wait_until_gone(workers)
    program = start(spec_file, out)
    printed, _ = program.communicate()
    assert program.returncode == 0
    assert "18 runs: 18 done, 0 failed" in printed
    assert contents(out) == serial


@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_goes_on(
    spec_file: Path, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    """Twelve kills from the first file on the disk to runs by the dozen, whatever is under way."""
    out = tmp_path / "out"
    delays = np.random.Generator(np.random.PCG64(7)).uniform(0.0, 1.5, size=12)
    for delay in delays:
        program = start(spec_file, out)
        while program.poll() is None and not out.exists():
            time.sleep(0.001)
        time.sleep(delay)
        program.kill()
        program.communicate()
        if (out / "runs.sqlite").exists():
            assert len(contents(out)) - 1 <= 18  # sound, and readable at once
    program = start(spec_file, out)
    program.communicate()
    assert program.returncode == 0
    assert contents(out) == serial


def test_ctrl_c_ends_with_130_and_leaves_a_store_that_goes_on(
    spec: Spec, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # A run that ends soon, and one that would take minutes: the worker is in the middle of it.
    longer = tmp_path / "longer.toml"
    longer.write_text("""
        steps = 1_000_000
        seeds = [1]
        problems = ["circle:2"]
        learners = [
            { name = "oracle", planner = { name = "exact", memory_limit = 1 } },
            { name = "psrl", set = { episodes = "fixed", length = 1 } },
        ]
    """)
    program = start(longer, out)
    wait_for_runs(out, 1, program)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    printed, errors = program.communicate()
    assert program.returncode == 130
    assert printed == ""
    assert errors.splitlines()[-1].startswith("fmdp: interrupted; finished runs are in ")
    assert "Traceback" not in errors
    run_sweep(spec, out, workers=InThisProcess())
    longer_and_shorter = contents(out)
    assert all(longer_and_shorter[key] == run for key, run in serial.items() if key != "members")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["sweep", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_exit_status_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = tmp_path / "s.toml", tmp_path / "out"
    spec.write_text("""
        steps = 20
        seeds = 1
        problems = ["circle:2"]
        learners = ["random", { name = "dorl", planner = { name = "exact", memory_limit = 1 } }]
    """)
    status, printed, _ = run(capsys, str(spec), "--out", str(out), "--workers", "1")
    assert status == 1
    assert "2 runs: 1 done, 1 failed" in printed
    assert "dorl (exact memory_limit=1), seed 0: TooLarge: " in printed

    spec.write_text(spec.read_text().replace("memory_limit", "memory_limt"))
    status, printed, errors = run(capsys, str(spec), "--out", str(tmp_path / "other"))
    assert status == 2
    assert printed == ""
    assert errors.count("\n") == 1
    assert 'did you mean "memory_limit"?' in errors
    assert not (tmp_path / "other").exists()  # nothing is made for a spec that is refused

    status, _, errors = run(capsys, str(spec), "--out", str(out), "--workers", "1", "--dask", "x")
    assert status == 2
    assert "exclude each other" in errors


def test_a_store_that_is_none_is_left_alone(
    spec_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs.sqlite").write_text("my thesis")
    status, _, errors = run(capsys, str(spec_file), "--out", str(tmp_path))
    assert status == 2
    assert errors.count("\n") == 1
    assert "is not a SQLite file" in errors
    assert (tmp_path / "runs.sqlite").read_text() == "my thesis"
