"""Exact evaluation of a policy by elimination (simulation.evaluate is for larger models).

A small chain is solved directly: its recurrent classes are those of the support graph, the gain of
each is certified by its bias, and the gains of the other states by where they are absorbed
(tabular/gains.py). The cost does not depend on mixing: classes that are left once in 10^9 steps, or
never, make no difference. The recurrent classes of a larger chain with few successors per state are
found by graph search; several are solved one by one (tabular/recurrence.py). With one class the
chain is iterated; min and max of T_pi h - h enclose the gain of every state. If the iteration
stalls before the bounds meet, the classes of a chain with many successors are searched for, and a
chain with one class is solved directly if its entries fit; otherwise the bounds are returned.

A policy with a horizon has a value instead, the expected sum of rewards over its H steps. It is
computed by H backups, exactly up to rounding, which is bounded as in finite.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.html import html_table
from fmdp.elimination.backup import Backup, TimeUp, backup_for
from fmdp.model import FactoredMDP
from fmdp.model.independence import Part
from fmdp.model.spaces import decode, encode
from fmdp.planning.counts.backup import CountBackup
from fmdp.planning.counts.policy_chain import NotOnCounts, chain_of, moves_in, quotient_for
from fmdp.planning.exact import iteration
from fmdp.planning.exact.bounds import stage_error
from fmdp.planning.exact.operators import policy_operator
from fmdp.planning.exact.small import tabular_backup
from fmdp.planning.expanded import evaluated_model
from fmdp.planning.joining import Whole, joint_status, parts_to_plan, sum_of_bounds
from fmdp.planning.limits import DEFAULT_SWEEPS, tolerance_of
from fmdp.planning.policies.counts import CountPolicy, TimedCountPolicy, joint_table
from fmdp.planning.policies.mixed import MixedPolicy, Mixture, mixture_of
from fmdp.planning.policies.policy import Policy, TablePolicy, has_sizes_of
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.status import Progress, Status
from fmdp.planning.tabular.gains import optimal_gains
from fmdp.planning.tabular.model import write_out_mixture
from fmdp.planning.tabular.recurrence import (
    ClassGains,
    ClassSolver,
    chain_entries,
    most_entries,
    recurrent_classes,
    write_chain,
)

POLICY_GAIN_STATES = 1 << 16
"""Most states for which a plan reports the gain of its policy."""
TABULATED_STATES = 1 << 22
"""Most states for which a policy is written out as a table to be evaluated exactly."""
DIRECT_STATES = 1 << 10
"""Most states for which a chain is solved directly, which takes no longer than a few sweeps."""


LISTED_CLASSES = 16
"""Most recurrent classes that an evaluation describes."""
_FEW_SUCCESSORS = 64
"""Successors per state up to which the graph is searched before the first sweep, in less time than
some dozen sweeps take; otherwise only when the sweeps have stalled."""


@dataclass(frozen=True)
class RecurrentClass:
    """A set of states that a policy never leaves.

    Attributes
    ----------
    states
        How many there are.
    example
        The first of them.
    gain_lower
        Certified lower bound on the gain from each of them.
    gain_upper
        Certified upper bound.
    """

    states: int
    example: tuple[int, ...]
    gain_lower: float
    gain_upper: float


@dataclass(frozen=True)
class Evaluation:
    """The gain of a policy from the initial state, or the value of a policy with a horizon.

    Attributes
    ----------
    gain
        From the initial state. Exact: the middle of its bounds. Simulated: the mean of the runs.
        None if the bounds differ by more than the tolerance, if simulated runs do not support an
        interval (`unmixed`), and for a policy with a horizon.
    gain_lower
        Exact: lower bound on the gain from every starting state. Simulated: lower end of the
        interval, or the certified lower bound if there is no interval. None for a policy with a
        horizon.
    gain_upper
        Exact: upper bound on the gain from every starting state. Simulated: upper end of the
        interval, or the certified upper bound if there is no interval. None for a policy with a
        horizon.
    kind
        "exact": the bounds are certified. "simulated": they are a confidence interval.
    status
        How it ended; `status.message` explains the bounds. A simulation is never `converged`: it is
        `simulated`, or `unmixed` if its runs do not support an interval.
    iterations
        Sweeps of the exact evaluation (0 if the chain was solved directly), or steps of the
        simulation.
    seconds
        Wall-clock time.
    confidence
        Level of the confidence interval; None if the bounds are certified.
    gain_bounds
        Bounds for the initial state alone if the gain depends on the state; otherwise None.
    value
        For a policy with a horizon: the expected sum of rewards over its steps from the initial
        state, with the discount of the policy; otherwise None.
    value_bounds
        The value minus and plus the rounding error; otherwise None.
    horizon
        Number of steps of such a policy; otherwise None.
    certified_bounds
        Simulated: bounds from the rewards of the model, which hold whatever the runs missed.
    run_gains
        Simulated: the mean reward of each run, the first from the initial state; otherwise None.
    batch_steps
        Simulated: number of steps after which the runs show no memory of their past. The interval
        assumes this of everything that they did not show. None if there is no interval.
    caveat
        Simulated: one sentence on what the simulation cannot exclude; otherwise None.
    n_classes
        Number of recurrent classes of the policy, sets of states that are never left, if the graph
        of its chain was searched; otherwise None.
    classes
        If there are several: the largest of them, at most 16, each with its number of states, one
        of its states, and bounds on its gain.
    """

    gain: float | None
    gain_lower: float | None
    gain_upper: float | None
    kind: str
    status: Status
    iterations: int
    seconds: float
    confidence: float | None = None
    gain_bounds: tuple[float, float] | None = None
    value: float | None = None
    value_bounds: tuple[float, float] | None = None
    horizon: int | None = None
    certified_bounds: tuple[float, float] | None = None
    run_gains: tuple[float, ...] | None = None
    batch_steps: int | None = None
    caveat: str | None = None

    def _repr_html_(self) -> str:
        names = ("gain", "gain_lower", "gain_upper", "confidence", "value", "horizon", "caveat")
        known = [(name, getattr(self, name)) for name in names if getattr(self, name) is not None]
        return html_table(f"Evaluation, {self.kind}: {self.status.message}", (), known)

    n_classes: int | None = None
    classes: tuple[RecurrentClass, ...] = ()


def evaluate_exactly(
    model: FactoredMDP,
    policy: Policy | MixedPolicy,
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Return certified bounds on a policy's gain, or on its value if it has a horizon.

    The tolerance is the largest gap between the bounds in the unit of the reward; None is 1e-6
    times the largest range of a reward factor. The default limits are 100,000 sweeps, no time
    limit, and half of the free memory. Raises InvalidParameter if the policy is for other sizes or
    plays a forbidden action, and TooLarge if the evaluation does not fit into the memory limit.
    """
    started = time.perf_counter()
    try:
        deadline = Deadline.after(max_seconds, started)
        return _evaluate(
            model, policy, tolerance, max_iterations, deadline, memory_limit, progress, started
        )
    except (TimeUp, KeyboardInterrupt) as error:
        status = Status.TIME_LIMIT if isinstance(error, TimeUp) else Status.INTERRUPTED
        timed = isinstance(policy, TimedPolicy)
        lower, upper = (None, None) if timed else model.structure.reward_bounds
        horizon = policy.horizon if isinstance(policy, TimedPolicy) else None
        spent = time.perf_counter() - started
        return Evaluation(None, lower, upper, "exact", status, 0, spent, horizon=horizon)


