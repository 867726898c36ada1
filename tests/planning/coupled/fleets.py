"""Fleets for tests, and the linear program over the occupancies of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

import fmdp
from fmdp import AtMost, Budget, FactoredMDP, Structure
from fmdp.planning.coupled.fleet import fleet_of
from fmdp.planning.coupled.types import Types, types_of


def fleet(
    n: int,
    n_types: int,
    most: int,
    *,
    levels: int = 3,
    actions: int = 2,
    seed: int = 0,
    sparse: float = 1.0,
) -> FactoredMDP:
    """Return n parts of random types, of which at most some are active at once."""
    rng = np.random.default_rng(seed)
    rows = levels * actions
    laws = [rng.dirichlet(np.full(levels, sparse), rows) for _ in range(n_types)]
    pays = [rng.random(rows) for _ in range(n_types)]
    scopes = tuple((i, n + i) for i in range(n))
    structure = Structure(
        (levels,) * n,
        (actions,) * n,
        scopes,
        scopes,
        constraints=(AtMost(tuple(range(n, 2 * n)), most, name="crew"),),
    )
    return FactoredMDP(
        structure,
        [laws[i % n_types] for i in range(n)],
        [pays[i % n_types] for i in range(n)],
    )


def mixed_fleet(seed: int) -> FactoredMDP:
    """Return parts of different shapes under a forbidden action, a cap and a budget with costs."""
    rng = np.random.default_rng(seed)
    # Parts: one variable and three actions; two variables and one action; one without an action.
    sizes, acts = (3, 2, 2, 3, 2), (3, 2, 3)
    scopes = ((0, 5), (1, 2, 6), (1, 2, 6), (3, 7), (4,))
    full = (*sizes, *acts)
    transitions = []
    for i, scope in enumerate(scopes):
        rows = int(np.prod([full[v] for v in scope]))
        transitions.append(rng.dirichlet(np.full(sizes[i], 0.5), rows))
    reward_scopes = ((0, 5), (1, 6), (2,), (3, 7), (4,), ())
    rewards = [rng.random(int(np.prod([full[v] for v in scope]))) for scope in reward_scopes]
    never = np.zeros((3, 3), dtype=bool)
    never[0, 2] = True
    structure = Structure(
        sizes,
        acts,
        scopes,
        reward_scopes,
        constraints=(
            fmdp.Forbidden((0, 5), never.reshape(-1), "no overhaul when new"),
            Budget((5, 6, 7), 1.2, ((0.0, 0.4, 1.0), (0.0, 0.7), (0.0, 0.4, 1.0)), "hours"),
            AtMost((6, 7), 1, name="vans"),
        ),
    )
    return FactoredMDP(structure, transitions, rewards)


def written_out(model: FactoredMDP) -> Types:
    return types_of(fleet_of(model.structure), model)


def bound_by_program(types: Types) -> float:
    """Return the value of the linear program over occupancies: HiGHS, all parts at once."""
    blocks: list[tuple[Any, int]] = [(b, t) for b in types.blocks for t in range(b.n_types)]
    size = [b.shape.n_states * b.shape.n_actions for b, _ in blocks]
    first = np.cumsum([0, *size])
    worth, uses = np.zeros(first[-1]), np.zeros((len(types.caps), first[-1]))
    rows, right, upper = [], [], []
    for (block, t), start, n in zip(blocks, first[:-1], size, strict=True):
        columns = slice(start, start + n)
        n_states, n_actions = block.rewards.shape[1:]
        worth[columns] = block.copies[t] * block.rewards[t].reshape(-1)
        for k in range(len(types.caps)):
            uses[k, columns] = block.copies[t] * np.tile(block.costs[t, :, k], n_states)
        balance = np.zeros((n_states, first[-1]))
        balance[:, columns] = np.repeat(np.eye(n_states), n_actions, axis=1)
        balance[:, columns] -= block.transitions[t].reshape(n, n_states).T
        total = np.zeros(first[-1])
        total[columns] = 1.0
        rows += [*balance, total]
        right += [0.0] * n_states + [1.0]
        upper += block.allowed[t].reshape(-1).astype(float).tolist()
    result = linprog(
        -worth,
        A_ub=uses,
        b_ub=types.limits,
        A_eq=np.array(rows),
        b_eq=right,
        bounds=[(0.0, most) for most in upper],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.status == 0
    return float(-result.fun) + types.constant


# Example 2 of Gast, Gaujal & Yan (2020), as the public code of Hong, Xie, Chen & Wang has it; its
# rows sum to 1 within 1e-8.
GAST_PASSIVE = [
    [0.02232142, 0.10229283, 0.87538575],
    [0.03426605, 0.17175704, 0.79397691],
    [0.52324756, 0.45523298, 0.02151947],
]
GAST_ACTIVE = [
    [0.14874601, 0.30435809, 0.54689589],
    [0.56845754, 0.41117331, 0.02036915],
    [0.25265570, 0.27310439, 0.4742399],
]
GAST_REWARDS = [0.37401552, 0.11740814, 0.07866135]
GAST_BOUND = 0.12380016733626052


def gast(n: int) -> FactoredMDP:
    law = np.array([GAST_PASSIVE, GAST_ACTIVE]).transpose(1, 0, 2).reshape(6, 3)
    law /= law.sum(axis=1, keepdims=True)
    pay = np.array([[0.0] * 3, GAST_REWARDS]).T.reshape(-1)
    scopes = tuple((i, n + i) for i in range(n))
    cap = AtMost(tuple(range(n, 2 * n)), 2 * n // 5)
    structure = Structure((3,) * n, (2,) * n, scopes, scopes, constraints=(cap,))
    return FactoredMDP(structure, [law] * n, [pay] * n)
