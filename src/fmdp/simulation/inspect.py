"""What a policy does in the long run: exactly where its law can be computed, else by simulation."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import Integer
from fmdp._base.progress import reporting
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.expansion import shared_draws, with_derived_values
from fmdp.model.factored import check_model
from fmdp.model.spaces import strides
from fmdp.planning.counts.policy_chain import NotOnCounts
from fmdp.planning.evaluate import TABULATED_STATES
from fmdp.planning.occupancy.events import Holds, checked_events
from fmdp.planning.occupancy.law import NotCertified
from fmdp.planning.occupancy.records import Event, Summary, Visited
from fmdp.planning.occupancy.summary import MOST_VISITED, refuse_without_law, summarise
from fmdp.planning.policies.counts import CountPolicy, as_table
from fmdp.planning.policies.files import policy_of
from fmdp.planning.policies.mixed import MixedPolicy
from fmdp.planning.policies.playing import StepBatch, action_table
from fmdp.planning.policies.policy import Policy
from fmdp.planning.status import Progress
from fmdp.simulation.environment import Environment
from fmdp.simulation.evaluate import CONFIDENCE, RUNS, SEED, STEPS, batches_of
from fmdp.simulation.replications import counted, interval
from fmdp.simulation.starts import dispersed_starts, reachable_values
from fmdp.simulation.trajectory import Recorder

Floats = NDArray[np.float64]
Pair = tuple[float, float] | None

_VISITED = Integer("most_visited", MOST_VISITED, "states that are listed", low=0)
_CAVEAT = (
    "simulated: each interval assumes that the runs missed no set of states that is left more "
    "slowly than a batch of the runs lasts"
)


def inspect(
    model: FactoredMDP,
    policy: Policy | MixedPolicy | Callable[[tuple[int, ...]], Any] | str | os.PathLike[str],
    *,
    events: Mapping[str, str | Callable[[dict[str, Any]], object]] | None = None,
    most_visited: int = MOST_VISITED,
    steps: int = 200_000,
    seed: int = 0,
    memory_limit: int | None = None,
    progress: bool | Progress | None = None,
) -> Summary:
    """Return what a policy does in the long run, from the initial state.

    The shares are exact, with a certified error, if the long-run law of the policy can be computed
    (up to 4,194,304 states); otherwise the policy is simulated, with confidence intervals.

    Parameters
    ----------
    model
        The model that the policy acts in.
    policy
        A policy, such as `plan.policy`; a deterministic function from a state (a tuple of ints) to
        an action; or the path of a policy file.
    events
        Events to count, by name. Each is a condition on named values, such as "queue>3" or
        "crew=busy and queue>0", or a function of a dictionary with the value of every state and
        action variable.
    most_visited
        Number of states to list, at least 0.
    steps
        Simulated: number of steps of all 16 runs together, at least 64.
    seed
        Simulated: seed of the runs, at least 0.
    memory_limit
        Exact: most bytes; above, the policy is simulated. None is half of the free memory.
    progress
        True shows a bar; a function receives a mapping of the state of the work; None is silent.

    Returns
    -------
    Summary
        Shares of time by variable and by action, means of the reward factors, events and the most
        visited states, each with bounds.

    Raises
    ------
    InvalidParameter
        If an argument is out of range, an event names no variable or value of the model, the policy
        has other sizes, or it has a horizon.
    FileProblem
        If the policy file is missing or of another format.
    """
    check_model(model, "inspect")
    _VISITED.check(most_visited, "inspect")
    STEPS.check(steps, "inspect")
    SEED.check(seed, "inspect")
    refuse_without_law(policy)
    checked = policy_of(policy, model.structure, "inspect")
    refuse_without_law(checked)  # it may come from a file
    holds = checked_events(model.structure, events)
    # Events of single parts are not known from counts; small models are listed, others simulated.
    on_counts = isinstance(checked, CountPolicy) and not holds
    small = model.structure.n_states <= TABULATED_STATES and not shared_draws(model.structure)
    if small and isinstance(checked, CountPolicy):
        checked, on_counts = as_table(checked, model.structure), False
    with reporting(progress, f"inspecting {model.name or 'the model'}", "inspect") as report:
        if small or on_counts:
            try:
                return summarise(
                    model,
                    checked,
                    events=events,
                    most_visited=most_visited,
                    memory_limit=memory_limit,
                )
            except (TooLarge, NotCertified, NotOnCounts):
                if isinstance(checked, MixedPolicy):
                    raise
        if isinstance(checked, MixedPolicy):
            raise InvalidParameter(
                "the policy randomises, and only the exact law of such a policy is computed, which "
                "this model is too large for or has drawn variables that several others share"
            )
        return _Simulated(model, checked, holds, steps, seed, report).summary(most_visited)


class _Simulated:
    """Several recorded runs of a policy, from different states."""

    def __init__(
        self,
        model: FactoredMDP,
        policy: Policy,
        holds: Mapping[str, Holds],
        steps: int,
        seed: int,
        report: Progress | None,
    ) -> None:
        self.started = time.perf_counter()
        self.model, self.policy, self.holds = model, policy, holds
        self.batches, self.batch_steps = batches_of(steps // RUNS)
        self.means: dict[tuple[str, ...], list[Floats]] = {}
        self.visits: Counter[tuple[int, ...]] = Counter()
        self.ends: Counter[str] = Counter()
        self.n_counted = 0
        (child,) = np.random.SeedSequence(seed).spawn(1)
        generator = np.random.Generator(np.random.PCG64(child))
        starts = dispersed_starts(model, reachable_values(model), RUNS, [], generator)
        for number, start in enumerate(starts):
            rows, rewards = self._run(start, np.random.PCG64([seed, number]))
            self._count(rows, rewards)
            if report is not None:
                done = (number + 1) * self.batches * self.batch_steps
                report({"step": done, "steps": RUNS * self.batches * self.batch_steps})

    def _run(
        self, start: tuple[int, ...], bits: np.random.PCG64
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return states and actions [steps, variables] and rewards [steps, factors] of a run."""
        s = self.model.structure
        recorder = Recorder(s)
        environment = Environment(self.model, np.random.Generator(bits), recorder=recorder)
        environment.move_to(start)
        left = self.batches * self.batch_steps
        recorder.reserve(left)
        table = action_table(self.policy, s)
        while left > 0:
            if table is None:
                environment.step(self.policy(environment.state))
                left -= 1
            else:
                left -= environment.play(StepBatch(left, table))[0]
        run = recorder.trajectory(environment.state)
        rows = np.hstack([run.states[:-1], run.actions]).astype(np.int64)
        return rows, run.rewards

    def _count(self, rows: NDArray[np.int64], rewards: Floats) -> None:
        """Add the batch means of every quantity of one run, and its visits."""
        s = self.model.structure
        after = len(rows) // 8  # as in `replications.counted`
        self.n_counted += len(rows) - after
        shape = (self.batches, self.batch_steps)
        for key, values in self._quantities(rows, rewards):
            self.means.setdefault(key, []).append(values.reshape(shape).mean(axis=1))
        states, numbers = np.unique(rows[after:, : s.m], axis=0, return_counts=True)
        for state, number in zip(states.tolist(), numbers.tolist(), strict=True):
            self.visits[tuple(state)] += number
        for name, test in self.holds.items():
            now = test(rows[after:])
            self.ends[name] += int((now[:-1] & ~now[1:]).sum())

    def _quantities(
        self, rows: NDArray[np.int64], rewards: Floats
    ) -> Iterator[tuple[tuple[str, ...], Floats]]:
        s = self.model.structure
        for k, name in enumerate(s.reward_names):
            yield ("factors", name), rewards[:, k]
        known = with_derived_values(s, rows) if self.model.quantities else rows
        for quantity in self.model.quantities:
            values = known[:, list(quantity.scope)]
            # Drawn derived variables are not recorded.
            if (values >= 0).all():
                places = values @ np.array(strides(s.scope_sizes(quantity.scope)), dtype=np.int64)
                yield ("quantities", quantity.name), quantity.table.reshape(-1)[places]
        for v, name in enumerate(s.names[: len(s.sizes)]):
            for place, value in enumerate(s.values[v]):
                key = ("states" if v < s.m else "actions", name, value)
                yield key, (rows[:, v] == place).astype(np.float64)
        for name, test in self.holds.items():
            yield ("events", name), test(rows).astype(np.float64)

    def summary(self, most: int) -> Summary:
        s, quantities = self.model.structure, self.model.quantities
        ranges = dict(zip(s.reward_names, s.reward_ranges, strict=True))
        ranges |= {q.name: (float(q.table.min()), float(q.table.max())) for q in quantities}
        kinds = ("factors", "quantities", "actions", "states", "events")
        numbers: dict[str, Any] = {kind: {} for kind in kinds}
        bounds: dict[str, Any] = {kind: {} for kind in kinds}
        for (kind, name, *value), runs in self.means.items():
            means = np.stack(runs)
            limits = ranges[name] if kind in ("factors", "quantities") else (0.0, 1.0)
            estimate = interval(means, limits, CONFIDENCE, 1e-12 * max(map(abs, limits)))
            pair: Pair = None if estimate is None else (estimate.lower, estimate.upper)
            mean = float(counted(means).mean())
            for target, entry in ((numbers, mean), (bounds, pair)):
                if value:
                    target[kind].setdefault(name, {})[value[0]] = entry
                else:
                    target[kind][name] = entry
        events = {name: self._event(name, share) for name, share in numbers["events"].items()}
        return Summary(
            kind="simulated",
            factors=numbers["factors"],
            actions=numbers["actions"],
            states=numbers["states"],
            events=events,
            most_visited=tuple(self._visited(most)),
            bounds=bounds,
            confidence=CONFIDENCE,
            caveat=_CAVEAT,
            seconds=time.perf_counter() - self.started,
            model=self.model,
            quantities=numbers["quantities"],
        )

    def _event(self, name: str, share: float) -> Event:
        if share == 0.0:
            return Event(0.0, float("inf"), None)
        ends = self.ends[name] / self.n_counted
        return Event(share, 1.0 / share, share / ends if ends else float("inf"))

    def _visited(self, most: int) -> Iterator[Visited]:
        s = self.model.structure
        for state, number in self.visits.most_common(most):
            action = s.check_action(self.policy(state))
            yield Visited(s.name_state(state), number / self.n_counted, s.name_action(action))