def _evaluate(
    model: FactoredMDP,
    policy: Policy | MixedPolicy,
    tolerance: float | None,
    max_iterations: int | None,
    deadline: Deadline,
    memory_limit: int | None,
    progress: Progress | None,
    started: float,
) -> Evaluation:
    """Evaluate a policy. TimeUp or KeyboardInterrupt is raised if nothing is known yet."""
    state_sizes = model.structure.state_sizes
    if isinstance(policy, CountPolicy | TimedCountPolicy):
        sweeps = policy.horizon if isinstance(policy, TimedCountPolicy) else DEFAULT_SWEEPS
        goal = tolerance_of(tolerance, model.structure)
        limits = iteration.Limits(goal, max_iterations or sweeps, deadline)
        try:
            return _evaluate_counts(model, policy, limits, memory_limit, progress, started)
        except NotOnCounts:  # a policy of the model nevertheless
            policy = joint_table(policy, model.structure, TABULATED_STATES)
    if model.structure.derived:
        model, policy = evaluated_model(model, policy)
    structure = model.structure
    goal = tolerance_of(tolerance, structure)
    if isinstance(policy, TimedPolicy):
        limits = iteration.Limits(goal, max_iterations or policy.horizon, deadline)
        return _evaluate_timed(model, policy, limits, memory_limit, progress, started)
    mixture = mixture_of(policy, structure, deadline, progress)
    limits = iteration.Limits(goal, max_iterations or DEFAULT_SWEEPS, deadline)
    parts = parts_to_plan(structure) if len(mixture) == 1 else ()
    tables = Whole(structure, parts).split_actions(mixture[0][1]) if parts else None
    if tables is not None:
        return _evaluate_parts(model, parts, tables, limits, memory_limit, progress, started)
    chain = _Chain(model, mixture, limits, memory_limit, progress, state_sizes, started)
    if structure.n_states <= DIRECT_STATES:
        with suppress(TimeUp):
            direct = chain.solve()
            if direct is not None:
                return chain.evaluation(direct, 0)
    by_classes = chain.by_classes(_FEW_SUCCESSORS)
    if by_classes is not None:
        return by_classes
    backup = backup_for(model, memory_limit=memory_limit, deadline=deadline)
    outcome = iteration.solve(
        policy_operator(backup, mixture),
        np.zeros(backup.n_states),
        limits,
        policy_iteration=chain.direct_solution,
        accelerated=True,
        progress=progress,
    )
    if chain.classes is not None:
        return replace(chain.classes, iterations=chain.classes.iterations + outcome.sweeps)
    if chain.bounds is not None:
        return chain.evaluation(chain.bounds, outcome.sweeps)
    return _of_iteration(outcome, started, chain.n_classes)


