"""The bias of a policy relative to one state, with a bound on the error of every number.

For a state x of the only recurrent class that can be reached from the given state,

    h(s) - h(x) = E_s[ sum of (r - gain) until x is hit ],
    gain        = (expected reward of a cycle from x to x) / (its expected length).

A chain of up to `DIRECT_STATES` states is solved by eliminating states without subtraction
(chains.py) and refined with residuals in twice the precision of a float. A plain linear solve loses
as many digits as the expected times have, and on a chain with several recurrent classes it returns
arbitrary numbers. Recurrent classes are found on the support graph.

The error e = h' - h of any approximation h' satisfies e = (gain - rho) + P e with the residual
rho = r + P h' - h'. So |e(s) - e(x)| is at most the expected sum of |gain - rho| until x is hit.
That sum has no negative terms and is computed to nearly full precision for every chain. The
probabilities are assumed to be known up to the rounding of their products and row sums.

A larger chain is iterated. There |gain - rho| is at most the gap between the certified bounds of
the gain, and the expected time to hit x is at most k / (1 - q), where q is the largest probability,
over all states, not to have hit x after k steps. It also proves that all states reach x.

In a model of independent parts, under a policy that treats them separately, the bias is the sum of
the parts' biases, and so are the bounds on the errors.

Cost: a few eliminations, (2/3) S^3 each; or sweeps over the states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp.elimination.backup import Backup
from fmdp.elimination.rounding import rounding_allowance
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.spaces import encode, project_some
from fmdp.planning.evaluate import DIRECT_STATES, TABULATED_STATES
from fmdp.planning.exact import iteration
from fmdp.planning.exact.bounds import residual_of
from fmdp.planning.joining import Whole, parts_to_plan
from fmdp.planning.limits import DEFAULT_SWEEPS
from fmdp.planning.policies.mixed import tabulated_actions
from fmdp.planning.policies.policy import Policy, TablePolicy
from fmdp.planning.tabular.chains import absorbed_costs
from fmdp.planning.tabular.end_components import strongly_connected
from fmdp.planning.tabular.model import TabularModel, relative_rounding, write_out_chain

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

_REFINEMENTS = 12
"""Most steps of iterative refinement."""
_NEGLIGIBLE = 1e-25
"""Change of h and of the gain, relative to the largest change, at which refinement ends."""
_SPLIT = 2.0**27 + 1.0
"""Factor that splits a float into two halves whose products are exact (Dekker 1971)."""
_GENEROUS = 1.01
"""Safety factor for the rounding of sums without negative terms."""
_GAP = 1e-10
"""Gap between the bounds of an iterated chain, in units of `Structure.reward_unit`."""
_SURE = 0.75
"""Largest probability q, not to have hit the target after k steps, that ends the sweeps."""
_SIMULATED_STEPS = 2_000
"""Steps of the simulated run whose most visited state becomes the target in a large chain."""


@dataclass(frozen=True, eq=False)
class PolicyBias:
    """The bias of a policy relative to one state, and the gain, with bounds on their errors."""

    h: Floats
    """[S] in C order: h(s) minus h of the given state; 0 where it is not defined."""
    error: Floats
    """[S]: bounds on the errors of h."""
    defined: Mask
    """[S]: whether the state leads to the same recurrent class as the given one and no other."""
    gain: float
    gain_error: float


def policy_bias(model: FactoredMDP, policy: Policy, state: int) -> PolicyBias:
    """Return the bias of a policy relative to a state, which is given by its index in C order.

    Raises InvalidParameter if several recurrent classes can be reached from the state, or the bias
    cannot be computed; TooLarge if there are too many states.
    """
    structure = model.structure
    if structure.n_states > TABULATED_STATES:
        raise TooLarge(
            f"a policy over {describe_count(structure.n_states)} states cannot be evaluated "
            f"exactly; at most {describe_count(TABULATED_STATES)} can",
            8 * structure.n_states,
            8 * TABULATED_STATES,
        )
    actions = tabulated_actions(policy, structure)
    structure.check_policy(actions)
    parts = parts_to_plan(structure)
    whole = Whole(structure, parts)
    tables = whole.split_actions(actions) if parts else None
    if tables is not None:
        return _summed(model, whole, tables, state)
    chain = write_out_chain(model, actions) if structure.n_states <= DIRECT_STATES else None
    if chain is None:
        bias = _iterated(model, actions, state)
    else:
        bias = _solved(model, actions, chain, state)
    if bias is None or not (np.isfinite(bias.h).all() and np.isfinite(bias.error).all()):
        raise InvalidParameter(
            "the policy has several recurrent classes, so that its gain depends on the state, or "
            "it settles too slowly to be told; there are no values to explain by"
        )
    return bias


def _summed(model: FactoredMDP, whole: Whole, tables: Sequence[Indices], state: int) -> PolicyBias:
    """Return the sum of the biases of independent parts, each under its own table of actions."""
    biases = []
    for part, actions in zip(whole.parts, tables, strict=True):
        sizes = (part.structure.state_sizes, part.structure.action_sizes)
        policy = TablePolicy(*sizes, actions)
        biases.append(policy_bias(part.model(model), policy, whole.part_state(part, state)))
    rounding = len(biases) * float(np.finfo(np.float64).eps)
    errors = [bias.error + rounding * np.abs(bias.h) for bias in biases]
    gain_errors = [bias.gain_error + rounding * abs(bias.gain) for bias in biases]
    undefined = whole.sum_over_states([(~bias.defined).astype(np.int64) for bias in biases])
    return PolicyBias(
        whole.sum_over_states([bias.h for bias in biases]),
        _GENEROUS * whole.sum_over_states(errors),
        undefined == 0,
        sum(bias.gain for bias in biases),
        _GENEROUS * sum(gain_errors),
    )


# ---- chains that are solved ---------------------------------------------------------------------


def _solved(
    model: FactoredMDP, actions: Indices, chain: TabularModel, state: int
) -> PolicyBias | None:
    n = chain.n_states
    origin, place = np.nonzero(chain.possible[:, 0])
    target = chain.successors[origin, 0, place]
    weight = chain.probabilities[origin, 0, place]
    recurrent, defined = _one_class(n, origin, target, state)
    states = np.flatnonzero(defined)
    local = np.full(n, -1, dtype=np.int64)
    local[states] = np.arange(len(states))
    kept = defined[origin]  # their successors are among the kept states as well
    matrix = np.zeros((len(states), len(states)))
    np.add.at(matrix, (local[origin[kept]], local[target[kept]]), weight[kept])
    np.fill_diagonal(matrix, 0.0)  # the probability to stay follows from those to leave
    pairs = states * model.structure.n_actions + actions[states]
    system = _System(
        matrix,
        _rewards(model, pairs),
        relative_rounding(chain.depth, chain.successors.shape[2]),
    )
    anchor = _likely_end(matrix, np.flatnonzero(recurrent[states]), int(local[state]))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        solution = system.bias(anchor, int(local[state]))
    if solution is None:
        return None
    h, error = np.zeros(n), np.zeros(n)
    h[states], error[states], gain, gain_error = solution
    return PolicyBias(h, error, defined, gain, gain_error)


def _one_class(n: int, origin: Indices, target: Indices, state: int) -> tuple[Mask, Mask]:
    """Return the only recurrent class that the state leads to, and the states that lead to no
    other.

    Raises InvalidParameter if the state leads to several.
    """
    count, label = strongly_connected(n, origin, target)
    left = np.unique(label[origin][label[origin] != label[target]])
    closed = np.ones(count, dtype=np.bool_)
    closed[left] = False
    recurrent = closed[label]
    start = np.zeros(n, dtype=np.bool_)
    start[state] = True
    ends = np.unique(label[_reached(origin, target, start) & recurrent])
    if len(ends) > 1:
        raise several_classes(f"the policy may end in any of {len(ends)} recurrent classes")
    reached = label == ends[0]
    return reached, ~_reached(target, origin, recurrent & ~reached)


def several_classes(what: str) -> InvalidParameter:
    """Return the error for a state from which several recurrent classes can be reached."""
    return InvalidParameter(
        f"from this state {what}: the gain depends on the state that comes next, so that there are "
        f"no values to explain by"
    )


def _reached(origin: Indices, target: Indices, start: Mask) -> Mask:
    """Return the states that can be reached along the edges from a set, which is included."""
    reached = start.copy()
    while True:
        new = target[reached[origin]]
        if reached[new].all():
            return reached
        reached[new] = True


def _likely_end(matrix: Floats, recurrent: Indices, state: int) -> int:
    """Return a recurrent state that is visited often: follow the most likely transitions.

    This is a heuristic. Any recurrent state is correct, but the error bounds grow with the expected
    time until it is hit.
    """
    for _ in range(len(matrix)):
        following = int(matrix[state].argmax())
        if matrix[state, following] <= 1.0 - matrix[state].sum():
            break  # staying is as likely
        state = following
    return state if state in recurrent else int(recurrent[0])


def _rewards(model: FactoredMDP, pairs: Indices) -> Floats:
    """Return the mean of each reward factor for the given state-action pairs: [pairs, factors]."""
    structure = model.structure
    columns = [
        means[project_some(structure.sizes, scope, pairs)]
        for scope, means in zip(structure.reward_scopes, model.rewards, strict=True)
    ]
    return np.column_stack(columns) if columns else np.zeros((len(pairs), 0))


class _System:
    """The equation h + gain = r + P h of states that lead to one recurrent class.

    h and the gain are unevaluated sums of two floats, [S, 2] and [2], the second far smaller.
    """

    def __init__(self, matrix: Floats, rewards: Floats, rounding: float) -> None:
        # The matrix has a zero diagonal and entries of relative error `rounding`. The reward of a
        # state is the sum of its row of `rewards`.
        self.matrix = matrix
        self.rewards = rewards
        self.rounding = rounding
        self.n = len(matrix)
        self.origin, self.target = np.nonzero(matrix)
        self.weight = matrix[self.origin, self.target]
        self.first = np.searchsorted(self.origin, np.arange(self.n + 1))

    def bias(self, anchor: int, state: int) -> tuple[Floats, Floats, float, float] | None:
        """Return h relative to the state, its error bounds, the gain and its error bound.

        None if a number overflows. `anchor` is a recurrent state.
        """
        h, gain = np.zeros((self.n, 2)), np.zeros(2)
        largest = np.zeros(2)
        for _ in range(_REFINEMENTS):
            residual = self._residual(h, gain)
            totals, cycle = self._until(anchor, np.column_stack([residual, np.ones(self.n)]))
            change = cycle[0] / cycle[1]
            step = totals[:, 0] - change * totals[:, 1]
            if not (np.isfinite(step).all() and np.isfinite(change)):
                return None
            gain, h = _plus(gain, change), _plus(h, step)
            moved = np.array([np.abs(step).max(), abs(change)])
            largest = np.maximum(largest, moved)
            if (moved <= _NEGLIGIBLE * largest).all():
                break
        counted = _differences(h, np.arange(self.n), np.full(self.n, state)).sum(axis=1)
        errors, gain_error = self._errors(h, gain, anchor, state)
        return counted, errors, float(gain.sum()), gain_error

    def _residual(self, h: Floats, gain: Floats) -> Floats:
        """Return r - gain + P h - h: [S], each sum rounded once."""
        moved = _differences(h, self.target, self.origin)
        large = _product(self.weight, moved[:, 0])
        products = np.column_stack([*large, self.weight * moved[:, 1]])
        left = []
        for s in range(self.n):
            terms = products[self.first[s] : self.first[s + 1]].ravel().tolist()
            total = [*self.rewards[s].tolist(), *(-gain).tolist(), *terms]
            left.append(math.fsum(total) if np.isfinite(total).all() else math.nan)
        return np.array(left)

    def _until(self, anchor: int, costs: Floats) -> tuple[Floats, Floats]:
        """Return the expected total costs until the anchor is hit: from every state, and of a cycle
        from the anchor to itself."""
        others = np.delete(np.arange(self.n), anchor)
        totals = np.zeros_like(costs)
        totals[others] = absorbed_costs(
            self.matrix[np.ix_(others, others)], self.matrix[others, anchor], costs[others]
        )
        return totals, costs[anchor] + self.matrix[anchor] @ totals

    def _errors(self, h: Floats, gain: Floats, anchor: int, state: int) -> tuple[Floats, float]:
        """Return bounds on the errors of h, relative to the state, and of the gain."""
        moved = np.abs(_differences(h, self.target, self.origin)[:, 0])
        moves = np.bincount(self.origin, self.weight * moved, self.n)
        costs = _GENEROUS * (np.abs(self._residual(h, gain)) + self.rounding * moves)
        totals, cycle = self._until(anchor, np.column_stack([costs, np.ones(self.n)]))
        of_gain = _GENEROUS * float(cycle[0] / cycle[1])
        to_anchor = _GENEROUS * (totals[:, 0] + of_gain * totals[:, 1])
        if state == anchor:
            return to_anchor, of_gain
        # Sum until the state or the anchor is hit; from the anchor the rest is known.
        others = np.delete(np.arange(self.n), [state, anchor])
        halves = self.matrix[others][:, [state, anchor]]
        totals = absorbed_costs(
            self.matrix[np.ix_(others, others)],
            halves.sum(axis=1),
            np.column_stack([costs[others] + of_gain, halves[:, 1]]),
        )
        errors = np.zeros(self.n)
        errors[anchor] = to_anchor[state]
        errors[others] = _GENEROUS * (totals[:, 0] + totals[:, 1] * to_anchor[state])
        return errors, of_gain


def _differences(h: Floats, of: Indices, less: Indices) -> Floats:
    """Return h[of] - h[less] in pairs of floats: [entries, 2]."""
    high, low = _sum(h[of, 0], -h[less, 0])
    return np.column_stack([high, low + (h[of, 1] - h[less, 1])])


def _plus(pair: Floats, number: Floats | float) -> Floats:
    """Return pairs of floats [..., 2] with a float added to each."""
    high, low = _sum(pair[..., 0], number)
    return np.stack(_sum(high, low + pair[..., 1]), axis=-1)


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b rounded, and its rounding error, which is exact (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return a * b rounded, and its rounding error, which is exact (Dekker 1971)."""
    product = a * b
    a_high = _SPLIT * a - (_SPLIT * a - a)
    b_high = _SPLIT * b - (_SPLIT * b - b)
    a_low, b_low = a - a_high, b - b_high
    return product, a_low * b_low - (
        ((product - a_high * b_high) - a_low * b_high) - a_high * b_low
    )


