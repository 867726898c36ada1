"""The exact planner against multichain policy iteration on the flat model, and known gains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import TablePolicy
from fmdp.elimination.backup import Vector
from fmdp.elimination.kernels import Pace
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure, permute_states, product
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.small import TabularBackup
from fmdp.planning.plan import Status
from fmdp.problems import problem
from fmdp.testing import oracles, strategies


@given(st.data())
@settings(max_examples=80)
def test_bounds_policy_and_status_on_generated_models(data: st.DataObject) -> None:
    """Periodic, multichain and deterministic models included."""
    model = data.draw(strategies.models())
    flat = oracles.dense(model)
    best = oracles.optimal(flat).gain
    found = Exact(tolerance=1e-7, max_iterations=20_000).plan(model)
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    assert found.gain_lower <= best.min() + 1e-9
    assert found.gain_upper >= best.max() - 1e-9
    assert isinstance(found.policy, TablePolicy)
    gains = oracles.policy_gain(flat, found.policy.actions)
    assert (gains >= found.gain_lower - 1e-9).all()
    constant = best.max() - best.min() < 1e-9
    if found.status is Status.CONVERGED:
        assert constant
        assert found.gain_upper - found.gain_lower <= 1e-7 + 1e-9
        assert found.bias is not None
        residual = oracles.bellman(flat, found.bias) - found.bias
        assert residual.max() - residual.min() <= 1e-7 + 1e-9
    else:
        assert found.status is Status.MULTICHAIN
        assert not constant
        start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
        assert found.stats["gain_from_initial_state"] == pytest.approx(best[start], abs=1e-6)


@given(st.data())
@settings(max_examples=40)
def test_discounted_value_equals_the_dense_one(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    discount = data.draw(st.sampled_from((0.0, 0.5, 0.95)))
    flat = oracles.dense(model)
    value = np.zeros(flat.n_states)
    for _ in range(600):
        value = oracles.bellman(flat, value, discount)
    found = Exact(criterion="discounted", discount=discount, tolerance=1e-9).plan(model)
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.bias, value, atol=1e-8)
    assert found.objective == pytest.approx(value.mean(), abs=1e-8)
    assert found.gain is None


KNOWN_GAINS = {
    "circle:3": 2.9330007,
    "three-leg:4": 3.9200237,
    "circle:7,dynamics=guestrin,reward=mean": 0.844975,
    "circle:4,dynamics=guestrin,reward=mean": 0.914944,
    "jao:4": 0.6 * 4,
    "large-diameter": 1.0,
    "riverswim:3": 3 * 0.428622434,
}


@pytest.mark.parametrize(("name", "gain"), KNOWN_GAINS.items())
def test_known_gains(name: str, gain: float) -> None:
    found = Exact(tolerance=1e-8).plan(problem(name))
    assert found.status is Status.CONVERGED
    assert found.gain == pytest.approx(gain, abs=1e-6)


def test_spans_of_products_add_up() -> None:
    """JAO and RiverSwim: sp = Q = the sum over the copies; also the periodic two circles."""
    for name, span in (("jao:3", 6.0), ("riverswim:2", 2 * 6.310324), ("large-diameter", 2.0)):
        found = Exact(tolerance=1e-9).plan(problem(name))
        assert found.span == pytest.approx(span, abs=1e-6), name
        assert found.factored_span_sum == pytest.approx(span, abs=1e-6), name


def test_period_two_is_damped_and_said() -> None:
    found = Exact().plan(problem("large-diameter"))
    assert found.status is Status.CONVERGED
    assert found.stats["damping"] < 1.0


def test_permuted_variables_and_products_keep_their_gain() -> None:
    model = problem("circle:5,dynamics=talebi")
    gain = Exact().plan(model).gain
    assert gain is not None
    assert Exact().plan(permute_states(model, (3, 0, 4, 2, 1))).gain == pytest.approx(
        gain, abs=2e-6
    )
    both = Exact().plan(product(model, problem("jao:1"))).gain
    assert both == pytest.approx(gain + 0.6, abs=3e-6)


def test_limits_are_statuses() -> None:
    model = problem("circle:6,dynamics=guestrin")
    stopped = Exact(tolerance=1e-12, max_iterations=3).plan(model)
    assert stopped.status is Status.ITERATION_LIMIT
    assert stopped.iterations == 3
    gain = Exact(tolerance=1e-9).plan(model).gain
    assert gain is not None
    assert stopped.gain_lower is not None
    assert stopped.gain_upper is not None
    assert stopped.gain_lower <= gain <= stopped.gain_upper
    assert Exact(tolerance=1e-12, max_seconds=1e-9).plan(model).status is Status.TIME_LIMIT
    with pytest.raises(TooLarge):
        Exact(memory_limit=1000).plan(model)


def test_interruption_gives_the_bounds_so_far() -> None:
    model = problem("circle:6,dynamics=guestrin")
    calls = []

    def interrupt(report: object) -> None:
        calls.append(report)

    # The signal arrives inside a sweep.
    sweeps = iter([1, 1])
    original = TabularBackup.iterate

    def broken(self: TabularBackup, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        if next(sweeps, None) is None:
            raise KeyboardInterrupt
        return original(self, h, new, scratch, pace._replace(sweeps=4))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TabularBackup, "iterate", broken)
        found = Exact(tolerance=1e-12).plan(model, progress=interrupt)
    assert found.status is Status.INTERRUPTED
    assert found.iterations == 8
    assert len(calls) == 2
    gain = Exact(tolerance=1e-9).plan(model).gain
    assert gain is not None
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    assert found.gain_lower <= gain <= found.gain_upper
    assert found.policy is not None


def test_prepared_solves_many_and_starts_warm() -> None:
    rng = np.random.default_rng(0)
    structure = problem("circle:5").structure
    prepared = Exact(tolerance=1e-6).prepare(structure)
    model = problem("circle:5")
    first = prepared.solve(model)
    again = prepared.solve(model)
    assert again.iterations == 1 < first.iterations
    for _ in range(5):
        tables = [rng.dirichlet(np.ones(2), rows) for rows in structure.transition_rows]
        changed = FactoredMDP(structure, tables, model.rewards)
        warm, cold = prepared.solve(changed), Exact().plan(changed)
        assert warm.gain == pytest.approx(cold.gain, abs=2e-6)


def test_warm_state_makes_the_next_solve_the_same_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    structure = problem("three-leg:5").structure
    models = [
        FactoredMDP(
            structure,
            [rng.dirichlet(np.ones(2), rows) for rows in structure.transition_rows],
            problem("three-leg:5").rewards,
        )
        for _ in range(3)
    ]
    one, other = Exact().prepare(structure), Exact().prepare(structure)
    one.solve(models[0])
    one.solve(models[1])
    other.restore_warm_state(one.warm_state())
    left, right = one.solve(models[2], describe=True), other.solve(models[2], describe=True)
    assert (left.gain, left.iterations) == (right.gain, right.iterations)
    np.testing.assert_array_equal(left.bias, right.bias)
    assert left.policy == right.policy


@given(st.data())
@settings(max_examples=30)
def test_optimistic_gain_is_between_the_truth_and_nested(data: st.DataObject) -> None:
    """truth <= vertex <= nested, for a truth inside the one-sided set (design.md 6.1, 6.2)."""
    structure = data.draw(strategies.structures(max_states=12, max_actions=3))
    tables, truth = data.draw(strategies.optimistic_pairs(structure))
    settings_ = {"tolerance": 1e-7, "max_iterations": 20_000}
    nested = Exact(**settings_, targets="nested").prepare(structure).solve(tables)
    vertex = Exact(**settings_, targets="vertex").prepare(structure).solve(tables)
    best = oracles.optimal(oracles.dense(truth)).gain
    assert vertex.gain_upper >= best.max() - 1e-7
    assert nested.gain_upper >= vertex.gain_lower - 1e-7
    assert vertex.policy.actions.max() < structure.n_actions
    if vertex.status is nested.status is Status.CONVERGED:
        flat = oracles.dense(tables.extended())
        assert vertex.gain == pytest.approx(oracles.optimal(flat).gain.max(), abs=1e-6)


def test_two_optimistic_factors_can_be_periodic() -> None:
    """Two variables that may swap: all mass is free, only (0, 1) and (1, 0) pay, so that the best
    targets send the state to and fro; undamped iteration would cycle for ever."""
    structure = Structure((2, 2), (1,), ((1, 2), (0, 2)), ((0, 1),), ((0.0, 1.0),))
    swap = np.eye(2)
    tables = OptimisticTables.from_model(
        FactoredMDP(structure, [swap, swap], [np.array([0.0, 1.0, 0.0, 0.0])])
    )
    found = Exact(max_iterations=5_000).prepare(structure).solve(tables)
    assert found.status in (Status.CONVERGED, Status.MULTICHAIN)


def test_plan_reports_what_its_policy_gains() -> None:
    found = fmdp.plan(problem("circle:6,dynamics=guestrin,reward=mean"))
    assert found.planner == "exact"
    assert found.policy_gain == pytest.approx(found.gain, abs=2e-6)


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        (
            {"tolerance": 0.0},
            "'tolerance' parameter of planner exact must be a number > 0 or none; got 0.0",
        ),
        ({"criterion": "averge"}, 'did you mean "average"'),
        (
            {"discount": 1.0},
            r"'discount' parameter of planner exact must be a number in \[0, 1\) or none; got 1.0",
        ),
        ({"targets": "nest"}, 'did you mean "nested"'),
        ({"ties": "any"}, "got 'any'"),
        (
            {"max_iterations": 0},
            "'max_iterations' parameter of planner exact must be an integer >= 1 or none; got 0",
        ),
    ],
)
def test_bad_settings_name_the_culprit(settings_: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Exact(**settings_)  # type: ignore[arg-type]
