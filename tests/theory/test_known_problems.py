"""Closed forms and exact numbers of the problems that the theory is about."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fmdp.measures import diameter, factored_spans, span
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


def test_no_rewards_make_the_span_of_a_circle_its_diameter() -> None:
    """The paper calls sp <= D(M_1) + D(M_2) tight for the two circles. One circle has D = 2, and
    over all 0/1 rewards of its eight (place, action) pairs the largest span is 1."""
    forward = np.roll(np.eye(4), 1, axis=1)
    chains = np.stack([forward.T, forward])
    assert oracles.diameter(oracles.DenseMDP(chains, np.zeros((2, 4)))) == 2.0
    longest = 0.0
    for rewards in itertools.product((0.0, 1.0), repeat=8):
        mdp = oracles.DenseMDP(chains, np.array(rewards).reshape(2, 4))
        bias, lower, upper = oracles.damped_value_iteration(mdp, tolerance=1e-9)
        assert upper - lower <= 1e-9
        longest = max(longest, span(bias))
    assert longest == pytest.approx(1.0)


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
