"""Random actions under caps that allow too many to list: uniform, allowed, or refused by name."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import fmdp
from fmdp.errors import TooLarge
from fmdp.model import AtMost, Budget, Constraint, Forbidden
from fmdp.model.constraints import allowed_combinations
from fmdp.planning.policies.capped import CappedActions
from fmdp.planning.policies.randomised import UniformPolicy

SIZES = (2, 2, 3, 2, 3, 2)  # one state variable


@pytest.mark.parametrize(
    "constraints",
    [
        (AtMost((1, 2, 3, 4), 2),),
        (AtMost((1, 3), 1, (1, 0)), AtMost((2, 4), 1)),
        (Budget((1, 2, 4), 3, ((0, 1.5), (0, 1, 2), (1, 0.5, 2))),),
        (Budget((2, 5), 0.5, ((0.5, 1, 0), (0, 9))),),
    ],
)
def test_every_allowed_action_is_as_likely(constraints: tuple[Constraint, ...]) -> None:
    allowed = {tuple(row) for row in allowed_combinations(constraints, 1, SIZES).tolist()}
    n = 60_000
    drawn = CappedActions(constraints, 1, SIZES).draw(np.random.default_rng(0).random((n, 5)))
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) == allowed
    expected = n / len(allowed)
    statistic = sum((counts[action] - expected) ** 2 / expected for action in allowed)
    # Chi squared has mean d and variance 2 d; six deviations.
    d = len(allowed) - 1
    assert statistic < d + 6 * np.sqrt(2 * d)


def test_a_fleet_acts_at_random() -> None:
    model = fmdp.problem("fleet:300")
    policy = UniformPolicy.of(model.structure)
    generator = np.random.default_rng(1)
    drawn = policy.draw(generator, 200)
    assert drawn.shape == (200, 300)
    assert (drawn.sum(axis=1) <= 45).all()
    assert (drawn.sum(axis=1) == 45).mean() > 0.7  # most allowed actions use the whole budget
    # Drawing many steps at once is drawing them one by one.
    again = np.random.default_rng(1)
    assert np.array_equal(np.concatenate([policy.draw(again, 1) for _ in range(200)]), drawn)
    run = fmdp.simulate(model, "random", steps=20, seed=0, regret=False)
    assert run.total_reward > 0


def test_other_constraints_on_many_actions_are_refused_by_name() -> None:
    sizes = (2,) * 41
    ring = Forbidden((1, 2), [False, False, False, True], "apart")
    for constraints in (
        (AtMost(tuple(range(1, 41)), 20), ring),
        (AtMost(tuple(range(1, 31)), 20), AtMost(tuple(range(20, 41)), 20, (), "apart")),
    ):
        with pytest.raises(TooLarge, match='constraint "apart": random actions under it cannot'):
            UniformPolicy((2,), sizes[1:], constraints).draw(np.random.default_rng(0), 1)
