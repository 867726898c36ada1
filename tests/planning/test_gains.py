"""Gains that value iteration cannot tell: proved, or solved by policy iteration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import TablePolicy
from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination import tuning
from fmdp.elimination.backup import TimeUp, backup_for
from fmdp.measures import measure
from fmdp.model import FactoredMDP
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.exact import solver
from fmdp.planning.exact.acceleration import Anderson
from fmdp.planning.exact.small import TabularBackup
from fmdp.planning.plan import Status
from fmdp.planning.tabular import end_components as graphs
from fmdp.planning.tabular.end_components import end_components
from fmdp.planning.tabular.gains import optimal_gains
from fmdp.planning.tabular.model import write_out
from fmdp.planning.tabular.policy_iteration import recurrent_classes
from fmdp.problems import problem
from fmdp.testing import oracles, strategies
from fmdp.testing.units import in_units


def one_variable(transitions: np.ndarray, rewards: np.ndarray) -> FactoredMDP:
    """A flat model [S, A, S], [S, A] as a factored one."""
    n, actions, _ = transitions.shape
    low, high = min(0.0, float(rewards.min())), max(1.0, float(rewards.max()))
    return FactoredMDP.from_factors(
        (n,),
        (actions,),
        [((0, 1), transitions)],
        [((0, 1), rewards)],
        reward_ranges=[(low, high)],
    )


def corridor(n: int, left: float, right: float) -> FactoredMDP:
    """Left or right, surely; the ends pay for staying."""
    transitions, rewards = np.zeros((n, 2, n)), np.zeros((n, 2))
    for s in range(n):
        transitions[s, 0, max(s - 1, 0)] = transitions[s, 1, min(s + 1, n - 1)] = 1.0
    rewards[0, 0], rewards[-1, 1] = left, right
    return one_variable(transitions, rewards)


def swim(left: float, n: int = 10) -> FactoredMDP:
    """RiverSwim of n states, with another reward at its left end."""
    transitions, rewards = np.zeros((n, 2, n)), np.zeros((n, 2))
    for s in range(n):
        transitions[s, 0, max(s - 1, 0)] = 1.0
        transitions[s, 1, s] += 0.4 if s == 0 else 0.6
        transitions[s, 1, min(s + 1, n - 1)] += 0.6 if s == 0 else (0.35 if s < n - 1 else 0.0)
        transitions[s, 1, max(s - 1, 0)] += 0.0 if s == 0 else (0.05 if s < n - 1 else 0.4)
    rewards[0, 0], rewards[-1, 1] = left, 1.0
    return one_variable(transitions, rewards)


def leaking(leak: float) -> FactoredMDP:
    """Two rooms that are left with probability `leak`, paying 1 and 0, and no choice at all.

    As many steps are spent in each as its way out is unlikely: the gain is exactly 1/2.
    """
    chain = np.array([[[1 - leak, leak]], [[leak, 1 - leak]]])
    return one_variable(chain, np.array([[1.0], [0.0]]))


def test_a_corridor_is_walked_to_its_better_end() -> None:
    """Gain 1 from everywhere; three steps without pay from the other end: span 3."""
    model = corridor(4, 0.99, 1.0)
    plan = fmdp.plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(1.0, abs=1e-9)
    assert plan.policy_gain == pytest.approx(1.0, abs=1e-9)
    assert plan.span == pytest.approx(3.0, abs=1e-9)
    assert [plan.policy((s,)) for s in range(4)] == [(1,)] * 4
    found = measure(model)
    assert (found.status, found.diameter) == ("converged", pytest.approx(3.0))
    # Three of a hundred steps are lost on the way to the end that pays.
    run = fmdp.simulate(model, fmdp.Oracle(), steps=100, seed=0)
    assert run.gain_kind == "exact"
    assert run.regret == pytest.approx(3.0, abs=1e-6)
    assert run.gap_regret == pytest.approx(0.0, abs=1e-6)


def test_a_long_swim_is_one_gain() -> None:
    """Always right: the product form of a birth-and-death chain gives its law by hand."""
    plan = fmdp.plan(swim(0.42))
    assert plan.status is Status.CONVERGED
    up, down = [0.6, *[0.35] * 8], [*[0.05] * 8, 0.4]
    law = np.cumprod([1.0, *(u / d for u, d in zip(up, down, strict=True))])
    right = law[-1] / law.sum()
    assert right > 0.42
    assert plan.gain == pytest.approx(right, abs=1e-6)
    assert {plan.policy((s,)) for s in range(10)} == {(1,)}


def test_policy_iteration_goes_on_while_policies_get_better() -> None:
    """From all-left the better policies of a river of 12 turn right one state at a time, and the
    gap of their functions grows before it falls."""
    plan = fmdp.plan(swim(0.3, 12))
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(3 / 7, abs=1e-6)


@pytest.mark.parametrize("leak", [1e-3, 1e-5, 1e-7, 1e-9, 1e-13])
def test_rooms_that_are_hardly_left(leak: float) -> None:
    model = leaking(leak)
    plan = fmdp.plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(0.5, abs=1e-6)
    found = evaluate_exactly(model, TablePolicy((2,), (1,), np.zeros(2, dtype=np.int64)))
    assert found.status is Status.CONVERGED
    assert found.gain_lower <= 0.5 <= found.gain_upper
    assert fmdp.simulate(model, fmdp.Oracle(), steps=1, seed=0).gain == pytest.approx(0.5, abs=1e-6)


def test_what_rounding_hides_is_said() -> None:
    """Rewards of 1e8 in every step leave eight digits: a gap of 1e-9 is out of reach."""
    base = problem("circle:3")
    rewards = tuple(means + 1e8 for means in base.rewards)
    ranges = tuple((lo + 1e8, hi + 1e8) for lo, hi in base.structure.reward_ranges)
    model = FactoredMDP(replace(base.structure, reward_ranges=ranges), base.transitions, rewards)
    plan = fmdp.plan(model, fmdp.Exact(tolerance=1e-9))
    assert plan.status is Status.PRECISION_LIMIT
    assert plan.gain_lower <= 2.9330007 + 3e8 <= plan.gain_upper
    assert plan.span is None


def two_rooms(first: float, second: float) -> FactoredMDP:
    """State 2 chooses between a sure way to room 0 and a coin for room 0 or 1."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, :, 0] = transitions[1, :, 1] = 1.0
    transitions[2, 0, 0] = 1.0
    transitions[2, 1, :2] = 0.25, 0.75
    rewards = np.array([[first, first], [second, second], [0.0, 0.0]])
    return one_variable(transitions, rewards)


