"""What a policy does in the long run: shares of time, means of reward factors, events, states."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.html import html_table
from fmdp._base.numerals import upper_text
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
from fmdp.planning.occupancy.tables import WeightedActions
from fmdp.planning.policies.mixed import MixedPolicy, mixture_of
from fmdp.planning.policies.policy import Policy
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.timed import TimedPolicy

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Bounds = tuple[float, float] | None
Shares = dict[str, dict[str, float]]

MOST_VISITED = 10
"""States that are listed by default."""
_LISTED = 60
"""Most rows of the table in a notebook, and most lines of the text."""
_IN_LINE = 12
"""Most values of one variable in a line of the text."""
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Visited:
    """A state that is visited often.

    Attributes
    ----------
    state
        The state by name.
    share
        Its share of time.
    action
        The policy's action there, by name; one of them if it randomises.
    runner_up
        The best other action, by name; None if it is not known.
    gap
        What taking the runner-up once costs in total; None if it is not known.
    """

    state: Mapping[str, str]
    share: float
    action: Mapping[str, str]
    runner_up: Mapping[str, str] | None = None
    gap: float | None = None


@dataclass(frozen=True)
class Event:
    """How often an event happens.

    Attributes
    ----------
    share
        The share of the steps in which it holds.
    return_time
        The mean number of steps from one such step to the next, 1 / share; infinite if there is
        none.
    duration
        The mean number of consecutive steps for which it holds; None if it never holds, and
        infinite if it never ends.
    """

    share: float
    return_time: float
    duration: float | None


@dataclass(frozen=True)
class Summary:
    """What a policy does in the long run, from the initial state.

    Attributes
    ----------
    kind
        "exact": every bound is certified. "simulated": bounds are confidence intervals.
    factors
        The mean of each reward factor per step, by name.
    quantities
        The mean of each quantity per step, by name.
    actions
        For each action variable, the share of time of each of its values.
    states
        For each state variable, the share of time of each of its values.
    events
        The requested events, by name.
    most_visited
        The states that are visited most, with the action taken there and its runner-up.
    bounds
        Lower and upper bounds on the same numbers, in the same form: a mapping with the keys
        `factors`, `quantities`, `actions`, `states` and `events`. None in place of a pair if
        simulated runs do not support an interval.
    error
        Exact: certified error of the share of any set of states; otherwise None.
    confidence
        Simulated: confidence of each interval; otherwise None.
    classes
        Exact: recurrent classes in which the chain can end. With several, the shares are those
        from the initial state, weighted by the chance of ending in each.
    caveat
        One sentence on what the numbers do not say, or None.
    seconds
        Wall-clock time.
    model
        The model.
    law
        Exact: the share of time of every state (`law.states`, `law.shares`); otherwise None.
    """

    kind: str
    factors: Mapping[str, float]
    actions: Mapping[str, Mapping[str, float]]
    states: Mapping[str, Mapping[str, float]]
    events: Mapping[str, Event] = field(default_factory=dict)
    most_visited: Sequence[Visited] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)
    error: float | None = None
    confidence: float | None = None
    classes: int | None = None
    caveat: str | None = None
    seconds: float = 0.0
    model: FactoredMDP | None = field(default=None, repr=False, compare=False)
    law: Law | None = field(default=None, repr=False, compare=False)
    quantities: Mapping[str, float] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """The sum of the means of all reward factors."""
        return float(sum(self.factors.values()))

    def __str__(self) -> str:
        """Return the gain, means, shares and events as lines; `repr` has every number."""
        how = (
            self.kind
            if self.error is None
            else f"{self.kind}, every share within {upper_text(self.error, 2)}"
        )
        lines = [f"What the policy does in the long run: {how}", f"  gain {self.gain:.6g}"]
        means = [*self.factors.items(), *self.quantities.items()]
        lines += [f"  mean of {name}: {mean:.6g}" for name, mean in means]
        for kind, shares in (("action", self.actions), ("state", self.states)):
            for name, by_value in shares.items():
                parts = [f"{value} {100 * share:.2f} %" for value, share in by_value.items()]
                more = [f"{len(parts) - _IN_LINE} more"] if len(parts) > _IN_LINE else []
                lines.append(f"  {kind} {name}: {', '.join(parts[:_IN_LINE] + more)}")
        lines += [f"  event {name}: {100 * e.share:.2f} %" for name, e in self.events.items()]
        if len(lines) > _LISTED:
            lines[_LISTED:] = [f"  and {len(lines) - _LISTED} more lines"]
        return "\n".join(lines if self.caveat is None else [*lines, f"  caveat: {self.caveat}"])

    def _repr_html_(self) -> str:
        means = [*self.factors.items(), *self.quantities.items()]
        rows = [("mean of", name, "", f"{mean:.6g}") for name, mean in means]
        for kind, shares in (("action", self.actions), ("state", self.states)):
            for name, by_value in shares.items():
                for value, share in by_value.items():
                    rows.append((kind, name, value, f"{100 * share:.2f} %"))
        rows += [("event", name, "", f"{100 * e.share:.2f} %") for name, e in self.events.items()]
        head = ("", "name", "value", "in the long run")
        return html_table(f"What the policy does, {self.kind}", head, rows[:_LISTED])

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a dictionary, with the keys that `fmdp inspect --json` prints."""
        return {
            "kind": self.kind,
            "factors": dict(self.factors),
            "quantities": dict(self.quantities),
            "actions": {name: dict(shares) for name, shares in self.actions.items()},
            "states": {name: dict(shares) for name, shares in self.states.items()},
            "events": {name: vars(event) for name, event in self.events.items()},
            "most_visited": [vars(visited) for visited in self.most_visited],
            "gain": self.gain,
            "bounds": self.bounds,
            "error": self.error,
            "confidence": self.confidence,
            "classes": self.classes,
            "caveat": self.caveat,
            "seconds": self.seconds,
        }


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