# ---- chains that are iterated -------------------------------------------------------------------


def _iterated(model: FactoredMDP, actions: Indices, state: int) -> PolicyBias | None:
    structure = model.structure
    steps = _hitting_bound(model, actions, _visited_often(model, actions, state))
    if steps is None:
        return None
    backup = Backup(structure, share_for=model)
    limits = iteration.Limits(_GAP * structure.reward_unit, DEFAULT_SWEEPS)
    outcome = iteration.solve(
        iteration.PolicyOperator(backup, actions),
        np.zeros(backup.n_states),
        limits,
        accelerated=True,
    )
    outcome.status.raise_if_interrupted()
    out = np.empty_like(outcome.h)
    backup.policy_sweep(outcome.h, out, actions)
    residual = residual_of(backup, outcome.h, out)
    low, high = residual.lower, residual.upper
    h = backup.to_canonical(outcome.h)
    error = np.full(len(h), 2.0 * _GENEROUS * steps * (high - low))
    error[state] = 0.0
    everywhere = np.ones(len(h), dtype=np.bool_)
    return PolicyBias(h - h[state], error, everywhere, 0.5 * (low + high), 0.5 * (high - low))


def _hitting_bound(model: FactoredMDP, actions: Indices, target: int) -> float | None:
    """Return a bound on the expected time until the target is hit, from any state.

    None if it is not hit with probability 1, or too many sweeps would be needed to show that.
    """
    structure = model.structure
    nothing = [np.zeros(rows) for rows in structure.reward_rows]
    without_rewards = FactoredMDP.trusted(structure, list(model.transitions), nothing)
    backup = Backup(structure, share_for=without_rewards)
    hit = np.zeros(backup.n_states)
    hit[target] = 1.0
    away = backup.to_internal(hit) == 0.0
    missed, new = away.astype(np.float64), np.empty(backup.n_states)
    never = int(away.sum())
    for sweep in range(1, DEFAULT_SWEEPS + 1):
        backup.policy_sweep(missed, new, actions)
        new *= away
        missed, new = new, missed
        left = float(missed.max()) + sweep * rounding_allowance(1.0, backup.roundings)
        if left <= _SURE:
            return sweep / (1.0 - left)
        before, never = never, int((missed >= 1.0).sum())
        if never == before > 0:
            return None  # these states never hit the target
    return None


def _visited_often(model: FactoredMDP, actions: Indices, state: int) -> int:
    """Return the most visited state in the second half of a short simulated run."""
    structure = model.structure
    generator = np.random.default_rng(0)
    visits: Counter[int] = Counter()
    for step in range(_SIMULATED_STEPS):
        pair = np.array([state * structure.n_actions + int(actions[state])])
        following = [
            int(generator.choice(size, p=_row(table, structure.sizes, scope, pair)))
            for scope, size, table in zip(
                structure.transition_scopes, structure.state_sizes, model.transitions, strict=True
            )
        ]
        state = encode(following, structure.state_sizes)
        if 2 * step >= _SIMULATED_STEPS:
            visits[state] += 1
    return visits.most_common(1)[0][0]


def _row(table: Any, sizes: tuple[int, ...], scope: tuple[int, ...], pair: Indices) -> Floats:
    row = np.asarray(table[project_some(sizes, scope, pair)[0]], dtype=np.float64)
    normal: Floats = row / row.sum()
    return normal
