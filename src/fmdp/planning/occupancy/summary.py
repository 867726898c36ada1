"""What a policy does in the long run: shares of time, means of reward factors, events, states."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import expand
from fmdp.model.spaces import decode, encode, project_some
from fmdp.planning.evaluate import POLICY_GAIN_STATES
from fmdp.planning.explain.explain import explain_states
from fmdp.planning.explain.explanation import Explanation
from fmdp.planning.occupancy.adjoint import Adjoint
from fmdp.planning.occupancy.events import Holds, checked_events
from fmdp.planning.occupancy.law import Law, long_run_law
from fmdp.planning.occupancy.on_counts import summarise_on_counts
from fmdp.planning.occupancy.records import Event, Summary, Visited
from fmdp.planning.policies.counts import CountPolicy
from fmdp.planning.policies.mixed import MixedPolicy, Mixture, mixture_of
from fmdp.planning.policies.policy import Policy
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.timed import TimedPolicy

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Bounds = tuple[float, float] | None
Shares = dict[str, dict[str, float]]

MOST_VISITED = 10
"""States that are listed by default."""
_EPS = float(np.finfo(np.float64).eps)


def refuse_without_law(policy: object) -> None:
    """Raise InvalidParameter if a policy ends, or has no table of actions."""
    if isinstance(policy, TimedPolicy):
        raise InvalidParameter(
            "the policy has a horizon: there are no long-run shares of time of a policy that ends"
        )
    if isinstance(policy, RandomisedPolicy) and not isinstance(policy, MixedPolicy):
        raise InvalidParameter(
            "the policy draws its actions at random: inspect takes tables and MixedPolicy only"
        )


def summarise(
    model: FactoredMDP,
    policy: Policy | MixedPolicy,
    *,
    events: Mapping[str, Any] | None = None,
    most_visited: int = MOST_VISITED,
    memory_limit: int | None = None,
    max_seconds: float | None = None,
) -> Summary:
    """Return the exact summary of a policy.

    Raises InvalidParameter if the policy or an event does not fit the model or its law cannot be
    certified, and TooLarge if it does not fit into memory.
    """
    started = time.perf_counter()
    holds = checked_events(model.structure, events)
    refuse_without_law(policy)
    if isinstance(policy, CountPolicy):
        if holds:
            raise InvalidParameter(
                f"event {next(iter(holds))!r} is not counted for a policy on counts: what single "
                f"parts do is not known from the counts"
            )
        return summarise_on_counts(
            model, policy, memory_limit=memory_limit, max_seconds=max_seconds
        )
    whole, model = model, expand(model)
    deadline = Deadline.after(max_seconds, started)
    tables = mixture_of(policy, model.structure, deadline)
    law = long_run_law(model, tables, memory_limit=memory_limit, deadline=deadline)
    s = model.structure
    counted = _Counted(law, tables, s)
    factors, factor_bounds = counted.means(s.reward_names, s.reward_scopes, model.rewards)
    others = model.quantities
    quantities, quantity_bounds = counted.means(
        [q.name for q in others], [q.scope for q in others], [q.table for q in others]
    )
    states = {
        name: counted.by_value(values, place)
        for place, (name, values) in enumerate(zip(s.state_names, s.state_values, strict=True))
    }
    actions = {
        name: counted.by_value(values, s.m + place)
        for place, (name, values) in enumerate(zip(s.action_names, s.action_values, strict=True))
    }
    happened = {name: counted.event(model, test) for name, test in holds.items()}
    return Summary(
        kind="exact",
        factors=factors,
        actions=actions,
        states=states,
        events=happened,
        most_visited=_most_visited(model, policy, law, tables, most_visited),
        bounds={
            "factors": factor_bounds,
            "quantities": quantity_bounds,
            "actions": _widened(actions, law.error),
            "states": _widened(states, law.error),
            "events": {
                name: _share_bounds(event.share, law.error) for name, event in happened.items()
            },
        },
        error=law.error,
        classes=law.classes,
        caveat=_caveat(law),
        seconds=time.perf_counter() - started,
        model=whole,
        law=law,
        quantities=quantities,
    )


def _caveat(law: Law) -> str | None:
    if law.classes == 1:
        return None
    return (
        f"the policy can end in {law.classes} separate sets of states; the shares are those from "
        f"the initial state, weighted by the chance of ending in each"
    )


def _share_bounds(share: float, error: float) -> tuple[float, float]:
    return max(0.0, share - error), min(1.0, share + error)


def _widened(shares: Shares, error: float) -> dict[str, dict[str, tuple[float, float]]]:
    return {
        name: {value: _share_bounds(share, error) for value, share in by_value.items()}
        for name, by_value in shares.items()
    }


class _Counted:
    """Sums over the law of a policy."""

    def __init__(self, law: Law, tables: Mixture, structure: Structure) -> None:
        self.law, self.tables, self.structure = law, tables, structure
        self.parts: list[tuple[Indices, Floats]] = []
        """Pairs (state * actions + action) with their shares of time, one list per table."""
        for weights, actions in tables:
            pairs = law.states * structure.n_actions + actions[law.states]
            shares = law.shares * weights[law.states]
            self.parts.append((pairs, shares))

    def mean(self, of_row: Floats, scope: Sequence[int]) -> float:
        """Return the mean of a function of the variables in a scope."""
        sizes = self.structure.sizes
        return float(
            sum(shares @ of_row[project_some(sizes, scope, pairs)] for pairs, shares in self.parts)
        )

    def by_value(self, values: Sequence[str], variable: int) -> dict[str, float]:
        """Return the share of time of each value of a variable."""
        total = np.zeros(len(values))
        for pairs, shares in self.parts:
            places = project_some(self.structure.sizes, (variable,), pairs)
            total += np.bincount(places, shares, len(values))
        return dict(zip(values, total.tolist(), strict=True))

    def means(
        self, names: Sequence[str], scopes: Sequence[Sequence[int]], tables: Sequence[Any]
    ) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        """Return the mean of each reward factor or quantity, and certified bounds on it."""
        means, bounds = {}, {}
        for name, scope, table in zip(names, scopes, tables, strict=True):
            rewards = np.asarray(table, dtype=np.float64)
            low, high = float(rewards.min()), float(rewards.max())
            mean = self.mean(rewards, scope)
            # The second term is for the rounding of the sum.
            rounding = 2.0 * _EPS * len(self.law.states) * max(abs(low), abs(high))
            error = (high - low) * self.law.error + rounding
            means[name] = mean
            bounds[name] = (max(low, mean - error), min(high, mean + error))
        return means, bounds

    def event(self, model: FactoredMDP, holds: Holds) -> Event:
        """Return how often an event holds, and for how long."""
        s = self.structure
        marks = []
        for pairs, _ in self.parts:
            rows = np.stack(np.unravel_index(pairs, s.sizes), axis=1).astype(np.int64)
            marks.append(holds(rows).astype(np.float64))
        share = float(sum(m @ shares for m, (_, shares) in zip(marks, self.parts, strict=True)))
        if share == 0.0:
            return Event(0.0, float("inf"), None)
        # The law of the next state, from the steps in which the event holds.
        now = np.zeros(s.n_states)
        now[self.law.states] = self.law.shares
        marked = []
        for mark, (weights, _) in zip(marks, self.tables, strict=True):
            everywhere = np.zeros(s.n_states)
            everywhere[self.law.states] = mark
            marked.append(everywhere * weights)
        tables = [(mark, actions) for mark, (_, actions) in zip(marked, self.tables, strict=True)]
        step = Adjoint(model, tables)
        following = step(now) @ sum(marked[1:], marked[0])
        ends = share - float(following)
        # Less than rounding can make of zero: the event does not end.
        lasts = ends <= 4 * step.roundings * _EPS * share
        return Event(share, 1.0 / share, float("inf") if lasts else share / ends)


def _most_visited(
    model: FactoredMDP, policy: Policy | MixedPolicy, law: Law, tables: Mixture, most: int
) -> tuple[Visited, ...]:
    s = model.structure
    order = np.argsort(-law.shares, kind="stable")[:most]
    order = order[law.shares[order] > 0.0]
    states = [decode(int(place), s.state_sizes) for place in law.states[order]]
    explained = _explanations(model, policy, states)
    visited = []
    for state, share in zip(states, law.shares[order].tolist(), strict=True):
        action = decode(int(tables[0][1][encode(state, s.state_sizes)]), s.action_sizes)
        explanation = next(explained)
        runner_up = None if explanation is None else explanation.runner_up
        gap = None
        if explanation is not None and runner_up is not None:
            gap = runner_up.gap - explanation.chosen.gap
        visited.append(
            Visited(
                s.name_state(state),
                share,
                s.name_action(action),
                None if runner_up is None else {n: str(v) for n, v in runner_up.action.items()},
                gap,
            )
        )
    return tuple(visited)


def _explanations(
    model: FactoredMDP, policy: Policy | MixedPolicy, states: Sequence[tuple[int, ...]]
) -> Iterator[Explanation | None]:
    """Yield the explanation of each state; None where there is none."""
    known: list[Explanation] = []
    single = not isinstance(policy, MixedPolicy)
    if states and single and model.structure.n_states <= POLICY_GAIN_STATES:
        try:
            known = explain_states(model, policy, states)
        except FmdpError:  # several recurrent classes, or too slow: shares are known all the same
            known = []
    yield from known or (None for _ in states)
