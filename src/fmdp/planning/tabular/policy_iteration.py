"""Policy iteration (Howard 1960) on a model that is written out, with certified bounds.

One loop serves both criteria; they differ in how a policy is evaluated.

Average reward, for a set of states with one optimal gain (Haviv & Puterman 1991): of several
recurrent classes of a policy the best is kept and the other states are led to it; with one class
left, h + gain = r + P h has one solution up to a constant.  The h that the loop ends with certifies
the gain, min(L h - h) <= gain <= max(L h - h) over the set.

Discounted: for any V, with rho = L V - V of L V = max_a (r + discount P V),

    V + min rho / (1 - discount) <= V* <= V + max rho / (1 - discount)    (MacQueen 1966).

rho is computed by differences, r + discount sum p (V' - V) - (1 - discount) V, so that it does not
lose the digits that V has before its point: two absorbing states are solved to the last digit under
any discount.  The bounds are the same for V plus any constant, so V is kept small by subtracting
one.

All bounds are widened by what rounding can have done.  Cost: a linear system over the states for
each policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.planning.exact.bounds import bounds_of_actions
from fmdp.planning.tabular.end_components import only_class, routes, strongly_connected
from fmdp.planning.tabular.evaluation import discounted_values, policy_bias
from fmdp.planning.tabular.model import Floats, Indices, Mask, TabularModel

ROUNDS = 500
"""Policies that policy iteration may try."""
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A policy with its value function and the one-step improvements at it."""

    policy: Indices
    values: Floats
    """[S]: the bias, or the discounted values."""
    worth: Floats
    """[S, A]: r + P h - h, or rho under a discount; -inf for actions that are not allowed."""
    noise: Floats
    """[S, A]: how far rounding can have moved each."""
    gap: float
    """How far the values are from a solution of the optimality equation."""


def iterate_policies(
    start: Indices,
    evaluate: Callable[[Indices], Evaluation | None],
    deadline: Deadline = NEVER,
    patience: int = ROUNDS,
) -> Evaluation | None:
    """Return the evaluation with the least gap of the policies that policy iteration meets.

    It ends where no action is better than the policy's by more than rounding can explain, where a
    policy cannot be evaluated, or after `patience` policies without a smaller gap.
    """
    policy, best, since = start, None, 0
    for _ in range(ROUNDS):
        deadline.check()
        evaluation = evaluate(policy)
        if evaluation is None:
            break
        since += 1
        if best is None or evaluation.gap < best.gap:
            best, since = evaluation, 0
        better = _improved(evaluation)
        if better is None or since > patience:
            break
        policy = better
    return best


def _improved(evaluation: Evaluation) -> Indices | None:
    """Return the policy with the greedy action wherever it is surely better; None: nowhere."""
    policy, worth = evaluation.policy, evaluation.worth
    greedy = worth.argmax(axis=1)
    both = np.stack([policy, greedy], axis=1)
    held, reached = np.take_along_axis(worth, both, axis=1).T
    improved = reached > held + np.take_along_axis(evaluation.noise, both, axis=1).sum(axis=1)
    return np.where(improved, greedy, policy) if improved.any() else None


# ---- average reward ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GainAndBias:
    """The optimal gain of a set of states that has only one, between bounds."""

    lower: float
    upper: float
    h: Floats
    """[S], 0 outside the set."""
    actions: Indices
    """[S]: an action that attains max (r + P h) in every state of the set, -1 outside."""


def optimal_gain(
    model: TabularModel,
    members: Mask,
    allowed: Mask,
    deadline: Deadline = NEVER,
    start: Indices | None = None,
) -> GainAndBias | None:
    """Return the optimal gain of states that have one when only these actions are allowed.

    `start` is a policy [S] to begin with.  None if some state cannot be led to the best class that
    is met, or a system is singular.
    """
    states = np.flatnonzero(members)
    usable = allowed[states]
    everything = usable.all() and len(states) == model.n_states
    part = model if everything else model.restricted(states, usable)
    policy = np.argmax(usable, axis=1) if start is None else start[states].copy()
    # Better policies may have larger gaps for a while, one state after the other turning round;
    # more of them in a row than there are states are rounding going in circles.
    patience = 16 + min(len(states), 200)
    best = iterate_policies(
        policy, lambda policy: _evaluate_bias(part, usable, policy), deadline, patience
    )
    if best is None:
        return None
    worth, noise = best.worth, np.where(usable, best.noise, 0.0)
    lower, upper = bounds_of_actions(worth, noise)
    h, actions = np.zeros(model.n_states), np.full(model.n_states, -1, dtype=np.int64)
    h[states] = best.values
    actions[states] = (worth - noise).argmax(axis=1)
    return GainAndBias(lower, upper, h, actions)