def _evaluate_counts(
    model: FactoredMDP,
    policy: CountPolicy | TimedCountPolicy,
    limits: iteration.Limits,
    memory_limit: int | None,
    progress: Progress | None,
    started: float,
) -> Evaluation:
    """Evaluate a policy on counts in the quotient of the model by its exchangeable parts."""
    has_sizes_of(policy, model.structure)
    if isinstance(policy, TimedCountPolicy):
        return _evaluate_timed_counts(model, policy, limits, memory_limit, progress, started)
    chain = chain_of(model, policy, memory_limit=memory_limit, deadline=limits.deadline)
    initial = chain.quotient.space.state_of(model.initial_state)
    table = chain.written_out()
    gains = None if table is None else optimal_gains(table, limits.deadline)
    if gains is not None:
        start = (float(gains.lower[initial]), float(gains.upper[initial]))
        return _of_bounds(
            gains.lower, gains.upper, start, 0, Status.CONVERGED, limits.tolerance, started
        )
    chain.backup.deadline = limits.deadline
    outcome = iteration.solve(
        policy_operator(chain.backup, [(np.ones(0), chain.moves)]),
        np.zeros(chain.n_states),
        limits,
        accelerated=True,
        progress=progress,
    )
    return _of_iteration(outcome, started)


def _evaluate_timed_counts(
    model: FactoredMDP,
    policy: TimedCountPolicy,
    limits: iteration.Limits,
    memory_limit: int | None,
    progress: Progress | None,
    started: float,
) -> Evaluation:
    stages: list[CountPolicy] = list(policy.stages)  # type: ignore[arg-type]
    quotient = quotient_for(
        model, stages[0].moves, memory_limit=memory_limit, deadline=limits.deadline
    )
    sizes = (quotient.n_states,), (len(quotient.moves),)
    tables = [TablePolicy(*sizes, moves_in(quotient, stage)) for stage in stages]
    on_counts = TimedPolicy([tables[k] for k in policy.stage_numbers], policy.discount)
    initial = quotient.space.state_of(model.initial_state)
    backup = CountBackup(quotient)
    size = model.structure.reward_size
    return _timed_evaluation(lambda: backup, on_counts, initial, size, limits, progress, started)


