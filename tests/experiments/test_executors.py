"""Workers: one thread each, deaf to Ctrl-C, gone when let go; a run that kills them is found."""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments import executors
from fmdp.experiments.executors import (
    ONE_THREAD,
    Dask,
    InThisProcess,
    Processes,
    _WorkerProcess,
)
from fmdp.experiments.spec import Spec, parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import ATTEMPTS, run_sweep
from fmdp.experiments.worker import Batch, MadeRun


def test_workers_have_one_thread_ignore_interrupts_and_end_at_once() -> None:
    before = dict(os.environ)
    with Processes(1) as workers:
        asked = {name: workers.submit(os.getenv, name) for name in ONE_THREAD}
        assert {name: future.result() for name, future in asked.items()} == ONE_THREAD
        assert workers.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN
        sleeping = workers.submit(time.sleep, 3600.0)
        while not sleeping.running():
            time.sleep(0.01)
        workers.close(at_once=True)  # returns: the sleeper was ended
    assert isinstance(sleeping.exception(), workers.lost)
    assert dict(os.environ) == before


def test_a_second_interrupt_waits_until_the_workers_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Processes(2)
    for _ in range(2):
        workers.submit(time.sleep, 3600.0)
    killed = []

    def impatient(worker: _WorkerProcess) -> None:
        signal.raise_signal(signal.SIGINT)
        kill(worker)
        killed.append(worker)

    kill = _WorkerProcess.kill
    monkeypatch.setattr(_WorkerProcess, "kill", impatient)
    with pytest.raises(KeyboardInterrupt):
        workers.close(at_once=True)
    assert len(killed) == 2
    assert not any(worker.is_alive() for worker in killed)


def test_a_worker_that_dies_takes_only_its_own_run_along() -> None:
    with Processes(2) as workers:
        patient = workers.submit(time.sleep, 0.5)
        assert isinstance(workers.submit(os._exit, 3).exception(), workers.lost)
        workers.rebuild()
        assert workers.submit(abs, -1).result() == 1
        assert patient.result() is None