def _evaluate_bias(model: TabularModel, allowed: Mask, policy: Indices) -> Evaluation | None:
    unichain = _with_one_class(model, allowed, policy)
    if unichain is None:
        return None
    policy, anchor = unichain
    solution = policy_bias(model, policy, anchor)
    if solution is None:
        return None
    h, _ = solution
    worth, noise = model.advantages(h)
    worth[~allowed] = -np.inf
    greedy = worth.max(axis=1)
    return Evaluation(policy, h, worth, noise, float(greedy.max() - greedy.min()))


def _with_one_class(
    model: TabularModel, allowed: Mask, policy: Indices
) -> tuple[Indices, int] | None:
    """Return the policy changed so that its best recurrent class is the only one, and a state of
    that class; None if some state cannot be led to it."""
    chain = model.chain(policy)
    label, closed = recurrent_classes(chain.successors[:, 0], chain.possible[:, 0])
    if len(closed) == 1:
        return policy, int(np.argmax(label == closed[0]))
    gains = []
    for number in closed:
        inside = model.chain(policy, np.flatnonzero(label == number))
        solution = policy_bias(inside, np.zeros(inside.n_states, dtype=np.int64), 0)
        gains.append(-np.inf if solution is None else solution[1])
    chosen = closed[int(np.argmax(gains))]
    # States that may still reach another class are led to those that do not.
    others = np.isin(label, [number for number in closed if number != chosen])
    any_action = np.ones((chain.n_states, 1), dtype=np.bool_)
    lost = others | (routes(chain, any_action, others) >= 0)
    way = routes(model, allowed, ~lost)
    if (way[lost] < 0).any():
        return None
    return np.where(lost, way, policy), int(np.argmax(label == chosen))


def recurrent_classes(rows: Indices, possible: Mask) -> tuple[Indices, list[int]]:
    """Return the strongly connected set of each state of a chain, and the numbers of the recurrent
    ones, which are never left; if that is one set, all other states may have one number."""
    only = only_class(rows, possible)
    if only is not None:
        return np.where(only, 0, 1), [0]
    origin, place = np.nonzero(possible)
    successor = rows[origin, place]
    count, label = strongly_connected(len(rows), origin, successor)
    left = np.unique(label[origin][label[origin] != label[successor]])
    return label, np.setdiff1d(np.arange(count), left).tolist()


# ---- discounted ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DiscountedValue:
    """A value function, and bounds on its residual with rounding included.

    Attributes
    ----------
    values
        [S] in C order, up to a constant, which the bounds make up for.
    lower
        At most the residual rho of every state.
    upper
        At least the residual rho of every state.
    """

    values: Floats
    lower: float
    upper: float


def optimal_discounted(
    model: TabularModel, discount: float, start: Indices, deadline: Deadline = NEVER
) -> DiscountedValue | None:
    """Return the best values that policy iteration from the policy `start` [S] meets; None if a
    system is singular."""

    def evaluate(policy: Indices) -> Evaluation | None:
        values = discounted_values(model, policy, discount)
        if values is None:
            return None
        rho, noise = _residuals(model, values, discount)
        lower, upper = bounds_of_actions(rho, noise)
        return Evaluation(policy, values, rho, noise, upper - lower)

    best = iterate_policies(start, evaluate, deadline)
    if best is None:
        return None
    return DiscountedValue(best.values, *bounds_of_actions(best.worth, best.noise))


def _residuals(model: TabularModel, values: Floats, discount: float) -> tuple[Floats, Floats]:
    """Return r + discount P V - V of every state and action, and how far rounding can move each."""
    moved, noise = model.advantages(values)  # r + P V - V
    column = values[:, None]
    rho = discount * moved + (1.0 - discount) * (model.rewards - column)
    return rho, noise + 8.0 * _EPSILON * (1.0 - discount) * (model.reward_sizes + np.abs(column))
