"""Closed forms and exact numbers of the problems that the theory is about."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fmdp.measures import diameter, factored_spans, largest_spans, span
from fmdp.model import FactoredMDP, product
from fmdp.problems import problem
from fmdp.testing import oracles


def diameter_of(problem_id: str) -> float:
    found = diameter(problem(problem_id))
    assert found is not None
    return found.value


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("delta", "epsilon"), [(0.2, 0.1), (0.5, 0.25), (0.05, 0.9)])
def test_jao_products(n: int, delta: float, epsilon: float) -> None:
    """Two states: 0 -> 1 with delta + epsilon at best, 1 -> 0 with delta; reward 1 in state 1.

    The stationary share of state 1 is (delta + epsilon) / (2 delta + epsilon); the bias difference
    is 1 / (2 delta + epsilon), the reward over the rate at which two copies meet.
    """
    problem_id = f"jao:{n},delta={delta},epsilon={epsilon}"
    mdp = oracles.dense(problem(problem_id))
    rate = 2 * delta + epsilon
    assert oracles.optimal(mdp).gain == pytest.approx(np.full(2**n, n * (delta + epsilon) / rate))
    bias = oracles.damped_value_iteration(mdp)[0]
    assert span(bias) == pytest.approx(n / rate, rel=1e-9)
    assert factored_spans(bias, (2,) * n) == pytest.approx((1 / rate,) * n, rel=1e-9)
    # The slow walk on the n-cube from one corner to the opposite one.
    walk = 2 * sum(math.comb(n, j) / (1 - (1 - 2 * delta) ** j) for j in range(1, n + 1, 2))
    assert oracles.diameter(mdp) == pytest.approx(walk, rel=1e-9)
    assert diameter_of(problem_id) == pytest.approx(walk, rel=1e-11)


def test_jao_diameters_double_while_spans_add() -> None:
    """5, 10, 17.55102, 30.20408 against spans 2, 4, 6, 8."""
    found = [diameter_of(f"jao:{n}") for n in (1, 2, 3, 4)]
    assert found == pytest.approx([5, 10, 17.55102, 30.20408], abs=5e-6)


def test_large_diameter() -> None:
    """Gain 1 from every start, spans 2, and no way from one parity to the other."""
    mdp = oracles.dense(problem("large-diameter"))
    assert oracles.optimal(mdp).gain == pytest.approx(np.ones(16))
    bias, lower, upper = oracles.damped_value_iteration(mdp)
    assert (lower, upper) == pytest.approx((1, 1))
    assert span(bias) == pytest.approx(2)
    assert factored_spans(bias, (4, 4)) == pytest.approx((1, 1))
    assert oracles.diameter(mdp) == diameter_of("large-diameter") == math.inf
    # Undamped, the bounds never meet: every policy has period 2.
    v = np.zeros(16)
    for _ in range(50):
        step = oracles.bellman(mdp, v) - v
        v = v + step
    assert np.ptp(step) > 0.5


FORWARD = np.roll(np.eye(4), 1, axis=1)
CIRCLE = np.stack([FORWARD.T, FORWARD])  # [action, place, place]
SHUTTLE = np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])  # 1 for 1 -> 0 and for 0 -> 1


def circle(rewards: np.ndarray) -> FactoredMDP:
    """One circle of four with rewards [action, place]."""
    return FactoredMDP.from_factors(
        [4], [2], [((0, 1), CIRCLE.transpose(1, 0, 2).reshape(8, 4))], [((0, 1), rewards.T.ravel())]
    )


def all_zeros_and_ones() -> list[np.ndarray]:
    return [np.array(r).reshape(2, 4) for r in itertools.product((0.0, 1.0), repeat=8)]


def test_the_bias_of_a_circle_spans_at_most_half_its_diameter() -> None:
    """Of the optimality equation: over all 0/1 rewards of the eight (place, action) pairs, 1."""
    assert oracles.diameter(oracles.DenseMDP(CIRCLE, np.zeros((2, 4)))) == 2.0
    longest = 0.0
    for rewards in all_zeros_and_ones():
        mdp = oracles.DenseMDP(CIRCLE, rewards)
        bias, lower, upper = oracles.damped_value_iteration(mdp, tolerance=1e-9)
        assert upper - lower <= 1e-9
        longest = max(longest, span(bias))
    assert longest == pytest.approx(1.0)


def test_an_optimal_policy_of_a_circle_may_span_its_diameter() -> None:
    """The paper's span is that of the optimal policy with the largest: D = 2, by the shuttle."""
    largest = {}
    for rewards in all_zeros_and_ones():
        found = largest_spans(circle(rewards))
        assert found is not None
        largest[rewards.tobytes()] = found.value
    assert max(largest.values()) == pytest.approx(2.0)  # type: ignore[type-var]
    assert largest[SHUTTLE.tobytes()] == pytest.approx(2.0)
    mdp = oracles.DenseMDP(CIRCLE, SHUTTLE)
    around = [1, 0, 0, 0]  # 0 -> 1 -> 0, and 3 -> 2 -> 1
    assert oracles.policy_gain(mdp, around) == pytest.approx(oracles.optimal(mdp).gain)
    assert oracles.policy_bias(mdp, around) == pytest.approx([0, 0, -1, -2])


