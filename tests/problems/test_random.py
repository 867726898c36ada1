"""Random models: the shapes that were asked for, laws of the draws, and a seed that decides."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import fmdp
from fmdp.errors import TooLarge


def test_shape() -> None:
    model = fmdp.problem("random:6,values=3,parents=2,actions=4,agents=2,noise=bernoulli")
    s = model.structure
    assert s.state_sizes == (3,) * 6
    assert s.action_sizes == (4, 4)
    for scope in s.transition_scopes + s.reward_scopes:
        assert sum(v < 6 for v in scope) == 2
        assert sum(v >= 6 for v in scope) == 1
    assert s.l == 6
    assert {law.kind for law in model.noise} == {"bernoulli"}
    assert model.initial_state == (0,) * 6


def test_the_defaults_are_those_of_the_contract() -> None:
    """`random:m,values=2,parents=2,actions=3,seed=0`."""
    plain = fmdp.problem("random:4")
    assert plain == fmdp.problem("random:4,values=2,parents=2,actions=3,seed=0")
    assert plain.structure.action_sizes == (3,)


def test_the_seed_decides() -> None:
    assert fmdp.problem("random:4,seed=5") == fmdp.problem("random:4,seed=5")
    a, b = fmdp.problem("random:4,seed=5"), fmdp.problem("random:4,seed=6")
    assert not np.array_equal(a.transitions[0], b.transitions[0])


def test_options_of_the_reward_leave_the_rest_alone() -> None:
    plain = fmdp.problem("random:3")
    mean = fmdp.problem("random:3,reward=mean,noise=gaussian")
    assert mean.structure.transition_scopes == plain.structure.transition_scopes
    assert mean.structure.reward_ranges == ((0.0, 1 / 3),) * 3
    assert mean.noise[0].scale == pytest.approx(0.1 / 3)
    for one, other in zip(plain.rewards, mean.rewards, strict=True):
        np.testing.assert_allclose(one / 3, other)


@pytest.mark.parametrize("problem", ["random:1", "random:2,parents=5", "random:3,parents=0"])
def test_small_ones(problem: str) -> None:
    s = fmdp.problem(problem).structure
    assert len(s.state_scope(0)) == {"random:1": 1, "random:2,parents=5": 2}.get(problem, 0)


def test_one_value_and_one_action_is_a_constant() -> None:
    model = fmdp.problem("random:2,values=1,actions=1")
    assert model.structure.n_states == model.structure.n_actions == 1


def test_too_large() -> None:
    with pytest.raises(TooLarge):
        fmdp.problem("random:40,values=10,parents=12")
    with pytest.raises(TooLarge, match="more than a billion GiB"):
        fmdp.problem("random:40,values=" + "9" * 18 + ",parents=30")


def test_parents_are_equally_likely() -> None:
    """10 subsets of 2 in 5, 3,000 draws: chi-squared with 9 degrees of freedom, mean 9."""
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(300):
        structure = fmdp.problem(f"random:5,parents=2,seed={seed}").structure
        scopes = structure.transition_scopes + structure.reward_scopes
        seen.update(tuple(v for v in scope if v < 5) for scope in scopes)
    assert len(seen) == 10
    assert sum(seen.values()) == 3000
    assert sum((count - 300) ** 2 / 300 for count in seen.values()) < 30


def test_rows_are_uniform_on_the_simplex() -> None:
    """Dirichlet(1, 1, 1): mean 1/3 and variance 1/18 for each entry."""
    model = fmdp.problem("random:5,values=3,parents=4,actions=100")
    rows = np.concatenate([table.reshape(-1, 3) for table in model.transitions])
    assert len(rows) == 5 * 3**4 * 100
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    np.testing.assert_allclose(rows.mean(axis=0), 1 / 3, atol=5 * np.sqrt(1 / 18 / len(rows)))
    np.testing.assert_allclose(rows.var(axis=0), 1 / 18, rtol=0.03)
