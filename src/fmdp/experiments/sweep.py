"""The driver of a sweep: make every run of a spec that the store lacks, and store each.

Short runs of known length are sent to workers in batches (`Workers.task_seconds`). Only this
process writes, in one transaction for all runs that came back together. A kill loses the batches in
progress and nothing else; the same call resumes. A failed run is stored with its error and stops
nothing. When workers die, they are restarted and the runs in progress are repeated without batches:
at the same time the first time, each alone after that, so that a run that kills its worker is
identified and harms no other. After `ATTEMPTS` it is stored as failed.
"""

from __future__ import annotations

import math
import os
import time
from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from fmdp import __version__
from fmdp._base.interrupts import held
from fmdp.errors import InvalidParameter
from fmdp.experiments.database import Notify, warn
from fmdp.experiments.executors import Processes, Workers
from fmdp.experiments.measures import REGRET
from fmdp.experiments.progress import SweepProgress
from fmdp.experiments.spec import PlannedRun, Spec
from fmdp.experiments.store import Member, Store, StoredRun, StoredSpec, Unstorable
from fmdp.experiments.worker import Batch, MadeRun, Task, failed, now, run_batch

ATTEMPTS = 3
"""Deaths of its worker after which a run counts as failed."""
_TICK_SECONDS = 0.5


@dataclass(frozen=True)
class SweepSummary:
    """The outcome of a sweep."""

    total: int
    done: int
    failed: int
    already: int
    """Runs that were stored before this sweep."""
    seconds: float
    errors: Mapping[str, str]
    """Errors of the failed runs by "problem, label, seed"."""
    path: Path


def run_sweep(
    spec: Spec,
    directory: str | os.PathLike[str],
    *,
    workers: Workers | None = None,
    retry_failed: bool = False,
    progress: Callable[[SweepProgress], None] | None = None,
    waiting: Notify = warn,
) -> SweepSummary:
    """Make the missing runs of a spec and store them in this directory.

    Failed and damaged runs are made again only with `retry_failed`. By default there is one worker
    process per core. `waiting` is called when a lock has to be waited for.
    """
    with Store.create(directory, waiting=waiting) as store, store.writing():
        _add_spec(store, spec)
        if retry_failed:
            store.clear_away()
        with workers if workers is not None else Processes() as team:
            return _Driver(spec, store, team, progress).run(retry_failed)


def _add_spec(store: Store, spec: Spec) -> None:
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
            run.model.content_hash,
            run.cell.label,
            run.seed,
        )
        for position, run in enumerate(spec.runs())
    ]
    store.add_spec(stored, members, [m for problem in spec.problems for m in problem.models])