def _of_iteration(
    outcome: iteration.State, started: float, n_classes: int | None = None
) -> Evaluation:
    """Return the evaluation of an iteration that ended."""
    known = outcome.status is Status.CONVERGED
    return Evaluation(
        gain=0.5 * (outcome.lower + outcome.upper) if known else None,
        gain_lower=outcome.lower,
        gain_upper=outcome.upper,
        kind="exact",
        status=outcome.status,
        iterations=outcome.sweeps,
        seconds=time.perf_counter() - started,
        n_classes=n_classes,
    )


def _of_bounds(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    start: tuple[float, float],
    sweeps: int,
    ended: Status,
    tolerance: float,
    started: float,
) -> Evaluation:
    """Return the evaluation with bounds on all gains, and on that from the initial state.

    `ended` says whether the bounds are as close as they get, or what stopped the work.
    """
    lower, upper = float(low.min()), float(high.max())
    if upper - lower <= tolerance:
        status = Status.CONVERGED
    elif ended is not Status.CONVERGED:
        status = ended
    elif low.max() > high.min():
        status = Status.MULTICHAIN
    else:
        status = Status.PRECISION_LIMIT
    differ = bool(low.max() > high.min())
    if not differ:
        start = (lower, upper)
    known = start[1] - start[0] <= tolerance
    return Evaluation(
        gain=0.5 * (start[0] + start[1]) if known else None,
        gain_lower=lower,
        gain_upper=upper,
        kind="exact",
        status=status,
        iterations=sweeps,
        seconds=time.perf_counter() - started,
        gain_bounds=start if differ and status is not Status.CONVERGED else None,
    )


def _evaluate_parts(
    model: FactoredMDP,
    parts: Sequence[Part],
    tables: Sequence[NDArray[np.int64]],
    limits: iteration.Limits,
    memory_limit: int | None,
    progress: Progress | None,
    started: float,
) -> Evaluation:
    """Evaluate a policy that treats independent parts separately; its gain is a sum over parts."""
    evaluations: list[Evaluation] = []
    for part, actions in zip(parts, tables, strict=True):
        if evaluations and evaluations[-1].status is Status.INTERRUPTED:
            least, most = part.structure.reward_bounds
            evaluations.append(Evaluation(None, least, most, "exact", Status.INTERRUPTED, 0, 0.0))
            continue
        sizes = (part.structure.state_sizes, part.structure.action_sizes)
        evaluations.append(
            evaluate_exactly(
                part.model(model),
                TablePolicy(*sizes, actions),
                tolerance=limits.tolerance / len(parts),
                max_iterations=limits.max_sweeps,
                max_seconds=limits.deadline.remaining(),
                memory_limit=memory_limit,
                progress=progress,
            )
        )
    lower, upper = sum_of_bounds([(e.gain_lower, e.gain_upper) for e in evaluations])
    low, high = sum_of_bounds([e.gain_bounds or (e.gain_lower, e.gain_upper) for e in evaluations])
    # The evaluation of a part always has bounds, since its policy has no horizon.
    assert lower is not None and upper is not None  # noqa: PT018
    assert low is not None and high is not None  # noqa: PT018
    status = joint_status(e.status for e in evaluations)
    if upper - lower <= limits.tolerance and status is not Status.INTERRUPTED:
        status = Status.CONVERGED
    return Evaluation(
        gain=0.5 * (low + high) if high - low <= limits.tolerance else None,
        gain_lower=lower,
        gain_upper=upper,
        kind="exact",
        status=status,
        iterations=max(e.iterations for e in evaluations),
        seconds=time.perf_counter() - started,
        gain_bounds=(low, high) if status is Status.MULTICHAIN else None,
    )


