"""The driver: makes every run of a spec that the store does not have yet, and stores each.

    for every run that is not done: submit; when it ends: one transaction

Only this process writes. What is killed at any moment loses the runs under way and nothing else;
the same call goes on. A run that fails is stored with its error and stops nothing. When workers
die, they are made anew and the runs that were under way go again: together the first time, each
alone after that, so that a run which kills its worker is found out and harms no other. After
`ATTEMPTS` it is stored as failed.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from fmdp import __version__
from fmdp._base.interrupts import held
from fmdp.errors import InvalidParameter
from fmdp.experiments.executors import Processes, Workers
from fmdp.experiments.measures import REGRET
from fmdp.experiments.news import SweepNews
from fmdp.experiments.opening import Say, warn
from fmdp.experiments.spec import PlannedRun, Spec
from fmdp.experiments.store import Member, Store, StoredRun, StoredSpec, Unstorable
from fmdp.experiments.work import MadeRun, Task, failed, now, work

ATTEMPTS = 3
"""How often a run may lose its worker before it counts as failed."""
_TICK_SECONDS = 0.5


@dataclass(frozen=True)
class Summary:
    """How a sweep ended."""

    total: int
    done: int
    failed: int
    already: int
    """Runs that were stored before and were not run again."""
    seconds: float
    errors: Mapping[str, str]
    """Error by "problem, label, seed" of the failed runs."""
    path: Path


def run_sweep(
    spec: Spec,
    directory: str | os.PathLike[str],
    *,
    workers: Workers | None = None,
    retry_failed: bool = False,
    progress: Callable[[SweepNews], None] | None = None,
    waiting: Say = warn,
) -> Summary:
    """Run what is missing of a spec into the store in this directory.

    Failed runs count as finished unless `retry_failed`, and so do damaged ones, which are failures
    here. Without workers: one process a core. `waiting` is told when a lock is waited for.
    """
    with Store.create(directory, waiting=waiting) as store, store.writing():
        _announce(store, spec)
        if retry_failed:
            store.clear_away()
        with workers if workers is not None else Processes() as team:
            return _Driver(spec, store, team, progress).run(retry_failed)


def _announce(store: Store, spec: Spec) -> None:
    time_of_request = now()
    stored = StoredSpec(
        spec.hash,
        spec.name,
        spec.title,
        spec.text,
        spec.resolved,
        __version__,
        added=time_of_request,
        asked=time_of_request,
    )
    members = [
        Member(
            position,
            run.key,
            run.cell.problem.id,
            run.cell.problem.model.content_hash,
            run.cell.label,
            run.seed,
        )
        for position, run in enumerate(spec.runs())
    ]
    store.add_spec(stored, members, [problem.model for problem in spec.problems])


class _Driver:
    """The state of one sweep."""

    def __init__(
        self,
        spec: Spec,
        store: Store,
        workers: Workers,
        report: Callable[[SweepNews], None] | None,
    ) -> None:
        self.store = store
        self.workers = workers
        self.report = report
        self.planned = {run.key: run for run in spec.runs()}
        self.scores = _Scores()
        self.clock = _Clock(self.planned.values())
        self.queue: deque[PlannedRun] = deque()
        self.alone: deque[PlannedRun] = deque()
        self.running: dict[Future[MadeRun], PlannedRun] = {}
        self.attempts: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self.done = 0

    def run(self, retry_failed: bool) -> Summary:
        damaged = self.store.damaged()
        for key, run in self.planned.items():
            stored = None if key in damaged else self.store.run(key)
            ended_well = stored is not None and stored.status == "done"
            unknown = stored is None and key not in damaged
            if unknown or (retry_failed and not ended_well):
                self.queue.append(run)
            elif stored is None:
                self._fail(run, damaged[key])
            else:
                self._count(run, stored)
        already = len(self.planned) - len(self.queue)
        self._say()
        while self.queue or self.alone or self.running:
            self._fill()
            with held():  # it would come between the two halves of a lock's release
                ended, _ = wait(self.running, timeout=_TICK_SECONDS, return_when=FIRST_COMPLETED)
            self.workers.check()
            self._collect(ended)
            self._say()
        return Summary(
            len(self.planned),
            self.done,
            len(self.failures),
            already,
            self.clock.seconds,
            self.failures,
            self.store.path,
        )

    def _fill(self) -> None:
        if self.alone:
            if not self.running:
                self._submit(self.alone.popleft())
            return
        if any(self.attempts[run.key] > 1 for run in self.running.values()):
            return  # the last of those that go alone
        most = self.workers.size + self.workers.spare
        while self.queue and len(self.running) < most:
            self._submit(self.queue.popleft())

    def _submit(self, run: PlannedRun) -> None:
        task = Task.of(run)
        try:
            self.running[self.workers.submit(work, task)] = run
        except self.workers.lost:
            # The workers broke between two runs: none of the runs under way has been told yet.
            self.queue.appendleft(run)
            self._recover()

    def _collect(self, ended: set[Future[MadeRun]]) -> None:
        for future in ended:
            if not self._is_lost(future):
                self._settle(future)
        if any(self._is_lost(future) for future in ended):
            self._recover()

    def _is_lost(self, future: Future[MadeRun]) -> bool:
        return future.cancelled() or isinstance(future.exception(), self.workers.lost)

    def _settle(self, future: Future[MadeRun]) -> None:
        """Store what a run has given. An error here is none of the run's: it did not travel."""
        run = self.running.pop(future)
        error = future.exception()
        if isinstance(error, KeyboardInterrupt):
            raise error  # it has neither failed nor been done
        made = failed(Task.of(run), f"{type(error).__name__}: {error}", 0.0)
        if error is None:
            made = future.result()
        self._store(run, made)

    def _store(self, run: PlannedRun, made: MadeRun) -> None:
        try:
            self.store.add_run(made.run, made.curve, made.recording, run.cell.sources)
        except (InvalidParameter, Unstorable) as error:
            # It would stop the sweep here at every resume: a run that cannot be stored has failed.
            made = failed(Task.of(run), f"{type(error).__name__}: {error}", 0.0)
            self.store.add_run(made.run, sources=run.cell.sources)
        self._count(run, made.run)

    def _count(self, run: PlannedRun, stored: StoredRun) -> None:
        regret = stored.measure(REGRET)
        if stored.error is not None or regret is None:
            self._fail(run, str(stored.error))
            return
        self.done += 1
        self.scores.add(run, regret)
        self.clock.over(run, stored.seconds)

    def _fail(self, run: PlannedRun, why: str) -> None:
        self.failures[f"{run.cell.problem.id}, {run.cell.label}, seed {run.seed}"] = why
        self.clock.over(run, None)

    def _recover(self) -> None:
        """Workers died. What has come back counts; the rest goes again, or has had its chances."""
        if self.workers.all_fall_together:
            wait(self.running)
        for future, run in list(self.running.items()):
            if not future.done():
                continue
            if not self._is_lost(future):
                self._settle(future)
                continue
            del self.running[future]
            self.attempts[run.key] += 1
            times = self.attempts[run.key]
            if times >= ATTEMPTS:
                text = f"the worker process died {times} times while it made this run"
                self._store(run, failed(Task.of(run), text, 0.0))
            else:
                (self.queue if times == 1 else self.alone).appendleft(run)
        self.workers.rebuild()

    def _say(self) -> None:
        if self.report is not None:
            size = self.workers.size
            self.report(
                SweepNews(
                    total=len(self.planned),
                    done=self.done,
                    failed=len(self.failures),
                    running=min(len(self.running), size),
                    seconds=self.clock.seconds,
                    seconds_left=self.clock.left(size),
                    leader=self.scores.leader(),
                )
            )


