"""PMEVI: formulas by hand, ways against their definition, the operator's theorems, its promise."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fmdp
from fmdp import FactoredMDP, Flat, OptimisticTables, Structure, TablePolicy
from fmdp.elimination.backup import backup_for
from fmdp.errors import FileProblem, FmdpError, TooLarge
from fmdp.learning.agent import Agent
from fmdp.learning.pmevi import (
    LearnedDifferences,
    arrive,
    bernstein_log,
    deviation,
    difference_errors,
    difference_estimates,
    mitigation_width,
    variance_bound,
    within_span,
)
from fmdp.learning.registry import LEARNERS
from fmdp.model import flat_model
from fmdp.planning.projected import Projected, _Operator, closed, projection
from fmdp.simulation import Environment
from fmdp.testing import check_learner, oracles

from .test_rivals import MARKS

Floats = np.ndarray[Any, np.dtype[np.float64]]


# ---- formulas by hand ---------------------------------------------------------------------------


def test_the_mitigation_by_hand() -> None:
    assert bernstein_log(1, 1, 6 / math.e**2) == pytest.approx(2.0)  # log(3 * 1 * 2 / rho)
    assert bernstein_log(3, 2, 72 / math.e) == pytest.approx(1.0)  # log(3 * 2 * 12 / rho)
    # sqrt(2 * .25 / 8) + 3 * 2 / 8 = .25 + .75.
    assert mitigation_width(0.25, 8, 1.0, 2.0) == pytest.approx(1.0)
    assert mitigation_width(0.25, 0, 1.0, 2.0) == math.inf


def test_the_variance_by_hand() -> None:
    even = np.array([[0.5, 0.5], [1.0, 0.0]])
    apart = np.array([[0.0, 2.0], [-1.0, 0.0]])  # 1 <= u(0) - u(1) <= 2
    assert variance_bound(even, apart, 9.0).tolist() == [1.0, 0.0]  # (2 / 2)^2
    assert variance_bound(even, apart, 1.0).tolist() == [0.25, 0.0]  # a span of 1 at most


def test_the_deviation_by_hand() -> None:
    # (1 + 1) sqrt(1/2 log(2 * 2 * 1 * 2 / rho)), the logarithm 2.
    assert deviation(1, 2, 1.0, 1.0, 8 / math.e**2) == pytest.approx(2.0)


def test_differences_by_hand() -> None:
    passages, lengths = np.array([[0, 2], [1, 0]]), np.array([[0, 6], [5, 0]])
    rewards = np.array([[0.0, 1.0], [2.0, 0.0]])
    # There (.5 * 6 - 1) less back (.5 * 5 - 2), over 3 ways.
    estimate = difference_estimates(passages, lengths, rewards, 0.5)
    np.testing.assert_allclose(estimate, [[0.0, 0.5], [-0.5, 0.0]])
    # (4 + 2 + 2 * 3 + 1/20 max(4, 2 + 3)) / 3.
    error = difference_errors(passages, lengths, 20, missed=4.0, ends=2.0, width=3.0)
    np.testing.assert_allclose(error, [[math.inf, 12.25 / 3], [12.25 / 3, math.inf]])


def test_ways_by_hand() -> None:
    """0 1 1 0 2 1, rewards 1 2 4 8 16: from 0 to 1 in one step for 1, and in two for 24; back in
    two for 6. The way from 0 to 2 takes the whole of 0 1 1 0 2."""
    ways = of_path([0, 1, 1, 0, 2, 1], [1, 2, 4, 8, 16], 3)
    passages, lengths, rewards = ways[:3]
    assert (passages[0, 1], lengths[0, 1], rewards[0, 1]) == (2, 3, 25)
    assert (passages[1, 0], lengths[1, 0], rewards[1, 0]) == (1, 2, 6)
    assert (passages[0, 2], lengths[0, 2], rewards[0, 2]) == (1, 4, 15)
    assert (passages[2, 0], passages[2, 1], passages[1, 2]) == (0, 1, 1)


def of_path(path: list[int], rewards: list[float], states: int) -> tuple[Any, ...]:
    shape = (states, states)
    ways = (
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape),
        np.full(shape, -1, dtype=np.int64),
        np.zeros(shape),
    )
    for now, x in enumerate(path):
        arrive(x, now, float(sum(rewards[:now])), *ways)
    return ways


@settings(max_examples=60, deadline=None)
@given(path=st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_ways_are_first_passages_there_and_back(path: list[int]) -> None:
    """By the definition: tau_0 the first visit to either, tau_{i+1} the first to the other one."""
    rewards = [float(1 + t % 5) for t in range(len(path))]
    passages, lengths, sums = of_path(path, rewards, 4)[:3]
    for a, b in itertools.combinations(range(4), 2):
        visits = [(t, x) for t, x in enumerate(path) if x in (a, b)]
        turns = [one for k, one in enumerate(visits) if k == 0 or visits[k - 1][1] != one[1]]
        for x, y in ((a, b), (b, a)):
            own = [(t, u) for (t, z), (u, _) in itertools.pairwise(turns) if z == x]
            assert passages[x, y] == len(own)
            assert lengths[x, y] == sum(u - t for t, u in own)
            assert sums[x, y] == sum(sum(rewards[t:u]) for t, u in own)


# ---- the projection -----------------------------------------------------------------------------

N = 4
# Multiples of 1/16: sums are exact, and none is smaller than the tolerance of `within`.
vectors = arrays(np.float64, N, elements=st.integers(-64, 64).map(lambda n: n / 16))
matrices = arrays(np.float64, (N, N), elements=st.integers(-16, 48).map(lambda n: n / 16))


def within(u: Floats, distances: Floats) -> bool:
    return bool((u[:, None] - u[None] <= distances + 1e-9).all())


def test_distances_are_closed_by_hand() -> None:
    given_ = np.array([[0.0, 1.0, 9.0], [5.0, 0.0, -0.5], [5.0, 2.0, 0.0]])
    found = closed(given_)
    assert found is not None
    np.testing.assert_allclose(found, [[0.0, 1.0, 0.5], [4.5, 0.0, -0.5], [5.0, 2.0, 0.0]])
    assert closed(np.array([[0.0, 1.0], [-2.0, 0.0]])) is None  # u(1) <= u(0) - 2 <= u(1) - 1


@settings(max_examples=100, deadline=None)
@given(given_=matrices, u=vectors)
def test_closing_changes_no_function_that_is_within(given_: Floats, u: Floats) -> None:
    np.fill_diagonal(given_, 0.0)
    found = closed(given_)
    if found is None:
        assert not within(u, given_)
        return
    assert within(u, given_) == within(u, found)
    through = found[:, :, None] + found[None]  # [s, s', s'']: by way of s'
    assert (found[:, None] <= through + 1e-9).all()
    assert (found <= given_ + 1e-12).all()
    assert within(projection(u, found), given_)  # there is one, as a closed matrix promises


@settings(max_examples=100, deadline=None)
@given(given_=matrices, v=vectors, w=vectors, constant=st.floats(-5, 5))
def test_the_projection_is_the_largest_function_within(
    given_: Floats, v: Floats, w: Floats, constant: float
) -> None:
    distances = closed(given_)
    if distances is None:
        return
    below = projection(v, distances)
    assert within(below, distances)
    assert (below <= v).all()
    np.testing.assert_allclose(projection(below, distances), below, atol=1e-9)  # nothing to do
    other = projection(np.minimum(v, w), distances)  # within, and nowhere above v
    assert (other <= below + 1e-12).all()
    np.testing.assert_allclose(projection(v + constant, distances), below + constant, atol=1e-9)
    moved = projection(w, distances) - below
    assert (w - v).min() - 1e-9 <= moved.min()
    assert moved.max() <= (w - v).max() + 1e-9


# ---- the operator -------------------------------------------------------------------------------

STRUCTURE = Structure((3,), (2,), ((0, 1),), ((0, 1),))


def random_balls(seed: int, widest: float = 0.8) -> tuple[OptimisticTables, FactoredMDP]:
    """Balls, and a model in them."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(3) * 0.7, size=6)
    rewards = rng.random(6)
    centre = 0.8 * truth + 0.2 * rng.dirichlet(np.ones(3), size=6)
    radius = np.abs(truth - centre).sum(axis=1) + widest * rng.random(6)
    top = np.minimum(1.0, rewards + 0.1 * rng.random(6))
    tables = OptimisticTables.from_balls(STRUCTURE, [centre], [radius], [top])
    return tables, FactoredMDP(STRUCTURE, [truth], [rewards])


