"""The worst and the best case inside intervals: against every corner of small sets, and by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fmdp
from fmdp import Intervals, TablePolicy
from fmdp.errors import InvalidParameter
from fmdp.measures import measure
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.exact.interval_sets import tables_of
from fmdp.planning.exact.intervals import PAIRS, pair_rows, poured
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Plan
from fmdp.planning.status import Status
from fmdp.problems import problem
from fmdp.testing import oracles, strategies

TINY = strategies.structures(
    max_variables=2, max_values=3, max_states=4, max_actions=2, max_parents=1, max_rewards=1
)
MOST_MEMBERS, MOST_CHAINS = 256, 2_048


def around(model: FactoredMDP, seed: int, width: float) -> FactoredMDP:
    """Intervals of random widths, for about half of the rows none at all."""
    rng = np.random.default_rng(seed)
    ends: list[list[NDArray[np.float64]]] = [[], [], [], []]
    for table in model.transitions:
        known = rng.random((len(table), 1)) < 0.5
        for place, way in ((0, -1.0), (1, 1.0)):
            moved = table + way * width * rng.random(table.shape)
            ends[place].append(np.where(known, table, np.clip(moved, 0.0, 1.0)))
    for means, (lo, hi) in zip(model.rewards, model.structure.reward_ranges, strict=True):
        share = (hi - lo) * width * rng.random(means.shape)
        ends[2].append(np.clip(means - share, lo, hi))
        ends[3].append(np.clip(means + share, lo, hi))
    return FactoredMDP(
        model.structure,
        model.transitions,
        model.rewards,
        initial_state=model.initial_state,
        name=model.name,
        intervals=Intervals(*(tuple(own) for own in ends)),
    )


def members(model: FactoredMDP, rewards: tuple[NDArray[np.float64], ...]) -> list[FactoredMDP]:
    """Every model whose rows are corners of their boxes: stationary nature, one choice a row."""
    assert model.intervals is not None
    corners = [
        oracles.box_corners(lower, upper)
        for low, high in zip(model.intervals.lower, model.intervals.upper, strict=True)
        for lower, upper in zip(low, high, strict=True)
    ]
    # A box of one point has it once for every value.
    distinct = [list({corner.tobytes(): corner for corner in own}.values()) for own in corners]
    assume(math.prod(len(own) for own in distinct) <= MOST_MEMBERS)
    found = []
    for chosen in itertools.product(*distinct):
        rows, start = [], 0
        for table in model.transitions:
            own = np.stack(chosen[start : start + len(table)])
            rows.append(own / own.sum(axis=1, keepdims=True))
            start += len(table)
        found.append(FactoredMDP.trusted(model.structure, rows, rewards))
    return found


def ends_of(plan: Plan) -> tuple[float, float]:
    assert plan.gain_lower is not None
    assert plan.gain_upper is not None
    return plan.gain_lower, plan.gain_upper


@given(st.data())
@settings(max_examples=40)
def test_every_corner_and_every_policy_lie_where_the_bounds_say(data: st.DataObject) -> None:
    """Gains of all policies in all corners; periodic and multichain members included."""
    structure = data.draw(st.one_of(TINY, strategies.constrained(TINY)))
    bare = data.draw(strategies.models(structure))
    model = around(bare, data.draw(st.integers(0, 1000)), data.draw(st.sampled_from((0.1, 0.6))))
    assert model.intervals is not None
    worst_case = members(model, model.intervals.reward_lower)
    best_case = members(model, model.intervals.reward_upper)
    limited = {"max_iterations": 3_000}
    robust = Exact(intervals="robust", **limited).plan(model)
    hopeful = Exact(intervals="optimistic", **limited).plan(model)
    flats = [oracles.dense(member) for member in worst_case]
    policies = list(oracles.all_policies(flats[0]))
    assume(len(policies) * len(flats) <= MOST_CHAINS)
    # [policies, members, states]: stationary nature's worst case of each policy.
    gains = np.array([[oracles.policy_gain(flat, p) for flat in flats] for p in policies])
    max_min = gains.min(axis=1).max(axis=0)
    lower, upper = ends_of(robust)
    assert lower <= max_min.min() + 1e-9
    assert upper >= max_min.max() - 1e-9
    assert isinstance(robust.policy, TablePolicy)
    guaranteed = min(oracles.policy_gain(flat, robust.policy.actions).min() for flat in flats)
    assert guaranteed >= lower - 1e-9
    best = np.array([oracles.optimal(oracles.dense(member)).gain for member in best_case])
    lower, upper = ends_of(hopeful)
    assert lower <= best.max(axis=0).min() + 1e-9
    assert upper >= best.max() - 1e-9
    assert isinstance(hopeful.policy, TablePolicy)
    tried = [
        *best_case,
        FactoredMDP.trusted(model.structure, model.transitions, best_case[0].rewards),
    ]
    promised = max(
        oracles.policy_gain(oracles.dense(member), hopeful.policy.actions).min() for member in tried
    )
    assert promised >= lower - 1e-9


@pytest.mark.slow
@given(st.integers(0, 10_000), st.sampled_from((0.05, 0.3)))
@settings(max_examples=25)
def test_flat_models_are_solved_as_givan_has_it(seed: int, width: float) -> None:
    """One variable: rectangular nature, so the interval value iteration of Givan, Leach & Dean is
    exact, and both ends meet."""
    rng = np.random.default_rng(seed)
    size, actions = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    structure = Structure((size,), (actions,), ((0, 1),), ((0, 1),))
    rows = rng.dirichlet(np.ones(size), size=size * actions)
    model = around(FactoredMDP(structure, [rows], [rng.random(size * actions)]), seed, width)
    for case, worst in (("robust", True), ("optimistic", False)):
        tables = tables_of(model, worst=worst)
        assert tables.upper is not None
        h = np.zeros(size)
        for _ in range(4_000):
            q = [
                tables.rewards[0][row]
                + oracles.box_value(tables.lower[0][row], tables.upper[0][row], h, worst=worst)
                for row in range(size * actions)
            ]
            new = np.array(q).reshape(size, actions).max(axis=1)
            residual = new - h
            h = new - new.min()
            if np.ptp(residual) < 1e-10:
                break
        plan = Exact(intervals=case).plan(model)
        lower, upper = ends_of(plan)
        assert plan.status is Status.CONVERGED
        assert lower - 1e-9 <= residual.max()
        assert residual.min() <= upper + 1e-9
        assert upper - lower <= 1e-6


def two_states(width: float) -> FactoredMDP:
    """In state 1 pays 1, in state 0 nothing; up with .5, down with .5, both known to +-width."""
    structure = Structure((2,), (1,), ((0,),), ((0,),))
    rows = np.array([[0.5, 0.5], [0.5, 0.5]])
    ends = (np.clip(rows - width, 0, 1),), (np.clip(rows + width, 0, 1),)
    means = (np.array([0.0, 1.0]),)
    return FactoredMDP(structure, [rows], means, intervals=Intervals(*ends, means, means))


@pytest.mark.parametrize("width", [0.0, 0.1, 0.25, 0.5])
def test_two_states_by_hand(width: float) -> None:
    """Worst: up .5 - w, down .5 + w, so the share of state 1 is .5 - w; best: .5 + w."""
    model = two_states(width)
    for case, gain in (("robust", 0.5 - width), ("optimistic", 0.5 + width)):
        plan = Exact(intervals=case).plan(model)
        assert plan.status is Status.CONVERGED, (case, width)
        assert plan.gain == pytest.approx(gain, abs=1e-6)
    assert Exact().plan(model).gain == pytest.approx(0.5, abs=1e-6)
    assert Exact(intervals="nominal").plan(model).gain == pytest.approx(0.5, abs=1e-6)


def test_a_guarantee_is_another_policy() -> None:
    """Action 1 pays .6, surely; action 0 pays .7, or only .5 where it is known that badly."""
    structure = Structure((1,), (2,), ((),), ((1,),))
    means, width = np.array([0.7, 0.6]), np.array([0.2, 0.0])
    one = (np.ones((1, 1)),)
    model = FactoredMDP(
        structure,
        one,
        [means],
        intervals=Intervals(one, one, (means - width,), (means + width,)),
    )
    plan = fmdp.plan(model, Exact(intervals="robust"))
    assert (plan.gain, plan.policy_gain) == (pytest.approx(0.6), pytest.approx(0.6))
    assert plan.policy is not None
    assert plan.policy((0,)) == (1,)
    hopeful = fmdp.plan(model, "exact,intervals=optimistic")
    assert (hopeful.gain, hopeful.policy_gain) == (pytest.approx(0.9), pytest.approx(0.7))
    assert "worst case inside the intervals" in repr(plan)
    assert "best case inside the intervals" in repr(hopeful)
    nominal = fmdp.plan(model)
    assert nominal.policy is not None
    assert nominal.policy((0,)) == (0,)


def test_rooms_that_are_hardly_ever_left() -> None:
    """Rooms that pay 0 and 1, left with 1 to 3 and 2 to 4 in 10^6: sweeps stand still. Worst: in
    with the least, out with the most, 1/5 of the time in the room that pays; best: 3/5."""
    structure = Structure((2,), (1,), ((0,),), ((0,),))
    lower = np.array([[1 - 3e-6, 1e-6], [2e-6, 1 - 4e-6]])
    upper = np.array([[1 - 1e-6, 3e-6], [4e-6, 1 - 2e-6]])
    rows = np.array([[1 - 2e-6, 2e-6], [3e-6, 1 - 3e-6]])
    means = (np.array([0.0, 1.0]),)
    model = FactoredMDP(
        structure, [rows], means, intervals=Intervals((lower,), (upper,), means, means)
    )
    for case, gain in (("robust", 0.2), ("optimistic", 0.6)):
        plan = Exact(intervals=case).plan(model)
        assert plan.status is Status.CONVERGED
        assert plan.gain == pytest.approx(gain, abs=1e-6)
        assert plan.iterations < 1_000


def test_what_the_relaxation_leaves_is_said() -> None:
    """A row is used in several states, and nature would choose another one in each: no number of
    sweeps closes that."""
    model = around(problem("random:3,values=3,seed=1"), 3, 0.2)
    plan = Exact(intervals="robust").plan(model)
    lower, upper = ends_of(plan)
    assert plan.status is Status.RELAXATION_LIMIT
    assert 1e-6 < upper - lower < 0.05
    low, high = plan.stats["nested_bounds"]
    assert high - low <= 1e-6
    assert lower <= high
    wide = Exact(intervals="robust", tolerance=0.1).plan(model)
    assert wide.status is Status.CONVERGED


def test_wider_intervals_are_worse_and_better() -> None:
    bare = problem("circle:4,dynamics=guestrin")
    worst, best = np.inf, -np.inf
    for width in (0.0, 0.05, 0.1, 0.3):
        rows = [np.clip(table - width, 0, 1) for table in bare.transitions]
        tops = [np.clip(table + width, 0, 1) for table in bare.transitions]
        ends = Intervals(tuple(rows), tuple(tops), bare.rewards, bare.rewards)
        model = FactoredMDP(bare.structure, bare.transitions, bare.rewards, intervals=ends)
        lower = ends_of(Exact(intervals="robust").plan(model))[0]
        upper = ends_of(Exact(intervals="optimistic").plan(model))[1]
        assert lower <= worst + 1e-6
        assert upper >= best - 1e-6
        worst, best = lower, upper
        nominal = Exact().plan(model).gain
        assert nominal is not None
        assert lower <= nominal + 1e-6 <= upper + 2e-6
        if width == 0.0:
            assert upper - lower <= 2e-6


def test_alike_rows_lie_in_all_of_their_intervals() -> None:
    """One coin for two rows, .3 to .6 seen in one and .5 to .9 in the other: .5 to .6 it is."""
    from fmdp import Alike

    structure = Structure(
        (2,), (1,), ((0,),), ((0,),), alike=Alike((np.array([0, 0]),), (np.array([0, 1]),))
    )
    rows = np.full((2, 2), 0.5) + np.array([[-0.05, 0.05]])
    lower = np.array([[0.4, 0.3], [0.1, 0.5]])
    upper = np.array([[0.7, 0.6], [0.5, 0.9]])
    means = (np.array([0.0, 1.0]),)
    model = FactoredMDP(
        structure, [rows], means, intervals=Intervals((lower,), (upper,), means, means)
    )
    assert Exact(intervals="robust").plan(model).gain == pytest.approx(0.5, abs=1e-6)
    assert Exact(intervals="optimistic").plan(model).gain == pytest.approx(0.6, abs=1e-6)


def test_effects_change_nothing() -> None:
    bare = problem("maintenance:2,levels=3")
    assert bare.structure.effects is not None
    lower = tuple(np.clip(table - 0.05, 0.0, 1.0) for table in bare.transitions)
    upper = tuple(np.clip(table + 0.05, 0.0, 1.0) for table in bare.transitions)
    known = Intervals(lower, upper, bare.rewards, bare.rewards)
    models = [
        FactoredMDP(structure, bare.transitions, bare.rewards, intervals=known)
        for structure in (bare.structure, replace(bare.structure, effects=None))
    ]
    for case in ("robust", "optimistic"):
        ours, enumerated = (ends_of(Exact(intervals=case).plan(model)) for model in models)
        assert ours == pytest.approx(enumerated, abs=1e-6)


def test_above_the_limit_nature_looks_at_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coarser adversary; the bounds hold all the same."""
    assert PAIRS >= 1 << 20
    model = around(problem("circle:4,dynamics=guestrin"), 0, 0.1)
    fine = ends_of(Exact(intervals="robust").plan(model))
    monkeypatch.setattr("fmdp.planning.exact.intervals.PAIRS", 0)
    coarse = ends_of(Exact(intervals="robust").plan(model))
    assert coarse[0] == fine[0]
    assert coarse[1] >= fine[1] - 1e-6