def weighted_actions(
    model: FactoredMDP, policy: Policy | MixedPolicy, deadline: Deadline = NEVER
) -> WeightedActions:
    """Return a stationary policy as tables of actions with their weights."""
    mixture = mixture_of(policy, model.structure, deadline)
    actions = tuple(actions for _, actions in mixture)
    if len(mixture) == 1:
        return WeightedActions(actions)
    return WeightedActions(actions, tuple(weights for weights, _ in mixture))


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
    whole, model = model, expand(model)
    deadline = Deadline.after(max_seconds, started)
    tables = weighted_actions(model, policy, deadline)
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

    def __init__(self, law: Law, tables: WeightedActions, structure: Structure) -> None:
        self.law, self.tables, self.structure = law, tables, structure
        self.parts: list[tuple[Indices, Floats]] = []
        """Pairs (state * actions + action) with their shares of time, one list per table."""
        for actions, weights in zip(tables.actions, tables.weights, strict=True):
            pairs = law.states * structure.n_actions + actions[law.states]
            shares = law.shares if weights is None else law.shares * weights[law.states]
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
        for mark, weights in zip(marks, self.tables.weights, strict=True):
            everywhere = np.zeros(s.n_states)
            everywhere[self.law.states] = mark
            marked.append(everywhere if weights is None else everywhere * weights)
        step = Adjoint(model, WeightedActions(self.tables.actions, tuple(marked)))
        following = step(now) @ sum(marked[1:], marked[0])
        ends = share - float(following)
        # Less than rounding can make of zero: the event does not end.
        lasts = ends <= 4 * step.roundings * _EPS * share
        return Event(share, 1.0 / share, float("inf") if lasts else share / ends)


def _most_visited(
    model: FactoredMDP, policy: Policy | MixedPolicy, law: Law, tables: WeightedActions, most: int
) -> tuple[Visited, ...]:
    s = model.structure
    order = np.argsort(-law.shares, kind="stable")[:most]
    order = order[law.shares[order] > 0.0]
    states = [decode(int(place), s.state_sizes) for place in law.states[order]]
    explained = _explanations(model, policy, states)
    visited = []
    for state, share in zip(states, law.shares[order].tolist(), strict=True):
        action = decode(int(tables.actions[0][encode(state, s.state_sizes)]), s.action_sizes)
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