def values_by_definition(tables: OptimisticTables, u: Floats, beta: Floats) -> Floats:
    """R + min(max p u, p-hat u + beta), each ball a linear program: [S, A]."""
    assert tables.centre is not None
    assert tables.radius is not None
    values = np.empty(6)
    for row, centre in enumerate(tables.centre[0]):
        best = oracles.ball_value(centre, tables.radius[0][row], u)
        values[row] = tables.rewards[0][row] + min(best, centre @ u + beta.ravel()[row])
    return values.reshape(3, 2)


def operator_of(tables: OptimisticTables, beta: Floats, distances: Floats) -> _Operator:
    assert tables.centre is not None
    estimate = FactoredMDP(tables.structure, tables.centre, tables.rewards)
    return _Operator(backup_for(tables), backup_for(estimate), beta, distances)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_the_operator_is_its_definition_monotone_and_commutes(seed: int, data: Any) -> None:
    tables, _ = random_balls(seed)
    rng = np.random.default_rng(seed)
    beta, distances = 0.3 * rng.random((3, 2)), closed(0.2 + rng.random((3, 3)))
    beta[0, 0] = np.inf
    assert distances is not None
    operator = operator_of(tables, beta, distances)
    three = arrays(np.float64, 3, elements=st.floats(-4, 4, width=32))
    v, w = data.draw(three), data.draw(three)
    np.testing.assert_allclose(operator.values(v), values_by_definition(tables, v, beta), atol=1e-9)
    images = []
    for u in (v, np.maximum(v, w), v + 2.5, w):
        out = np.empty(3)
        operator.sweep(u, out)
        images.append(out)
    of_v, of_larger, of_shifted, of_w = images
    assert (of_v <= of_larger + 1e-9).all()
    np.testing.assert_allclose(of_shifted, of_v + 2.5, atol=1e-9)
    assert (w - v).min() - 1e-9 <= (of_w - of_v).min()
    assert (of_w - of_v).max() <= (w - v).max() + 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_the_plan_solves_the_equation_of_the_operator(seed: int) -> None:
    """T u = u + gain by the definition of T, at the u that the planner found; there is one gain."""
    tables, _ = random_balls(seed)
    rng = np.random.default_rng(seed)
    beta, distances = 0.2 * rng.random((3, 2)), closed(0.05 + 0.6 * rng.random((3, 3)))
    assert distances is not None
    prepared = Projected(tolerance=1e-8).prepare(STRUCTURE)
    found = prepared.solve(tables, mitigation=beta, distances=distances, describe=True)
    u, gain = found.bias, found.gain
    assert u is not None
    assert gain is not None
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    values = values_by_definition(tables, u, beta)
    np.testing.assert_allclose(projection(values.max(axis=1), distances), u + gain, atol=1e-7)
    assert found.gain_lower <= gain <= found.gain_upper <= found.gain_lower + 1e-7
    assert within(u, distances)
    assert not found.bounds_best_gain
    assert isinstance(found.policy, TablePolicy)
    chosen = values[np.arange(3), found.policy.actions]
    np.testing.assert_allclose(chosen, values.max(axis=1), atol=1e-7)


