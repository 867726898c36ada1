"""The sampler against the tables it samples from, and the promises about its randomness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import fmdp
from fmdp import Environment, FactoredMDP, Noise
from fmdp.errors import InvalidParameter
from fmdp.planning.policies.playing import ActionTable, StepBatch
from fmdp.simulation.kernels import normal_quantile
from fmdp.testing import strategies


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def one_variable(row: list[float], noise: Noise | None = None, mean: float = 0.5) -> FactoredMDP:
    """A variable that is drawn anew in every step, and one reward that depends on nothing."""
    return FactoredMDP.from_factors(
        [len(row)], [2], [((), [row])], [((), [mean])], noise=noise, reward_ranges=[(-1.0, 2.0)]
    )


def test_frequencies_are_the_probabilities() -> None:
    row = [0.1, 0.0, 0.6, 0.3]
    environment = Environment(one_variable(row), generator(0))
    counts = np.zeros(4)
    for _ in range(20_000):
        counts[environment.step((0,))[1][0]] += 1
    assert counts[1] == 0
    kept = [0, 2, 3]
    expected = 20_000 * np.array(row)
    assert stats.chisquare(counts[kept], expected[kept]).pvalue > 1e-4
    # The test can tell a row that is a little off.
    off = 20_000 * np.array([0.115, 0.0, 0.6, 0.285])
    assert stats.chisquare(counts[kept], off[kept]).pvalue < 1e-4


@settings(max_examples=50, deadline=None)
@given(model=strategies.models(), seed=st.integers(0, 2**32 - 1))
def test_only_what_is_possible_happens(model: FactoredMDP, seed: int) -> None:
    s = model.structure
    rng = generator(seed)
    environment = Environment(model, rng, block=1)
    total = expected = 0.0
    for _ in range(20):
        state = environment.state
        action = tuple(int(rng.integers(size)) for size in s.action_sizes)
        expected += model.expected_reward(state, action)
        rewards, after = environment.step(action)
        total += sum(rewards)
        for i, value in enumerate(after):
            assert model.transition_row(i, state, action)[value] > 0
        for reward, (lo, hi), noise in zip(rewards, s.reward_ranges, model.noise, strict=True):
            assert lo <= reward <= hi
            assert noise.kind != "bernoulli" or reward in (lo, hi)
    assert environment.total_reward == pytest.approx(total)
    assert environment.total_expected_reward == pytest.approx(expected)
    assert environment.steps == 20


class Fixed(np.random.Generator):
    """A generator of given uniforms."""

    def __init__(self, uniforms: list[float]) -> None:
        super().__init__(np.random.PCG64(0))
        self.uniforms = np.array(uniforms)

    def random(self, shape: tuple[int, int]) -> np.ndarray:
        return np.resize(self.uniforms, shape)


@pytest.mark.parametrize(
    ("uniform", "value"), [(0.0, 1), (0.2499, 1), (0.25, 2), (0.9999, 2), (1 - 2**-53, 2)]
)
def test_the_value_of_a_uniform_by_hand(uniform: float, value: int) -> None:
    """Row (0, 1/4, 3/4, 0): no uniform leads to a value of probability 0."""
    environment = Environment(one_variable([0, 0.25, 0.75, 0]), Fixed([uniform, 0.5]))  # type: ignore[arg-type]
    assert environment.step((0,))[1] == (value,)


def test_rounding_leads_nowhere_impossible() -> None:
    tenths = [0.1] * 10 + [0.0]  # the sum of the tenths is below 1 in floating point
    assert sum(tenths) < 1.0
    environment = Environment(one_variable(tenths), Fixed([1 - 2**-53, 0.5]))  # type: ignore[arg-type]
    assert environment.step((0,))[1] == (9,)


@pytest.mark.parametrize(
    ("noise", "mean", "uniform", "reward"),
    [
        (Noise(), 0.5, 0.9, 0.5),
        (Noise("bernoulli"), 0.5, 0.49, 2.0),  # (mean - lo) / (hi - lo) = 1/2
        (Noise("bernoulli"), 0.5, 0.5, -1.0),
        (Noise("bernoulli"), 2.0, 0.999, 2.0),
        (Noise("bernoulli"), -1.0, 0.0, -1.0),
        (Noise("gaussian", 0.5), 0.5, 0.5, 0.5),
        (Noise("gaussian", 0.5), 0.5, 0.8413447460685429, 1.0),  # one deviation up
        (Noise("gaussian", 0.5), 1.8, 0.9999, 2.0),  # clipped at 2 - 1.8
        (Noise("gaussian", 0.5), 1.8, 0.0001, 1.6),  # and at the same distance below
        (Noise("gaussian", 0.5), 1.8, 0.0, 1.6),
    ],
)
def test_rewards_by_hand(noise: Noise, mean: float, uniform: float, reward: float) -> None:
    model = one_variable([1.0], noise, mean)
    environment = Environment(model, Fixed([0.5, uniform]))  # type: ignore[arg-type]
    assert environment.step((0,))[0] == pytest.approx((reward,))


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian"])
def test_the_mean_of_a_noisy_reward_is_what_the_table_says(kind: str) -> None:
    noise = Noise(kind, 0.8 if kind == "gaussian" else 0.0)  # type: ignore[arg-type]
    environment = Environment(one_variable([1.0], noise, 1.3), generator(3))
    rewards = np.array([environment.step((0,))[0][0] for _ in range(20_000)])
    assert abs(rewards.mean() - 1.3) < 4.5 * rewards.std() / 20_000**0.5


def test_normal_quantiles() -> None:
    uniforms = np.concatenate(
        [np.logspace(-300, -1, 200), np.linspace(0.001, 0.999, 200), 1 - np.logspace(-15, -2, 50)]
    )
    found = np.array([normal_quantile(u) for u in uniforms])
    np.testing.assert_allclose(found, special.ndtri(uniforms), rtol=1e-13, atol=1e-15)
    assert normal_quantile(0.0) == -np.inf
    assert normal_quantile(1.0) == np.inf


def test_the_size_of_a_block_does_not_matter() -> None:
    model = fmdp.problem("random:3,seed=1,noise=gaussian")
    walks = []
    for block in (1, 7, 1000, 1 << 14):
        environment = Environment(model, generator(9), block=block)
        walks.append([environment.step((t % 2,)) for t in range(200)])
    assert all(walk == walks[0] for walk in walks)


def test_luck_does_not_depend_on_the_action() -> None:
    """A variable that no action moves takes the same values whatever is done."""
    model = FactoredMDP.from_factors(
        [2, 3],
        [2],
        [
            ((0, 2), [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5], [0.3, 0.7]]),
            ((1,), np.full((3, 3), 1 / 3)),
        ],
        [((0,), [0.2, 0.8])],
        noise=Noise("bernoulli"),
    )
    lazy, busy = Environment(model, generator(5)), Environment(model, generator(5))
    seen = [(lazy.step((0,))[1], busy.step((t % 2,))[1]) for t in range(300)]
    assert all(one[1] == other[1] for one, other in seen)
    assert any(one[0] != other[0] for one, other in seen)


def test_bulk_and_single_steps_are_one_stream() -> None:
    model = fmdp.problem("machines:2")
    policy = fmdp.plan(model).policy
    assert isinstance(policy, fmdp.TablePolicy)
    fast, slow = Environment(model, generator(2)), Environment(model, generator(2))
    left, table = 5000, ActionTable(policy, model.structure)
    while left:
        left -= fast.play(StepBatch(min(left, fast.ready()), table))[0]
    for _ in range(5000):
        slow.step(policy(slow.state))
    assert fast.state == slow.state
    assert fast.total_reward == slow.total_reward
    assert fast.total_expected_reward == slow.total_expected_reward


def test_an_action_out_of_range_is_refused() -> None:
    environment = Environment(fmdp.problem("circle:3"), generator(0))
    with pytest.raises(InvalidParameter, match="action"):
        environment.step((4,))
    assert environment.steps == 0
