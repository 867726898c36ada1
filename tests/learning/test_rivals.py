"""The rivals: every formula by hand, every set against its promise, flat and factored alike."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import FactoredMDP, Flat, OptimisticTables
from fmdp.errors import FmdpError, TooLarge
from fmdp.learning import kl_ucrl, opsrl, scal, ucrl2, ucrl_factored
from fmdp.learning.agent import Agent
from fmdp.learning.concentration import (
    bernoulli_ends,
    bernoulli_proxy,
    empirical_bernstein_width,
    laplace_width,
    peeling_term,
    right_tail_proxy,
)
from fmdp.learning.posterior import sample_model
from fmdp.learning.registry import LEARNERS
from fmdp.learning.sets import SetLearner
from fmdp.model import flat_model
from fmdp.model.entries import split_cells, split_transition_entries
from fmdp.simulation import Environment
from fmdp.testing import check_learner, strategies

SETS = [kind for kind in LEARNERS.own() if issubclass(kind, SetLearner)]
FLAT = [kind for kind in LEARNERS.own() if issubclass(kind, Flat)]


def test_there_are_rivals_to_test() -> None:
    assert {kind.name for kind in SETS} >= {"ucrl-factored", "dbn-ucrl", "ucrl2", "ucrl3", "scal"}
    assert {kind.name for kind in FLAT} >= {"ucrl2", "ucrl3", "scal", "regal", "tsde", "opsrl"}


# ---- formulas by hand ---------------------------------------------------------------------------


def test_ucrl_factored_by_hand() -> None:
    assert ucrl_factored.ball_radius(2, 64, 2.0) == pytest.approx(0.5)  # sqrt(4 * 2 * 2 / 64)
    assert ucrl_factored.reward_width(50, 2.0) == pytest.approx(0.2)
    assert ucrl_factored.ball_radius(2, 0, 2.0) == math.inf


def test_ucrl2_by_hand() -> None:
    assert ucrl2.ball_radius(2, 700, 1.0) == pytest.approx(0.2)  # sqrt(28 / 700)
    assert ucrl2.ball_radius(2, 0, 7.0) == pytest.approx(14.0)
    assert ucrl2.reward_width(14, 1.0) == pytest.approx(0.5)  # sqrt(7 / 28)
    assert ucrl2.reward_width(0, 1.0) == math.inf


def test_kl_ucrl_by_hand() -> None:
    # K = 3, N = 2 (e - 1): log 10 + 2 log(e e) = log 10 + 4.
    visits = 2 * (math.e - 1)
    radius = kl_ucrl.divergence_radius(3, visits, 0.1)
    assert radius == pytest.approx((math.log(10) + 4) / visits)
    assert kl_ucrl.divergence_radius(3, 0, 0.1) == math.inf
    assert kl_ucrl.divergence_radius(1, 5, 0.1) == 0.0
    # log t = 1, B = log(2 e 4 3 / .5) = 1 + log 48, b = B + 1.
    b = 1 + math.log(48)
    expected = 2 * (b + math.log(b + 1) * (1 + 1 / (b + 1)))
    with_late = kl_ucrl.public_radius(2, 3.0, 10**6, 0.5 * math.log(10**6))
    shifted = b + 1 / math.log(10**6)
    assert with_late == pytest.approx(2 * (b + math.log(shifted) * (1 + 1 / shifted)))
    assert with_late < expected
    assert kl_ucrl.public_radius(2, 3.0, 1, 0.1) == kl_ucrl.public_radius(2, 3.0, 2, 0.1)
    late = math.log(100)
    assert kl_ucrl.public_reward_constant(6.0, 100, 0.1) == pytest.approx(
        math.sqrt(math.log(240 * late) / 1.99)
    )


def test_the_balls_of_kl_ucrl_are_those_of_the_checking_constructor() -> None:
    model = fmdp.problem("random:3,values=3,seed=1,noise=bernoulli")
    (agent,) = looking_on(model, [fmdp.KLUCRLFactored], 60, 0)
    made = fmdp.KLUCRLFactored(c=0.5).tables(agent)
    seen, s = agent.statistics, model.structure
    rows = np.repeat(np.array(s.transition_rows, dtype=float), s.transition_rows)
    n = np.maximum(1, seen.transition_visits)
    beta = np.log(2 * s.m * rows / 0.1) + 2 * (1 + np.log(1 + n / 2))
    checked = OptimisticTables.from_balls(
        s,
        split_cells(s, seen.transition_means()),
        split_transition_entries(s, 0.25 * beta / n),
        made.rewards,
        distance="kl",
    )
    for name in ("lower", "free", "upper", "centre", "radius"):
        for one, other in zip(getattr(made, name), getattr(checked, name), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    two = fmdp.problem("circle:3")
    (agent,) = looking_on(two, [fmdp.KLUCRLFactored], 40, 0)
    made = fmdp.KLUCRLFactored().tables(agent)
    assert made.radius is not None
    again = OptimisticTables.from_balls(
        two.structure,
        split_cells(two.structure, agent.statistics.transition_means()),
        made.radius,
        made.rewards,
        distance="kl",
    )
    for name in ("lower", "upper"):
        for one, other in zip(getattr(made, name), getattr(again, name), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_scal_by_hand() -> None:
    # sqrt(14 * .25 * 2 / 28) + 49 * 2 / (3 * 27) = .5 + 98 / 81.
    assert scal.bernstein_width(0.5, 28, 2.0) == pytest.approx(0.5 + 98 / 81)
    assert scal.bernstein_width(0.0, 1, 3.0) == pytest.approx(49.0)


def test_opsrl_by_hand() -> None:
    # 4 log(8 / .1) = 17.5..., a tenth of it, and never none.
    assert opsrl.number_of_samples(4, 8, 0.1) == 18
    assert opsrl.number_of_samples(4, 8, 0.1, 0.1) == 2
    assert opsrl.number_of_samples(4, 8, 0.1, 1e-9) == 1
    assert opsrl.confidence_term(10, 0.1) == pytest.approx(math.log(100))
    assert opsrl.confidence_term(1, 1.0) == 1.0
    # sqrt(50 * 4 / 2) + 12 * 3 * 16.
    assert opsrl.enough_visits(4, 8, 50, 3.0) == pytest.approx(586.0)
    # log(4 S) = 2 log 4 for S = 4: sqrt(.5 r) + r with r = 6 log 4 / 12.
    rate = 0.5 * math.log(4)
    assert opsrl.simple_width(0.5, 12, 4) == pytest.approx(math.sqrt(0.5 * rate) + rate)
    assert opsrl.simple_width(0.0, 0, 4) == pytest.approx(6 * math.log(4))


def test_peeling_by_hand() -> None:
    # eta log(log 2 log 2.24 / (delta log^2 1.12)) = 1.12 log(.693147 * .806476 / (.1 * .0128433)).
    assert peeling_term(2, 0.1) == pytest.approx(1.12 * math.log(435.25), rel=1e-4)
    assert peeling_term([0, 1, 2], 0.1).tolist() == [float(peeling_term(2, 0.1))] * 3
    # sqrt(2 * .25 * 2 / 100) + 14 / 300.
    assert empirical_bernstein_width(0.5, 100, 2.0) == pytest.approx(0.1 + 14 / 300)
    assert empirical_bernstein_width(1.0, 100, 3.0) == pytest.approx(0.07)


def test_laplace_by_hand() -> None:
    # n = 3: sqrt(4/3 * log(2 / (2/e^2)) / 6) = sqrt(4/9).
    assert laplace_width(3, 2 / math.e**2) == pytest.approx(2 / 3)
    assert laplace_width(0, 0.1) == math.inf


def test_the_proxy_of_a_bernoulli_variable_by_hand() -> None:
    assert bernoulli_proxy([0.0, 0.5, 1.0]).tolist() == [0.0, 0.25, 0.0]
    assert bernoulli_proxy(0.1) == pytest.approx(0.4 / math.log(9))
    assert bernoulli_proxy(0.9) == pytest.approx(0.4 / math.log(9))  # symmetric
    assert bernoulli_proxy(0.5 + 2e-6) == pytest.approx(0.25)
    assert right_tail_proxy([0.1, 0.9]) == pytest.approx([0.4 / math.log(9), 0.09])
    p = np.linspace(0, 1, 101)
    assert (bernoulli_proxy(p) >= p * (1 - p) - 1e-12).all()  # no less than the variance
    assert (bernoulli_proxy(p) <= 0.25).all()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 5000),
    share=st.floats(0, 1),
    delta=st.floats(1e-9, 0.2),
    c=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_the_ends_of_ucrl3_are_where_the_bounds_are_met(
    n: int, share: float, delta: float, c: float
) -> None:
    p = round(n * share) / n
    ((lower,), (upper,)) = bernoulli_ends(np.array([p]), np.array([float(n)]), delta, c)

    def width(q: float, proxy: Any) -> float:
        m = max(2, n)
        rate = float(peeling_term(m, delta)) / m
        laplace = 2 * (1 + 1 / n) * math.log(2 * math.sqrt(n + 1) / delta) / n
        bernstein = math.sqrt(2 * q * (1 - q) * rate) + rate / 3
        return c * min(bernstein, math.sqrt(float(proxy(q)) * laplace))

    assert 0 <= lower <= p <= upper <= 1
    for q in np.linspace(0, 1, 201):  # a grid, against the bisection
        plausible = abs(p - q) <= width(q, right_tail_proxy if q < p else bernoulli_proxy)
        assert (lower - 1e-9 <= q <= upper + 1e-9) or not plausible
        assert plausible or not (lower + 1e-9 < q < upper - 1e-9)


def test_a_factor_with_nothing_seen_may_be_anything() -> None:
    lower, upper = bernoulli_ends(np.zeros(1), np.zeros(1), 0.1)
    assert (lower[0], upper[0]) == (0.0, 1.0)


# ---- the sets as tables -------------------------------------------------------------------------


def looking_on(model: FactoredMDP, kinds: list[Any], steps: int, seed: int) -> list[Agent]:
    """Agents that have seen the same random actions."""
    rng = np.random.Generator(np.random.PCG64(seed))
    environment = Environment(model, rng)
    agents = [kind().start(model) for kind in kinds]
    for _ in range(steps):
        state = environment.state
        action = [int(rng.integers(size)) for size in model.structure.action_sizes]
        step = environment.step(action)
        for agent in agents:
            agent.observe(state, action, *step)
    return agents


@settings(max_examples=25, deadline=None)
@given(model=strategies.models(), seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 30))
def test_tables_pass_the_checking_constructor(model: FactoredMDP, seed: int, steps: int) -> None:
    if model.structure.constraints:
        return
    for agent in looking_on(model, SETS, steps, seed):
        for c in (0.0, 0.1, 1.0):
            made = replace(agent.learner, c=c).tables(agent)  # type: ignore[attr-defined]
            again = replace(made)
            for one, other in zip(made.lower, again.lower, strict=True):
                assert np.array_equal(one, other)


def test_balls_are_those_of_the_checking_constructor() -> None:
    model = fmdp.problem("random:3,values=3,seed=1,noise=bernoulli")
    (agent,) = looking_on(model, [fmdp.UCRLFactored], 60, 0)
    made = fmdp.UCRLFactored(c=0.1).tables(agent)
    seen, s = agent.statistics, model.structure
    rows = np.array(s.transition_rows, dtype=float)
    log_terms = np.log(4 * s.m * np.repeat(rows, s.transition_rows) * 61 / 0.1)
    with np.errstate(divide="ignore"):
        radius = 0.1 * np.sqrt(4 * 3 * log_terms / seen.transition_visits)
    checked = OptimisticTables.from_balls(
        s,
        split_cells(s, seen.transition_means()),
        split_transition_entries(s, radius),
        made.rewards,
    )
    for name in ("lower", "free", "upper", "centre", "radius"):
        for one, other in zip(getattr(made, name), getattr(checked, name), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def inside(tables: OptimisticTables, truth: FactoredMDP) -> bool:
    """Return whether the truth is in the set."""
    slack = 1e-9
    assert tables.upper is not None
    for i, true in enumerate(truth.transitions):
        if (true < tables.lower[i] - slack).any() or (true > tables.upper[i] + slack).any():
            return False
        if tables.centre is not None and tables.radius is not None:
            centre = tables.centre[i]
            apart = np.abs(true - centre).sum(axis=1)
            if tables.distance == "kl":
                with np.errstate(divide="ignore", invalid="ignore"):
                    apart = np.where(centre > 0, centre * np.log(centre / true), 0.0).sum(axis=1)
            if (apart > tables.radius[i] + slack).any():
                return False
    return all(
        (true <= r + slack).all() for true, r in zip(truth.rewards, tables.rewards, strict=True)
    )


MARKS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)


def lost(model: FactoredMDP, kinds: list[Any], constants: tuple[float, ...], seed: int) -> Any:
    """[kind, c]: whether the truth leaves the set at some moment of a run with random actions."""
    rng = np.random.Generator(np.random.PCG64(seed))
    environment, flat = Environment(model, rng), flat_model(model)
    agents = [kind().start(model) for kind in kinds]
    found = np.zeros((len(kinds), len(constants)), dtype=bool)
    for t in range(1, MARKS[-1] + 1):
        for k, agent in enumerate(agents if t in MARKS else []):
            truth = flat if isinstance(agent.learner, Flat) else model
            for j, c in enumerate(constants):
                tables = replace(agent.learner, c=c).tables(agent)  # type: ignore[attr-defined]
                found[k, j] |= not inside(tables, truth)
        state = environment.state
        action = [int(rng.integers(size)) for size in model.structure.action_sizes]
        step = environment.step(action)
        for agent in agents:
            agent.observe(state, action, *step)
    return found


@pytest.mark.slow
def test_coverage_with_a_negative_control() -> None:
    """At most rho = .1 of the runs may lose the truth: 40 runs lose 8 with probability .04. Widths
    thirty times smaller make no confidence set, and the test must see it."""
    model = fmdp.problem("random:2,values=3,actions=2,seed=1,noise=bernoulli")
    total = sum(lost(model, SETS, (1.0, 0.03), seed).astype(int) for seed in range(40))
    assert (total[:, 0] < 8).all(), total
    assert (total[:, 1] > 20).all(), total


@pytest.mark.parametrize("kind", SETS, ids=lambda kind: kind.name)
def test_what_holds_the_truth_promises_no_less(kind: Any) -> None:
    """Optimism: the plan of a set that holds the truth has a gain of at least the best one."""
    model = fmdp.problem("random:2,values=3,actions=2,seed=1,noise=bernoulli")
    best = fmdp.plan(model).gain
    assert best is not None
    exact = fmdp.Exact(tolerance=1e-7, max_iterations=100_000)
    for steps in (0, 10, 300):
        (agent,) = looking_on(model, [kind], steps, 4)
        for c in (1.0, 0.3):
            tables = replace(agent.learner, c=c).tables(agent)  # type: ignore[attr-defined]
            truth = flat_model(model) if issubclass(kind, Flat) else model
            if inside(tables, truth):
                found = exact.prepare(tables.structure).solve(tables)
                assert found.gain_upper is not None
                assert found.gain_upper >= best - 1e-6


# ---- flat ---------------------------------------------------------------------------------------


class FlatPSRL(Flat, fmdp.PSRL):
    """PSRL on joint states and actions."""


class FlatDORL(Flat, fmdp.DORL):
    """DORL on joint states and actions."""


class FlatFSRL(Flat, fmdp.FSRL):
    """FSRL on joint states and actions."""


class FlatUCRL(Flat, fmdp.UCRLFactored):
    """UCRL-Factored on joint states and actions."""


class FlatDBN(Flat, fmdp.DBNUCRL):
    """DBN-UCRL on joint states and actions."""


class FlatCPSRL(Flat, fmdp.CPSRL):
    """Continuing PSRL on joint states and actions."""


class FlatUCBVI(Flat, fmdp.FUCBVI):
    """F-UCBVI on joint states and actions: UCBVI."""


class FlatEULER(Flat, fmdp.FEULER):
    """F-EULER on joint states and actions."""


PAIRS = [
    (FlatCPSRL, fmdp.CPSRL),
    (FlatPSRL, fmdp.PSRL),
    (FlatDORL, fmdp.DORL),
    (FlatFSRL, fmdp.FSRL),
    (FlatUCRL, fmdp.UCRLFactored),
    (FlatDBN, fmdp.DBNUCRL),
    (fmdp.TSDE, fmdp.PSRL),
    (fmdp.KLUCRL, fmdp.KLUCRLFactored),
    (FlatUCBVI, fmdp.FUCBVI),
    (FlatEULER, fmdp.FEULER),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
@pytest.mark.parametrize("problem", ["riverswim:1", "random:1,values=4,parents=1", "circle:2"])
def test_on_one_factor_flat_and_factored_take_the_same_actions(pair: Any, problem: str) -> None:
    model = fmdp.problem(problem)
    model = model if model.structure.m == 1 else flat_model(model)
    flat, factored = pair
    own = {"c": 0.1} if issubclass(factored, SetLearner | fmdp.FUCBVI) else {}
    if flat is fmdp.TSDE:
        runs = [flat(), factored(c=1.0, prior=0.1, episodes="tsde")]
    else:
        runs = [kind(episodes="doubling", **own) for kind in (flat, factored)]
    taken = [fmdp.simulate(model, learner, 400, seed=3, record=True).trajectory for learner in runs]
    actions = [kept.actions.tolist() for kept in taken if kept is not None]
    assert actions[0] == actions[1]


@pytest.mark.parametrize("problem", ["circle:3", "machines:1", "large-diameter"])
@pytest.mark.parametrize("bulk", [True, False])
def test_flat_counts_are_of_joint_states_and_actions(problem: str, bulk: bool) -> None:
    model = fmdp.problem(problem)
    s = model.structure
    run = fmdp.simulate(model, fmdp.UCRL2(c=0.1), 300, seed=1, record=True)
    kept = run.trajectory
    assert kept is not None
    states = np.ravel_multi_index(kept.states.T, s.state_sizes)
    actions = np.ravel_multi_index(kept.actions.T, s.action_sizes)
    agent = run.agent
    if not bulk:
        agent = fmdp.UCRL2().start(model)
        for t in range(300):
            agent.observe(
                kept.states[t].tolist(),
                kept.actions[t].tolist(),
                kept.rewards[t].tolist(),
                kept.states[t + 1].tolist(),
            )
    assert isinstance(agent, Agent)
    counts = np.zeros((s.n_states, s.n_actions, s.n_states), dtype=int)
    sums = np.zeros((s.n_states, s.n_actions))
    for t in range(300):
        counts[states[t], actions[t], states[t + 1]] += 1
        sums[states[t], actions[t]] += kept.rewards[t].sum()
    assert np.array_equal(agent.statistics.transition_counts(0), counts.reshape(-1, s.n_states))
    visits, totals = agent.statistics.reward_totals(0)
    assert np.array_equal(visits, counts.sum(axis=2).reshape(-1))
    np.testing.assert_allclose(totals, sums.reshape(-1), atol=1e-9)


@pytest.mark.parametrize("problem", ["riverswim:1", "circle:3"])
def test_continuing_psrl_is_psrl_with_another_plan_and_other_times(problem: str) -> None:
    """The settings that it stands for, one by one, give the same run."""
    model = fmdp.problem(problem)
    planner = fmdp.Exact(
        criterion="discounted",
        discount=0.9,
        tolerance=1e-3 * model.structure.reward_range_total / (1 - 0.9),
        max_iterations=10_000,
    )
    spelled = fmdp.PSRL(c=1.0, prior=0.1, episodes="geometric", length=10, planner=planner)
    runs = [
        fmdp.simulate(model, learner, 500, seed=4, record=True)
        for learner in (fmdp.CPSRL(discount=0.9, length=10), spelled)
    ]
    actions = [run.trajectory.actions.tolist() for run in runs if run.trajectory is not None]
    assert actions[0] == actions[1]
    assert runs[0].unconverged_plans == 0
    # A chance of 1 - .9 is that of a length of 10, but for its last bit.
    by_discount = fmdp.simulate(model, fmdp.CPSRL(discount=0.9), 500, seed=4)
    assert by_discount.gap_regret == runs[0].gap_regret


def test_continuing_psrl_says_what_it_cannot_do() -> None:
    for planner, said in (
        ("span,budget=1", "got planner span, must be one that has criterion=discounted"),
        ("exact,criterion=finite,horizon=3", "got planner exact,criterion=finite"),
        ("alp,discount=0.5", "must be given once; got 0.99 for the learner and 0.5"),
    ):
        with pytest.raises(FmdpError, match=said):
            fmdp.CPSRL(planner=planner)
    with pytest.raises(FmdpError, match="episodes=fixed needs one"):
        fmdp.CPSRL(episodes="fixed")


@pytest.mark.parametrize("kind", [FlatDORL, FlatFSRL, FlatPSRL], ids=lambda kind: kind.__name__)
def test_any_planning_learner_can_be_flat(kind: Any) -> None:
    check_learner(kind(), fmdp.problem("machines:1"), steps=80, seed=2, save_after=31)


# ---- several samples of every row ----------------------------------------------------------------


def sampled(agent: Agent, learner: fmdp.OPSRL) -> tuple[Any, Any]:
    """Rows [S, A, psi, S] and means [S, A, psi] of one draw."""
    made = learner.tables(agent)
    states, actions = made.structure.n_states, agent.structure.n_actions
    rows = made.transitions[0].reshape(states, actions, -1, states)
    return rows, made.rewards[0].reshape(states, actions, -1)


def test_few_visits_make_simple_rows_and_many_a_posterior() -> None:
    model = fmdp.problem("random:1,values=3,actions=2,seed=1,noise=bernoulli")
    (agent,) = looking_on(model, [fmdp.OPSRL], 40, 3)
    agent.generator = np.random.Generator(np.random.PCG64(1))
    seen = agent.statistics
    rows, means = sampled(agent, fmdp.OPSRL())
    assert rows.shape == (3, 2, math.ceil(3 * math.log(60)), 3)
    assert rows.sum(axis=-1) == pytest.approx(np.ones(rows.shape[:-1]))
    assert ((means >= 0) & (means <= 1)).all()
    estimate = seen.transition_means().reshape(3, 2, 3)
    width = opsrl.simple_width(estimate, seen.transition_visits.reshape(3, 2, 1), 3)
    lower = np.maximum(estimate - width, 0.0)[:, :, None, :]
    # p-minus, and the rest at one place, which is every place for some sample of some row.
    extra = rows - lower
    assert ((extra > 1e-12).sum(axis=-1) == 1).all()
    assert set(extra.argmax(axis=-1).reshape(-1).tolist()) == {0, 1, 2}
    # A c so small that some rows have enough visits: a posterior leaves no value without mass.
    enough = 0.01 * opsrl.enough_visits(3, 6, 41, opsrl.confidence_term(41, 0.1))
    many = (seen.transition_visits >= enough).reshape(3, 2)
    rows, _ = sampled(agent, fmdp.OPSRL(c=0.01))
    assert (rows > 0).all(axis=(2, 3)).tolist() == many.tolist()
    assert many.any()
    assert not many.all()


def test_one_sample_of_rows_seen_often_is_psrl() -> None:
    model = fmdp.problem("random:1,values=4,actions=2,seed=1,noise=bernoulli")
    (agent,) = looking_on(model, [fmdp.OPSRL], 400, 3)
    learner = fmdp.OPSRL(c=1e-3)
    omega = opsrl.confidence_term(401, 0.1)
    rows = model.structure.n_states * model.structure.n_actions
    assert agent.statistics.visits.min() > 1e-3 * opsrl.enough_visits(4, rows, 401, omega)
    agent.generator = np.random.Generator(np.random.PCG64(1))
    made = learner.tables(agent)
    draws = np.random.Generator(np.random.PCG64(1))
    same = sample_model(agent.statistics, 1e-3 * omega, 1.0, draws)
    np.testing.assert_allclose(made.transitions[0], same.transitions[0], rtol=1e-12)
    np.testing.assert_allclose(made.rewards[0], same.rewards[0], rtol=1e-12)


def test_the_action_is_that_of_the_best_sample() -> None:
    """Against a backup over samples that is written out."""
    model = fmdp.problem("riverswim:1")
    learner = fmdp.OPSRL(c=0.2, planner=fmdp.Exact(tolerance=1e-7, max_iterations=100_000))
    (agent,) = looking_on(model, [lambda: learner], 300, 5)
    agent.generator = np.random.Generator(np.random.PCG64(1))
    rows, means = sampled(agent, learner)
    agent.generator = np.random.Generator(np.random.PCG64(1))
    policy = agent.decide().policy
    h = np.zeros(model.structure.n_states)
    for _ in range(20_000):
        q = (means + rows @ h).max(axis=2)
        h = 0.5 * h + 0.5 * (q.max(axis=1) - q.max(axis=1)[0])
    q = (means + rows @ h).max(axis=2)
    for state in range(model.structure.n_states):
        (action,) = policy((state,))  # type: ignore[misc, operator]
        assert q[state, action] == pytest.approx(q[state].max(), abs=1e-5)


def test_samples_are_optimistic_with_a_negative_control() -> None:
    """The promise behind psi: for the best bias h, with probability 1 - rho some sample of every
    row is worth no less than the truth. 60 runs lose it 13 times with probability .005."""
    model = fmdp.problem("random:2,values=2,actions=2,seed=1,noise=bernoulli")
    flat = flat_model(model)
    bias = fmdp.Exact(tolerance=1e-9).plan(flat).bias
    assert bias is not None
    truth = (flat.rewards[0] + flat.transitions[0] @ bias).reshape(4, -1)
    lost = np.zeros(2, dtype=int)
    for seed in range(60):
        steps = MARKS[seed % len(MARKS)]
        (agent,) = looking_on(model, [fmdp.OPSRL], steps, seed)
        agent.generator = np.random.Generator(np.random.PCG64(seed))
        for place, c in enumerate((1.0, 0.02)):
            rows, means = sampled(agent, fmdp.OPSRL(c=c))
            lost[place] += bool(((means + rows @ bias).max(axis=2) < truth - 1e-9).any())
    assert lost[0] < 13, lost
    assert lost[1] > 40, lost


def test_too_many_samples_are_refused_in_one_line() -> None:
    with pytest.raises(TooLarge, match="1182 samples of every row of 128 joint states") as refused:
        fmdp.OPSRL().start(fmdp.problem("circle:7"))
    assert "\n" not in str(refused.value)
    fmdp.OPSRL(c=0.01).start(fmdp.problem("circle:7"))
    with pytest.raises(FmdpError, match="must be exact or span"):
        fmdp.OPSRL(planner="alp")


# ---- what does not fit --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SETS, ids=lambda kind: kind.name)
def test_planners_that_take_no_boxes_are_refused(kind: Any) -> None:
    with pytest.raises(FmdpError, match=f"learner {kind.name} .*planner.*alp.* must be"):
        kind(planner=fmdp.ALP())
    with pytest.raises(FmdpError, match="must be"):
        kind(planner=fmdp.Exact(targets="vertex"))


@pytest.mark.parametrize("kind", SETS, ids=lambda kind: kind.name)
def test_models_that_are_too_large_are_refused_in_one_line(kind: Any) -> None:
    for problem in ("circle:18", "circle:60"):
        with pytest.raises(FmdpError, match=f"learner {kind.name}") as refused:
            kind().start(fmdp.problem(problem))
        assert "\n" not in str(refused.value)


def test_flat_learners_say_how_much_is_too_much() -> None:
    with pytest.raises(TooLarge, match="2048 joint states and 12 joint actions make 50331648"):
        fmdp.TSDE().start(fmdp.problem("circle:11"))
    with pytest.raises(FmdpError, match=r"is flat: .* got planner alp"):
        fmdp.TSDE(planner="alp")


@pytest.mark.parametrize("name", ["scal", "regal"])
def test_a_span_that_is_enough_changes_nothing(name: str) -> None:
    """Under a bound that no bias reaches the plan is that of the set alone; a tight one is felt."""
    model = fmdp.problem("riverswim:1")
    kind = LEARNERS.find(name)
    wide = kind(budget=1e6, c=0.1)
    (agent,) = looking_on(model, [lambda: wide], 400, 2)
    tables = wide.tables(agent)
    bounded = fmdp.SpanConstrained(budget=1e6, tolerance=1e-6).prepare(tables.structure)
    exact = fmdp.Exact(tolerance=1e-6).prepare(tables.structure)
    assert bounded.solve(tables).gain == pytest.approx(exact.solve(tables).gain, abs=1e-5)
    tight = fmdp.SpanConstrained(budget=0.01, tolerance=1e-6).prepare(tables.structure)
    assert tight.solve(tables).gain < bounded.solve(tables).gain  # type: ignore[operator]
