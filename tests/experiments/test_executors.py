"""Workers: one thread each, deaf to Ctrl-C, gone when let go; a run that kills them is found."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments import executors
from fmdp.experiments.executors import ONE_THREAD, Dask, InThisProcess, Processes
from fmdp.experiments.spec import Spec, parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import ATTEMPTS, run_sweep
from fmdp.experiments.worker import MadeRun, Task


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


def test_a_second_interrupt_waits_until_the_workers_have_gone() -> None:
    """One that was still starting found its parent's semaphores gone, and printed a traceback."""
    workers = Processes(1)
    workers.submit(time.sleep, 3600.0)
    executor = workers._executor
    assert executor is not None
    gone = []

    def impatient(**how: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        type(executor).shutdown(executor, **how)
        gone.append(True)

    executor.shutdown = impatient  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        workers.close(at_once=True)
    assert gone


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
    all_fall_together = True

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
        self.round.append(argument.seed)
        deadly = argument.seed == self.deadly and self.deaths > 0
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


def test_an_error_on_the_way_is_a_failed_run(quick: Spec, tmp_path: Path) -> None:
    class Unpicklable(InThisProcess):
        def submit(self, function: Callable[[Any], Any], argument: Any) -> Future[Any]:
            def broken(_: Task) -> MadeRun:
                raise TypeError("cannot pickle this")

            return super().submit(broken if argument.seed == 2 else function, argument)

    summary = run_sweep(quick, tmp_path, workers=Unpicklable())
    assert (summary.done, summary.failed) == (5, 1)
    assert list(summary.errors.values()) == ["TypeError: cannot pickle this"]