def test_multichain_with_every_state_between_its_own_bounds() -> None:
    """Rooms of .2 and .6: from state 2 the coin is worth .25 * .2 + .75 * .6 = .5."""
    base = two_rooms(0.2, 0.6)
    model = FactoredMDP(base.structure, base.transitions, base.rewards, initial_state=(2,))
    plan = fmdp.plan(model)
    assert plan.status is Status.MULTICHAIN
    assert plan.gain is None
    assert plan.gain_bounds == pytest.approx((0.2, 0.6), abs=1e-9)
    assert plan.stats["gain_from_initial_state"] == pytest.approx(0.5, abs=1e-9)
    low, high = plan.stats["gain_from_initial_state_bounds"]
    assert low <= 0.5 <= high
    assert high - low < 1e-9
    assert plan.policy((2,)) == (1,)
    assert plan.policy_gain == pytest.approx(0.5, abs=1e-9)
    run = fmdp.simulate(model, fmdp.Oracle(), steps=10, seed=0)
    assert (run.gain, run.gain_kind, run.gap_regret) == (pytest.approx(0.5), "exact", None)


def test_rooms_of_equal_pay_are_one_gain() -> None:
    """Multichain in its structure, not in its gain."""
    plan = fmdp.plan(two_rooms(0.6, 0.6))
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(0.6, abs=1e-9)


def test_end_components_of_two_rooms() -> None:
    flat = write_out(two_rooms(0.2, 0.6))
    assert flat is not None
    found = end_components(flat)
    assert found.count == 2
    assert found.label.tolist() == [0, 1, -1]
    assert found.inside.tolist() == [[True, True], [True, True], [False, False]]


@given(st.data())
@settings(max_examples=120)
def test_gains_of_every_state_against_policy_iteration(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    flat = write_out(model)
    assert flat is not None
    found = optimal_gains(flat)
    assert found is not None
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp).gain
    unit = model.structure.reward_size or 1.0
    assert (found.lower <= best + 1e-10 * unit).all()
    assert (found.upper >= best - 1e-10 * unit).all()
    assert (found.upper - found.lower).max() <= 1e-6 * unit
    assert oracles.policy_gain(mdp, found.actions) == pytest.approx(best, abs=1e-7 * unit)
    plan = fmdp.plan(model)
    differ = best.max() - best.min() > 1e-5 * unit
    assert plan.status is (Status.MULTICHAIN if differ else Status.CONVERGED)