RULES = """
import os, signal, time

def fork_a_child(_):
    child = os.fork()  # it has a copy of all pipes of the worker
    if child == 0:
        time.sleep(3600.0)
    return child

def fork_and_work(_):
    fork_a_child(_)
    time.sleep(3600.0)

def stop(_):
    os.kill(os.getpid(), signal.SIGSTOP)

def make_a_function(_):
    return lambda: None

def fail(error):
    raise error
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What rules of users may do, in a module that workers can import."""
    (tmp_path / "rules_of_a_user.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("rules_of_a_user")
    del sys.modules["rules_of_a_user"]


def test_workers_that_are_stopped_or_have_children_end_at_once(rules: Any) -> None:
    """The wait for the children's pipes used to last until the children ended."""
    with Processes(3) as workers:
        child = workers.submit(rules.fork_a_child, None).result()
        busy = [workers.submit(rule, None) for rule in (rules.fork_and_work, rules.stop)]
        busy.append(workers.submit(time.sleep, 3600.0))
        while not all(future.running() for future in busy):
            time.sleep(0.01)
        time.sleep(0.5)
        children = [pid for process in active_children() for pid in children_of(process.pid)]
        workers.close(at_once=True)
        assert [type(future.exception()) for future in busy] == [*workers.lost] * 3
    assert child in children
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def children_of(pid: int | None) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_worker_whose_child_has_its_pipes_is_missed_when_it_dies(rules: Any) -> None:
    with Processes(1) as workers:
        child = workers.submit(rules.fork_a_child, None).result()
        assert isinstance(workers.submit(os._exit, 1).exception(), workers.lost)
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("size", [10, 50_000_000])
def test_results_of_any_size_arrive(size: int) -> None:
    with Processes(1) as workers:
        assert workers.submit(bytes, size).result() == bytes(size)


def test_errors_come_back_and_the_worker_goes_on(rules: Any) -> None:
    with Processes(1) as workers:
        errors = [
            workers.submit(rules.fail, ZeroDivisionError()).exception(),
            workers.submit(rules.fail, SystemExit(3)).exception(),
            workers.submit(rules.make_a_function, None).exception(),
            workers.submit(len, (value for value in ())).exception(),  # type: ignore[arg-type]
        ]
        assert isinstance(errors[0], ZeroDivisionError)
        assert isinstance(errors[1], SystemExit)
        assert all(isinstance(error, Exception) for error in errors[2:])
        assert not any(isinstance(error, workers.lost) for error in errors)
        assert workers.submit(abs, -1).result() == 1


def test_the_number_of_workers_is_checked() -> None:
    with pytest.raises(InvalidParameter, match="at least 1; got 0"):
        Processes(0)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(executors.importlib, "import_module", missing)
    with pytest.raises(FmdpError, match=r"pip install 'fmdp\[dask\]'"):
        Dask("tcp://127.0.0.1:1")


class Died(Exception):
    pass


class Mortal(InThisProcess):
    """Three workers that all die together when one of them makes the run with a certain seed."""

    lost = (Died,)

    def __init__(self, deadly: int, deaths: int) -> None:
        super().__init__()
        self.deadly, self.deaths = deadly, deaths
        self.pending: list[tuple[Future[Any], Callable[[], Any], bool]] = []
        self.rounds: list[list[int]] = []
        self.round: list[int] = []

    @property
    def size(self) -> int:
        return 3

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Future[Any]:
        future: Future[Any] = Future()
        seeds = [task.seed for task in argument.tasks]
        self.round += seeds
        deadly = self.deadly in seeds and self.deaths > 0
        self.pending.append((future, lambda: function(argument), deadly))
        return future

    def check(self) -> None:
        """Called on every tick: the moment at which the workers get on, or die."""
        self.rounds.append(self.round)
        self.round = []
        if any(deadly for _, _, deadly in self.pending):
            self.deaths -= 1
            for future, _, _ in self.pending:
                future.set_exception(Died())
        else:
            for future, make, _ in self.pending:
                future.set_result(make())
        self.pending = []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Spec:
    monkeypatch.setattr("fmdp.experiments.sweep._TICK_SECONDS", 0.01)
    return parse_spec('steps = 5\nseeds = 6\nproblems = ["circle:2"]\nlearners = ["random"]')


def test_an_interrupt_comes_after_the_wait_for_runs(
    quick: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside, it met an event whose lock was half released: "release unlocked lock"."""
    waited = []

    def impatient(*what: Any, **how: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        waited.append(True)
        return wait(*what, **how)

    monkeypatch.setattr("fmdp.experiments.sweep.wait", impatient)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(quick, tmp_path, workers=InThisProcess())
    assert waited == [True]


def test_runs_that_lost_their_worker_go_again(quick: Spec, tmp_path: Path) -> None:
    workers = Mortal(deadly=1, deaths=1)
    summary = run_sweep(quick, tmp_path, workers=workers)
    assert (summary.done, summary.failed) == (6, 0)
    assert [sorted(seeds) for seeds in workers.rounds if seeds] == [[0, 1, 2]] * 2 + [[3, 4, 5]]


def test_a_run_that_kills_its_worker_is_found_out_and_harms_no_other(
    quick: Spec, tmp_path: Path
) -> None:
    workers = Mortal(deadly=1, deaths=100)
    summary = run_sweep(quick, tmp_path, workers=workers)
    assert (summary.done, summary.failed) == (5, 1)
    ((name, error),) = summary.errors.items()
    assert name == "circle:2, random, seed 1"
    assert error == f"the worker process died {ATTEMPTS} times while it made this run"
    # Lost twice together with others, each of them then goes alone.
    rounds = [sorted(seeds) for seeds in workers.rounds if seeds]
    assert rounds[:2] == [[0, 1, 2]] * 2
    assert sorted(rounds[2:5]) == [[0], [1], [2]]
    assert rounds[5:] == [[3, 4, 5]]
    with Store.open(tmp_path) as store:
        (stored,) = store.runs(status="failed")
    assert stored.seed == 1


class Batched(InThisProcess):
    """Takes short runs in batches, whose sizes it notes."""

    task_seconds = 3600.0
    longest = math.inf

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Future[Any]:
        self.sizes.append(len(argument.tasks))
        return super().submit(function, replace(argument, seconds=self.longest))


def test_runs_of_known_length_are_sent_in_batches(quick: Spec, tmp_path: Path) -> None:
    workers = Batched()
    summary = run_sweep(quick, tmp_path, workers=workers)
    assert (summary.done, summary.failed) == (6, 0)
    assert workers.sizes == [1, 5]  # the length of the first one is unknown


def test_runs_for_which_a_batch_had_no_time_are_sent_again(quick: Spec, tmp_path: Path) -> None:
    workers = Batched()
    workers.longest = 0.0
    summary = run_sweep(quick, tmp_path, workers=workers)
    assert (summary.done, summary.failed) == (6, 0)
    assert workers.sizes == [1, 5, 4, 3, 2, 1]


def test_a_run_that_kills_its_worker_harms_no_other_of_its_batch(
    quick: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mortal, "task_seconds", 3600.0)
    summary = run_sweep(quick, tmp_path, workers=Mortal(deadly=5, deaths=100))
    assert (summary.done, summary.failed) == (5, 1)
    assert list(summary.errors) == ["circle:2, random, seed 5"]


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_an_error_on_the_way_is_a_failed_run(quick: Spec, tmp_path: Path, seconds: float) -> None:
    class Unpicklable(InThisProcess):
        task_seconds = seconds

        def submit(self, function: Callable[[Any], Any], argument: Any) -> Future[Any]:
            def broken(_: Batch) -> list[MadeRun]:
                raise TypeError("cannot pickle this")

            deadly = any(task.seed == 2 for task in argument.tasks)
            return super().submit(broken if deadly else function, argument)

    summary = run_sweep(quick, tmp_path, workers=Unpicklable())
    assert (summary.done, summary.failed) == (5, 1)
    assert list(summary.errors.values()) == ["TypeError: cannot pickle this"]