def timed_values(
    backup: Backup, policy: TimedPolicy, reward_size: float
) -> Iterator[tuple[NDArray[np.float64], float]]:
    """Yield the values of a policy from steps H - 1, H - 2, ..., 0 on, by one sweep each.

    The values are in the backup's order and are overwritten by the next ones. Each comes with a
    bound on its rounding error. `reward_size` is `Structure.reward_size` of the model.
    """
    now, new = np.zeros(backup.n_states), np.empty(backup.n_states)
    error = 0.0
    for step in reversed(range(policy.horizon)):
        if policy.discount != 1.0:
            now *= policy.discount
        size = max(float(now.max()), -float(now.min())) + reward_size
        backup.policy_sweep(now, new, policy.stage(step).actions)
        error = stage_error(error, policy.discount, size, backup.roundings)
        now, new = new, now
        yield now, error


def _evaluate_timed(
    model: FactoredMDP,
    policy: TimedPolicy,
    limits: iteration.Limits,
    memory_limit: int | None,
    progress: Progress | None,
    started: float,
) -> Evaluation:
    structure = model.structure
    has_sizes_of(policy, structure)
    if structure.constraints:
        for stage in policy.stages:
            structure.check_policy(stage.actions.astype(np.int64))
    initial = encode(model.initial_state, structure.state_sizes)

    def made() -> Backup:
        return tabular_backup(model, memory_limit) or backup_for(
            model, memory_limit=memory_limit, deadline=limits.deadline
        )

    size = structure.reward_size
    return _timed_evaluation(made, policy, initial, size, limits, progress, started)


def _timed_evaluation(
    make_backup: Callable[[], Backup],
    policy: TimedPolicy,
    initial: int,
    reward_size: float,
    limits: iteration.Limits,
    progress: Progress | None,
    started: float,
) -> Evaluation:
    """Evaluate a policy with a horizon from a state, by one backup per step."""
    horizon = policy.horizon
    done = 0
    error = 0.0
    status = Status.CONVERGED
    now: NDArray[np.float64] | None = None
    value: NDArray[np.float64] | None = None
    backup: Backup | None = None
    try:
        backup = make_backup()
        backup.deadline = limits.deadline
        ahead = timed_values(backup, policy, reward_size)
        while done < horizon:
            if done >= limits.max_sweeps:
                status = Status.ITERATION_LIMIT
                break
            limits.deadline.check()
            now, error = next(ahead)
            done += 1
            if progress is not None:
                progress({"sweeps": done, "seconds": time.perf_counter() - started})
        value = backup.to_canonical(now) if now is not None and done == horizon else None
    except TimeUp:
        status = Status.TIME_LIMIT
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    finally:
        if backup is not None:
            backup.deadline = NEVER
    of_start = None
    if value is not None:
        of_start = float(value[initial])
        status = Status.CONVERGED if 2 * error <= limits.tolerance else Status.PRECISION_LIMIT
    return Evaluation(
        gain=None,
        gain_lower=None,
        gain_upper=None,
        kind="exact",
        status=status,
        iterations=done,
        seconds=time.perf_counter() - started,
        value=of_start,
        value_bounds=None if of_start is None else (of_start - error, of_start + error),
        horizon=horizon,
    )