@pytest.mark.parametrize("ties", ["random", "first", "last"])
def test_without_bounds_it_is_the_exact_planner(ties: str) -> None:
    """No mitigation and wide distances: the gain and the policy of optimism over the balls."""
    for seed in range(5):
        tables, _ = random_balls(seed)
        free = np.full((3, 2), np.inf)
        made = Projected(tolerance=1e-9, ties=ties).prepare(STRUCTURE)
        found = made.solve(tables, mitigation=free, distances=within_span(3, 1e3))
        exact = fmdp.Exact(tolerance=1e-9, ties=ties).prepare(STRUCTURE).solve(tables)
        assert found.gain == pytest.approx(exact.gain, abs=1e-8)
        assert found.policy == exact.policy
        assert made.solve(tables).policy == exact.policy  # asked as any planner
        assert found.stats["projected_states"] == found.stats["mitigated_rows"] == 0


# ---- optimism -----------------------------------------------------------------------------------


def solved(truth: FactoredMDP) -> tuple[float, Floats]:
    found = fmdp.Exact(tolerance=1e-11).plan(truth)
    assert found.gain is not None
    assert found.bias is not None
    return found.gain, found.bias


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), slack=st.sampled_from([0.0, 0.05, 1.0]))
def test_what_holds_the_truth_promises_no_less(seed: int, slack: float) -> None:
    """The truth in the balls, p h* <= p-hat h* + beta, and h* within d: the gain is no less, with
    beta and d as tight as that allows too."""
    tables, truth = random_balls(seed)
    gain, h = solved(truth)
    assert tables.centre is not None
    needed = ((truth.transitions[0] - tables.centre[0]) @ h).reshape(3, 2)
    beta = np.maximum(0.0, needed) + slack + 1e-9
    distances = h[:, None] - h[None] + slack + 1e-9
    np.fill_diagonal(distances, 0.0)
    prepared = Projected(tolerance=1e-7).prepare(STRUCTURE)
    found = prepared.solve(tables, mitigation=beta, distances=distances)
    assert found.gain_upper is not None
    assert found.gain_upper >= gain - 1e-7