class _Driver:
    """The state of one sweep."""

    def __init__(
        self,
        spec: Spec,
        store: Store,
        workers: Workers,
        report: Callable[[SweepProgress], None] | None,
    ) -> None:
        self.store = store
        self.workers = workers
        self.report = report
        self.planned = {run.key: run for run in spec.runs()}
        self.scores = _Scores()
        self.clock = _Clock(self.planned.values())
        self.queue: deque[PlannedRun] = deque()
        self.alone: deque[PlannedRun] = deque()
        self.running: dict[Future[list[MadeRun]], list[PlannedRun]] = {}
        self.unbatched: set[str] = set()
        self.attempts: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self.done = 0

    def run(self, retry_failed: bool) -> SweepSummary:
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
        self._report_progress()
        while self.queue or self.alone or self.running:
            self._fill()
            with held():  # an interrupt inside `wait` could leave a lock held
                ended, _ = wait(self.running, timeout=_TICK_SECONDS, return_when=FIRST_COMPLETED)
            self.workers.check()
            self._collect(ended)
            self._report_progress()
        return SweepSummary(
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
                self._submit([self.alone.popleft()])
            return
        if any(self.attempts[batch[0].key] > 1 for batch in self.running.values()):
            return  # a run that is made alone is still running
        most = self.workers.size + self.workers.spare
        while self.queue and len(self.running) < most:
            self._submit(self._next_batch(most))

    def _next_batch(self, shares: int) -> list[PlannedRun]:
        """Take runs of together at most `task_seconds`, and at most one share of the queue."""
        most = -(-len(self.queue) // shares)
        batch = [self.queue.popleft()]
        seconds = self._expected_seconds(batch[0])
        while self.queue and len(batch) < most:
            seconds += self._expected_seconds(self.queue[0])
            if seconds > self.workers.task_seconds:
                break
            batch.append(self.queue.popleft())
        return batch

    def _expected_seconds(self, run: PlannedRun) -> float:
        return math.inf if run.key in self.unbatched else self.clock.expected(run)

    def _submit(self, runs: list[PlannedRun]) -> None:
        batch = Batch(tuple(Task.of(run) for run in runs), self.workers.task_seconds)
        self.running[self.workers.submit(run_batch, batch)] = runs

    def _collect(self, ended: set[Future[list[MadeRun]]]) -> None:
        with self.store.together():
            for future in ended:
                if not self._is_lost(future):
                    self._finish(future)
        if any(self._is_lost(future) for future in ended):
            self._recover()

    def _is_lost(self, future: Future[list[MadeRun]]) -> bool:
        return future.cancelled() or isinstance(future.exception(), self.workers.lost)

    def _finish(self, future: Future[list[MadeRun]]) -> None:
        """Store the runs of a batch; an exception here means that it could not be sent."""
        runs = self.running.pop(future)
        error = future.exception()
        if isinstance(error, KeyboardInterrupt):
            raise error  # the run is neither done nor failed
        if error is None:
            made = future.result()
        elif len(runs) == 1:
            made = [failed(Task.of(runs[0]), f"{type(error).__name__}: {error}", 0.0)]
        else:  # one of the runs is the cause
            made = []
            self.unbatched.update(run.key for run in runs)
        for run, result in zip(runs, made, strict=False):
            self.clock.took(run, result.seconds)
            self._store(run, result)
        self.queue.extendleft(reversed(runs[len(made) :]))

    def _store(self, run: PlannedRun, made: MadeRun) -> None:
        try:
            self.store.add_run(made.run, made.curve, made.recording, run.cell.sources)
        except (InvalidParameter, Unstorable) as error:
            # Raising would stop the sweep here at every resume.
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
        self.clock.finished(run, stored.seconds)

    def _fail(self, run: PlannedRun, error: str) -> None:
        self.failures[f"{run.cell.problem.id}, {run.cell.label}, seed {run.seed}"] = error
        self.clock.finished(run, None)

    def _recover(self) -> None:
        """Restart dead workers; repeat their runs, or fail those that killed too many workers."""
        for future in [future for future in self.running if future.done()]:
            if not self._is_lost(future):
                self._finish(future)
                continue
            for run in reversed(self.running.pop(future)):
                self._repeat(run)
        self.workers.rebuild()

    def _repeat(self, run: PlannedRun) -> None:
        self.unbatched.add(run.key)
        self.attempts[run.key] += 1
        times = self.attempts[run.key]
        if times >= ATTEMPTS:
            text = f"the worker process died {times} times while it made this run"
            self._store(run, failed(Task.of(run), text, 0.0))
        else:
            (self.queue if times == 1 else self.alone).appendleft(run)

    def _report_progress(self) -> None:
        if self.report is not None:
            size = self.workers.size
            self.report(
                SweepProgress(
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
    """Ranks of the learners by their median regret so far, problem by problem."""

    def __init__(self) -> None:
        self._regrets: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, run: PlannedRun, regret: float) -> None:
        if run.cell.learner.role != "upper":
            # Sorted, so that the median of many runs costs little.
            insort(self._regrets[run.cell.problem.id][run.cell.label], regret)

    def leader(self) -> str | None:
        """Return the label with the lowest mean rank; None if there is only one."""
        ranks: dict[str, list[int]] = defaultdict(list)
        for by_label in self._regrets.values():
            medians = {label: median(regrets) for label, regrets in by_label.items()}
            for rank, label in enumerate(sorted(medians, key=medians.__getitem__)):
                ranks[label].append(rank)
        # Learners without a run on some problem are not compared yet.
        most = max((len(places) for places in ranks.values()), default=0)
        compared = {label: fmean(p) for label, p in ranks.items() if len(p) == most}
        return min(compared, key=compared.__getitem__) if len(ranks) > 1 else None


class _Clock:
    """Elapsed and remaining time, predicted from the finished runs of each cell, else of all."""

    def __init__(self, waiting: Iterable[PlannedRun]) -> None:
        self._started = time.monotonic()
        self._waiting = Counter(id(run.cell) for run in waiting)
        self._seconds: dict[int, float] = defaultdict(float)
        self._made: Counter[int] = Counter()
        self._expected: dict[int, float] = {}

    def took(self, run: PlannedRun, seconds: float) -> None:
        """Note the time that a worker took for a run."""
        # The last runs count most, since the first one of a worker may compile.
        before = self._expected.get(id(run.cell), seconds)
        self._expected[id(run.cell)] = (before + seconds) / 2

    def expected(self, run: PlannedRun) -> float:
        """Return the time that a worker will take, by earlier runs of the cell; else infinity."""
        return self._expected.get(id(run.cell), math.inf)

    def finished(self, run: PlannedRun, seconds: float | None) -> None:
        """Count a run as ended; `seconds` is None for a failed one."""
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
        usual = fmean(means.values())
        total = sum(number * means.get(cell, usual) for cell, number in self._waiting.items())
        return total / workers