def test_no_policy_of_a_circle_spans_more_than_its_diameter() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        rewards = rng.random((2, 4)) if rng.random() < 0.5 else rng.integers(2, size=(2, 4))
        mdp = oracles.DenseMDP(CIRCLE, rewards.astype(float))
        for policy in oracles.all_policies(mdp):
            assert span(oracles.policy_bias(mdp, policy)) <= 2 + 1e-9


def test_two_circles_attain_the_sum_of_the_diameters_and_more() -> None:
    """Side by side the two shuttles span 4 = D(M_1) + D(M_2): the paper's "tight". Policies that
    look at both places are optimal as well, and span up to 12; 5 with `large-diameter`'s rewards.
    """
    both = product(circle(SHUTTLE), circle(SHUTTLE))
    mdp = oracles.dense(both)
    around = np.array([1, 0, 0, 0])
    policy = (2 * around[:, None] + around).ravel()
    assert oracles.policy_gain(mdp, policy) == pytest.approx(oracles.optimal(mdp).gain)
    assert span(oracles.policy_bias(mdp, policy)) == pytest.approx(4.0)
    found = largest_spans(both)
    assert found is not None
    assert found.value == pytest.approx(12.0)
    found = largest_spans(problem("large-diameter"))
    assert found is not None
    assert found.value == pytest.approx(5.0)
    assert found.factored_values == pytest.approx((4.5, 4.5))
    found = largest_spans(circle(np.array([[1.0, 0, 0, 0], [1.0, 0, 0, 0]])))
    assert found is not None
    assert found.value == pytest.approx(1.5)


def test_the_largest_span_of_two_circles_by_hand() -> None:
    """`large-diameter`, even places: (1,3) (2,2) (3,1) (0,2) (3,3) (2,0) (1,1) (0,0), then to and
    fro. On the way 1 is lost at each place without a 0, so h(1,3) = -4 + h(1,1) = -4.5, and
    h(0,0) = .5: span 5, by an optimal policy."""
    mdp = oracles.dense(problem("large-diameter"))
    way = [(1, 3), (2, 2), (3, 1), (0, 2), (3, 3), (2, 0), (1, 1), (0, 0), (1, 1)]
    policy = oracles.optimal(mdp).policy.copy()
    for (i, j), (k, l) in itertools.pairwise(way):  # noqa: E741
        policy[4 * i + j] = 2 * ((k - i) % 4 == 1) + ((l - j) % 4 == 1)
    assert oracles.policy_gain(mdp, policy) == pytest.approx(np.ones(16))
    bias = oracles.policy_bias(mdp, policy)
    assert bias[4 * 1 + 3] == pytest.approx(-4.5)
    assert bias[0] == pytest.approx(0.5)
    assert span(bias) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("problem_id", "sp", "largest"),
    [("circle:4", 6.2553, 7.5029), ("circle:4,dynamics=guestrin", 14.4374, 50.8540)],
)
def test_where_the_two_spans_of_a_network_differ(
    problem_id: str, sp: float, largest: float
) -> None:
    model = problem(problem_id)
    bias = oracles.damped_value_iteration(oracles.dense(model))[0]
    assert span(bias) == pytest.approx(sp, abs=5e-5)
    found = largest_spans(model)
    assert found is not None
    assert found.value == pytest.approx(largest, abs=5e-5)


@pytest.mark.parametrize(("n", "longest"), [(1, 14.7223), (2, 21.7670)])
def test_riverswim(n: int, longest: float) -> None:
    mdp = oracles.dense(problem(f"riverswim:{n}"))
    assert oracles.optimal(mdp).gain == pytest.approx(np.full(6**n, n * 0.428622434), abs=5e-10 * n)
    bias = oracles.damped_value_iteration(mdp)[0]
    assert span(bias) == pytest.approx(6.310324 * n, abs=5e-7 * n)
    assert factored_spans(bias, (6,) * n) == pytest.approx((6.310324,) * n, abs=5e-7)
    assert oracles.diameter(mdp) == pytest.approx(longest, abs=5e-5)
    assert diameter_of(f"riverswim:{n}") == pytest.approx(oracles.diameter(mdp), rel=1e-11)


@pytest.mark.parametrize(
    ("problem_id", "gain"),
    [
        ("circle:3", 2.9330007),
        ("three-leg:4", 3.9200237),
        ("circle:7,dynamics=guestrin,reward=mean", 0.844975),
        ("circle:4,dynamics=guestrin,reward=mean", 0.914944),
    ],
)
def test_sysadmin_gains(problem_id: str, gain: float) -> None:
    best = oracles.optimal(oracles.dense(problem(problem_id))).gain
    assert best == pytest.approx(np.full(len(best), gain), abs=5e-7)
    assert np.ptp(best) < 1e-9


@pytest.mark.parametrize(
    ("problem_id", "sp", "q"),
    [
        ("circle:4,dynamics=guestrin,reward=mean", 3.609, 5.918),
        ("three-leg:4,dynamics=guestrin,reward=mean", None, 3.18),
    ],
)
def test_sysadmin_spans(problem_id: str, sp: float | None, q: float) -> None:
    model = problem(problem_id)
    bias = oracles.damped_value_iteration(oracles.dense(model))[0]
    if sp is not None:
        assert span(bias) == pytest.approx(sp, abs=5e-4)
    spans = factored_spans(bias, model.structure.state_sizes)
    assert sum(spans) == pytest.approx(q, abs=5e-3)