def test_limits_are_statuses() -> None:
    model = around(problem("circle:6,dynamics=guestrin"), 0, 0.1)
    gain = Exact(intervals="robust").plan(model).gain
    assert gain is not None
    for limit, status in (
        ({"max_iterations": 3}, Status.ITERATION_LIMIT),
        ({"max_seconds": 1e-9}, Status.TIME_LIMIT),
    ):
        plan = Exact(intervals="robust", **limit).plan(model)  # type: ignore[arg-type]
        lower, upper = ends_of(plan)
        assert plan.status is status
        assert lower <= gain <= upper
    with pytest.raises(fmdp.FmdpError, match="memory limit"):
        Exact(intervals="robust", memory_limit=1000).plan(model)


def test_rooms_that_are_never_left_have_bounds_and_a_policy() -> None:
    """Two states that stay for ever and pay .2 to .3 and .6 to .7: the worst case depends on the
    state, from .2 to .6, the best from .3 to .7; the bounds enclose all."""
    structure = Structure((2,), (1,), ((0,),), ((0,),))
    stay, means = np.eye(2), np.array([0.25, 0.65])
    model = FactoredMDP(
        structure,
        [stay],
        [means],
        intervals=Intervals((stay,), (stay,), (means - 0.05,), (means + 0.05,)),
    )
    for case, bounds in (("robust", (0.2, 0.6)), ("optimistic", (0.3, 0.7))):
        plan = Exact(intervals=case, max_iterations=400).plan(model)
        assert plan.status is Status.ITERATION_LIMIT
        assert ends_of(plan) == pytest.approx(bounds, abs=1e-6)
        assert plan.iterations <= 400
        assert plan.policy is not None