@dataclass(eq=False)
class _Chain:
    """The chain of the policy: its direct solution if it is small enough, and its classes."""

    model: FactoredMDP
    mixture: Mixture
    limits: iteration.Limits
    memory_limit: int | None
    progress: Progress | None
    state_sizes: tuple[int, ...]
    """Those of the user's model, whose states have the same indices."""
    started: float
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    n_classes: int | None = None
    classes: Evaluation | None = None

    def solve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return lower and upper bounds of every state; None if the chain has too many entries."""
        chain = write_out_mixture(self.model, self.mixture)
        if chain is None:
            return None
        gains = optimal_gains(chain, self.limits.deadline)
        return None if gains is None else (gains.lower, gains.upper)

    def by_classes(self, successors: int | None = None) -> Evaluation | None:
        """Return the evaluation of a chain with several recurrent classes.

        None if it has one, or more entries than fit, or more than this many per state, or if the
        policy is randomised.
        """
        if len(self.mixture) > 1:
            return None
        actions = self.mixture[0][1]
        entries = chain_entries(self.model, actions)
        most = most_entries(self.memory_limit)
        few = most if successors is None else min(most, successors * len(entries))
        if self.n_classes is not None or entries.sum() > few:
            return None
        if self.progress is not None:
            self.progress({"what": "searching for recurrent classes"})
        deadline = self.limits.deadline
        chain = write_chain(self.model, actions, entries, deadline)
        self.n_classes, label = recurrent_classes(chain.matrix)
        if self.n_classes == 1:
            return None
        solver = ClassSolver(
            self.model,
            chain,
            label,
            self.n_classes,
            self.limits.tolerance,
            self.limits.max_sweeps,
            deadline,
            self.progress,
        )
        initial = encode(self.model.initial_state, self.model.structure.state_sizes)
        return self.evaluation_of(solver.solve(initial))

    def direct_solution(self, h: NDArray[np.float64]) -> iteration.PolicySolution | None:
        """End the iteration with the bounds of the classes, or of the direct solution."""
        self.classes = self.by_classes()
        if self.classes is not None:
            assert self.classes.gain_lower is not None
            assert self.classes.gain_upper is not None
            return iteration.PolicySolution(
                differ=(self.classes.gain_lower, self.classes.gain_upper)
            )
        self.bounds = self.solve()
        if self.bounds is None:
            return None
        low, high = self.bounds
        return iteration.PolicySolution(differ=(float(low.min()), float(high.max())))

    def evaluation(
        self, bounds: tuple[NDArray[np.float64], NDArray[np.float64]], sweeps: int
    ) -> Evaluation:
        """Return the evaluation with these bounds on the gain of every state."""
        low, high = bounds
        initial = encode(self.model.initial_state, self.model.structure.state_sizes)
        start = (float(low[initial]), float(high[initial]))
        evaluation = self._evaluation(low, high, start, sweeps, Status.CONVERGED)
        if evaluation.status is not Status.MULTICHAIN or len(self.mixture) > 1:
            return evaluation
        actions = self.mixture[0][1]
        chain = write_chain(self.model, actions, chain_entries(self.model, actions), NEVER)
        count, label = recurrent_classes(chain.matrix)
        any_state = np.zeros(count, dtype=np.int64)
        any_state[label[label >= 0]] = np.flatnonzero(label >= 0)
        gains = ClassGains(low[any_state], high[any_state], label, start)
        return self._with_classes(evaluation, gains)

    def evaluation_of(self, gains: ClassGains) -> Evaluation:
        """Return the evaluation with these bounds on the gain of every class."""
        evaluation = self._evaluation(
            gains.lower, gains.upper, gains.start, gains.sweeps, gains.status
        )
        return self._with_classes(evaluation, gains)

    def _with_classes(self, evaluation: Evaluation, gains: ClassGains) -> Evaluation:
        sizes = gains.sizes
        first = np.full(len(sizes), -1, dtype=np.int64)
        recurrent = np.flatnonzero(gains.label >= 0)[::-1]
        first[gains.label[recurrent]] = recurrent  # the last assignment, of the first state, stays
        largest = np.lexsort((first, -sizes))[:LISTED_CLASSES]
        classes = tuple(
            RecurrentClass(
                int(sizes[number]),
                decode(int(first[number]), self.state_sizes),
                float(gains.lower[number]),
                float(gains.upper[number]),
            )
            for number in largest.tolist()
        )
        return replace(evaluation, n_classes=len(sizes), classes=classes)

    def _evaluation(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        start: tuple[float, float],
        sweeps: int,
        ended: Status,
    ) -> Evaluation:
        return _of_bounds(low, high, start, sweeps, ended, self.limits.tolerance, self.started)
