"""Policies that meet limits exactly, from policies on both sides of them.

With one limit, two optimal policies A (above it) and B (below it) of the Lagrangian are joined by
policies that take B's action in the first n states in which they differ. In a unichain model all of
these are optimal for the Lagrangian, and so is a policy that mixes two neighbours in the one state
in which they differ (Beutler & Ross 1985). Averages of such mixtures are quotients of linear
functions of the probability.

With several limits, or where that leaves a gap, the linear program over occupancies is solved, if
it is small; otherwise policies are mixed in proportion to their visits. Whatever the way, the
policy is evaluated, and nothing else is reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import TooLarge
from fmdp.planning.constrained.lagrangian import SLACK, Column, Search
from fmdp.planning.occupancy.law import NotCertified, long_run_law
from fmdp.planning.policies.mixed import MixedPolicy, Mixture, mixed_policy, mixture_of, one_table
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.tabular.model import Successors

LP_PAIRS = 100_000
"""Most pairs of a state and an action for which the linear program over occupancies is solved."""
_LP_ENTRIES = 1 << 23
_MIXES = 12
"""Most evaluations that find the probability of a mixture."""


def improve_by_mixing(search: Search) -> None:
    """Replace the best policy of a search by mixtures, until its gap is within the tolerance."""
    if len(search.limits) == 1:
        weights = search.shares()
        likely = [search.columns[j] for j in np.argsort(-weights, kind="stable")]
        _mix_across(search, likely)
        if _gap(search) > search.tolerance:
            _mix_close_to_the_price(search)
    if _gap(search) > search.tolerance:
        _mix_by_occupancies(search)
    if _gap(search) > search.tolerance:
        _mix_by_laws(search)


def _gap(search: Search) -> float:
    return np.inf if search.best is None else search.upper - search.best.reward.lower


# ---- one limit -----------------------------------------------------------------------------------


def _mix_across(search: Search, columns: list[Column]) -> None:
    """Mix the first policy that satisfies the limit with the first that does not."""
    inside = next((c for c in columns if search.satisfied(c)), None)
    outside = next((c for c in columns if not search.satisfied(c)), None)
    if inside is not None and outside is not None:
        _switch(search, outside, inside)


def _mix_close_to_the_price(search: Search) -> None:
    """Mix policies that are greedy in every state, at prices just below and above the best one."""
    price = search.prices
    step = max(0.25 * search.tolerance, 1e-9 * float(price[0]))
    pair = [search.plan_at(np.clip(price + change, 0.0, None))[1] for change in (-step, step)]
    _mix_across(search, pair)


def _table(column: Column) -> NDArray[np.int64]:
    assert isinstance(column.policy, TablePolicy)
    return column.policy.actions.astype(np.int64)


def _switch(search: Search, outside: Column, inside: Column) -> None:
    """Find the state in which the limit is crossed, and mix there."""
    s = search.averages.model.structure
    first, last = _table(outside), _table(inside)
    differ = np.flatnonzero(first != last)

    def switched(states: int) -> NDArray[np.int64]:
        actions = first.copy()
        actions[differ[:states]] = last[differ[:states]]
        return actions

    low, high = 0, len(differ)
    while high - low > 1:
        middle = (low + high) // 2
        policy = mixed_policy(s, one_table(switched(middle)))
        column = search.evaluated(policy)
        if search.satisfied(column):
            high, inside = middle, column
        else:
            low, outside = middle, column
    _mix_in_one_state(search, outside, inside, int(differ[low]))


def _mix_in_one_state(search: Search, outside: Column, inside: Column, state: int) -> None:
    """Find the probability at which the limit is met, from the feasible side.

    The average at probability q of the inside action is (c0 (1 - q) + c1 rho q) / (1 - q + rho q),
    and one evaluation between gives rho.
    """
    bound = float(search.bounds[0])
    left, right = (0.0, outside.levels[0].middle), (1.0, inside.levels[0].middle)
    chance = 0.5
    for _ in range(_MIXES):
        column = search.evaluated(_mixture(search, outside, inside, state, chance))
        level = column.levels[0]
        if search.satisfied(column) and bound - level.middle <= 10 * SLACK:
            return
        ratio = _ratio(left, right, chance, level.middle)
        if search.satisfied(column):
            right = (chance, level.middle)
        else:
            left = (chance, level.middle)
        # Aim inside by a little more than the width of the certificate.
        aim = bound - max(SLACK, level.upper - level.lower)
        chance = _solved(left, right, ratio, aim)
        if not left[0] < chance < right[0]:
            chance = 0.5 * (left[0] + right[0])


def _ratio(
    left: tuple[float, float], right: tuple[float, float], chance: float, level: float
) -> float:
    """Return rho of the averages between two probabilities, from one average between them."""
    share = (chance - left[0]) / (right[0] - left[0])
    missing = (level - right[1]) * share
    return ((left[1] - level) * (1.0 - share)) / missing if missing > 0.0 else 1.0


def _solved(
    left: tuple[float, float], right: tuple[float, float], ratio: float, aim: float
) -> float:
    """Return the probability at which the average is `aim`."""
    before, after = left[1] - aim, (aim - right[1]) * ratio
    share = before / (before + after) if before + after > 0.0 else 0.5
    return left[0] + share * (right[0] - left[0])


def _mixture(
    search: Search, outside: Column, inside: Column, state: int, chance: float
) -> TablePolicy | MixedPolicy:
    s = search.averages.model.structure
    weights = np.ones(s.n_states)
    weights[state] = 1.0 - chance
    other = 1.0 - weights
    return mixed_policy(s, [(weights, _table(outside)), (other, _table(inside))])


# ---- occupancies ---------------------------------------------------------------------------------


def _mix_by_occupancies(search: Search) -> None:
    """Solve the linear program over the shares of time of all states and actions."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, vstack

    model = search.averages.model
    s = model.structure
    n_pairs = s.n_states * s.n_actions
    if n_pairs > LP_PAIRS:
        return
    lists = Successors(model)
    if n_pairs * lists.width > _LP_ENTRIES:
        return
    allowed = s.allowed_mask().ravel() if s.constraints else np.ones(n_pairs, dtype=np.bool_)
    columns, probabilities, _ = lists.rows_of(np.arange(n_pairs))
    pairs = np.repeat(np.arange(n_pairs), lists.width)
    shape = (s.n_states, n_pairs)
    arriving = csr_array((probabilities.ravel(), (columns.ravel(), pairs)), shape=shape)
    every = np.arange(n_pairs)
    leaving = csr_array((np.ones(n_pairs), (every // s.n_actions, every)), shape=shape)
    flow = vstack([leaving - arriving, csr_array(np.ones((1, n_pairs)))])
    program: dict[str, Any] = {
        "c": -search.averages.pairs(search.reward).ravel(),
        "A_ub": np.array([search.averages.pairs(term).ravel() for term in search.terms]),
        "b_ub": search.bounds - SLACK,
        "A_eq": flow,
        "b_eq": [0.0] * s.n_states + [1.0],
        "bounds": np.column_stack([np.zeros(n_pairs), np.where(allowed, 1.0, 0.0)]),
    }
    options: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    program |= {"method": "highs", "options": {**options, **_seconds(search)}}
    solve: Any = linprog  # its overloads do not know sparse arrays
    result = solve(**program)
    if result.x is None:
        return
    search.evaluated(mixed_policy(s, _from_occupancies(search, result.x)))


def _seconds(search: Search) -> dict[str, float]:
    remaining = search.deadline.remaining()
    return {} if remaining is None else {"time_limit": remaining}


def _from_occupancies(search: Search, occupancy: NDArray[np.float64]) -> Mixture:
    """Return the policy of shares of time; states that are not visited act as a known policy."""
    s = search.averages.model.structure
    shares = np.clip(occupancy, 0.0, None).reshape(s.n_states, s.n_actions)
    shares[shares < 1e-13] = 0.0
    known = search.columns[-1] if search.best is None else search.best
    mixture: Mixture = []
    visited = shares.sum(axis=1) > 0.0
    for weights, actions in mixture_of(known.policy, s):
        mixture.append((np.where(visited, 0.0, weights), actions))
    for action in np.flatnonzero(shares.any(axis=0)):
        mixture.append((shares[:, action], np.full(s.n_states, action)))
    return mixture


def _mix_by_laws(search: Search) -> None:
    """Mix the policies of the search in proportion to how often each visits a state.

    With weights w_j and long-run laws nu_j, pi(a | s) is proportional to
    sum_j w_j nu_j(s) 1{a = a_j(s)}: in a unichain model its averages are those of the mixture.
    """
    from scipy.optimize import linprog

    model, columns = search.averages.model, search.columns
    levels = np.array([[level.middle for level in column.levels] for column in columns]).T
    result = linprog(
        [-column.reward.middle for column in columns],
        A_ub=levels,
        b_ub=search.bounds - 2 * SLACK,
        A_eq=np.ones((1, len(columns))),
        b_eq=[1.0],
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10},
    )
    if result.x is None:
        return
    mixture: Mixture = []
    try:
        for weight, column in zip(result.x, columns, strict=True):
            if weight > 0.0:
                actions = _table(column)
                law = long_run_law(model, one_table(actions), deadline=search.deadline)
                visits = np.full(model.structure.n_states, 1e-290)
                visits[law.states] += np.clip(law.shares, 0.0, None)
                mixture.append((weight * visits, actions))
    except (NotCertified, TooLarge):
        return
    search.evaluated(mixed_policy(model.structure, mixture))
