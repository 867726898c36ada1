"""Policy iteration on the model written out, for plans whose sweeps have stalled.

Either the gain is one number that the sweeps cannot find within any limit (states that are left
once in a million steps, a corridor that pays a little less at one end): policy iteration finds an h
whose bounds meet.  Or the gain depends on the state: two states are found whose certified gains
differ (tabular/gains.py).  Nothing else is a proof, and None is returned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.backup import Backup
from fmdp.elimination.ties import TIE_TOLERANCE, Ties
from fmdp.model import FactoredMDP
from fmdp.planning.exact.bounds import bounds_of_policy
from fmdp.planning.exact.solver import PolicySolution
from fmdp.planning.tabular import linear_systems
from fmdp.planning.tabular.end_components import end_components
from fmdp.planning.tabular.gains import Gains, optimal_gains
from fmdp.planning.tabular.model import TabularModel, entries_within, write_out
from fmdp.planning.tabular.policy_iteration import optimal_discounted, optimal_gain

Vector = NDArray[np.float64]

_NOISE = 1e3
"""A gap of at most this many rounding errors is due to rounding."""


def average_solution(
    model: FactoredMDP,
    backup: Backup,
    h: Vector,
    tolerance: float,
    ties: Ties,
    *,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
    converged: bool = False,
) -> PolicySolution | None:
    """Return the optimal gains by policy iteration, and an h that certifies them if there is one.

    `h` is in the engine's order.  `converged`: its bounds meet, so that its greedy policy is a good
    one to begin with.  None if the model is too large, or nothing is proved.
    """
    table = write_out(model, entries_within(memory_limit))
    if table is None:
        return None
    return average_solution_of_table(
        table,
        backup,
        h,
        tolerance,
        model.structure.reward_unit,
        ties,
        deadline=deadline,
        converged=converged,
    )


def average_solution_of_table(
    table: TabularModel,
    backup: Backup,
    h: Vector,
    tolerance: float,
    reward_unit: float,
    ties: Ties,
    *,
    deadline: Deadline = NEVER,
    converged: bool = False,
) -> PolicySolution | None:
    """Return `average_solution` of a model that is written out; `backup` is its engine."""
    start = table.advantages(backup.to_canonical(h))[0].argmax(axis=1) if converged else None
    gains = optimal_gains(table, deadline, start)
    if gains is None:
        return None
    bounds = (float(gains.lower.min()), float(gains.upper.max()))
    actions = table.allowed(gains.actions)
    if gains.lower.max() > gains.upper.min():
        return PolicySolution(differ=bounds, gains=gains, actions=actions)
    solution = _one_gain(table, backup, gains, tolerance, reward_unit, ties, deadline)
    if solution is None and bounds[1] - bounds[0] <= tolerance:
        # Between components that are hardly ever left there may be a gain and no h to show it.
        return PolicySolution(bounds=bounds, actions=actions)
    return solution


def _one_gain(
    table: TabularModel,
    backup: Backup,
    gains: Gains,
    tolerance: float,
    reward_unit: float,
    ties: Ties,
    deadline: Deadline,
) -> PolicySolution | None:
    """Return an h with one gain for all states; None if policy iteration finds none.

    The bias is unique if the actions that are optimal at h have one end component (Schweitzer &
    Federgruen 1978: the solutions of the optimality equation have as many degrees of freedom as
    there are recurrent classes of an optimal policy that has as many as possible).
    """
    all_states = np.ones(table.n_states, dtype=np.bool_)
    all_pairs = np.ones((table.n_states, table.n_actions), dtype=np.bool_)
    best = optimal_gain(table, all_states, all_pairs, deadline, gains.actions)
    if best is None:
        return None
    worth, noise = table.advantages(best.h)
    most = (worth - noise).max(axis=1, keepdims=True)
    slack = min(TIE_TOLERANCE * reward_unit, 0.25 * tolerance)
    tied = worth - noise >= most - slack
    if table.allowed_action is not None:
        tied &= table.allowed_action == np.arange(table.n_actions)
    chosen = ties.choose(np.where(tied, 0.0, -np.inf), 0.0)
    lower, upper = bounds_of_policy(worth, noise, chosen)
    upper = min(upper, float(gains.upper.max()))
    if upper - lower > max(tolerance, _NOISE * float(noise.max())):
        return None  # policy iteration did not end
    # As many components whether ties count or not: then nothing depends on what a tie is.
    surely, perhaps = worth - noise >= most, worth + noise >= most - slack
    optimal = (surely,) if np.array_equal(surely, perhaps) else (surely, perhaps)
    return PolicySolution(
        bounds=(lower, upper),
        h=backup.to_internal(best.h),
        actions=chosen,
        unique_bias=all(end_components(table, allowed).count == 1 for allowed in optimal),
    )


def discounted_solution(
    model: FactoredMDP,
    backup: Backup,
    h: Vector,
    discount: float,
    *,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> PolicySolution | None:
    """Return the values of policy iteration from the policy that is greedy at h under a discount.

    None if the model is too large to be written out.
    """
    if discount == 0.0 or model.structure.n_states > linear_systems.SPARSE_STATES:
        return None
    table = write_out(model, entries_within(memory_limit))
    if table is None:
        return None
    return discounted_solution_of_table(table, backup, h, discount, deadline)


def discounted_solution_of_table(
    table: TabularModel, backup: Backup, h: Vector, discount: float, deadline: Deadline = NEVER
) -> PolicySolution | None:
    """Return `discounted_solution` of a model that is written out; the discount is not 0."""
    start = table.advantages(discount * backup.to_canonical(h))[0].argmax(axis=1)
    best = optimal_discounted(table, discount, start, deadline)
    if best is None:
        return None
    bounds = (best.lower / discount, best.upper / discount)
    return PolicySolution(bounds=bounds, h=backup.to_internal(best.values))
