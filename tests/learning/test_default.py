"""The default learner: its formulas by hand, and what it promises of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp import Statistics
from fmdp.errors import InvalidParameter
from fmdp.learning.default import (
    log_imbalance,
    look_policy,
    looks_due,
    optimistic_model,
    optimistic_rewards,
    possible_values,
    squared_level,
    upper_end,
)
from fmdp.learning.forgetting import fade, faded_counts, no_faded_counts
from fmdp.learning.noise import Batches, no_batches, noise_shares, noise_variance, with_batch
from fmdp.learning.pooling import posterior
from fmdp.planning.policies.randomised import UniformPolicy
from fmdp.planning.spans import marginals
from fmdp.testing import strategies
from fmdp.testing.units import in_units

units = st.floats(0.0, 1.0)


def test_the_upper_end_by_hand() -> None:
    # Mean .5, N = 25: a squared level of .35 + (.65 + 8/25) / 2 = .835, so a variance of .01 is
    # worth .091378. Wilson's end is lower, (.5 + .0167 + .092892) / 1.0334 = .58989; and 1 / 25^2
    # more.
    assert upper_end(0.5, 0.01, 1.0) == pytest.approx(0.591378 + 0.0016, abs=1e-6)
    # 0 of 5 under Beta(1/2, 1/2): mean 1/12, N = 7; a squared level of .35 + 11/12 (.65 + 8/7) =
    # 1.993452, .284779 per sample, and Wilson's end is (.083333 + .142389 + sqrt(.021754 +
    # .020275)) / 1.284779 = .335258; and 1 / 49 more.
    assert upper_end(1 / 12, 11 / 144 / 7, 1.0) == pytest.approx(0.335258 + 1 / 49, abs=1e-6)
    assert upper_end(0.99, 0.04, 1.0) == 1.0
    assert upper_end([0.0, 1.0], 0.0, 1.0) == pytest.approx([0.0, 1.0])


@given(units, units, st.floats(0.0, 10.0))
def test_the_upper_end_is_above_the_mean_and_grows(mean: float, share: float, c: float) -> None:
    variance = share * mean * (1 - mean)
    found = float(upper_end(mean, variance, c))
    assert mean - 1e-12 <= found <= 1.0
    assert float(upper_end(mean, variance, c + 1.0)) >= found - 1e-12


@pytest.mark.parametrize("tries", [1, 2, 5, 20, 100, 1_000])
def test_one_more_success_never_lowers_the_upper_end(tries: int) -> None:
    """Although the level falls with the mean: under Beta(1/2, 1/2), for any number of successes."""
    mean = (np.arange(tries + 1) + 0.5) / (tries + 1)
    for imbalance in (0.0, 3.0, 10.0):
        upper = upper_end(mean, mean * (1.0 - mean) / (tries + 2), 1.0, imbalance)
        assert (np.diff(upper) >= -1e-12).all()


@given(units, st.floats(1e-6, 1.0), st.floats(0.0, 4.0), st.floats(0.0, 9.0))
def test_wilsons_end_solves_its_equation(
    mean: float, share: float, c: float, imbalance: float
) -> None:
    """If it is the larger one: (q - mu)^2 = c_x^2 q (1 - q) / N, for q minus c^4 / N^2."""
    variance = share * mean * (1 - mean)
    q = float(upper_end(mean, variance, c, imbalance))
    if q == 1.0:
        return
    q -= (c * c * share) ** 2
    squared = c * c * float(squared_level(np.float64(mean), np.float64(share), imbalance))
    if mean * (1 - mean) > 1e-9 and mean + np.sqrt(squared * variance) < q - 1e-9:
        assert (q - mean) ** 2 == pytest.approx(squared * q * (1 - q) * share, abs=1e-9)


def test_noise_from_batches_by_hand() -> None:
    """Sums 2 and 6 of 4 visits and 8: means .5 and .75, of all 2/3; spread 4/36 + 8/144 = 1/6."""
    batches = Batches(*(np.array([x]) for x in (2.0, 2.0**2 / 4 + 6.0**2 / 8, 12.0, 8.0)))
    mean = np.array([2 / 3])
    assert noise_variance(batches, mean) == pytest.approx([(2 / 9 + 1 / 6) / 2])
    # Nothing seen: as noisy as it can be.
    assert noise_variance(no_batches(1), np.array([0.5])) == pytest.approx([0.25])


def test_a_factor_whose_rewards_repeat_has_little_noise() -> None:
    """Factor 0 gave .5 in five batches: 1/4 assumed, of 1/4 + 4/4 for coins. Its entry that gave
    only 1 may be a coin, as one that was never visited. Factor 1 gave means of 0, 1, 0, 1 and then
    .5: a spread of 1, as coins would have given it."""
    columns = zip(
        (5.0, 5 * 0.25, 5.0, 2.5),
        (3.0, 3.0, 3.0, 3.0),
        (0.0, 0.0, 0.0, 0.0),
        (5.0, 2.25, 5.0, 2.5),
        strict=True,
    )
    batches = Batches(*(np.array(column) for column in columns))
    shares = noise_shares(batches, np.array([0, 0, 0, 1]))
    assert shares == pytest.approx([0.2, 1.0, 1.0, 1.0])
    mean = np.array([0.5])
    first = Batches(*(column[:1] for column in batches))
    assert noise_variance(first, mean, shares[:1]) == pytest.approx([0.2 * 0.25 / 5])


def test_a_coin_in_a_factor_without_other_noise_is_tried_again() -> None:
    """One entry gives .5 a hundred times, so its factor has hardly any noise; another gives 0 once.
    That may be a coin, so its optimistic reward is that of a coin after one failure: of mean 1/4
    and deviation 1/4."""
    model = fmdp.FactoredMDP.from_factors(
        [2], [3], [([0], np.full((2, 2), 0.5))], [([1], np.array([0.5, 0.6, 0.7]))]
    )
    statistics = Statistics(model.structure)
    batches = no_batches(3)
    for _ in range(100):
        statistics.record((0,), (0,), [0.5], (0,))
        batches = with_batch(batches, statistics)
    statistics.record((0,), (1,), [0.0], (0,))
    statistics.record((0,), (2,), [0.7], (0,))
    batches = with_batch(batches, statistics)
    known, coin, once = optimistic_rewards(statistics, batches, 1.0)
    assert known == pytest.approx(0.5, abs=1e-3)
    assert coin == pytest.approx(float(upper_end(0.25, 0.0625, 1.0)))
    # One visit is enough if the reward is not at an end of the range.
    assert once == pytest.approx(0.7, abs=0.05)


def test_noise_is_found_and_its_absence_too() -> None:
    """Batches of a few visits each, of a coin and of a constant."""
    model = fmdp.FactoredMDP.from_factors(
        [2], [2], [([0], np.full((2, 2), 0.5))], [([1], np.array([0.3, 0.3]))]
    )
    statistics = Statistics(model.structure)
    generator = np.random.default_rng(0)
    batches = no_batches(2)
    for _ in range(400):
        for _ in range(3):
            statistics.record((0,), (0,), [float(generator.random() < 0.3)], (0,))
            statistics.record((0,), (1,), [0.3], (0,))
        batches = with_batch(batches, statistics)
    coin, constant = noise_variance(batches, np.array([0.3, 0.3]))
    assert coin == pytest.approx(0.21, rel=0.15)
    assert constant == pytest.approx(0.21 / 400, rel=1e-6)


@given(strategies.models(strategies.structures(max_states=12, max_actions=4)))
def test_the_model_is_optimistic_in_every_row(model: fmdp.FactoredMDP) -> None:
    """In every row the worth of the values is at least that of the posterior mean, which c = 0
    gives; rewards lie in their ranges and above their means."""
    s = model.structure
    statistics = Statistics(s)
    generator = np.random.default_rng(1)
    environment = fmdp.Environment(model, generator)
    state = model.initial_state
    for _ in range(30):
        allowed = [a for a in np.ndindex(*s.action_sizes) if s.allowed(state, a)]
        action = allowed[generator.integers(len(allowed))]
        rewards, after = environment.step(action)
        statistics.record(state, action, rewards, after)
        state = after
    worths = generator.random(sum(s.state_sizes))
    batches = with_batch(no_batches(s.n_reward_classes), statistics)
    plain = optimistic_model(statistics, worths, batches, 0.0)
    raised = optimistic_model(statistics, worths, batches, 1.0)
    first = 0
    for i, size in enumerate(s.state_sizes):
        worth = worths[first : first + size]
        first += size
        assert raised.transitions[i].sum(axis=-1) == pytest.approx(np.ones(s.transition_rows[i]))
        assert (raised.transitions[i] >= 0.0).all()
        assert (raised.transitions[i] @ worth >= plain.transitions[i] @ worth - 1e-9).all()
    for (lo, hi), low, high in zip(s.reward_ranges, plain.rewards, raised.rewards, strict=True):
        assert (high >= low).all()
        assert (high <= hi).all()
        assert (low >= lo).all()


def test_rewards_are_in_their_unit() -> None:
    """Six times 3 of [1, 5]: half of the range, as before it was seen; a coin's variance over 8,
    which is that of 8 samples. The squared level is .35 + (.65 + 8/8) / 2 = 1.175."""
    model = fmdp.FactoredMDP.from_factors(
        [2], [1], [([0], np.full((2, 2), 0.5))], [([], np.array([3.0]))], reward_ranges=[(1, 5)]
    )
    statistics = Statistics(model.structure)
    for _ in range(6):
        statistics.record((0,), (0,), [3.0], (0,))
    batches = with_batch(no_batches(1), statistics)
    expected = 1.0 + 4.0 * (0.5 + np.sqrt(1.175 * 0.25 / 8) + 1 / 64)
    assert optimistic_rewards(statistics, batches, 1.0) == pytest.approx([expected])


def test_marginals_by_hand() -> None:
    """h(s_0, s_1) = 10 s_0 + s_1 over 2 x 3 values."""
    h = np.array([0.0, 1, 2, 10, 11, 12])
    first, second = marginals(h, (2, 3))
    assert first == pytest.approx([1.0, 11.0])
    assert second == pytest.approx([5.0, 6.0, 7.0])


@pytest.mark.parametrize("planner", ["exact", "alp", "alp,basis=pairs", "span,budget=20"])
def test_planners_tell_the_marginals_of_what_they_found(planner: str) -> None:
    """Up to a constant they are those of the table that `describe` gives, or of h_w."""
    model = fmdp.problem("circle:3,dynamics=guestrin")
    made = fmdp.learning.learner.planner_of(planner, "test")
    prepared = made.prepare(model.structure)
    plan = prepared.solve(model, marginals=True)
    assert plan.marginals is not None
    if planner.startswith("alp"):
        table, axes = np.zeros((2, 2, 2)), range(3)
        for block in prepared.basis.blocks:
            own = block.values @ plan.stats["weights"][block.columns]
            table += own.reshape([2 if v in block.scope else 1 for v in axes])
        h = table.ravel()
    else:
        described = made.prepare(model.structure).solve(model, describe=True)
        assert described.bias is not None
        h = described.bias
    for found, expected in zip(plan.marginals, marginals(h, (2, 2, 2)), strict=True):
        assert found - found[0] == pytest.approx(expected - expected[0], abs=1e-3)


def test_it_is_what_learn_runs() -> None:
    model = fmdp.problem("circle:3")
    run, same = fmdp.learn(model, 300, 4), fmdp.simulate(model, "default", 300, 4)
    assert (run.regret, run.gap_regret) == (same.regret, same.gap_regret)
    approximate = fmdp.learn(model, 300, 4, planner="alp")
    same = fmdp.simulate(model, fmdp.Default(planner=fmdp.ALP()), 300, 4)
    assert approximate.regret == same.regret


@pytest.mark.parametrize(
    "problem",
    ["circle:3", "jao:2", "riverswim:1", "machines:2", "maintenance:2", "random:3,values=3"],
)
def test_it_learns(problem: str) -> None:
    """A quarter of what random actions lose, in 3,000 steps; summed over three seeds."""
    model = fmdp.problem(problem)
    lost = [
        sum(fmdp.simulate(model, learner, 3_000, seed).gap_regret or 0.0 for seed in range(3))
        for learner in ("default", "random")
    ]
    assert lost[0] < 0.25 * lost[1]


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**30])
@pytest.mark.parametrize("planner", ["exact", "alp"])
def test_the_unit_of_the_reward_does_not_matter(unit: float, planner: str) -> None:
    model = fmdp.problem("circle:3,dynamics=guestrin")
    base = fmdp.learn(model, 500, planner=planner)
    scaled = fmdp.learn(in_units(model, unit), 500, planner=planner)
    assert base.gap_regret is not None
    assert scaled.gap_regret == base.gap_regret * unit
    assert scaled.planner_calls == base.planner_calls


def test_a_planner_that_tells_nothing_is_refused_by_name() -> None:
    class Silent(fmdp.Planner):
        """Returns a policy without bounds or bias."""

        name = "silent"

        def prepare(self, structure: fmdp.Structure) -> object:  # type: ignore[override]
            inner = fmdp.Exact().prepare(structure)

            class Prepared:
                def solve(self, tables: object, **_: object) -> fmdp.Plan:
                    plan = inner.solve(tables)  # type: ignore[arg-type]
                    return fmdp.Plan(planner="silent", status=plan.status, policy=plan.policy)

            return Prepared()

    with pytest.raises(InvalidParameter, match="planner silent says neither"):
        fmdp.learn(fmdp.problem("circle:2"), 10, planner=Silent())


def test_a_file_with_a_strange_memory_is_refused(tmp_path: Path) -> None:
    agent = fmdp.Default().start(fmdp.problem("circle:3"))
    for name, wrong in (
        ("worths", np.zeros(5)),
        ("worths", np.full(6, np.nan)),
        ("batches", np.full(6, -1.0)),
    ):
        memory = dict(agent.memory)
        memory[name] = wrong
        with pytest.raises(InvalidParameter, match=f"finite numbers as '{name}'"):
            agent.learner.check_memory(agent.structure, memory)
    for name, strange in (("looks", 0), ("length", "long")):
        with pytest.raises(InvalidParameter, match=f"at least 1 as '{name}'; got"):
            agent.learner.check_memory(agent.structure, {**agent.memory, name: strange})


# ---- no error is permanent -----------------------------------------------------------------------


def test_the_level_grows_with_the_visits_to_the_context() -> None:
    """Rows with 1, 79 and 0 visits of 80: 80 / 8 = 10 times as many as even. The logarithm of 10 is
    2.302585, and .4 of it is added for a mean of 1, a fifth for a mean of 0. The second
    row is visited enough."""
    imbalance = log_imbalance(np.array([[1.0, 79.0, 0.0]]))
    assert imbalance == pytest.approx(np.array([[2.302585, 0.0, 2.302585]]))
    none = np.zeros(3)
    assert squared_level(np.array([1.0, 0.5, 0.0]), none, 2.302585) == pytest.approx(
        [0.35 + 0.921034, 0.675 + 0.575646, 1.0 + 0.460517], abs=1e-6
    )
    # Without bound, however often the row was visited.
    assert log_imbalance(np.array([[1e3, 1e300]]))[0, 0] > 600.0


def test_a_row_that_was_unlucky_where_others_succeed_is_tried_again() -> None:
    """One variable and eight actions, seven of which led to the good value nine times in ten. The
    eighth failed in its first three tries, and was not tried again in 560 steps. It may still be
    like the others, so its worth is raised further than that of the posterior."""
    model = fmdp.FactoredMDP.from_factors(
        [2], [8], [([0, 1], np.full((2, 8, 2), 0.5))], [([0], np.array([0.0, 1.0]))]
    )
    statistics = Statistics(model.structure)
    for action in range(7):
        for visit in range(80):
            statistics.record((0,), (action,), [0.0], (0 if visit < 8 else 1,))
    for _ in range(3):
        statistics.record((0,), (7,), [0.0], (0,))
    (mixture,) = posterior(model.structure, statistics.cell_counts)
    worth = np.broadcast_to([0.0, 1.0], mixture.pools.cells.shape)
    imbalance = log_imbalance(statistics.cell_counts[mixture.pools.cells].sum(axis=-1))
    alone = upper_end(*mixture.moments(worth), 1.0, imbalance)[0, 7]
    batches = with_batch(no_batches(model.structure.n_reward_classes), statistics)
    raised = optimistic_model(statistics, np.array([0.0, 1.0]), batches, 1.0)
    assert alone < 0.6
    assert 0.8 < raised.transitions[0].reshape(-1, 2)[7, 1] < 0.9


def test_the_times_of_the_walks() -> None:
    times = (0, 1, 9, 10, 99, 100, 999, 1_000, 10**9)
    assert [looks_due(t) for t in times] == [0, 0, 0, 1, 1, 2, 2, 3, 9]


@pytest.mark.parametrize(
    ("learner", "seed", "expected"),
    [("default", 0, {1: 1, 2: 2}), ("default,looks=false", 0, {}), ("default", None, {})],
)
def test_walks_have_one_more_step_each_time(
    learner: str, seed: int | None, expected: dict[int, int]
) -> None:
    """After 10 and 100 steps; not if that is switched off, nor without a generator."""
    model = fmdp.problem("circle:3")
    agent = fmdp.learning.follow.learner_of(learner, "test").start(model, seed)  # type: ignore[union-attr]
    environment = fmdp.Environment(model, np.random.default_rng(0))
    walks: dict[int, int] = {}
    for _ in range(150):
        state = environment.state
        action = agent.act(state)
        assert agent.decision is not None
        if isinstance(agent.decision.policy, fmdp.ExploringPolicy):
            k = agent.memory["looks"]
            walks[k] = walks.get(k, 0) + 1
        rewards, following = environment.step(action)
        agent.observe(state, action, rewards, following)
    assert walks == expected


def test_a_look_changes_one_action_variable_on_average() -> None:
    """Each of three action variables is random with probability 1/3: one with two values changes
    with probability 1/6. Policies that depend on the time or have no sizes are not followed."""
    structure = fmdp.problem("jao:3").structure
    table = fmdp.TablePolicy((2,) * 3, (2,) * 3, np.zeros(8, dtype=np.int64))
    look = look_policy(structure, table)
    drawn = look.draw(np.random.default_rng(0), 20_000)
    changed = np.array([look.settle(row, (0, 0, 0)) for row in drawn])
    assert changed.mean(axis=0) == pytest.approx(np.full(3, 1 / 6), abs=0.012)
    assert {tuple(row) for row in changed.tolist()} == set(np.ndindex(2, 2, 2))
    for other in (lambda state: (0, 0, 0), fmdp.TimedPolicy([table]), UniformPolicy.of(structure)):
        assert isinstance(look_policy(structure, other), UniformPolicy)


def test_values_that_were_never_seen_become_impossible() -> None:
    """One variable with two rows. Of 10,000 steps half the square root is 50: a row with 51 visits
    has no mass on values that were not seen, one with 50 has. In short runs 20 visits decide."""
    model = fmdp.FactoredMDP.from_factors(
        [3], [2], [([1], np.full((2, 3), 1 / 3))], [([0], np.array([0.0, 0.0, 1.0]))]
    )
    s = model.structure

    def mask(*counts: int) -> list[bool]:
        possible: list[bool] = possible_values(s, np.array(counts, dtype=float)).tolist()
        return possible

    assert mask(9_949, 0, 0, 0, 51, 0) == [True, False, False, False, True, False]
    assert mask(9_950, 0, 0, 0, 50, 0) == [True, False, False, True, True, True]
    assert mask(20, 0, 0, 21, 0, 0) == [True, True, True, True, False, False]
    # The tables have no mass there, and optimism goes to the best of the other values.
    statistics = Statistics(s)
    for action, value, visits in ((0, 0, 30), (0, 1, 30), (1, 0, 5)):
        for _ in range(visits):
            statistics.record((0,), (action,), [0.0], (value,))
    worths, batches = np.array([0.0, 1.0, 5.0]), no_batches(s.n_reward_classes)
    table = optimistic_model(statistics, worths, batches, 1.0).transitions[0]
    assert table[0, 2] == 0.0
    assert table[0, 1] > 0.5 > table[0, 0] > 0.0
    assert table[1, 2] > 0.1
    assert table.sum(axis=1) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("seed", range(3))
def test_a_state_that_cannot_be_reached_is_not_tried_for_ever(seed: int) -> None:
    """In state 0 the first action pays .5 and the second nothing. State 1 would pay 1 for ever, and
    cannot be reached. A learner that never gives it up tries both actions half of the time."""
    stay = np.zeros((2, 2, 2))
    stay[0, :, 0] = stay[1, :, 1] = 1.0
    model = fmdp.FactoredMDP.from_factors(
        [2], [2], [([0, 1], stay)], [([0, 1], np.array([[0.5, 0.0], [1.0, 1.0]]))]
    )
    run = fmdp.simulate(model, "default", 10_000, seed)
    assert run.total_reward > 0.97 * 5_000.0


@pytest.mark.parametrize("seed", range(3))
def test_an_unlucky_start_is_recovered_from(seed: int) -> None:
    """In `jao:1` the second action leaves state 0 three times in ten, the first one twice. The
    learner begins with 15 failures of the second one and 1,000 successes in 5,000 tries of the
    first, so that it looks worse even with one deviation more. Within 100,000 steps the learner has
    found out: in the last tenth it loses less than a tenth of what the wrong action loses."""
    model = fmdp.problem("jao:1")
    agent = fmdp.Default().start(model, seed)
    for action, visits, successes in ((0, 5_000, 1_000), (1, 15, 0)):
        for t in range(visits):
            agent.observe((0,), (action,), [0.0], (int(t < successes),))
    before = agent.statistics.transition_counts(0)
    assert before[1].tolist() == [15, 0]
    run = fmdp.simulate(model, agent, 100_000, seed, checkpoints=[90_000, 100_000])
    wrong = fmdp.simulate(model, lambda state: (0,), 100_000, seed).gap_regret
    assert run.gap_curve is not None
    assert wrong is not None
    (_, until), (_, in_all) = run.gap_curve
    assert in_all - until < 0.1 * 0.1 * wrong


# ---- forgetting ----------------------------------------------------------------------------------


def test_counts_fade_by_hand() -> None:
    """Two steps, then nothing for a half-life, then one step: 2 / 2 + 1 visits."""
    model = fmdp.FactoredMDP.from_factors(
        [2], [1], [([0], np.full((2, 2), 0.5))], [([], np.array([0.5]))]
    )
    statistics = Statistics(model.structure)
    memory = no_faded_counts(statistics.entries)
    for _ in range(2):
        statistics.record((0,), (0,), [1.0], (1,))
    memory |= fade(memory, statistics, 2, 10.0)
    statistics.record((0,), (0,), [0.0], (0,))
    memory |= fade(memory, statistics, 12, 10.0)
    faded = faded_counts(memory)
    assert faded.cells == pytest.approx([1.0, 1.0, 0.0, 0.0])
    assert faded.reward_visits == pytest.approx([2.0])
    assert faded.reward_sums == pytest.approx([1.0])


def test_a_learner_that_forgets_follows_a_system_that_changes() -> None:
    """After 20,000 steps the good and the bad actions of `jao:2` are exchanged. In the next 5,000
    steps the forgetting learner loses less than half of what the other one loses, for each seed."""
    before = fmdp.problem("jao:2,delta=0.2,epsilon=0.2")
    exchanged = [rows.reshape(2, 2, 2)[:, ::-1].reshape(4, 2) for rows in before.transitions]
    after = fmdp.FactoredMDP(before.structure, exchanged, before.rewards, noise=before.noise)
    for seed in range(3):
        lost = {}
        for learner in (fmdp.Default(), fmdp.Default(half_life=1_000)):
            agent = learner.start(before, seed)
            fmdp.simulate(before, agent, 20_000, seed)
            lost[learner.half_life] = fmdp.simulate(after, agent, 5_000, seed + 1).gap_regret or 0.0
        assert lost[1_000] < 0.5 * lost[None]


def test_a_forgetting_learner_is_saved_and_continues_the_same_run(tmp_path: Path) -> None:
    model = fmdp.problem("circle:3")
    learner = fmdp.Default(half_life=50)
    whole = fmdp.simulate(model, learner.start(model, 3), 400, 1)
    agent = learner.start(model, 3)
    simulation = fmdp.simulation.Simulation(model, agent, 1)
    simulation.run(170)
    agent.save(tmp_path / "agent.npz")
    loaded = fmdp.load_agent(tmp_path / "agent.npz")
    assert loaded.learner == learner
    simulation.agent = loaded
    simulation.run(230)
    assert simulation.result().total_reward == whole.total_reward
    assert (loaded.statistics.cell_counts == whole.agent.statistics.cell_counts).all()
    with pytest.raises(InvalidParameter, match="half_life"):
        fmdp.Default(half_life=0)
