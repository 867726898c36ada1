"""The linear program over occupancies, written independently of fmdp's planner."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from fmdp import FactoredMDP
from fmdp.testing import oracles

Limits = dict[str, tuple[str, float]]


def averages_of(model: FactoredMDP) -> dict[str, Any]:
    """Every reward factor and quantity as a table [A, S], by name."""
    s = model.structure
    factors = list(zip(s.reward_names, s.reward_scopes, model.rewards, strict=True))
    factors += [(q.name, q.scope, q.table) for q in model.quantities]
    tables = {}
    for name, scope, means in factors:
        table = np.zeros((s.n_actions, s.n_states))
        for j, state in enumerate(np.ndindex(*s.state_sizes)):
            for a, action in enumerate(np.ndindex(*s.action_sizes)):
                table[a, j] = means[oracles.scope_row(s, scope, (*state, *action))]
        tables[name] = table
    tables["reward"] = oracles.dense(model).rewards
    return tables


def best_gain(model: FactoredMDP, limits: Limits, objective: Any = None) -> float | None:
    """The largest gain under the limits; None if no occupancy satisfies them."""
    mdp, tables = oracles.dense(model), averages_of(model)
    n_actions, n_states = mdp.rewards.shape
    reward = mdp.rewards if objective is None else objective
    flow = np.zeros((n_states + 1, n_actions * n_states))
    for a in range(n_actions):
        block = slice(a * n_states, (a + 1) * n_states)
        flow[:-1, block] = np.eye(n_states) - mdp.transitions[a].T
    flow[-1] = 1.0
    signs = [1.0 if sense == "<=" else -1.0 for sense, _ in limits.values()]
    rows = [sign * tables[name].ravel() for sign, name in zip(signs, limits, strict=True)]
    ends = [sign * value for sign, (_, value) in zip(signs, limits.values(), strict=True)]
    result = linprog(
        -reward.ravel(),
        A_ub=np.array(rows) if rows else None,
        b_ub=ends if rows else None,
        A_eq=flow,
        b_eq=[0.0] * n_states + [1.0],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return None if result.x is None else float(-result.fun)
