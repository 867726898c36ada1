"""Controls of two rounds: values taken for positions, and trees without constraints, are caught."""

from __future__ import annotations

from typing import Any

import numpy as np

import fmdp
from fmdp.planning.explain.tree_growth import grow
from referee import recipes, truth
from referee.claims import Case
from referee.ledger import Ledger
from referee.trees import trees_against_constraints
from referee.values import build, by_value, judge_answers, lists_for, names_of, places_of

CASE = Case(recipes.random_factored(2))


def test_the_lists_have_no_value_at_its_own_position() -> None:
    for turn in range(5):
        for values in lists_for(CASE.recipe, turn):
            assert all(value not in (place, str(place)) for place, value in enumerate(values))
    names, lists = names_of(CASE.recipe), lists_for(CASE.recipe, 0)
    for state in truth.assignments(CASE.recipe.state_sizes + CASE.recipe.action_sizes):
        assert places_of(names, lists, by_value(names, lists, state)) == state


def test_a_policy_that_takes_values_for_positions_is_caught() -> None:
    recipe = CASE.recipe
    m = len(recipe.state_sizes)
    lists = lists_for(recipe, 1)  # whose actions are numbers and a word
    model = build(recipe, lists)
    draw = np.random.default_rng(0)
    actions = draw.integers(recipe.n_actions, size=recipe.n_states).tolist()
    policy = fmdp.TablePolicy(
        recipe.state_sizes, recipe.action_sizes, np.array(actions), model.structure.naming
    )
    names = names_of(recipe)

    def by_position(asked: Any) -> Any:
        places = tuple(
            asked[name] % size if isinstance(asked[name], int) else place
            for name, place, size in zip(
                names[:m], places_of(names[:m], lists[:m], asked), recipe.state_sizes, strict=True
            )
        )
        return by_value(names[m:], lists[m:], policy(places))

    def texts(asked: Any) -> Any:
        return {name: str(value) for name, value in policy(asked).items()}

    for answer, caught in ((policy, False), (by_position, True), (texts, True)):
        ledger = Ledger()
        judge_answers(ledger, CASE, lists, actions, answer, "a policy")
        assert bool(ledger.claims_broken) == caught


def test_trees_that_do_not_know_the_constraints_are_caught() -> None:
    caught: set[str] = set()
    for turn in range(6):
        ledger = Ledger()
        trees_against_constraints(ledger, CASE, False, turn)
        assert not ledger.claims_broken
        trees_against_constraints(
            ledger, CASE, False, turn, lambda policy, constraints, **own: grow(policy, **own)
        )
        caught |= ledger.claims_broken
    assert caught == {"trees: keep the constraints"}