def test_the_promise_needs_each_of_its_conditions() -> None:
    """The control: a mitigation or distances that leave h* out lose the gain in most models."""
    lost = np.zeros(2, dtype=int)
    for seed in range(20):
        tables, truth = random_balls(seed, widest=0.0)
        tables = OptimisticTables.from_balls(
            STRUCTURE,
            tables.centre,  # type: ignore[arg-type]
            tables.radius,  # type: ignore[arg-type]
            truth.rewards,
        )
        gain, h = solved(truth)
        prepared = Projected(tolerance=1e-7).prepare(STRUCTURE)
        nothing, wide = np.zeros((3, 2)), within_span(3, 10.0)
        free, narrow = np.full((3, 2), np.inf), within_span(3, 0.2 * float(np.ptp(h)))
        for k, (beta, distances) in enumerate(((nothing, wide), (free, narrow))):
            found = prepared.solve(tables, mitigation=beta, distances=distances)
            assert found.gain_upper is not None
            lost[k] += found.gain_upper < gain - 1e-6
    assert lost[0] >= 5
    assert lost[1] >= 15


def lost_by(model: FactoredMDP, constants: tuple[float, ...], seed: int) -> Any:
    """[mitigation or differences, c]: whether h* gets out at some moment of a random run."""
    rng = np.random.Generator(np.random.PCG64(seed))
    flat = flat_model(model)
    gain, h = solved(flat)
    span = float(np.ptp(h))
    environment, agent = Environment(model, rng), fmdp.PMEVI(span=span).start(model)
    s = flat.structure
    shape = (s.n_states, s.n_actions)
    found = np.zeros((2, len(constants)), dtype=bool)
    for t in range(1, 2 * MARKS[-1]):
        if t in MARKS or t == 2 * MARKS[-1] - 1:
            estimate = agent.statistics.transition_means().reshape(*shape, -1)
            missing = flat.transitions[0].reshape(*shape, -1) @ h - estimate @ h
            exact = h[:, None] - h[None]  # the tightest distances: the smallest beta
            for j, c in enumerate(constants):
                learner = fmdp.PMEVI(c=c, span=span)
                found[0, j] |= (missing > learner.mitigation(agent, exact, span) + 1e-9).any()
                found[1, j] |= not within(h, learner.distances(agent, span, gain))
        state = environment.state
        action = [int(rng.integers(size)) for size in model.structure.action_sizes]
        agent.observe(state, action, *environment.step(action))
    return found


def test_coverage_with_a_negative_control() -> None:
    """At most rho = .1 of the runs may lose h*, here a third of it for each: 40 runs lose 8 with
    probability .04 even so. Widths fifty times smaller are no bounds, and it must be seen."""
    model = fmdp.problem("random:2,values=2,actions=2,seed=1,noise=bernoulli")
    total = sum(lost_by(model, (1.0, 0.02), seed).astype(int) for seed in range(40))
    assert (total[:, 0] < 8).all(), total
    assert (total[:, 1] > 20).all(), total


def test_differences_that_contradict_each_other_are_not_used() -> None:
    """With c = 0 the estimates count as they are, and at first no function has them."""
    model = fmdp.problem("circle:2")
    run = fmdp.simulate(model, fmdp.PMEVI(c=0.0), 400, seed=1)
    assert run.steps == 400


# ---- the learner --------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["riverswim:1", "circle:3"])
def test_it_learns(problem: str) -> None:
    model = fmdp.problem(problem)
    random = fmdp.simulate(model, fmdp.Random(), 5_000, seed=1)
    run = fmdp.simulate(model, fmdp.PMEVI(c=0.01), 5_000, seed=1)
    assert run.gap_regret is not None
    assert random.gap_regret is not None
    assert run.gap_regret < 0.5 * random.gap_regret


