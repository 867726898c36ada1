"""The largest span among optimal policies, against all policies and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.measures import LargestSpans, largest_spans, measure
from fmdp.model import FactoredMDP, Structure, product
from fmdp.planning.spans import factored_spans, span
from fmdp.testing import oracles
from fmdp.testing.strategies import models, structures

SMALL = structures(max_variables=2, max_values=3, max_states=6, max_actions=3)


def by_all_policies(model: FactoredMDP) -> list[float] | None:
    """The definition: every deterministic policy with the best gain, its bias with P* h = 0."""
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp).gain
    size = np.abs(mdp.rewards).max() if mdp.rewards.size else 0.0
    if np.ptp(best) > 1e-9 * size:
        return None
    found = [0.0] * (1 + model.structure.m)
    for policy in oracles.all_policies(mdp):
        if (oracles.policy_gain(mdp, policy) >= best - 1e-9 * (1 + size)).all():
            bias = oracles.policy_bias(mdp, policy)
            own = [span(bias), *factored_spans(bias, model.structure.state_sizes)]
            found = [max(pair) for pair in zip(found, own, strict=True)]
    return found


def flat_model(transitions: np.ndarray, rewards: np.ndarray) -> FactoredMDP:
    """One variable; transitions [S, A, S'], rewards [S, A] in [0, 1]."""
    n_states, n_actions, _ = transitions.shape
    structure = Structure(
        state_sizes=(n_states,),
        action_sizes=(n_actions,),
        transition_scopes=((0, 1),),
        reward_scopes=((0, 1),),
        reward_ranges=((0.0, 1.0),),
    )
    return FactoredMDP(structure, [transitions], [rewards])


def values(found: LargestSpans) -> list[float | None]:
    return [found.value, *found.factored_values]


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_all_policies_give_the_same(data: st.DataObject) -> None:
    model = data.draw(models(SMALL, rows=("positive", "deterministic", "quarters", "sparse")))
    expected = by_all_policies(model)
    found = largest_spans(model)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert values(found) == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_bounds_hold_wherever_the_search_stops(data: st.DataObject) -> None:
    model = data.draw(models(SMALL, rows=("deterministic", "quarters", "sparse")))
    expected = by_all_policies(model)
    found = largest_spans(model, effort=data.draw(st.sampled_from((0, 1, 10, 40))))
    if expected is None or found is None:
        assert expected is None
        assert found is None
        return
    for (lower, upper), true in zip((found.span, *found.factored), expected, strict=True):
        assert lower <= true + 1e-7
        assert true <= upper + 1e-7


def dawdling(slow: float) -> FactoredMDP:
    """State 0 pays 1 for staying; back from 1 at once, or with probability `slow`. D = 1."""
    transitions = np.array([[[1, 0], [0, 1]], [[1, 0], [slow, 1 - slow]]])
    return flat_model(transitions, np.array([[1.0, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("slow", [0.5, 0.01, 1e-6])
def test_an_optimal_policy_may_dawdle_where_it_does_not_stay(slow: float) -> None:
    """h(0) - h(1) is the gain 1 times the expected way back, 1 / slow, while sp(h*) = D = 1."""
    found = largest_spans(dawdling(slow))
    assert found is not None
    assert found.value == pytest.approx(1 / slow, rel=1e-9)
    measured = measure(dawdling(slow))
    assert measured.span == pytest.approx(1, abs=1e-6)
    assert measured.diameter == pytest.approx(1)


def test_the_longest_way_home() -> None:
    """Five places, all joined; home pays for staying. The longest simple way home has 4 steps,
    and to find it is the travelling salesman's problem: the largest span is NP-hard."""
    transitions = np.broadcast_to(np.eye(5), (5, 5, 5))
    rewards = np.zeros((5, 5))
    rewards[0, 0] = 1.0
    found = largest_spans(flat_model(transitions, rewards))
    assert found is not None
    assert found.value == 4.0
    assert found.factored_values == (4.0,)
    assert found.factored_sum == 4.0


def test_two_classes_of_recurrent_states() -> None:
    """0 and 1 swap for rewards 1 and 0, 2 and 3 for a half each: both gain 1/2, and each class has
    its own constant, h = (1/4, -1/4, 0, 0). The other action of 0 goes to 3 for nothing: then
    h(0) = -1/2 + h(3) = -1/2 and h(1) = -1/2 + h(0) = -1, and the span is 1."""
    to = np.array([[1, 3], [0, 0], [3, 0], [2, 2]])
    rewards = np.array([[1.0, 0.0], [0.0, 0.0], [0.5, 0.0], [0.5, 0.5]])
    found = largest_spans(flat_model(np.eye(4)[to], rewards))
    assert found is not None
    assert found.value == pytest.approx(1.0)


def test_where_every_policy_visits_everything_the_bias_is_unique() -> None:
    for problem in ("jao:2", "riverswim:2", "random:3,values=3"):
        model = fmdp.problem(problem)
        found = largest_spans(model)
        bias = oracles.damped_value_iteration(oracles.dense(model))[0]
        assert found is not None
        assert found.policies == 0
        assert found.value == pytest.approx(span(bias), rel=1e-8)
        sizes = model.structure.state_sizes
        assert found.factored_values == pytest.approx(factored_spans(bias, sizes), rel=1e-8)


@pytest.mark.parametrize(
    "problem", ["circle:4,dynamics=guestrin", "three-leg:4,dynamics=guestrin", "circle:5"]
)
def test_the_network_that_is_left_alone(problem: str) -> None:
    """Machines that an optimal policy never lets all fail: from there, nothing has to be done soon.

    The bound is a shortest-path problem with a maximum: by value iteration from 0, independently.
    """
    model = fmdp.problem(problem)
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp)
    gaps = best.gain + best.bias - oracles.action_values(mdp, best.bias)
    recurrent = oracles.recurrent_classes(mdp.transitions[best.policy, np.arange(mdp.n_states)])
    assert len(recurrent) == 1
    lost = np.zeros(mdp.n_states)
    for _ in range(20_000):
        lost = (gaps + mdp.transitions @ lost).max(axis=0)
        lost[recurrent[0]] = 0.0
    found = largest_spans(model)
    assert found is not None
    assert found.value == pytest.approx(span(best.bias - lost), rel=1e-7)
    assert found.value > span(best.bias) + 1
    low, high = found.value, found.factored_sum
    assert high is not None
    assert low <= high + 1e-9 <= model.structure.m * low + 2e-9  # Proposition 1, of the largest


def test_products_may_have_more_than_the_sum() -> None:
    """Side by side, the policy of one part may look at the other: optimal all the same."""
    one, other = dawdling(0.5), dawdling(0.25)
    both = largest_spans(product(one, other))
    assert both is not None
    assert both.value is not None
    assert both.value >= 2 + 4 - 1e-9


@pytest.mark.parametrize("problem", ["large-diameter", "circle:3,dynamics=guestrin", "jao:2"])
@pytest.mark.parametrize("unit", [2.0**-30, 2.0**40])
def test_the_unit_of_the_rewards_does_not_matter(problem: str, unit: float) -> None:
    model = fmdp.problem(problem)
    ranges = [(unit * lo, unit * hi) for lo, hi in model.structure.reward_ranges]
    scaled = FactoredMDP(
        replace(model.structure, reward_ranges=tuple(ranges)),
        model.transitions,
        [unit * means for means in model.rewards],
    )
    plain, other = largest_spans(model), largest_spans(scaled)
    assert plain is not None
    assert other is not None
    assert other.span == tuple(unit * bound for bound in plain.span)
    assert other.factored == tuple((unit * low, unit * high) for low, high in plain.factored)


def test_it_is_none_where_the_gain_depends_on_the_state_or_the_model_is_large() -> None:
    apart = np.broadcast_to(np.eye(2)[:, None, :], (2, 1, 2))
    assert largest_spans(flat_model(apart, np.array([[0.0], [1.0]]))) is None
    assert largest_spans(fmdp.problem("circle:10")) is None
    assert largest_spans(fmdp.problem("jao:2"), state_limit=3) is None


def test_what_cannot_be_searched_has_a_lower_bound_alone() -> None:
    found = largest_spans(fmdp.problem("large-diameter"), effort=100)
    assert found is not None
    assert found.value is None
    assert found.factored_sum is None
    assert 0 < found.span[0] <= 5
    assert found.span[1] == math.inf