def test_ctrl_c_gives_the_bounds_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    model = around(problem("circle:4"), 0, 0.1)
    whole = ends_of(Exact(intervals="robust").plan(model))

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("fmdp.planning.exact.intervals._Nature.answer", interrupted)
    plan = Exact(intervals="robust").plan(model)
    lower, upper = ends_of(plan)
    assert plan.status is Status.INTERRUPTED
    assert lower == whole[0]
    assert upper >= whole[1]
    assert plan.policy is not None


def test_who_cannot_plan_for_intervals_says_so() -> None:
    bare, model = problem("jao:2"), around(problem("jao:2"), 0, 0.1)
    with pytest.raises(InvalidParameter, match="has no intervals, so there is no worst"):
        fmdp.plan(bare, Exact(intervals="robust"))
    with pytest.raises(InvalidParameter, match="is used with criterion=average alone"):
        Exact(intervals="robust", criterion="finite", horizon=3)
    with pytest.raises(InvalidParameter, match="about the model's own numbers"):
        measure(model, Exact(intervals="robust"))
    with pytest.raises(InvalidParameter, match="these are the tables of a learner"):
        fmdp.simulate(bare, fmdp.DORL(planner=Exact(intervals="optimistic")), steps=3)
    prepared = Exact(intervals="robust").prepare(model.structure)
    assert prepared.solve(model).status is Status.CONVERGED


def test_pouring_rows_by_hand() -> None:
    lower, upper = np.full((2, 3), 0.1), np.array([[0.6, 0.6, 0.6], [0.2, 0.9, 0.5]])
    worth = np.array([[3.0, 2.0, 1.0], [0.0, 0.0, 1.0]])
    worst = poured(lower, upper, worth, worst=True)
    np.testing.assert_allclose(worst, [[0.1, 0.3, 0.6], [0.2, 0.7, 0.1]])
    best = poured(lower, upper, worth, worst=False)
    np.testing.assert_allclose(best, [[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])


@given(strategies.structures())
def test_the_row_of_every_pair(structure: Structure) -> None:
    for scope in structure.transition_scopes:
        rows = iter(pair_rows(structure, scope).tolist())
        for state in oracles.assignments(structure.state_sizes):
            for action in oracles.assignments(structure.action_sizes):
                assert next(rows) == oracles.scope_row(structure, scope, state + action)