def test_a_chain_in_exact_arithmetic() -> None:
    """Absorbed in one of two classes that are left once in 10^7 steps for a third; by hand:
    P(first) = (1/3) / (1/3 + 1/6) = 2/3."""
    third, sixth = 1 / 3, 1 / 6
    chain = np.array([[0.5, third, sixth], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])  # 1/3 + 1/6 = 1/2
    model = one_variable(chain[:, None], np.array([[0.0], [1.0], [0.25]]))
    found = evaluate_exactly(model, TablePolicy((3,), (1,), np.zeros(3, dtype=np.int64)))
    truth = Fraction(2, 3) + Fraction(1, 3) * Fraction(1, 4)
    assert found.status is Status.MULTICHAIN
    assert found.gain == pytest.approx(float(truth), abs=1e-12)
    assert found.gain_bounds is not None
    assert found.gain_bounds[0] <= truth <= found.gain_bounds[1]


def _repeat(times: int, work: Callable[[], None]) -> None:
    for _ in range(times):
        work()


def test_a_deadline_is_heard_inside_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SHORT_SECONDS", 0.0)
    model = problem("circle:14")
    backup = backup_for(model)
    h, out = np.zeros(backup.n_states), np.empty(backup.n_states)
    whole = np.empty_like(out)
    backup.sweep(h, whole)
    monkeypatch.setattr(tuning, "POLL_SECONDS", 0.0)
    backup.deadline = Deadline.after(0.0)
    sweep_often = functools.partial(_repeat, 1000, lambda: backup.sweep(h, out))
    with pytest.raises(TimeUp):
        sweep_often()
    backup.deadline = NEVER
    backup.sweep(h, out)  # nothing is left behind of the sweep that was cut off
    assert np.array_equal(out, whole)