class _Scores:
    """Who is ahead: on every problem the learners are ranked by their median regret so far."""

    def __init__(self) -> None:
        self._regrets: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._leader: str | None = None
        self._due = 0.0

    def add(self, run: PlannedRun, regret: float) -> None:
        if run.cell.learner.role != "upper":  # it learns nothing
            self._regrets[run.cell.problem.id][run.cell.label].append(regret)

    def leader(self) -> str | None:
        """The leader, ranked anew now and then: medians of many thousand runs take their time."""
        started = time.monotonic()
        if started >= self._due:
            self._leader = self._ranked()
            self._due = started + 50 * (time.monotonic() - started)
        return self._leader

    def _ranked(self) -> str | None:
        ranks: dict[str, list[int]] = defaultdict(list)
        for by_label in self._regrets.values():
            medians = {label: median(regrets) for label, regrets in by_label.items()}
            for rank, label in enumerate(sorted(medians, key=medians.__getitem__)):
                ranks[label].append(rank)
        # A learner that has been seen on fewer problems than others is not compared yet.
        most = max((len(own) for own in ranks.values()), default=0)
        compared = {label: mean(own) for label, own in ranks.items() if len(own) == most}
        return min(compared, key=compared.__getitem__) if len(ranks) > 1 else None


class _Clock:
    """Time so far, and left: a run takes as long as those of its cell did, else as all did."""

    def __init__(self, waiting: Iterable[PlannedRun]) -> None:
        self._started = time.monotonic()
        self._waiting = Counter(id(run.cell) for run in waiting)
        self._seconds: dict[int, float] = defaultdict(float)
        self._made: Counter[int] = Counter()

    def over(self, run: PlannedRun, seconds: float | None) -> None:
        """A run has ended: done after so many seconds, or failed."""
        self._waiting[id(run.cell)] -= 1
        if seconds is not None:
            self._seconds[id(run.cell)] += seconds
            self._made[id(run.cell)] += 1

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def left(self, workers: int) -> float | None:
        means = {cell: self._seconds[cell] / made for cell, made in self._made.items()}
        if not means:
            return None
        usual = mean(means.values())
        total = sum(number * means.get(cell, usual) for cell, number in self._waiting.items())
        return total / workers
