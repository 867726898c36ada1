"""A budget that needs no Q in advance: refuted only when it is too small, and then doubled."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fmdp
from fmdp.learning.budgets import BudgetDoubling, growing_budget, refutation_threshold
from fmdp.model import Structure

ONE = Structure((2,), (1,), ((0,),), ((0,),), ((0.0, 1.0),))


def test_the_threshold_by_hand() -> None:
    """log(1 * 2 * 1 * 2 / 0.1) = log 40 = 3.688879; 2 + 3 sqrt(3.688879 / 2) = 6.074305."""
    assert refutation_threshold(2.0, 1.0, 1, 1, 0.1) == pytest.approx(6.074305, abs=1e-6)


def test_the_floor_by_hand() -> None:
    assert [growing_budget(t, 0.5, ONE) for t in (1, 3, 7)] == [0.5, 1.0, 1.5]


def test_the_budget_doubles_at_the_first_step_that_refutes_it() -> None:
    """Nothing promised, reward 1 in every step: the excess is n.  A vanishing floor."""
    doubling = BudgetDoubling(ONE, growth=1e-9)
    assert doubling.budget == 1e-9
    first = next(n for n in range(1, 1000) if n > refutation_threshold(1e-9, 1.0, n, 1, 0.1))
    for n in range(first):
        assert doubling.revise(n, float(n)) < 2e-8
        doubling.promise(0.0)
        assert doubling.refuted == 0
    doubling.revise(first, float(first))
    assert doubling.refuted == 1
    assert doubling.budget >= 2e-9
    # The next test begins here, with a higher bar.
    second = next(
        n for n in range(1, 1000) if n > refutation_threshold(doubling.budget, 1.0, n, 2, 0.1)
    )
    assert second > first
    doubling.revise(first + second - 1, float(first + second - 1))
    assert doubling.refuted == 1
    doubling.revise(first + second, float(first + second))
    assert doubling.refuted == 2


@pytest.mark.parametrize(("short_by", "refuted"), [(0.0, 0), (0.3, 100)])
def test_enough_is_not_refuted_and_too_little_is(short_by: float, refuted: int) -> None:
    """JAO's two states under the optimal policy: gain .6, span 2, reward range 1.  A budget of 2
    and promises of .6 (the least that optimism allows) survive; lower promises, as too small a
    budget makes them, do not: the negative control."""
    generator = np.random.Generator(np.random.PCG64(7))
    count = 0
    for _ in range(100):
        doubling = BudgetDoubling(ONE, growth=2.0)  # the floor at t = 1 is 2
        state, reward = 0, 0.0
        for step, u in enumerate(generator.random(1500)):
            if step % 10 == 0:
                doubling.revise(step, reward)
                doubling.promise(0.6 - short_by)
            reward += state
            state = int(u < 0.3) if state == 0 else int(u >= 0.2)
        count += doubling.refuted > 0
    assert count == refuted


def test_fsrl_without_a_budget_doubles_and_never_passes_twice_what_is_enough() -> None:
    """On three legs uniform needs 16.8 for the sum of the rewards.  A floor of 1 at the end."""
    model = fmdp.problem("three-leg:4,dynamics=guestrin")
    run = fmdp.simulate(model, fmdp.FSRL(growth=0.02), steps=3000, seed=0)
    doubling = BudgetDoubling(model.structure, growth=0.02)
    doubling.restore(run.agent.memory["doubling"])
    assert doubling.refuted >= 4
    assert 4.0 < doubling.budget <= 2 * 16.8
    assert growing_budget(3001, 0.02, model.structure) < 1.0


def test_a_restored_budget_goes_on_the_same() -> None:
    one = BudgetDoubling(ONE, growth=0.01)
    for n in range(60):
        one.revise(n, 0.9 * n)
        one.promise(0.1)
    other = BudgetDoubling(ONE, growth=0.01)
    other.restore(json.loads(json.dumps(one.state())))
    for n in range(60, 200):
        assert one.revise(n, 0.9 * n) == other.revise(n, 0.9 * n)
        one.promise(0.1)
        other.promise(0.1)
    assert one.state() == other.state()
    assert one.refuted > 1