def test_differences_are_learned_in_the_end() -> None:
    """Two states, one of them better: after 20,000 steps the known difference is below the span."""
    sure = np.array([[0.5, 0.5], [0.5, 0.5]])
    structure = Structure((2,), (1,), ((0,),), ((0,),))
    model = FactoredMDP(structure, [sure], [[0.0, 1.0]])  # h* = (0, 1), gain 1/2
    agent = fmdp.simulate(model, fmdp.PMEVI(span=1.0), 20_000, seed=0).agent
    assert isinstance(agent, Agent)
    assert isinstance(agent.learner, fmdp.PMEVI)
    found = agent.learner.distances(agent, 1.0, 0.5)
    assert found[1, 0] == 1.0  # the span: h*(1) - h*(0) = 1
    assert -1.0 <= found[0, 1] < -0.5


def test_ways_end_where_somebody_else_moves_the_system() -> None:
    model = fmdp.problem("circle:2")
    agent = fmdp.PMEVI().start(model)
    agent.observe((0, 0), (0,), (0.0, 0.0), (0, 1))
    agent.observe((0, 1), (0,), (0.0, 0.0), (1, 1))
    assert agent.memory["pieces"] == 1
    assert agent.memory["passages"].sum() == 3  # 0 -> 1, 0 -> 3, 1 -> 3
    agent.observe((0, 0), (0,), (0.0, 0.0), (0, 1))  # not where the last step ended
    assert agent.memory["pieces"] == 2
    assert agent.memory["passages"].sum() == 4  # 0 -> 1 once more, and nothing from 3


def test_it_does_what_a_learner_has_to_with_a_span_and_with_rows_alike() -> None:
    check_learner(fmdp.PMEVI(c=0.05, span=2.0), fmdp.problem("machines:1"), steps=80, save_after=31)
    alike = fmdp.problem("circle:2,dynamics=guestrin,alike=machines")
    check_learner(fmdp.PMEVI(c=0.05), alike, steps=80, save_after=31)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("at", 99),
        ("total", "much"),
        ("pieces", -1),
        ("passages", np.zeros((2, 2), dtype=np.int64)),
        ("begun", np.full((4, 4), -2, dtype=np.int64)),
        ("held", np.full((4, 4), np.nan)),
    ],
)
def test_a_memory_that_is_none_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    run = fmdp.simulate(fmdp.problem("circle:2"), fmdp.PMEVI(), 20, seed=0)
    assert isinstance(run.agent, Agent)
    run.agent.memory[name] = value
    run.agent.save(tmp_path / "agent.npz")
    with pytest.raises(FileProblem, match=r"is not a usable learner file"):
        fmdp.load_agent(tmp_path / "agent.npz")


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"planner": fmdp.SpanConstrained(budget=1.0)}, "got planner span, must be exact"),
        ({"planner": fmdp.Exact(criterion="discounted")}, "criterion=discounted, must be exact"),
        ({"planner": fmdp.Exact(criterion="finite", horizon=3)}, "criterion=finite"),
        ({"span": 0.0}, "'span' parameter of learner pmevi"),
        ({"episodes": "fixed", "horizon": 3}, "learner pmevi learns the bias"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(settings_: Any, message: str) -> None:
    with pytest.raises(FmdpError, match=message) as refused:
        fmdp.PMEVI(**settings_)
    assert "\n" not in str(refused.value)


def test_too_many_states_are_refused_in_one_line() -> None:
    with pytest.raises(TooLarge, match=r"learner pmevi .* got 2048 joint states, must be at most"):
        fmdp.PMEVI().start(fmdp.problem("circle:11"))


def test_balls_of_one_factor_alone_are_taken() -> None:
    model = fmdp.problem("circle:2")
    tables = OptimisticTables.from_model(model)
    prepared = Projected().prepare(model.structure)
    with pytest.raises(FmdpError, match="takes L1 balls around the rows of one factor; got 2"):
        prepared.solve(tables, mitigation=np.zeros((4, 3)), distances=within_span(4, 1.0))


def test_it_is_flat_and_has_a_name() -> None:
    assert LEARNERS.find("pmevi") is fmdp.PMEVI
    assert issubclass(fmdp.PMEVI, Flat)
    assert issubclass(fmdp.PMEVI, LearnedDifferences)
    assert fmdp.PMEVI().episodes == "doubling"
