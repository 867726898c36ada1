"""Policies that end where nothing is left to decide, by models whose ends can be seen."""

from __future__ import annotations

import numpy as np

from fmdp import TablePolicy
from fmdp.model import FactoredMDP
from fmdp.planning.absorption import ends_settled
from fmdp.planning.choice import plan
from fmdp.planning.exact.planner import Exact
from fmdp.problems import problem


def walk(reward_at_the_end: tuple[float, float], back: float = 0.0) -> FactoredMDP:
    """0 -> 1 by action 1 with probability .5; from 1 back with a probability. The reward at 0 is
    -1, at 1 it may depend on the action."""
    return FactoredMDP.from_factors(
        (2,),
        (2,),
        [([0, 1], [[[1, 0], [0.5, 0.5]], [[back, 1 - back], [back, 1 - back]]])],
        [([0, 1], [[-1.0, -1.0], list(reward_at_the_end)])],
    )


def always(model: FactoredMDP, action: int) -> TablePolicy:
    structure = model.structure
    return TablePolicy(
        structure.state_sizes, structure.action_sizes, np.full(structure.n_states, action)
    )


def test_a_walk_to_an_end_ends() -> None:
    model = walk((0.0, 0.0))
    assert ends_settled(model, always(model, 1)) is True


def test_a_policy_that_stays_where_all_pays_the_same_but_could_go_does_not() -> None:
    model = walk((0.0, 0.0))
    assert ends_settled(model, always(model, 0)) is False


def test_an_end_where_the_action_matters_is_none() -> None:
    model = walk((0.0, 1.0))
    assert ends_settled(model, always(model, 1)) is False


def test_an_end_that_is_left_is_none() -> None:
    model = walk((0.0, 0.0), back=0.1)
    assert ends_settled(model, always(model, 1)) is False


def test_problems_that_go_on_have_no_end() -> None:
    for name in ("circle:3", "riverswim:1", "large-diameter", "jao:2"):
        model = problem(name)
        assert ends_settled(model, plan(model, Exact()).policy) is False