def test_no_time_for_a_policy_is_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds that hold anyway, and nothing that would be made up."""
    monkeypatch.setattr(tuning, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "POLL_SECONDS", 0.0)
    monkeypatch.setattr("fmdp.planning.prepared.GRACE_SECONDS", 0.0)
    plan = fmdp.plan(problem("circle:14"), fmdp.Exact(max_seconds=1e-9))
    assert plan.status is Status.TIME_LIMIT
    assert plan.policy is None
    assert plan.gain_bounds == (0.0, 14.0)
    assert (plan.span, plan.bias, plan.policy_gain) == (None, None, None)


@given(st.data(), st.sampled_from([2.0**-40, 2.0**-1, 2.0**60]))
@settings(max_examples=40)
def test_another_unit_scales_everything_to_the_bit(data: st.DataObject, unit: float) -> None:
    model = data.draw(strategies.models())
    one, other = fmdp.plan(model), fmdp.plan(in_units(model, unit))
    assert one.status is other.status
    assert one.iterations == other.iterations
    for name in ("gain", "gain_lower", "gain_upper", "policy_gain", "span"):
        here, there = getattr(one, name), getattr(other, name)
        assert (here is None and there is None) or here * unit == there, name
    assert one.policy == other.policy


@given(st.data(), st.sampled_from([1e-9, 1.0, 1e8]))
@settings(max_examples=40)
def test_the_policy_gains_the_lower_bound_in_any_unit(data: st.DataObject, unit: float) -> None:
    model = in_units(data.draw(strategies.models()), unit)
    for planner in (fmdp.Exact(), fmdp.Exact(max_iterations=3)):
        plan = fmdp.plan(model, planner)
        assert isinstance(plan.policy, TablePolicy)
        gain = oracles.policy_gain(oracles.dense(model), plan.policy.actions.astype(np.int64))
        assert plan.gain_lower <= gain.min() + 1e-12 * model.structure.reward_size


@given(st.data(), st.sampled_from([0.3, 0.9]))
@settings(max_examples=40)
def test_a_discounted_plan_promises_what_its_policy_gains(
    data: st.DataObject, discount: float
) -> None:
    """The best gain may be far above: under a discount the policy need not seek it."""
    model = data.draw(strategies.models())
    plan = fmdp.plan(model, fmdp.Exact(criterion="discounted", discount=discount))
    assert isinstance(plan.policy, TablePolicy)
    gain = oracles.policy_gain(oracles.dense(model), plan.policy.actions.astype(np.int64))
    start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
    unit = 1e-9 * (model.structure.reward_size or 1.0)
    assert plan.gain_lower <= gain.min() + unit
    assert plan.policy_gain <= gain[start] + unit


def test_a_hopeless_action_costs_the_others_no_digits() -> None:
    """Rounding is counted for each action by itself: one that pays -1e12 blurs only itself."""
    base = leaking(1e-7)
    table = base.transitions[0].reshape(2, 1, 2).repeat(2, axis=1)
    model = one_variable(table, np.array([[1.0, -1e12], [0.0, -1e12]]))
    plan = fmdp.plan(model, fmdp.Exact(tolerance=1e-4))
    assert plan.status is Status.CONVERGED
    assert plan.gain_lower <= 0.5 <= plan.gain_upper
    assert [plan.policy((s,)) for s in range(2)] == [(0,), (0,)]


def test_rewards_that_cancel_are_not_exact() -> None:
    """1 + 1e16 - 1e16 is 0 in floating point and 1 in truth: the bounds must know."""
    model = FactoredMDP.from_factors(
        (2,),
        (1,),
        [((0,), [[0.5, 0.5], [0.5, 0.5]])],
        [((), 1.0), ((), 1e16), ((), -1e16)],
        reward_ranges=[(0.0, 1.0), (0.0, 1e16), (-1e16, 0.0)],
    )
    found = evaluate_exactly(model, TablePolicy((2,), (1,), np.zeros(2, dtype=np.int64)))
    plan = fmdp.plan(model)
    assert found.gain_lower <= 1.0 <= found.gain_upper
    assert plan.gain_lower <= 1.0 <= plan.gain_upper


@pytest.mark.parametrize("n", [600, 900, 1201])
def test_long_sums_are_allowed_for(n: int) -> None:
    """Uniform rows over n values, one of which pays: the gain is the exact mean of the row."""
    row = np.full(n, 1.0 / n)
    model = FactoredMDP.from_factors((n,), (1,), [((), row)], [((0,), np.eye(n)[0])])
    held = [Fraction(float(p)) for p in model.transitions[0][0]]
    truth = held[0] / sum(held)
    plan = fmdp.Exact(tolerance=1e-13).plan(model)
    assert Fraction(plan.gain_lower) <= truth <= Fraction(plan.gain_upper)


def test_a_bias_that_the_gap_does_not_show() -> None:
    """State 1 pays 5e-7 less and is left once in 10^8 steps: its bias is 50 below, though value
    iteration has met its tolerance long before it noticed."""
    less, leak = 5e-7, 1e-8
    chain = np.array([[1.0, 0.0, 0.0], [leak, 1.0 - leak, 0.0], [1.0, 0.0, 0.0]])
    plan = fmdp.plan(one_variable(chain[:, None], np.array([[1.0], [1.0 - less], [0.0]])))
    assert plan.status is Status.CONVERGED
    assert plan.span == pytest.approx(less / leak, rel=1e-6)


def test_spans_are_not_given_where_value_iteration_would_decide_them() -> None:
    """Two states that pay 1 for staying, with a way across that pays a little less: any difference
    within 500 solves the equation, and a tie must not be taken for a way."""
    cross, less = 1e-12, 5e-10
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = table[1, 0, 1] = 1.0
    table[0, 1], table[1, 1] = (1 - cross, cross), (cross, 1 - cross)
    rewards = np.array([[1.0, 1.0 - less], [1.0, 1.0 - less]])
    plan = fmdp.plan(one_variable(table, rewards))
    assert plan.status is Status.CONVERGED
    assert plan.span == pytest.approx(0.0, abs=1e-6)  # value iteration's from 0, not 500


def test_one_gain_without_an_h_is_still_a_gain() -> None:
    """Two rooms that pay 1, and a state that is left for either once in 10^5 steps."""
    chain = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [5e-6, 5e-6, 1.0 - 1e-5]])
    plan = fmdp.plan(one_variable(chain[:, None], np.array([[1.0], [1.0], [0.5]])))
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("owner", [TabularBackup, Anderson])
def test_ctrl_c_between_two_sweeps_gives_a_policy_of_one_h(
    monkeypatch: pytest.MonkeyPatch, owner: type[TabularBackup | Anderson]
) -> None:
    """Interrupted when h has moved on and L h has not: it is made again, not mixed."""
    model = problem("circle:5,dynamics=guestrin")
    advance, calls = owner.advance, iter(range(1000))

    def interrupted(self: TabularBackup | Anderson, *args: object, **settings: object) -> None:
        advance(self, *args, **settings)  # type: ignore[arg-type]
        if next(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(owner, "advance", interrupted)
    monkeypatch.setattr("fmdp.planning.exact.solver.CHUNK_SECONDS", 0.0)
    if owner is TabularBackup:
        monkeypatch.setattr(solver, "acceleration_for", lambda *_: None)
    plan = fmdp.Exact().plan(model)
    assert plan.status is Status.INTERRUPTED
    assert isinstance(plan.policy, TablePolicy)
    gain = oracles.policy_gain(oracles.dense(model), plan.policy.actions.astype(np.int64))
    assert plan.gain_lower <= gain.min() + 1e-9


# ---- graphs of few nodes, and of many ------------------------------------------------------------


def random_edges(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    origin, target = np.nonzero(rng.random((n, n)) < rng.choice([0.05, 1.5 / n, 3.0 / n]))
    return origin, target


@pytest.mark.parametrize("seed", range(20))
def test_connected_sets_are_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    origin, target = random_edges(n, rng)
    reached = graphs.reachable(n, origin, target)
    assert reached is not None
    longer = np.eye(n, dtype=bool)
    for _ in range(n):  # ways of at most so many edges, one edge at a time
        for a, b in zip(origin, target, strict=True):
            longer[a] |= longer[b]
    assert np.array_equal(reached, longer)
    sets = graphs.connected_sets(n, origin, target)
    count, label = graphs.strongly_connected(n, origin, target)
    assert len(np.unique(sets)) == count
    assert np.array_equal(sets[:, None] == sets, label[:, None] == label)


@pytest.mark.parametrize("seed", range(60))
def test_the_only_class_is_the_set_that_all_come_to(seed: int) -> None:
    """By all ways between all states: one set that is never left, or None."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    possible = rng.random((n, 2, 3)) < rng.choice([0.2, 0.5, 0.9])
    possible[:, 0, 0] = True  # a chain goes on from everywhere
    successors = rng.integers(0, n if seed % 2 else max(1, n // 3), size=possible.shape)
    origin, *_ = edge = np.nonzero(possible)
    reached = graphs.reachable(n, origin, successors[edge])
    assert reached is not None
    closed = [set(np.flatnonzero(row)) for row in reached if (reached[row] >= row).all()]
    classes = {frozenset(own) for own in closed if all(reached[list(own)][:, list(own)].ravel())}
    found = graphs.only_class(successors, possible)
    if len(classes) > 1:
        assert found is None
    else:
        assert found is not None
        assert set(np.flatnonzero(found)) == set(*classes)


@pytest.mark.parametrize("seed", range(30))
def test_few_states_are_understood_as_many_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Components with their numbers, recurrent classes and certified gains, to the last bit."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    transitions = np.zeros((n, 2, n))
    for row in transitions.reshape(-1, n):
        row[rng.integers(0, n, size=int(rng.integers(1, 3)))] += 1.0
        row /= row.sum()
    written = write_out(one_variable(transitions, rng.random((n, 2))))
    assert written is not None
    policy = rng.integers(0, 2, size=n)
    everyone = np.arange(n)

    def found() -> tuple[object, ...]:
        parts = end_components(written)
        rows = written.successors[everyone, policy], written.possible[everyone, policy]
        label, closed = recurrent_classes(*rows)
        gains = optimal_gains(written)
        assert gains is not None
        return (
            parts.count,
            parts.label.tolist(),
            parts.inside.tolist(),
            # Where one class is closed, only who is in it counts.
            label.tolist() if len(closed) > 1 else (label == closed[0]).tolist(),
            closed if len(closed) > 1 else None,
            gains.lower.tolist(),
            gains.upper.tolist(),
            gains.actions.tolist(),
        )

    here = found()
    monkeypatch.setattr(graphs, "REACHABLE_STATES", 0)
    assert found() == here
