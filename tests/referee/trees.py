"""Small trees against constraints: what they say is allowed in every state, and as often wrong as
they claim; a refusal names a number of leaves that works."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.planning.explain.tree_growth import grow
from fmdp.planning.explain.trees import PolicyTree
from referee import claims, truth
from referee.claims import Case
from referee.ledger import Ledger
from referee.recipes import Recipe

MOST_STATES = 512


def constrained(recipe: Recipe, turn: int) -> tuple[Recipe, list[int]]:
    """Return the recipe with one more constraint at random, and a policy that keeps them all."""
    draw = np.random.default_rng(turn)
    m = len(recipe.state_sizes)
    sizes = recipe.state_sizes + recipe.action_sizes
    states, joint = truth.assignments(recipe.state_sizes), truth.assignments(recipe.action_sizes)
    may = [[recipe.allows(state, action) for action in joint] for state in states]
    # One action for each value of the first variable, where it is allowed: a policy with a shape.
    liked = draw.integers(len(joint), size=recipe.state_sizes[0])
    policy = []
    for s, state in enumerate(states):
        allowed = np.flatnonzero(may[s])
        best = liked[state[0]]
        policy.append(int(best if best in allowed else draw.choice(allowed)))
    scope = [v for v in range(m) if draw.random() < 0.5] + list(range(m, len(sizes)))
    table = draw.random(int(np.prod([sizes[v] for v in scope]))) < 0.6
    for state, action in zip(states, policy, strict=True):
        row = 0
        for v in scope:
            row = row * sizes[v] + (*state, *joint[action])[v]
        table[row] = False
    return replace(recipe, forbidden=(*recipe.forbidden, (tuple(scope), table))), policy


def judge_tree(ledger: Ledger, recipe: Recipe, tree: PolicyTree, actions: Sequence[int]) -> None:
    """What a tree says is allowed everywhere, and wrong where it says so."""
    joint = truth.assignments(recipe.action_sizes)
    broken, wrong = [], 0
    for state, action in zip(truth.assignments(recipe.state_sizes), actions, strict=True):
        said = tree(state)
        wrong += said != joint[action]
        if not recipe.allows(state, said):
            broken.append(f"{said} in {state}")
    detail = f"{tree}: {'; '.join(broken[:3])}"
    ledger.judge("trees: keep the constraints", recipe, not broken, claims.INFINITE, detail)
    ledger.judge(
        "trees: states in which they are wrong",
        recipe,
        wrong == tree.wrong,
        abs(wrong - tree.wrong),
        f"{tree.wrong} for {wrong}",
    )


def trees_against_constraints(
    ledger: Ledger,
    case: Case,
    short: bool,
    turn: int,
    grown: Callable[..., PolicyTree] = grow,
) -> None:
    """Trees of few leaves for a policy of a model with constraints."""
    if case.recipe.n_states > MOST_STATES:
        return
    recipe, actions = constrained(case.recipe, turn)
    constraints = recipe.build().structure.constraints
    policy = fmdp.TablePolicy(recipe.state_sizes, recipe.action_sizes, np.array(actions))
    for leaves in (1 + turn % 5,) if short else (1, 2, 3, 5, 8, 13):
        most, tree = leaves, None
        while tree is None:
            try:
                tree = grown(policy, max_leaves=most, constraints=constraints)
            except InvalidParameter as error:
                most = _more_leaves(ledger, recipe, most, str(error))
        judge_tree(ledger, recipe, tree, actions)
        detail = f"{tree.leaves} for at most {most}"
        ledger.judge(
            "trees: number of leaves", recipe, tree.leaves <= most, claims.INFINITE, detail
        )
    exact: Any = grown(policy, constraints=constraints)
    judge_tree(ledger, recipe, exact, actions)


def _more_leaves(ledger: Ledger, recipe: Recipe, most: int, refusal: str) -> int:
    """Return the number of leaves that a refusal asks for."""
    found = re.search(r"at least (\d+) leaves|has a tree for each", refusal)
    needed = len(recipe.action_sizes)
    if found is not None and found[1] is not None:
        needed = int(found[1])
    ledger.judge(
        "trees: a refusal says how many leaves are needed",
        recipe,
        found is not None and needed > most,
        claims.INFINITE,
        refusal,
    )
    return max(needed, most + 1)
